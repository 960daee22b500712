"""Any history of a real medium, with its errors, against a dictionary (decisions 24, 27 and 31)."""

from __future__ import annotations

import random
from typing import Final

import pytest

from market_index import OrderBook, Pair
from tests.feeds.contract.media import law
from tests.feeds.contract.medium import Can, Medium, Reader
from tests.feeds.made_up import book, pair

PAIRS: Final = [pair(number) for number in range(1, 5)]

STEPS: Final = 30


class History:
    """A medium that changes at random, and a reader that follows it. `books` and `invalid` are the model."""

    def __init__(self, medium: Medium, reader: Reader, seed: int) -> None:
        self.medium, self.reader, self.numbers = medium, reader, random.Random(seed)  # no secret
        self.books: dict[Pair, OrderBook] = {}
        self.invalid: set[Pair | None] = set()
        steps = {self.write: None, self.retract: Can.RETRACT, self.replace: Can.REPLACE, self.spoil: Can.NAMED}
        steps |= {self.hide: Can.HIDE, self.reset: Can.BLANK}
        self.steps = [step for step, needed in steps.items() if needed is None or needed in medium.can]

    def drawn(self) -> list[OrderBook]:
        numbers = self.numbers
        return [book(number, numbers.randint(1, 9)) for number in numbers.sample(range(1, 5), numbers.randint(1, 2))]

    def write(self) -> None:
        books = {one.pair: one for one in self.drawn()}
        fence = self.medium.write(*books.values())
        self.books |= books
        self.invalid -= books.keys()
        self.reader.until(fence)

    def retract(self) -> None:
        pairs = [one for one in self.numbers.sample(PAIRS, 1) if self.books.keys() - {one}]
        self.books = {one: found for one, found in self.books.items() if one not in pairs}
        self.invalid -= set(pairs)
        self.reader.until(self.medium.write(book(1, 1), retract=tuple(one for one in pairs if one != PAIRS[0])))
        self.books |= {PAIRS[0]: book(1, 1)}
        self.invalid.discard(PAIRS[0])

    def replace(self) -> None:
        self.books, self.invalid = {one.pair: one for one in self.drawn()}, set()
        self.reader.until(self.medium.replace(*self.books.values()))

    def spoil(self) -> None:
        one = self.numbers.choice(PAIRS)
        fence = self.medium.spoil(one)
        self.invalid.add(one)
        self.reader.until(fence, lambda version: one in version.invalid)

    def hide(self) -> None:
        """It cannot be read: the last version stays, exactly."""
        self.medium.hide()
        self.reader.until(lambda _: str(self.reader.feed.health.problem).startswith("cannot be read: "))
        self.check()
        self.medium.show()
        self.write()

    def reset(self) -> None:
        """It is no version, and then it cannot be read: the last version stays, exactly."""
        self.medium.reset()
        self.reader.until(lambda _: self.reader.feed.health.is_unknown)
        self.check()
        if Can.HIDE in self.medium.can:
            self.medium.hide()
            self.reader.until(lambda _: not self.reader.feed.health.is_unknown)
            self.check()
            self.medium.show()
        self.books, self.invalid = {}, set()
        self.write()

    def check(self) -> None:
        assert (self.reader.books, set(self.reader.versions[-1].invalid)) == (self.books, self.invalid)


@law(Can.LIVE, Can.MANY)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.decision(31)
def test_any_history_is_read_as_it_was_written(medium: Medium, seed: int):
    with Reader(medium.feed()) as reader:
        history = History(medium, reader, seed)
        history.write()
        for _ in range(STEPS):
            history.numbers.choice(history.steps)()
            history.check()
            assert reader.index.as_of is None or not history.invalid
