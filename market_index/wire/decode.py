"""Strict decoding of order books and pair lists from JSON.

Theory of operation
    `json_value` decodes the text, and the strict readers of `reading` make the value. The first fault that they find is
    an error of the library, with its place.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final, TypeAlias

from market_index.assets import AssetId
from market_index.errors import (
    InvalidAssetId,
    InvalidFreshness,
    InvalidOrderBook,
    InvalidPairList,
    MarketIndexError,
)
from market_index.freshness import Freshness
from market_index.levels import LevelChanges, price_key
from market_index.order_book import OrderBook
from market_index.pairs import Pair, PairInfo, require_trackable
from market_index.prices import price_text
from market_index.wire.json_value import Fault, parse, require_type
from market_index.wire.reading import CHANGES, COMMIT, PAIR_LIST, located, readers

Bytes: TypeAlias = bytes | bytearray | memoryview
"""JSON in UTF-8."""

MAX_ORDER_BOOK_BYTES: Final = 16 * 1024 * 1024
"""The maximum size of the JSON of one order book in stores, and for feeds: more than 180,000 levels.

`order_book_from_json` has no limit. Its caller can compare the size first, before it reads or inflates the whole text.
"""


def order_book_from_json(text: Bytes, *, ignore_unknown: bool = False) -> OrderBook:
    """Decode an order book from the JSON of the order-book endpoint; `spot`, `bids` and `asks` may be absent.

    Levels must be in the order of the contract, one per price.

    >>> order_book_from_json(b'{"base": "%s:", "quote": "ADA", "bids": [{"price": "0.5"}]}' % (b"00" * 28))
    Traceback (most recent call last):
    market_index.errors.InvalidOrderBook: bids[0].accumulated_liquidity: missing

    Args:
        text: The JSON in UTF-8.
        ignore_unknown: Ignore keys that the contract does not have, as in a response of a service: services add keys.
            Otherwise they are an error, as in a record of a file or a store (decision 24).

    Raises:
        InvalidAssetId: An identifier is invalid.
        InvalidPrice: A price is invalid.
        InvalidOrderBook: The text is not JSON of this shape, or the book is invalid. All three name the place.
    """
    book: OrderBook = _read(text, OrderBook, InvalidOrderBook, ignore_unknown=ignore_unknown)
    return book


def order_book_changes_from_json(
    text: Bytes, *, ignore_unknown: bool = False
) -> tuple[Pair, LevelChanges, LevelChanges, Decimal | None]:
    """Decode the changes of an order book: its pair, and the bids, the asks and the spot for `OrderBook.apply`.

    No key may be absent. The levels may have any order; a price must occur once per side.

    >>> pair = b'"base": "ADA", "quote": "%s:"' % (b"00" * 28)
    >>> level = b'{"price": "0.5", "accumulated_liquidity": 0}'
    >>> changes = order_book_changes_from_json(b'{%s, "spot": null, "bids": [%s], "asks": []}' % (pair, level))
    >>> changes[1:]
    (((Decimal('0.5'), 0),), (), None)

    Args:
        text: The JSON in UTF-8.
        ignore_unknown: As in `order_book_from_json`.

    Raises:
        InvalidAssetId: An identifier is invalid.
        InvalidPrice: A price is invalid.
        InvalidOrderBook: The text is not JSON of this shape, a price repeats, or the pair has one asset twice. All
            three name the place.
    """
    message = _read(text, CHANGES, InvalidOrderBook, ignore_unknown=ignore_unknown)
    pair = Pair(message["base"], message["quote"])
    require_trackable(pair)
    return pair, _different("bids", message["bids"]), _different("asks", message["asks"]), message["spot"]


def pair_list_from_json(text: Bytes, *, ignore_unknown: bool = False) -> tuple[PairInfo, ...]:
    """Decode a pair list from the JSON of the pair-list endpoint; the pairs may have any order, but must not repeat.

    >>> text = b'{"pairs": [{"base": "ADA", "quote": "%s:", "last_spot": "0.5"}]}' % (b"00" * 28)
    >>> pair_list_from_json(text)[0].last_spot
    Decimal('0.5')

    Args:
        text: The JSON in UTF-8.
        ignore_unknown: As in `order_book_from_json`.

    Raises:
        InvalidAssetId: An identifier is invalid.
        InvalidPrice: A price is invalid.
        InvalidPairList: The text is not JSON of this shape, or a pair repeats. All three name the place.
    """
    pairs = _read(text, PAIR_LIST, InvalidPairList, ignore_unknown=ignore_unknown)["pairs"]
    seen: set[tuple[AssetId, AssetId]] = set()
    for position, info in enumerate(pairs):
        assets = info.base, info.quote
        if assets in seen:
            raise InvalidPairList(f"pairs[{position}]: a pair must occur once, got {info.pair} again")
        seen.add(assets)
    return tuple(pairs)


def pair_named_in(text: Bytes) -> Pair | None:
    """Return the pair of an order book in JSON, even if the book is invalid; None if the text has no valid pair.

    >>> str(pair_named_in(b'{"base": "%s:", "quote": "ADA", "bids": "none"}' % (b"00" * 28)))
    '00000000000000000000000000000000000000000000000000000000:/ADA'
    """
    try:
        value = parse(text)
        require_type(value, dict)
        return Pair(AssetId.parse(value.get("base")), AssetId.parse(value.get("quote")))
    except (Fault, InvalidAssetId):
        return None


def freshness_from_json(text: Bytes, *, ignore_unknown: bool = False) -> Freshness:
    """Decode a freshness, or the one in a commit line; `published_at` may be absent. Raises `InvalidFreshness`.

    `ignore_unknown` is as in `order_book_from_json`.

    >>> freshness_from_json(b'{"as_of": "slot 145000000"}').as_of
    'slot 145000000'
    """
    message = _read(text, COMMIT, InvalidFreshness, ignore_unknown=ignore_unknown)
    return Freshness(message["as_of"], message.get("published_at"))


def object_from_json(text: Bytes) -> dict[str, object]:
    """Decode a JSON object, such as an event of a feed of orders. Raises `InvalidOrderBook`.

    A number that is not an integer, or has too many digits to convert, becomes a `Number`.

    >>> object_from_json(b'{"block": "slot 145000000"}')
    {'block': 'slot 145000000'}
    """
    try:
        value: dict[str, object] = parse(text)
        require_type(value, dict)
    except Fault as fault:
        raise InvalidOrderBook(str(fault)) from None
    return value


def _read(text: Bytes, of: object, kind: type[MarketIndexError], *, ignore_unknown: bool) -> Any:
    """Return what a text means. Raises an error of class `kind`, or of an invalid identifier or price."""
    try:
        return readers(ignore_unknown=ignore_unknown)[of](parse(text))
    except MarketIndexError as error:
        raise located(error, kind) from None


def _different(side: str, levels: LevelChanges) -> LevelChanges:
    """Return the changes of a side. Raises `InvalidOrderBook` if a price repeats."""
    seen: dict[str, tuple[Decimal, int]] = {}
    for position, level in enumerate(levels):
        if seen.setdefault(price_key(level[0]), level) is not level:
            place = f"{side}[{position}].price"
            raise InvalidOrderBook(f"{place}: a price must occur once, got {price_text(level[0])} again")
    return tuple(levels)
