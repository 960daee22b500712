"""The store in a SQLite file, opened for publishing."""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from typing import Final, final

from market_index import Pair
from market_index_feeds.errors import FeedError
from market_index_feeds.names import shown_name
from market_index_feeds.source import Position, Version
from market_index_feeds.sqlite.file import BUSY, StoreFile, Synchronous, code_of, create_file, errors, require_file
from market_index_feeds.sqlite.reading import SqliteSource
from market_index_feeds.sqlite.rows import ROWS, LastChange, is_valid, last_change, put, put_change
from market_index_feeds.store import WAIT_SECONDS, CheckedChange, Receipt, Store

LOG_BYTES: Final = 8 * 1024 * 1024
"""About how many bytes of changes a store writes before it moves the log into the file."""

_CLOSE_WAIT_SECONDS: Final = 0.1

_MODE_SECONDS: Final = 0.01
"""Time between two attempts to change the journal mode."""


@final
class SqliteStore(Store):
    """A file, opened for publishing. It is created if it is missing and `create` is true.

    Any number of processes may have it open; they take turns to write. A call that waits longer than `wait` seconds
    raises `StoreBusy`. With `synchronous="normal"`, acknowledged changes survive a crash of programs, but not a power
    cut. If another file is renamed over it, nothing more is published.

    Raises:
        StoreError: The file is not a store, or cannot be opened or created.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        wait: float = WAIT_SECONDS,
        synchronous: Synchronous = "full",
        create: bool = True,
    ) -> None:
        super().__init__(shown_name(os.fspath(path)), wait)
        self._path = Path(path).absolute()
        self._written = 0  # about how many bytes since the last move of the log
        with self._errors("cannot be opened"), errors(self._path):
            self._open(synchronous, create=create)

    def _open(self, synchronous: Synchronous, *, create: bool) -> None:
        if create:
            create_file(self._path, self._wait)
        require_file(self._path)
        # It reads nothing yet: a connection that has read a log copies it into the file when it is closed.
        self._connection = StoreFile(self._path, "rw", self._wait)
        try:
            # So a read-only connection checks first whether it is the log of this file.
            with closing(StoreFile(self._path, "ro", self._wait)) as reader, reader.transaction("BEGIN"):
                reader.require_store()
            self._require_in_place()
            self._prepare(synchronous)
            self._source = SqliteSource(self._path)
            self._checkpointer = StoreFile(self._path, "rw", self._wait)
            self._require_in_place()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, synchronous: Synchronous) -> None:
        sqlite = self._connection.sqlite
        self._use_log()
        sqlite.execute("PRAGMA wal_autocheckpoint = 0")
        sqlite.execute(f"PRAGMA synchronous = {synchronous}")
        sqlite.execute("PRAGMA cache_size = -16384")  # 2 MiB would read each page twice in a call with 1,000 books

    def _use_log(self) -> None:
        """Change the journal mode of a new file, or of a copy that has another one.

        SQLite does not wait for another connection that writes or changes it too, because both could wait for ever.
        """
        deadline = monotonic() + self._wait
        while True:
            try:
                self._connection.sqlite.execute("PRAGMA journal_mode = WAL").fetchone()
            except sqlite3.OperationalError as error:
                if code_of(error) not in BUSY or monotonic() >= deadline:
                    raise
                sleep(_MODE_SECONDS)
            else:
                return

    def _position(self) -> Position:
        with errors(self._path):
            self._require_in_place()
            return last_change(self._connection.sqlite).position

    def _read(self) -> Version:
        with errors(self._path):
            self._require_in_place()
            self._source.read_from(self._connection, Event())
            return self._source.content

    def _write(self, change: CheckedChange, after: Position | None) -> Receipt:
        if change.is_whole:
            self._read()  # so that most of it is not read while others wait
        with errors(self._path):
            self._move_log(16_384 + sum(map(len, change.bodies.values())))
            with self._connection.transaction("BEGIN IMMEDIATE") as sqlite:
                last = last_change(sqlite)
                self._require_position(after, last.position)
                position = Position(secrets.token_hex(8), last.position.number + 1)
                row = LastChange(position, change.freshness_after(last.freshness), last.rows)
                published, retracted = self._put_books(change, row)
                put_change(sqlite, row)
                self._require_in_place()
        with suppress(OSError):
            # It wakes the readers: SQLite does nothing after a commit that the system could report to them.
            os.utime(self._path)
        return Receipt(published, retracted, position=position, freshness=row.freshness)

    def _put_books(self, change: CheckedChange, last: LastChange) -> tuple[int, int]:
        """Write what differs from the stored books. Return how many books were written, and pairs retracted."""
        sqlite, is_damaged = self._connection.sqlite, False
        if change.is_whole:
            self._source.read_within(self._connection, Event())
            bodies, gone = change.differences(self._source.content)
            # Rows that another program deleted or damaged have no later revision, so the source has not seen that.
            rows = [is_valid(*columns[1:]) for columns in sqlite.execute(ROWS)]
            is_damaged = bool(self._source.content.invalid) or not all(rows) or len(rows) < last.rows
        else:
            bodies, gone = dict(change.bodies), {pair for pair in change.retract if _is_stored(sqlite, pair)}
        written: dict[Pair, bytes | None] = {**bodies, **dict.fromkeys(gone)}
        if is_damaged:
            # Readers read all rows: a reader of changes would not know what is removed.
            sqlite.execute("DELETE FROM books")
            sqlite.execute("DELETE FROM changes")
            last.rows, written = 0, {**change.bodies}
        put(sqlite, last.position.number, written)
        return len(bodies), len(gone)

    def _close(self) -> None:
        """Move the log into the file, unless another program prevents that, and close it."""
        with closing(self._connection), closing(self._checkpointer), suppress(sqlite3.Error):
            for one in (self._connection, self._checkpointer):
                one.sqlite.execute(f"PRAGMA busy_timeout = {int(_CLOSE_WAIT_SECONDS * 1000)}")
            with self._connection.transaction("BEGIN IMMEDIATE"):
                is_in_place = self._connection.is_in_place
                is_moved = is_in_place and self._checkpoint()
            if is_moved:
                # So that another file may be renamed over it while it has readers. It waits for the lock of writers.
                self._checkpointer.sqlite.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _move_log(self, more_bytes: int) -> None:
        """Move the log into the file if it is large enough."""
        if self._written >= LOG_BYTES:
            # A transaction of its own: the next one begins the log anew only if all of it was moved before.
            with self._connection.transaction("BEGIN IMMEDIATE"):
                self._checkpoint()
            self._written = 0
        self._written += more_bytes

    def _checkpoint(self) -> bool:
        """Move what no reader needs of the log into the file, within a write transaction. Return whether it is all."""
        _, frames, moved = self._checkpointer.sqlite.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return bool(frames == moved)

    def _require_in_place(self) -> None:
        if not self._connection.is_in_place:
            raise FeedError("another file is at its path, or none: close the store and open it again")


def _is_stored(sqlite: sqlite3.Connection, pair: Pair) -> bool:
    """Whether a pair has a row, also an invalid one, unless the row retracts it."""
    row = sqlite.execute(f"{ROWS} WHERE pair = ?", (str(pair),)).fetchone()
    return row is not None and not (row[-1] is None and is_valid(*row[1:]))
