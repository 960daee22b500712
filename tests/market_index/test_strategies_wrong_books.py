"""The strategies find the mistakes that users make in their own order books, each within 200 examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    """An order book as users write it: a dict of the levels. It is correct; each of WRONG_BOOKS makes one mistake."""

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
        return floor(exact_value(self, side)) if side is Side.BID else ceil(exact_value(self, side))


def exact_value(book: DictBook, side: Side) -> Fraction:
    return sum((Fraction(price) * amount for price, amount in book.levels(side)), start=Fraction(0))


def rounded_value(book: DictBook, side: Side) -> int:
    """The value of a side, computed with the 28 digits of the default context."""
    value = sum((price * amount for price, amount in book.levels(side)), start=Decimal(0))
    return floor(value) if side is Side.BID else ceil(value)


def touches_or_crosses(book: DictBook) -> bool:
    bids, asks = book.levels(Side.BID), book.levels(Side.ASK)
    return bool(bids and asks) and bids[0][0] >= asks[0][0]


def summed(book: DictBook, side: Side, price: Decimal, amount: int) -> int:
    return amount + book.by_key.get(book.key(side, price), (side, price, 0))[2]


# Each mistake is one method, instead of that of `DictBook`.
MISTAKES: dict[str, dict[str, Callable[..., object]]] = {
    "float keys": {"key": lambda _, side, price: (side, float(price))},
    "text keys": {"key": lambda _, side, price: (side, str(price))},
    "sides in one dict": {"key": lambda _, side, price: price},
    "locked is crossed": {"is_crossed": touches_or_crosses},
    "removals are forgotten": {"remove": lambda _, side, price: None},
    "a removal of a missing level fails": {"remove": lambda book, *at: book.by_key.pop(book.key(*at))},
    "summed instead of absolute": {"amount": summed},
    "float amounts": {"amount": lambda _, side, price, amount: int(float(amount))},
    "unsorted if equal as floats": {"sort_key": lambda _, level: float(level[0])},
    "unsorted after 18 places": {"sort_key": lambda _, level: int(level[0] * 10**18)},
    "a lost spot": {"change_spot": lambda book, spot: setattr(book, "spot", None if spot is ... else spot)},
    "one level too many": {"depth": lambda book, side, count: book.levels(side)[: count + 1]},
    "only 20 levels": {"levels": lambda book, side: DictBook.levels(book, side)[:20]},
    "rounded down": {"whole_value": lambda book, side: floor(exact_value(book, side))},
    "rounded in the context": {"whole_value": rounded_value},
}
WRONG_BOOKS = {name: type("WrongBook", (DictBook,), methods) for name, methods in MISTAKES.items()}


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


def is_found(of: type[DictBook], start: int, *, examples: int = 200) -> bool:
    """Whether a mistake is found within this number of examples."""

    @seed(start)
    @settings(
        max_examples=examples,
        phases=WITHOUT_SHRINKING,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(order_books(max_levels=50 if of is WRONG_BOOKS["only 20 levels"] else 8), st.data())
    def search(book: OrderBook, data: st.DataObject) -> None:
        compare(of, book, data)

    try:
        search()
    except (AssertionError, KeyError):
        return True
    return False


@pytest.mark.parametrize("mistake", WRONG_BOOKS)
@pytest.mark.parametrize("start", [0, *[pytest.param(one, marks=pytest.mark.thorough) for one in range(1, 10)]])
def test_a_wrong_book_is_found_within_200_examples(mistake: str, start: int):
    assert is_found(WRONG_BOOKS[mistake], start)


def test_a_correct_book_passes():
    assert not is_found(DictBook, 0, examples=60)


@pytest.mark.thorough
def test_the_levels_of_float_keys_shrink_to_two_neighbours():
    def merges(book: OrderBook) -> bool:
        return len({float(level.price) for level in book.bids}) < len(book.bids)

    without_limits = settings(database=None, max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck))
    book = find(order_books(), merges, settings=without_limits, random=Random(0))
    assert [(str(level.price), level.accumulated_liquidity) for level in book.bids] == [
        ("1.0000000000000000000000000001", 1),
        ("1", 1),
    ]
