"""Decimal arithmetic: it never rounds, and each number has one plain form."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal, Inexact, InvalidOperation, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index.arithmetic import EXACT, plain, plain_column


@given(st.integers(-(10**40), 10**40), st.integers(-40, 40))
def test_a_plain_number_is_equal_and_has_no_trailing_zeros_after_the_point(coefficient: int, exponent: int):
    number = Decimal(coefficient).scaleb(exponent, EXACT)
    result = plain(number)
    _, digits, places = result.as_tuple()
    assert Fraction(result) == Fraction(number)
    assert places == 0 or (isinstance(places, int) and places < 0 and digits[-1] != 0)
    assert number < 0 or [*map(str, plain_column([number, number]))] == [str(result)] * 2


@pytest.mark.parametrize(
    ("number", "text"),
    [("1.50E3", "1500"), ("-0.00", "0"), ("1E+30", "1" + "0" * 30), ("2.500", "2.5"), ("-3.0", "-3")],
)
def test_equal_numbers_have_one_plain_form(number: str, text: str):
    assert str(plain(Decimal(number))) == text
    with localcontext(capitals=0):
        assert str(plain(Decimal(number))) == text


def test_an_operation_that_would_round_raises():
    largest = Decimal(10) ** 127
    assert EXACT.add(largest, Decimal(1)) == 10**127 + 1
    with pytest.raises(Inexact):
        EXACT.add(largest * 10, Decimal(1))
    with pytest.raises(Inexact):
        EXACT.divide(Decimal(1), Decimal(3))
    with pytest.raises(InvalidOperation):
        EXACT.subtract(Decimal("Infinity"), Decimal("Infinity"))


def test_the_decimal_context_of_the_program_has_no_effect():
    script = """
import decimal
decimal.DefaultContext.Emax = decimal.DefaultContext.prec = 3
decimal.DefaultContext.Emin = -3
decimal.DefaultContext.rounding = decimal.ROUND_FLOOR
from market_index import ADA, AssetId, OrderBook, Pair
pair = Pair(AssetId(bytes(28), b""), ADA)
print(OrderBook.from_levels(pair, [("1e25", 1)], [("2.00005e25", 1)]).mid)
print(OrderBook.from_levels(pair, [("1e-25", 1)], [("1e-25", 1)]).spread)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["15000250000000000000000000", "0"]
