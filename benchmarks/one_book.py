"""Costs of one book: changes, and gathering it from orders.

Each change sets, adds or removes one bid; its price is a text. *sortedcontainers* and *order-book (C)* change one
structure in place. *Decimal and bisect* copies a dict and a list of prices, and changes the copies. *dict and sort*
sums orders in dicts and sorts them once. None of them validates. Reading the price, finding its place, and creating the
level, the side and the book take two thirds of a change.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeAlias

import order_book as order_book_extension
from sortedcontainers import SortedDict

from benchmarks.books import book, price
from benchmarks.measure import Group, Row, compared, interleaved
from market_index import Order, OrderBook, Side

CHANGES: Final = 200

Stream: TypeAlias = list[tuple[str, int]]

TOP, BEST = "the top 20", "the best bid"

READ: Final[dict[str, tuple[Callable[[OrderBook], Any], Callable[[Any], Any]]]] = {
    TOP: (lambda one: list(one.bids[:20]), lambda side: side.items()[-20:]),
    BEST: (lambda one: [one.best_bid], lambda side: [side.peekitem()]),
}
"""What is read after each change: from our book, and from the side of sortedcontainers."""


def groups(*, quick: bool) -> dict[str, Group]:
    cases = {f"apply_{levels}": (levels, TOP) for levels in (50, 500, 5_000)} | {"best_bid": (500, BEST)}
    found: dict[str, Group] = {name: partial(applying, *case, quick=quick) for name, case in cases.items()}
    found["apply_100"] = partial(applying_many, quick=quick)
    found["gather"] = partial(gathering, quick=quick)
    return found


def changes(one: OrderBook, count: int) -> Stream:
    """Return changes of bids: half new amounts, a quarter removals, a quarter new prices; the depth hardly changes."""
    numbers = random.Random(7)
    prices = [str(level.price) for level in one.bids]
    depth = len(prices)
    stream: Stream = []
    while len(stream) < count:
        kind, at = numbers.random(), numbers.randrange(len(prices))
        if kind < 0.5:
            stream.append((prices[at], numbers.randrange(1, 10**12)))
        elif kind < 0.75 and len(prices) > 0.9 * depth:
            prices[at], prices[-1] = prices[-1], prices[at]
            stream.append((prices.pop(), 0))
        elif len(prices) < 1.1 * depth:
            prices.append(price(numbers.randrange(10**5, 10**8)))
            stream.append((prices[-1], numbers.randrange(1, 10**12)))
    # New texts, so that nothing is cached for them.
    return [("".join(text), amount) for text, amount in stream]


def applying(levels: int, what: str, *, quick: bool) -> Iterator[Row]:
    one = book(random.Random(8), levels)
    stream = changes(one, CHANGES)
    start = {level.price: level.accumulated_liquidity for level in one.bids}
    read, read_theirs = READ[what]
    peers = {"sortedcontainers": partial(with_sorted_dict, start, stream, read_theirs)}
    if what == TOP:
        peers["order-book (C)"] = partial(with_extension, start, stream)
    ours = partial(with_apply, one, stream, read)
    found = sorted((level.price, level.accumulated_liquidity) for level in ours())
    assert all(found == sorted(peer()) for peer in peers.values())
    seconds = interleaved({"apply": ours, **peers}, quick=quick, per=len(stream))
    for peer in peers:
        yield compared(f"one change, then {what}, in {levels:,} levels", "µs", seconds, "apply", peer, scale=1e6)


def with_apply(one: OrderBook, stream: Stream, read: Callable[[OrderBook], Any]) -> Any:
    current, found = one, None
    for change in stream:
        current = current.apply(bids=(change,))
        found = read(current)
    return found


def with_sorted_dict(start: dict[Decimal, int], stream: Stream, read: Callable[[Any], Any]) -> Any:
    current, found = SortedDict(start), None
    for text, amount in stream:
        at = Decimal(text)
        if amount:
            current[at] = amount
        else:
            current.pop(at, None)
        found = read(current)
    return found


def with_extension(start: dict[Decimal, int], stream: Stream) -> Any:
    current, found = order_book_extension.OrderBook(), None
    for at, amount in start.items():
        current.bids[at] = amount
    for text, amount in stream:
        at = Decimal(text)
        if amount:
            current.bids[at] = amount
        elif at in current.bids:
            del current.bids[at]
        found = [current.bids.index(number) for number in range(min(20, len(current.bids)))]
    return found


def applying_many(*, quick: bool) -> Iterator[Row]:
    one = book(random.Random(4), 5_000)
    stream = changes(one, 100)
    amounts = {level.price: level.accumulated_liquidity for level in one.bids}
    rising = sorted(amounts)

    def with_bisect() -> Any:
        changed, prices = amounts.copy(), rising.copy()
        for text, amount in stream:
            at = Decimal(text)
            if amount and at not in changed:
                insort(prices, at)
            elif not amount and at in changed:
                del prices[bisect_left(prices, at)]
            if amount:
                changed[at] = amount
            else:
                changed.pop(at, None)
        return prices

    assert with_bisect() == list(one.apply(bids=stream).bids.prices)[::-1]
    contenders = {"apply": lambda: one.apply(bids=stream), "Decimal and bisect": with_bisect}
    seconds = interleaved(contenders, quick=quick)
    yield compared("100 changes in 5,000 levels", "µs", seconds, "apply", "Decimal and bisect", scale=1e6)


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
