"""Stores in the contract."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from market_index import Freshness, OrderBook, Pair, wire
from market_index_feeds import Receipt, Recorder, Store, Version, open_store
from tests.feeds.contract.medium import Can, Fence, Medium
from tests.feeds.made_up import pair as made_up_pair

STORE = frozenset(Can)
"""A store can do everything."""

RECORDING = STORE - {Can.COPY, Can.SEVERAL, Can.NAMED, Can.UNNAMED, Can.REVISIONS, Can.HIDE}
"""One recorder at a time has a recording open, which never has an invalid record. Its reader is one of lines."""


class StoreMedium(Medium):
    """A store that is opened for each change."""

    can = STORE

    def write(self, *books: OrderBook, retract: tuple[Pair, ...] = (), freshness: Freshness | None = None) -> Fence:
        return self._change(lambda store: store.update(books, retract, freshness))

    def replace(self, *books: OrderBook, freshness: Freshness | None = None) -> Fence:
        return self._change(lambda store: store.replace(books, freshness))

    def store(self) -> Store:
        return open_store(self.name)

    def _change(self, change: Callable[[Store], Receipt]) -> Fence:
        with self.store() as store:
            position = change(store).position

        def is_reached(version: Version) -> bool:
            return version.position is not None and version.position.number >= position.number

        return is_reached


class RecordedFile(StoreMedium):
    """A recording, opened for each change, and followed as a file of lines."""

    can = RECORDING

    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(path, request)
        self.file = path / "recording.ndjson"
        self.file.touch()

    @property
    def name(self) -> str:
        return str(self.file)

    def store(self) -> Store:
        return Recorder(self.file)

    def _change(self, change: Callable[[Store], Receipt]) -> Fence:
        with self.store() as store:
            change(store)
            content = store.read().index
        return lambda version: version.index == content and version.index.freshness == content.freshness

    def reset(self) -> None:
        (self.path / "new").touch()
        (self.path / "new").rename(self.file)


class SqliteFile(StoreMedium):
    """A store in a file."""

    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(path, request)
        self.file = path / "market.db"
        self.store().close()

    @property
    def name(self) -> str:
        return str(self.file)

    def spoil(self, pair: Pair | None) -> Fence:
        # As a change, because a reader reads only the rows of later revisions. A row whose name and book contradict
        # each other may be of either pair.
        named, contained = (pair, pair) if pair is not None else (made_up_pair(97), made_up_pair(98))
        self._execute(
            "INSERT INTO books VALUES (?, (SELECT max(revision) FROM changes) + 1, x'00', ?) "
            "ON CONFLICT (pair) DO UPDATE SET digest = x'00', revision = excluded.revision",
            str(named),
            wire.order_book_to_json(OrderBook(contained)).decode(),
        )
        return lambda version: pair in version.invalid

    def hide(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            if (file := Path(f"{self.file}{suffix}")).exists():
                file.rename(self.path / f"away{suffix}")

    def show(self) -> None:
        for suffix in ("-shm", "-wal", ""):
            if (file := self.path / f"away{suffix}").exists():
                file.rename(f"{self.file}{suffix}")

    def reset(self) -> None:
        with open_store(self.path / "new.db"):
            pass
        (self.path / "new.db").rename(self.file)

    def copy(self) -> None:
        (self.path / "copy.db").unlink(missing_ok=True)
        with closing(sqlite3.connect(self.file)) as source, closing(sqlite3.connect(self.path / "copy.db")) as target:
            source.backup(target)

    def restore(self) -> Fence:
        (self.path / "copy.db").rename(self.file)
        with self.store() as store:
            position = store.position
        return lambda version: version.position == position

    def _execute(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self.file)) as connection:
            with connection:
                connection.execute(statement, values)
            # As a store does. Otherwise the log would be combined with a file that is renamed over this one.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
