"""The store in a SQLite file: publishes books into it, and detects files that are deleted or replaced meanwhile."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from pathlib import Path
from threading import RLock
from time import monotonic
from typing import Final, Literal, TypeAlias
from weakref import finalize

from market_index import Freshness, OrderBook, Pair, wire
from market_index.errors import safe_repr
from market_index_feeds.opened import shown_name
from market_index_feeds.sqlite.connection import StoreConnection
from market_index_feeds.sqlite.file import Unusable, create, has_log, is_busy, reason_of, require_store, transaction
from market_index_feeds.sqlite.lock import Busy, WriterLock
from market_index_feeds.sqlite.revisions import (
    Change,
    Position,
    last_run,
    require_total,
    sum_of_index,
    sum_of_rows,
)
from market_index_feeds.sqlite.rows import digest_if_valid, rows_of
from market_index_feeds.sqlite.source import is_sqlite
from market_index_feeds.store import Receipt, Store, StoreBusy, StoreError, too_large

WAIT_SECONDS: Final = 5.0
"""The default timeout of a writer that waits for others."""

Synchronous: TypeAlias = Literal["full", "normal"]
"""SQLite's `PRAGMA synchronous`: acknowledged changes survive a power cut (full), or only a crash of programs."""

_TEXT_SUFFIXES: Final = (".csv", ".json", ".jsonl", ".ndjson")
"""The suffixes of text files, which a new store cannot have."""

_COUNT_SECONDS: Final = 1.0
"""Shortest interval between two counts of all rows."""

_PAGE_CACHE_KIB: Final = 16_384
"""The maximum size of the page cache. With SQLite's 2 MiB, a call with 1,000 books of 6 kB reads each page twice."""

_CLOSE_WAIT_SECONDS: Final = 0.1
"""Timeout of `close` for other processes. Afterwards the last process that has the file open copies the log."""

_MAX_WAIT_SECONDS: Final = 1_000_000.0
"""The maximum timeout: SQLite and the system count milliseconds in 32 bits."""


