"""The file of a store: how it is made, recognized and opened, and how to tell it from another one at its path."""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

from attrs import frozen

from market_index_feeds import errors
from market_index_feeds.regular_files import open_regular, require_regular_if_any

Identity: TypeAlias = tuple[int, int]
"""The device and inode of a file, which no other file has while it is open or exists."""

APPLICATION_ID: Final = int.from_bytes(b"mkti")
"""What the header of the file says that it is."""

SCHEMA_VERSION: Final = 2

READ_VERSIONS: Final = (1, 2)
"""Version 1, of market-index 0.1, has no freshness. The first change of such a file upgrades it."""

_LOG_HEADER_BYTES: Final = 32

_BESIDE: Final = ("-wal", "-shm", "-journal")
"""The suffixes of the files that SQLite opens beside a store."""

_OPEN_FILES: Final = Path("/dev/fd")

_PAGE_BYTES: Final = 8192
"""A book of 50 levels a side fits one page. With SQLite's 4096 it takes two, and longer to write."""

_SCHEMA: Final = f"""
PRAGMA page_size = {_PAGE_BYTES};
PRAGMA journal_mode = WAL;
BEGIN;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE books (pair TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL, digest BLOB NOT NULL, body TEXT);
CREATE INDEX books_by_revision ON books (revision);
CREATE TABLE runs (
    first INTEGER PRIMARY KEY, last INTEGER NOT NULL, token BLOB NOT NULL, total BLOB NOT NULL,
    as_of TEXT, published_at TEXT
);
COMMIT;
"""


class Unusable(Exception):
    """The file is not a store, or is damaged."""


@frozen
class Header:
    """What the header of a SQLite file says that it is."""

    application_id: int
    schema_version: int


def create(path: Path) -> None:
    """Make an empty store atomically. Raises `Unusable` beside the log of a file that is missing."""
    path.parent.stat()  # SQLite would not say that it is missing
    if log_header_of(path):
        raise Unusable(
            f"it is missing, but its log ({path.name}-wal) is there: put it back, "
            "or end all publishers and readers and remove the log"
        )
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        with closing(sqlite3.connect(f"{new.as_uri()}?mode=rwc", uri=True, isolation_level=None)) as connection:
            connection.executescript(_SCHEMA)
        try:
            os.link(new, path)
        except FileExistsError:
            pass  # another process was faster
        except OSError:
            # Not every file system has links. Two processes are unlikely to make the same file at the same time.
            if not path.exists():
                new.rename(path)
    finally:
        new.unlink(missing_ok=True)
    _sync_folder(path.parent)


def require_store(path: Path) -> None:
    """Raise `Unusable` if the file is not a store, and `OSError` if there is none. The file is left as it is."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise Unusable("it is not a file")
    for suffix in _BESIDE:
        require_regular_if_any(Path(f"{os.path.realpath(path)}{suffix}"))
    if not found.st_size:
        raise Unusable("it is an empty file, not a store (remove it to have one made)")
    header = read_header(path)
    if header is None:
        raise Unusable("it is not a store: not a SQLite file")
    if header.application_id != APPLICATION_ID:
        raise Unusable("it is not a store of order books, but a SQLite file of something else")
    _require_schema(header.schema_version)


def read_header(path: Path) -> Header | None:
    """Return the header of a file, or None if it is not a SQLite file.

    It is read through SQLite. If this process opened and closed the file itself, that would release the POSIX locks
    that its other connections hold: they belong to the process, and end with the first descriptor that is closed.
    `immutable` keeps SQLite from making files beside it, and from reading the log. A publisher that dies while it
    copies the log into the file may leave it shorter than its first page says, with the other pages in the log.
    SQLite reads the header of such a file only with `writable_schema`; here nothing can be written with it.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            (application_id,) = connection.execute("PRAGMA application_id").fetchone()
            (schema_version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.DatabaseError as error:
        if _code(error) == sqlite3.SQLITE_NOTADB:
            return None
        raise
    return Header(application_id & 0xFFFFFFFF, schema_version)


def connect(path: Path, mode: Literal["ro", "rw"], wait: float) -> sqlite3.Connection:
    """Open an existing store in autocommit mode, for one thread at a time; texts are read as bytes.

    SQLite waits up to `wait` seconds for locks. Raises `Unusable`, `OSError` and `sqlite3.Error`.
    """
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    with ExitStack() as stack:
        connection = sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None, check_same_thread=False)
        stack.callback(close_without_copying, connection, path)
        connection.text_factory = bytes
        # Again: the log may contain a later version than the file.
        _require_schema(connection.execute("PRAGMA user_version").fetchone()[0])
        require_open(path, identity_if_any(index_path(path)))
        stack.pop_all()
    return connection


