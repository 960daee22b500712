"""The fuzz targets: each passes an input to the library and to the grammar, and fails if the results differ.

`long_texts` has no grammar: it calls the readers, and a reader that does not return in time looks like an endless loop.

An input can be any bytes. Any exception, including `AssertionError`, is a finding.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final, TypeVar

from market_index import (
    AssetId,
    InvalidAssetId,
    InvalidOrderBook,
    InvalidPairList,
    InvalidPrice,
    MarketIndexError,
    OrderBook,
    PairInfo,
    wire,
)
from market_index.levels import Levels
from market_index.prices import parse_price, parse_prices
from market_index.wire import parse_time
from market_index_feeds.lines import Line
from market_index_feeds.opened import without_credentials
from market_index_feeds.orders import Blocks
from tests.oracles import grammar

T = TypeVar("T")


def order_books(data: bytes) -> None:
    """Read an order book."""
    errors = InvalidAssetId, InvalidPrice, InvalidOrderBook
    book = compared(wire.order_book_from_json, grammar.order_book, book_fields, data, *errors)
    if book is not None:
        assert_equal(wire.order_book_from_json(wire.order_book_to_json(book)), book)


def pair_lists(data: bytes) -> None:
    """Read a pair list."""
    errors = InvalidAssetId, InvalidPrice, InvalidPairList
    infos = compared(wire.pair_list_from_json, grammar.pair_list, info_fields, data, *errors)
    if infos is not None:
        assert_equal(wire.pair_list_from_json(wire.pair_list_to_json(infos)), infos)


def assets(data: bytes) -> None:
    """Read an asset identifier in each spelling."""
    text = text_of(data)
    for read, read_by_grammar in (
        (AssetId.parse, grammar.asset),
        (AssetId.from_unit, grammar.asset_of_unit),
        (AssetId.from_dotted, grammar.asset_of_dotted),
    ):
        asset = compared(read, read_by_grammar, asset_fields, text, InvalidAssetId)
        if asset is not None:
            assert_equal(str(asset), grammar.asset_text(asset_fields(asset)))
            assert_equal(AssetId.from_unit(asset.unit), asset)
            assert_equal(AssetId.from_dotted(asset.dotted), asset)


def prices(data: bytes) -> None:
    """Read the price in each line separately, and all prices as one column."""
    texts = text_of(data).split("\n")
    for text in texts:
        compared(parse_price, grammar.price, fixed_point, text, InvalidPrice)
    compared(parse_prices, lambda texts: list(map(grammar.price, texts)), column_fields, texts, InvalidPrice)


def long_texts(data: bytes) -> None:
    """Read a text in which the piece between the first two NULs is repeated.

    Linear time is less than a second. Quadratic time is minutes, which the timeout of an input detects.
    """
    before, piece, after, *_ = [*data.split(b"\0", 2), b"", b""]
    if piece:
        text = before + piece * (LONG_TEXT_BYTES // len(piece)) + after
        for read in READERS:
            with suppress(MarketIndexError):
                read(text)


LONG_TEXT_BYTES: Final = 2**17


def read_event(data: bytes) -> None:
    """Read an event of orders after a reset."""
    blocks = Blocks(0, lambda *_: None)
    for number, line in enumerate((b'{"reset":true}', data)):
        blocks.read(Line(number, line))


READERS: Final[tuple[Callable[[bytes], object], ...]] = (
    read_event,
    wire.order_book_from_json,
    wire.pair_list_from_json,
    wire.freshness_from_json,
    wire.is_commit,
    wire.is_retraction,
    wire.commit_from_json,
    wire.retraction_from_json,
    wire.pair_named_in,
    lambda data: AssetId.parse(text_of(data)),
    lambda data: parse_price(text_of(data)),
    lambda data: parse_time(text_of(data)),
    lambda data: without_credentials(text_of(data)),
)

TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "order-books": order_books,
    "pair-lists": pair_lists,
    "assets": assets,
    "prices": prices,
    "long-texts": long_texts,
}


def compared(
    read: Callable[[Any], T],
    read_by_grammar: Callable[[Any], object],
    fields: Callable[[T], object],
    value: Any,
    *documented: type[Exception],
) -> T | None:
    """Require that library and grammar read the same fields, or both reject the value. Return what the library reads.

    An undocumented exception is raised.
    """
    try:
        wanted = read_by_grammar(value)
    except grammar.Rejected:
        wanted = None
    try:
        result = read(value)
    except documented as error:
        message = str(error)
    else:
        assert_equal(fields(result), wanted)
        return result
    assert message.isprintable(), f"the message is not printable: {message!r}"
    assert_equal(None, wanted)
    return None


def book_fields(book: OrderBook) -> grammar.Book:
    base, quote = asset_fields(book.pair.base), asset_fields(book.pair.quote)
    return base, quote, spot_text(book.spot), level_fields(book.bids), level_fields(book.asks)


def info_fields(infos: tuple[PairInfo, ...]) -> list[grammar.Info]:
    return [(asset_fields(info.base), asset_fields(info.quote), spot_text(info.last_spot)) for info in infos]


def asset_fields(asset: AssetId) -> grammar.Asset:
    return asset.policy_id, asset.asset_name


def level_fields(levels: Levels) -> list[grammar.Level]:
    return [(fixed_point(level.price), level.accumulated_liquidity) for level in levels]


def column_fields(column: list[Decimal]) -> list[str]:
    return list(map(fixed_point, column))


def spot_text(spot: Decimal | None) -> str | None:
    return None if spot is None else fixed_point(spot)


def fixed_point(price: Decimal) -> str:
    """Return all digits of the Decimal, including trailing zeros, which a price must not have."""
    return format(price, "f")


def text_of(data: bytes) -> str:
    """Return the bytes as text, with lone surrogates for invalid UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def assert_equal(result: object, wanted: object) -> None:
    """Assert that two values are equal, with both in the message. None stands for a rejected input."""
    assert result == wanted, f"the library returns {result!r}, the grammar {wanted!r}"
