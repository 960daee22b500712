"""The strategies: values are valid, parameters have their effect, edge cases are reached, and failures are simple."""

from __future__ import annotations

import typing
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument, NoSuchExample

from market_index import (
    ADA,
    AssetId,
    MarketIndexError,
    Order,
    OrderBook,
    Pair,
    PriceLevel,
    Side,
)
from market_index import strategies as drawn
from tests.market_index.models import is_price

SNEK = AssetId(bytes(28), b"SNEK")
PAIR = Pair(SNEK, ADA)
LARGEST = 2**96 - 1
LEAST = Fraction(1, 10**28)

# For strategies whose examples take long to draw.
FEW = settings(max_examples=settings().max_examples // 4)


WITHOUT_SHRINKING = settings(
    database=None,
    max_examples=10_000,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@given(drawn.prices(), drawn.ratios(), drawn.amounts(), drawn.amounts(min_value=0), drawn.order_ids())
def test_numbers_and_ids_are_valid(price: Decimal, ratio: Fraction, liquidity: int, amount: int, order_id: str):
    # All other values are made by their constructors, which reject what is not valid.
    assert type(price) is Decimal
    assert is_price(Fraction(price))
    assert LEAST <= ratio <= LARGEST
    assert 1 <= liquidity < 2**64
    assert 0 <= amount < 2**64
    assert 1 <= len(order_id) <= 200
    assert order_id.isascii()
    assert order_id.isprintable()


TEXTS: st.SearchStrategy[typing.Any] = st.sampled_from(["9", "10", "100"])
LOCKED = drawn.order_books(price=TEXTS, min_levels=2, max_levels=2, locked=True)


class TestParameters:
    """Each parameter has its effect."""

    @pytest.mark.parametrize(
        ("strategy", "value"),
        [
            (drawn.asset_ids(ada=False).map(lambda asset: asset.is_ada), False),
            (drawn.pairs(base=SNEK, quote=st.just(ADA)), PAIR),
            (drawn.price_levels(price="2", amount=3), PriceLevel("2", 3)),
            (
                drawn.orders(pair=PAIR, side=Side.BID, price=Fraction(1, 3), amount=3),
                Order(PAIR, Side.BID, Fraction(1, 3), 3),
            ),
            (
                drawn.resting_orders(order=Order(PAIR, Side.BID, "2", 3), min_orders=1).map(lambda of: {*of.values()}),
                {Order(PAIR, Side.BID, "2", 3)},
            ),
            (drawn.levels(side=Side.BID).map(lambda levels: levels.side), Side.BID),
            (drawn.market_indexes(book=OrderBook(PAIR), min_pairs=1).map(list), [PAIR]),
            (
                drawn.level_changes(OrderBook(PAIR), price="2", amount=0).map(set).map(lambda of: of | {(2, 0)}),
                {(2, 0)},
            ),
            # Three prices are enough for a locked book of two levels a side. Texts are prices too.
            (LOCKED.map(lambda book: len(book.bids)), 2),
            (drawn.order_books(max_levels=1, locked=True).map(lambda book: len(book.bids) + len(book.asks)), 2),
        ],
    )
    @FEW
    @given(data=st.data())
    def test_a_part_is_a_value_or_a_strategy(self, strategy: st.SearchStrategy[object], value: object, data):
        assert data.draw(strategy) == value

    @FEW
    @given(drawn.order_books(pair=PAIR, amount=3, spot="2", price=drawn.prices(max_value="9")))
    def test_the_parts_of_a_book_are_values_or_strategies(self, book: OrderBook):
        assert (book.pair, book.spot) == (PAIR, Decimal(2))
        assert all(level.accumulated_liquidity == 3 and level.price <= 9 for level in (*book.bids, *book.asks))

    @given(st.data(), drawn.prices(), drawn.prices(), st.integers(0, 28))
    def test_the_range_of_a_price(self, data: st.DataObject, one: Decimal, other: Decimal, places: int):
        lowest, highest = sorted([one, other])
        try:
            price = data.draw(drawn.prices(min_value=lowest, max_value=highest, max_decimal_places=places))
        except InvalidArgument:
            # There is no such price: the next number of each grid is out of range, or has too many digits.
            for grid in range(places + 1):
                following = -(-Fraction(lowest) * 10**grid // 1)
                assert following > Fraction(highest) * 10**grid or following > LARGEST
            return
        assert is_price(Fraction(price))
        assert lowest <= price <= highest
        assert (Fraction(price) * 10**places).denominator == 1

    @FEW
    @given(st.data(), st.tuples(st.integers(0, 5), st.integers(0, 5)).map(sorted))
    def test_the_range_of_a_size(self, data: st.DataObject, bounds: list[int]):
        least, most = bounds
        index = drawn.market_indexes(book=drawn.order_books(max_levels=1), min_pairs=least, max_pairs=most)
        assert least <= len(data.draw(index)) <= most
        assert least <= len(data.draw(drawn.resting_orders(min_orders=least, max_orders=most))) <= most
        assert least <= data.draw(drawn.amounts(min_value=least, max_value=most)) <= most

    @given(
        st.data(),
        st.sets(st.sampled_from(Side)),
        st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted),
        st.sampled_from([None, True, False]),
        st.sampled_from([None, True, False]),
    )
    def test_sides_levels_crossed_and_locked_of_a_book(
        self, data: st.DataObject, sides: set[Side], bounds: list[int], crossed: bool | None, locked: bool | None
    ):
        least, most = bounds
        wanted: dict[str, typing.Any] = {"sides": sides, "min_levels": least, "max_levels": most}
        wanted |= {"crossed": crossed, "locked": locked}
        if (crossed and locked) or ((crossed or locked) and not (len(sides) == 2 and most > 0)):
            with pytest.raises(InvalidArgument, match=r"a book .* must be possible, got crossed="):
                data.draw(drawn.order_books(**wanted))
            return
        book = data.draw(drawn.order_books(**wanted))
        assert crossed in {None, book.is_crossed}
        assert locked in {None, book.is_locked}
        for side, levels in ((Side.BID, book.bids), (Side.ASK, book.asks)):
            assert least <= len(levels) <= most if side in sides else not levels

    @pytest.mark.parametrize(
        "strategy",
        [
            lambda: drawn.prices(min_value="2", max_value="1"),
            lambda: drawn.prices(min_value="0.1", max_value="0.9", max_decimal_places=0),
            lambda: drawn.prices(max_decimal_places=29),
            lambda: drawn.prices(max_decimal_places=-1),
            lambda: drawn.amounts(max_value=2**64),
            lambda: drawn.amounts(min_value=-1),
            lambda: drawn.amounts(min_value=2, max_value=1),
            lambda: drawn.order_books(sides="bid"),  # type: ignore[arg-type]  # a mistake of a caller
            lambda: drawn.order_books(amount=0),
            lambda: drawn.price_levels(amount=0),
            lambda: drawn.level_changes(OrderBook(PAIR), amount=-1),
            lambda: drawn.orders(amount=2**64),
        ],
    )
    def test_impossible_arguments_are_rejected(self, strategy: Callable[[], st.SearchStrategy[object]]):
        with pytest.raises(InvalidArgument):
            find(strategy(), lambda _: True, settings=WITHOUT_SHRINKING)

    @pytest.mark.parametrize(
        "strategy",
        [
            lambda: drawn.order_books(pair=Pair(ADA, ADA)),
            lambda: drawn.order_books(min_levels=1, price=0.5),  # type: ignore[arg-type]  # a mistake of a caller
            lambda: drawn.prices(min_value="0"),
            lambda: drawn.orders(price="0"),
        ],
    )
    def test_an_invalid_part_raises_the_error_of_its_type(self, strategy: Callable[[], st.SearchStrategy[object]]):
        with pytest.raises(MarketIndexError):
            find(strategy(), lambda _: True, settings=WITHOUT_SHRINKING)

    def test_level_changes_require_a_book(self):
        with pytest.raises(TypeError, match="book must be an OrderBook, not a strategy of books, got "):
            drawn.level_changes(drawn.order_books())  # type: ignore[arg-type]  # a mistake of a caller


CHANGES = drawn.level_changes(OrderBook.from_levels(PAIR, [("10", 1), ("0.5", 1)], [("60", 1)]))


def is_crossed_by_the_best_alone(book: OrderBook) -> bool:
    return (
        book.is_crossed
        and min(len(book.bids), len(book.asks)) > 1
        and book.bids[1].price < book.asks[0].price
        and book.asks[1].price > book.bids[0].price
    )


Corner: typing.TypeAlias = Callable[[typing.Any], bool]


@pytest.mark.parametrize(
    ("strategy", "corners"),
    [
        (
            drawn.asset_ids(),
            [
                lambda asset: asset.is_ada,
                lambda asset: not asset.is_ada and asset.asset_name == b"",
                lambda asset: len(asset.asset_name) == 32,
                lambda asset: asset.asset_name_label is not None,
                lambda asset: asset.asset_name_text is None,
                lambda asset: len(set(asset.policy_id)) > 20,
            ],
        ),
        (
            drawn.prices(),
            [
                *(Decimal(text).__eq__ for text in ("1e-28", f"{LARGEST}", f"{LARGEST}e-28", f"{2**53 + 1}")),
                lambda price: "E" in str(price),
                lambda price: len(price.as_tuple().digits) > 20,
            ],
        ),
        (drawn.amounts(), [amount.__eq__ for amount in (1, 2**53 + 1, 2**63, 2**64 - 1)]),
        (
            drawn.ratios(),
            [
                lambda ratio: ratio.denominator % 3 == 0,
                *(ratio.__eq__ for ratio in (Fraction(1), LEAST, Fraction(LARGEST))),
            ],
        ),
        (
            drawn.order_books(),
            [
                lambda book: not book.bids and not book.asks,
                lambda book: bool(book.bids) and not book.asks,
                lambda book: bool(book.asks) and not book.bids,
                lambda book: len(book.bids) == len(book.asks) == 1,
                lambda book: len(book.bids) == 8,
                lambda book: len(book.asks) == 8,
                lambda book: book.is_locked,
                is_crossed_by_the_best_alone,
                lambda book: book.is_crossed and len(book.bids) > 1 and book.bids[-1].price > book.asks[-1].price,
                lambda book: book.spread is not None and book.spread > 0 and book.spot is None,
                lambda book: book.spot is not None and ADA not in {book.pair.base, book.pair.quote},
            ],
        ),
        (
            CHANGES,
            [
                lambda changes: (Decimal(10), 0) in changes,
                lambda changes: any(price not in {10, 60, Decimal("0.5")} and amount for price, amount in changes),
                lambda changes: len({price for price, _ in changes}) < len(changes),
                lambda changes: {"10.0", "1E+1", "0.50"} <= {str(price) for price, _ in changes},
            ],
        ),
        (drawn.orders(), [lambda order: isinstance(order.price, Fraction) and not order.amount]),
        (
            drawn.resting_orders(),
            [
                lambda resting: len({one.pair for one in resting.values()}) > 1,
                lambda resting: len(resting.index) > len({one.pair for one in resting.values()}),
                # Two orders are one level.
                lambda resting: len(resting) > sum(len(one.bids) + len(one.asks) for one in resting.index.values()),
                lambda resting: "~" * 200 in resting and resting.index.as_of is not None,
            ],
        ),
    ],
)
def test_edge_cases_are_reached(strategy: st.SearchStrategy[typing.Any], corners: list[Corner]):
    missing = list(enumerate(corners))

    def reaches_the_last(value: object) -> bool:
        missing[:] = [(number, corner) for number, corner in missing if not corner(value)]
        return not missing

    with suppress(NoSuchExample):
        find(strategy, reaches_the_last, settings=WITHOUT_SHRINKING)
    assert not [number for number, _ in missing]


def counted(strategy: st.SearchStrategy[typing.Any], corner: Corner, *, of: int) -> int:
    """Return how many of the first examples are in the corner."""
    found: list[bool] = []

    @settings(WITHOUT_SHRINKING, max_examples=of, derandomize=True)
    @given(strategy)
    def count(value: typing.Any) -> None:
        found.append(bool(corner(value)))

    count()
    return sum(found)


def test_neighbouring_prices_and_real_depth_are_frequent():
    def has_neighbours(book: OrderBook) -> bool:
        return any(Fraction(one) - Fraction(other) == LEAST for one, other in pairwise(book.bids.prices))

    assert counted(drawn.order_books(), has_neighbours, of=100) >= 5
    assert counted(drawn.order_books(max_levels=50), lambda book: len(book.bids) >= 20, of=50) >= 2
    # A book without levels is the first example of each test; few others are empty.
    assert counted(drawn.order_books(), lambda book: not book.bids and not book.asks, of=1) == 1
    assert counted(drawn.order_books(), lambda book: not book.bids and not book.asks, of=200) <= 40


ALL_PHASES = settings(database=None, max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))


def simplest(
    strategy: st.SearchStrategy[typing.Any], corner: Callable[[typing.Any], bool] = lambda _: True, seed: int = 0
) -> typing.Any:
    # With a fixed seed: Hypothesis does not guarantee the simplest value.
    return find(strategy, corner, settings=ALL_PHASES, random=Random(seed))


@pytest.mark.thorough
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
def test_a_book_shrinks_to_what_matters(corner: Callable[[OrderBook], bool], counts: tuple[int, int]):
    book = simplest(drawn.order_books(), corner)
    assert (len(book.bids), len(book.asks), book.spot) == (*counts, None)
    for level in (*book.bids, *book.asks):
        assert level.price in {Decimal(1), Decimal(2), Decimal("0.1")}
        assert level.accumulated_liquidity < 100
    assert sorted([book.pair.base, book.pair.quote]) == [ADA, AssetId(bytes(28), b"")]


def rows(book: OrderBook) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    bids, asks = [
        [(str(level.price), level.accumulated_liquidity) for level in side] for side in (book.bids, book.asks)
    ]
    return bids, asks


def stays_crossed_after_one_partial_fill(book: OrderBook) -> bool:
    """Whether a matching engine that stops after its first partial fill leaves the book crossed."""
    bids, asks = list(rows(book)[0]), list(rows(book)[1])
    while bids and asks and Decimal(bids[0][0]) >= Decimal(asks[0][0]):
        (bid, bid_amount), (ask, ask_amount) = bids.pop(0), asks.pop(0)
        if bid_amount > ask_amount:
            bids.insert(0, (bid, bid_amount - ask_amount))
            break
        if ask_amount > bid_amount:
            asks.insert(0, (ask, ask_amount - bid_amount))
            break
    return bool(bids and asks and Decimal(bids[0][0]) >= Decimal(asks[0][0]))


SEEDS = [0, *[pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 5)]]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_levels_of_a_book_shrink_to_the_smallest_numbers(seed: int):
    book = simplest(drawn.order_books(), lambda book: len(book.bids) >= 3, seed)
    assert rows(book) == ([("3", 1), ("2", 1), ("1", 1)], [])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crossed_book_shrinks_level_by_level(seed: int):
    book = simplest(drawn.order_books(crossed=True), stays_crossed_after_one_partial_fill, seed)
    assert rows(book) in (
        ([("4", 2), ("3", 1)], [("1", 1), ("2", 1)]),
        ([("4", 1), ("3", 1)], [("1", 2), ("2", 1)]),
    )


def test_numbers_shrink_to_the_smallest_that_fails():
    within = drawn.prices(min_value="0.01", max_value="100", max_decimal_places=2)
    assert [simplest(some, lambda price: price >= 5) for some in (drawn.prices(), within)] == [5, 5]
    for least in (4, 1_000, 2**53 + 1, 2**60):
        assert simplest(drawn.amounts(), least.__le__) == least
