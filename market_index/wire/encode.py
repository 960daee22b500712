"""Encoding of order books, pair lists and errors as JSON.

Large bodies are encoded in parts that are cached on chunks. Versions that share a chunk share its encoded part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from market_index.assets import AssetId
from market_index.freshness import Freshness, format_time
from market_index.index import MarketIndex, PairsChunk, by_key
from market_index.levels import LevelChanges, LevelsChunk, by_price
from market_index.order_book import OrderBook
from market_index.pairs import Pair, PairInfo
from market_index.prices import EXACT, price_text
from market_index.wire.parts import EncodedPart, text_of

AS_OF: Final = "Market-Index-As-Of"
"""The header field with what the books reflect, in the publisher's terms (decision 23)."""

PUBLISHED_AT: Final = "Market-Index-Published-At"
"""The header field with the time of publication: RFC 3339, UTC, milliseconds (decision 23)."""

_COMMA: Final = EncodedPart(b",")
_BETWEEN_PRICES: Final = '","accumulated_liquidity":%d},{"price":"'
_BIDS_TO_ASKS: Final = EncodedPart(b'],"asks":[')
_PAIR_LIST_START: Final = EncodedPart(b'{"pairs":[')
_ARRAY_AND_OBJECT_END: Final = EncodedPart(b"]}")


def encoded_order_book(book: OrderBook) -> tuple[EncodedPart, ...]:
    """Return the response body of the order-book endpoint in parts: one line of ASCII."""
    start = f'{_identifiers(book.pair.base, book.pair.quote)},"spot":{_price_to_json(book.spot)},"bids":['
    bids, asks = by_price(book.bids).chunks, by_price(book.asks).chunks
    if len(bids) == len(asks) == 1:
        # Most books. It is not cached, and one part: several small ones fragment the memory between the bodies.
        # Identifiers and prices contain no percent sign.
        template = f'{start}{_levels_template(bids[0])}],"asks":[{_levels_template(asks[0])}]}}'
        return (EncodedPart(template.encode("ascii") % (*bids[0].values, *asks[0].values)),)
    return (
        EncodedPart(start.encode("ascii")),
        *_level_parts(bids),
        _BIDS_TO_ASKS,
        *_level_parts(asks),
        _ARRAY_AND_OBJECT_END,
    )


def with_identifiers(text: bytes, pair: Pair, base: str, quote: str) -> bytes:
    """Return the JSON of an order book with other texts as identifiers, to echo a request (decision 7).

    Args:
        text: The JSON of a book, as `order_book_to_json` returns it, or the start of it.
        pair: The pair of the book.
        base: The text that replaces the canonical identifier of the base.
        quote: The text that replaces the canonical identifier of the quote.
    """
    rest = memoryview(text)[len(_identifiers(pair.base, pair.quote)) :]
    # One copy. A slice of some megabytes and then a sum take 40 times as long.
    return b"".join((_identifiers(base, quote).encode("ascii"), rest))


def encoded_pair_list(index: MarketIndex) -> tuple[EncodedPart, ...]:
    """Return the response body of the pair-list endpoint in parts: one line of ASCII, pairs in ledger order."""
    parts = [chunk.encoded or _encode_entries(chunk) for chunk in by_key(index).chunks if chunk.keys]
    return _PAIR_LIST_START, *_with_commas(parts), _ARRAY_AND_OBJECT_END


def order_book_to_json(book: OrderBook) -> bytes:
    """Return the response body of the order-book endpoint: one line of ASCII."""
    return text_of(encoded_order_book(book))


def order_book_changes_to_json(book: OrderBook, earlier: OrderBook) -> bytes:
    """Return what changed since an earlier book of the pair, with absolute amounts, 0 for a removed level: one line.

    It has the keys of the order book, and always the spot of the book, even if it has not changed.

    >>> from market_index import ADA
    >>> earlier = OrderBook.from_levels(Pair(AssetId(bytes(28), b""), ADA), bids=[("0.5", 7), ("0.4", 9)])
    >>> text = order_book_changes_to_json(earlier.apply(bids=[("0.5", 0)]), earlier)
    >>> text[text.index(b'"spot"') :]
    b'"spot":null,"bids":[{"price":"0.5","accumulated_liquidity":0}],"asks":[]}'

    Raises:
        ValueError: The earlier book is of another pair.
    """
    bids, asks = map(_level_changes, book.changes_since(earlier))
    identifiers = _identifiers(book.pair.base, book.pair.quote)
    return f'{identifiers},"spot":{_price_to_json(book.spot)},"bids":[{bids}],"asks":[{asks}]}}'.encode("ascii")


