"""Hypothesis strategies for every public type, for the test suites of whoever uses the library.

Generated values are mixed with awkward ones: the empty asset name and the longest, the smallest price and the largest,
amounts above 2^53. Needs the extra `hypothesis`; nothing else in the library imports it.

>>> from hypothesis import given
>>> @given(order_books())
... def test_best_bid_is_highest(book):
...     assert not book.bids or book.best_bid.price == max(level.price for level in book.bids)
>>> test_best_bid_is_highest()
"""

from __future__ import annotations

from decimal import Decimal

from hypothesis import strategies as st

from market_index.assets import ADA, MAX_ASSET_NAME_LENGTH, POLICY_ID_LENGTH, AssetId
from market_index.index import MarketIndex
from market_index.levels import MAX_LIQUIDITY, PriceLevel, Side
from market_index.order_book import Order, OrderBook
from market_index.pairs import Pair, PairInfo
from market_index.prices import MAX_COEFFICIENT, MAX_DECIMAL_PLACES

__all__ = [
    "amounts",
    "asset_ids",
    "level_changes",
    "market_indexes",
    "order_books",
    "orders",
    "pair_infos",
    "pairs",
    "price_levels",
    "prices",
]

_AWKWARD_ASSETS = (
    ADA,
    AssetId(bytes(POLICY_ID_LENGTH), b""),
    AssetId(bytes(POLICY_ID_LENGTH), b"\x00"),
    AssetId(bytes(POLICY_ID_LENGTH), bytes(MAX_ASSET_NAME_LENGTH)),
    AssetId(b"\xff" * POLICY_ID_LENGTH, b"\xff" * MAX_ASSET_NAME_LENGTH),
    AssetId(b"\xab" * POLICY_ID_LENGTH, b"SNEK"),
)
_AWKWARD_PRICES = (
    Decimal(1),
    Decimal("0.1"),
    Decimal(10),
    Decimal(f"1E-{MAX_DECIMAL_PLACES}"),
    Decimal(MAX_COEFFICIENT),
    Decimal(f"{MAX_COEFFICIENT}E-{MAX_DECIMAL_PLACES}"),
)
_AWKWARD_AMOUNTS = (1, 2**53 + 1, 2**63, MAX_LIQUIDITY)


def asset_ids() -> st.SearchStrategy[AssetId]:
    """ADA and native tokens, some of them with a policy id or an asset name in common."""
    policy_ids = st.one_of(
        st.sampled_from([asset.policy_id for asset in _AWKWARD_ASSETS[1:]]),
        st.binary(min_size=POLICY_ID_LENGTH, max_size=POLICY_ID_LENGTH),
    )
    tokens = st.builds(AssetId, policy_ids, st.binary(max_size=MAX_ASSET_NAME_LENGTH))
    return st.one_of(st.sampled_from(_AWKWARD_ASSETS), tokens)


def pairs() -> st.SearchStrategy[Pair]:
    """Pairs that can be tracked: base and quote differ."""
    return st.tuples(asset_ids(), asset_ids()).filter(lambda two: two[0] != two[1]).map(lambda two: Pair(*two))


def prices() -> st.SearchStrategy[Decimal]:
    """Prices of the whole range, some of them near each other, some written with trailing zeros."""
    return st.one_of(
        st.sampled_from(_AWKWARD_PRICES),
        st.builds(_scaled, st.integers(1, 1_000), st.integers(0, 3)),
        st.builds(_scaled, st.integers(1, MAX_COEFFICIENT), st.integers(0, MAX_DECIMAL_PLACES)),
    )


def amounts(*, least: int = 1) -> st.SearchStrategy[int]:
    """Amounts of the base asset, in its smallest unit, from `least` to 2^64-1."""
    return st.one_of(st.integers(least, 1_000), st.sampled_from(_AWKWARD_AMOUNTS), st.integers(least, MAX_LIQUIDITY))


def price_levels() -> st.SearchStrategy[PriceLevel]:
    """Price levels."""
    return st.builds(PriceLevel, prices(), amounts())


def orders() -> st.SearchStrategy[Order]:
    """Orders of either side, some of them with nothing left."""
    return st.builds(Order, st.sampled_from(Side), prices(), amounts(least=0))


def pair_infos() -> st.SearchStrategy[PairInfo]:
    """Entries of a pair list, of pairs that can be tracked."""
    return st.builds(lambda pair, spot: PairInfo(pair.base, pair.quote, spot), pairs(), st.none() | prices())


def order_books(*, pair: st.SearchStrategy[Pair] | None = None, max_levels: int = 8) -> st.SearchStrategy[OrderBook]:
    """Order books of up to `max_levels` levels a side; sides may be empty, locked or crossed."""
    side = st.lists(price_levels(), max_size=max_levels, unique_by=lambda level: level.price)
    return st.builds(OrderBook.from_levels, pairs() if pair is None else pair, side, side, st.none() | prices())


def level_changes(book: OrderBook, *, max_changes: int = 8) -> st.SearchStrategy[list[tuple[Decimal, int]]]:
    """Draw changes for one side of `book.apply`: at prices of the book and at others, some of them removals."""
    at = prices()
    if standing := [level.price for level in book.bids + book.asks]:
        at = st.one_of(st.sampled_from(standing), at)
    return st.lists(st.tuples(at, st.one_of(st.just(0), amounts())), max_size=max_changes)


def market_indexes(*, max_pairs: int = 6) -> st.SearchStrategy[MarketIndex]:
    """Indexes of up to `max_pairs` pairs."""
    return st.builds(MarketIndex, st.lists(order_books(max_levels=3), max_size=max_pairs))


def _scaled(coefficient: int, decimal_places: int) -> Decimal:
    return Decimal(f"{coefficient}E-{decimal_places}")
