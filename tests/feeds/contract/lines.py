"""Files, pipes and recordings of lines, and events of orders, in the contract."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path

import pytest

from market_index import Freshness, OrderBook, Pair, wire
from market_index.wire import format_time
from market_index_feeds.line_json import retraction_to_json
from tests.feeds.contract.medium import MARK, Can, Fence, Marked


def book_line(book: OrderBook) -> bytes:
    return wire.order_book_to_json(book) + b"\n"


def retract_line(pair: Pair) -> bytes:
    return retraction_to_json(pair) + b"\n"


def commit_line(freshness: Freshness, **more: object) -> bytes:
    values: dict[str, object] = {"as_of": freshness.as_of, **more}
    if freshness.published_at is not None:
        values["published_at"] = format_time(freshness.published_at)
    return json.dumps(values).encode() + b"\n"


def spoiled_line(pair: Pair | None) -> bytes:
    if pair is None:
        return b"\xff\0 {garbage\n"
    return book_line(OrderBook(pair)).replace(b'"bids":[]', b'"bids":7')


LINES = frozenset({Can.ANY_BOOK, Can.LIVE, Can.RETRACT, Can.AS_OF, Can.PUBLISHED_AT, Can.NAMED, Can.UNNAMED})


class AppendedLines(Marked):
    """A file of lines that is appended to, with a commit line after each change."""

    can = LINES | {Can.REPLACE, Can.HIDE, Can.BLANK, Can.MANY, Can.COPY}

    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(path, request)
        self.file = path / "books.ndjson"
        self.file.touch()
        self.freshness = Freshness()

    @property
    def name(self) -> str:
        return str(self.file)

    def write(self, *books: OrderBook, retract: tuple[Pair, ...] = (), freshness: Freshness | None = None) -> Fence:
        return self._append([*map(retract_line, retract), *map(book_line, books)], freshness)

    def spoil(self, pair: Pair | None) -> Fence:
        return self._append([spoiled_line(pair)], None)

    def replace(self, *books: OrderBook, freshness: Freshness | None = None) -> Fence:
        self.freshness = freshness or Freshness()
        self._rename([*map(book_line, [*books, self.mark()]), commit_line(self.freshness)])
        return self.fence()

    def hide(self) -> None:
        self.file.rename(self.path / "away")

    def show(self) -> None:
        (self.path / "away").rename(self.file)

    def reset(self) -> None:
        self._rename([])

    def copy(self) -> None:
        shutil.copy(self.file, self.path / "copy")
        self.copied = str(self.writes), self.freshness

    def restore(self) -> Fence:
        (self.path / "copy").rename(self.file)
        writes, self.freshness = self.copied
        return lambda version: MARK in version.index and str(version.index[MARK].spot) == writes

    def _append(self, lines: list[bytes], freshness: Freshness | None) -> Fence:
        self.freshness = freshness or self.freshness
        with self.file.open("ab") as file:
            file.write(b"".join([*lines, book_line(self.mark()), commit_line(self.freshness)]))
        return self.fence()

    def _rename(self, lines: list[bytes]) -> None:
        new = self.path / "new"
        new.write_bytes(b"".join(lines))
        new.rename(self.file)


class RenamedLines(AppendedLines):
    """A file of lines that another one is renamed over at each change, without commit lines."""

    can = frozenset({Can.ANY_BOOK, Can.LIVE, Can.RETRACT, Can.REPLACE, Can.HIDE, Can.BLANK, Can.MANY})

    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(path, request)
        self.books: dict[Pair, OrderBook] = {}

    def write(self, *books: OrderBook, retract: tuple[Pair, ...] = (), freshness: Freshness | None = None) -> Fence:
        kept = {pair: book for pair, book in self.books.items() if pair not in retract}
        return self.replace(*(kept | {book.pair: book for book in books}).values())

    def reset(self) -> None:
        self.books = {}
        super().reset()

    def replace(self, *books: OrderBook, freshness: Freshness | None = None) -> Fence:
        self.books = {book.pair: book for book in books}
        self._rename([book_line(book) for book in [*books, self.mark()]])
        return self.fence()


class PipedLines(AppendedLines):
    """A named pipe, which one process reads, and which cannot be read again."""

    can = LINES

    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(path, request)
        self.file.unlink()
        os.mkfifo(self.file)
        # Also for reading, so that opening it does not wait for a reader.
        self._pipe = os.open(self.file, os.O_RDWR)
        fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, 1024 * 1024)

    def _append(self, lines: list[bytes], freshness: Freshness | None) -> Fence:
        self.freshness = freshness or self.freshness
        os.write(self._pipe, b"".join([*lines, book_line(self.mark()), commit_line(self.freshness)]))
        return self.fence()

    def close(self) -> None:
        os.close(self._pipe)


class RecordedLines(AppendedLines):
    """A recording that is replayed as fast as it is read."""

    can = frozenset({Can.ANY_BOOK, Can.RETRACT, Can.AS_OF})

    @property
    def name(self) -> str:
        return f"replay:{self.file}?speed=1e9"

    def _append(self, lines: list[bytes], freshness: Freshness | None) -> Fence:
        self.freshness = freshness or self.freshness
        commit = commit_line(self.freshness, recorded_at="2026-11-22T00:00:00Z")
        with self.file.open("ab") as file:
            file.write(b"".join([*lines, book_line(self.mark()), commit]))
        return self.fence()


class OrderLines(Marked):
    """Events of orders in a file: each book has a spot price and asks."""

    can = frozenset({Can.LIVE, Can.RETRACT, Can.REPLACE, Can.AS_OF, Can.HIDE, Can.BLANK, Can.MANY})

    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(path, request)
        self.file = path / "events.ndjson"
        self.file.touch()
        self.pairs: set[Pair] = set()
        self.is_reset = True

    @property
    def name(self) -> str:
        return f"orders:{self.file}"

    def write(self, *books: OrderBook, retract: tuple[Pair, ...] = (), freshness: Freshness | None = None) -> Fence:
        books = (*books, self.mark())
        events: list[dict[str, object]] = [{"reset": True}] if self.is_reset else []
        events += [{"untrack": True, **_named(pair)} for pair in retract]
        events += [{"spot": None if book.spot is None else str(book.spot), **_named(book.pair)} for book in books]
        text = f"slot {self.writes}" if freshness is None else freshness.as_of
        self._append([*events, {"block": text}])
        self.is_reset = False
        return self.fence()

    def replace(self, *books: OrderBook, freshness: Freshness | None = None) -> Fence:
        self.is_reset = True
        return self.write(*books, freshness=freshness)

    def hide(self) -> None:
        self.file.rename(self.path / "away")

    def show(self) -> None:
        (self.path / "away").rename(self.file)

    def reset(self) -> None:
        self._append([{"reset": True}])
        self.is_reset = True

    def _append(self, events: list[dict[str, object]]) -> None:
        with self.file.open("ab") as file:
            file.write(b"".join(json.dumps(event).encode() + b"\n" for event in events))


def _named(pair: Pair) -> dict[str, object]:
    return {"base": str(pair.base), "quote": str(pair.quote)}
