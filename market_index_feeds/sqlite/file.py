"""The file of a store: creating and recognizing it, transactions, and the texts of its errors."""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, Literal

from attrs import frozen

from market_index_feeds import errors
from market_index_feeds.regular_files import move_unless_exists, require_regular_if_any

APPLICATION_ID: Final = int.from_bytes(b"mkti")
"""The application id in the SQLite header of a store."""

SCHEMA_VERSION: Final = 3

_BESIDE: Final = ("-wal", "-shm", "-journal")
"""The suffixes of the files that SQLite opens beside a store."""

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
    if has_log(path):
        raise Unusable(
            f"the file is missing, but its log ({path.name}-wal) exists: put the file back, "
            "or end all publishers and readers and remove the log"
        )
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        with closing(sqlite3.connect(f"{new.as_uri()}?mode=rwc", uri=True, isolation_level=None)) as connection:
            connection.executescript(_SCHEMA)
        # If another process was faster, its store is used.
        move_unless_exists(new, path)
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
    require_schema(header.schema_version)


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


def has_log(path: Path) -> bool:
    """Whether there is a log beside a store that is not empty."""
    try:
        return bool(Path(f"{os.path.realpath(path)}-wal").stat().st_size)
    except FileNotFoundError:
        return False


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


def require_schema(version: int) -> None:
    """Raise `Unusable` if a store has another schema than this version writes."""
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
