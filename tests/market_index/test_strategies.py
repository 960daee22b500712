"""The strategies: every value is valid, every knob does what it says, and the awkward corners are reached."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import typing
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

import market_index
from market_index import (
    ADA,
    AssetId,
    CumulativeLevel,
    InvalidAssetId,
    InvalidPrice,
    Levels,
    Liquidity,
    LiveIndex,
    MarketIndex,
    Order,
    OrderBook,
    Pair,
    PairInfo,
    PriceLevel,
    Side,
    SimulatedFill,
    parse_price,
    strategies,
)

SNEK = AssetId(bytes(28), b"SNEK")
PAIR = Pair(SNEK, ADA)
LARGEST = 2**96 - 1

OF_TYPE = {
    AssetId: strategies.asset_ids,
    CumulativeLevel: strategies.cumulative_levels,
    SimulatedFill: strategies.simulated_fills,
    Liquidity: strategies.liquidities,
    LiveIndex: strategies.live_indexes,
    MarketIndex: strategies.market_indexes,
    Order: strategies.orders,
    OrderBook: strategies.order_books,
    Pair: strategies.pairs,
    PairInfo: strategies.pair_infos,
    PriceLevel: strategies.price_levels,
    Levels: strategies.levels,
}


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
    """Whether it is what the contract and the decisions say of a book, in plain numbers."""
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
    """Every value is valid, by a reading of its own."""

    @given(strategies.policy_ids(), strategies.asset_names(), strategies.asset_ids(), strategies.pairs())
    def test_assets_and_pairs(self, policy_id: bytes, asset_name: bytes, asset: AssetId, pair: Pair):
        assert len(policy_id) == 28
        assert len(asset_name) <= 32
        assert is_asset_id(asset)
        assert is_book(OrderBook(pair))

    @given(strategies.prices(), strategies.ratios(), strategies.amounts(), strategies.amounts(min_value=0))
    def test_numbers(self, price: Decimal, ratio: Fraction, liquidity: int, amount: int):
        assert is_price(price)
        assert Fraction(1, 10**28) <= ratio <= LARGEST
        assert 1 <= liquidity < 2**64
        assert 0 <= amount < 2**64

    @given(strategies.order_books(), strategies.market_indexes(), strategies.live_indexes())
    def test_books_and_indexes(self, book: OrderBook, index: MarketIndex, live: LiveIndex):
        assert is_book(book)
        assert all(is_book(book) for book in (*index.values(), *live.current.values()))
        assert len(index) <= 6

    @given(strategies.price_levels(), strategies.orders(), strategies.pair_infos(), strategies.simulated_fills())
    def test_parts(self, level: PriceLevel, order: Order, pair_info: PairInfo, fill: SimulatedFill):
        assert is_price(level.price)
        assert is_price(order.level_price)
        assert 0 <= order.amount < 2**64
        assert pair_info.last_spot is None or is_price(pair_info.last_spot)
        assert fill.filled == sum(level.accumulated_liquidity for level in fill.levels)

    @given(strategies.liquidities(), strategies.cumulative_levels())
    def test_totals(self, liquidity: Liquidity, total: CumulativeLevel):
        assert (liquidity.base == 0) == (liquidity.quote == 0)
        assert total.base >= 1
        assert Fraction(total.quote) <= Fraction(total.price) * total.base

    @given(st.data())
    def test_changes(self, data: st.DataObject):
        book = data.draw(strategies.order_books())
        for price, amount in data.draw(strategies.level_changes(book, max_changes=4)):
            assert is_price(price)
            assert 0 <= amount < 2**64

    @given(strategies.invalid_asset_id_texts())
    def test_no_text_of_an_asset_id(self, text: str):
        policy_id, colon, name = text.partition(":")
        sizes = len(policy_id) == 56 and len(name) <= 64 and len(name) % 2 == 0
        assert text != "ADA"
        assert not (colon and sizes and set(policy_id + name) <= set("0123456789abcdefABCDEF"))
        with pytest.raises(InvalidAssetId):
            AssetId.parse(text)

    @given(strategies.invalid_price_texts())
    def test_no_text_of_a_price(self, text: str):
        # Python reads more than a price: what it does read here is no price, or is not in ASCII digits and points.
        if set(text) <= set("0123456789.eE+-") and text[:1] not in ("+", "-"):
            try:
                number = Decimal(text)
            except ArithmeticError:
                number = None
            assert number is None or abs(number.adjusted()) > 100 or not is_price(number)
        with pytest.raises(InvalidPrice):
            parse_price(text)


class TestKnobs:
    """Each knob does what it says."""

    @given(st.data())
    def test_a_part_is_a_value_or_a_strategy(self, data: st.DataObject):
        draw = data.draw
        assert draw(strategies.asset_ids(policy_id=bytes(28), asset_name=b"SNEK", ada=False)) == SNEK
        assert draw(strategies.asset_ids(policy_id=bytes(28))).policy_id in {bytes(28), b""}
        assert draw(strategies.asset_ids(asset_name=st.just(b"SNEK"), ada=False)).asset_name == b"SNEK"
        assert draw(strategies.pairs(base=SNEK, quote=st.just(ADA))) == PAIR
        assert draw(strategies.price_levels(price="2", amount=3)) == PriceLevel("2", 3)
        assert draw(strategies.orders(side=Side.BID, price=Fraction(1, 3), amount=3)) == Order(
            Side.BID, Fraction(1, 3), 3
        )
        assert draw(strategies.pair_infos(pair=PAIR, last_spot="2")) == PairInfo(SNEK, ADA, "2")
        book = draw(strategies.order_books(pair=PAIR, amount=3, spot="2", price=strategies.prices(max_value="9")))
        assert (book.pair, book.spot) == (PAIR, Decimal(2))
        assert all(level.accumulated_liquidity == 3 and level.price <= 9 for level in (*book.bids, *book.asks))
        assert draw(strategies.simulated_fills(book=OrderBook(PAIR), side=Side.BID)).filled == 0
        changes = draw(strategies.level_changes(OrderBook(PAIR), price="2", amount=0))
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
            # There is none: the next number of so many places is beyond the range, or has too many digits for a price.
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
    def test_how_a_book_shall_be(
        self, data: st.DataObject, sides: set[Side], one: int, other: int, crossed: bool | None, locked: bool | None
    ):
        least, most = sorted([one, other])
        can_meet = len(sides) == 2 and most > 0
        wanted = {"sides": sides, "min_levels": least, "max_levels": most, "crossed": crossed, "locked": locked}
        if (crossed and locked) or ((crossed or locked) and not can_meet):
            with pytest.raises(ValueError, match=r"no book of \d sides with up to \d levels is crossed="):
                strategies.order_books(**wanted)  # type: ignore[arg-type]  # of several types
            return
        book = data.draw(strategies.order_books(**wanted))  # type: ignore[arg-type]  # of several types
        assert is_book(book)
        assert crossed in {None, book.is_crossed}
        assert locked in {None, book.is_locked}
        for side, levels in ((Side.BID, book.bids), (Side.ASK, book.asks)):
            assert least <= len(levels) <= most if side in sides else not levels

    @given(strategies.order_books(max_levels=1, locked=True), strategies.order_books(max_levels=2, locked=True))
    def test_a_locked_book_is_no_larger_than_it_may_be(self, one: OrderBook, two: OrderBook):
        assert (len(one.bids), len(one.asks)) == (1, 1)
        assert max(len(two.bids), len(two.asks)) <= 2

    def test_changes_are_of_a_book(self):
        with pytest.raises(TypeError, match=r"changes are drawn for an OrderBook, got .*: draw the book first"):
            strategies.level_changes(strategies.order_books())  # type: ignore[arg-type]  # a caller's slip

    @given(st.data())
    def test_parts_of_few_values_are_enough_where_they_can_be(self, data: st.DataObject):
        one = data.draw(strategies.order_books(price="5", min_levels=1, locked=True))
        assert (len(one.bids), len(one.asks), one.is_locked) == (1, 1, True)
        texts = st.sampled_from(["9", "10", "100"])
        two = data.draw(strategies.order_books(price=texts, min_levels=2, locked=True))  # type: ignore[arg-type]  # texts
        assert (len(two.bids), len(two.asks), two.is_locked) == (2, 2, True)
        none = strategies.order_books(price=texts, amount=st.integers(0, 1), min_levels=1, crossed=False)  # type: ignore[arg-type]  # texts
        book = data.draw(none)
        assert book.bids
        assert book.asks
        assert not book.is_crossed
        assert not data.draw(strategies.order_books(sides=Side.ASK, min_levels=1)).bids
        either = data.draw(strategies.order_books(sides=(side for side in Side), min_levels=1))  # type: ignore[arg-type]  # an iterator
        assert either.bids
        assert either.asks
        assert list(data.draw(strategies.market_indexes(book=OrderBook(PAIR), min_pairs=1))) == [PAIR]

    @given(st.data(), st.integers(0, 5), st.integers(0, 5))
    def test_the_size_of_an_index(self, data: st.DataObject, one: int, other: int):
        least, most = sorted([one, other])
        book = strategies.order_books(max_levels=1)
        index = data.draw(strategies.market_indexes(book=book, min_pairs=least, max_pairs=most))
        live = data.draw(strategies.live_indexes(book=book, min_pairs=least, max_pairs=most))
        for held in (index, live.current):
            assert least <= len(held) <= most
            assert all(len(one.bids) <= 1 for one in held.values())

    @pytest.mark.parametrize(
        ("strategy", "knobs"),
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
            (strategies.live_indexes, {"min_pairs": -1}),
        ],
    )
    def test_what_cannot_be_meant_is_refused_at_once(self, strategy, knobs):
        with pytest.raises(ValueError):
            strategy(**knobs)


ALL_PHASES = settings(database=None, max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
WITHOUT_SHRINKING = settings(ALL_PHASES, phases=[Phase.generate])


def reached(strategy: st.SearchStrategy[typing.Any], corner: typing.Callable[[typing.Any], bool]) -> typing.Any:
    """A value that is in the corner; an error where there is none in 10,000."""
    return find(strategy, corner, settings=WITHOUT_SHRINKING)


def simplest(strategy: st.SearchStrategy[typing.Any], corner: typing.Callable[[typing.Any], bool]) -> typing.Any:
    # The same each time: Hypothesis comes near the simplest, and does not promise it.
    return find(strategy, corner, settings=ALL_PHASES, random=Random(0))


class TestCorners:
    """The awkward values are reached."""

    @pytest.mark.parametrize(
        "corner",
        [
            pytest.param(lambda asset: asset.is_ada, id="ADA"),
            pytest.param(lambda asset: not asset.is_ada and asset.asset_name == b"", id="empty name"),
            pytest.param(lambda asset: len(asset.asset_name) == 32, id="longest name"),
            pytest.param(lambda asset: asset.asset_name_label is not None, id="label"),
            pytest.param(lambda asset: asset.asset_name_text is None, id="no text"),
            pytest.param(lambda asset: len(set(asset.policy_id)) > 20, id="any policy id"),
        ],
    )
    def test_of_assets(self, corner):
        reached(strategies.asset_ids(), corner)

    @pytest.mark.parametrize(
        "corner",
        [
            pytest.param(lambda price: price == Decimal("1e-28"), id="smallest"),
            pytest.param(lambda price: price == LARGEST, id="largest"),
            pytest.param(lambda price: price == Decimal(f"{LARGEST}e-28"), id="largest coefficient with 28 places"),
            pytest.param(lambda price: price == 2**53 + 1, id="2^53+1"),
            pytest.param(lambda price: "E" in str(price), id="with an exponent in Python's text"),
            pytest.param(lambda price: len(price.as_tuple().digits) > 20, id="many digits"),
        ],
    )
    def test_of_prices(self, corner):
        reached(strategies.prices(), corner)

    @pytest.mark.parametrize("amount", [1, 2**53 + 1, 2**63, 2**64 - 1])
    def test_of_amounts(self, amount: int):
        assert reached(strategies.amounts(), lambda drawn: drawn == amount) == amount

    @pytest.mark.parametrize(
        "corner",
        [
            pytest.param(lambda ratio: ratio.denominator % 3 == 0, id="no finite decimal"),
            pytest.param(lambda ratio: ratio.denominator == 1, id="whole"),
            pytest.param(lambda ratio: ratio == Fraction(1, 10**28), id="smallest"),
            pytest.param(lambda ratio: ratio == LARGEST, id="largest"),
            pytest.param(lambda ratio: ratio == Fraction(152648, 2832390295), id="one from the ledger"),
        ],
    )
    def test_of_ratios(self, corner):
        reached(strategies.ratios(), corner)

    @pytest.mark.parametrize(
        "corner",
        [
            pytest.param(lambda book: not book.bids and not book.asks, id="empty"),
            pytest.param(lambda book: book.bids and not book.asks, id="bids alone"),
            pytest.param(lambda book: book.asks and not book.bids, id="asks alone"),
            pytest.param(lambda book: len(book.bids) == len(book.asks) == 1, id="one level a side"),
            pytest.param(lambda book: len(book.bids) == 8, id="all bids"),
            pytest.param(lambda book: len(book.asks) == 8, id="all asks"),
            pytest.param(lambda book: book.is_locked, id="locked"),
            pytest.param(lambda book: book.is_crossed, id="crossed"),
            pytest.param(
                lambda book: (
                    book.is_crossed
                    and min(len(book.bids), len(book.asks)) > 1
                    and book.bids[1].price < book.asks[0].price
                    and book.asks[1].price > book.bids[0].price
                ),
                id="crossed by the best alone",
            ),
            pytest.param(
                lambda book: book.is_crossed and len(book.bids) > 1 and book.bids[-1].price > book.asks[-1].price,
                id="crossed throughout",
            ),
            pytest.param(lambda book: book.spread is not None and book.spread > 0, id="open"),
            pytest.param(lambda book: book.spot is None, id="no spot"),
            pytest.param(lambda book: book.spot is not None, id="spot"),
            pytest.param(lambda book: ADA not in {book.pair.base, book.pair.quote}, id="two tokens"),
            pytest.param(lambda book: book.pair.base == ADA, id="ADA as base"),
        ],
    )
    def test_of_books(self, corner):
        reached(strategies.order_books(), corner)

    def test_of_changes(self):
        book = OrderBook.from_levels(PAIR, [("5", 1)], [("6", 1)])
        changes = strategies.level_changes(book)
        reached(changes, lambda drawn: (Decimal(5), 0) in drawn)
        reached(changes, lambda drawn: any(price not in {5, 6} and amount for price, amount in drawn))
        reached(changes, lambda drawn: len({price for price, _ in drawn}) < len(drawn))

    @pytest.mark.parametrize(
        "corner",
        [
            pytest.param(lambda fill: not fill.filled, id="nothing"),
            pytest.param(lambda fill: fill.filled and not fill.complete, id="all there is"),
            pytest.param(lambda fill: fill.complete and len(fill.levels) > 1, id="several levels"),
        ],
    )
    def test_of_fills(self, corner):
        reached(strategies.simulated_fills(), corner)

    def test_of_orders(self):
        reached(strategies.orders(), lambda order: isinstance(order.price, Fraction))
        reached(strategies.orders(), lambda order: order.amount == 0)

    @pytest.mark.parametrize("text", ["lovelace", ".", "0" * 56])
    def test_of_other_spellings(self, text: str):
        assert reached(strategies.invalid_asset_id_texts(), lambda drawn: drawn == text) == text

    @pytest.mark.parametrize("reason", ["wrong length", "odd length", "not hexadecimal", "no colon"])
    def test_of_texts_that_are_no_asset_ids(self, reason: str):
        reached(strategies.invalid_asset_id_texts(), lambda drawn: reason in refusal(drawn, AssetId.parse))

    @pytest.mark.parametrize(
        "reason", ["ASCII digits", "is zero", "28 decimal places", "too large", "coefficient is not below 2^96"]
    )
    def test_of_texts_that_are_no_prices(self, reason: str):
        reached(strategies.invalid_price_texts(), lambda drawn: reason in refusal(drawn, parse_price))


def refusal(text: str, read: typing.Callable[[str], object]) -> str:
    with pytest.raises(market_index.MarketIndexError) as refused:
        read(text)
    return str(refused.value)


class TestShrinking:
    """What a failing test shows can be read."""

    @pytest.mark.parametrize(
        ("corner", "counts"),
        [
            (lambda book: True, (0, 0)),
            (lambda book: book.bids, (1, 0)),
            (lambda book: book.spread is not None and book.spread >= 1, (1, 1)),
            (lambda book: book.is_crossed, (1, 1)),
            (lambda book: book.is_locked, (1, 1)),
        ],
    )
    def test_a_book_shrinks_to_what_matters(self, corner, counts: tuple[int, int]):
        book = simplest(strategies.order_books(), corner)
        assert (len(book.bids), len(book.asks), book.spot) == (*counts, None)
        for level in (*book.bids, *book.asks):
            assert level.price in {Decimal(1), Decimal(2), Decimal("0.1")}
            assert level.accumulated_liquidity < 100
        assert sorted([book.pair.base, book.pair.quote]) == [ADA, AssetId(bytes(28), b"")]

    def test_the_parts_shrink_to_the_simplest(self):
        assert simplest(strategies.asset_ids(), lambda asset: True) == ADA
        assert simplest(strategies.prices(), lambda price: True) == 1
        assert simplest(strategies.prices(min_value="7", max_value="9"), lambda price: True) == 7
        assert simplest(strategies.amounts(), lambda amount: True) == 1
        assert simplest(strategies.amounts(min_value=0), lambda amount: True) == 0
        orders = strategies.orders(price=strategies.prices())
        assert simplest(orders, lambda order: order.amount) == Order(Side.BID, "1", 1)
        assert len(simplest(strategies.market_indexes(), lambda index: True)) == 0

    @pytest.mark.parametrize("least", [4, 1_000, 2**53 + 1, 2**60])
    def test_an_amount_shrinks_to_the_smallest_that_fails(self, least: int):
        assert simplest(strategies.amounts(), lambda amount: amount >= least) == least

    def test_a_price_shrinks_to_the_smallest_whole_number_that_fails(self):
        within = strategies.prices(min_value="0.01", max_value="100", max_decimal_places=2)
        for drawn in (strategies.prices(), within):
            assert simplest(drawn, lambda price: price >= 5) == 5

    def test_what_fails_is_shown_as_what_it_is(self):
        script = """
