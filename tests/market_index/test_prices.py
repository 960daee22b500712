"""Prices: one text a price, the bounds, and what they cost."""

from __future__ import annotations

import re
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, getcontext, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from market_index import InvalidPrice, MarketIndexError, format_price, parse_price
from market_index.errors import safe_repr
from market_index.prices import parse_prices, rounded_price, to_price, to_price_or_ratio, to_ratio
from market_index.strategies import invalid_price_texts, prices, ratios
from tests.market_index.models import representable

LARGEST = 79228162514264337593543950335


def written(coefficient: int, places: int) -> str:
    """The fixed-point text of coefficient / 10**places, by the rules of decision 4, with nothing but integers."""
    whole, rest = divmod(coefficient, 10**places)
    fraction = str(rest).rjust(places, "0").rstrip("0") if places else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def taken_apart(price: Decimal) -> tuple[int, int]:
    number = Fraction(price)
    places = next(places for places in range(29) if (number * 10**places).denominator == 1)
    return int(number * 10**places), places


coefficients_and_places = prices().map(taken_apart)


@given(coefficients_and_places, st.integers(0, 3), st.integers(0, 3))
def test_one_price_has_one_text(price: tuple[int, int], leading: int, trailing: int):
    coefficient, places = price
    text = written(coefficient, places)
    spelt = "0" * leading + (text if "." in text else text + ".") + "0" * trailing
    assert format_price(parse_price(spelt)) == text
    assert format_price(parse_price(text)) == text
    assert format_price(parse_price(f"{coefficient}e-{places}")) == text
    assert format_price(Decimal(spelt)) == text


@given(coefficients_and_places)
def test_a_price_is_exactly_the_number_that_was_written(price: tuple[int, int]):
    coefficient, places = price
    assert Fraction(parse_price(f"{coefficient}E-{places}")) == Fraction(coefficient, 10**places)


texts_of_prices = st.one_of(
    coefficients_and_places.map(lambda price: written(*price)),
    coefficients_and_places.map(lambda price: f"{written(*price)}{'' if '.' in written(*price) else '.'}00"),
    coefficients_and_places.map(lambda price: f"{price[0]}e-{price[1]}"),
)
texts = st.one_of(texts_of_prices, st.sampled_from(["", "0", "0.0", "-1", " ", "1 2", "1 ", "NaN", "1e99", "0" * 40]))


@given(st.lists(texts, max_size=6))
def test_a_column_of_prices_is_parsed_like_each_price_alone(column: list[str]):
    refusals: list[str] = []
    read: list[str] = []
    for text in column:
        try:
            read.append(str(parse_price(text)))
        except InvalidPrice as error:  # each may be refused
            refusals.append(str(error))
    if refusals:
        with pytest.raises(InvalidPrice) as refused:
            parse_prices(column)
        assert str(refused.value) == refusals[0]
    else:
        assert [str(price) for price in parse_prices(column)] == read


@pytest.mark.parametrize("text", ["1 2", "1 2 3", "0.5 0.25"])
def test_a_text_of_several_prices_is_rejected_in_a_column(text: str):
    for column in ([text], ["1", text], [text, "1"]):
        with pytest.raises(InvalidPrice, match=f"'{text}' is not a price"):
            parse_prices(column)


@given(st.text(alphabet="0012359..eE+-", max_size=9))
@example("7e28")  # above 10^28 and below 2^96
@example("8e28")
@example("1e-28")
@example("1e-29")
def test_a_text_is_a_price_if_decisions_3_and_5_say_so(text: str):
    # A second reading of decisions 3 and 5: digits with an optional point, an optional exponent, and a 96-bit decimal.
    wanted = re.fullmatch(r"(?:([0-9]+)\.?([0-9]*)|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?", text)
    number = None if wanted is None else Fraction(text if not text.startswith(".") else f"0{text}".replace(".e", "e"))
    if number is None or not is_price(number):
        for read in (
            parse_price,
            to_price,
            lambda text: parse_prices([text, "1"]),
            lambda text: parse_prices(["1", text]),
        ):
            with pytest.raises(InvalidPrice):
                read(text)
    else:
        assert Fraction(parse_price(text)) == number == Fraction(parse_prices(["1", text])[1])


def is_price(number: Fraction) -> bool:
    """Whether the number is a coefficient from 1 to 2^96-1 over a power of ten up to 10^28."""
    coefficients = (number * 10**places for places in range(29))
    return any(one.denominator == 1 and 1 <= one <= LARGEST for one in coefficients)


