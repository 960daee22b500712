"""A price's text to Decimal and back, and its bounds.

A price is quote units per one base unit, both in smallest units (decision 2). It is a number greater than 0 whose
coefficient is below 2^96 and that has at most 28 decimal places (decision 3: a 96-bit decimal). One price has one
text (decision 4), and here also one Decimal: without trailing zeros, and with no positive exponent.

Nothing here depends on the decimal context of the caller's thread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Final

from market_index.errors import InvalidPrice, safe_repr

MAX_COEFFICIENT: Final = 2**96 - 1
"""The largest coefficient of a price, once trailing zeros behind the point are gone."""

MAX_DECIMAL_PLACES: Final = 28
"""The most decimal places of a price, once trailing zeros are gone."""

MAX_RATIO_DIGITS: Final = 600
"""The most digits of either number of a ratio; Python converts 640 of them whatever limit is set."""

_SCALE: Final = 10**MAX_DECIMAL_PLACES
_MAX_DIGITS: Final = len(str(MAX_COEFFICIENT))

# The one text of a price (decision 4), of so few digits that its bounds hold too (decision 3): what most prices are.
_CANONICAL_TEXT: Final = r"(?:0\.[0-9]{1,28}(?<!0)|[1-9][0-9]{0,13}(?:\.[0-9]{1,14}(?<!0))?)"
_CANONICAL_COLUMN: Final = re.compile(f"(?:{_CANONICAL_TEXT} )*").fullmatch

is_canonical: Final = re.compile(_CANONICAL_TEXT).fullmatch
"""Whether a str is the one text of a price; one of more than 28 digits is not recognised."""

# Decision 5. `\Z`, because `$` would let a newline through; `[0-9]`, because `\d` would let other scripts through.
_TEXT: Final = re.compile(r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?\Z")
_DIGITS: Final = re.compile(r"[0-9]+\Z")
_MAX_EXPONENT_DIGITS: Final = 18


def parse_price(text: str) -> Decimal:
    """Read a price: ASCII digits with an optional point, and an exponent where the value stays in range.

    >>> parse_price("0.0000110")
    Decimal('0.000011')
    >>> parse_price("1e-8") == parse_price("0.00000001")
    True
    >>> parse_price("1e1000000")
    Traceback (most recent call last):
    market_index.errors.InvalidPrice: '1e1000000' is not a price: it is too large

    Raises `InvalidPrice` for any other text, zero, and what is out of range. A text costs time in proportion to its
    length, never to its value.
    """
    if not isinstance(text, str):
        raise InvalidPrice(f"a price must be a str, not {type(text).__name__}: {safe_repr(text)}")
    if is_canonical(text):
        return Decimal(text)
    plain = _without_trailing_zeros(text)
    if is_canonical(plain):
        return Decimal(plain)
    match = _TEXT.match(text)
    if match is None:
        raise _not_a_price(text, "it must be ASCII digits with an optional point, and an optional exponent")
    whole, fraction, exponent_text = match.groups(default="")
    digits = whole + fraction
    exponent = _exponent(exponent_text) - len(fraction)
    significant = digits.strip("0")
    if not significant:
        raise _not_a_price(text, "it is zero")
    exponent += len(digits) - len(digits.rstrip("0"))
    if exponent < -MAX_DECIMAL_PLACES:
        raise _not_a_price(text, f"it has more than {MAX_DECIMAL_PLACES} decimal places")
    if exponent > 0 and len(significant) + exponent <= _MAX_DIGITS:
        significant += "0" * exponent
        exponent = 0
    if exponent > 0 or len(significant) > _MAX_DIGITS or int(significant) > MAX_COEFFICIENT:
        raise _not_a_price(text, "it is too large" if exponent >= 0 else "its coefficient is not below 2^96")
    return Decimal(f"{significant}E{exponent}")


def parse_prices(texts: Sequence[str]) -> list[Decimal]:
    """Read each text as `parse_price` does, but all at once.

    >>> parse_prices(["0.5", "2e1"])
    [Decimal('0.5'), Decimal('20')]

    Raises as `parse_price` does, for the first that is no price.
    """
    if _are_canonical(texts):
        return list(map(Decimal, texts))
    plain = [_without_trailing_zeros(text) for text in texts]
    return list(map(Decimal, plain)) if _are_canonical(plain) else list(map(parse_price, texts))


def to_price(value: Decimal | str) -> Decimal:
    """Return `value`, a Decimal or the text of one, as a price: in range, and without trailing zeros.

    >>> to_price(Decimal("0.10"))
    Decimal('0.1')
    >>> to_price(0.1)
    Traceback (most recent call last):
    market_index.errors.InvalidPrice: a price must be a str or a Decimal, not float (0.1): pass '0.1' or Decimal('0.1')

    Raises `InvalidPrice`. A float is refused because it is seldom the number that was written, an int because an
    amount in the place of a price would pass unseen.
    """
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
        raise _not_a_price(value, "it is not finite")
    if value.is_signed() or not value:
        raise _not_a_price(value, "it must be greater than zero")
    # Of a number within these bounds the fixed-point text is about as long as its coefficient.
    magnitude = value.adjusted()
    if magnitude >= _MAX_DIGITS:
        raise _not_a_price(value, "it is too large")
    if magnitude < -MAX_DECIMAL_PLACES:
        raise _not_a_price(value, f"it has more than {MAX_DECIMAL_PLACES} decimal places")
    return parse_price(format(value, "f"))


def to_ratio(value: Decimal | Fraction | str) -> Fraction:
    """Return `value` as an exact ratio greater than zero, which need not be in the range of a price.

    A text is a decimal as of a price, or a numerator and a denominator.

    >>> to_ratio("7/29000"), to_ratio(Decimal("0.25"))
    (Fraction(7, 29000), Fraction(1, 4))

    Raises `InvalidPrice` for anything else, and for a text or a Decimal whose numbers have more than 600 digits.
    """
    if isinstance(value, str):
        numerator, denominator = _parsed_ratio(value)
    elif isinstance(value, Decimal):
        numerator, denominator = _decimal_ratio(value)
    elif isinstance(value, Fraction):
        # A subclass may override arithmetic.
        numerator, denominator = value.numerator, value.denominator
    else:
        raise InvalidPrice(_wrong_type(value))
    if numerator <= 0 or not denominator:
        raise _not_a_ratio(value, "it must be greater than zero" if denominator else "its denominator is zero")
    return Fraction(numerator, denominator)


def _parsed_ratio(text: str) -> tuple[int, int]:
    numerator, slash, denominator = text.partition("/")
    if not slash:
        if (match := _TEXT.match(text)) is None:
            raise _not_a_ratio(text, "it must be ASCII digits with an optional point or one slash")
        whole, fraction, exponent = match.groups(default="")
        return _scaled(text, whole + fraction, _exponent(exponent) - len(fraction))
    if _DIGITS.match(numerator) is None or _DIGITS.match(denominator) is None:
        raise _not_a_ratio(text, "it must be ASCII digits with an optional point or one slash")
    if max(len(numerator), len(denominator)) > MAX_RATIO_DIGITS:
        raise _too_many_digits(text)
    return int(numerator), int(denominator)


def _decimal_ratio(value: Decimal) -> tuple[int, int]:
    # Of a subclass, its number: it may override any method.
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        raise _not_a_ratio(value, "it is not finite")
    if len(digits) > MAX_RATIO_DIGITS:
        raise _too_many_digits(value)
    numerator, denominator = _scaled(value, "".join(map(str, digits)), exponent)
    return -numerator if sign else numerator, denominator


def _scaled(value: object, digits: str, exponent: int) -> tuple[int, int]:
    """Return a coefficient and an exponent of ten as a numerator and a denominator."""
    if max(len(digits) + max(exponent, 0), 1 + max(-exponent, 0)) > MAX_RATIO_DIGITS:
        raise _too_many_digits(value)
    return int(digits) * 10 ** max(exponent, 0), 10 ** max(-exponent, 0)


def to_price_or_ratio(value: Decimal | Fraction | str) -> Decimal | Fraction:
    """Return `value` as a price; a `Fraction` that no price's decimal gives exactly stays one.

    >>> to_price_or_ratio(Fraction(1, 4)), to_price_or_ratio(Fraction(1, 3))
    (Decimal('0.25'), Fraction(1, 3))

    Raises `InvalidPrice`, also for a ratio below 10^-28 or above 2^96-1.
    """
    if not isinstance(value, Fraction):
        return to_price(value)
    # A subclass may override arithmetic.
    value = Fraction(value.numerator, value.denominator)
    _require_range(value)
    if _SCALE % value.denominator:
        return value
    price = rounded_price(value, ROUND_FLOOR)
    return price if price == value else value


def rounded_price(ratio: Fraction, rounding: str) -> Decimal:
    """Return the highest price that is not above the ratio (`ROUND_FLOOR`), or the lowest not below (`ROUND_CEILING`).

    >>> rounded_price(Fraction(2, 3), ROUND_FLOOR), rounded_price(Fraction(2, 3), ROUND_CEILING)
    (Decimal('0.6666666666666666666666666666'), Decimal('0.6666666666666666666666666667'))

    Raises `InvalidPrice` for a ratio below 10^-28 or above 2^96-1, `ValueError` for any other rounding.
    """
    if rounding not in {ROUND_FLOOR, ROUND_CEILING}:
        raise ValueError(f"rounding must be {ROUND_FLOOR} or {ROUND_CEILING}, not {safe_repr(rounding)}")
    _require_range(ratio)
    # The finest grid on which there is such a price, every coarser one being part of it: the one of as many digits as
    # a price can have, or the one before it.
    places = min(_MAX_DIGITS - len(str(int(ratio))), MAX_DECIMAL_PLACES)
    coefficient = _on_grid(ratio, places, rounding)
    if coefficient > MAX_COEFFICIENT:
        places -= 1
        coefficient = _on_grid(ratio, places, rounding)
    price = _price(coefficient, places)
    if rounding == ROUND_FLOOR and places < MAX_DECIMAL_PLACES:
        # The last price of the next finer grid is below the ratio, and may be above this one.
        price = max(price, _price(MAX_COEFFICIENT, places + 1))
    return price


def format_price(price: Decimal) -> str:
    """Return the one text of a price: fixed-point, no exponent, no trailing zeros.

    >>> format_price(Decimal("1.10E-5"))
    '0.000011'

    Raises `InvalidPrice` for what is not a price.
    """
    return price_text(to_price(price))


def price_text(price: Decimal) -> str:
    """Return the one text of a price from `to_price` or `parse_price`, without validating it again."""
    text = str(price)
    # str writes small numbers with an exponent, whose letter depends on the decimal context; all others as format does,
    # in half the time.
    return format(price, "f") if "E" in text or "e" in text else text


def _price(coefficient: int, places: int) -> Decimal:
    """Return a price of a coefficient and decimal places within bounds, without trailing zeros behind the point."""
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
        raise _not_a_price(ratio, f"it is not at least 10^-{MAX_DECIMAL_PLACES}")
    if ratio.numerator > MAX_COEFFICIENT * ratio.denominator:
        raise _not_a_price(ratio, "it is above 2^96-1")


def _are_canonical(texts: Sequence[str]) -> bool:
    """Whether each is the one text of a price, found out in one run over all of them; not all that are need be."""
    column = " ".join(texts)
    return column.count(" ") == len(texts) - 1 and _CANONICAL_COLUMN(f"{column} ") is not None


def _without_trailing_zeros(text: str) -> str:
    # Of two points neither is decimal: such a text stays what it is, and is no price.
    return text.rstrip("0").removesuffix(".") if text.count(".") == 1 else text


def _exponent(text: str) -> int:
    """Return the exponent, or one of its sign that is out of every range when it is absurdly long."""
    if not text:
        return 0
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > _MAX_EXPONENT_DIGITS:
        digits = "9" * _MAX_EXPONENT_DIGITS
    exponent = int(digits or "0")
    return -exponent if text[0] == "-" else exponent


def _wrong_type(value: object) -> str:
    given = f"a price must be a str or a Decimal, not {type(value).__name__} ({safe_repr(value)})"
    if type(value) in {int, float} and 0 < value <= MAX_COEFFICIENT:  # type: ignore[operator]  # numbers, both of them
        return f"{given}: pass '{value}' or Decimal('{value}')"
    if isinstance(value, Fraction):
        return f"{given}: an Order takes it, and its level_price is the price of a level"
    return f"{given}: pass the price's text, or a Decimal"


def _not_a_ratio(value: object, reason: str) -> InvalidPrice:
    return InvalidPrice(f"{safe_repr(value)} is not a ratio: {reason}")


def _too_many_digits(value: object) -> InvalidPrice:
    return _not_a_ratio(value, f"its numbers must have at most {MAX_RATIO_DIGITS} digits")


def _not_a_price(value: object, reason: str) -> InvalidPrice:
    return InvalidPrice(f"{safe_repr(value)} is not a price: {reason}")
