"""The store in a SQLite file, opened for publishing."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event, RLock
from typing import Final, cast, final

from market_index import Freshness, OrderBook, Pair, wire
from market_index.errors import safe_repr
from market_index_feeds.errors import FeedError
from market_index_feeds.opened import shown_name
from market_index_feeds.source import Position, Version
from market_index_feeds.sqlite.file import WAIT_SECONDS, Connection, Synchronous, code_of, create, errors
from market_index_feeds.sqlite.reading import SqliteSource
from market_index_feeds.sqlite.rows import ROWS, Change, is_valid, last_change, pair_of, put, put_change
from market_index_feeds.store import (
    BookTooLarge,
    Conflict,
    Receipt,
    Store,
    StoreBusy,
    StoreError,
    books_by_pair,
    checked_pairs,
    published_now,
)

LOG_BYTES: Final = 8 * 1024 * 1024
"""About how many bytes of changes a store writes before it moves the log into the file."""

_CLOSE_WAIT_SECONDS: Final = 0.1
_MAX_WAIT_SECONDS: Final = 1_000_000.0  # SQLite counts milliseconds in 32 bits
_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


@final
class SqliteStore(Store):
    """A file, opened for publishing. It is created if it is missing and `make` is true.

    Any number of processes may have it open; they take turns to write. A call that waits longer than `wait` seconds
    raises `StoreBusy`. With `synchronous="normal"`, acknowledged changes survive a crash of programs, but not a power
    cut. If another file is renamed over it, nothing more is published.

    Raises:
        StoreError: The file is not a store, or cannot be opened or created.
        ValueError: `wait` is negative, or `synchronous` is another value.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        wait: float = WAIT_SECONDS,
        synchronous: Synchronous = "full",
        make: bool = True,
    ) -> None:
        super().__init__(shown_name(os.fspath(path)))
        if synchronous not in {"full", "normal"}:
            raise ValueError(f"synchronous must be 'full' or 'normal', got {safe_repr(synchronous)}")
        if not wait >= 0:
            raise ValueError(f"wait must be 0 or more seconds, got {wait}")
        self._wait = min(wait, _MAX_WAIT_SECONDS)
        self._path = Path(path).absolute()
        # Reentrant: a signal handler may close the store.
        self._lock = RLock()
        self._is_open = True
        self._log_bytes = 0
        with self._errors("cannot be opened"):
            if make and not self._path.exists():
                create(self._path)
            # It reads nothing yet. Closing a connection that has read a log copies the log into the file.
            self._connection = Connection(self._path, "rw", self._wait)
            try:
                # So another connection, which is read-only, checks whether it is the log of this file.
                with closing(Connection(self._path, "ro", self._wait)) as reader, reader.transaction("BEGIN"):
                    reader.require_store()
                self._require_in_place()
                self._prepare(synchronous)
                self._source = SqliteSource(self._path)
                self._checkpointer = Connection(self._path, "rw", self._wait)
                self._require_in_place()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self, synchronous: Synchronous) -> None:
        sqlite = self._connection.sqlite
        sqlite.execute("PRAGMA journal_mode = WAL").fetchone()  # a copy may have another one
        sqlite.execute("PRAGMA wal_autocheckpoint = 0")
        sqlite.execute(f"PRAGMA synchronous = {synchronous}")
        sqlite.execute("PRAGMA cache_size = -16384")  # 2 MiB would read each page twice in a call with 1,000 books

    @property
    def position(self) -> Position:
        """The position after the last change by any program; its number is 0 before the first one."""
        with self._locked("cannot be read") as sqlite:
            self._require_in_place()
            return last_change(sqlite).position

    def read(self) -> Version:
        """Return the content. Only what changed since the last call is read."""
        with self._locked("cannot be read"):
            self._require_in_place()
            found = self._source.read_from(self._connection, Event(), is_target=True)
            return cast("Version", found)  # a target has a version, and nothing stops this

    def update(
        self,
        books: Iterable[OrderBook],
        retract: Iterable[Pair] = (),
        freshness: Freshness | None = None,
        *,
        after: Position | None = None,
    ) -> Receipt:
        """Retract pairs and store books; see `Target.update`."""
        bodies = self._bodies(books)
        gone = set(map(str, checked_pairs(retract))).difference(bodies)
        with self._change(bodies, freshness, after, keeps_as_of=True) as (sqlite, change):
            position = change.position
            put(sqlite, position.number, bodies.items())
            has_body = "SELECT body IS NOT NULL FROM books WHERE pair = ?"
            stored = {pair: found for pair in gone if (found := sqlite.execute(has_body, (pair,)).fetchone())}
            put(sqlite, position.number, [(pair, None) for pair in stored])
        return Receipt(position.number, len(bodies), sum(is_stored for (is_stored,) in stored.values()), position)

    def replace(self, books: Iterable[OrderBook], freshness: Freshness | None = None) -> Receipt:
        """Make these books the whole content; see `Store.replace`."""
        bodies = self._bodies(books)
        differing, gone, is_damaged, rows = dict(bodies), list[str](), False, 0
        with self._change(bodies, freshness, None, keeps_as_of=False) as (sqlite, change):
            position = change.position
            for _, pair, revision, digest, body in sqlite.execute(ROWS):
                rows += 1
                name = str(pair, "ascii", "replace") if type(pair) is bytes else ""
                if not is_valid(pair, revision, digest, body) or (name not in bodies and pair_of(pair) is None):
                    is_damaged = True
                elif name not in bodies:
                    gone += [] if body is None else [name]
                elif body == bodies[name]:
                    differing.pop(name, None)
            changed: list[tuple[str, bytes | None]] = [*differing.items(), *[(pair, None) for pair in gone]]
            if is_damaged or rows < change.rows:
                # Readers read all rows: a reader of changes would not know what is removed.
                sqlite.execute("DELETE FROM books")
                sqlite.execute("DELETE FROM changes")
                change.rows, changed = 0, list(bodies.items())
            put(sqlite, position.number, changed)
        return Receipt(position.number, len(differing), len(gone), position)

    def close(self) -> None:
        """Move the log into the file, unless others keep that from it, and close it. Closing twice does no harm."""
        if self.is_forked:
            return
        with self._lock:
            self._is_open = False
            self._checkpointer.close()
            with suppress(sqlite3.Error):
                if self._connection.is_in_place:
                    # So that another file may be renamed over it while it has readers.
                    self._connection.sqlite.execute(f"PRAGMA busy_timeout = {int(_CLOSE_WAIT_SECONDS * 1000)}")
                    self._connection.sqlite.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.close()

    def _bodies(self, books: Iterable[OrderBook]) -> dict[str, bytes]:
        bodies = {pair: wire.order_book_to_json(book) for pair, book in books_by_pair(books).items()}
        limit = wire.MAX_ORDER_BOOK_BYTES
        too_large = tuple(pair for pair, body in bodies.items() if len(body) > limit)
        if too_large:
            size = len(bodies[too_large[0]])
            raise BookTooLarge(
                f"{self.name}: the book of {too_large[0]} must have at most {limit} bytes of JSON, got {size}",
                too_large,
            )
        return {str(pair): body for pair, body in bodies.items()}

    @contextmanager
    def _change(
        self, bodies: Mapping[str, bytes], freshness: Freshness | None, after: Position | None, *, keeps_as_of: bool
    ) -> Iterator[tuple[sqlite3.Connection, Change]]:
        """Make the change that is yielded: the body writes its rows. If it raises, nothing is written."""
        with self._locked("was not written to"):
            self._move_log(16_384 + sum(map(len, bodies.values())))
            with self._connection.transaction("BEGIN IMMEDIATE") as sqlite:
                last = last_change(sqlite)
                if after is not None and after != last.position:
                    raise Conflict(
                        f"{self.name} was changed by another program: its revision is {last.position.number}"
                    )
                position = Position(secrets.token_hex(8), last.position.number + 1)
                change = Change(position, _stamped(freshness, last.freshness.as_of if keeps_as_of else None), last.rows)
                yield sqlite, change
                put_change(sqlite, change)
                self._require_in_place()
            with suppress(OSError):
                # SQLite does nothing after a commit that the system reports to readers.
                os.utime(self._path)

    def _move_log(self, more_bytes: int) -> None:
        """Move the log into the file if it is large enough."""
        if self._log_bytes >= LOG_BYTES:
            # A transaction of its own: the next one begins the log anew only if all of it was moved before.
            with self._connection.transaction("BEGIN IMMEDIATE"):
                self._checkpointer.sqlite.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._log_bytes = 0
        self._log_bytes += more_bytes

    def _require_in_place(self) -> None:
        if not self._connection.is_in_place:
            raise FeedError("another file is at its path, or none: close the store and open it again")

    @contextmanager
    def _locked(self, problem: str) -> Iterator[sqlite3.Connection]:
        """Lock the connection for this thread, check that it can be used, and convert errors."""
        self.require_own_process()
        if not self._lock.acquire(timeout=self._wait):
            raise self._busy(problem)
        try:
            if not self._is_open:
                raise StoreError(f"{self.name} is closed")
            if self._connection.sqlite.in_transaction:
                raise StoreError(f"{self.name}: this thread is in the middle of another change")
            with self._errors(problem):
                yield self._connection.sqlite
        finally:
            self._lock.release()

    @contextmanager
    def _errors(self, problem: str) -> Iterator[None]:
        try:
            with errors(self._path):
                yield
        except FeedError as error:
            if isinstance(error.__cause__, sqlite3.Error) and code_of(error.__cause__) in _BUSY:
                raise self._busy(problem) from error
            raise StoreError(f"{self.name} {problem}: {error}") from error

    def _busy(self, problem: str) -> StoreBusy:
        return StoreBusy(f"{self.name} {problem}: others have been writing for {self._wait:g} seconds")


def _stamped(freshness: Freshness | None, as_of: str | None) -> Freshness:
    """Return a freshness, by default with this `as_of`. Without a publish time, it gets the wall clock."""
    freshness = freshness or Freshness(as_of)
    return published_now(freshness.as_of) if freshness.published_at is None else freshness