@pytest.mark.parametrize("text", ["1..", "0.5.", "1.5.0", "1.234.000", "5..0", "0.5...000", "..5", "1.2.3", "0.0.0"])
def test_two_points_are_no_price(text: str):
    for read in (parse_price, to_price, lambda text: parse_prices([text])):
        with pytest.raises(InvalidPrice, match="it must be ASCII digits with an optional point"):
            read(text)


@given(prices(), prices())
def test_prices_order_by_number_and_are_one_when_equal(one: Decimal, other: Decimal):
    read_one, read_other = parse_price(format_price(one)), parse_price(format_price(other))
    assert (read_one < read_other) == (Fraction(one) < Fraction(other))
    assert (format_price(one) == format_price(other)) == (Fraction(one) == Fraction(other))


@given(prices(), st.integers(1, 40))
def test_the_callers_decimal_context_changes_nothing(price: Decimal, precision: int):
    text = format_price(price)
    with localcontext() as context:
        context.prec = precision
        context.Emax, context.Emin = 1, -1
        context.capitals = 0
        context.traps = dict.fromkeys(context.traps, True)
        assert format_price(price) == text
        assert format_price(parse_price(text)) == text
    assert getcontext().prec == 28


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1", "1"),
        ("0.000011", "0.000011"),
        ("0.0000110", "0.000011"),
        ("1.10E-5", "0.000011"),
        ("007.50", "7.5"),
        (".5", "0.5"),
        ("5.", "5"),
        ("1e0", "1"),
        ("1e+2", "100"),
        ("1E000000000000000000000000000002", "100"),
        ("1e28", "1" + "0" * 28),
        ("1e-28", "0." + "0" * 27 + "1"),
        (str(LARGEST), str(LARGEST)),
        ("7.9228162514264337593543950335", "7.9228162514264337593543950335"),
        ("0." + "0" * 27 + "1" + "0" * 500, "0." + "0" * 27 + "1"),
        ("0" * 500 + "1", "1"),
        ("1" + "0" * 40 + "e-40", "1"),
        ("0." + "0" * 39 + "1e40", "1"),
    ],
)
def test_what_is_in_range_is_read_however_it_is_written(text: str, canonical: str):
    assert format_price(parse_price(text)) == canonical


REASONS = {
    "it must be ASCII digits with an optional point, and an optional exponent",
    "it is zero",
    "it is too large",
    "it has more than 28 decimal places",
    "its coefficient is not below 2^96",
}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "ASCII digits"),
        (".", "ASCII digits"),
        ("e5", "ASCII digits"),
        (".e5", "ASCII digits"),
        ("1e", "ASCII digits"),
        ("1e1.5", "ASCII digits"),
        ("1.2.3", "ASCII digits"),
        ("1,5", "ASCII digits"),
        ("+1", "ASCII digits"),
        ("-1", "ASCII digits"),
        (" 1", "ASCII digits"),
        ("1\n", "ASCII digits"),
        ("1.5 ", "ASCII digits"),
        ("1.50\n", "ASCII digits"),
        ("1.5X", "ASCII digits"),
        ("1XX.XX", "ASCII digits"),
        ("1_000", "ASCII digits"),
        ("0x10", "ASCII digits"),
        ("NaN", "ASCII digits"),
        ("sNaN", "ASCII digits"),
        ("Infinity", "ASCII digits"),
        ("\u0661", "ASCII digits"),
        ("\uff11", "ASCII digits"),
        ("\u00b2", "ASCII digits"),
        ("1e\u0661", "ASCII digits"),
        ("\ud800", "ASCII digits"),
        ("0", "it is zero"),
        ("0.000", "it is zero"),
        ("0e1000000000000000000000", "it is zero"),
        ("1e-29", "more than 28 decimal places"),
        ("0." + "0" * 28 + "1", "more than 28 decimal places"),
        ("1e-1000000", "more than 28 decimal places"),
        ("1e29", "too large"),
        ("8e28", "too large"),
        (str(LARGEST + 1), "too large"),
        ("1e1000000", "too large"),
        ("1e999999999999999999999999999999", "too large"),
        ("7.9228162514264337593543950336", "coefficient is not below 2^96"),
        ("1" * 29 + ".1", "coefficient is not below 2^96"),
        ("1" * 29 + "0", "too large"),
        ("1" * 100_000, "too large"),
    ],
)
def test_an_invalid_price_is_rejected_with_the_reason(text: str, reason: str):
    with pytest.raises(InvalidPrice) as refused:
        parse_price(text)
    assert reason in str(refused.value)
    assert str(refused.value).partition(" is not a price: ")[2] in REASONS
    assert str(refused.value).startswith(repr(text)[:79])
    assert isinstance(refused.value, MarketIndexError)
    assert isinstance(refused.value, ValueError)


