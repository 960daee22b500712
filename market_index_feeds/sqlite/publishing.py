"""The store in a SQLite file, opened for publishing."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Final, final

from market_index_feeds.errors import FeedError
from market_index_feeds.names import shown_name
from market_index_feeds.source import Position, Version
from market_index_feeds.sqlite.file import Connection, Synchronous, create_file, errors
from market_index_feeds.sqlite.reading import SqliteSource
from market_index_feeds.sqlite.rows import ROWS, is_valid, last_change, pair_of, put, put_change
from market_index_feeds.store import WAIT_SECONDS, CheckedChange, Receipt, Store

LOG_BYTES: Final = 8 * 1024 * 1024
"""About how many bytes of changes a store writes before it moves the log into the file."""

_CLOSE_WAIT_SECONDS: Final = 0.1


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
        self._log_bytes = 0
        with self._errors("cannot be opened"), errors(self._path):
            self._open(synchronous, create=create)

    def _open(self, synchronous: Synchronous, *, create: bool) -> None:
        if create and not self._path.exists():
            create_file(self._path)
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

    def _position(self) -> Position:
        with self._usable() as sqlite:
            return last_change(sqlite).position

    def _read(self) -> Version:
        with self._usable():
            self._source.read_from(self._connection, Event())
            return self._source.content

    def _write(self, change: CheckedChange, after: Position | None) -> Receipt:
        bodies = {str(pair): body for pair, body in change.bodies.items()}
        with self._usable():
            self._move_log(16_384 + sum(map(len, bodies.values())))
            with self._connection.transaction("BEGIN IMMEDIATE") as sqlite:
                last, log = last_change(sqlite), self._connection.next_log()
                self._require_position(after, last.position)
                position = Position(secrets.token_hex(8), last.position.number + 1)
                if change.is_whole:
                    published, retracted = _replace(sqlite, position, bodies, last.rows)
                else:
                    published, retracted = len(bodies), _update(sqlite, position, bodies, map(str, change.retract))
                put_change(sqlite, log, position, change.freshness_after(last.freshness))
                self._require_in_place()
        return Receipt(published, retracted, position=position)

    def _close(self) -> None:
        """Move the log into the file, unless others keep that from it, and close it."""
        self._checkpointer.close()
        with suppress(sqlite3.Error):
            if self._connection.is_in_place:
                # So that another file may be renamed over it while it has readers.
                self._connection.sqlite.execute(f"PRAGMA busy_timeout = {int(_CLOSE_WAIT_SECONDS * 1000)}")
                self._connection.sqlite.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()

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
    def _usable(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection, after a check that the file is at its path, and convert errors."""
        with errors(self._path):
            self._require_in_place()
            yield self._connection.sqlite


def _update(sqlite: sqlite3.Connection, position: Position, bodies: Mapping[str, bytes], pairs: Iterable[str]) -> int:
    """Write books, and retract pairs. Return how many of these had a book."""
    put(sqlite, position.number, bodies.items())
    has_body = "SELECT body IS NOT NULL FROM books WHERE pair = ?"
    stored = {pair: found for pair in pairs if (found := sqlite.execute(has_body, (pair,)).fetchone())}
    put(sqlite, position.number, [(pair, None) for pair in stored])
    return sum(is_stored for (is_stored,) in stored.values())


def _replace(
    sqlite: sqlite3.Connection, position: Position, bodies: Mapping[str, bytes], last_rows: int
) -> tuple[int, int]:
    """Write the books that differ, retract all other pairs, and remove damaged rows. Return how many of the first two.

    `last_rows` is the number of rows of the last change.
    """
    differing, gone, damaged, rows = dict(bodies), list[str](), list[tuple[int]](), 0
    for rowid, pair, revision, digest, body in sqlite.execute(ROWS):
        rows += 1
        name = str(pair, "ascii", "replace") if type(pair) is bytes else ""
        if not is_valid(pair, revision, digest, body) or (name not in bodies and pair_of(pair) is None):
            damaged.append((rowid,))
        elif name not in bodies:
            gone += [] if body is None else [name]
        elif body == bodies[name]:
            differing.pop(name, None)
    sqlite.executemany("DELETE FROM books WHERE rowid = ?", damaged)
    if damaged or rows < last_rows:
        # Readers read all rows: a reader of changes would not know what is removed.
        sqlite.execute("DELETE FROM changes")
    put(sqlite, position.number, [*differing.items(), *[(pair, None) for pair in gone]])
    return len(differing), len(gone)
