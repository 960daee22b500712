"""Resting orders: a mapping of ids to orders, and the index of their books."""

from __future__ import annotations

import pickle
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import (
    ADA,
    AssetId,
    InvalidFreshness,
    InvalidOrderBook,
    InvalidPrice,
    MarketIndex,
    Order,
    OrderNotFound,
    Pair,
    RestingOrders,
    Side,
)
from market_index.errors import safe_repr
from market_index.strategies import order_ids, orders, prices
from tests.market_index.models import books_of_orders

PAIRS = [Pair(AssetId(bytes(28), name), ADA) for name in (b"", b"A", b"B")]
PAIR, OTHER, EMPTY = PAIRS
LIMIT = 2**64 - 1
Spots = dict[Pair, Decimal | None]


def ask(amount: int, price: Fraction | str = "1", pair: Pair = PAIR) -> Order:
    return Order(pair, Side.ASK, price, amount)


def bid(amount: int, price: Fraction | str = "1", pair: Pair = PAIR) -> Order:
    return Order(pair, Side.BID, price, amount)


def amounts(resting: RestingOrders, pair: Pair = PAIR, side: Side = Side.ASK) -> dict[str, int]:
    book = resting.index.order_book(pair)
    return {str(level.price): level.accumulated_liquidity for level in (book.bids if side is Side.BID else book.asks)}


some_orders = orders(pair=st.sampled_from(PAIRS))
some_spots = st.dictionaries(st.sampled_from(PAIRS), st.none() | prices(), max_size=2)
changes = st.lists(
    st.tuples(st.dictionaries(order_ids(), some_orders, max_size=6), st.lists(order_ids(), max_size=4), some_spots),
    max_size=5,
)
# A few orders at three levels, whose totals exceed the limit, fall below it, and exceed it again.
large_and_small = orders(pair=PAIR, price=Fraction(2), amount=st.sampled_from([1, 7, LIMIT - 1, LIMIT])) | orders(
    pair=PAIR, side=Side.ASK, price=Fraction(3), amount=st.sampled_from([7, LIMIT])
)
few_ids = st.sampled_from("abcdef")
changes_of_full_levels = st.lists(
    st.tuples(st.dictionaries(few_ids, large_and_small, max_size=4), st.lists(few_ids, max_size=3), some_spots),
    min_size=10,
    max_size=30,
)


class TestIndex:
    """The index always equals a gathering of all orders."""

    @pytest.mark.decision(26)
    @given(changes | changes_of_full_levels)
    def test_after_each_change_it_equals_a_gathering_of_all_orders(
        self, steps: list[tuple[dict[str, Order], list[str], Spots]]
    ):
        resting = RestingOrders()
        by_id: dict[str, Order] = {}
        spots: Spots = {}
        for placed, removed, spot in steps:
            before, as_it_was = resting, (dict(resting), dict(resting.index))
            resting = resting.apply(placed, removed, spot, missing_ok=True)
            assert (dict(before), dict(before.index)) == as_it_was
            by_id = {order_id: order for order_id, order in by_id.items() if order_id not in removed} | placed
            spots |= {order.pair: spots.get(order.pair) for order in placed.values()} | spot
            assert dict(resting) == by_id
            assert resting == RestingOrders(by_id, spots)
            assert list(resting) == sorted(by_id)
            assert resting.index == books_of_orders(by_id, spots)
            books = resting.index.values()
            full = [
                book.pair for book in books for amount in (*book.bids.amounts, *book.asks.amounts) if amount == LIMIT
            ]
            assert resting.saturated == Counter(full)

    def test_the_excess_of_a_level_survives_pickle(self):
        full = RestingOrders({"a": ask(LIMIT), "b": ask(7), "c": bid(LIMIT), "d": bid(3)}, as_of="block 1")
        again = pickle.loads(pickle.dumps(full))
        assert (again.index, again.index.freshness) == (full.index, full.index.freshness)
        later = again.apply(removed=["a", "c"])
        assert (amounts(later), amounts(later, side=Side.BID)) == ({"1": 7}, {"1": 3})

    def test_as_of_is_kept_unless_it_is_given(self):
        first = RestingOrders(as_of="block 1")
        assert first.apply({"a": ask(1)}).index.as_of == "block 1"
        assert first.apply({"a": ask(1)}, as_of="block 2").untrack().index.as_of == "block 2"
        assert RestingOrders().index.as_of is None