def close_without_copying(connection: sqlite3.Connection, path: Path) -> None:
    """Close a connection, and leave the log as it is.

    SQLite copies the log into the file when the last connection is closed, unless that is read-only.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with closing(connection), suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as last:
        # Fails if the file is missing, or the log is cut short: then the connection is the last one nevertheless.
        last.execute("PRAGMA user_version").fetchone()
        connection.close()


@contextmanager
def transaction(connection: sqlite3.Connection, begin: Literal["BEGIN", "BEGIN IMMEDIATE"]) -> Iterator[None]:
    """Run the body in one transaction: it reads one state, and on error nothing is written."""
    try:
        # Within: an interrupt may be raised as this returns.
        connection.execute(begin)
        yield
        if connection.in_transaction:
            connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def log_path(path: Path) -> Path:
    """Return the path of the write-ahead log of a store."""
    return Path(f"{os.path.realpath(path)}-wal")


def index_path(path: Path) -> Path:
    """Return the path of the index of the log: the memory that is shared by all processes with the store open.

    A process that has a deleted index open does not see what others write into the log, and overwrites it.
    """
    return Path(f"{os.path.realpath(path)}-shm")


def log_header_of(path: Path) -> bytes:
    """Return the header of the log of a store, which differs between logs; empty if there is no log."""
    try:
        with open_regular(log_path(path)) as log:
            return log.read(_LOG_HEADER_BYTES) or b""
    except FileNotFoundError:
        return b""


def identity_of(path: Path) -> Identity:
    """Return the identity of a file."""
    found = path.stat()
    return found.st_dev, found.st_ino


def identity_if_any(path: Path) -> Identity | None:
    """Return the identity of a file, None if there is no file."""
    try:
        return identity_of(path)
    except FileNotFoundError:
        return None


def require_open(path: Path, *identities: Identity | None) -> None:
    """Raise `Unusable` if this process does not have these files of a store open, but has deleted ones.

    SQLite opens the index once per process: a connection that is made later shares the one that is open.
    """
    try:
        descriptors = list(_OPEN_FILES.iterdir())
    except OSError:  # this system does not list them
        return
    found = set()
    for descriptor in descriptors:
        with suppress(OSError):  # closed in the meantime
            status = os.fstat(int(descriptor.name))
            found.add((status.st_dev, status.st_ino))
    if not found.issuperset(identities):
        raise Unusable(
            f"its log ({path.name}-wal) or index (-shm) was deleted while this process has it open: "
            "close everything that has it open"
        )


def reason_of(error: BaseException) -> str:
    """Return what is wrong, for a message."""
    if isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_CANTOPEN:
        return f"{error} (its folder has to be writable, for the files that those who have it open share)"
    if isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_IOERR:
        return f"{error} (if its log, -wal, was removed, end all publishers and readers that have it open)"
    return errors.reason_of(error)


def is_busy(error: BaseException) -> bool:
    """Whether SQLite gave up waiting for a lock."""
    return isinstance(error, sqlite3.Error) and _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _require_schema(version: int) -> None:
    if version not in READ_VERSIONS:
        later = ": a later version wrote it" if version > SCHEMA_VERSION else ""
        raise Unusable(
            f"it has schema {version}, and this version of market-index reads schemas 1 and {SCHEMA_VERSION}{later}"
        )


def _code(error: sqlite3.Error) -> int:
    # The lowest byte is the error, the others are its kind. Errors of the module itself have no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


if sys.platform == "win32":  # pragma: no cover  # not tried: folders cannot be opened there

    def _sync_folder(_: Path) -> None:
        pass

else:

    def _sync_folder(folder: Path) -> None:
        # Else a power cut could remove the name of the file, with everything in it that was acknowledged.
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
