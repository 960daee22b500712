"""Recorded levels, split at random into orders by id: after each block the index equals a gathering of all orders.

The model has orders in dicts, and level prices as integers in units of 10^-28, rounded from `Fraction`. After each
block it gathers the changed books from all their orders. Every 20 blocks, and after each rollback, it gathers all.
"""

from __future__ import annotations

import gzip
import json
import os
import random
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache
from math import ceil, floor
from pathlib import Path

import pytest
from attrs import frozen

from market_index import ADA, AssetId, Order, OrderBook, Pair, RestingOrders, Side

LIMIT = 2**64 - 1
OPERATIONS = int(os.environ.get("MARKET_INDEX_OPERATIONS", "10000"))
"""For each of four seeds; `make test-faults` runs a million in all."""
UNITS = 10**28
SIDES = {"bids": Side.BID, "asks": Side.ASK}
SATURATED = "SKL-BTC"
"""A product whose amounts are scaled so that half of its changes are to totals above 2^64-1."""
RETAINED_BLOCKS = 100


@frozen(cache_hash=True)
class Level:
    """One price of one side of a pair."""

    pair: Pair
    side: Side
    price: Fraction


@frozen
class Message:
    """One line of the stream: the next totals of some levels. A snapshot has all levels of its pair."""

    pair: Pair
    is_snapshot: bool
    totals: dict[Level, int]


Operation = tuple[str, Order | None]
"""An order id, and its order from then on; None if it is removed."""


def messages_of(path: Path) -> list[Message]:
    messages = []
    with gzip.open(path, "rt") as lines:
        for line in map(json.loads, lines):
            pair = Pair(AssetId(bytes(28), line["product"].encode()), ADA)
            scale = 4 * 10**15 if line["product"] == SATURATED else 10**8
            totals = {
                Level(pair, side, Fraction(price)): int(Fraction(size) * scale)
                for name, side in SIDES.items()
                for price, size in line[name]
            }
            messages.append(Message(pair, line["snapshot"], totals))
    return messages


@cache
def decimal_of(price: int) -> Decimal:
    whole, fraction = divmod(price, UNITS)
    return Decimal(f"{whole}.{fraction:028}".rstrip("0").rstrip("."))


class Model:
    """The resting orders by id, by level and by pair, in plain dicts."""

    def __init__(self) -> None:
        self.levels: dict[str, tuple[Level, Order]] = {}
        self.at: defaultdict[Level, dict[str, int]] = defaultdict(dict)
        self.by_pair: defaultdict[Pair, dict[str, tuple[Side, int, int]]] = defaultdict(dict)

    def set(self, order_id: str, level: Level, order: Order | None) -> tuple[str, Level, Order | None]:
        """Place or remove an order, and return the arguments that undo it."""
        before = self.levels.pop(order_id, None)
        if before:
            del self.at[before[0]][order_id], self.by_pair[before[0].pair][order_id]
        if order:
            self.levels[order_id] = level, order
            self.at[level][order_id] = order.amount
            price = Fraction(order.price) * UNITS
            rounded = floor(price) if order.side is Side.BID else ceil(price)
            self.by_pair[level.pair][order_id] = order.side, rounded, order.amount
        return (order_id, *before) if before else (order_id, level, None)

    def gathered(self, pair: Pair, spot: str | None) -> OrderBook:
        totals: dict[Side, defaultdict[int, int]] = {side: defaultdict(int) for side in Side}
        for side, price, amount in self.by_pair[pair].values():
            totals[side][price] += amount
        bids, asks = (
            [(decimal_of(price), min(total, LIMIT)) for price, total in sorted(totals[side].items())]
            for side in (Side.BID, Side.ASK)
        )
        return OrderBook.from_levels(pair, bids, asks, spot)


