"""Arithmetic on decimals that never rounds, whatever the decimal context of the caller's thread."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact, InvalidOperation
from typing import Final

# A price times an amount has 49 digits before the point and 28 behind it, and their sum over a million levels 6 more. A
# share of the midpoint has 115 in all. An amount of up to 91 digits, less what levels are worth, has 119.
EXACT: Final = Context(
    prec=128,
    rounding=ROUND_HALF_EVEN,
    Emin=-999,
    Emax=999,
    capitals=1,
    clamp=0,
    flags=[],
    traps=[Inexact, InvalidOperation],
)
"""For numbers of 128 digits at most; an operation that would round raises `decimal.Inexact`."""


_ZERO: Final = Decimal(0)


def plain(number: Decimal) -> Decimal:
    """Return the number without trailing zeros and without a positive exponent, and zero as plain 0.

    >>> plain(Decimal("1.50E3")), plain(Decimal("-0.00"))
    (Decimal('1500'), Decimal('0'))
    """
    # The sum has the smaller of the two exponents.
    return EXACT.add(EXACT.normalize(number), _ZERO)
