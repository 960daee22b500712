"""Comparison of the library with the grammar: they read the same fields, or both reject the input."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, TypeVar

from market_index import AssetId, InvalidOrderBook, MarketIndexError, OrderBook, Pair, PairInfo
from market_index.errors import safe_repr
from market_index.levels import LevelChanges
from tests.oracles import grammar

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def compared(
    read: Callable[[Any], T],
    read_by_grammar: Callable[[Any], object],
    fields: Callable[[T], object],
    value: Any,
    shape: type[MarketIndexError] = InvalidOrderBook,
) -> T | None:
    """Require that library and grammar read the same fields, or both reject the value by the same rule.

    Return what the library reads. `shape` is the error of a message that has another shape. Other exceptions are
    raised.
    """
    wanted, result = outcome(read_by_grammar, value, grammar.Rejected), outcome(read, value, MarketIndexError)
    if not isinstance(wanted, grammar.Rejected):
        assert not isinstance(result, MarketIndexError), f"the library raises {result!r}, not the grammar"
        assert fields(result) == wanted
        return result
    assert isinstance(result, MarketIndexError), f"the library returns {result!r}, the grammar rejects it: {wanted}"
    message = str(result)
    assert message.isprintable()
    assert (message[: len(str(wanted))], type(result).__name__) == (str(wanted), wanted.error or shape.__name__)
    assert isinstance(value, bytes) or message.endswith(safe_repr(value))
    return None


def outcome(read: Callable[[Any], T], value: Any, error: type[E] | tuple[type[E], ...]) -> T | E:
    """Return what is read, or the error."""
    try:
        return read(value)
    except error as raised:
        return raised


def compare_asset(text: str) -> None:
    """Compare an asset identifier in each spelling."""
    for read, read_by_grammar in (
        (AssetId.parse, grammar.asset),
        (AssetId.from_unit, grammar.asset_of_unit),
        (AssetId.from_dotted, grammar.asset_of_dotted),
    ):
        asset = compared(read, read_by_grammar, asset_fields, text)
        if asset is not None:
            assert str(asset) == grammar.asset_text(asset_fields(asset))
            assert (asset.unit, asset.dotted) == grammar.other_texts(asset_fields(asset))


def book_fields(book: OrderBook) -> grammar.Book:
    return *fields_of(book.pair, book.spot), level_fields(book.bids.items()), level_fields(book.asks.items())


def changes_fields(changes: tuple[Pair, LevelChanges, LevelChanges, Decimal | None]) -> grammar.Book:
    pair, bids, asks, spot = changes
    return *fields_of(pair, spot), level_fields(bids), level_fields(asks)


def info_fields(infos: Iterable[PairInfo]) -> list[grammar.Info]:
    return [fields_of(info.pair, info.last_spot) for info in infos]


def fields_of(pair: Pair, spot: Decimal | None) -> grammar.Info:
    return asset_fields(pair.base), asset_fields(pair.quote), None if spot is None else fixed_point(spot)


def asset_fields(asset: AssetId) -> grammar.Asset:
    return asset.policy_id, asset.asset_name


def level_fields(levels: Iterable[tuple[Decimal, int]]) -> list[grammar.Level]:
    return [(fixed_point(price), amount) for price, amount in levels]


def fixed_point(price: Decimal) -> str:
    """Return all digits of the Decimal, including trailing zeros, which a price must not have."""
    return format(price, "f")
