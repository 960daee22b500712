"""Prices as ratios: exact conversion, bounds, and rounding to the nearest price."""

from __future__ import annotations

import re
import sys
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from market_index import InvalidPrice, PriceOutOfRange, Side
from market_index.errors import safe_repr
from market_index.prices import price_for_takers, steps_for_takers, to_price, to_price_or_ratio, to_ratio
from market_index.strategies import prices, ratios
from tests.market_index.models import LARGEST_COEFFICIENT, MisreportingDecimal, representable


class TestRatios:
    """Prices that are a numerator and a denominator."""

    @given(ratios())
    @example(Fraction(LARGEST_COEFFICIENT + 2, 10))
    def test_a_rounded_price_is_the_best_of_all_grids(self, ratio: Fraction):
        for side in Side:
            price = price_for_takers(side, ratio)
            assert Fraction(price) == representable(ratio, up=side is Side.ASK)
            assert str(to_price(price)) == str(price)
            # The documented bound of the rounding error.
            assert abs(Fraction(price) - ratio) < max(Fraction(1, 10**28), ratio * Fraction(13, 10**29))

    @given(ratios())
    @example(Fraction(LARGEST_COEFFICIENT + 2, 10))
    def test_a_ratio_that_equals_a_price_becomes_that_price(self, ratio: Fraction):
        price = to_price_or_ratio(ratio)
        assert price == ratio
        assert isinstance(price, Decimal) == (representable(ratio, up=False) == ratio)

    def test_a_text_and_a_decimal_become_prices(self):
        assert str(to_price_or_ratio("0.50")) == str(to_price_or_ratio(Decimal("0.50"))) == "0.5"

    def test_the_largest_price_of_the_finer_grid_is_considered(self):
        ratio = Fraction(LARGEST_COEFFICIENT + 2, 10)
        assert str(price_for_takers(Side.BID, ratio)) == "7922816251426433759354395033.5"
        assert str(price_for_takers(Side.ASK, ratio)) == "7922816251426433759354395034"

    @pytest.mark.parametrize(
        ("ratio", "reason"),
        [
            (Fraction(0), "a price must be at least 10^-28, got Fraction(0, 1)"),
            (Fraction(-1, 3), "a price must be at least 10^-28, got Fraction(-1, 3)"),
            (Fraction(1, 10**28 + 1), "a price must be at least 10^-28"),
            (Fraction(LARGEST_COEFFICIENT * 3 + 1, 3), "a price must be at most 2^96-1"),
            (Fraction(10**5000), "a price must be at most 2^96-1, got <Fraction>"),
        ],
    )
    def test_a_ratio_out_of_range_is_rejected(self, ratio: Fraction, reason: str):
        for convert in (to_price_or_ratio, lambda ratio: price_for_takers(Side.BID, ratio)):
            with pytest.raises(InvalidPrice, match=re.escape(reason)):
                convert(ratio)

    def test_the_bounds_are_prices(self):
        for text in ("1e-28", str(LARGEST_COEFFICIENT)):
            for side in Side:
                assert price_for_takers(side, Fraction(text)) == Decimal(text)

    @given(prices(), prices())
    def test_steps_are_whole_and_no_better_for_a_taker(self, price: Decimal, step: Decimal):
        exact = Fraction(price) / Fraction(step)
        assert Fraction(steps_for_takers(Side.BID, price, step)) == floor(exact)
        assert Fraction(steps_for_takers(Side.ASK, price, step)) == ceil(exact)


def written_as(ratio: Fraction) -> st.SearchStrategy[object]:
    """Draw values that `to_ratio` reads as this ratio."""
    texts = st.integers(1, 10**6).map(lambda factor: f"{ratio.numerator * factor}/{ratio.denominator * factor}")
    return texts | st.just(ratio)


