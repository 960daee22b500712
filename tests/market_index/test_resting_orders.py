"""Resting orders: a mapping of ids to orders, and the index that they add up to."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from market_index import ADA, AssetId, Order, OrderBook, Pair, RestingOrders, Side
from market_index.strategies import order_ids, orders, prices, resting_orders

PAIRS = [Pair(AssetId(bytes(28), name), ADA) for name in (b"", b"A", b"B")]
LIMIT = 2**64 - 1


def modelled(by_id: Mapping[str, Order], spots: Mapping[Pair, object]) -> dict[Pair, OrderBook]:
    """Return the book of every tracked pair, gathered anew."""
    books = {}
    for pair in {order.pair for order in by_id.values()} | spots.keys():
        sides: dict[Side, dict[Fraction, int]] = {Side.BID: {}, Side.ASK: {}}
        for order in by_id.values():
            if order.pair == pair:
                totals, price = sides[order.side], Fraction(order.level_price)
                totals[price] = totals.get(price, 0) + order.amount
        entries = {
            side: [
                (order.level_price, min(sides[side][Fraction(order.level_price)], LIMIT))
                for order in {o.level_price: o for o in by_id.values() if o.pair == pair and o.side is side}.values()
            ]
            for side in Side
        }
        books[pair] = OrderBook.from_levels(pair, entries[Side.BID], entries[Side.ASK], spots.get(pair))  # type: ignore[arg-type]  # prices
    return books


few_prices = st.sampled_from(["1", "2", "0.5", Fraction(1, 3)])
some_orders = orders(pair=st.sampled_from(PAIRS)) | orders(
    pair=st.sampled_from(PAIRS[:2]), price=few_prices, amount=st.sampled_from([0, 1, 7, LIMIT - 1, LIMIT])
)
changes = st.lists(
    st.tuples(
        st.dictionaries(order_ids(), some_orders, max_size=6),
        st.lists(order_ids(), max_size=4),
        st.dictionaries(st.sampled_from(PAIRS), st.none() | prices(), max_size=2),
    ),
    max_size=8,
)


class TestIndex:
    """The index is always what gathering all orders gives."""

    @given(changes)
    def test_after_every_change_it_equals_a_full_gathering(self, steps):
        resting, by_id, spots = RestingOrders(), {}, {}
        for placed, removed, spot in steps:
            before = dict(resting), dict(resting.index)
            following = resting.apply(placed, removed, spot, missing_ok=True)
            assert (dict(resting), dict(resting.index)) == before
            resting = following
            by_id = {key: one for key, one in by_id.items() if key not in removed} | placed
            spots |= {order.pair: spots.get(order.pair) for order in placed.values()} | spot
            assert resting == by_id
            assert list(resting) == sorted(by_id)
            assert resting.index == modelled(by_id, spots)
            assert RestingOrders(by_id, spots).index == resting.index

    @given(resting_orders(), st.sampled_from(PAIRS), st.sampled_from(Side), prices())
    def test_at_returns_the_orders_behind_each_level(self, resting: RestingOrders, pair: Pair, side: Side, price):
        for at in {price} | {order.level_price for order in resting.values()}:
            found = resting.at(pair, side, at)
            assert list(found) == sorted(found)
            assert found == {
                key: one
                for key, one in resting.items()
                if (one.pair, one.side, one.level_price) == (pair, side, at) and one.amount
            }