from hypothesis import given, settings
from market_index.strategies import amounts, order_books, pairs, prices

@settings(database=None)
@given(order_books(min_levels=1), amounts(), prices(), pairs())
def each(book, amount, price, pair):
    assert False

each()
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        shown = re.sub(r"  # .*|\s", "", done.stderr)
        asset = r"(ADA|AssetId\.parse\('[0-9a-f]{56}:[0-9a-f]*'\))"
        pair = rf"Pair\(base={asset},quote={asset}\)"
        price = r"Decimal\('[0-9.]+'\)"
        level = rf"PriceLevel\(price={price},accumulated_liquidity=[0-9]+\)"
        sides = rf"bids=Levels\(Side\.BID,\[{level}.*?asks=Levels\(Side\.ASK,\[{level}"
        for value in (f"pair={pair}", "amount=[0-9]+", f"price={price}", rf"book=OrderBook\(pair={pair},{sides}"):
            assert re.search(value, shown), value


class TestPlugin:
    """The entry point for Hypothesis."""

    def test_every_public_type_has_a_strategy(self):
        public = {getattr(market_index, name) for name in market_index.__all__}
        types = {one for one in public if inspect.isclass(one) and not issubclass(one, Exception)} - {Side}
        assert types == OF_TYPE.keys()
        assert {strategy.__name__ for strategy in OF_TYPE.values()} < set(strategies.__all__)

    @pytest.mark.parametrize("of_type", OF_TYPE)
    def test_a_type_is_enough(self, of_type: type):
        @settings(max_examples=5, phases=[Phase.generate], database=None)
        @given(st.from_type(of_type))
        def each(value: object) -> None:
            assert type(value) is of_type

        each()

    def test_a_type_hint_is_enough_with_no_import_of_ours(self):
        script = """
from hypothesis import given, settings
from market_index import OrderBook, Side

@settings(max_examples=20, database=None)
@given(...)
def each(book: OrderBook, side: Side) -> None:
    assert type(book) is OrderBook and type(side) is Side
    print("drawn")

each()
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["drawn"] * 20

    @pytest.mark.parametrize(
        "statement",
        [
            "import market_index.strategies",
            "from market_index import strategies",
            "from market_index.strategies import order_books; from hypothesis import given",
            "import hypothesis, market_index.strategies",
            "import market_index, hypothesis.strategies",
        ],
    )
    @pytest.mark.parametrize("plugins", [True, False])
    def test_imports_may_come_in_any_order(self, statement: str, plugins: bool):
        script = f"""