@given(invalid_price_texts())
def test_every_parser_rejects_an_invalid_price_with_the_same_message(text: str):
    with pytest.raises(InvalidPrice) as refused:
        parse_price(text)
    assert str(refused.value).startswith(f"{text!r} is not a price: "[:79])
    for read in (to_price, lambda text: parse_prices(["1", text])):
        with pytest.raises(InvalidPrice) as again:
            read(text)
        assert str(again.value) == str(refused.value)


@given(st.text(alphabet=st.sampled_from("0123456789.eE+-_ \n٣２²"), max_size=12))
def test_no_text_is_read_but_digits_with_a_point_and_an_exponent(text: str):
    mantissa, letter, exponent = text.replace("E", "e").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = set("0123456789")
    well_formed = (
        (whole + fraction) != ""
        and set(whole + fraction) <= digits
        and (not letter or (exponent.lstrip("+-") != "" and set(exponent[exponent[:1] in ("+", "-") :]) <= digits))
    )
    try:
        price = parse_price(text)
    except InvalidPrice as error:
        assert not well_formed or "ASCII digits" not in str(error)  # noqa: PT017  # both outcomes are legal here
    else:
        assert well_formed
        assert Fraction(price) == Fraction(text)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Decimal("NaN"), "not finite"),
        (Decimal("sNaN"), "not finite"),
        (Decimal("Infinity"), "not finite"),
        (Decimal(-1), "greater than zero"),
        (Decimal(0), "greater than zero"),
        (Decimal("-0"), "greater than zero"),
        (Decimal("1e1000000"), "too large"),
        (Decimal("1e-1000000"), "more than 28 decimal places"),
        (Decimal(LARGEST + 1), "too large"),
        (Decimal("1e-29"), "more than 28 decimal places"),
        (0.1, r"not float \(0\.1\): pass '0\.1' or Decimal\('0\.1'\)"),
        (1, r"not int \(1\): pass '1' or Decimal\('1'\)"),
        (0, r"not int \(0\): pass the price's text, or a Decimal"),
        (LARGEST, rf"pass '{LARGEST}' or Decimal"),
        (LARGEST + 1, r"pass the price's text, or a Decimal"),
        pytest.param(10**5000, r"not int \(<int>\): pass the price's text, or a Decimal", id="huge"),
        (float("nan"), r"not float \(nan\): pass the price's text, or a Decimal"),
        (-1.5, r"not float \(-1\.5\): pass the price's text, or a Decimal"),
        (True, "must be a str or a Decimal, not bool"),
        (Fraction(1, 3), r"an Order takes it, and its level_price is the price of a level"),
        (None, "must be a str or a Decimal, not NoneType"),
        (b"1", "must be a str or a Decimal, not bytes"),
    ],
)
def test_only_text_and_decimals_in_range_become_prices(value: object, reason: str):
    with pytest.raises(InvalidPrice, match=reason):
        to_price(value)  # type: ignore[arg-type]  # a caller without types
    with pytest.raises(InvalidPrice):
        format_price(value)  # type: ignore[arg-type]  # a caller without types


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Decimal("NaN"), "Decimal('NaN') is not a price: it is not finite"),
        (Decimal(-1), "Decimal('-1') is not a price: it must be greater than zero"),
        (Decimal("1e29"), "Decimal('1E+29') is not a price: it is too large"),
        (Decimal("1e-29"), "Decimal('1E-29') is not a price: it has more than 28 decimal places"),
    ],
)
def test_a_decimal_that_is_no_price_is_rejected_with_its_repr(value: Decimal, message: str):
    with pytest.raises(InvalidPrice) as rejected:
        to_price(value)
    assert str(rejected.value) == message


def test_parse_price_takes_text_alone():
    with pytest.raises(InvalidPrice, match=r"must be a str, not Decimal: Decimal\('1'\)$"):
        parse_price(Decimal(1))  # type: ignore[arg-type]  # a caller without types