def pair_to_json(pair: Pair) -> bytes:
    """Return the JSON of a pair: one line of ASCII.

    >>> from market_index import ADA
    >>> pair_to_json(Pair(AssetId(bytes(28), b""), ADA))
    b'{"base":"00000000000000000000000000000000000000000000000000000000:","quote":"ADA"}'
    """
    return f"{_identifiers(pair.base, pair.quote)}}}".encode("ascii")


def pair_list_to_json(pair_infos: Iterable[PairInfo]) -> bytes:
    """Return the response body of the pair-list endpoint: one line of ASCII, pairs in the given order."""
    entries = [_entry(info.base, info.quote, info.last_spot) for info in pair_infos]
    return b"".join((_PAIR_LIST_START.text, b",".join(entries), _ARRAY_AND_OBJECT_END.text))


def error_to_json(message: str) -> bytes:
    """Return the error body of the contract: one line of ASCII.

    >>> error_to_json("Not Found")
    b'{"error":"Not Found"}'
    """
    return f'{{"error":{_text_to_json(message)}}}'.encode("ascii")


def freshness_to_json(freshness: Freshness) -> bytes:
    """Return the JSON of a freshness, without a newline. As a line, it is a commit line.

    >>> freshness_to_json(Freshness("slot 145000000"))
    b'{"as_of":"slot 145000000","published_at":null}'
    """
    as_of = "null" if freshness.as_of is None else _text_to_json(freshness.as_of)
    published_at = "null" if freshness.published_at is None else f'"{format_time(freshness.published_at)}"'
    return f'{{"as_of":{as_of},"published_at":{published_at}}}'.encode("ascii")


def _level_parts(chunks: Iterable[LevelsChunk]) -> list[EncodedPart]:
    return _with_commas([chunk.encoded or _encode_levels(chunk) for chunk in chunks if chunk.keys])


def _with_commas(parts: list[EncodedPart]) -> list[EncodedPart]:
    if len(parts) < 2:
        return parts
    separated = [_COMMA] * (2 * len(parts) - 1)
    separated[::2] = parts
    return separated


def _encode_levels(chunk: LevelsChunk) -> EncodedPart:
    """Encode a chunk of levels, and cache the text on it."""
    template = _levels_template(chunk).encode("ascii")
    part = EncodedPart(template % tuple(chunk.values))
    chunk.encoded = part
    return part


def _levels_template(chunk: LevelsChunk) -> str:
    """Return the JSON of a chunk of levels, separated by commas, with `%d` in place of each amount.

    Python fills a template of bytes faster than one of text.
    """
    if not chunk.keys:
        return ""
    prices = _BETWEEN_PRICES.join(map(EXACT.to_sci_string, chunk.keys))
    # Only the exponent of a small number contains an E.
    if "E" in prices:
        prices = _BETWEEN_PRICES.join(map(price_text, chunk.keys))
    return f'{{"price":"{prices}","accumulated_liquidity":%d}}'


def _level_changes(changes: LevelChanges) -> str:
    return ",".join(f'{{"price":"{price_text(price)}","accumulated_liquidity":{amount}}}' for price, amount in changes)


def _encode_entries(chunk: PairsChunk) -> EncodedPart:
    """Encode the pair-list entries of a chunk of pairs, and cache the text on it."""
    entries = [_entry(book.pair.base, book.pair.quote, book.spot) for book in chunk.values]
    part = EncodedPart(b",".join(entries))
    chunk.encoded = part
    return part


def _entry(base: AssetId, quote: AssetId, last_spot: Decimal | None) -> bytes:
    text = f'{{"base":{_text_to_json(base)},"quote":{_text_to_json(quote)},"last_spot":{_price_to_json(last_spot)}}}'
    return text.encode("ascii")


def _identifiers(base: str | AssetId, quote: str | AssetId) -> str:
    return f'{{"base":{_text_to_json(base)},"quote":{_text_to_json(quote)}'


def _text_to_json(value: str | AssetId) -> str:
    # The text of an asset contains no character that JSON escapes.
    return json.dumps(value) if isinstance(value, str) else f'"{value}"'


def _price_to_json(price: Decimal | None) -> str:
    return "null" if price is None else f'"{price_text(price)}"'
