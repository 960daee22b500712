"""The strategies: every value is valid, and every parameter has its effect."""

from __future__ import annotations

import inspect
import re
import typing
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from market_index import (
    ADA,
    AssetId,
    InvalidAssetId,
    InvalidPrice,
    MarketIndex,
    Order,
    OrderBook,
    Pair,
    PairInfo,
    PriceLevel,
    RestingOrders,
    Side,
    parse_price,
    strategies,
)

SNEK = AssetId(bytes(28), b"SNEK")
PAIR = Pair(SNEK, ADA)
LARGEST = 2**96 - 1


# For strategies whose examples take long to draw.
FEW = settings(max_examples=settings().max_examples // 4)


def is_price(price: object) -> bool:
    if type(price) is not Decimal or not price.is_finite() or not 0 < price <= LARGEST:
        return False
    grids = [Fraction(price) * 10**places for places in range(29)]
    return any(number.denominator == 1 and number <= LARGEST for number in grids)


def is_asset_id(asset: object) -> bool:
    return type(asset) is AssetId and (
        (asset.policy_id, asset.asset_name) == (b"", b"")
        or (len(asset.policy_id) == 28 and len(asset.asset_name) <= 32)
    )


def is_book(book: object) -> bool:
    """Whether a book meets the contract and the decisions, in plain numbers."""
    assert type(book) is OrderBook
    assert is_asset_id(book.pair.base)
    assert is_asset_id(book.pair.quote)
    assert book.pair.base != book.pair.quote
    assert book.spot is None or is_price(book.spot)
    for levels, falling in ((book.bids, True), (book.asks, False)):
        assert all(is_price(level.price) and 1 <= level.accumulated_liquidity < 2**64 for level in levels)
        numbers = [Fraction(level.price) for level in levels]
        assert numbers == sorted(set(numbers), reverse=falling)
    return True


class TestValidity:
    """Every value is valid, by independent models."""

    @FEW
    @given(strategies.policy_ids(), strategies.asset_names(), strategies.asset_ids(), strategies.pairs())
    def test_assets_and_pairs(self, policy_id: bytes, asset_name: bytes, asset: AssetId, pair: Pair):
        assert len(policy_id) == 28
        assert len(asset_name) <= 32
        assert is_asset_id(asset)
        assert is_book(OrderBook(pair))

    @FEW
    @given(strategies.prices(), strategies.ratios(), strategies.amounts(), strategies.amounts(min_value=0))
    def test_numbers(self, price: Decimal, ratio: Fraction, liquidity: int, amount: int):
        assert is_price(price)
        assert Fraction(1, 10**28) <= ratio <= LARGEST
        assert 1 <= liquidity < 2**64
        assert 0 <= amount < 2**64

    @FEW
    @given(strategies.order_books(), strategies.market_indexes())
    def test_books_and_indexes(self, book: OrderBook, index: MarketIndex):
        assert is_book(book)
        assert all(is_book(book) for book in index.values())
        assert len(index) <= 6

    @FEW
    @given(strategies.price_levels(), strategies.orders(), strategies.pair_infos())
    def test_parts(self, level: PriceLevel, order: Order, pair_info: PairInfo):
        assert is_price(level.price)
        assert is_price(order.level_price)
        assert 0 <= order.amount < 2**64
        assert pair_info.last_spot is None or is_price(pair_info.last_spot)

    @FEW
    @given(strategies.resting_orders(), strategies.order_ids())
    def test_orders_by_id(self, resting: RestingOrders, order_id: str):
        for one in (order_id, *resting):
            assert 1 <= len(one) <= 200
            assert set(one) <= set(map(chr, range(32, 127)))
        assert len(resting) <= 8
        assert all(is_book(book) for book in resting.index.values())
        assert {order.pair for order in resting.values()} <= resting.index.keys()

    @FEW
    @given(st.data())
    def test_changes(self, data: st.DataObject):
        book = data.draw(strategies.order_books())
        for price, amount in data.draw(strategies.level_changes(book, max_changes=4)):
            assert is_price(price)
            assert 0 <= amount < 2**64

    @given(strategies.invalid_asset_id_texts())
    def test_invalid_texts_of_asset_ids(self, text: str):
        policy_id, colon, name = text.partition(":")
        sizes = len(policy_id) == 56 and len(name) <= 64 and len(name) % 2 == 0
        assert text != "ADA"
        assert not (colon and sizes and set(policy_id + name) <= set("0123456789abcdefABCDEF"))
        with pytest.raises(InvalidAssetId):
            AssetId.parse(text)

    @given(strategies.invalid_price_texts())
    def test_invalid_texts_of_prices(self, text: str):
        # Python reads more texts than prices: what it reads here is out of range, or not in ASCII digits and points.
        if set(text) <= set("0123456789.eE+-") and text[:1] not in ("+", "-"):
            try:
                number = Decimal(text)
            except ArithmeticError:
                number = None
            assert number is None or abs(number.adjusted()) > 100 or not is_price(number)
        with pytest.raises(InvalidPrice):
            parse_price(text)


# Texts are prices too.
TEXTS: st.SearchStrategy[typing.Any] = st.sampled_from(["9", "10", "100"])

FIXED = [
    (strategies.asset_ids(policy_id=bytes(28), asset_name=b"SNEK", ada=False), SNEK),
    (strategies.asset_ids(asset_name=st.just(b"SNEK"), ada=False).map(lambda asset: asset.asset_name), b"SNEK"),
    (strategies.pairs(base=SNEK, quote=st.just(ADA)), PAIR),
    (strategies.price_levels(price="2", amount=3), PriceLevel("2", 3)),
    (
        strategies.orders(pair=PAIR, side=Side.BID, price=Fraction(1, 3), amount=3),
        Order(PAIR, Side.BID, Fraction(1, 3), 3),
    ),
    (
        strategies.resting_orders(order=Order(PAIR, Side.BID, "2", 3), min_orders=1).map(lambda one: set(one.values())),
        {Order(PAIR, Side.BID, "2", 3)},
    ),
    (strategies.pair_infos(pair=PAIR, last_spot="2"), PairInfo(SNEK, ADA, "2")),
    (strategies.market_indexes(book=OrderBook(PAIR), min_pairs=1).map(list), [PAIR]),
]


class TestParameters:
    """Each parameter has its effect."""

    @pytest.mark.parametrize(("strategy", "value"), FIXED)
    @given(data=st.data())
    def test_a_part_is_a_value_or_a_strategy(self, strategy: st.SearchStrategy[object], value: object, data):
        assert data.draw(strategy) == value

    @FEW
    @given(strategies.asset_ids(policy_id=bytes(28)))
    def test_a_fixed_policy_id_leaves_ada_possible(self, asset: AssetId):
        assert asset.policy_id in {bytes(28), b""}

    @FEW
    @given(strategies.order_books(pair=PAIR, amount=3, spot="2", price=strategies.prices(max_value="9")))
    def test_the_parts_of_a_book_are_values_or_strategies(self, book: OrderBook):
        assert (book.pair, book.spot) == (PAIR, Decimal(2))
        assert all(level.accumulated_liquidity == 3 and level.price <= 9 for level in (*book.bids, *book.asks))

    @FEW
    @given(strategies.level_changes(OrderBook(PAIR), price="2", amount=0))
    def test_the_parts_of_changes_are_values_or_strategies(self, changes: list[tuple[Decimal, int]]):
        assert changes == [(Decimal(2), 0)] * len(changes)

    @given(strategies.asset_ids(ada=False))
    def test_without_ada(self, asset: AssetId):
        assert not asset.is_ada

    @given(st.data(), st.integers(0, 32), st.integers(0, 32))
    def test_the_length_of_an_asset_name(self, data: st.DataObject, one: int, other: int):
        least, most = sorted([one, other])
        assert least <= len(data.draw(strategies.asset_names(min_size=least, max_size=most))) <= most

    @given(st.data(), strategies.prices(), strategies.prices(), st.integers(0, 28))
    def test_the_range_of_a_price(self, data: st.DataObject, one: Decimal, other: Decimal, places: int):
        lowest, highest = sorted([one, other])
        try:
            within = strategies.prices(min_value=lowest, max_value=highest, max_decimal_places=places)
        except ValueError:
            # There is no such price: the next number with these places is out of range, or has too many digits.
            next_one = -(-Fraction(lowest) * 10**places // 1)
            assert next_one > Fraction(highest) * 10**places or next_one > LARGEST
            return
        price = data.draw(within)
        assert is_price(price)
        assert lowest <= price <= highest
        assert (Fraction(price) * 10**places).denominator == 1

    @given(st.data(), strategies.amounts(min_value=0), strategies.amounts())
    def test_the_range_of_an_amount(self, data: st.DataObject, one: int, other: int):
        least, most = sorted([one, other])
        assert least <= data.draw(strategies.amounts(min_value=least, max_value=most)) <= most

    @given(
        st.data(),
        st.sets(st.sampled_from(Side)),
        st.integers(0, 4),
        st.integers(0, 4),
        st.sampled_from([None, True, False]),
        st.sampled_from([None, True, False]),
    )
    def test_sides_levels_crossed_and_locked_of_a_book(
        self, data: st.DataObject, sides: set[Side], one: int, other: int, crossed: bool | None, locked: bool | None
    ):
        least, most = sorted([one, other])
        can_meet = len(sides) == 2 and most > 0
        wanted = {"sides": sides, "min_levels": least, "max_levels": most, "crossed": crossed, "locked": locked}
        if (crossed and locked) or ((crossed or locked) and not can_meet):
            with pytest.raises(ValueError, match=r"a book .* must be possible, got crossed="):
                strategies.order_books(**wanted)  # type: ignore[arg-type]  # of several types
            return
        book = data.draw(strategies.order_books(**wanted))  # type: ignore[arg-type]  # of several types
        assert is_book(book)
        assert crossed in {None, book.is_crossed}
        assert locked in {None, book.is_locked}
        for side, levels in ((Side.BID, book.bids), (Side.ASK, book.asks)):
            assert least <= len(levels) <= most if side in sides else not levels

    @FEW
    @given(strategies.order_books(max_levels=1, locked=True), strategies.order_books(max_levels=2, locked=True))
    def test_a_locked_book_respects_the_maximum_of_levels(self, one: OrderBook, two: OrderBook):
        assert (len(one.bids), len(one.asks)) == (1, 1)
        assert max(len(two.bids), len(two.asks)) <= 2

    def test_level_changes_require_a_book(self):
        with pytest.raises(TypeError, match="book must be an OrderBook, not a strategy of books, got "):
            strategies.level_changes(strategies.order_books())  # type: ignore[arg-type]  # a mistake of a caller

    @FEW
    @given(strategies.order_books(price="5", min_levels=1, locked=True))
    def test_one_price_is_enough_for_a_locked_book(self, book: OrderBook):
        assert (len(book.bids), len(book.asks), book.is_locked) == (1, 1, True)

    @FEW
    @given(strategies.order_books(price=TEXTS, min_levels=2, locked=True))
    def test_three_prices_are_enough_for_a_locked_book_of_two_levels_a_side(self, book: OrderBook):
        assert (len(book.bids), len(book.asks), book.is_locked) == (2, 2, True)

    @FEW
    @given(strategies.order_books(price=TEXTS, amount=st.integers(0, 1), min_levels=1, crossed=False))
    def test_an_amount_of_zero_is_drawn_again(self, book: OrderBook):
        assert book.bids
        assert book.asks
        assert not book.is_crossed

    @FEW
    @given(strategies.order_books(sides=Side.ASK, min_levels=1))
    def test_a_book_may_have_one_side(self, book: OrderBook):
        assert not book.bids
        assert book.asks

    @FEW
    @given(strategies.order_books(sides=(side for side in Side), min_levels=1))  # type: ignore[arg-type]  # an iterator
    def test_the_sides_may_be_an_iterator(self, book: OrderBook):
        assert book.bids
        assert book.asks

    @FEW
    @given(st.data(), st.integers(0, 5), st.integers(0, 5))
    def test_the_size_of_an_index(self, data: st.DataObject, one: int, other: int):
        least, most = sorted([one, other])
        book = strategies.order_books(max_levels=1)
        index = data.draw(strategies.market_indexes(book=book, min_pairs=least, max_pairs=most))
        assert least <= len(index) <= most
        assert all(len(one.bids) <= 1 for one in index.values())

    @FEW
    @given(st.data(), st.integers(0, 4), st.integers(0, 4))
    def test_the_number_of_resting_orders(self, data: st.DataObject, one: int, other: int):
        least, most = sorted([one, other])
        assert least <= len(data.draw(strategies.resting_orders(min_orders=least, max_orders=most))) <= most

    @pytest.mark.parametrize(
        ("strategy", "parameters"),
        [
            (strategies.asset_names, {"max_size": 33}),
            (strategies.asset_names, {"min_size": -1}),
            (strategies.asset_names, {"min_size": 5, "max_size": 4}),
            (strategies.prices, {"min_value": "2", "max_value": "1"}),
            (strategies.prices, {"min_value": "0"}),
            (strategies.prices, {"max_value": 1.5}),
            (strategies.prices, {"min_value": "0.1", "max_value": "0.9", "max_decimal_places": 0}),
            (strategies.prices, {"max_decimal_places": 29}),
            (strategies.prices, {"max_decimal_places": True}),
            (strategies.amounts, {"min_value": -1}),
            (strategies.amounts, {"max_value": 2**64}),
            (strategies.amounts, {"min_value": 2, "max_value": 1}),
            (strategies.order_books, {"min_levels": 9}),
            (strategies.order_books, {"min_levels": -1}),
            (strategies.asset_names, {"max_size": 1.5}),
            (strategies.amounts, {"min_value": 1.0, "max_value": 9}),
            (strategies.amounts, {"min_value": True}),
            (strategies.asset_ids, {"policy_id": bytes(27)}),
            (strategies.asset_ids, {"policy_id": b""}),
            (strategies.asset_ids, {"asset_name": bytes(33)}),
            (strategies.pairs, {"base": ADA, "quote": ADA}),
            (strategies.price_levels, {"price": "0"}),
            (strategies.price_levels, {"amount": 0}),
            (strategies.orders, {"price": "0"}),
            (strategies.orders, {"price": Fraction(-1, 3)}),
            (strategies.orders, {"amount": 1.5}),
            (strategies.orders, {"pair": Pair(ADA, ADA)}),
            (strategies.resting_orders, {"min_orders": 9}),
            (strategies.resting_orders, {"min_orders": -1}),
            (strategies.resting_orders, {"max_orders": 1.5}),
            (strategies.pair_infos, {"last_spot": "-1"}),
            (strategies.order_books, {"sides": ["bid"]}),
            (strategies.order_books, {"sides": "bid"}),
            (strategies.order_books, {"price": "5", "min_levels": 2}),
            (strategies.order_books, {"price": "5", "crossed": True}),
            (strategies.order_books, {"min_levels": "1"}),
            (strategies.order_books, {"crossed": "no"}),
            (strategies.order_books, {"locked": 0}),
            (strategies.order_books, {"amount": 0}),
            (strategies.order_books, {"amount": 2**64}),
            (strategies.order_books, {"price": 0.5}),
            (strategies.order_books, {"spot": 0.5}),
            (strategies.order_books, {"pair": Pair(ADA, ADA)}),
            (strategies.market_indexes, {"min_pairs": 7}),
            (strategies.market_indexes, {"min_pairs": -1}),
        ],
    )
    def test_impossible_parameters_are_rejected_before_drawing(self, strategy, parameters):
        with pytest.raises(ValueError):
            strategy(**parameters)


def test_every_public_strategy_has_a_docstring():
    for name in strategies.__all__:
        assert inspect.getdoc(getattr(strategies, name)), name


ROOT = Path(__file__).resolve().parents[2]


def test_property_tests_draw_values_from_the_public_strategies():
    """The project's own tests use the strategies that users get."""
    types = "AssetId|Pair|PairInfo|PriceLevel|Order|OrderBook|RestingOrders|MarketIndex"
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for match in re.finditer(rf"st\.builds\(\s*({types})\b|\.map\(\s*({types})\b", path.read_text())
    ]
    assert found == []
