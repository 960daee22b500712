"""Decimal arithmetic that never rounds.

An operation uses the context `EXACT` explicitly, so the decimal context of the caller's thread has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact, InvalidOperation
from typing import Final

# No result is longer. A price times an amount has 49 digits before the point and 28 after it. A sum over a million
# levels has 6 more. A ratio of the midpoint has 115 digits, a quote amount of 91 digits less the value of levels 119.
EXACT: Final = Context(
    prec=128,
    rounding=ROUND_HALF_EVEN,
    Emin=-999,
    Emax=127,
    capitals=1,
    clamp=1,
    flags=[],
    traps=[Inexact, InvalidOperation],
)
"""A context of 128 digits. An operation that would round raises `decimal.Inexact`.

With `clamp`, no result has an exponent above Emax - prec + 1, which is 0: `normalize` keeps zeros before the point.
"""

_ZERO: Final = Decimal(0)


def plain(number: Decimal) -> Decimal:
    """Return the number without trailing zeros and without a positive exponent, and zero as plain 0.

    >>> plain(Decimal("1.50E3")), plain(Decimal("-0.00"))
    (Decimal('1500'), Decimal('0'))
    """
    # A zero may be negative.
    return EXACT.normalize(number) or _ZERO


def plain_column(numbers: Iterable[Decimal]) -> Iterator[Decimal]:
    """Return what `plain` returns for each of the numbers, which must be 0 or more."""
    return map(EXACT.normalize, numbers)
