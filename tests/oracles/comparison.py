"""Comparison of the library with the grammar: they read the same fields, or both reject the input."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

from market_index import AssetId, InvalidAssetId, OrderBook
from market_index.levels import Levels
from tests.oracles import grammar

T = TypeVar("T")


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
    wanted, rule = None, ""
    try:
        wanted = read_by_grammar(value)
    except grammar.Rejected as rejected:
        rule = str(rejected)
    try:
        result = read(value)
    except documented as error:
        message = str(error)
    else:
        assert_equal(fields(result), wanted)
        return result
    assert message.isprintable(), f"the message is not printable: {message!r}"
    assert rule in message, f"the message must have {rule!r}, got {message!r}"
    assert_equal(None, wanted)
    return None


def compare_asset(text: str) -> None:
    """Compare an asset identifier in each spelling."""
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


def book_fields(book: OrderBook) -> grammar.Book:
    base, quote = asset_fields(book.pair.base), asset_fields(book.pair.quote)
    return base, quote, spot_text(book.spot), level_fields(book.bids), level_fields(book.asks)


def asset_fields(asset: AssetId) -> grammar.Asset:
    return asset.policy_id, asset.asset_name


def level_fields(levels: Levels) -> list[grammar.Level]:
    return [(fixed_point(level.price), level.accumulated_liquidity) for level in levels]


def spot_text(spot: Decimal | None) -> str | None:
    return None if spot is None else fixed_point(spot)


def fixed_point(price: Decimal) -> str:
    """Return all digits of the Decimal, including trailing zeros, which a price must not have."""
    return format(price, "f")


def assert_equal(result: object, wanted: object) -> None:
    """Assert that two values are equal, with both in the message. None is a rejected input."""
    assert result == wanted, f"the library returns {result!r}, the grammar {wanted!r}"
