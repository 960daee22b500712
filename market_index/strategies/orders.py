"""Strategies for orders, alone and by id."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Final

from hypothesis import strategies as st

from market_index.assets import ADA
from market_index.orders import Order
from market_index.pairs import Pair, require_trackable
from market_index.prices import Side, to_price_or_ratio
from market_index.resting_orders import RestingOrders
from market_index.strategies.assets import AWKWARD_TOKENS, pairs
from market_index.strategies.drawing import part_strategy, require_range
from market_index.strategies.indexes import AS_OFS
from market_index.strategies.numbers import amount_strategy, prices, ratios

_RECURRING_IDS: Final = ("0", "a#0", "b#1", f"{'f' * 64}#65535", " ", "~" * 200)

_FEW_PAIRS: Final = st.sampled_from([Pair(token, ADA) for token in AWKWARD_TOKENS[:3]])


def orders(
    *,
    pair: Pair | st.SearchStrategy[Pair] | None = None,
    side: Side | st.SearchStrategy[Side] | None = None,
    price: Decimal | Fraction | str | st.SearchStrategy[Decimal] | st.SearchStrategy[Fraction] | None = None,
    amount: int | st.SearchStrategy[int] | None = None,
) -> st.SearchStrategy[Order]:
    """Draw orders with decimal prices or ratios. Some have an amount of 0."""
    if price is not None and not isinstance(price, st.SearchStrategy):
        to_price_or_ratio(price)
    if isinstance(pair, Pair):
        require_trackable(pair)
    return st.builds(
        Order,
        part_strategy(pair, pairs),
        part_strategy(side, lambda: st.sampled_from(Side)),
        part_strategy(price, lambda: prices() | ratios()),
        amount_strategy(amount, 0),
    )


def order_ids() -> st.SearchStrategy[str]:
    """Draw order ids, some of them from a small set, so that ids repeat."""
    return st.sampled_from(_RECURRING_IDS) | st.from_regex(r"[ -~]{1,200}", fullmatch=True)


def resting_orders(
    *, order: Order | st.SearchStrategy[Order] | None = None, min_orders: int = 0, max_orders: int = 8
) -> st.SearchStrategy[RestingOrders]:
    """Draw resting orders of a few pairs, some of them at one level. A pair may have a spot price, or no orders."""
    require_range("the orders", min_orders, max_orders)
    by_id = st.dictionaries(
        order_ids(), part_strategy(order, lambda: orders(pair=_FEW_PAIRS)), min_size=min_orders, max_size=max_orders
    )
    spots = st.dictionaries(_FEW_PAIRS, st.none() | prices(), max_size=2)
    # st.builds, so that a failing test shows the call: the repr of RestingOrders has no orders.
    return st.builds(RestingOrders, by_id, spots, st.none() | AS_OFS)