class TestRatios:
    """Prices that are a numerator and a denominator."""

    @given(ratios())
    @example(Fraction(LARGEST + 2, 10))
    def test_the_nearest_price_on_a_side_is_the_best_that_any_grid_has(self, ratio: Fraction):
        for rounding, up in ((ROUND_FLOOR, False), (ROUND_CEILING, True)):
            price = rounded_price(ratio, rounding)
            assert Fraction(price) == representable(ratio, up=up)
            assert str(to_price(price)) == str(price)
            # The error that is documented.
            assert abs(Fraction(price) - ratio) < max(Fraction(1, 10**28), ratio * Fraction(13, 10**29))

    @given(ratios())
    @example(Fraction(LARGEST + 2, 10))
    def test_a_ratio_that_is_a_price_becomes_that(self, ratio: Fraction):
        price = to_price_or_ratio(ratio)
        assert price == ratio
        assert isinstance(price, Decimal) == (representable(ratio, up=False) == ratio)

    def test_a_text_and_a_decimal_become_prices(self):
        assert str(to_price_or_ratio("0.50")) == str(to_price_or_ratio(Decimal("0.50"))) == "0.5"

    def test_the_last_price_of_the_finer_grid_is_not_missed(self):
        ratio = Fraction(LARGEST + 2, 10)
        assert str(rounded_price(ratio, ROUND_FLOOR)) == "7922816251426433759354395033.5"
        assert str(rounded_price(ratio, ROUND_CEILING)) == "7922816251426433759354395034"

    @pytest.mark.parametrize(
        ("ratio", "reason"),
        [
            (Fraction(0), "Fraction(0, 1) is not a price: it is not at least 10^-28"),
            (Fraction(-1, 3), "Fraction(-1, 3) is not a price: it is not at least 10^-28"),
            (Fraction(1, 10**28 + 1), "it is not at least 10^-28"),
            (Fraction(LARGEST * 3 + 1, 3), "it is above 2^96-1"),
            (Fraction(10**5000), "<Fraction> is not a price: it is above 2^96-1"),
        ],
    )
    def test_what_is_out_of_range_is_refused(self, ratio: Fraction, reason: str):
        for refuse in (to_price_or_ratio, lambda ratio: rounded_price(ratio, ROUND_FLOOR)):
            with pytest.raises(InvalidPrice, match=re.escape(reason)):
                refuse(ratio)

    def test_the_bounds_are_prices(self):
        for text in ("1e-28", str(LARGEST)):
            for rounding in (ROUND_FLOOR, ROUND_CEILING):
                assert rounded_price(Fraction(text), rounding) == Decimal(text)

    def test_there_are_two_directions(self):
        with pytest.raises(ValueError, match="rounding must be ROUND_FLOOR or ROUND_CEILING, not 'ROUND_HALF_EVEN'"):
            rounded_price(Fraction(1, 3), ROUND_HALF_EVEN)


@pytest.mark.parametrize("refused", ["1e1000000000", "1e-1000000000", "1" * 1_000_000, Decimal("1e100000000")])
def test_a_number_far_out_of_range_is_rejected_without_formatting_it(refused: Decimal | str):
    # Formatting or converting any of these would take minutes, or all of the memory.
    with pytest.raises(InvalidPrice):
        to_price(refused)


class Rounding(Decimal):
    """A subclass that formats, and tells of itself, otherwise."""

    def __format__(self, specification: str, /, *_: object) -> str:
        return "0.1"

    def __str__(self) -> str:
        return "0.1"

    def adjusted(self) -> int:
        return 0


def test_a_subclass_of_decimal_is_read_as_the_number_that_it_is():
    for text in ("0.123", "0.0000001", "1E+3"):
        assert to_price(Rounding(text)) == Decimal(text)
        assert type(to_price(Rounding(text))) is Decimal


