"""Costs of analyzing one side of 5,000 levels, compared with the loops of a user.

*A loop of Decimal* returns only what was paid; *accumulate in tuples* makes no object for a level.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Context, Decimal, localcontext
from itertools import accumulate
from typing import Any, Final

from benchmarks.books import book
from benchmarks.measure import Group, Row, compared, interleaved
from market_index import OrderBook, Side

LEVELS: Final = 5_000
EXACT: Final = Context(prec=128)


def groups(*, quick: bool) -> dict[str, Group]:
    return {"sides": lambda: sides(book(random.Random(10), LEVELS), quick=quick)}


def sides(one: OrderBook, *, quick: bool) -> Iterator[Row]:
    total = one.cumulative(Side.ASK)[-1]
    plain = [(level.price, level.accumulated_liquidity) for level in one.asks]

    def loop(amount: int) -> Decimal:
        paid, left = Decimal(0), amount
        with localcontext(EXACT):
            for price, liquidity in plain:
                taken = min(left, liquidity)
                paid += price * taken
                left -= taken
                if not left:
                    break
        return paid

    def tuples() -> Any:
        with localcontext(EXACT):
            bases = accumulate(amount for _, amount in plain)
            quotes = accumulate(price * amount for price, amount in plain)
            return [(price, base, quote) for (price, _), base, quote in zip(plain, bases, quotes, strict=True)]

    for amount, share in ((total.base, "all"), (total.base // 100, "a hundredth")):
        assert one.buy(amount).paid == loop(amount)
        contenders = {
            "fill": lambda amount=amount: one.buy(amount),
            "a loop of Decimal": lambda amount=amount: loop(amount),
        }
        seconds = interleaved(contenders, quick=quick)
        yield compared(
            f"simulated fill, {share} of {LEVELS:,} levels", "ms", seconds, "fill", "a loop of Decimal", scale=1e3
        )
    assert [(total.price, total.base, total.quote) for total in one.cumulative(Side.ASK)] == tuples()
    ours, peer = "cumulative", "accumulate in tuples"
    seconds = interleaved({ours: lambda: one.cumulative(Side.ASK), peer: tuples}, quick=quick)
    yield compared(f"cumulative, {LEVELS:,} levels", "ms", seconds, ours, peer, scale=1e3)
