"""The strategies find the mistakes that users make in their own order books, each within 200 examples."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from random import Random
from types import EllipsisType
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, find, given, seed, settings
from hypothesis import strategies as st

from market_index import OrderBook, Side
from market_index.strategies import level_changes, order_books, prices
from tests.waiting import WITHOUT_SHRINKING

Changes: TypeAlias = Iterable[tuple[Decimal, int]]
Spot: TypeAlias = Decimal | EllipsisType | None


class DictBook:
    """An order book as users write it: a dict of the levels. It is correct; each subclass makes one mistake."""

    def __init__(self, book: OrderBook) -> None:
        self.by_key: dict[object, tuple[Side, Decimal, int]] = {}
        self.spot = book.spot
        for side, levels in ((Side.BID, book.bids), (Side.ASK, book.asks)):
            self.change(side, [(level.price, level.accumulated_liquidity) for level in levels])

    def apply(self, bids: Changes, asks: Changes, spot: Spot) -> None:
        self.change(Side.BID, bids)
        self.change(Side.ASK, asks)
        self.change_spot(spot)

    def change(self, side: Side, changes: Changes) -> None:
        for price, amount in changes:
            if amount:
                self.by_key[self.key(side, price)] = side, price, self.amount(side, price, amount)
            else:
                self.remove(side, price)

    def key(self, side: Side, price: Decimal) -> object:
        return side, price

    def amount(self, side: Side, price: Decimal, amount: int) -> int:
        return amount

    def remove(self, side: Side, price: Decimal) -> None:
        self.by_key.pop(self.key(side, price), None)

    def change_spot(self, spot: Spot) -> None:
        if not isinstance(spot, EllipsisType):
            self.spot = spot

    def levels(self, side: Side) -> list[tuple[Decimal, int]]:
        levels = [(price, amount) for of, price, amount in self.by_key.values() if of is side]
        return sorted(levels, key=self.sort_key, reverse=side is Side.BID)

    def sort_key(self, level: tuple[Decimal, int]) -> Decimal | float:
        return level[0]

    def depth(self, side: Side, count: int) -> list[tuple[Decimal, int]]:
        return self.levels(side)[:count]

    def is_crossed(self) -> bool:
        bids, asks = self.levels(Side.BID), self.levels(Side.ASK)
        return bool(bids and asks) and bids[0][0] > asks[0][0]

    def whole_value(self, side: Side) -> int:
        """The value of a side in whole quote units: a cost is rounded up, proceeds are rounded down."""
        value = sum((Fraction(price) * amount for price, amount in self.levels(side)), start=Fraction(0))
        return floor(value) if side is Side.BID else ceil(value)


class FloatKeys(DictBook):
    def key(self, side, price):
        return side, float(price)


class TextKeys(DictBook):
    def key(self, side, price):
        return side, str(price)


class AtLeastIsCrossed(DictBook):
    """Compares with `>=` instead of `>`."""

    def is_crossed(self):
        bids, asks = self.levels(Side.BID), self.levels(Side.ASK)
        return bool(bids and asks) and bids[0][0] >= asks[0][0]


class ForgottenRemoval(DictBook):
    def remove(self, side, price):
        pass


class RemovalOfAMissingLevelFails(DictBook):
    def remove(self, side, price):
        del self.by_key[self.key(side, price)]


class SummedInsteadOfAbsolute(DictBook):
    def amount(self, side, price, amount):
        before = self.by_key.get(self.key(side, price))
        return amount + (before[2] if before else 0)


class FloatAmounts(DictBook):
    def amount(self, side, price, amount):
        return int(float(amount))


class UnsortedTies(DictBook):
    """Prices that are equal as floats stay in the order in which they came."""

    def sort_key(self, level):
        return float(level[0])


class LostSpot(DictBook):
    def change_spot(self, spot):
        self.spot = None if isinstance(spot, EllipsisType) else spot


class DepthOffByOne(DictBook):
    def depth(self, side, count):
        return self.levels(side)[: count + 1]


class TwentyLevels(DictBook):
    """Does not show more than 20 levels."""

    def levels(self, side):
        return super().levels(side)[:20]


class MergedSides(DictBook):
    def key(self, side, price):
        return price


class RoundsDown(DictBook):
    def whole_value(self, side):
        return floor(sum(Fraction(price) * amount for price, amount in self.levels(side)))


class RoundsInTheContext(DictBook):
    """Computes with the 28 digits of the default context."""

    def whole_value(self, side):
        value = sum((price * amount for price, amount in self.levels(side)), start=Decimal(0))
        return floor(value) if side is Side.BID else ceil(value)


class EighteenDecimalPlaces(DictBook):
    def sort_key(self, level):
        return int(level[0] * 10**18)


WRONG_BOOKS = DictBook.__subclasses__()


def compare(of: type[DictBook], book: OrderBook, data: st.DataObject) -> None:
    """Compare a user's book with the library, for a book and up to two changes of it."""
    mine = of(book)
    require_same(mine, book)
    for _ in range(data.draw(st.integers(0, 2), label="number of changes")):
        bids, asks = data.draw(level_changes(book), label="bids"), data.draw(level_changes(book), label="asks")
        spot: Spot = data.draw(st.just(...) | st.none() | prices(), label="spot")
        book = book.apply(bids, asks, spot)
        mine.apply(bids, asks, spot)
        require_same(mine, book)


def require_same(mine: DictBook, book: OrderBook) -> None:
    assert mine.spot == book.spot
    assert mine.is_crossed() == book.is_crossed
    for side, levels in ((Side.BID, book.bids), (Side.ASK, book.asks)):
        expected = [(level.price, level.accumulated_liquidity) for level in levels]
        assert mine.levels(side) == expected
        assert mine.depth(side, 2) == expected[:2]
        value = book.cumulative(side)[-1].quote if levels else Decimal(0)
        assert mine.whole_value(side) == (floor(value) if side is Side.BID else ceil(value))


def examples_until_found(of: type[DictBook], start: int) -> int | None:
    """Return the number of the first example that finds the mistake; None if 200 examples do not."""
    count = 0

    @seed(start)
    @settings(
        max_examples=200,
        phases=WITHOUT_SHRINKING,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(order_books(max_levels=50 if of is TwentyLevels else 8), st.data())
    def search(book: OrderBook, data: st.DataObject) -> None:
        nonlocal count
        count += 1
        compare(of, book, data)

    try:
        search()
    except (AssertionError, KeyError):
        return count
    return None


@pytest.mark.parametrize("of", WRONG_BOOKS)
def test_a_wrong_book_is_found_within_200_examples(of: type[DictBook]):
    assert None not in [examples_until_found(of, start) for start in range(2)]


@pytest.mark.thorough
@pytest.mark.parametrize("of", WRONG_BOOKS)
def test_a_wrong_book_is_found_with_each_seed(of: type[DictBook]):
    assert None not in [examples_until_found(of, start) for start in range(10)]


def test_a_correct_book_passes():
    assert examples_until_found(DictBook, 0) is None


def test_the_levels_of_float_keys_shrink_to_two_neighbours():
    def merges(book: OrderBook) -> bool:
        return len({float(level.price) for level in book.bids}) < len(book.bids)

    without_limits = settings(database=None, max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck))
    book = find(order_books(), merges, settings=without_limits, random=Random(0))
    assert [(str(level.price), level.accumulated_liquidity) for level in book.bids] == [
        ("1.0000000000000000000000000001", 1),
        ("1", 1),
    ]
