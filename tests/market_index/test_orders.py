"""Orders: their bounds, and the level that an order at a ratio belongs to."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given

from market_index import ADA, AssetId, InvalidOrderBook, InvalidPrice, Order, Pair, Side
from market_index.strategies import orders

PAIR = Pair(AssetId(bytes(28), b"SNEK"), ADA)


class TestOrder:
    """Its side, price and amount."""

    @pytest.mark.parametrize("amount", [-1, 2**64, True, 1.0, "1", None])
    def test_an_order_has_an_amount_from_0_to_2_64_less_1(self, amount: object):
        assert Order(PAIR, Side.BID, "1", 0).amount == 0
        with pytest.raises(InvalidOrderBook, match="amount must be a whole number"):
            Order(PAIR, Side.BID, "1", amount)  # type: ignore[arg-type]  # a caller without types

    def test_an_order_at_a_ratio_of_thousands_of_digits_has_a_repr(self):
        order = Order(PAIR, Side.BID, Fraction(10**4400 + 1, 10**4400), 1)
        assert repr(order) == f"Order(pair={PAIR!r}, side=<Side.BID: 'bid'>, price=<Fraction>, amount=1)"
        assert repr(Order(PAIR, Side.BID, Fraction(1, 3), 1)).endswith("price=Fraction(1, 3), amount=1)")

    @pytest.mark.parametrize("side", ["bid", None, 1])
    def test_an_order_has_a_side(self, side: object):
        with pytest.raises(InvalidOrderBook, match=rf"side must be Side\.BID or Side\.ASK, got {side!r}$"):
            Order(PAIR, side, "1", 1)  # type: ignore[arg-type]  # a caller without types


class TestLevelPrice:
    """The price of the level of an order at a ratio."""

    @given(orders())
    def test_an_order_is_never_shown_better_than_it_is(self, order: Order):
        shown, exact = Fraction(order.level_price), Fraction(order.price)
        assert shown <= exact if order.side is Side.BID else shown >= exact
        assert isinstance(order.price, Fraction) == (shown != exact)
        assert abs(shown - exact) < max(Fraction(1, 10**28), exact * Fraction(13, 10**29))

    def test_an_order_at_a_ratio_that_is_a_price_is_one_at_that_price(self):
        assert Order(PAIR, Side.BID, Fraction(2, 8), 1) == Order(PAIR, Side.BID, "0.25", 1)
        assert repr(Order(PAIR, Side.ASK, Fraction(10), 1)) == repr(Order(PAIR, Side.ASK, "10", 1))

    def test_an_order_keeps_a_plain_ratio(self):
        class Fickle(Fraction):
            pass

        assert type(Order(PAIR, Side.BID, Fickle(1, 3), 1).price) is Fraction

    @pytest.mark.parametrize("ratio", [Fraction(0), Fraction(-1, 3), Fraction(1, 3 * 10**28), Fraction(2**97)])
    def test_a_ratio_out_of_range_is_rejected(self, ratio: Fraction):
        with pytest.raises(InvalidPrice, match="is not a price: it is "):
            Order(PAIR, Side.BID, ratio, 1)
