"""The file of an embedded store: what makes it one, how it is made and opened, and how to tell it from another.

A book is one row: its pair, the revision that it came with, its JSON and a digest of that; a pair that was retracted
keeps its row, without JSON, so that whoever follows can tell. What the digest does not fit was damaged, or written by
something else, and is not believed: SQLite itself has no checksums.

Revisions alone do not tell a file from another, or from an older copy of itself that was put back: each unbroken run
of revisions by one writer has a token, drawn at random. Whoever follows knows the run of the last revision that it has
read; where the file holds that run no longer, or not as far, it is another file, or was rolled back.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import Final, Literal

from attrs import frozen

APPLICATION_ID: Final = int.from_bytes(b"mkti")
"""What the header of the file says that it is."""

SCHEMA_VERSION: Final = 1

MAGIC: Final = b"SQLite format 3\0"

_MOST_RUNS: Final = 1000
_HEADER: Final = 100
_LOG_HEADER: Final = 32

_SCHEMA: Final = f"""
PRAGMA journal_mode = WAL;
BEGIN;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE books (pair TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL, body TEXT, digest BLOB);
CREATE INDEX books_by_revision ON books (revision);
CREATE TABLE runs (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, token BLOB NOT NULL);
COMMIT;
"""


class Unusable(Exception):
    """What is wrong with a file that is to be a store."""


class Busy(Exception):
    """Somebody else was writing for as long as was waited."""


@frozen
class Position:
    """How far a file goes, or was read: the token of its last run, and its last revision."""

    token: bytes
    revision: int


NEVER_PUBLISHED: Final = Position(b"", 0)


def create(path: Path) -> None:
    """Make an empty store, in one step: nobody ever sees half of one, even if this is killed."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        with closing(sqlite3.connect(f"{new.as_uri()}?mode=rwc", uri=True, isolation_level=None)) as connection:
            connection.executescript(_SCHEMA)
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)
    _sync_folder(path.parent)


def require_store(path: Path) -> None:
    """Refuse what is no store, without letting SQLite touch it.

    Raises `Unusable`, and `OSError` where there is no such file or it cannot be read.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise Unusable("it is not a file")
    header = header_of(path)
    if not header:
        raise Unusable("it is empty, not a store")
    if not header.startswith(MAGIC):
        raise Unusable("it is not a store: not a SQLite file")
    if int.from_bytes(header[68:72]) != APPLICATION_ID:
        raise Unusable("it is not a store of order books, but a SQLite file of something else")
    _require_schema(int.from_bytes(header[60:64]))


def connect(path: Path, mode: Literal["ro", "rw"], wait: float) -> sqlite3.Connection:
    """Open a file that is there, in autocommit mode, for one thread after the other; texts are read as bytes.

    Raises `Unusable` and `sqlite3.Error`.
    """
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    with _OPENING, ExitStack() as stack:
        connection = sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None, check_same_thread=False)
        stack.callback(connection.close)
        connection.text_factory = bytes
        _require_schema(connection.execute("PRAGMA user_version").fetchone()[0])
        stack.pop_all()
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection, begin: Literal["BEGIN", "BEGIN IMMEDIATE"]) -> Iterator[None]:
    """Let what is read be of one moment, and what is written be there whole or not at all."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def last_position(connection: sqlite3.Connection) -> Position:
    """Return how far the file goes."""
    row = connection.execute("SELECT token, last FROM runs ORDER BY first DESC LIMIT 1").fetchone()
    return NEVER_PUBLISHED if row is None else Position(*row)


def next_position(connection: sqlite3.Connection, own: Position | None) -> Position:
    """Write down the next revision, and return it: in the same run, where the last one was the writer's `own`."""
    last = last_position(connection)
    if last == own:
        connection.execute("UPDATE runs SET last = last + 1 WHERE token = ?", (last.token,))
        return Position(last.token, last.revision + 1)
    following = Position(secrets.token_bytes(16), last.revision + 1)
    connection.execute("INSERT INTO runs VALUES (?, ?, ?)", (following.revision, following.revision, following.token))
    connection.execute(
        "DELETE FROM runs WHERE first <= (SELECT first FROM runs ORDER BY first DESC LIMIT 1 OFFSET ?)", (_MOST_RUNS,)
    )
    return following


def reaches(connection: sqlite3.Connection, position: Position) -> bool:
    """Whether the file holds the run of this position, as far as it."""
    run = connection.execute("SELECT last FROM runs WHERE token = ?", (position.token,)).fetchone()
    return run is not None and run[0] >= position.revision


def log_header_of(path: Path) -> bytes:
    """Return what the log of a store begins with, which is another in each log; nothing where there is none."""
    try:
        with Path(f"{os.path.realpath(path)}-wal").open("rb") as log:
            return log.read(_LOG_HEADER)
    except FileNotFoundError:
        return b""


_OPENING: Final = Lock()


def header_of(path: Path) -> bytes:
    """Return the first bytes of the file.

    Where this process has it open, they are read from there: to open it once more, and close it, would let go of the
    locks that SQLite holds on it (POSIX locks belong to the process, and go with the first descriptor that is closed).
    """
    with _OPENING:
        identity = identity_of(path)
        for descriptor in _descriptors():
            with suppress(OSError):
                found = os.fstat(descriptor)
                if (found.st_dev, found.st_ino) == identity:
                    return os.pread(descriptor, _HEADER, 0)
        with path.open("rb") as file:
            return file.read(_HEADER)


def identity_of(path: Path) -> tuple[int, int]:
    """Return what tells a file from another, as long as it is open or there."""
    found = path.stat()
    return found.st_dev, found.st_ino


def reason_of(error: BaseException) -> str:
    """Return what is wrong, for people."""
    if isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_CANTOPEN:
        return f"{error} (its folder has to be writable, for what those share that have it open)"
    return getattr(error, "strerror", None) or str(error)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether SQLite gave up waiting for somebody else."""
    return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class WriterLock:
    """Keeps every other store of a file from writing, in whichever process: a lock on a file beside it.

    SQLite's own lock is let go before the log is put into the file, which before 3.51.3 could damage the file when
    another connection wrote at that instant.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)

    @contextmanager
    def held(self, wait: float) -> Iterator[None]:
        """Hold the lock; raise `Busy` when it cannot be had within so many seconds."""
        patience = monotonic() + wait
        while not _locked(self._descriptor):
            if monotonic() >= patience:
                raise Busy
            sleep(0.001)
        try:
            yield
        finally:
            _unlock(self._descriptor)

    def close(self) -> None:
        """Let go of the file beside it, which stays."""
        os.close(self._descriptor)


def _require_schema(version: int) -> None:
    if version != SCHEMA_VERSION:
        later = ": a later version wrote it" if version > SCHEMA_VERSION else ""
        raise Unusable(
            f"it has schema {version}, and this version of market-index reads schema {SCHEMA_VERSION}{later}"
        )


def _descriptors() -> list[int]:
    """Return what this process has open, where the system tells."""
    try:
        return [int(entry.name) for entry in Path("/dev/fd").iterdir()]
    except OSError:
        return []


def _code(error: sqlite3.Error) -> int:
    # The lowest byte is the error, the others are its kind. What the module itself raises has no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


if sys.platform == "win32":  # pragma: no cover  # not tried: SQLite's own lock is all there is

    def _locked(_: int) -> bool:
        return True

    def _unlock(_: int) -> None:
        pass

    def _sync_folder(_: Path) -> None:
        pass

else:
    import fcntl

    def _locked(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _sync_folder(folder: Path) -> None:
        # Else a power cut could take away the name of the file, and all that was acknowledged with it.
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
