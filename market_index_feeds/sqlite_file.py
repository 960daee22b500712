"""The file of an embedded store: what makes it one, how it is made and opened, and how to tell it from another.

A book is one row: its pair, the revision that it came with, its JSON, and a digest; a pair that was retracted keeps its
row, without JSON, so that whoever follows can tell. What the digest does not fit was damaged, or written by something
else, and is not believed: SQLite itself has no checksums. With each change the sum of all digests is written down, so
that rows which are missing, or are those of another file, are noticed too: SQLite goes by names, and would put together
a file and the log of the one that stood there before.

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
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import Final, Literal
from weakref import WeakSet

from attrs import frozen

APPLICATION_ID: Final = int.from_bytes(b"mkti")
"""What the header of the file says that it is."""

SCHEMA_VERSION: Final = 1

MAGIC: Final = b"SQLite format 3\0"

_MOST_RUNS: Final = 1000
_DIGEST_BYTES: Final = 16
_MODULUS: Final = 256**_DIGEST_BYTES
_HEADER: Final = 100
_LOG_HEADER: Final = 32

_SCHEMA: Final = f"""
PRAGMA journal_mode = WAL;
BEGIN;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE books (pair TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL, digest BLOB NOT NULL, body TEXT);
CREATE INDEX books_by_revision ON books (revision);
CREATE TABLE runs (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, token BLOB NOT NULL, total BLOB NOT NULL);
COMMIT;
"""


_PUT: Final = """
INSERT INTO books (pair, revision, digest, body) VALUES (?, ?, ?, ?)
ON CONFLICT (pair) DO UPDATE SET revision = excluded.revision, digest = excluded.digest, body = excluded.body
"""


# Cast, because whoever else writes to the file may store what he likes.
DIGESTS: Final = "SELECT CAST(digest AS BLOB) FROM books"


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
    path.parent.stat()  # SQLite would not say that it is not there
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        with closing(sqlite3.connect(f"{new.as_uri()}?mode=rwc", uri=True, isolation_level=None)) as connection:
            connection.executescript(_SCHEMA)
        try:
            os.link(new, path)
        except FileExistsError:
            pass  # somebody else was faster
        except OSError:
            # Not every file system has links. Nobody is likely to make the same file at the same time.
            if not path.exists():
                new.rename(path)
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
        raise Unusable("it is an empty file, not a store (remove it to have one made)")
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
    try:
        # Within: an interrupt may be raised as this returns.
        connection.execute(begin)
        yield
        if connection.in_transaction:
            connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def last_position(connection: sqlite3.Connection) -> Position:
    """Return how far the file goes."""
    row = connection.execute("SELECT token, last FROM runs ORDER BY first DESC LIMIT 1").fetchone()
    return NEVER_PUBLISHED if row is None else Position(*row)


def digest_of(revision: int, content: bytes) -> bytes:
    """Return the digest of a row: of its JSON, or of its pair where that was retracted."""
    return blake2b(b"%d %b" % (revision, content), digest_size=_DIGEST_BYTES).digest()


def sum_of(digests: Iterable[bytes]) -> int:
    """Return what digests come to, whatever their order."""
    return sum(map(int.from_bytes, digests)) % _MODULUS


def last_total(connection: sqlite3.Connection) -> int:
    """Return what the digests of all rows are to come to."""
    row = connection.execute("SELECT total FROM runs ORDER BY first DESC LIMIT 1").fetchone()
    return 0 if row is None else int.from_bytes(row[0])


def require_whole(total: int, digests: Iterable[bytes]) -> None:
    """Refuse a file of which rows are missing, or are those of another."""
    if sum_of(digests) != total:
        raise Unusable(
            "rows are missing in it, or are those of another file: it may stand beside the log (-wal) of one that was "
            "there before; put a good copy in its place, with no log beside it"
        )


def require_whole_file(path: Path) -> None:
    """Refuse a file that does not fit the log beside it, before that is put into it."""
    if log_header_of(path):
        with closing(connect(path, "ro", 1.0)) as connection, transaction(connection, "BEGIN"):
            rows = connection.execute(DIGESTS).fetchall()
            require_whole(last_total(connection), (digest for (digest,) in rows))


class Change:
    """A change that is being made: it counts the digests, and writes down how far the file goes then.

    `own` is the position of the writer's last change: where it is that of the file, too, the run goes on.
    """

    def __init__(self, connection: sqlite3.Connection, own: Position | None) -> None:
        last = last_position(connection)
        goes_on = last == own
        self.connection = connection
        self.position = Position(last.token if goes_on else secrets.token_bytes(16), last.revision + 1)
        self.total = last_total(connection)
        if not goes_on:
            connection.execute("INSERT INTO runs VALUES (?, ?, ?, ?)", (*[self.revision] * 2, self.position.token, b""))
            connection.execute(
                "DELETE FROM runs WHERE first <= (SELECT first FROM runs ORDER BY first DESC LIMIT 1 OFFSET ?)",
                (_MOST_RUNS,),
            )

    @property
    def revision(self) -> int:
        """The revision of the change."""
        return self.position.revision

    def put(self, pair: str, body: bytes | None) -> None:
        """Store a book under its pair, or that it was retracted."""
        digest = digest_of(self.revision, body or pair.encode("ascii"))
        before = self.connection.execute(f"{DIGESTS} WHERE pair = ?", (pair,)).fetchall()
        self.total += int.from_bytes(digest) - sum_of(one for (one,) in before)
        self.connection.execute(_PUT, (pair, self.revision, digest, None if body is None else str(body, "ascii")))

    def finish(self) -> None:
        """Write down how far the file goes, and what its digests come to."""
        total = (self.total % _MODULUS).to_bytes(_DIGEST_BYTES)
        run = self.position.revision, total, self.position.token
        self.connection.execute("UPDATE runs SET last = ?, total = ? WHERE token = ?", run)


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


def log_inode_of(path: Path) -> int:
    """Return what tells the log of a store from another, 0 where there is none."""
    try:
        return Path(f"{os.path.realpath(path)}-wal").stat().st_ino
    except FileNotFoundError:
        return 0


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
        self._path = Path(f"{path}-lock")
        self._descriptor = self._open()
        _LOCKS.add(self)

    @contextmanager
    def held(self, wait: float) -> Iterator[None]:
        """Hold the lock; raise `Busy` when it cannot be had within so many seconds."""
        patience = monotonic() + wait
        try:
            while not (_locked(self._descriptor) and self._is_in_place()):
                if monotonic() >= patience:
                    raise Busy
                sleep(0.001)
            yield
        finally:
            with suppress(ValueError):  # closed in a process that was forked meanwhile
                _unlock(self._descriptor)

    def close(self) -> None:
        """Let go of the file beside it, which stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)

    def _is_in_place(self) -> bool:
        """Whether others come upon the same file; if not, open that one."""
        found = os.fstat(self._descriptor)
        with suppress(FileNotFoundError):
            if identity_of(self._path) == (found.st_dev, found.st_ino):
                return True
        os.close(self._descriptor)
        self._descriptor = self._open()
        return False


_LOCKS: Final[WeakSet[WriterLock]] = WeakSet()


def _let_go_of_locks() -> None:
    """In a forked process: such a lock is shared with it, and would be held for as long as it lives."""
    for lock in list(_LOCKS):
        lock.close()


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

    os.register_at_fork(after_in_child=_let_go_of_locks)

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
