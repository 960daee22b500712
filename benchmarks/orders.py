"""Orders by id: a placement, and events until they are served.

756 pairs, prices that are ratios. *Totals, sort touched sides* has totals of each side in plain dicts; it validates
nothing, has neither books nor an index, and keeps no earlier version.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from benchmarks.books import pair
from benchmarks.measure import Group, Row, alone, compared, interleaved
from market_index import Order, Pair, RestingOrders, Side
from tests.command import running
from tests.service import Service

PAIRS: Final = 756
CHANGES: Final = 200
OURS, SORTED = "RestingOrders", "totals, sort touched sides"

Changes = tuple[dict[str, Order], list[str]]
"""The placed orders by id, and the removed ids."""


def groups(*, quick: bool) -> dict[str, Group]:
    counts = (1_000, 100_000) if quick else (1_000, 100_000, 1_000_000)
    return {
        **{f"place_{count}": partial(placing, count, quick=quick) for count in counts},
        "events": partial(serving, 20_000 if quick else 100_000, 3 if quick else 5),
    }


# The orders


def made_up_order(numbers: random.Random, of: Pair) -> Order:
    """Return an order at a ratio of two amounts near the midpoint of its pair, as on the ledger."""
    base = numbers.randrange(10**6, 10**10)
    share = numbers.randrange(800, 1_000) / 1_000
    side = numbers.choice(list(Side))
    quote = int(base * (share if side is Side.BID else 1 / share)) // 50 + 1
    return Order(of, side, Fraction(quote, base), base)


def made_up_orders(count: int, seed: int = 1) -> dict[str, Order]:
    numbers = random.Random(seed)
    pairs = [pair(numbers) for _ in range(PAIRS)]
    return {
        f"{numbers.randbytes(32).hex()}#{at % 5}": made_up_order(numbers, numbers.choice(pairs)) for at in range(count)
    }


def made_up_changes(orders: Mapping[str, Order], count: int, numbers: random.Random) -> Changes:
    """Return a block: 40 % placements, 40 % removals, 20 % partial fills."""
    ids = numbers.sample(list(orders), count * 3 // 5)
    removed, filled = ids[: count * 2 // 5], ids[count * 2 // 5 :]
    placed = {
        f"{numbers.randbytes(32).hex()}#0": made_up_order(numbers, orders[one].pair)
        for one in numbers.sample(list(orders), count - len(ids))
    }
    fills = {one: evolve(orders[one], amount=orders[one].amount // 2) for one in filled}
    return placed | fills, removed


# The contenders


class Sorting:
    """Totals in a dict per side; each touched side is sorted. The levels are pairs of price and amount."""

    def __init__(self, orders: Mapping[str, Order]) -> None:
        self.orders: dict[str, Order] = {}
        self.totals: dict[tuple[Pair, Side], dict[Decimal, int]] = {}
        self.levels: dict[tuple[Pair, Side], list[tuple[Decimal, int]]] = {}
        self.place(orders)

    def place(self, placed: Mapping[str, Order]) -> None:
        touched = set()
        for order_id, order in placed.items():
            before = self.orders.get(order_id)
            if before is not None:
                touched.add(self._add(before, -1))
            self.orders[order_id] = order
            touched.add(self._add(order, 1))
        for side in touched:
            self.levels[side] = sorted(self.totals[side].items(), reverse=side[1] is Side.BID)

    def _add(self, order: Order, sign: int) -> tuple[Pair, Side]:
        side = order.pair, order.side
        totals, price = self.totals.setdefault(side, {}), order.level_price
        total = totals.get(price, 0) + sign * order.amount
        if total:
            totals[price] = total
        else:
            del totals[price]
        return side


def assert_same(resting: RestingOrders, sorting: Sorting) -> None:
    for (of, side), levels in sorting.levels.items():
        book = resting.index[of]
        found = book.bids if side is Side.BID else book.asks
        assert [(one.price, one.accumulated_liquidity) for one in found] == levels


# What is measured


def placing(count: int, *, quick: bool) -> Iterator[Row]:
    """Each placement is undone in the peers, which takes negligible time in a dict."""
    orders = made_up_orders(count)
    resting, sorting = RestingOrders(orders), Sorting(orders)
    numbers = random.Random(2)
    pairs = numbers.choices(list(resting.index), k=50)
    placed = [{f"{numbers.randbytes(32).hex()}#0": made_up_order(numbers, one)} for one in pairs]

    def ours() -> Any:
        current = resting
        for one in placed:
            current = current.apply(one)
        return current

    def theirs() -> None:
        for one in placed:
            sorting.place(one)

    contenders = {OURS: ours, SORTED: theirs}
    seconds = interleaved(contenders, quick=quick, per=len(placed))
    assert_same(ours(), sorting)
    work = f"place one order among {count:,}"
    yield compared(work, "µs", seconds, OURS, SORTED, scale=1e6)


# From standard input to the served book


def placed_line(order_id: str, order: Order) -> str:
    """Return the event that places an order."""
    is_ask, price = order.side is Side.ASK, Fraction(order.price)
    asked, offered = price.as_integer_ratio() if is_ask else (1 / price).as_integer_ratio()
    values = {
        "place": order_id,
        "base": str(order.pair.base),
        "quote": str(order.pair.quote),
        "offered": "base" if is_ask else "quote",
        "amount": order.amount if is_ask else -(-order.amount * price.numerator // price.denominator),
        "price": f"{asked}/{offered}",
    }
    return json.dumps(values)


def block_lines(changes: Changes, text: str) -> list[str]:
    """Return the events of a block."""
    placed, removed = changes
    lines = [json.dumps({"remove": order_id}) for order_id in removed]
    return [*lines, *(placed_line(*one) for one in placed.items()), json.dumps({"block": text})]


def serving(count: int, rounds: int) -> Iterator[Row]:
    """From the first byte until a response has the `as_of` of the last block: all orders in one block, then in many."""
    orders, blocks = made_up_orders(count), count // CHANGES
    first = ['{"reset":true}', *block_lines((orders, []), "0")]
    stream: list[str] = []
    current, numbers = RestingOrders(orders), random.Random(6)
    for number in range(1, blocks + 1):
        sample = numbers.sample(list(orders), 2 * CHANGES)
        changes = made_up_changes({one: current[one] for one in sample if one in current}, CHANGES, numbers)
        current = current.apply(*changes)
        stream += block_lines(changes, str(number))
    rates: dict[str, list[float]] = {"first": [], "stream": [], "json.loads": []}
    for _ in range(rounds):
        for name, seconds in zip(rates, served(first, stream, str(blocks)), strict=True):
            rates[name].append((len(first) if name == "first" else len(stream)) / seconds)
    work = f"{len(stream):,} events in blocks of {CHANGES}, from standard input to the served book"
    yield compared(work, "/s", rates, "stream", "json.loads")
    yield alone(f"the first {len(first):,} events, with the start of the process", "/s", rates["first"])


def served(first: list[str], stream: list[str], last: str) -> tuple[float, float, float]:
    """Return the seconds until the first block is served, then the last one; and those of `json.loads` alone."""
    reading, writing = os.pipe()
    with (
        tempfile.TemporaryDirectory() as folder,
        os.fdopen(writing, "wb") as pipe,
        running(Path(folder), "orders:-", "--port", 0, stdin=reading) as command,
    ):
        os.close(reading)
        begun = time.perf_counter()
        pipe.write("\n".join([*first, ""]).encode())
        pipe.flush()
        service = command.service
        until_as_of(service, "0")
        until_first = time.perf_counter() - begun
        content = "\n".join([*stream, ""]).encode()
        begun = time.perf_counter()
        pipe.write(content)
        pipe.flush()
        until_as_of(service, last)
        until_last = time.perf_counter() - begun
    begun = time.perf_counter()
    for line in stream:
        json.loads(line)
    return until_first, until_last, time.perf_counter() - begun


def until_as_of(service: Service, text: str) -> None:
    while service.request("/trading-view/pair-list", "HEAD").headers.get("market-index-as-of") != text:
        time.sleep(0.005)
