"""An open SQLite file: its identity, its one name, its transactions, and how it is created."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

from market_index_feeds.errors import Busy, FeedError, reason_of
from market_index_feeds.sqlite.log import belongs_to, state_of, state_of_file

SUFFIXES: Final = {".db", ".sqlite", ".sqlite3"}
"""A file with one of these suffixes is a store, regardless of its content."""

APPLICATION_ID: Final = int.from_bytes(b"mki\x05")
"""The application id in the header of the file. Its last byte is the version of the schema."""

Synchronous: TypeAlias = Literal["full", "normal"]
"""SQLite's `PRAGMA synchronous`: acknowledged changes survive a power cut (full), or only a crash of programs."""

Identity: TypeAlias = tuple[int, int]
"""The device and inode of a file. No other file has them while it is open or exists."""

BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}

_CREATE: Final = "market-index publish STORE BOOKS makes a store of it"
_REPUBLISH: Final = (
    "write its books with the release that made it (market-index dump OLD.db > books.ndjson), and publish them into"
    " a new store (market-index publish NEW.db books.ndjson)"
)
_TEXT_SUFFIXES: Final = {".csv", ".gz", ".json", ".jsonl", ".ndjson"}

PAGE_BYTES: Final = 8192
"""A book of 50 levels a side fits a page."""

# `last` is the first table, so that its row is in the second page.
_SCHEMA: Final = (
    """CREATE TABLE last (
        id INTEGER PRIMARY KEY, follows INTEGER NOT NULL, revision INTEGER NOT NULL, token TEXT NOT NULL,
        as_of TEXT, published_at TEXT, books INTEGER NOT NULL, digest BLOB NOT NULL
    )""",
    "CREATE TABLE books (pair TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL, digest BLOB NOT NULL, body TEXT)",
    "CREATE INDEX books_by_revision ON books (revision)",
    "CREATE TABLE changes (revision INTEGER PRIMARY KEY, token TEXT NOT NULL)",
    f"PRAGMA application_id = {APPLICATION_ID}",
)