class SqliteStore(Store):
    """A file, opened for publishing.

    Any number of processes may have the file open; they take turns to write. A process that waits longer than `wait`
    seconds raises `StoreBusy`. If the file, its log or its index is replaced or deleted while it is open, nothing more
    is published into it.
    """

    def __init__(self, target: str, given: Path, wait: float, synchronous: Synchronous) -> None:
        super().__init__(target)
        self._path = given
        self._wait = wait
        self._process = os.getpid()
        # Reentrant: a thread that makes a change within a change gets an error instead of a deadlock.
        self._lock = RLock()
        # The position of this store's last change.
        self._own_position: Position | None = None
        # The last position of the file if only this store has written since its last `replace`; otherwise None.
        self._expected_position: Position | None = None
        # The pairs whose stored book is older than the last published one, which was too large.
        self._outdated: set[Pair] = set()
        # SQLite's number of changes by other connections, when the rows were counted last.
        self._data_version: int | None = None
        self._counted_at = -inf
        self._open: StoreConnection | None = None
        with ExitStack() as stack:
            self._writer_lock = WriterLock(Path(os.path.realpath(given)))
            stack.callback(self._writer_lock.close)
            had_log = has_log(given)
            opened = StoreConnection(given, "rw", min(wait, _MAX_WAIT_SECONDS))
            stack.callback(opened.close, checkpoint=False)
            connection = opened.sqlite
            with transaction(connection, "BEGIN"):
                run = last_run(connection)
                if had_log:
                    # It may be the log of a previous file, which SQLite would copy into this one.
                    require_total(sum_of_rows(connection), run.total)
            connection.create_function("digest_of", 2, digest_if_valid, deterministic=True)
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            # A negative size is in KiB.
            connection.execute(f"PRAGMA cache_size = -{_PAGE_CACHE_KIB}")
            stack.pop_all()
        self._open = opened
        # The destructor of SQLite's connection would copy the log by any index.
        self._finalizer = finalize(self, _close, opened, self._writer_lock)

    @property
    def revision(self) -> int:
        """The revision of the last change by any process; 0 before the first."""
        with self._connected() as connection:
            return last_run(connection).position.revision

    def is_unchanged_by_others(self) -> bool:
        """Whether no other publisher has changed the store; see `Store.is_unchanged_by_others`."""
        with self._connected() as connection:
            return last_run(connection).position == self._expected_position

    def close(self) -> None:
        """Copy the log into the file, and close it. Closing twice does no harm."""
        if os.getpid() != self._process:
            # The connection belongs to the parent of this forked process.
            return
        with self._lock:
            opened, self._open = self._open, None
            if opened is not None:
                wait = min(self._wait, _CLOSE_WAIT_SECONDS)
                # If this fails, nothing is lost: the next process that opens the file reads the log.
                with suppress(Busy, OSError, sqlite3.Error), self._writer_lock.held(wait):
                    if opened.is_in_place:
                        _set_timeout(opened.sqlite, wait)
                        opened.sqlite.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                        opened.discard_other_index()
                self._finalizer()

    def _update(self, books: list[OrderBook], retract: set[Pair], freshness: Freshness | None) -> Receipt:
        fitting, rejected = rows_of(books)
        with self._change(freshness) as change:
            self._require_total(change)
            stored = change.stored_among(retract)
            change.put(fitting | dict.fromkeys(map(str, stored)))
            outdated = _outdated(change, self._outdated.difference([book.pair for book in books]).union(rejected))
        self._outdated = outdated
        pairs = frozenset([book.pair for book in books]) - rejected
        return self._receipt(Receipt(change.revision, len(fitting), len(stored), pairs=pairs), rejected)

    def _replace(self, books: list[OrderBook], retract: frozenset[Pair] | None, freshness: Freshness) -> Receipt:
        """Make these books the content of the store, in one change."""
        fitting, rejected = rows_of(books)
        with self._change(freshness) as change:
            changed = change.differing(fitting)
            change.put(changed)
            kept, dropped = change.drop_others({book.pair for book in books}, retract)
            if kept:
                change.freshness = change.freshness.without_as_of()
            outdated = _outdated(change, rejected)
            # A new pair whose book is rejected is missing.
            change.is_complete = change.is_complete or (retract is None and rejected <= outdated)
            # Computed again, which repairs a sum that was wrong before.
            change.total = sum_of_rows(change.connection)
            revision = change.revision
            if not (changed or dropped or change.differs):
                change.connection.execute("ROLLBACK")
                revision -= 1
                self._expected_position = change.run_before.position
        self._outdated = outdated
        if self._expected_position is None or self._expected_position.revision != revision:
            self._expected_position = self._own_position
        pairs = frozenset([book.pair for book in books if str(book.pair) in changed])
        return self._receipt(Receipt(revision, len(changed), dropped, kept, pairs), rejected)

    def _receipt(self, receipt: Receipt, rejected: Collection[Pair]) -> Receipt:
        """Return the receipt. Raises `BooksRejected` with it if the books of some pairs were too large."""
        if rejected:
            limit = f"{wire.MAX_ORDER_BOOK_BYTES} bytes of JSON"
            raise too_large(self.target, tuple(sorted(rejected)), limit, receipt, got="more")
        return receipt

    def _require_total(self, change: Change) -> None:
        """Raise `Unusable` if rows are missing, as readers do; checked again if others wrote to the file.

        After changes of other stores it is checked once per second, because it takes longer the more rows there are.
        """
        (version,) = change.connection.execute("PRAGMA data_version").fetchone()
        is_due = change.run_before.position == self._own_position or monotonic() >= self._counted_at + _COUNT_SECONDS
        if version != self._data_version and is_due:
            require_total(sum_of_index(change.connection), change.run_before.total)
            self._data_version, self._counted_at = version, monotonic()

    @contextmanager
    def _change(self, freshness: Freshness | None) -> Iterator[Change]:
        """Make one atomic change: it is written at the end of the body; if the body raises, nothing is written."""
        deadline = monotonic() + self._wait
        with self._locked() as opened, self._writer_lock.held(max(0, deadline - monotonic())):
            # One deadline for the threads of this process, other publishers, and other programs.
            _set_timeout(opened.sqlite, deadline - monotonic())
            with transaction(opened.sqlite, "BEGIN IMMEDIATE"):
                change = Change(opened.sqlite, self._own_position, freshness)
                yield change
                # The body rolls back if there was nothing to change.
                if made := opened.sqlite.in_transaction:
                    change.finish()
                # Checked last: if a file was replaced in the meantime, nothing is written.
                self._require_in_place(opened, "since it was opened: nothing was written")
            if made:
                if not opened.is_in_place:
                    opened.discard_other_index()
                    raise self._replaced("while it was written to: the change may be lost")
                expected = self._expected_position
                continues = expected is not None and expected.revision == change.revision - 1
                self._own_position = change.position
                self._expected_position = self._own_position if continues else None

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Lock the connection for this thread, and check that the files are in place."""
        with self._locked() as opened:
            self._require_in_place(opened, "since it was opened: nothing was written")
            yield opened.sqlite

    @contextmanager
    def _locked(self) -> Iterator[StoreConnection]:
        """Lock the connection for this thread, and convert its errors into those of a store."""
        if os.getpid() != self._process:
            raise StoreError(f"{self.target} was opened before a fork: open it in the process that publishes")
        if not self._lock.acquire(timeout=min(self._wait, _MAX_WAIT_SECONDS)):
            raise self._busy()
        try:
            if self._open is None:
                raise StoreError(f"{self.target} is closed")
            if self._open.sqlite.in_transaction:
                raise StoreError(f"{self.target}: this thread is in the middle of another change")
            yield self._open
        except (OSError, sqlite3.Error, Busy, Unusable) as error:
            if isinstance(error, Busy) or is_busy(error):
                raise self._busy() from error
            raise StoreError(f"{self.target} was not written to: {reason_of(error, self._path)}") from error
        finally:
            self._lock.release()

    def _busy(self) -> StoreBusy:
        return StoreBusy(f"{self.target} was not written to: others have been writing for {self._wait:g} seconds")

    def _require_in_place(self, opened: StoreConnection, when: str) -> None:
        if not opened.is_in_place:
            raise self._replaced(when)

    def _replaced(self, when: str) -> StoreError:
        return StoreError(
            f"{self.target}, its log (-wal) or its index (-shm) was deleted or replaced {when}; "
            "close the store and open it again"
        )


def _close(opened: StoreConnection, writer_lock: WriterLock) -> None:
    opened.close()
    writer_lock.close()


def _outdated(change: Change, pairs: Iterable[Pair]) -> set[Pair]:
    """Return those of the pairs that have a stored book. It is outdated, so the as_of of the change is hidden."""
    outdated = change.stored_among(pairs)
    if outdated:
        change.freshness = change.freshness.without_as_of()
    return outdated


def _set_timeout(connection: sqlite3.Connection, seconds: float) -> None:
    """Set the timeout of SQLite for locks."""
    milliseconds = int(min(max(seconds, 0), _MAX_WAIT_SECONDS) * 1000)
    connection.execute(f"PRAGMA busy_timeout = {milliseconds}")


def _require_store_name(path: Path) -> None:
    """Raise `Unusable` if the file has the name of a text file, and is not of SQLite."""
    names = path.name.lower(), Path(os.path.realpath(path)).name.lower()
    if any(name.endswith(_TEXT_SUFFIXES) for name in names) and not is_sqlite(str(path)):
        name = shown_name(str(path))
        raise Unusable(
            f"a store must be a SQLite file such as {shown_name(path.stem)}.db, got the name of a text file "
            f"(to publish its books: market-index publish market.db {name}; to serve them: market-index serve {name}; "
            f"to write a feed into it: market-index record FEED {name}, or market-index dump FEED > {name})"
        )


def open_sqlite_store(target: str, *, wait: float, synchronous: Synchronous, make: bool) -> SqliteStore:
    """Open a file for publishing. If there is none, it is created if `make` is true.

    Raises `StoreError` if the file is not a store, or cannot be created or written.
    """
    if synchronous not in {"full", "normal"}:
        raise ValueError(f"synchronous must be 'full' or 'normal', got {safe_repr(synchronous)}")
    if not wait >= 0:
        raise ValueError(f"wait must be 0 or more seconds, got {wait}")
    name, path = shown_name(target), Path(target)
    try:
        _require_store_name(path)
        if make and not path.exists():
            create(Path(os.path.realpath(path)))
        require_store(path)
        return SqliteStore(name, path, wait, synchronous)
    except (OSError, ValueError, sqlite3.Error, Unusable) as error:
        raise StoreError(f"{name} cannot be opened: {reason_of(error, path)}") from None
