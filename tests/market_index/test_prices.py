"""Prices: one text per price, the bounds, and no expensive rejections."""

from __future__ import annotations

import re
import subprocess
import sys
from decimal import Decimal, Inexact, InvalidOperation, getcontext, localcontext
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from market_index import InvalidPrice, MarketIndexError, PriceOutOfRange, format_price, parse_price
from market_index.errors import safe_repr
from market_index.prices import EXACT, parse_prices, plain, to_price
from market_index.strategies import invalid_price_texts, prices
from tests.market_index.models import LARGEST_COEFFICIENT, MisreportingDecimal


def fixed_point(coefficient: int, places: int) -> str:
    """Return the text of coefficient / 10**places by the rules of decision 4, computed with integers."""
    whole, rest = divmod(coefficient, 10**places)
    fraction = str(rest).rjust(places, "0").rstrip("0") if places else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def coefficient_and_places(price: Decimal) -> tuple[int, int]:
    number = Fraction(price)
    places = next(places for places in range(29) if (number * 10**places).denominator == 1)
    return int(number * 10**places), places


coefficients_and_places = prices().map(coefficient_and_places)


@pytest.mark.decision(4)
@given(coefficients_and_places, st.integers(0, 3), st.integers(0, 3))
def test_one_price_has_one_text(price: tuple[int, int], leading: int, trailing: int):
    coefficient, places = price
    text = fixed_point(coefficient, places)
    written = "0" * leading + (text if "." in text else text + ".") + "0" * trailing
    assert format_price(parse_price(written)) == text
    assert format_price(parse_price(text)) == text
    assert format_price(parse_price(f"{coefficient}e-{places}")) == text
    assert format_price(Decimal(written)) == text


texts_of_prices = st.one_of(
    coefficients_and_places.map(lambda price: fixed_point(*price)),
    coefficients_and_places.map(lambda price: f"{fixed_point(*price)}{'' if '.' in fixed_point(*price) else '.'}00"),
    coefficients_and_places.map(lambda price: f"{price[0]}e-{price[1]}"),
)
invalid_texts = st.sampled_from(["", "0", "0.0", "-1", " ", "1 2", "0.5 0.25", "1 ", "NaN", "1e99", "0" * 40])
texts = texts_of_prices | invalid_texts


@given(st.lists(texts, max_size=6))
def test_a_column_of_prices_is_parsed_like_each_price_alone(column: list[str]):
    messages: list[str] = []
    read: list[str] = []
    for text in column:
        try:
            read.append(str(parse_price(text)))
        except InvalidPrice as error:  # any of them may be invalid
            messages.append(str(error))
    if messages:
        with pytest.raises(InvalidPrice) as raised:
            parse_prices(column)
        assert str(raised.value) == messages[0]
    else:
        assert [str(price) for price in parse_prices(column)] == read


@pytest.mark.decision(3, 5)
@given(st.text(alphabet="0012359..eE+-", max_size=9) | st.text(alphabet="019.eE+-_ \n٣２²", max_size=5))
@example("7e28")  # above 10^28 and below 2^96
@example("8e28")
@example("1e-28")
@example("1e-29")
def test_a_text_is_a_price_if_decisions_3_and_5_say_so(text: str):
    # A model of decisions 3 and 5: digits with an optional point, an optional exponent, and a 96-bit decimal.
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
    return any(one.denominator == 1 and 1 <= one <= LARGEST_COEFFICIENT for one in coefficients)


@pytest.mark.parametrize("text", ["1..", "0.5.", "1.5.0", "1.234.000", "5..0", "0.5...000", "..5", "1.2.3", "0.0.0"])
def test_a_text_with_two_points_is_rejected(text: str):
    for read in (parse_price, to_price, lambda text: parse_prices([text])):
        with pytest.raises(InvalidPrice, match="be ASCII digits with an optional point"):
            read(text)


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
        (str(LARGEST_COEFFICIENT), str(LARGEST_COEFFICIENT)),
        ("7.9228162514264337593543950335", "7.9228162514264337593543950335"),
        ("0." + "0" * 27 + "1" + "0" * 500, "0." + "0" * 27 + "1"),
        ("0" * 500 + "1", "1"),
        ("1" + "0" * 40 + "e-40", "1"),
        ("0." + "0" * 39 + "1e40", "1"),
    ],
)
def test_a_price_in_range_is_read_in_any_form(text: str, canonical: str):
    assert format_price(parse_price(text)) == canonical


