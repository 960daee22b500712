"""The rows of a store. Each has a digest of its columns."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from attrs import define

from market_index import Freshness, InvalidFreshness, InvalidOrderBook, MarketIndexError, OrderBook, Pair, wire
from market_index.errors import safe_repr
from market_index.wire import format_time, parse_time
from market_index_feeds.source import UNKNOWN, Position

DIGEST_BYTES: Final = 16

MAX_CHANGES: Final = 100_000
"""How many changes a file keeps, in some 3 MB. A reader of an older one reads all rows again.

With 1,000, a reader that needs 9 s for all rows never catches up with 900 changes per second.
"""

# A text and a blob of the same bytes are two keys, so a pair could have two rows. Only the text counts.
ROWS: Final = "SELECT rowid, CASE typeof(pair) WHEN 'text' THEN pair END, revision, digest, body FROM books"
_PUT: Final = """
INSERT INTO books (pair, revision, digest, body) VALUES (?, ?, ?, ?)
ON CONFLICT (pair) DO UPDATE SET revision = excluded.revision, digest = excluded.digest, body = excluded.body
"""
_NO_MATCH: Final = "must match its digest (it is damaged, or another program wrote it)"


# The last change


@define
class LastChange:
    """A change: where the store is after it, the freshness of all books, and the number of rows of `books`.

    If `is_damaged`, the row of the last change is invalid, and the other attributes are not known.
    """

    position: Position
    freshness: Freshness = UNKNOWN
    rows: int = 0
    is_damaged: bool = False


def last_change(sqlite: sqlite3.Connection) -> LastChange:
    """Return the last change."""
    row = sqlite.execute("SELECT * FROM last WHERE id = 1").fetchone()
    with suppress(InvalidFreshness, TypeError, ValueError):  # another program wrote it
        _, _, revision, token, as_of, published_at, rows, digest = row
        if digest == _digest_of_change(row[:-1]):
            time = None if published_at is None else parse_time(str(published_at, "ascii"))
            freshness = Freshness(None if as_of is None else str(as_of, "ascii"), time)
            return LastChange(Position(str(token, "ascii"), revision), freshness, rows)
    (newest,) = sqlite.execute("SELECT max(revision) FROM changes").fetchone()
    return LastChange(Position("", newest or 0), is_damaged=row is not None or newest is not None)


def put_change(sqlite: sqlite3.Connection, change: LastChange) -> None:
    """Write the last change. `change.rows` is the number of rows before it."""
    position, time = change.position, change.freshness.published_at
    (follows,) = sqlite.execute("PRAGMA user_version").fetchone()
    # No row is ever deleted by itself, so the highest rowid is their number, unless a row was lost.
    (rows,) = sqlite.execute("SELECT max(rowid) FROM books").fetchone()
    published_at = None if time is None else format_time(time)
    row = 1, follows, position.number, position.run, change.freshness.as_of, published_at, max(change.rows, rows or 0)
    digest = _digest_of_change([value.encode() if type(value) is str else value for value in row])
    sqlite.execute(f"PRAGMA user_version = {int(position.run[:7], 16)}")
    sqlite.execute("INSERT OR REPLACE INTO last VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, digest))
    sqlite.execute("DELETE FROM changes WHERE revision <= ?", (position.number - MAX_CHANGES,))
    sqlite.execute("INSERT OR REPLACE INTO changes VALUES (?, ?)", (position.number, position.run))


def is_in_history(sqlite: sqlite3.Connection, position: Position) -> bool:
    """Whether the content follows from the content at a position, so that only rows of later revisions differ."""
    found = sqlite.execute("SELECT 1 FROM changes WHERE revision = ? AND token = ?", (position.number, position.run))
    return found.fetchone() is not None


def _digest_of_change(columns: Iterable[object]) -> bytes:
    return blake2b(repr(tuple(columns)).encode(), digest_size=DIGEST_BYTES).digest()


# The books


def put(sqlite: sqlite3.Connection, revision: int, bodies: Mapping[Pair, bytes | None]) -> None:
    """Write the books of pairs, None for a pair that is retracted."""
    sqlite.executemany(_PUT, (row(str(pair), revision, body) for pair, body in bodies.items()))


def row(pair: str, revision: int, body: bytes | None) -> tuple[str, int, bytes, str | None]:
    """Return the row of a pair."""
    return pair, revision, digest_of(pair.encode(), revision, body), None if body is None else str(body, "ascii")


def digest_of(pair: bytes, revision: int, body: bytes | None) -> bytes:
    """Return the digest of a row."""
    return blake2b(b"%d %b %b" % (revision, pair, body or b""), digest_size=DIGEST_BYTES).digest()


def is_valid(pair: object, revision: object, digest: object, body: object) -> bool:
    """Whether a row matches its digest. Damage and other programs may leave values of any type."""
    if type(pair) is not bytes or type(revision) is not int or not (body is None or type(body) is bytes):
        return False
    return digest == digest_of(pair, revision, body)


def content_of(name: Any, revision: object, digest: object, body: Any) -> tuple[Pair, OrderBook | None]:
    """Return the pair and the book of a row, None if it retracts the pair. Raises `MarketIndexError`."""
    if not is_valid(name, revision, digest, body):
        raise InvalidOrderBook(_NO_MATCH)
    if body is None:
        pair = pair_named(name)
        if pair is None:
            raise InvalidOrderBook("its name must be a pair")
        return pair, None
    if len(body) > wire.MAX_ORDER_BOOK_BYTES:
        raise InvalidOrderBook(f"must have at most {wire.MAX_ORDER_BOOK_BYTES} bytes of JSON, got {len(body)}")
    book = wire.order_book_from_json(body)
    if str(book.pair).encode() != name:
        raise InvalidOrderBook(f"must be the book of the pair of its row, got that of {book.pair}")
    return book.pair, book


class Rows:
    """What rows contain: `content` has the book of each pair, None for a pair that is retracted; and the invalid rows.

    If a damaged index has let a pair have two rows, the one that was inserted later counts.

    `invalid` has the place, the pair and the fault of each, by its rowid. The pair is None if the name and the body do
    not agree on one. The row of the last change is under 0, and rows that are missing are under -1.
    """

    def __init__(self, change: LastChange) -> None:
        self._change = change
        self.content: dict[Pair, OrderBook | None] = {}
        self.invalid: dict[int, tuple[str, Pair | None, MarketIndexError]] = {}
        self._number: int = 0

    def add(self, rowid: int, *columns: Any) -> None:
        """Add a row."""
        self._number += 1
        name, revision, _, body = columns
        try:
            pair, book = content_of(*columns)
            if revision > self._change.position.number and not self._change.is_damaged:
                raise InvalidOrderBook("must not be later than the last change (a part of the log is missing)")
        except MarketIndexError as error:
            self.invalid[rowid] = f"row {pair_named(name) or safe_repr(name)}", _pair_named_by(name, body), error
        else:
            self.content[pair] = book

    def end(self, *, is_whole: bool) -> None:
        """Compare them with the last change, after they were added; `is_whole`: all rows of the file."""
        if self._change.is_damaged:
            self.invalid[0] = "row of the last change", None, InvalidOrderBook(_NO_MATCH)
        elif is_whole and self._number < self._change.rows:
            reason = f"must be {self._change.rows}, got {self._number}"
            self.invalid[-1] = "number of rows", None, InvalidOrderBook(reason)


def _pair_named_by(name: object, body: object) -> Pair | None:
    """Return the pair of an invalid row, None if its name and its body do not agree on one."""
    named = pair_named(name)
    in_body = wire.pair_named_in(body) if type(body) is bytes and len(body) <= wire.MAX_ORDER_BOOK_BYTES else None
    return None if named and in_body and named != in_body else named or in_body


def pair_named(name: object) -> Pair | None:
    """Return the pair of a row by its name; None if it is not exactly the text that a store writes for a pair."""
    try:
        pair = Pair.parse(str(name, "ascii"))  # type: ignore[call-overload]  # any type raises TypeError
    except (MarketIndexError, TypeError, ValueError):
        return None
    return pair if str(pair).encode() == name else None