def written_as(ratio: Fraction) -> st.SearchStrategy[object]:
    """Draw what `to_ratio` reads as this ratio."""
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

    @given(prices())
    def test_every_price_is_read_as_its_own_ratio(self, price: Decimal):
        assert to_ratio(price) == to_ratio(format_price(price)) == to_ratio(str(price)) == Fraction(price)

    @given(st.text("0123456789./eE+-_ ٣x", max_size=8))
    def test_a_text_is_a_decimal_or_two_numbers_with_a_slash(self, text: str):
        is_decimal = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", text)
        is_ratio = re.fullmatch(r"[0-9]+/[0-9]*[1-9][0-9]*", text)
        value = Fraction(text) if is_ratio else Fraction(Decimal(text)) if is_decimal else Fraction(0)
        if abs(Decimal(text).adjusted() if is_decimal and value else 0) > 500:
            return  # about the bound in digits, which has its own test
        if value:
            assert to_ratio(text) == value
        else:
            with pytest.raises(InvalidPrice):
                to_ratio(text)

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            *[(text, "it must be ASCII digits with an optional point or one slash") for text in ("", "/", "1/", "/2")],
            *[(text, "it must be ASCII digits with") for text in ("1/2/3", "1.5/2", "-1/2", "1/-2", "+1", "-1", " 1")],
            *[(text, "it must be ASCII digits with") for text in ("1\n", "1/2\n", "1 /2", "1_0", "١", "1/²", "NaN")],
            *[(text, "it must be ASCII digits with") for text in ("Infinity", "e5", "1e", ".", "0x1", "1e2/3", "½")],
            *[(text, "it must be greater than zero") for text in ("0", "0.0", "0/7", "00/1", "0e5")],
            *[(text, "its denominator is zero") for text in ("1/0", "0/0", "7/000")],
            *[(Decimal(text), "it is not finite") for text in ("NaN", "sNaN", "-NaN", "Infinity", "-Infinity")],
            *[(Decimal(text), "it must be greater than zero") for text in ("0", "-0", "-1", "-0.5", "0E+5")],
            *[(Fraction(number), "it must be greater than zero") for number in (0, -1)],
            (Fraction(-(10**5000)), "it must be greater than zero"),
        ],
    )
    def test_what_is_no_ratio_above_zero_is_rejected(self, value, reason: str):
        with pytest.raises(InvalidPrice) as rejected:
            to_ratio(value)
        assert str(rejected.value).startswith(f"{safe_repr(value)} is not a ratio: {reason}")

    @pytest.mark.parametrize("value", [1, 0.5, True, 1 + 0j, None, b"1", ("1", "2"), float("nan"), float("inf")])
    def test_numbers_without_exact_digits_are_rejected(self, value):
        with pytest.raises(InvalidPrice, match="a price must be a str or a Decimal, not "):
            to_ratio(value)

    @pytest.mark.parametrize("write", ["{0}/7", "7/{0}", "{0}", "1{0}", "0.{0}", "1e{1}", "1e-{1}", "{0}e-{1}"])
    def test_a_number_has_600_digits_at_most(self, write: str):
        digits = 599 if write in {"1{0}", "0.{0}"} else 600
        assert to_ratio(write.format("1" * digits, 599)) > 0
        longer = write.format("1" * (digits + 1), 600)
        for value in (longer,) if "/" in longer else (longer, Decimal(longer)):
            with pytest.raises(InvalidPrice) as rejected:
                to_ratio(value)
            reason = "is not a ratio: its numbers must have at most 600 digits"
            assert str(rejected.value) == f"{safe_repr(value)} {reason}"

    @pytest.mark.parametrize(
        "value", ["1e1000000000", "1e-1000000000", f"1e{'9' * 5000}", "1" * 1_000_000, Decimal("1e100000000")]
    )
    def test_a_number_of_too_many_digits_costs_nothing(self, value: Decimal | str):
        with pytest.raises(InvalidPrice, match="at most 600 digits"):
            to_ratio(value)

    @pytest.mark.parametrize("limit", [640, 0])
    def test_the_limit_of_python_for_digits_makes_no_difference(self, limit: int):
        before = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(limit)
        try:
            assert to_ratio(f"{'3' * 600}/{'1' * 600}") == 3
            assert to_ratio(Decimal("3" * 600)) == to_ratio("3" * 600)
        finally:
            sys.set_int_max_str_digits(before)

    def test_a_fraction_may_have_any_number_of_digits(self):
        assert to_ratio(Fraction(10**5000 + 1, 10**5000)) == Fraction(10**5000 + 1, 10**5000)

    def test_a_subclass_is_read_as_the_number_that_it_is(self):
        class Fickle(Fraction):
            def __eq__(self, other: object) -> bool:
                return True

            __hash__ = Fraction.__hash__

        assert type(to_ratio(Fickle(1, 3))) is Fraction
        assert to_ratio(Rounding("0.123")) == Fraction("0.123")
