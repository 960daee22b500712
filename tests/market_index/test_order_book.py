"""Order books: the constructor, gathering, and key figures."""

from __future__ import annotations

import re
from collections import defaultdict
from decimal import Decimal, localcontext
from fractions import Fraction

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


class TestConstructor:
    """The constructor accepts only sorted levels."""

    @given(books)
    def test_sorted_levels_are_accepted_unchanged(self, book: OrderBook):
        bids, asks = tuple(book.bids), list(book.asks)
        again = OrderBook(book.pair, bids, asks, book.spot)
        assert again == book
        assert (tuple(again.bids), list(again.asks), again.spot) == (bids, asks, book.spot)
        assert OrderBook(book.pair, book.bids, asks).bids is book.bids

    @pytest.mark.parametrize(
        ("side", "levels", "message"),
        [
            ("bids", (level("2"), level("3")), "bids[1].price must be below bids[0].price, which is 2, got 3"),
            ("bids", (level("2"), level("2.0")), "bids[1].price must be below bids[0].price, which is 2, got 2"),
            (
                "asks",
                (level("1"), level("3"), level("2")),
                "asks[2].price must be above asks[1].price, which is 3, got 2",
            ),
            ("asks", (level("2"), level("2")), "asks[1].price must be above asks[0].price, which is 2, got 2"),
            ("asks", 7, "asks must be a list of PriceLevel, best price first, got int: 7"),
            ("bids", None, "bids must be a list of PriceLevel, best price first, got NoneType: None"),
            ("bids", ((Decimal(1), 1),), "bids[0] must be a PriceLevel, got (Decimal('1'), 1)"),
        ],
    )
    def test_other_levels_are_rejected_with_their_place(self, side: str, levels: object, message: str):
        with pytest.raises(InvalidOrderBook) as raised:
            OrderBook(PAIR, **{side: levels})  # type: ignore[arg-type]  # a caller without types
        assert str(raised.value) == message

    @pytest.mark.decision(11)
    @pytest.mark.parametrize("make", [OrderBook, OrderBook.from_levels, lambda pair: OrderBook.from_orders(pair, [])])
    def test_an_asset_is_not_priced_in_itself(self, make):
        with pytest.raises(InvalidOrderBook, match="must be different assets, got 'ADA' twice"):
            make(Pair(ADA, ADA))
        with pytest.raises(InvalidOrderBook, match="pair must be a Pair, got str: 'ADA/SNEK'"):
            make("ADA/SNEK")

    def test_the_spot_is_a_price(self):
        assert str(OrderBook(PAIR, spot=Decimal("3.50")).spot) == "3.5"
        assert OrderBook(PAIR).spot is None
        with pytest.raises(InvalidPrice, match="the spot must be a str or a Decimal, got float"):
            OrderBook(PAIR, spot=0.5)  # type: ignore[arg-type]  # a caller without types
        with pytest.raises(InvalidPrice, match="the spot must be above 0, got '0'"):
            OrderBook.from_levels(PAIR, spot="0")


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

    @pytest.mark.parametrize("count", [10_000, pytest.param(500_000, marks=pytest.mark.thorough)])
    def test_prices_with_equal_hashes_are_summed_in_linear_time(self, count: int):
        # Numbers that are equal modulo 2^61-1 have equal hashes. Filling a dict with 500,000 of them would take hours.
        orders = [Order(PAIR, Side.ASK, str(7 + number * (2**61 - 1)), 1) for number in range(count)]
        assert len(OrderBook.from_orders(PAIR, orders).asks) == count

    @pytest.mark.decision(13)
    def test_a_sum_above_the_maximum_is_rejected_with_its_price(self):
        with pytest.raises(InvalidOrderBook, match=r"the asks at 0\.25 must be at most 2\^64-1, got \d+"):
            OrderBook.from_levels(PAIR, asks=[("0.25", 2**64 - 1), ("0.250", 1)])
        with pytest.raises(InvalidOrderBook, match=r"the asks at 0\.25 must be at most 2\^64-1, got \d+"):
            OrderBook.from_orders(PAIR, [Order(PAIR, Side.ASK, "0.25", 2**63)] * 2)

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            (("1", -1), "bids[1]: the amount must be a whole number (int) from 0 to 2^64-1, got -1"),
            (
                ("1", 1.5),
                "bids[1]: the amount must be a whole number (int) from 0 to 2^64-1, got float: 1.5",
            ),
            (("1", True), "got bool: True"),
            ((1, "1"), "bids[1]: a price must be a str or a Decimal, got int: 1"),
            ((0.5, 1), "bids[1]: a price must be a str or a Decimal, got float: 0.5"),
            (("x", 1), "bids[1]: a price must be ASCII digits"),
            (("1",), "bids[1] must be a PriceLevel or (price, amount), got ('1',)"),
            ("11", "bids[1] must be a PriceLevel or (price, amount), got '11'"),
            (None, "bids[1] must be a PriceLevel or (price, amount), got None"),
            ({"price": "1"}, "bids[1] must be a PriceLevel or (price, amount), got {'price': '1'}"),
            ((200_000_000_000, "0.0185"), "pass '200000000000' or Decimal('200000000000'); a level is (price, amount)"),
        ],
    )
    def test_an_invalid_entry_is_rejected_with_its_place(self, entry, message):
        for apply in (OrderBook(PAIR).apply, lambda bids: OrderBook.from_levels(PAIR, bids)):
            with pytest.raises((InvalidOrderBook, InvalidPrice)) as raised:
                apply(bids=[("2", 1), entry])
            assert message in str(raised.value)

    @pytest.mark.parametrize("bids", [None, 7, PriceLevel("1", 1)])
    def test_what_is_no_list_of_entries_is_rejected(self, bids):
        for apply in (OrderBook(PAIR).apply, lambda bids: OrderBook.from_levels(PAIR, bids)):
            with pytest.raises(InvalidOrderBook, match=r"^bids must be a list of PriceLevel or \(price, amount\)"):
                apply(bids=bids)

    def test_an_order_of_another_pair_is_rejected_with_its_place(self):
        other = Pair(PAIR.quote, PAIR.base)
        with pytest.raises(InvalidOrderBook, match=rf"orders\[1\] must be of the pair {PAIR}, got one of {other}"):
            OrderBook.from_orders(PAIR, [Order(PAIR, Side.BID, "1", 1), Order(other, Side.BID, "1", 1)])

    def test_an_entry_that_is_not_an_order_is_rejected_with_its_place(self):
        with pytest.raises(InvalidOrderBook, match=r"orders\[1\] must be an Order, got \('1', 1\)"):
            OrderBook.from_orders(PAIR, [Order(PAIR, Side.BID, "1", 1), ("1", 1)])  # type: ignore[list-item]  # a caller without types


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

    def test_a_book_within_the_depth_is_itself(self):
        book = OrderBook.from_levels(PAIR, [("1", 1)], [("2", 1), ("3", 1)])
        assert book.depth(3) is book
        assert book.depth(2) == book
        with pytest.raises(ValueError, match="levels must be 0 or more, got -1"):
            book.depth(-1)
        with pytest.raises(ValueError, match="levels must be 0 or more, got -1"):
            book.bids.depth(-1)
        with pytest.raises(ValueError, match="levels must be 0 or more, got <int>"):
            book.depth(-(10**5000))
        for levels in (1.5, True, "1"):
            with pytest.raises(TypeError, match=f"levels must be an int, got {levels!r}"):
                book.depth(levels)  # type: ignore[arg-type]  # a caller without types