class StoreFile:
    """An open file, for one thread at a time. `file` is its identity. Texts are read as bytes.

    Opening it reads nothing. If another file is renamed over it meanwhile, `is_in_place` is False. Raises `OSError`,
    `sqlite3.Error`, and `FeedError` if it is not a regular file with one name.
    """

    def __init__(self, path: Path, mode: Literal["ro", "rw"], wait: float) -> None:
        # Not resolved, so that a changed link is noticed.
        self.path: Path = path
        self.file: Identity = _identity(path)  # SQLite does not report that a file is missing, and waits for a pipe
        _require_one_name(path)
        self._is_own_log = False
        self.sqlite: sqlite3.Connection = sqlite3.connect(
            f"{path.as_uri()}?mode={mode}", uri=True, timeout=wait, isolation_level=None, check_same_thread=False
        )
        self.sqlite.text_factory = bytes

    @property
    def is_in_place(self) -> bool:
        """Whether the path still names this file."""
        try:
            return _identity(self.path) == self.file
        except (OSError, FeedError):
            return False

    def require_store(self) -> None:
        """Raise `FeedError` if the file is not a store, or if its log belongs to another file.

        Call it within a transaction. Meanwhile, no process moves changes from the log into the file that are later than
        what the transaction reads.
        """
        (application,) = self.sqlite.execute("PRAGMA application_id").fetchone()
        if application != APPLICATION_ID:
            (pages,) = self.sqlite.execute("PRAGMA page_count").fetchone()
            if not pages:
                raise FeedError(f"it must be a store, got an empty file: {_CREATE}")
            if application >> 8 == APPLICATION_ID >> 8:
                raise FeedError(f"it must be a store of this version, got one of another version: {_REPUBLISH}")
            raise FeedError(
                f"it must be a store, got a SQLite database of another program (application {application:#x})"
            )
        if not self._is_own_log:
            # Once: no program can exchange the log of an open file.
            log = Path(f"{os.path.realpath(self.path)}-wal")
            if log.exists() and not belongs_to(log, state_of_file(self.path), state_of(self.sqlite)):
                raise FeedError(
                    f"its log ({log.name}) belongs to another file, or to other content of this one: put that back,"
                    f" or remove the log and {self.path.name}-shm while no program has it open"
                )
            if not self.is_in_place:
                raise FeedError("another file was renamed over it")
            self._is_own_log = True

    @contextmanager
    def transaction(self, begin: Literal["BEGIN", "BEGIN IMMEDIATE"]) -> Iterator[sqlite3.Connection]:
        """Run the body in one transaction. It is atomic: the body reads one state, and on error nothing is written."""
        try:
            # Inside `try`, because an interrupt may be raised when this returns.
            self.sqlite.execute(begin)
            yield self.sqlite
            self.sqlite.execute("COMMIT")
        finally:
            if self.sqlite.in_transaction:
                self.sqlite.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file. Closing twice does no harm."""
        self.sqlite.close()


def _identity(path: Path) -> Identity:
    """Return the identity of a file. Raises `OSError`, and `FeedError` if it is not a regular file."""
    status = os.stat(path)  # noqa: PTH116  # `Path.stat` takes twice as long, at each poll
    if not stat.S_ISREG(status.st_mode):
        raise FeedError("it must be a regular file")
    return status.st_dev, status.st_ino


def _require_one_name(path: Path) -> None:
    """Raise `FeedError` if the file has more than one name: each would have a log. Symbolic links do no harm."""
    name = os.fsencode(os.path.realpath(path))
    mounts: list[bytes] = []
    with suppress(OSError):  # not Linux
        mounts = Path("/proc/self/mountinfo").read_bytes().splitlines()
    if path.stat().st_nlink > 1:
        raise FeedError("it must have one name, got a file with hard links")
    if any(line.split(b" ")[4].decode("unicode_escape").encode("latin-1") == name for line in mounts):
        raise FeedError("it must have one name, got a file that is mounted: mount its folder")


def require_file(path: Path) -> None:
    """Raise `FeedError` with the command that creates a store if there is no file."""
    if not path.exists():
        raise FeedError("No such file or directory (market-index publish or relay creates it)")


def create_file(path: Path, wait: float) -> None:
    """Create a store where there is no file, or an empty one. Another process may do so at the same time.

    It is one transaction, so that the next call repeats it if this process is killed.
    """
    if path.exists() and _identity(path) and path.stat().st_size:
        return
    if path.suffix.lower() in _TEXT_SUFFIXES:
        raise FeedError(f"a store must be a SQLite file such as {path.stem}.db, got the name of a text file")
    log = Path(f"{os.path.realpath(path)}-wal")
    log.parent.stat()  # SQLite does not report that a folder is missing
    if log.exists() and log.stat().st_size:
        # SQLite would remove it.
        raise FeedError(f"the file is missing, but its log ({log.name}) exists: put the file back, or remove the log")
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=rwc", uri=True, timeout=wait, isolation_level=None)) as sqlite:
        sqlite.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        sqlite.execute("BEGIN IMMEDIATE")
        if sqlite.execute("PRAGMA schema_version").fetchone() == (0,):
            for statement in _SCHEMA:
                sqlite.execute(statement)
        sqlite.execute("COMMIT")


@contextmanager
def errors(path: Path) -> Iterator[None]:
    """Convert errors of the file and of SQLite into `FeedError`, with a remedy where there is one."""
    try:
        yield
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:  # a message of SQLite may quote a damaged schema
        remedy, code = "", code_of(error) if isinstance(error, sqlite3.Error) else 0
        if code in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
            remedy = f" (this user must be able to read {path.name}, and to write its folder and {path.name}-wal, -shm)"
        if code == sqlite3.SQLITE_NOTADB:
            remedy = f" (lines of order books need another name, such as {path.stem}.ndjson)"
        raise (Busy if code in BUSY else FeedError)(f"{reason_of(error)}{remedy}") from error


def code_of(error: sqlite3.Error) -> int:
    """Return the primary code of an error; 0 for those of the Python module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_sqlite(path: str) -> bool:
    """Whether a path is that of a store: by its suffix, otherwise by its content."""
    file = Path(path)
    if file.suffix.lower() in SUFFIXES:
        return True
    try:
        # SQLite reads a file of one byte as an empty database.
        if _identity(file.absolute()) and file.stat().st_size >= 512:
            state_of_file(file.absolute())
            return True
    except sqlite3.Error as error:
        # A file that cannot be read: the reader of lines has the better error.
        return code_of(error) not in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN}
    except (FeedError, OSError, ValueError):
        pass
    return False