RULES = {
    "be ASCII digits with an optional point and an optional exponent",
    "be above 0",
    "be below 2^96",
    "have at most 28 decimal places",
    "have a coefficient below 2^96",
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
        ("0", "be above 0"),
        ("0.000", "be above 0"),
        ("0e1000000000000000000000", "be above 0"),
        ("1e-29", "at most 28 decimal places"),
        ("0." + "0" * 28 + "1", "at most 28 decimal places"),
        ("1e-1000000", "at most 28 decimal places"),
        ("1e29", "be below 2^96"),
        ("8e28", "be below 2^96"),
        (str(LARGEST_COEFFICIENT + 1), "be below 2^96"),
        ("1e1000000", "be below 2^96"),
        ("1e999999999999999999999999999999", "be below 2^96"),
        ("7.9228162514264337593543950336", "have a coefficient below 2^96"),
        ("1" * 29 + ".1", "have a coefficient below 2^96"),
        ("1" * 29 + "0", "be below 2^96"),
        ("1" * 100_000, "be below 2^96"),
    ],
)
def test_an_invalid_price_is_rejected_with_the_reason(text: str, reason: str):
    with pytest.raises(InvalidPrice) as raised:
        parse_price(text)
    assert reason in str(raised.value)
    assert (type(raised.value) is PriceOutOfRange) == (reason != "ASCII digits")
    assert str(raised.value).removeprefix("a price must ").partition(", got ")[0] in RULES
    assert str(raised.value).endswith(f", got {safe_repr(text)}")
    assert isinstance(raised.value, MarketIndexError)
    assert isinstance(raised.value, ValueError)


@given(invalid_price_texts())
def test_every_parser_rejects_an_invalid_price_with_the_same_message(text: str):
    with pytest.raises(InvalidPrice) as raised:
        parse_price(text)
    assert str(raised.value).endswith(f", got {safe_repr(text)}")
    for read in (to_price, lambda text: parse_prices(["1", text])):
        with pytest.raises(InvalidPrice) as again:
            read(text)
        assert str(again.value) == str(raised.value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Decimal("NaN"), "be finite"),
        (Decimal("sNaN"), "be finite"),
        (Decimal("Infinity"), "be finite"),
        (Decimal(-1), "be above 0"),
        (Decimal(0), "be above 0"),
        (Decimal("-0"), "be above 0"),
        (Decimal("1e1000000"), r"be below 2\^96"),
        (Decimal("1e-1000000"), "at most 28 decimal places"),
        (Decimal(LARGEST_COEFFICIENT + 1), r"be below 2\^96"),
        (Decimal("1e-29"), "at most 28 decimal places"),
        (0.1, r"got float: 0\.1; pass '0\.1' or Decimal\('0\.1'\)"),
        (1, r"got int: 1; pass '1' or Decimal\('1'\)"),
        (0, r"got int: 0; pass the text of the price or a Decimal"),
        (LARGEST_COEFFICIENT, rf"pass '{LARGEST_COEFFICIENT}' or Decimal"),
        (LARGEST_COEFFICIENT + 1, r"pass the text of the price or a Decimal"),
        pytest.param(10**5000, r"got int: <int>; pass the text of the price or a Decimal", id="huge"),
        (float("nan"), r"got float: nan; pass the text of the price or a Decimal"),
        (-1.5, r"got float: -1\.5; pass the text of the price or a Decimal"),
        (True, "must be a str or a Decimal, got bool"),
        (Fraction(1, 3), r"pass it to an Order, whose level_price is a price"),
        (None, "must be a str or a Decimal, got NoneType"),
        (b"1", "must be a str or a Decimal, got bytes"),
    ],
)
def test_only_text_and_decimals_in_range_become_prices(value: object, reason: str):
    with pytest.raises(InvalidPrice, match=reason) as raised:
        to_price(value)  # type: ignore[arg-type]  # a caller without types
    assert not isinstance(value, Decimal) or str(raised.value).endswith(f", got {safe_repr(value)}")
    with pytest.raises(InvalidPrice):
        format_price(value)  # type: ignore[arg-type]  # a caller without types


def test_parse_price_accepts_only_text():
    with pytest.raises(InvalidPrice, match=r"must be a str, got Decimal: Decimal\('1'\)$"):
        parse_price(Decimal(1))  # type: ignore[arg-type]  # a caller without types


@pytest.mark.decision(3)
@pytest.mark.parametrize("value", ["1e1000000000", "1e-1000000000", "1" * 1_000_000, Decimal("1e100000000")])
def test_a_number_far_out_of_range_is_rejected_without_formatting_it(value: Decimal | str):
    # Formatting or converting any of these would take minutes or all memory.
    with pytest.raises(InvalidPrice):
        to_price(value)


def test_a_subclass_of_decimal_is_read_as_its_number():
    for text in ("0.123", "0.0000001", "1E+3"):
        assert to_price(MisreportingDecimal(text)) == Decimal(text)
        assert type(to_price(MisreportingDecimal(text))) is Decimal


@given(st.integers(-(10**40), 10**40), st.integers(-40, 40))
def test_a_plain_number_is_equal_and_has_no_trailing_zeros_after_the_point(coefficient: int, exponent: int):
    number = Decimal(coefficient).scaleb(exponent, EXACT)
    result = plain(number)
    _, digits, places = result.as_tuple()
    assert Fraction(result) == Fraction(number)
    assert places == 0 or (isinstance(places, int) and places < 0 and digits[-1] != 0)


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
