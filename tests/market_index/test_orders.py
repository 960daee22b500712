"""Orders: their bounds, and the level of an order whose price is a ratio."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given

from market_index import ADA, AssetId, InvalidOrderBook, InvalidPrice, Order, Pair, Side
from market_index.errors import safe_repr
from market_index.strategies import amounts, orders, pairs, ratios
from tests.market_index.models import representable

SNEK = AssetId(bytes(28), b"SNEK")
PAIR = Pair(SNEK, ADA)
LIMIT = 2**64 - 1


def offer(pair=PAIR, offered=SNEK, amount=1, price="1") -> Order:
    """Return the order of an offer, also for a caller without types."""
    return Order.from_offer(pair, offered=offered, amount=amount, price=price)


class TestLevelPrice:
    """The level price of an order at a ratio."""

    @pytest.mark.decision(22)
    @given(orders())
    def test_a_level_price_is_the_nearest_price_that_is_no_better_for_a_taker(self, order: Order):
        exact = Fraction(order.price)
        assert Fraction(order.level_price) == representable(exact, up=order.side is Side.ASK)
        assert isinstance(order.price, Fraction) == (Fraction(order.level_price) != exact)

    def test_an_order_keeps_a_plain_ratio(self):
        class Fickle(Fraction):
            pass

        assert type(Order(PAIR, Side.BID, Fickle(1, 3), 1).price) is Fraction


class TestFromOffer:
    """`Order.from_offer` (decision 22)."""

    @pytest.mark.decision(2, 22)
    @given(pairs(), amounts(min_value=0), ratios())
    def test_an_ask_keeps_amount_and_price(self, pair: Pair, amount: int, price: Fraction):
        order = offer(pair, pair.base, amount, price)
        assert (order.pair, order.side, order.price, order.amount) == (pair, Side.ASK, price, amount)

    @pytest.mark.decision(22)
    @given(pairs(), amounts(min_value=0), ratios())
    def test_a_bid_has_the_inverse_price_and_the_floor_of_what_the_offer_pays_for(
        self, pair: Pair, amount: int, price: Fraction
    ):
        order = offer(pair, pair.quote, amount, 1 / price)
        assert (order.pair, order.side, order.price) == (pair, Side.BID, price)
        # The offer pays for these base units at the order's own price; one more would cost more than is offered.
        if order.amount < LIMIT:
            assert order.amount * price <= amount < (order.amount + 1) * price
        else:
            assert LIMIT * price <= amount

    @pytest.mark.parametrize(
        ("offered", "amount", "price"),
        [(ADA, LIMIT, "1.1"), (ADA, 10**40, "1"), (ADA, 1, "1e20"), (SNEK, LIMIT + 1, "1"), (SNEK, 10**40, "0.5")],
    )
    def test_an_amount_above_the_largest_becomes_the_largest(self, offered: AssetId, amount: int, price: str):
        assert offer(offered=offered, amount=amount, price=price).amount == LIMIT

    @pytest.mark.parametrize("offered", [AssetId(bytes(28), b"MIN"), "ADA", None, PAIR])
    def test_only_base_or_quote_can_be_offered(self, offered):
        with pytest.raises(InvalidOrderBook) as raised:
            offer(offered=offered)
        assert str(raised.value) == f"offered must be the base or the quote of {PAIR}, got {safe_repr(offered)}"

    @pytest.mark.parametrize(
        ("offered", "price", "message"),
        [
            (SNEK, 0.5, "a ratio must be a str or a Decimal, got float: 0.5; pass '0.5'"),
            (SNEK, "1e-29", "price: a price must be at least 10^-28, got Fraction(1, 100000000000000000000000000000)"),
            (SNEK, str(2**96), f"price: a price must be at most 2^96-1, got Fraction({2**96}, 1)"),
            (ADA, "1e29", "price, inverted for a bid: a price must be at least 10^-28, got Fraction(1, "),
            (ADA, f"1/{2**96}", f"price, inverted for a bid: a price must be at most 2^96-1, got Fraction({2**96}, 1)"),
        ],
    )
    def test_a_price_out_of_range_is_rejected(self, offered: AssetId, price, message: str):
        with pytest.raises(InvalidPrice) as raised:
            offer(offered=offered, price=price)
        assert str(raised.value).startswith(message)

    def test_the_bounds_of_a_bid_are_those_of_a_price(self):
        assert offer(offered=ADA, amount=0, price="1e28").level_price == Decimal("1e-28")
        assert offer(offered=ADA, amount=0, price=Fraction(1, 2**96 - 1)).level_price == 2**96 - 1