import os
if not {plugins}:
    os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"
{statement}
from hypothesis import strategies as st
from market_index import MarketIndex
assert st.from_type(MarketIndex).validate() is None
"""
        subprocess.run([sys.executable, "-c", script], check=True)

    def test_other_types_are_drawn_as_before(self):
        script = """
import collections.abc as abc
import json, os, sys, typing
if sys.argv[1:] == ["without"]:
    os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"
from hypothesis import strategies as st
os.environ.pop("HYPOTHESIS_NO_PLUGINS", None)
print("market_index" in sys.modules)
types = [abc.Mapping[str, int], typing.Mapping, abc.Mapping, abc.Hashable, abc.Sized, abc.Container, abc.Collection,
         abc.Iterable, abc.Iterable[int], abc.Collection[int], typing.Hashable, typing.Sized, object]
for one in types:
    print(one, repr(st.from_type(one)))
"""
        with_plugin, without = (
            subprocess.run([sys.executable, "-c", script, word], capture_output=True, text=True, check=True).stdout
            for word in ("with", "without")
        )
        assert (with_plugin.split()[0], without.split()[0]) == ("True", "False")
        assert with_plugin.splitlines()[1:] == without.splitlines()[1:]

    def test_the_library_itself_never_imports_hypothesis(self):
        script = "import sys, market_index, market_index_feeds, market_index_http; print('hypothesis' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["False"]


def test_every_public_strategy_is_told_of():
    for name in strategies.__all__:
        assert inspect.getdoc(getattr(strategies, name)), name


ROOT = Path(__file__).resolve().parents[2]


def test_no_property_test_makes_values_of_the_library_by_itself():
    """What Hypothesis draws for the project's own tests is made by the strategies that others are given."""
    types = "AssetId|Pair|PairInfo|PriceLevel|Order|OrderBook|MarketIndex"
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for match in re.finditer(rf"st\.builds\(\s*({types})\b|\.map\(\s*({types})\b", path.read_text())
    ]
    assert found == []
