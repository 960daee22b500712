"""The file of a store: creating, recognizing and opening it, and distinguishing it from another file at its path."""

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
"""The device and inode of a file. No other file has them while it is open or exists."""

APPLICATION_ID: Final = int.from_bytes(b"mkti")
"""The application id in the SQLite header of a store."""

SCHEMA_VERSION: Final = 3

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
CREATE INDEX books_by_revision ON books (revision, digest);
CREATE TABLE runs (
    first INTEGER PRIMARY KEY, last INTEGER NOT NULL, token BLOB NOT NULL, total BLOB NOT NULL,
    as_of TEXT, published_at TEXT, complete INTEGER NOT NULL, digest BLOB NOT NULL
);
COMMIT;
"""


class Unusable(Exception):
    """The file is not a store, or is damaged."""


@frozen
class Header:
    """The application and the schema version in the header of a SQLite file."""

    application_id: int
    schema_version: int


def create(path: Path) -> None:
    """Create an empty store atomically. Raises `Unusable` if there is the log of a file that is missing."""
    path.parent.stat()  # SQLite does not report that the folder is missing
    if log_header_of(path):
        raise Unusable(
            f"the file is missing, but its log ({path.name}-wal) exists: put the file back, "
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
            # Not every file system has links. Two processes rarely create the same file at the same time.
            if not path.exists():
                new.rename(path)
    finally:
        new.unlink(missing_ok=True)
    _sync_folder(path.parent)


def require_store(path: Path) -> None:
    """Raise `Unusable` if the file is not a store, and `OSError` if there is none. The file is not changed."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise Unusable("it must be a regular file")
    for suffix in _BESIDE:
        require_regular_if_any(Path(f"{os.path.realpath(path)}{suffix}"))
    if not status.st_size:
        raise Unusable("it must be a store, got an empty file (remove it, and a store is created)")
    header = read_header(path)
    if header is None:
        raise Unusable("it must be a store, got a file that is not of SQLite")
    if header.application_id != APPLICATION_ID:
        raise Unusable("it must be a store, got a SQLite file of another application")
    _require_schema(header.schema_version)


def read_header(path: Path) -> Header | None:
    """Return the header of a file, or None if it is not a SQLite file.

    SQLite reads it. If this process opened and closed the file itself, that would release the POSIX locks of its other
    connections: the locks belong to the process, and end when any descriptor of the file is closed.
    `immutable` keeps SQLite from creating files beside it, and from reading the log. A publisher that dies while it
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
    """Open an existing store in autocommit mode, for one thread at a time. Texts are read as bytes.

    `wait` is the timeout of SQLite for locks, in seconds. Raises `Unusable`, `OSError` and `sqlite3.Error`.
    """
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    with ExitStack() as stack:
        connection = sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None, check_same_thread=False)
        stack.callback(close_without_copying, connection, path)
        connection.text_factory = bytes
        # Checked again: the log may contain a later version than the file.
        _require_schema(connection.execute("PRAGMA user_version").fetchone()[0])
        require_open(path, identity_if_any(index_path(path)))
        stack.pop_all()
    return connection


def close_without_copying(connection: sqlite3.Connection, path: Path) -> None:
    """Close a connection without copying the log into the file.

    SQLite copies the log when the last connection is closed, unless that is read-only. So a read-only connection is
    opened before, and closed after it.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with closing(connection), suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as last:
        # Fails if the file is missing, or the log is truncated. Then the given connection is the last one.
        last.execute("PRAGMA user_version").fetchone()
        connection.close()


@contextmanager
def transaction(connection: sqlite3.Connection, begin: Literal["BEGIN", "BEGIN IMMEDIATE"]) -> Iterator[None]:
    """Run the body in one transaction. It is atomic: the body reads one state, and on error nothing is written."""
    try:
        # Inside `try`, because an interrupt may be raised when this returns.
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
    """Return the path of the index of the log, which is shared memory of all processes that have the store open.

    A process with a deleted index does not see what others write into the log, and overwrites it.
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
    status = path.stat()
    return status.st_dev, status.st_ino


def identity_if_any(path: Path) -> Identity | None:
    """Return the identity of a file; None if there is no file."""
    try:
        return identity_of(path)
    except FileNotFoundError:
        return None


def require_open(path: Path, *identities: Identity | None) -> None:
    """Raise `Unusable` if this process does not have these files of a store open: it has deleted ones open instead.

    SQLite opens the index once per process, and later connections share it.
    """
    try:
        descriptors = list(_OPEN_FILES.iterdir())
    except OSError:  # this system does not list them
        return
    opened = set()
    for descriptor in descriptors:
        with suppress(OSError):  # closed in the meantime
            status = os.fstat(int(descriptor.name))
            opened.add((status.st_dev, status.st_ino))
    if not opened.issuperset(identities):
        raise Unusable(
            f"its log ({path.name}-wal) or index (-shm) was deleted while this process has it open: "
            "close everything that has it open"
        )


def reason_of(error: BaseException, path: Path) -> str:
    """Return the text of an error of the store at `path` for a message, with a remedy where there is one."""
    if isinstance(error, PermissionError):
        return f"{error.strerror}{_missing_permission(path)}"
    if isinstance(error, sqlite3.Error) and _code(error) in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
        return f"{error}{_missing_permission(path)}"
    if isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_IOERR:
        return f"{error} (if its log, -wal, was removed, end all publishers and readers that have it open)"
    return errors.reason_of(error)


def _missing_permission(path: Path) -> str:
    """Return the remedy if this user lacks a permission for the file, its folder, or a file beside it."""
    path = Path(os.path.realpath(path))
    exists = os.access(path, os.F_OK)
    if exists and not os.access(path, os.R_OK):
        return f" (this user must be able to read {path.name})"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return " (this user must be able to write its folder, where all processes that have it open share files)"
    if exists and not os.access(path, os.W_OK):
        return f" (this user must be able to write {path.name})"
    for file in (Path(f"{path}{suffix}") for suffix in (*_BESIDE, "-lock")):
        if os.access(file, os.F_OK) and not os.access(file, os.R_OK | os.W_OK):
            return f" (this user must be able to read and write {file.name})"
    return ""


def is_busy(error: BaseException) -> bool:
    """Whether SQLite did not get a lock before its timeout."""
    return isinstance(error, sqlite3.Error) and _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _require_schema(version: int) -> None:
    if version != SCHEMA_VERSION:
        later = " (a later version of market-index wrote it)" if version > SCHEMA_VERSION else ""
        raise Unusable(f"its schema must be {SCHEMA_VERSION}, got {version}{later}")


def _code(error: sqlite3.Error) -> int:
    # The lowest byte is the primary code. Errors of the Python module itself have no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


if sys.platform == "win32":  # pragma: no cover  # not tried: folders cannot be opened there

    def _sync_folder(_: Path) -> None:
        pass

else:

    def _sync_folder(folder: Path) -> None:
        # Otherwise a power cut could remove the file from its folder, with all acknowledged changes.
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
