"""The file of a store, as a source of a feed."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from time import sleep
from typing import Final

from market_index import Freshness, MarketIndexError, OrderBook, Pair, PairNotFound
from market_index_feeds.errors import FeedError, Unavailable
from market_index_feeds.medium import Delta, Progress, Rejected, Snapshot, Source, Update
from market_index_feeds.opened import shown_name
from market_index_feeds.sqlite.file import (
    Identity,
    Unusable,
    connect,
    identity_if_any,
    identity_of,
    index_path,
    log_header_of,
    log_path,
    read_header,
    reason_of,
    require_store,
    transaction,
)
from market_index_feeds.sqlite.revisions import (
    NEVER_PUBLISHED,
    Position,
    Run,
    last_run,
    reaches,
    require_total,
    sum_of,
)
from market_index_feeds.sqlite.rows import ALL_ROWS, CHANGED_ROWS, ONE_ROW, book_of, pair_of, read_row

SUFFIXES: Final = {".db", ".sqlite", ".sqlite3"}
"""A file with one of these suffixes is a store, whatever it contains."""

POLL_SECONDS: Final = 0.006
"""Interval between two checks for a change."""

POLLS_PER_CHECK: Final = 20
"""How many of those there are for each check whether the file at the path is still the same."""

_READ_WAIT_SECONDS: Final = 1.0
"""How long a reader waits while the log of a crashed writer is recovered: the only thing that blocks it."""

_PARTING_SECONDS: Final = 0.05
"""How long other followers of a file have to close it, after another took its place."""

_ROWS_AT_ONCE: Final = 256

_VERSION: Final = "PRAGMA data_version"


class SqliteSource(Source):
    """The file of a store. Each change is a delta, of which only the changed rows are read.

    A file that was replaced or rolled back is a snapshot. The position and the identity of the file outlive an
    interruption, so that reading resumes where it ended.
    """

    record = "rows"

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name)
        self._path = path
        self._position = NEVER_PUBLISHED
        self._identity: Identity | None = None
        # The header of its log when it was last read.
        self._log_header = b""

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Yield the content of the file, then its changes, whichever file is at the path."""
        with _unavailable():
            while not stop.is_set():
                # Before it is opened, so that no later change is missed.
                state = self._state()
                with closing(self._connect()) as connection:
                    yield from self._follow(connection, state, stop, progress)

    def read_order_book(self, pair: Pair) -> OrderBook | None:
        """Return the book of one pair without reading the others."""
        with _unavailable():
            require_store(self._path)
            with closing(connect(self._path, "ro", _READ_WAIT_SECONDS)) as connection:
                row = connection.execute(ONE_ROW, (str(pair),)).fetchone()
        if row is None:
            raise PairNotFound(pair)
        try:
            return book_of(row)
        except MarketIndexError as error:
            raise Unavailable(f"row {pair}: {error}") from None

    def read_freshness(self) -> Freshness:
        """Return the freshness of the last revision."""
        with _unavailable():
            require_store(self._path)
            with closing(connect(self._path, "ro", _READ_WAIT_SECONDS)) as connection:
                return last_run(connection).freshness

    def _connect(self) -> sqlite3.Connection:
        """Open the file at the path."""
        require_store(self._path)
        identity = identity_of(self._path)
        if self._identity not in {None, identity}:
            self._require_own_log()
        connection = connect(self._path, "ro", _READ_WAIT_SECONDS)
        # If it was replaced between the two, the identity is wrong, and the next check opens it again.
        self._identity = identity
        return connection

    def _require_own_log(self) -> None:
        """Raise `Unusable` if SQLite would take the log of the former file for that of the one in its place.

        While another process has the former one open, SQLite may take the new one to be as long as that, and report
        that it is malformed.
        """
        if self._log_header and self._log_header == log_header_of(self._path):
            name = self._path.name
            raise Unusable(
                "it took the place of another, whose log is still there: "
                f"end all publishers and readers, then remove {name}-wal"
            )
        sleep(_PARTING_SECONDS)

    def _follow(
        self, connection: sqlite3.Connection, state: tuple[object, ...], stop: Event, progress: Progress | None
    ) -> Generator[Update, None, None]:
        """Yield updates until the file changes in a way that only a new connection is sure to notice."""
        version: tuple[int] | None = None
        polls = 0
        while not stop.is_set():
            now = connection.execute(_VERSION).fetchone()
            if now != version or polls % POLLS_PER_CHECK == 0:
                found = self._state()
                # What was just opened is read before all of the state counts: else a publisher that copies its log into
                # the file again and again would keep it from being read.
                if found[:3] != state[:3] or (version is not None and found != state):
                    return
                if now == version:
                    yield Delta()
                else:
                    update, position = self._read(connection, progress)
                    log_header = log_header_of(self._path)
                    if self._state()[:3] != state[:3]:
                        # The log may be that of the file in its place, or be overwritten, so that what was read is a
                        # mixture.
                        return
                    self._log_header = log_header
                    yield update
                    self._position, version = position, now
            polls += 1
            stop.wait(POLL_SECONDS)

    def _state(self) -> tuple[object, ...]:
        """Return what differs if another file, log or index is at the path, or if the file was written to.

        SQLite writes to it when it copies the log into the file. Another program may, too: connections that are open
        may never see that.
        """
        found = self._path.stat()
        log, index = identity_if_any(log_path(self._path)), identity_if_any(index_path(self._path))
        return (found.st_dev, found.st_ino), log, index, found.st_size, found.st_mtime_ns

    def _read(self, connection: sqlite3.Connection, progress: Progress | None) -> tuple[Update, Position]:
        """Return what has changed since the last position, or everything if the file does not reach that."""
        before, rows = self._position, []
        with transaction(connection, "BEGIN"):
            run = last_run(connection)
            position = run.position
            if not reaches(connection, before):
                return self._snapshot(connection, run, progress), position
            if position != before:
                rows = connection.execute(CHANGED_ROWS, (before.revision,)).fetchall()
        removed = {row[0]: pair_of(row[0]) for row in rows if row[2] is None}
        read = [read_row(row) for row in rows if row[2] is not None]
        books, rejected = _sorted_out(read)
        delta = Delta(
            books=books,
            rejected=rejected,
            removed=[pair for pair in removed.values() if pair is not None],
            removed_records=[record for record, pair in removed.items() if pair is None],
            revision=position.revision,
            freshness=run.freshness,
        )
        return delta, position

    def _snapshot(self, connection: sqlite3.Connection, run: Run, progress: Progress | None) -> Snapshot:
        before, position = self._position, run.position
        (size,) = connection.execute("SELECT total(length(body)) FROM books").fetchone()
        read: list[OrderBook | Rejected] = []
        done = total = 0
        cursor = connection.execute(ALL_ROWS)
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            # In batches, so that the rows are not all in memory beside the books.
            total += sum_of(digest for *_, digest in rows)
            stored = [row for row in rows if row[2] is not None]
            read += map(read_row, stored)
            done += sum(len(row[2]) for row in stored)
            if progress is not None:
                progress(done, int(size))
        require_total(total, run.total)
        books, rejected = _sorted_out(read)
        revisions = f"from revision {before.revision} to {position.revision}"
        return Snapshot(
            books=books,
            rejected=rejected,
            revision=position.revision,
            freshness=run.freshness,
            is_blank=position == NEVER_PUBLISHED,
            because=None if before == NEVER_PUBLISHED else f"it was replaced or rolled back, {revisions}",
        )


