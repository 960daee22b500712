"""Order books: the constructor, gathering, and key figures."""

from __future__ import annotations

import re
from collections import defaultdict
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import ADA, AssetId, InvalidOrderBook, InvalidPrice, Order, OrderBook, Pair, PriceLevel, Side
from market_index.strategies import amounts, orders, prices
from tests.market_index.models import books, exact, expected_levels

SNEK = AssetId(bytes.fromhex("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f"), b"SNEK")
PAIR = Pair(SNEK, ADA)


def level(price: str, liquidity: int = 1) -> PriceLevel:
    return PriceLevel(Decimal(price), liquidity)


# Few prices, so that they repeat, with zeros, and sums below 2^64.
few_prices = prices(min_value="0.5", max_value="3", max_decimal_places=1)
entries = st.lists(st.tuples(few_prices | prices(), amounts(min_value=0, max_value=2**60)), max_size=10)


class TestGathering:
    """`from_levels` and `from_orders`."""

    @pytest.mark.decision(13, 14)
    @given(bids=entries, asks=entries, shuffle=st.randoms(use_true_random=False))
    def test_levels_are_summed_by_price_and_sorted(self, bids, asks, shuffle):
        book = OrderBook.from_levels(PAIR, bids, asks, "3")
        assert book.spot == 3
        for side, given_entries, levels in ((Side.BID, bids, book.bids), (Side.ASK, asks, book.asks)):
            totals: dict[Fraction, int] = defaultdict(int)
            for price, amount in given_entries:
                totals[Fraction(price)] += amount
            assert exact(levels) == expected_levels(totals, side)
        shuffle.shuffle(bids)
        shuffle.shuffle(asks)
        assert OrderBook.from_levels(PAIR, bids, asks, "3") == book

    @given(st.lists(orders(pair=PAIR, price=few_prices) | orders(pair=PAIR), max_size=10))
    def test_orders_are_gathered_like_their_prices_and_amounts(self, them: list[Order]):
        bids, asks = ([(one.level_price, one.amount) for one in them if one.side is side] for side in Side)
        try:
            expected = OrderBook.from_levels(PAIR, bids, asks, "1")
        except InvalidOrderBook as error:
            with pytest.raises(InvalidOrderBook, match=rf"^{re.escape(str(error))}$"):
                OrderBook.from_orders(PAIR, them, spot="1")
        else:
            # The pair of an order may be an equal object.
            assert OrderBook.from_orders(Pair(SNEK, ADA), iter(them), spot="1") == expected

    def test_orders_at_one_ratio_are_one_level(self):
        # A recorded order on the ledger: 2,832,390,295 for 152,648.
        ratio = Fraction(152648, 2832390295)
        them = [Order(PAIR, Side.BID, ratio, amount) for amount in (5, 7)]
        them += [Order(PAIR, Side.BID, Fraction(152648 * 3, 2832390295 * 3), 9)]
        assert exact(OrderBook.from_orders(PAIR, them).bids) == [(Fraction(them[0].level_price), 21)]

    def test_entries_may_be_levels_pairs_lists_and_texts(self):
        book = OrderBook.from_levels(PAIR, bids=iter([level("1", 5), ("1.0", 2), [Decimal(2), 3], (Decimal(3), 0)]))  # type: ignore[arg-type]  # a JSON reader gives lists
        assert exact(book.bids) == [(Fraction(2), 3), (Fraction(1), 7)]

    @pytest.mark.decision(13)
    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            *(
                (("1", amount), "bids[1]: the amount must be a whole number (int) from 0 to")
                for amount in (-1, 1.5, True)
            ),
            *(((price, 1), "bids[1]: a price must be ") for price in (1, 0.5, "x")),
            *((entry, "bids[1] must be a PriceLevel or (price, amount), got ") for entry in (("1",), "11", None, 7)),
            ((200_000_000_000, "0.0185"), "bids[1]: a price must be a str or a Decimal, got int: 200000000000; pass "),
            *((entry, "bids must be a list of PriceLevel or (price, amount), got ") for entry in (..., SNEK)),
        ],
    )
    def test_an_invalid_entry_is_rejected_with_its_place(self, entry, message):
        bids: Any = entry if entry in (..., SNEK) else [("2", 1), entry]
        for apply in (OrderBook(PAIR).apply, lambda bids: OrderBook.from_levels(PAIR, bids)):
            with pytest.raises((InvalidOrderBook, InvalidPrice), match=f"^{re.escape(message)}"):
                apply(bids=bids)

    @pytest.mark.parametrize(
        ("orders", "message"),
        [
            (
                [Order(PAIR, Side.BID, "1", 1), Order(Pair(ADA, SNEK), Side.BID, "1", 1)],
                "orders[1] must be of the pair ",
            ),
            ([("1", 1)], "orders[0] must be an Order, got ('1', 1)"),
            ([Order(PAIR, Side.ASK, "0.25", 2**63)] * 2, "the total of the asks at 0.25 must be at most 2^64-1, got 1"),
        ],
    )
    def test_invalid_orders_are_rejected_with_their_place(self, orders: Any, message: str):
        with pytest.raises(InvalidOrderBook, match=f"^{re.escape(message)}"):
            OrderBook.from_orders(PAIR, orders)


class TestReading:
    """Best prices, spread, midpoint and depth."""

    @pytest.mark.decision(15)
    @given(books)
    def test_spread_and_midpoint_are_exact_and_distinguish_locked_from_crossed(self, book: OrderBook):
        assert book.best_bid == (book.bids[0] if book.bids else None)
        assert book.best_ask == (book.asks[0] if book.asks else None)
        if not book.bids or not book.asks:
            assert (book.spread, book.mid, book.is_locked, book.is_crossed) == (None, None, False, False)
            return
        bid = max(Fraction(level.price) for level in book.bids)
        ask = min(Fraction(level.price) for level in book.asks)
        with localcontext(prec=3):
            spread, mid = book.spread, book.mid
        assert spread is not None
        assert mid is not None
        assert Fraction(spread) == ask - bid
        assert Fraction(mid) == (ask + bid) / 2
        assert book.is_locked == (ask == bid) == (str(spread) == "0")
        assert book.is_crossed == (bid > ask)

    def test_a_spread_of_the_widest_range_is_exact(self):
        book = OrderBook.from_levels(PAIR, [("1e-28", 1)], [("79228162514264337593543950335", 1)])
        assert format(book.spread, "f") == "79228162514264337593543950334.9999999999999999999999999999"
        assert format(book.mid, "f") == "39614081257132168796771975167.50000000000000000000000000005"

    @given(books, st.integers(0, 10))
    def test_depth_cuts_both_sides_and_nothing_else(self, book: OrderBook, levels: int):
        cut = book.depth(levels)
        assert tuple(cut.bids) == tuple(book.bids)[:levels]
        assert tuple(cut.asks) == tuple(book.asks)[:levels]
        assert (cut.pair, cut.spot) == (book.pair, book.spot)
        assert (cut is book) == (max(len(book.bids), len(book.asks)) <= levels)

    @pytest.mark.parametrize(
        ("levels", "error", "message"),
        [
            (-1, ValueError, "levels must be 0 or more, got -1"),
            pytest.param(-(10**5000), ValueError, "levels must be 0 or more, got <int>", id="huge"),
            *((levels, TypeError, f"levels must be an int, got {levels!r}") for levels in (1.5, True, "1")),
        ],
    )
    def test_a_depth_is_a_number_from_0(self, levels, error, message: str):
        for value in (OrderBook(PAIR), OrderBook(PAIR).bids):
            with pytest.raises(error, match=f"^{message}$"):
                value.depth(levels)
