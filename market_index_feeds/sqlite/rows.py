"""Encodes order books as rows of a store, and decodes and validates rows."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, TypeAlias

from market_index import AssetId, InvalidOrderBook, MarketIndexError, OrderBook, Pair, wire
from market_index.errors import safe_repr
from market_index_feeds.book_size import require_size
from market_index_feeds.medium import Rejected

Row: TypeAlias = tuple[bytes, int, bytes | None, bytes]
"""A pair, its revision, its book in JSON or None if it was retracted, and the digest."""

DIGEST_BYTES: Final = 16

DAMAGED: Final = "must have the stored digest (it was damaged, or written by another program)"
"""Why a row is rejected that does not match its digest."""

# CAST: another program may have stored a value of any type. Of a body that is too large, Python gets one byte more.
_BODY: Final = f"""
CASE WHEN length(CAST(body AS BLOB)) > {wire.MAX_ORDER_BOOK_BYTES}
THEN substr(CAST(body AS BLOB), 1, {wire.MAX_ORDER_BOOK_BYTES + 1}) ELSE CAST(body AS TEXT) END
"""
_PAIR: Final = "CASE typeof(pair) WHEN 'text' THEN pair ELSE quote(pair) END"
_COLUMNS: Final = f"SELECT {_PAIR}, revision, {_BODY}, CAST(digest AS BLOB)"
ALL_ROWS: Final = f"{_COLUMNS} FROM books"
CHANGED_ROWS: Final = f"{ALL_ROWS} WHERE revision > ?"
ONE_ROW: Final = f"{ALL_ROWS} WHERE pair = ? AND body IS NOT NULL"


def digest_of(revision: int, content: bytes) -> bytes:
    """Return the digest of a row: of its JSON, or of its pair if the pair is retracted."""
    return blake2b(b"%d %b" % (revision, content), digest_size=DIGEST_BYTES).digest()


def digest_if_valid(revision: object, content: bytes | None) -> bytes | None:
    """Return the digest of a row; None if another program stored values of other types."""
    return digest_of(revision, content) if type(revision) is int and content is not None else None


def rows_of(books: Iterable[OrderBook]) -> tuple[dict[str, bytes], set[Pair]]:
    """Return the JSON of each book by the text of its pair, and the pairs whose books are too large for readers."""
    texts = {book.pair: wire.order_book_to_json(book) for book in books}
    too_large = {pair for pair, text in texts.items() if len(text) > wire.MAX_ORDER_BOOK_BYTES}
    return {str(pair): text for pair, text in texts.items() if pair not in too_large}, too_large


def book_of(row: Row) -> OrderBook:
    """Return the book of a row. Raises a `MarketIndexError` if it is not a valid book of the row's pair."""
    text, revision, body, digest = row
    body = body or b""
    require_size(body)
    _require_digest(revision, body, digest)
    book = wire.order_book_from_json(body)
    if str(book.pair).encode("ascii") != text:
        raise InvalidOrderBook(f"must be the book of the pair of its row, got that of {book.pair}")
    return book


def read_row(row: Row) -> OrderBook | Pair | Rejected | bytes:
    """Return the book of a row, the pair that it retracts, or its rejection.

    A row that names no pair is rejected as long as it has a body; afterwards its name is returned.
    """
    text, revision, body, digest = row
    pair = pair_of(text)
    if body is None and pair is None:
        return text
    try:
        if pair is None or body is not None:
            return book_of(row)
        _require_digest(revision, text, digest)
    except MarketIndexError as error:
        name = safe_repr(text) if pair is None else pair
        return Rejected(f"row {name}", str(error), pair or text)
    return pair


def _require_digest(revision: object, content: bytes, digest: bytes) -> None:
    if type(revision) is not int or digest != digest_of(revision, content):
        raise InvalidOrderBook(f"{DAMAGED}, got {safe_repr(content)}")


def pair_of(text: bytes) -> Pair | None:
    """Return the pair of a row; None if its name is not the exact text that a store writes for a pair.

    So there are never two rows of one pair: a row whose name is in upper case does not affect the pair.
    """
    try:
        base, _, quote = text.decode("ascii").partition("/")
        pair = Pair(AssetId.parse(base), AssetId.parse(quote))
    except (UnicodeDecodeError, MarketIndexError):
        return None
    return pair if str(pair).encode("ascii") == text else None