class Exchange:
    """Changes orders at random until a level has a given total: placements, partial fills, removals."""

    def __init__(self, numbers: random.Random) -> None:
        self.model = Model()
        self.journal: list[tuple[str, Level, Order | None]] = []
        self._numbers = numbers
        self._used_ids: list[str] = []
        self._placed = 0

    def reach(self, level: Level, total: int) -> Iterator[Operation]:
        """Change orders of the level until they have this total, and yield each change."""
        numbers, resting = self._numbers, self.model.at[level]
        changed, unchanged = self._chosen(resting, total)
        if numbers.random() < 0.1:
            # An order that no block ends with.
            passing = self._new_id()
            yield from self._set(passing, level, numbers.randrange(100))
            changed.append(passing)
        for order_id in [one for one in changed if numbers.random() < 0.4]:
            changed.remove(order_id)
            self._used_ids.append(order_id)
            yield from self._set(order_id, level, None)
        left = total - sum(resting[order_id] for order_id in unchanged)
        for order_id in changed + [self._new_id() for _ in range(numbers.randrange(3))]:
            amount = min(numbers.randrange(left + 1), LIMIT)
            yield from self._set(order_id, level, amount)
            left -= amount
        while left:
            amount = min(left, LIMIT)
            yield from self._set(self._new_id(), level, amount)
            left -= amount
        assert sum(resting.values()) == total

    def _chosen(self, resting: dict[str, int], total: int) -> tuple[list[str], list[str]]:
        """Return the ids that change, and those that stay, whose total is no more than that."""
        numbers = self._numbers
        changed = numbers.sample(list(resting), min(len(resting), numbers.randrange(4)))
        unchanged = [order_id for order_id in resting if order_id not in changed]
        while sum(resting[order_id] for order_id in unchanged) > total:
            changed.append(unchanged.pop())
        return changed, unchanged

    def _set(self, order_id: str, level: Level, amount: int | None) -> Iterator[Operation]:
        order = None if amount is None else Order(level.pair, level.side, self._near(level), amount)
        self.journal.append(self.model.set(order_id, level, order))
        yield order_id, order

    def _near(self, level: Level) -> Fraction:
        """Return the price of the level, or a ratio that is rounded to it."""
        if level.price > 7 or self._numbers.random() < 0.5:
            return level.price
        better = Fraction(self._numbers.randrange(1, 1_000), 1_001 * UNITS)
        return level.price + better if level.side is Side.BID else level.price - better

    def _new_id(self) -> str:
        # Sometimes an id that was used before, at another level or in another pair.
        if self._used_ids and self._numbers.random() < 0.3:
            order_id = self._used_ids.pop()
            if order_id not in self.model.levels:
                return order_id
        self._placed += 1
        return f"{self._numbers.randbytes(4).hex()}#{self._placed}"


@frozen
class Block:
    """The state after a block, and the changes that undo the block."""

    resting: RestingOrders
    books: dict[Pair, OrderBook]
    spots: dict[Pair, str | None]
    position: int
    journal: list[tuple[str, Level, Order | None]]


