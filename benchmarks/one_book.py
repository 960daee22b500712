"""Costs of one book: changes, and gathering it from orders.

Each change sets, adds or removes one bid; its price is a text. *sortedcontainers* and *order-book (C)* change one
structure in place. *Decimal and bisect* copies a dict and a list of prices, and changes the copies. *dict and sort*
sums orders in dicts and sorts them once. None of them validates. Reading the price, finding its place, and creating the
level, the side and the book take two thirds of a change.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
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
    found["best_bid"] = partial(following_the_best_bid, quick=quick)
    found["apply_100"] = partial(applying_many, quick=quick)
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


def following_the_best_bid(*, quick: bool) -> Iterator[Row]:
    one = book(random.Random(8), 500)
    stream = changes(one, CHANGES)
    start = {level.price: level.accumulated_liquidity for level in one.bids}

    def with_ours() -> Any:
        current, best = one, one.best_bid
        for change in stream:
            current = current.apply(bids=(change,))
            best = current.best_bid
        return best and (best.price, best.accumulated_liquidity)

    def with_theirs() -> Any:
        current = SortedDict(start)
        best = None
        for text, amount in stream:
            at = Decimal(text)
            if amount:
                current[at] = amount
            else:
                current.pop(at, None)
            best = current.peekitem()
        return best

    assert with_ours() == with_theirs()
    seconds = interleaved({"apply": with_ours, "sortedcontainers": with_theirs}, quick=quick, per=len(stream))
    yield compared(
        "one change, then the best bid, in 500 levels", "µs", seconds, "apply", "sortedcontainers", scale=1e6
    )


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
