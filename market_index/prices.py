"""Prices: parsing, formatting, bounds, and rounding of ratios.

A price is quote units per one base unit, both in smallest units (decision 2). It is above 0, its coefficient is below
2^96, and it has at most 28 decimal places (decision 3: a 96-bit decimal). Each price has exactly one text (decision 4),
and in this library exactly one `Decimal`: without trailing zeros and without a positive exponent. No function here
depends on the decimal context of the caller's thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Final

from market_index.arithmetic import EXACT
from market_index.errors import InvalidPrice, PriceOutOfRange, safe_repr

MAX_COEFFICIENT: Final = 2**96 - 1
"""The largest coefficient of a price, without trailing zeros after the point."""

MAX_DECIMAL_PLACES: Final = 28
"""The maximum number of decimal places of a price, without trailing zeros."""

MAX_RATIO_DIGITS: Final = 600
"""The maximum number of digits of each number of a ratio, without leading zeros. Python always converts 640."""

_SCALE: Final = 10**MAX_DECIMAL_PLACES
_MAX_DIGITS: Final = len(str(MAX_COEFFICIENT))

_FINEST: Final = Decimal(f"1E-{MAX_DECIMAL_PLACES}")
_LOW_PRICE: Final = MAX_COEFFICIENT // _SCALE
"""All prices below this one may have 28 decimal places."""
_ROUNDING: Final = {
    rounding: Context(prec=2 * _MAX_DIGITS, rounding=rounding, traps=[]) for rounding in (ROUND_FLOOR, ROUND_CEILING)
}

PLAIN_RATIO: Final = r"([1-9][0-9]{0,27})/([1-9][0-9]{0,27})"
"""The text of most ratios. With numbers so short, the ratio and its inverse are in the range of prices."""

divide: Final[Callable[[Decimal, Decimal], Decimal]] = Context(prec=_MAX_DIGITS, traps=[]).divide
"""Return a quotient, rounded to 29 digits, as many as a price may have. If it is rounded, then it equals no price."""

# The canonical text of a price (decision 4), with so few digits that it is in range (decision 3). Most prices match.
_CANONICAL_TEXT: Final = r"(?:0\.[0-9]{1,28}(?<!0)|[1-9][0-9]{0,13}(?:\.[0-9]{1,14}(?<!0))?)"
_CANONICAL_COLUMN: Final = re.compile(f"(?:{_CANONICAL_TEXT} )*").fullmatch

is_canonical: Final = re.compile(_CANONICAL_TEXT).fullmatch
"""Match the canonical text of a price; texts of more than 28 digits are not recognized."""

# Decision 5. `\Z`, because `$` matches before a final newline; `[0-9]`, because `\d` matches digits of other scripts.
# Possessive, so that the time is linear in the length of any text.
_TEXT: Final = re.compile(r"(?=\.?[0-9])([0-9]*+)(?:\.([0-9]*+))?+(?:[eE]([+-]?[0-9]++))?+\Z")
_RATIO: Final = re.compile(r"([0-9]++)/([0-9]++)\Z")
_is_plain_ratio: Final = re.compile(PLAIN_RATIO).fullmatch
_MAX_EXPONENT_DIGITS: Final = 18


def parse_price(text: str) -> Decimal:
    """Parse a price: ASCII digits with an optional point and an optional exponent.

    >>> parse_price("0.0000110")
    Decimal('0.000011')
    >>> parse_price("1e-8") == parse_price("0.00000001")
    True
    >>> parse_price("1e1000000")
    Traceback (most recent call last):
    market_index.errors.PriceOutOfRange: a price must be below 2^96, got '1e1000000'

    The time depends on the length of the text, not on its value.

    Raises:
        PriceOutOfRange: The number is zero, or out of range.
        InvalidPrice: The text has another form.
    """
    if not isinstance(text, str):
        raise InvalidPrice(f"a price must be a str, got {type(text).__name__}: {safe_repr(text)}")
    if is_canonical(text):
        return Decimal(text)
    plain = _without_trailing_zeros(text)
    if is_canonical(plain):
        return Decimal(plain)
    match = _TEXT.match(text)
    if match is None:
        raise InvalidPrice(
            f"a price must be ASCII digits with an optional point and an optional exponent, got {safe_repr(text)}"
        )
    whole, fraction, exponent_text = match.groups(default="")
    digits = whole + fraction
    exponent = _exponent(exponent_text) - len(fraction)
    significant = digits.strip("0")
    if not significant:
        raise _not_a_price(text, "be above 0")
    exponent += len(digits) - len(digits.rstrip("0"))
    if exponent < -MAX_DECIMAL_PLACES:
        raise _not_a_price(text, f"have at most {MAX_DECIMAL_PLACES} decimal places")
    if exponent > 0 and len(significant) + exponent <= _MAX_DIGITS:
        significant += "0" * exponent
        exponent = 0
    if exponent > 0 or len(significant) > _MAX_DIGITS or int(significant) > MAX_COEFFICIENT:
        raise _not_a_price(text, "be below 2^96" if exponent >= 0 else "have a coefficient below 2^96")
    return Decimal(f"{significant}E{exponent}")


def parse_prices(texts: Sequence[str]) -> list[Decimal]:
    """Parse a column of prices, faster than `parse_price` does one by one.

    >>> parse_prices(["0.5", "2e1"])
    [Decimal('0.5'), Decimal('20')]

    Raises:
        InvalidPrice: As `parse_price`, for the first text that is not a price.
    """
    if are_canonical(texts):
        return list(map(Decimal, texts))
    plain = [_without_trailing_zeros(text) for text in texts]
    return list(map(Decimal, plain)) if are_canonical(plain) else list(map(parse_price, texts))


def to_price(value: Decimal | str) -> Decimal:
    """Return a Decimal or a text as a price: in range and without trailing zeros.

    >>> to_price(Decimal("0.10"))
    Decimal('0.1')
    >>> to_price(0.1)
    Traceback (most recent call last):
    market_index.errors.InvalidPrice: a price must be a str or a Decimal, got float: 0.1; pass '0.1' or Decimal('0.1')

    A float is rejected because it is rarely equal to the decimal that was written, an int because it may be an amount
    that was passed as the price by mistake.

    Raises:
        InvalidPrice: The value has another type, or is out of range.
    """
    # Most texts of a stream, which reads one with every message.
    if type(value) is str and is_canonical(value):
        return Decimal(value)
    if isinstance(value, str):
        return parse_price(value)
    if not isinstance(value, Decimal):
        raise InvalidPrice(_wrong_type(value))
    if type(value) is not Decimal:
        # A subclass may override any method, __format__ for one.
        value = Decimal(value)
    if is_canonical(str(value)):
        return value
    if not value.is_finite():
        raise _not_a_price(value, "be finite")
    if value.is_signed() or not value:
        raise _not_a_price(value, "be above 0")
    # Within these bounds, the fixed-point text is about as long as the coefficient.
    magnitude = value.adjusted()
    if magnitude >= _MAX_DIGITS:
        raise _not_a_price(value, "be below 2^96")
    if magnitude < -MAX_DECIMAL_PLACES:
        raise _not_a_price(value, f"have at most {MAX_DECIMAL_PLACES} decimal places")
    return parse_price(format(value, "f"))


def to_ratio(value: Decimal | Fraction | str) -> Fraction:
    """Return a value as an exact ratio above 0, which may be out of the range of prices.

    A text is a decimal, in the form of a price, or `numerator/denominator`. The numbers of a text or a Decimal may have
    up to 600 digits, without leading zeros. A text may be negative, which is out of range.

    >>> to_ratio("7/29000"), to_ratio(Decimal("0.25"))
    (Fraction(7, 29000), Fraction(1, 4))

    Raises:
        PriceOutOfRange: The number is not above 0, or has too many digits.
        InvalidPrice: The value has another type or form.
    """
    return Fraction(*to_numbers(value))


def to_numbers(value: Decimal | Fraction | str) -> tuple[int, int]:
    """Return the numerator and the denominator of `to_ratio`, which may have a common divisor.

    >>> to_numbers("14/58000")
    (14, 58000)

    Raises:
        PriceOutOfRange: The number is not above 0, or has too many digits.
        InvalidPrice: The value has another type or form.
    """
    if isinstance(value, str):
        if plain := _is_plain_ratio(value):
            return int(plain[1]), int(plain[2])
        numerator, denominator = _parsed_ratio(value)
    elif isinstance(value, Decimal):
        numerator, denominator = _decimal_ratio(value)
    elif isinstance(value, Fraction):
        # A subclass may override arithmetic.
        numerator, denominator = value.numerator, value.denominator
    else:
        raise InvalidPrice(_wrong_type(value))
    if numerator <= 0 or not denominator:
        raise _not_a_ratio(value, "be above 0" if denominator else "have a denominator above 0")
    return numerator, denominator


def _parsed_ratio(text: str) -> tuple[int, int]:
    unsigned = text.removeprefix("-")
    match = _RATIO.match(unsigned) or _TEXT.match(unsigned)
    if match is None:
        raise InvalidPrice(f"a ratio must be ASCII digits with an optional point or one slash, got {safe_repr(text)}")
    if text[0] == "-":
        raise _not_a_ratio(text, "be above 0")
    if match.re is _TEXT:
        whole, fraction, exponent = match.groups(default="")
        return _scaled(text, _significant(whole + fraction), _exponent(exponent) - len(fraction))
    numerator, denominator = map(_significant, match.groups())
    if max(len(numerator), len(denominator)) > MAX_RATIO_DIGITS:
        raise _too_many_digits(text)
    return int(numerator), int(denominator)


def _decimal_ratio(value: Decimal) -> tuple[int, int]:
    # Converted first: a subclass may override any method.
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        raise _not_a_ratio(value, "be finite")
    if len(digits) > MAX_RATIO_DIGITS:
        raise _too_many_digits(value)
    numerator, denominator = _scaled(value, "".join(map(str, digits)), exponent)
    return -numerator if sign else numerator, denominator


def _scaled(value: object, digits: str, exponent: int) -> tuple[int, int]:
    """Return the numerator and the denominator of `digits` times a power of ten."""
    if max(len(digits) + max(exponent, 0), 1 + max(-exponent, 0)) > MAX_RATIO_DIGITS:
        raise _too_many_digits(value)
    return int(digits) * 10 ** max(exponent, 0), 10 ** max(-exponent, 0)


def to_price_or_ratio(value: Decimal | Fraction | str) -> Decimal | Fraction:
    """Return a value as a price; a `Fraction` that equals no price exactly stays a `Fraction`.

    >>> to_price_or_ratio(Fraction(1, 4)), to_price_or_ratio(Fraction(1, 3))
    (Decimal('0.25'), Fraction(1, 3))

    Raises:
        InvalidPrice: The value has another type, or is out of range: a ratio from 10^-28 to 2^96-1 is in range.
    """
    if not isinstance(value, Fraction):
        return to_price(value)
    # A subclass may override arithmetic.
    return price_or_ratio(value.numerator, value.denominator)


def price_or_ratio(numerator: int, denominator: int) -> Decimal | Fraction:
    """Return a quotient of integers as a price; as a `Fraction` if it equals no price exactly.

    >>> price_or_ratio(10, 40), price_or_ratio(10, 30)
    (Decimal('0.25'), Fraction(1, 3))

    Raises:
        InvalidPrice: The quotient is below 10^-28 or above 2^96-1.
    """
    if 0 < numerator < _SCALE and denominator < _SCALE:
        # Most prices. A quotient that was rounded has too many digits to be canonical.
        price = divide(Decimal(numerator), Decimal(denominator))
        if is_canonical(str(price)):
            return price
    value = Fraction(numerator, denominator)
    _require_range(value)
    if _SCALE % value.denominator:
        return value
    price = rounded_price(value, ROUND_FLOOR)
    return price if price == value else value


def rounded_price(ratio: Fraction, rounding: str) -> Decimal:
    """Round a ratio to a price: the highest that is not above it (`ROUND_FLOOR`), or the lowest not below it.

    All prices of decision 3 count, so a ratio that is a price stays as it is.

    >>> rounded_price(Fraction(2, 3), ROUND_FLOOR), rounded_price(Fraction(2, 3), ROUND_CEILING)
    (Decimal('0.6666666666666666666666666666'), Decimal('0.6666666666666666666666666667'))

    Raises:
        InvalidPrice: The ratio is below 10^-28 or above 2^96-1.
        ValueError: `rounding` is neither `ROUND_FLOOR` nor `ROUND_CEILING`.
    """
    if rounding not in _ROUNDING:
        raise ValueError(f"rounding must be {ROUND_FLOOR} or {ROUND_CEILING}, got {safe_repr(rounding)}")
    numerator, denominator = ratio.as_integer_ratio()
    if 0 < numerator < _SCALE and denominator < _SCALE and numerator < _LOW_PRICE * denominator:
        # Most ratios. Rounding twice in one direction rounds as once.
        context = _ROUNDING[rounding]
        quotient = context.divide(Decimal(numerator), Decimal(denominator))
        return EXACT.normalize(context.quantize(quotient, _FINEST))
    _require_range(ratio)
    # The finest grid of prices at this size. It has as many digits as a price may have, or one less if the
    # coefficient is too large. All coarser grids are part of it.
    places = min(_MAX_DIGITS - len(str(int(ratio))), MAX_DECIMAL_PLACES)
    coefficient = _on_grid(ratio, places, rounding)
    if coefficient > MAX_COEFFICIENT:
        places -= 1
        coefficient = _on_grid(ratio, places, rounding)
    price = _price(coefficient, places)
    if rounding == ROUND_FLOOR and places < MAX_DECIMAL_PLACES:
        # The largest price of the next finer grid is below the ratio, because this is the finest grid that reaches the
        # ratio. It may be above this price.
        price = max(price, _price(MAX_COEFFICIENT, places + 1))
    return price


def format_price(price: Decimal) -> str:
    """Return the canonical text of a price (decision 4): fixed-point, no exponent, no trailing zeros.

    >>> format_price(Decimal("1.10E-5"))
    '0.000011'

    Raises:
        InvalidPrice: The value is not a price.
    """
    return price_text(to_price(price))


def price_text(price: Decimal) -> str:
    """Return the canonical text of a price from `to_price` or `parse_price`, without validating it again."""
    text = str(price)
    # str takes half the time of format, but writes small numbers with an exponent, whose letter depends on the context.
    return format(price, "f") if "E" in text or "e" in text else text


def _price(coefficient: int, places: int) -> Decimal:
    """Return the price of a coefficient and decimal places in range, without trailing zeros after the point."""
    text = str(coefficient)
    significant = text.rstrip("0")
    zeros = len(text) - len(significant)
    return Decimal(f"{significant}E-{places - zeros}" if zeros < places else text[: len(text) - places])


def _on_grid(ratio: Fraction, places: int, rounding: str) -> int:
    numerator: int = ratio.numerator * 10**places
    coefficient, rest = divmod(numerator, ratio.denominator)
    return coefficient + 1 if rest and rounding == ROUND_CEILING else coefficient


def _require_range(ratio: Fraction) -> None:
    if ratio.numerator * _SCALE < ratio.denominator:
        raise _not_a_price(ratio, f"be at least 10^-{MAX_DECIMAL_PLACES}")
    if ratio.numerator > MAX_COEFFICIENT * ratio.denominator:
        raise _not_a_price(ratio, "be at most 2^96-1")


def are_canonical(texts: Sequence[str]) -> bool:
    """Return whether all texts match `is_canonical`, in one regular expression over the column."""
    column = " ".join(texts)
    return column.count(" ") == len(texts) - 1 and _CANONICAL_COLUMN(f"{column} ") is not None


def _significant(digits: str) -> str:
    return digits.lstrip("0") or "0"


def _without_trailing_zeros(text: str) -> str:
    # A text with two points is not a price, and stays unchanged for the message.
    return text.rstrip("0").removesuffix(".") if text.count(".") == 1 else text


def _exponent(text: str) -> int:
    """Return the exponent; if its text is too long to convert, one of the same sign that is out of range."""
    if not text:
        return 0
    digits = _significant(text.lstrip("+-"))
    if len(digits) > _MAX_EXPONENT_DIGITS:
        digits = "9" * _MAX_EXPONENT_DIGITS
    exponent = int(digits)
    return -exponent if text[0] == "-" else exponent


def _wrong_type(value: object) -> str:
    given = f"a price must be a str or a Decimal, got {type(value).__name__}: {safe_repr(value)}"
    if type(value) in {int, float} and 0 < value <= MAX_COEFFICIENT:  # type: ignore[operator]  # numbers, both of them
        return f"{given}; pass '{value}' or Decimal('{value}')"
    if isinstance(value, Fraction):
        return f"{given}; pass it to an Order, whose level_price is a price"
    return f"{given}; pass the text of the price or a Decimal"


def _not_a_ratio(value: object, rule: str) -> PriceOutOfRange:
    return PriceOutOfRange(f"a ratio must {rule}, got {safe_repr(value)}")


def _too_many_digits(value: object) -> PriceOutOfRange:
    return _not_a_ratio(value, f"have at most {MAX_RATIO_DIGITS} digits in each number")


def _not_a_price(value: object, rule: str) -> PriceOutOfRange:
    return PriceOutOfRange(f"a price must {rule}, got {safe_repr(value)}")
