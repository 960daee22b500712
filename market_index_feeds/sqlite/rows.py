"""The rows of a store: how a book is written into one, and how one is read."""

from __future__ import annotations

from typing import Final, TypeAlias

from market_index import AssetId, InvalidOrderBook, MarketIndexError, OrderBook, Pair, wire
from market_index.errors import safe_repr
from market_index_feeds.medium import Names, Rejected
from market_index_feeds.sqlite.revisions import digest_of

Row: TypeAlias = tuple[bytes, int, bytes | None, bytes]
"""A pair, its revision, its book in JSON or None if it was retracted, and the digest."""

# Cast, because another program may have stored a value of any type.
ALL_ROWS: Final = "SELECT CAST(pair AS TEXT), revision, CAST(body AS TEXT), CAST(digest AS BLOB) FROM books"
CHANGED_ROWS: Final = f"{ALL_ROWS} WHERE revision > ?"
ONE_ROW: Final = f"{ALL_ROWS} WHERE pair = ? AND body IS NOT NULL"


def row_of(book: OrderBook) -> tuple[str, bytes]:
    """Return the pair and the JSON of a book, as they are stored."""
    return str(book.pair), wire.order_book_to_json(book)


def book_of(row: Row) -> OrderBook:
    """Return the book of a row. Raises a `MarketIndexError` if it contains no valid one."""
    text, revision, body, digest = row
    if body is None or type(revision) is not int or digest != digest_of(revision, body):
        raise InvalidOrderBook(
            f"its digest does not fit, so that it was damaged or is not a store's: {safe_repr(body)}"
        )
    book = wire.order_book_from_json(body)
    if str(book.pair).encode("ascii") != text:
        raise InvalidOrderBook(f"it holds the book of another pair: {book.pair}")
    return book


def read_row(row: Row) -> OrderBook | Rejected:
    """Return the book of a row, or why it contains no valid one."""
    try:
        return book_of(row)
    except MarketIndexError as error:
        pair = pair_of(row[0])
        if pair is None:
            return Rejected(f"row {safe_repr(row[0])}", str(error), Names.NONE, row[0])
        return Rejected(f"row {pair}", str(error), pair, pair)


def pair_of(text: bytes) -> Pair | None:
    """Return the pair that a row is stored under, or None if that is not the name of one as a store writes it.

    So two rows are never of one pair: a row under the upper case name of a pair says nothing about the pair.
    """
    try:
        base, _, quote = text.decode("ascii").partition("/")
        pair = Pair(AssetId.parse(base), AssetId.parse(quote))
    except (UnicodeDecodeError, MarketIndexError):
        return None
    return pair if str(pair).encode("ascii") == text else None
