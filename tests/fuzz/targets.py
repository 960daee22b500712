"""The fuzz targets: each passes an input to the library and to the grammar, and fails if the results differ.

`times` has no grammar: it fails if a reader takes too long.

An input can be any bytes. Any exception, including `AssertionError`, is a finding.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from time import thread_time
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
from tests.fuzz import grammar

T = TypeVar("T")
REJECTED: Final = "rejected"


def order_books(data: bytes) -> None:
    """Read an order book."""
    result = outcome(wire.order_book_from_json, data, InvalidAssetId, InvalidPrice, InvalidOrderBook)
    wanted = wanted_outcome(grammar.order_book, data)
    if not isinstance(result, OrderBook):
        assert_equal(result, wanted)
        return
    assert_equal(book_fields(result), wanted)
    assert_equal(wire.order_book_from_json(wire.order_book_to_json(result)), result)


def pair_lists(data: bytes) -> None:
    """Read a pair list."""
    result = outcome(wire.pair_list_from_json, data, InvalidAssetId, InvalidPrice, InvalidPairList)
    wanted = wanted_outcome(grammar.pair_list, data)
    if not isinstance(result, tuple):
        assert_equal(result, wanted)
        return
    assert_equal([info_fields(info) for info in result], wanted)
    assert_equal(wire.pair_list_from_json(wire.pair_list_to_json(result)), result)


def assets(data: bytes) -> None:
    """Read an asset identifier in each spelling."""
    text = text_of(data)
    for read, read_by_grammar in (
        (AssetId.parse, grammar.asset),
        (AssetId.from_unit, grammar.asset_of_unit),
        (AssetId.from_dotted, grammar.asset_of_dotted),
    ):
        result = outcome(read, text, InvalidAssetId)
        wanted = wanted_outcome(read_by_grammar, text)
        if not isinstance(result, AssetId):
            assert_equal(result, wanted)
            continue
        assert_equal(asset_fields(result), wanted)
        assert_equal(str(result), grammar.asset_text(asset_fields(result)))
        assert_equal(AssetId.from_unit(result.unit), result)
        assert_equal(AssetId.from_dotted(result.dotted), result)


def prices(data: bytes) -> None:
    """Read the price in each line separately, and all prices as one column."""
    texts = text_of(data).split("\n")
    wanted = [wanted_outcome(grammar.price, text) for text in texts]
    assert_equal([price_text(outcome(parse_price, text, InvalidPrice)) for text in texts], wanted)
    column = outcome(parse_prices, texts, InvalidPrice)
    if isinstance(column, str):
        assert REJECTED in wanted, f"the column is rejected, but the grammar reads {wanted!r}"
    else:
        assert_equal(list(map(fixed_point, column)), wanted)


def times(data: bytes) -> None:
    """Read a text in which the piece between the first two NULs is repeated, and bound the time for each length."""
    before, piece, after, *_ = [*data.split(b"\0", 2), b"", b""]
    for length in STRETCHED_BYTES if piece else ():
        stretched = before + piece * (length // len(piece)) + after
        for read in READERS:
            bound = FLOOR_SECONDS + SECONDS_PER_BYTE * len(stretched)
            assert any(seconds(read, stretched) < bound for _ in range(ATTEMPTS)), (
                f"{read} must take less than {bound:.3f} s for {len(stretched)} bytes"
            )


STRETCHED_BYTES: Final = (4096, 16_384, 65_536)
"""Rising, so that an input whose time is quadratic fails before it takes minutes."""

FLOOR_SECONDS: Final = 0.05
SECONDS_PER_BYTE: Final = 4e-6
"""Four times the slowest input that is known, an order book with deeply nested arrays."""

ATTEMPTS: Final = 5
"""A garbage collection may fall into one attempt."""


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


def seconds(read: Callable[[bytes], object], data: bytes) -> float:
    """Return the seconds of CPU time that a reader takes to read or reject an input."""
    start = thread_time()
    with suppress(MarketIndexError):
        read(data)
    return thread_time() - start


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "order-books": order_books,
    "pair-lists": pair_lists,
    "assets": assets,
    "prices": prices,
    "times": times,
}


def outcome(read: Callable[[Any], T], value: Any, *documented: type[Exception]) -> T | str:
    """Return the result of the library, or REJECTED. An undocumented exception is raised."""
    try:
        return read(value)
    except documented as error:
        message = str(error)
    assert message.isprintable(), f"the message is not printable: {message!r}"
    return REJECTED


def wanted_outcome(read: Callable[[Any], T], value: Any) -> T | str:
    """Return the result of the grammar, or REJECTED."""
    try:
        return read(value)
    except grammar.Rejected:
        return REJECTED


def book_fields(book: OrderBook) -> grammar.Book:
    base, quote = asset_fields(book.pair.base), asset_fields(book.pair.quote)
    return base, quote, spot_text(book.spot), level_fields(book.bids), level_fields(book.asks)


def info_fields(info: PairInfo) -> grammar.Info:
    return asset_fields(info.base), asset_fields(info.quote), spot_text(info.last_spot)


def asset_fields(asset: AssetId) -> grammar.Asset:
    return asset.policy_id, asset.asset_name


def level_fields(levels: Levels) -> list[grammar.Level]:
    return [(fixed_point(level.price), level.accumulated_liquidity) for level in levels]


def spot_text(spot: Decimal | None) -> str | None:
    return None if spot is None else fixed_point(spot)


def price_text(price: Decimal | str) -> str:
    return fixed_point(price) if isinstance(price, Decimal) else price


def fixed_point(price: Decimal) -> str:
    """Return all digits of the Decimal, including trailing zeros, which a price must not have."""
    return format(price, "f")


def text_of(data: bytes) -> str:
    """Return the bytes as text, with lone surrogates for invalid UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def assert_equal(result: object, wanted: object) -> None:
    """Assert that two values are equal, with both in the message."""
    assert result == wanted, f"the library returns {result!r}, the grammar {wanted!r}"
