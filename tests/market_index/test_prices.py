"""Prices: one text per price, the bounds, rounding to the nearest price, and no expensive rejections."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal, Inexact, getcontext, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from market_index import InvalidPrice, PriceOutOfRange, Side, format_price, parse_price
from market_index.errors import safe_repr
from market_index.prices import (
    EXACT,
    parse_prices,
    plain,
    price_for_takers,
    to_price,
    to_price_or_ratio,
    to_ratio,
)
from market_index.strategies import prices, ratios
from tests.market_index.invalid_texts import invalid_price_texts
from tests.market_index.models import LARGEST_COEFFICIENT, MisreportingDecimal, representable
from tests.oracles import grammar
from tests.oracles.comparison import compared, fixed_point, outcome


def read_in_each_way(text: str) -> Decimal:
    """Return the price of a text, which each parser reads. Raises their error, which is the same."""
    found: list[Decimal | InvalidPrice] = []
    for read in (
        parse_price,
        to_price,
        lambda text: parse_prices(["1", text])[0][1],
        lambda text: parse_prices([text])[0][0],
    ):
        try:
            found.append(read(text))
        except InvalidPrice as error:
            found.append(error)
    assert len({(type(one), str(one)) for one in found}) == 1
    if isinstance(found[0], InvalidPrice):
        raise found[0]
    return found[0]


@st.composite
def spellings(draw: st.DrawFn) -> str:
    """Draw texts of prices: canonical, with additional zeros, with a final point, or with an exponent."""
    text = format(draw(prices()), "f")
    with_point = text if "." in text else f"{text}."
    padded = f"{'0' * draw(st.integers(0, 3))}{with_point}{'0' * draw(st.integers(0, 3))}"
    whole, _, fraction = with_point.partition(".")
    return draw(st.sampled_from([text, padded, f"{whole}{fraction}e-{len(fraction)}"]))


near_texts = st.text(alphabet="0012359..eE+-", max_size=9) | st.text(alphabet="019.eE+-_ \n٣２²", max_size=5)
texts = st.one_of(spellings(), spellings(), invalid_price_texts(), near_texts)


@pytest.mark.decision(3, 4, 5)
@given(texts)
@example("7e28")  # above 10^28 and below 2^96
@example("8e28")
@example("1E000000000000000000000000000002")
@example("0" * 500 + "1")
@example("1" + "0" * 40 + "e-40")
@example("0." + "0" * 39 + "1e40")
@example("0." + "0" * 27 + "1" + "0" * 500)
@example("7.9228162514264337593543950336")
@example("1" * 29 + ".1")
@example("1\n")
@example("\u0661")
@example("\ud800")
# Formatting or converting these would take minutes or all memory.
@example("1e1000000000")
@example("1e-1000000000")
@example("0e1000000000000000000000")
@example("1e" + "9" * 30)
@example("1" * 4_000)
def test_a_text_is_the_price_of_the_grammar_with_one_canonical_text(text: str):
    price = compared(read_in_each_way, grammar.price, fixed_point, text)
    if price is not None:
        assert format_price(Decimal(text)) == fixed_point(price)


@given(st.lists(texts, max_size=6))
@example(["1 2", "0.5"])
@example(["0.5 0.25"])
@example(["0.0000001"])
def test_a_column_of_prices_is_parsed_like_each_price_alone(column: list[str]):
    alone = outcome(lambda column: list(map(parse_price, column)), column, InvalidPrice)
    if isinstance(alone, InvalidPrice):  # of the first text that is not a price
        with pytest.raises(InvalidPrice, match=f"^{re.escape(str(alone))}$"):
            parse_prices(column)
        return
    found, keys = parse_prices(column)
    assert list(map(str, found)) == list(map(str, alone))
    assert keys is None or list(keys) == list(map(EXACT.to_sci_string, found))


@given(prices(), st.integers(1, 40))
def test_the_decimal_context_of_the_caller_has_no_effect(price: Decimal, precision: int):
    text = format_price(price)
    with localcontext() as context:
        context.prec = precision
        context.Emax, context.Emin = 1, -1
        context.capitals = 0
        context.traps = dict.fromkeys(context.traps, True)
        assert format_price(price) == text
        assert format_price(parse_price(text)) == text
    assert getcontext().prec == 28


@pytest.mark.decision(3)
@pytest.mark.parametrize(
    ("value", "rule"),
    [
        *[(Decimal(text), "be finite") for text in ("NaN", "sNaN", "Infinity")],
        *[(Decimal(text), grammar.NOT_POSITIVE) for text in ("-1", "0", "-0")],
        *[(Decimal(text), grammar.TOO_LARGE) for text in ("1e1000000", "1e100000000", str(LARGEST_COEFFICIENT + 1))],
        *[(Decimal(text), grammar.TOO_FINE) for text in ("1e-1000000", "1e-29")],
    ],
)
def test_a_decimal_out_of_range_is_rejected_with_the_rule(value: Decimal, rule: str):
    for read in (to_price, format_price):
        with pytest.raises(PriceOutOfRange) as raised:
            read(value)
        assert str(raised.value) == f"a price must {rule}, got {safe_repr(value)}"


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (0.1, r"float: 0\.1; pass '0\.1' or Decimal\('0\.1'\)"),
        (1, r"int: 1; pass '1' or Decimal\('1'\)"),
        (0, r"int: 0; pass a Decimal, or the text of one"),
        (LARGEST_COEFFICIENT, rf"int: {LARGEST_COEFFICIENT}; pass '{LARGEST_COEFFICIENT}' or Decimal"),
        (LARGEST_COEFFICIENT + 1, rf"int: {LARGEST_COEFFICIENT + 1}; pass a Decimal, or the text of one"),
        pytest.param(10**5000, r"int: <int>; pass a Decimal, or the text of one", id="huge"),
        (float("nan"), r"float: nan; pass a Decimal, or the text of one"),
        (-1.5, r"float: -1\.5; pass a Decimal, or the text of one"),
        (True, "bool"),
        (Fraction(1, 3), r"Fraction: .*; pass a Decimal, or the text of one$"),
        (None, "NoneType"),
        (b"1", "bytes"),
        (1 + 0j, "complex"),
        (("1", "2"), "tuple"),
    ],
)
def test_a_value_of_another_type_is_rejected_with_the_remedy(value: Any, remedy: str):
    named: dict[Callable[[Any], object], str] = {to_price: "a price", format_price: "a price"}
    if not isinstance(value, Fraction):  # which is a ratio
        named |= {to_price_or_ratio: "a price", to_ratio: "a ratio"}
    for read, name in named.items():
        with pytest.raises(InvalidPrice, match=f"^{name} must be a str or a Decimal, got {remedy}"):
            read(value)


def test_parse_price_accepts_only_text():
    with pytest.raises(InvalidPrice, match=r"must be a str, got Decimal: Decimal\('1'\)$"):
        parse_price(Decimal(1))  # type: ignore[arg-type]  # a caller without types


def test_a_subclass_of_decimal_is_read_as_its_number():
    for text in ("0.123", "0.0000001", "1E+3"):
        assert to_price(MisreportingDecimal(text)) == to_ratio(MisreportingDecimal(text)) == Decimal(text)
        assert type(to_price(MisreportingDecimal(text))) is Decimal


class TestContexts:
    """Arithmetic is exact, whatever the decimal context of the program is."""

    @given(st.integers(-(10**40), 10**40), st.integers(-40, 40))
    def test_a_plain_number_is_equal_and_has_no_trailing_zeros_after_the_point(self, coefficient: int, exponent: int):
        number = Decimal(coefficient).scaleb(exponent, EXACT)
        result = plain(number)
        _, digits, places = result.as_tuple()
        assert Fraction(result) == Fraction(number)
        assert places == 0 or (isinstance(places, int) and places < 0 and digits[-1] != 0)

    def test_an_operation_that_would_round_raises(self):
        with pytest.raises(Inexact):
            EXACT.divide(Decimal(1), Decimal(3))

    def test_the_decimal_context_of_the_program_has_no_effect(self):
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


class TestRounding:
    """Ratios and steps are rounded to what is no better for a taker."""

    @given(ratios())
    @example(Fraction(LARGEST_COEFFICIENT + 2, 10))  # the largest price of the finer grid is the best bid
    @example(Fraction(1, 10**28))
    @example(Fraction(LARGEST_COEFFICIENT))
    def test_a_rounded_price_is_the_best_of_all_grids(self, ratio: Fraction):
        for side in Side:
            price = price_for_takers(side, ratio)
            assert Fraction(price) == representable(ratio, up=side is Side.ASK)
            assert str(to_price(price)) == str(price)
            # The documented bound of the rounding error.
            assert abs(Fraction(price) - ratio) < max(Fraction(1, 10**28), ratio * Fraction(13, 10**29))
        found = to_price_or_ratio(ratio)
        assert found == ratio
        assert isinstance(found, Decimal) == (representable(ratio, up=False) == ratio)

    @pytest.mark.parametrize(
        ("ratio", "reason"),
        [
            (Fraction(0), "got Fraction(0, 1)"),
            (Fraction(-1, 3), "got Fraction(-1, 3)"),
            (Fraction(1, 10**28 + 1), "a price must be at least 10^-28"),
            (Fraction(LARGEST_COEFFICIENT * 3 + 1, 3), "a price must be at most 2^96-1"),
            (Fraction(10**5000), "got <Fraction>"),
        ],
    )
    def test_a_ratio_out_of_range_is_rejected(self, ratio: Fraction, reason: str):
        for convert in (to_price_or_ratio, lambda ratio: price_for_takers(Side.BID, ratio)):
            with pytest.raises(InvalidPrice, match=re.escape(reason)):
                convert(ratio)


WRITTEN = ["{0}/7", "7/{0}", "{0}", "1{0}", "0.{0}", "1e{1}", "1e-{1}", "{0}e-{1}", "{0}0", "0{0}/0{0}", "-{0}", "{0}x"]
LONG_RATIOS = [write.format("1" * digits, digits) for write in WRITTEN for digits in (598, 599, 600, 601)]


class TestToRatio:
    """The exact ratio of an offer: a Fraction, a Decimal, or the text of either."""

    @given(st.integers(1, 10**40), st.integers(-560, 550), st.sampled_from("eE"))
    def test_a_decimal_is_read_exactly_also_beyond_the_range_of_a_price(self, digits: int, exponent: int, letter: str):
        exact = Fraction(digits) * Fraction(10) ** exponent
        assert to_ratio(f"{digits}{letter}{exponent}") == exact
        assert to_ratio(Decimal(f"{digits}E{exponent}")) == exact

    @given(st.text("0123456789./eE+-_ ٣x", max_size=8) | st.text("01./e-", max_size=6) | st.sampled_from(LONG_RATIOS))
    @example("1E0000")
    @example("1/2/3")
    @example("1.5/2")
    @example("--1/2")
    @example("1/-2")
    @example("1/2\n")
    @example("1/²")
    @example("NaN")
    @example("Infinity")
    @example("7/000")
    @example("-1/0")
    @example("0e1000000000")
    # Converting any of these would take minutes or all memory.
    @example("1e1000000000")
    @example("1e-1000000000")
    @example(f"1e{'9' * 5000}")
    @example("1" * 1_000_000)
    def test_a_text_is_the_ratio_of_the_grammar(self, text: str):
        compared(to_ratio, grammar.ratio, lambda found: found, text)

    @pytest.mark.parametrize(
        ("value", "rule"),
        [
            *[(Decimal(text), "be finite") for text in ("NaN", "sNaN", "-NaN", "Infinity", "-Infinity")],
            *[(Decimal(text), grammar.NOT_POSITIVE) for text in ("0", "-0", "-1", "-0.5", "0E+5")],
            *[(Fraction(number), grammar.NOT_POSITIVE) for number in (0, -1, -(10**5000))],
            *[(Decimal(text), grammar.MANY_DIGITS) for text in ("1e100000000", "1e600", "1e-600", "1" * 601)],
        ],
    )
    def test_a_number_that_is_not_a_ratio_above_zero_is_rejected(self, value: Any, rule: str):
        with pytest.raises(PriceOutOfRange) as raised:
            to_ratio(value)
        assert str(raised.value) == f"a ratio must {rule}, got {safe_repr(value)}"

    @pytest.mark.parametrize("limit", [640, 0])
    def test_a_ratio_is_read_under_any_limit_of_python_for_digits(self, limit: int):
        before = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(limit)
        try:
            assert to_ratio(f"{'3' * 600}/{'1' * 600}") == 3
            assert to_ratio(Decimal("3" * 600)) == to_ratio("3" * 600)
        finally:
            sys.set_int_max_str_digits(before)

    def test_a_subclass_is_read_as_its_number(self):
        class Fickle(Fraction):
            def __eq__(self, other: object) -> bool:
                return True

            __hash__ = Fraction.__hash__

        for read in (to_ratio, to_price_or_ratio):
            assert type(read(Fickle(1, 3))) is Fraction
            assert read(Fickle(1, 3)).as_integer_ratio() == (1, 3)
