"""The source of a feed that follows the file of a store.

It polls the file. Changed rows are an update, and a file that was replaced or rolled back is read as a whole.
"""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Generator, Hashable
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from time import sleep
from typing import Final

from attrs import evolve

from market_index import Freshness, MarketIndexError, OrderBook, Pair, PairNotFound
from market_index_feeds.errors import FeedError, Unavailable
from market_index_feeds.medium import Progress, Rejected, Source, Update
from market_index_feeds.opened import shown_name
from market_index_feeds.sqlite.connection import Identity, StoreConnection
from market_index_feeds.sqlite.file import Unusable, read_header, reason_of, require_store, transaction
from market_index_feeds.sqlite.revisions import (
    NEVER_PUBLISHED,
    Position,
    Run,
    last_run,
    reaches,
    require_total,
    sum_of,
)
from market_index_feeds.sqlite.rows import ALL_ROWS, CHANGED_ROWS, DAMAGED, ONE_ROW, Row, book_of, read_row

SUFFIXES: Final = {".db", ".sqlite", ".sqlite3"}
"""A file with one of these suffixes is a store, regardless of its content."""

POLL_SECONDS: Final = 0.006
"""Interval between two polls for a change."""

POLLS_PER_CHECK: Final = 20
"""How many polls there are for each check that the file at the path is still the same."""

_READ_WAIT_SECONDS: Final = 1.0
"""Timeout of a reader for the recovery of a crashed writer's log, which is the only operation that blocks it."""

_MIN_BYTES: Final = 512
"""The size of the smallest page of a SQLite file."""

_RUN: Final = "the row of the last revision"
"""The identity of the row that describes all books, if it is invalid."""

_VERSION: Final = "PRAGMA data_version"


class SqliteSource(Source):
    """The file of a store. Only changed rows are read.

    The position and the identity of the file are kept between calls of `updates`, so that reading resumes there.
    """

    record = "rows"

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name)
        self._path = path
        self._position = NEVER_PUBLISHED
        # The file of the position.
        self._file: Identity | None = None

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Yield the content of the file, then its changes. If the file is replaced, follow the new one."""
        with self._unavailable():
            while not stop.is_set():
                with closing(self._open()) as connection:
                    yield from self._follow(connection, stop, progress)

    def read_order_book(self, pair: Pair) -> OrderBook | None:
        """Return the book of one pair without reading the others."""
        with self._unavailable(), closing(self._open()) as connection:
            row = connection.sqlite.execute(ONE_ROW, (str(pair),)).fetchone()
        if row is None:
            raise PairNotFound(pair)
        try:
            return book_of(row)
        except MarketIndexError as error:
            raise Unavailable(f"row {pair}: {error}") from None

    def read_freshness(self) -> Freshness:
        """Return the freshness of the last revision."""
        with self._unavailable(), closing(self._open()) as connection:
            return last_run(connection.sqlite).freshness

    @contextmanager
    def _unavailable(self) -> Generator[None, None, None]:
        """Convert errors of the file, of SQLite and of the file's format into `Unavailable`."""
        try:
            yield
        except (OSError, sqlite3.Error, Unusable) as error:
            raise Unavailable(reason_of(error, self._path)) from error

    def _open(self) -> StoreConnection:
        require_store(self._path)
        return StoreConnection(self._path, "ro", _READ_WAIT_SECONDS)

    def _follow(
        self, connection: StoreConnection, stop: Event, progress: Progress | None
    ) -> Generator[Update, None, None]:
        """Yield updates until the file changes in a way that requires a new connection."""
        version = written = None
        polls = 0
        while not stop.is_set():
            now = connection.sqlite.execute(_VERSION).fetchone()
            if now != version:
                written = self._written()
                update, position = self._read(connection, progress)
                if not connection.is_in_place:
                    # The log may be that of a new file, or overwritten, so the read content may be a mixture.
                    return
                yield update
                self._position, self._file, version = position, connection.files.store, now
            elif polls % POLLS_PER_CHECK == 0:
                if not connection.is_in_place or self._written() != written:
                    return
                yield Update()
            polls += 1
            # `stop.wait` would take a fifth more processor time for a whole poll.
            sleep(POLL_SECONDS)

    def _written(self) -> tuple[int, int]:
        """Return a value that changes if the file is written to.

        SQLite writes to it when it copies the log. Another program may copy an older file over it, which an open
        connection may never notice.
        """
        status = self._path.stat()
        return status.st_size, status.st_mtime_ns

    def _read(self, connection: StoreConnection, progress: Progress | None) -> tuple[Update, Position]:
        """Return the changes since the last position; the whole content if the file does not contain it.

        Another file is always read as a whole: the log beside it may be that of the previous file.
        """
        before, rows = self._position, []
        with transaction(connection.sqlite, "BEGIN"):
            run = last_run(connection.sqlite)
            position = run.position
            if self._file != connection.files.store or not reaches(connection.sqlite, before):
                return self._whole(connection.sqlite, run, progress), position
            if position != before:
                rows = connection.sqlite.execute(CHANGED_ROWS, (before.revision,)).fetchall()
        content = _Rows()
        for row in rows:
            content.add(row)
        return content.update(run), position

    def _whole(self, connection: sqlite3.Connection, run: Run, progress: Progress | None) -> Update:
        before, position = self._position, run.position
        (size,) = connection.execute("SELECT total(length(body)) FROM books").fetchone()
        content = _Rows()
        done = total = 0
        for row in connection.execute(ALL_ROWS):
            # One by one, because each may have 16 MiB.
            total += sum_of(row[3:])
            content.add(row)
            done += len(row[2] or b"")
            if progress is not None:
                progress(done, int(size))
        require_total(total, run.total)
        revisions = f"from revision {before.revision} to {position.revision}"
        return evolve(
            content.update(run),
            replaces_all=True,
            is_blank=position == NEVER_PUBLISHED,
            reload_reason=None if before == NEVER_PUBLISHED else f"it was replaced or rolled back, {revisions}",
        )