class TestApply:
    """`RestingOrders.apply`: placements and removals, and errors that change nothing."""

    @pytest.mark.parametrize("removed", [["b"], ["a", "a"], iter(["a", "b"])])
    def test_removing_an_unknown_id_is_an_error_that_names_it(self, removed):
        with pytest.raises(OrderNotFound) as missing:
            RestingOrders({"a": ask(7)}).apply(removed=removed)
        assert missing.value.order_id in {"a", "b"}
        assert str(missing.value) == f"order '{missing.value.order_id}' not found"

    @pytest.mark.parametrize("order_id", ["", "x" * 201, "é", "a\n", "\x7f", "\ud800", b"a", None, 5, True])
    def test_an_id_is_1_to_200_printable_ascii_characters(self, order_id):
        message = f"an order id must be 1 to 200 printable ASCII characters, got {safe_repr(order_id)}"
        resting = RestingOrders({"a": ask(7)})
        for change in (
            lambda: resting.apply({order_id: ask(1)}),
            lambda: resting.apply(removed=[order_id], missing_ok=True),
        ):
            with pytest.raises(InvalidOrderBook) as raised:
                change()
            assert str(raised.value) == message
        assert order_id not in resting
        assert resting.get(order_id) is None
        with pytest.raises(OrderNotFound) as missing:
            resting[order_id]
        assert missing.value.order_id == order_id

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            (
                {"placed": {"a": ask(1), "b": ("1", 1)}},
                InvalidOrderBook,
                r"placed\['b'\] must be an Order, got \('1', 1",
            ),
            ({"removed": "ab"}, TypeError, "removed must be an iterable of order ids, got 'ab'"),
            ({"removed": 7}, TypeError, "removed must be an iterable of order ids, got 7"),
            ({"spots": [PAIR]}, TypeError, "spots must be a Mapping, got list"),
            ({"spots": {"ADA/x": "1"}}, InvalidOrderBook, "pair must be a Pair, got str: 'ADA/x'"),
            ({"spots": {Pair(ADA, ADA): "1"}}, InvalidOrderBook, "base and quote must be different assets"),
            ({"spots": {PAIR: "1", OTHER: "0"}}, InvalidPrice, rf"spot of {OTHER}: a ratio must be above 0, got '0'"),
            ({"spots": {PAIR: 0.5}}, InvalidPrice, rf"spot of {PAIR}: a ratio must be a str or a Decimal, got float"),
            ({"spots": {PAIR: ...}}, InvalidPrice, "must be a str or a Decimal, got ellipsis"),
            ({"as_of": "\n"}, InvalidFreshness, "as_of"),
            ({"placed": ["a#0"]}, TypeError, r"placed must be a Mapping, got list: \['a#0'\]"),
        ],
    )
    def test_an_error_changes_nothing(self, arguments, error, message):
        resting = RestingOrders({"a": ask(7), "z": ask(LIMIT)}, {PAIR: "2"}, as_of="block 1")
        index, by_id = resting.index, dict(resting)
        with pytest.raises(error, match=message):
            resting.apply(**{"placed": {"c": ask(1)}, "removed": ["a"], "spots": {OTHER: "3"}} | arguments)
        assert resting.index is index
        assert dict(resting) == by_id
        assert dict(index) == books_of_orders(by_id, {PAIR: Decimal(2)})


class TestUntrack:
    """`RestingOrders.untrack` removes a pair from the index."""

    def test_pairs_without_orders_leave_the_index_with_their_spots(self):
        resting = RestingOrders({"a": ask(7)}, {OTHER: "2", EMPTY: None}, as_of="block 1")
        left = resting.untrack(OTHER, EMPTY, OTHER)
        assert (dict(left), set(left.index), left.index.as_of) == (dict(resting), {PAIR}, "block 1")
        assert set(resting.index) == set(PAIRS)
        assert left.untrack(OTHER, EMPTY).index == left.index
        assert left.apply({"b": ask(7, pair=OTHER)}).index[OTHER].spot is None

    @pytest.mark.parametrize("order", [ask(7), ask(0)])
    def test_a_pair_with_orders_cannot_be_untracked(self, order: Order):
        resting = RestingOrders({"a": order}, {OTHER: None})
        with pytest.raises(InvalidOrderBook, match=rf"^{PAIR} must have no orders to be untracked, got 1$"):
            resting.untrack(OTHER, PAIR)
        assert set(resting.index) == {PAIR, OTHER}
        assert set(resting.apply(removed=["a"]).untrack(PAIR).index) == {OTHER}

    @pytest.mark.parametrize("pair", ["ADA/x", None, Pair(ADA, ADA)])
    def test_a_pair_that_cannot_be_tracked_cannot_be_untracked(self, pair):
        with pytest.raises(InvalidOrderBook):
            RestingOrders().untrack(pair)


class TestMapping:
    """Resting orders are a mapping of ids to orders, sorted by id."""

    def test_it_equals_only_resting_orders_with_the_same_orders_and_an_equal_index(self):
        by_id = {"b": ask(7), "a": bid(8)}
        resting = RestingOrders(by_id, {OTHER: "2"}, as_of="block 1")
        same = RestingOrders(spots={OTHER: "2"}).apply({"a": bid(8)}).apply({"b": ask(7)})
        assert resting == same
        assert hash(resting) == hash(same)
        others = RestingOrders(by_id), RestingOrders(by_id, {OTHER: "3"}), RestingOrders({"a": bid(8)}, {OTHER: "2"})
        for other in (*others, by_id, dict(resting), {}, [by_id], None, MarketIndex()):
            assert resting != other
            assert other != resting
        assert len({hash(one) for one in (resting, *others)}) == 4
        assert RestingOrders() != MarketIndex()
        assert MarketIndex() != RestingOrders()

    def test_its_repr_counts_orders_and_pairs(self):
        assert repr(RestingOrders({"a": ask(7), "b": ask(8)}, {OTHER: None})) == "<RestingOrders: 2 orders, 2 pairs>"


@pytest.mark.parametrize("spot", ["643551/26740", "1/3", Fraction(2, 3), "0." + "3" * 40, "1/4"])
def test_a_spot_may_be_a_ratio_which_is_rounded_as_the_price_of_an_ask(spot: str | Fraction):
    found = RestingOrders(spots={PAIR: spot}).index.order_book(PAIR).spot
    assert found == Order(PAIR, Side.ASK, Fraction(spot), 1).level_price
