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
from market_index_feeds.sqlite.rows import ALL_ROWS, CHANGED_ROWS, DAMAGED, ONE_ROW, Row, book_of, read_row

SUFFIXES: Final = {".db", ".sqlite", ".sqlite3"}
"""A file with one of these suffixes is a store, regardless of its content."""

POLL_SECONDS: Final = 0.006
"""Interval between two polls for a change."""

POLLS_PER_CHECK: Final = 20
"""How many polls there are for each check that the file at the path is still the same."""

_READ_WAIT_SECONDS: Final = 1.0
"""Timeout of a reader for the recovery of a crashed writer's log, which is the only operation that blocks it."""

_RELEASE_SECONDS: Final = 0.05
"""How long other followers have to close a file after it was replaced."""

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
        self._identity: Identity | None = None
        # The header of the log at the last read.
        self._log_header = b""

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Yield the content of the file, then its changes. If the file is replaced, follow the new one."""
        with self._unavailable():
            while not stop.is_set():
                # Read before the file is opened, so that no later change is missed.
                state = self._state()
                with closing(self._connect()) as connection:
                    yield from self._follow(connection, state, stop, progress)

    def read_order_book(self, pair: Pair) -> OrderBook | None:
        """Return the book of one pair without reading the others."""
        with self._unavailable():
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
        with self._unavailable():
            require_store(self._path)
            with closing(connect(self._path, "ro", _READ_WAIT_SECONDS)) as connection:
                return last_run(connection).freshness

    @contextmanager
    def _unavailable(self) -> Generator[None, None, None]:
        """Convert errors of the file, of SQLite and of the file's format into `Unavailable`."""
        try:
            yield
        except (OSError, sqlite3.Error, Unusable) as error:
            raise Unavailable(reason_of(error, self._path)) from error

    def _connect(self) -> sqlite3.Connection:
        """Open the file at the path. Raises `Unusable` if it is not a store, or if the log is that of another file."""
        require_store(self._path)
        identity = identity_of(self._path)
        if self._identity not in {None, identity}:
            self._require_own_log()
        connection = connect(self._path, "ro", _READ_WAIT_SECONDS)
        # If the file was replaced in between, the identity is wrong, and the next check opens the file again.
        self._identity = identity
        return connection

    def _require_own_log(self) -> None:
        """Raise `Unusable` if SQLite would apply the log of the previous file to the new file at the path.

        While another process has the previous file open, SQLite may assume its length for the new file, and report that
        the new file is malformed. So wait until other followers have closed the previous file.
        """
        if self._log_header and self._log_header == log_header_of(self._path):
            name = self._path.name
            raise Unusable(
                "it replaced another file, whose log still exists: "
                f"end all publishers and readers, then remove {name}-wal"
            )
        sleep(_RELEASE_SECONDS)

    def _follow(
        self, connection: sqlite3.Connection, state: tuple[object, ...], stop: Event, progress: Progress | None
    ) -> Generator[Update, None, None]:
        """Yield updates until the file changes in a way that requires a new connection."""
        version: tuple[int] | None = None
        polls = 0
        while not stop.is_set():
            now = connection.execute(_VERSION).fetchone()
            if now != version or polls % POLLS_PER_CHECK == 0:
                found = self._state()
                # Before the first read, only the identities count. Otherwise a publisher that copies its log into the
                # file repeatedly would prevent every read.
                if found[:3] != state[:3] or (version is not None and found != state):
                    return
                if now == version:
                    yield Update()
                else:
                    update, position = self._read(connection, progress)
                    log_header = log_header_of(self._path)
                    if self._state()[:3] != state[:3]:
                        # The log may be that of a new file, or overwritten, so the read content may be a mixture.
                        return
                    self._log_header = log_header
                    yield update
                    self._position, version = position, now
            polls += 1
            stop.wait(POLL_SECONDS)

    def _state(self) -> tuple[object, ...]:
        """Return a value that changes if the file, its log or its index is replaced, or if the file is written to.

        SQLite writes to the file when it copies the log. Another program may also write to it, which an open connection
        may never notice.
        """
        status = self._path.stat()
        log, index = identity_if_any(log_path(self._path)), identity_if_any(index_path(self._path))
        return (status.st_dev, status.st_ino), log, index, status.st_size, status.st_mtime_ns

    def _read(self, connection: sqlite3.Connection, progress: Progress | None) -> tuple[Update, Position]:
        """Return the changes since the last position; the whole content if the file does not contain it."""
        before, rows = self._position, []
        with transaction(connection, "BEGIN"):
            run = last_run(connection)
            position = run.position
            if not reaches(connection, before):
                return self._whole(connection, run, progress), position
            if position != before:
                rows = connection.execute(CHANGED_ROWS, (before.revision,)).fetchall()
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