class _Rows:
    """The content of rows."""

    def __init__(self) -> None:
        self._books: list[OrderBook] = []
        self._removed: list[Pair] = []
        self._rejected: list[Rejected] = []
        self._resolved: list[Hashable] = []

    def add(self, row: Row) -> None:
        """Add a row."""
        read = read_row(row)
        if isinstance(read, OrderBook):
            self._books.append(read)
        elif isinstance(read, Rejected):
            self._rejected.append(read)
        elif isinstance(read, Pair):
            self._removed.append(read)
        else:
            self._resolved.append(read)

    def update(self, run: Run) -> Update:
        """Return the update with these rows, after a change of a run."""
        if run.total is None:
            # The whole file is read once it is repaired.
            self._rejected.append(Rejected(_RUN, DAMAGED, _RUN))
        return Update(
            books=self._books,
            removed=self._removed,
            is_complete=run.is_complete,
            # A row whose name is not that of a pair is only counted.
            invalid=[one.record for one in self._rejected if isinstance(one.record, (Pair, str))],
            resolved=self._resolved,
            rejected=self._rejected,
            revision=run.position.revision,
            freshness=run.freshness,
        )


def open_sqlite_source(source: str) -> SqliteSource:
    """Open a file for following. Raises `FeedError` if it is missing, or is not a store."""
    name = shown_name(source)
    path = Path(source)
    try:
        path = path.absolute()  # the process may change its working directory
        require_store(path)
    except (OSError, ValueError, sqlite3.Error, Unusable) as error:
        raise FeedError(f"{name} cannot be opened: {reason_of(error, path)}") from None
    return SqliteSource(name, path)


def is_sqlite(source: str) -> bool:
    """Whether a path is that of a store: by its suffix, otherwise by its content."""
    path = Path(source)
    if path.suffix.lower() in SUFFIXES:
        return True
    try:
        status = path.stat()
        # SQLite reads a file of one byte as an empty database.
        return stat.S_ISREG(status.st_mode) and status.st_size >= _MIN_BYTES and read_header(path) is not None
    except (OSError, ValueError, sqlite3.Error):
        return False
