"""Costs of analyzing a book, compared with the loops of a user.

One side of 5,000 levels. *A loop of Decimal* and *a loop of Fraction* return only what was paid; *accumulate in
tuples* makes no object for a level.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Context, localcontext
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import Any, Final

from benchmarks.books import book
from benchmarks.measure import Group, Row, alone, compared, interleaved
from market_index import OrderBook, Side

LEVELS: Final = 5_000
EXACT: Final = Context(prec=128)


def groups(*, quick: bool) -> dict[str, Group]:
    one = partial(book, random.Random(10), LEVELS)
    return {
        "fill": lambda: filling(one(), quick=quick),
        "cumulative": lambda: totalling(one(), quick=quick),
    }


def filling(one: OrderBook, *, quick: bool) -> Iterator[Row]:
    total = one.cumulative(Side.ASK)[-1]
    plain = [(level.price, level.accumulated_liquidity) for level in one.asks]
    ratios = [(Fraction(price), amount) for price, amount in plain]

    def loop(levels: list[tuple[Any, int]], amount: int) -> Any:
        paid: Any = 0
        left = amount
        for price, liquidity in levels:
            taken = min(left, liquidity)
            paid += price * taken
            left -= taken
            if not left:
                break
        return paid

    def decimals(amount: int) -> Any:
        with localcontext(EXACT):
            return loop(plain, amount)

    for amount, share in ((total.base, "all"), (total.base // 100, "a hundredth")):
        assert one.simulate_fill(Side.ASK, amount).paid == decimals(amount) == loop(ratios, amount)
        contenders = {
            "fill": lambda amount=amount: one.simulate_fill(Side.ASK, amount),
            "a loop of Decimal": lambda amount=amount: decimals(amount),
            "a loop of Fraction": lambda amount=amount: loop(ratios, amount),
        }
        seconds = interleaved(contenders, quick=quick)
        work = f"simulated fill, {share} of {LEVELS:,} levels"
        yield compared(work, "ms", seconds, "fill", "a loop of Decimal", scale=1e3)
        yield compared(work, "ms", seconds, "fill", "a loop of Fraction", scale=1e3)
    quote = int(total.quote)
    took = interleaved({"fill": lambda: one.simulate_fill(Side.ASK, quote, "quote")}, quick=quick)["fill"]
    yield alone(f"simulated fill for quote units, all of {LEVELS:,} levels", "ms", took, scale=1e3)


def totalling(one: OrderBook, *, quick: bool) -> Iterator[Row]:
    plain = [(level.price, level.accumulated_liquidity) for level in one.asks]

    def tuples() -> Any:
        with localcontext(EXACT):
            bases = accumulate(amount for _, amount in plain)
            quotes = accumulate(price * amount for price, amount in plain)
            return [(price, base, quote) for (price, _), base, quote in zip(plain, bases, quotes, strict=True)]

    assert [(total.price, total.base, total.quote) for total in one.cumulative(Side.ASK)] == tuples()
    contenders = {
        "cumulative": lambda: one.cumulative(Side.ASK),
        "accumulate in tuples": tuples,
        "liquidity_within": lambda: one.liquidity_within(Side.ASK, "0.5"),
        "grouped": lambda: one.grouped("0.0001"),
    }
    seconds = interleaved(contenders, quick=quick)
    work, peer = f"cumulative, {LEVELS:,} levels", "accumulate in tuples"
    yield compared(work, "ms", seconds, "cumulative", peer, scale=1e3)
    yield alone(
        f"liquidity_within half of the midpoint, {LEVELS:,} levels", "ms", seconds["liquidity_within"], scale=1e3
    )
    yield alone(f"grouped, both sides of {LEVELS:,} levels", "ms", seconds["grouped"], scale=1e3)