class Replay:
    """Replays the messages in blocks of random size, with rollbacks of random depth, and compares after each."""

    def __init__(self, messages: list[Message], numbers: random.Random) -> None:
        self.messages, self.numbers, self.exchange = messages, numbers, Exchange(numbers)
        self.operations = self.blocks = self.rollbacks = self.position = 0
        self.resting = RestingOrders()
        self.books: dict[Pair, OrderBook] = {}
        self.spots: dict[Pair, str | None] = {}
        self.history = deque([Block(self.resting, self.books, self.spots, 0, [])], RETAINED_BLOCKS)

    def run(self, count: int) -> None:
        while self.operations < count:
            self.add_block()
            # Not among the first blocks, because snapshots of all levels would repeat.
            if len(self.history) > 10 and self.numbers.random() < 0.1:
                self.roll_back()
        self.compare_all()

    def add_block(self) -> None:
        exchange, numbers = self.exchange, self.numbers
        self.blocks += 1
        as_of = f"block {self.blocks}"
        operations = [one for level, total in self.next_totals() for one in exchange.reach(level, total)]
        self.operations += len(operations)
        changed = {level.pair for _, level, _ in exchange.journal}
        changed |= {order.pair for _, order in operations if order}
        spots = {pair: numbers.choice([None, "0.5", "7"]) for pair in changed if numbers.random() < 0.1}
        self.resting = self.applied(operations, spots, as_of)
        self.spots = self.spots | spots
        books = {pair: exchange.model.gathered(pair, self.spots.get(pair)) for pair in changed}
        self.books = self.books | books
        assert {pair: self.resting.index[pair] for pair in books} == books
        assert self.resting.index.as_of == as_of
        self.history.append(Block(self.resting, self.books, self.spots, self.position, exchange.journal))
        exchange.journal = []
        if self.blocks % 20 == 0:
            self.compare_all()

    def next_totals(self) -> Iterator[tuple[Level, int]]:
        """Yield the totals of the next messages, in a cycle. A snapshot replaces all levels."""
        for _ in range(self.numbers.choice([1, 3, 10, 30, 100])):
            message = self.messages[self.position % len(self.messages)]
            self.position += 1
            if message.is_snapshot:
                yield from [(level, 0) for level in self.exchange.model.at if level.pair == message.pair]
            yield from message.totals.items()

    def applied(self, operations: list[Operation], spots: dict[Pair, str | None], as_of: str) -> RestingOrders:
        """Return the orders after all operations, applied one by one or as one net change."""
        resting = self.resting
        if self.numbers.random() < 0.5:
            for order_id, order in operations:
                resting = resting.apply({order_id: order}) if order else resting.apply(removed=[order_id])
            return resting.apply(spots=spots, as_of=as_of)
        placed: dict[str, Order] = {}
        removed = set()
        for order_id, order in operations:
            if order:
                placed[order_id] = order
            else:
                placed.pop(order_id, None)
                removed.add(order_id)
        return resting.apply(placed, [one for one in removed if one in resting], spots, as_of)

    def roll_back(self) -> None:
        self.rollbacks += 1
        # Half of them are of one block, one in 100 is of all that are retained.
        for _ in range(min(int(self.numbers.paretovariate(1)), len(self.history) - 1)):
            for change in reversed(self.history.pop().journal):
                self.exchange.model.set(*change)
        block = self.history[-1]
        self.resting, self.books, self.spots, self.position = block.resting, block.books, block.spots, block.position
        self.compare_all()

    def compare_all(self) -> None:
        model = self.exchange.model
        gathered = {pair: model.gathered(pair, self.spots.get(pair)) for pair in self.books}
        assert self.resting.index == gathered == self.books
        assert self.resting == {order_id: order for order_id, (_, order) in model.levels.items()}


def recorded_totals(messages: Iterable[Message]) -> dict[Level, int]:
    totals: dict[Level, int] = {}
    for message in messages:
        if message.is_snapshot:
            totals = {level: total for level, total in totals.items() if level.pair != message.pair}
        totals |= message.totals
    return {level: min(total, LIMIT) for level, total in totals.items() if total}


def test_after_each_block_and_each_rollback_the_index_equals_a_gathering(recorded_level_changes: Path):
    messages = [one for one in messages_of(recorded_level_changes) if one.pair.base.asset_name == SATURATED.encode()]
    assert_equal_to_a_gathering(messages, random.Random(0), 3_000)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_many_operations_on_all_pairs(seed: int, recorded_level_changes: Path):
    assert_equal_to_a_gathering(messages_of(recorded_level_changes), random.Random(seed), OPERATIONS)


def assert_equal_to_a_gathering(messages: list[Message], numbers: random.Random, count: int) -> None:
    replay = Replay(messages, numbers)
    replay.run(count)
    assert replay.operations >= count
    found = {
        Level(pair, levels.side, Fraction(level.price)): level.accumulated_liquidity
        for pair, book in replay.resting.index.items()
        for levels in (book.bids, book.asks)
        for level in levels
    }
    turns, at = divmod(replay.position, len(messages))
    assert found == recorded_totals(messages * turns + messages[:at])