class TestToRatio:
    """The exact ratio of an offer: a Fraction, a Decimal, or the text of either."""

    @given(ratios().flatmap(lambda ratio: st.tuples(st.just(ratio), written_as(ratio))))
    def test_a_ratio_is_read_exactly(self, written: tuple[Fraction, Any]):
        ratio, value = written
        assert to_ratio(value) == ratio
        assert type(to_ratio(value)) is Fraction

    @given(st.integers(1, 10**40), st.integers(-560, 550), st.sampled_from("eE"))
    def test_a_decimal_is_read_exactly_also_beyond_the_range_of_a_price(self, digits: int, exponent: int, letter: str):
        exact = Fraction(digits) * Fraction(10) ** exponent
        assert to_ratio(f"{digits}{letter}{exponent}") == exact
        assert to_ratio(Decimal(f"{digits}E{exponent}")) == exact

    @given(st.text("0123456789./eE+-_ ٣x", max_size=8))
    @example("1E0000")
    def test_a_text_is_a_decimal_or_two_numbers_with_a_slash(self, text: str):
        is_decimal = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text)
        is_ratio = re.fullmatch(r"[0-9]+/[0-9]*[1-9][0-9]*", text)
        if is_decimal and abs(Decimal(text).adjusted()) > 500:
            return  # the bound in digits has its own test
        value = Fraction(text) if is_ratio else Fraction(Decimal(text)) if is_decimal else Fraction(0)
        if value:
            assert to_ratio(text) == value
        else:
            with pytest.raises(InvalidPrice):
                to_ratio(text)

    @pytest.mark.parametrize(
        ("value", "rule"),
        [
            *[(text, "be ASCII digits with an optional point or one slash") for text in ("", "/", "1/", "/2")],
            *[(text, "be ASCII digits with") for text in ("1/2/3", "1.5/2", "--1/2", "1/-2", "+1", "-", " 1")],
            *[(text, "be ASCII digits with") for text in ("1\n", "1/2\n", "1 /2", "1_0", "١", "1/²", "NaN")],
            *[(text, "be ASCII digits with") for text in ("Infinity", "e5", "1e", ".", "0x1", "1e2/3", "½")],
            *[(text, "be above 0") for text in ("0", "0.0", "0/7", "0" * 700, "0e5")],
            *[(text, "be above 0") for text in ("-1", "-1/2", "-0", "-1/0", "-.5e3", f"-{'1' * 700}")],
            *[(text, "have a denominator above 0") for text in ("1/0", "0/0", "7/000")],
            *[(Decimal(text), "be finite") for text in ("NaN", "sNaN", "-NaN", "Infinity", "-Infinity")],
            *[(Decimal(text), "be above 0") for text in ("0", "-0", "-1", "-0.5", "0E+5")],
            *[(Fraction(number), "be above 0") for number in (0, -1)],
            (Fraction(-(10**5000)), "be above 0"),
        ],
    )
    def test_a_value_that_is_not_a_ratio_above_zero_is_rejected(self, value, rule: str):
        with pytest.raises(InvalidPrice) as raised:
            to_ratio(value)
        assert str(raised.value).startswith(f"a ratio must {rule}")
        assert str(raised.value).endswith(f", got {safe_repr(value)}")

    @pytest.mark.parametrize("value", [1, 0.5, True, 1 + 0j, None, b"1", ("1", "2"), float("nan"), float("inf")])
    def test_numbers_without_exact_digits_are_rejected(self, value):
        with pytest.raises(InvalidPrice, match="a price must be a str or a Decimal, got "):
            to_ratio(value)

    @pytest.mark.parametrize("write", ["{0}/7", "7/{0}", "{0}", "1{0}", "0.{0}", "1e{1}", "1e-{1}", "{0}e-{1}"])
    def test_a_number_has_600_digits_at_most(self, write: str):
        digits = 599 if write in {"1{0}", "0.{0}"} else 600
        assert to_ratio(write.format("1" * digits, 599)) > 0
        longer = write.format("1" * (digits + 1), 600)
        for value in (longer,) if "/" in longer else (longer, Decimal(longer)):
            with pytest.raises(InvalidPrice) as raised:
                to_ratio(value)
            assert str(raised.value) == f"a ratio must have at most 600 digits in each number, got {safe_repr(value)}"

    @pytest.mark.parametrize(
        "value", ["1e1000000000", "1e-1000000000", f"1e{'9' * 5000}", "1" * 1_000_000, Decimal("1e100000000")]
    )
    def test_a_number_of_too_many_digits_is_rejected_without_converting_it(self, value: Decimal | str):
        with pytest.raises(InvalidPrice, match="at most 600 digits"):
            to_ratio(value)

    @pytest.mark.parametrize("text", ["2", "2/1", "0.2e1"])
    def test_leading_zeros_do_not_count(self, text: str):
        zeros = "0" * 10_000
        assert to_ratio(zeros + text.replace("/", f"/{zeros}")) == 2

    @pytest.mark.parametrize("text", ["0", "-1", "1/0", "1" * 700, "1e999", "-1e-999", "1e1000000000"])
    def test_a_well_formed_ratio_is_distinguished_from_a_malformed_one(self, text: str):
        with pytest.raises(PriceOutOfRange):
            to_ratio(text)
        for malformed in (f"{text}x", f" {text}", ""):
            with pytest.raises(InvalidPrice) as raised:
                to_ratio(malformed)
            assert type(raised.value) is InvalidPrice

    @pytest.mark.parametrize("limit", [640, 0])
    def test_a_ratio_is_read_under_any_limit_of_python_for_digits(self, limit: int):
        before = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(limit)
        try:
            assert to_ratio(f"{'3' * 600}/{'1' * 600}") == 3
            assert to_ratio(Decimal("3" * 600)) == to_ratio("3" * 600)
        finally:
            sys.set_int_max_str_digits(before)

    def test_a_fraction_may_have_any_number_of_digits(self):
        assert to_ratio(Fraction(10**5000 + 1, 10**5000)) == Fraction(10**5000 + 1, 10**5000)

    def test_a_subclass_is_read_as_its_number(self):
        class Fickle(Fraction):
            def __eq__(self, other: object) -> bool:
                return True

            __hash__ = Fraction.__hash__

        assert type(to_ratio(Fickle(1, 3))) is Fraction
        assert to_ratio(MisreportingDecimal("0.123")) == Fraction("0.123")