@contextmanager
def _unavailable() -> Generator[None, None, None]:
    """Turn errors of SQLite and of the file's format into `Unavailable`."""
    try:
        yield
    except (sqlite3.Error, Unusable) as error:
        raise Unavailable(reason_of(error)) from error


def _sorted_out(read: list[OrderBook | Rejected]) -> tuple[list[OrderBook], list[Rejected]]:
    books = [one for one in read if isinstance(one, OrderBook)]
    return books, [one for one in read if isinstance(one, Rejected)]


def open_sqlite_source(source: str) -> SqliteSource:
    """Open a file for following. Raises `FeedError` when it is missing, or is not a store."""
    name = shown_name(source)
    try:
        # Absolute, in case the process changes folder.
        path = Path(source).absolute()
        require_store(path)
    except (OSError, ValueError, sqlite3.Error, Unusable) as error:
        raise FeedError(f"{name} cannot be opened: {reason_of(error)}") from None
    return SqliteSource(name, path)


def is_sqlite(source: str) -> bool:
    """Whether a path names a store: by its suffix, or else by its content."""
    path = Path(source)
    if path.suffix.lower() in SUFFIXES:
        return True
    try:
        found = path.stat()
        return stat.S_ISREG(found.st_mode) and found.st_size > 0 and read_header(path) is not None
    except (OSError, ValueError, sqlite3.Error):
        return False
