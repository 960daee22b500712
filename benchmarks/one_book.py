"""Costs of one book: changes, and gathering it from orders.

Each change sets, adds or removes one bid. *sortedcontainers* and *order-book (C)* change one structure in place; *dict
and sort* sums orders in dicts and sorts them once. Reading the price, finding its place, and creating the level, the
side and the book take two thirds of a change.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeAlias

import order_book as order_book_extension
from sortedcontainers import SortedDict

from benchmarks.books import book, price
from benchmarks.changes import changes
from benchmarks.measure import Group, Row, compared, interleaved
from market_index import Order, OrderBook, Side

CHANGES: Final = 200

Stream: TypeAlias = list[tuple[str, int]]
Top: TypeAlias = list[tuple[Decimal, int]]


def groups(*, quick: bool) -> dict[str, Group]:
    found: dict[str, Group] = {f"apply_{levels}": partial(applying, levels, quick=quick) for levels in (50, 500, 5_000)}
    found["gather"] = partial(gathering, quick=quick)
    return found


def applying(levels: int, *, quick: bool) -> Iterator[Row]:
    one = book(random.Random(8), levels)
    stream = changes(one, CHANGES)
    start = {level.price: level.accumulated_liquidity for level in one.bids}
    contenders = {
        "apply, bids[:20]": partial(with_apply, one, stream),
        "sortedcontainers": partial(with_sorted_dict, start, stream),
        "order-book (C)": partial(with_extension, start, stream),
    }
    first, *others = [contender() for contender in contenders.values()]
    assert all(first == other for other in others)
    seconds = interleaved(contenders, quick=quick, per=len(stream))
    work = f"one change, then the top 20, in {levels:,} levels"
    yield compared(work, "µs", seconds, "apply, bids[:20]", "sortedcontainers", scale=1e6)
    yield compared(work, "µs", seconds, "apply, bids[:20]", "order-book (C)", scale=1e6)


def with_apply(one: OrderBook, stream: Stream) -> Top:
    current, top = one, one.bids[:20]
    for change in stream:
        current = current.apply(bids=(change,))
        top = current.bids[:20]
    return [(level.price, level.accumulated_liquidity) for level in top]


def with_sorted_dict(start: dict[Decimal, int], stream: Stream) -> Top:
    current = SortedDict(start)
    top: Top = []
    for text, amount in stream:
        at = Decimal(text)
        if amount:
            current[at] = amount
        else:
            current.pop(at, None)
        top = current.items()[-20:]
    return top[::-1]


def with_extension(start: dict[Decimal, int], stream: Stream) -> Top:
    current = order_book_extension.OrderBook()
    for at, amount in start.items():
        current.bids[at] = amount
    top: Top = []
    for text, amount in stream:
        at = Decimal(text)
        if amount:
            current.bids[at] = amount
        elif at in current.bids:
            del current.bids[at]
        top = [current.bids.index(number) for number in range(min(20, len(current.bids)))]
    return top


def gathering(*, quick: bool) -> Iterator[Row]:
    numbers = random.Random(9)
    prices = [price(number) for number in numbers.sample(range(10**6, 10**8), 500)]
    of = book(numbers, 0).pair
    orders = [
        Order(of, Side.BID if at < 250 else Side.ASK, prices[at], numbers.randrange(1, 10**9))
        for at in (numbers.randrange(500) for _ in range(100_000))
    ]

    def with_dicts() -> Any:
        bids: dict[Decimal, int] = {}
        asks: dict[Decimal, int] = {}
        for order in orders:
            totals = bids if order.side is Side.BID else asks
            at: Any = order.price
            totals[at] = totals.get(at, 0) + order.amount
        return sorted(bids.items(), reverse=True), sorted(asks.items())

    gathered = OrderBook.from_orders(of, orders)
    assert with_dicts()[1] == [(level.price, level.accumulated_liquidity) for level in gathered.asks]
    contenders = {"from_orders": lambda: OrderBook.from_orders(of, orders), "dict and sort": with_dicts}
    seconds = interleaved(contenders, quick=quick)
    work = "gather 100,000 orders into 500 levels"
    yield compared(work, "ms", seconds, "from_orders", "dict and sort", scale=1e3)
