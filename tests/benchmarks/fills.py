"""What it costs to read a book as a trader does, beside the loops that a user would write; and to draw any book."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from decimal import Context, localcontext
from fractions import Fraction
from itertools import accumulate
from statistics import median
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from market_index import OrderBook, Side, strategies
from tests.benchmarks.books import book
from tests.benchmarks.figures import Row, alone, bounded, compared, interleaved

LEVELS = 5_000
EXACT = Context(prec=128)


def rows(*, quick: bool) -> Iterator[Row]:
    rounds = 5 if quick else 15
    one = book(random.Random(10), LEVELS)
    yield from filling(one, rounds)
    yield from totalling(one, rounds)
    yield from drawing(rounds, 100 if quick else 200)


def filling(one: OrderBook, rounds: int) -> Iterator[Row]:
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
        seconds = interleaved(contenders, rounds, times=3)
        work = f"fill, {share} of {LEVELS:,} levels"
        for peer in ("a loop of Decimal", "a loop of Fraction"):
            yield compared(work, "ms", seconds, "fill", peer, scale=1e3)
    quote = int(total.quote)
    took = interleaved({"fill": lambda: one.simulate_fill(Side.ASK, quote, "quote")}, rounds, times=3)["fill"]
    yield alone(f"fill for quote units, all of {LEVELS:,} levels", "ms", took, scale=1e3)


def totalling(one: OrderBook, rounds: int) -> Iterator[Row]:
    plain = [(level.price, level.accumulated_liquidity) for level in one.asks]

    def tuples() -> Any:
        with localcontext(EXACT):
            bases = accumulate(amount for _, amount in plain)
            quotes = accumulate(price * amount for price, amount in plain)
            return [(price, base, quote) for (price, _), base, quote in zip(plain, bases, quotes, strict=True)]

    assert [(total.price, total.base, total.quote) for total in one.cumulative(Side.ASK)] == tuples()
    contenders = {
        "cumulative": lambda: one.cumulative(Side.ASK),
        "accumulate, in tuples": tuples,
        "liquidity_within": lambda: one.liquidity_within(Side.ASK, "0.5"),
        "grouped": lambda: one.grouped("0.0001"),
    }
    seconds = interleaved(contenders, rounds, times=3)
    yield compared(f"cumulative, {LEVELS:,} levels", "ms", seconds, "cumulative", "accumulate, in tuples", scale=1e3)
    yield alone(
        f"liquidity_within half of the midpoint, {LEVELS:,} levels", "ms", seconds["liquidity_within"], scale=1e3
    )
    yield alone(f"grouped, both sides of {LEVELS:,} levels", "ms", seconds["grouped"], scale=1e3)


def drawing(rounds: int, count: int) -> Iterator[Row]:
    hundred = strategies.order_books(min_levels=50, max_levels=50)
    contenders: dict[str, st.SearchStrategy[Any]] = {
        "draw a default book": strategies.order_books(),
        "draw a book of 50 levels a side": hundred,
        "draw an asset id": strategies.asset_ids(),
        "draw a price": strategies.prices(),
        "draw an index": strategies.market_indexes(),
        "draw an integer (Hypothesis itself)": st.integers(0, 2**64),
    }
    medians: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, strategy in contenders.items():
            medians[name].append(median(drawn(strategy, count // 8 if strategy is hundred else count)))
    for name, seconds in medians.items():
        if name == "draw a default book":
            yield bounded(name, "µs", seconds, 1_000, scale=1e6)
        else:
            yield alone(name, "µs", seconds, scale=1e6)


def drawn(strategy: st.SearchStrategy[Any], count: int) -> list[float]:
    """Return the seconds that each of so many draws took."""
    seconds: list[float] = []

    @settings(
        database=None,
        max_examples=count,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def each(data: st.DataObject) -> None:
        begun = time.perf_counter()
        data.draw(strategy)
        seconds.append(time.perf_counter() - begun)

    each()
    return seconds
