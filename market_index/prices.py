"""Prices: parsing, formatting, bounds, exact arithmetic, and rounding to the price grid.

A price is quote units per one base unit, both in smallest units (decision 2). It is above 0, its coefficient is below
2^96, and it has at most 28 decimal places (decision 3: a 96-bit decimal). Each price has exactly one text (decision 4),
and in this library exactly one `Decimal`: without trailing zeros and without a positive exponent. No function here
depends on the decimal context of the caller's thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact, InvalidOperation, Overflow
from enum import Enum
from fractions import Fraction
from operator import gt, lt
from typing import Any, Final, TypeVar

from market_index.errors import InvalidOrderBook, InvalidPrice, PriceOutOfRange, safe_repr

N = TypeVar("N", int, Decimal)


class Side(Enum):
    """A side of a book: orders to buy (`BID`) or to sell (`ASK`) the base asset.

    >>> Side.BID.opposite, Side.BID.is_better(Decimal(2), Decimal(1)), Side.ASK.is_better(Decimal(2), Decimal(1))
    (Side.ASK, True, False)
    >>> sorted([Decimal(1), Decimal(2)], key=Side.BID.sort_key)
    [Decimal('2'), Decimal('1')]
    """

    BID = "bid"
    ASK = "ask"

    is_better: Callable[[Decimal, Decimal], bool]
    """Whether the first price is better for a taker than the second: a higher bid, or a lower ask."""

    sort_key: Callable[[Decimal], Decimal] | None
    """The `key` of `sorted` that sorts prices best first."""

    def __init__(self, name: str) -> None:
        is_bid = name == "bid"
        self.is_better = gt if is_bid else lt
        # copy_negate never rounds, unlike a minus sign.
        self.sort_key = Decimal.copy_negate if is_bid else None

    @property
    def opposite(self) -> Side:
        """The other side. A purchase takes from the asks, a sale from the bids."""
        return Side.ASK if self is Side.BID else Side.BID

    def worse_by(self, share: Decimal, price: Decimal) -> Decimal:
        """Return a price that is worse for a taker by a share of the price, exactly: a lower bid, or a higher ask.

        >>> Side.BID.worse_by(Decimal("0.02"), Decimal(100))
        Decimal('98.00')
        """
        difference = EXACT.multiply(price, share)
        return EXACT.subtract(price, difference) if self is Side.BID else EXACT.add(price, difference)

    def rounded(self, whole: N, rest: N) -> N:
        """Round the result of `divmod` to a whole number that is no better for a taker: bids down, asks up."""
        return whole + 1 if rest and self is Side.ASK else whole

    def __repr__(self) -> str:
        return str(self)


MAX_COEFFICIENT: Final = 2**96 - 1
"""The largest coefficient of a price, without trailing zeros after the point."""

MAX_DECIMAL_PLACES: Final = 28
"""The maximum number of decimal places of a price, without trailing zeros."""

MAX_RATIO_DIGITS: Final = 600
"""The maximum number of digits of each number of a ratio, without leading zeros.

Python converts integers of up to 640 digits, with any setting.
"""

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
_SCALE: Final = 10**MAX_DECIMAL_PLACES
_MAX_DIGITS: Final = len(str(MAX_COEFFICIENT))

# Converts a number below 10^29 exactly. Larger ones raise Overflow, and those of more than 128 digits Inexact, without
# being written out.
_PRICES: Final = Context(prec=EXACT.prec, Emin=EXACT.Emin, Emax=_MAX_DIGITS - 1, traps=[Overflow, Inexact])
_RATIO_DIGITS_RULE: Final = f"have at most {MAX_RATIO_DIGITS} digits in each number"
_RATIO_BOUND: Final = 10**MAX_RATIO_DIGITS
_RATIOS: Final = Context(prec=MAX_RATIO_DIGITS, Emin=0, Emax=MAX_RATIO_DIGITS - 1, traps=[Inexact])

# The canonical text of a price (decision 4), with so few digits that it is in range (decision 3). Most prices match.
_CANONICAL_TEXT: Final = r"(?:0\.[0-9]{1,28}+(?<!0)|[1-9][0-9]{0,13}+(?:\.[0-9]{1,14}+(?<!0))?+)"
_CANONICAL_COLUMN: Final = re.compile(f"(?:{_CANONICAL_TEXT} )*+").fullmatch
_is_canonical: Final = re.compile(_CANONICAL_TEXT).fullmatch

# Decision 5. `\Z`, because `$` matches before a final newline; `[0-9]`, because `\d` matches digits of other scripts.
# Possessive, so that the time is linear in the length of any text.
_is_decimal: Final = re.compile(r"(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+\Z").match
_ratio: Final = re.compile(r"([0-9]++)/([0-9]++)\Z").match


def plain(number: Decimal) -> Decimal:
    """Return the number without trailing zeros and without a positive exponent, and zero as plain 0.

    >>> plain(Decimal("1.50E3")), plain(Decimal("-0.00"))
    (Decimal('1500'), Decimal('0'))
    """
    # A zero may be negative.
    return EXACT.normalize(number) or _ZERO


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
    return to_price(text)


def _parsed(name: str, text: str) -> Decimal:
    """Return the price of a text that is not canonical."""
    # Exchanges write trailing zeros. A text with two points is not a price, and stays unchanged for the message.
    without_zeros = text.rstrip("0").removesuffix(".") if text.count(".") == 1 else text
    if _is_canonical(without_zeros):
        return Decimal(without_zeros)
    if not _is_decimal(text):
        raise InvalidPrice(
            f"{name} must be ASCII digits with an optional point and an optional exponent, got {safe_repr(text)}"
        )
    return _price(name, text)


def parse_prices(texts: Sequence[str]) -> tuple[list[Decimal], Sequence[str] | None]:
    """Parse a column of prices, faster than `parse_price` does one by one.

    Also return the texts if each is what `EXACT.to_sci_string` writes for its price; otherwise None.

    >>> parse_prices(["0.5", "20"])
    ([Decimal('0.5'), Decimal('20')], ['0.5', '20'])
    >>> parse_prices(["0.50", "2e1"])
    ([Decimal('0.5'), Decimal('20')], None)

    Raises:
        InvalidPrice: As `parse_price`, for the first text that is not a price.
    """
    column = f" {' '.join(texts)} "
    # One regular expression over the column. A text may contain a space.
    if column.count(" ") != len(texts) + 1 or not _CANONICAL_COLUMN(column, 1):
        return list(map(parse_price, texts)), None
    # A price below 10^-6 is written with an exponent.
    return list(map(EXACT.create_decimal, texts)), None if " 0.000000" in column else texts


def price_argument(price: Decimal | str) -> Any:
    """Return the argument unchanged: a converter that tells type checkers which arguments a field takes.

    A record converts and validates in `__attrs_post_init__`, because each way to make it calls that method, while
    msgspec calls no converter.
    """
    return price


def spot_argument(spot: Decimal | str | None) -> Any:
    """Return the argument unchanged, as `price_argument` does."""
    return spot


def to_price(value: Decimal | str, name: str = "a price") -> Decimal:
    """Return a Decimal or a text as a price: in range and without trailing zeros.

    >>> to_price(Decimal("0.10"))
    Decimal('0.1')
    >>> to_price(0.1)
    Traceback (most recent call last):
    market_index.errors.InvalidPrice: a price must be a str or a Decimal, got float: 0.1; pass '0.1' or Decimal('0.1')

    A float is rejected because it is rarely equal to the decimal that was written, an int because it may be an amount
    that was passed as the price by mistake. Messages call the value by `name`.

    Raises:
        InvalidPrice: The value has another type, or is out of range.
    """
    if isinstance(value, str):
        return Decimal(value) if _is_canonical(value) else _parsed(name, value)
    if not isinstance(value, Decimal):
        raise InvalidPrice(_wrong_type(name, value))
    # A subclass may override any method, __format__ for one.
    number = value if type(value) is Decimal else Decimal(value)
    return number if _is_canonical(str(number)) else _price(name, number)


def _price(name: str, value: Decimal | str) -> Decimal:
    """Return a number as a price. A text must be a decimal."""
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise _out_of_range(name, value, "be finite")
        if value.is_signed():
            raise _out_of_range(name, value, "be above 0")
    try:
        price = EXACT.normalize(_PRICES.create_decimal(value))
    except Overflow:
        raise _out_of_range(name, value, "be below 2^96") from None
    except Inexact:
        raise _out_of_range(name, value, f"have at most {MAX_DECIMAL_PLACES} decimal places") from None
    if not price:
        raise _out_of_range(name, value, "be above 0")
    places = _decimal_places(price)
    if places > MAX_DECIMAL_PLACES:
        raise _out_of_range(name, value, f"have at most {MAX_DECIMAL_PLACES} decimal places")
    if EXACT.scaleb(price, places) > MAX_COEFFICIENT:
        raise _out_of_range(name, value, "have a coefficient below 2^96" if places else "be below 2^96")
    return price


def to_ratio(value: Decimal | Fraction | str, name: str = "a ratio", *, or_zero: bool = False) -> Fraction:
    """Return a value as an exact ratio above 0 (or of 0, with `or_zero`), which may be out of the range of prices.

    A text is a decimal, in the form of a price, or `numerator/denominator`. Each number may have up to 600 digits;
    leading zeros do not count. A negative number is out of range. Messages call the value by `name`.

    >>> to_ratio("7/29000"), to_ratio(Decimal("0.25"))
    (Fraction(7, 29000), Fraction(1, 4))

    Raises:
        PriceOutOfRange: The number is not above 0, or has too many digits.
        InvalidPrice: The value has another type or form.
    """
    if isinstance(value, str):
        numerator, denominator = _parsed_ratio(name, value)
    elif isinstance(value, Decimal):
        numerator, denominator = _decimal_ratio(name, Decimal(value))
    elif isinstance(value, Fraction):
        # A subclass may override arithmetic.
        numerator, denominator = value.numerator, value.denominator
    else:
        raise InvalidPrice(_wrong_type(name, value))
    if numerator < (0 if or_zero else 1) or not denominator:
        raise _out_of_range(name, value, "be above 0" if denominator else "have a denominator above 0")
    if max(numerator, denominator) >= _RATIO_BOUND:
        raise _out_of_range(name, value, _RATIO_DIGITS_RULE)
    return Fraction(numerator, denominator)


def _parsed_ratio(name: str, text: str) -> tuple[int, int]:
    unsigned = text.removeprefix("-")
    quotient = _ratio(unsigned)
    if not quotient and not _is_decimal(unsigned):
        raise InvalidPrice(f"{name} must be ASCII digits with an optional point or one slash, got {safe_repr(text)}")
    if unsigned != text:
        raise _out_of_range(name, text, "be above 0")
    if not quotient:
        return _decimal_ratio(name, text)
    numerator, denominator = [digits.lstrip("0") or "0" for digits in quotient.groups()]
    if max(len(numerator), len(denominator)) > MAX_RATIO_DIGITS:
        raise _out_of_range(name, text, _RATIO_DIGITS_RULE)
    return int(numerator), int(denominator)


def _decimal_ratio(name: str, value: Decimal | str) -> tuple[int, int]:
    if isinstance(value, Decimal) and not value.is_finite():
        raise _out_of_range(name, value, "be finite")
    try:
        return _RATIOS.create_decimal(value).as_integer_ratio()
    except Inexact:
        raise _out_of_range(name, value, _RATIO_DIGITS_RULE) from None


def to_price_or_ratio(value: Decimal | Fraction | str) -> Decimal | Fraction:
    """Return a value as a price; a `Fraction` that equals no price exactly stays a `Fraction`.

    >>> to_price_or_ratio(Fraction(1, 4)), to_price_or_ratio(Fraction(1, 3))
    (Decimal('0.25'), Fraction(1, 3))

    Raises:
        InvalidPrice: The value has another type, or is out of range: a ratio from 10^-28 to 2^96-1 is in range.
    """
    if not isinstance(value, Fraction):
        return to_price(value)
    ratio = to_ratio(value)
    _require_range(ratio)
    if not _SCALE % ratio.denominator:
        # It has at most 28 decimal places.
        price = EXACT.normalize(EXACT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator)))
        if EXACT.scaleb(price, _decimal_places(price)) <= MAX_COEFFICIENT:
            return price
    return ratio


def price_for_takers(side: Side, ratio: Fraction) -> Decimal:
    """Round a ratio to the next price that is no better for a taker: bids down, asks up (decision 22).

    The result is one of the prices of decision 3, so a ratio that equals a price stays as it is. This function rounds
    the prices of levels, and the average price of a simulated fill.

    >>> price_for_takers(Side.BID, Fraction(2, 3)), price_for_takers(Side.ASK, Fraction(2, 3))
    (Decimal('0.6666666666666666666666666666'), Decimal('0.6666666666666666666666666667'))

    Raises:
        InvalidPrice: The ratio is below 10^-28 or above 2^96-1.
    """
    numerator, denominator = ratio.numerator, ratio.denominator
    _require_range(ratio)
    # The finest grid of prices at this size. It has as many digits as a price may have, or one less if the
    # coefficient is too large. All coarser grids are part of it.
    places = min(_MAX_DIGITS - len(str(numerator // denominator)), MAX_DECIMAL_PLACES)
    coefficient = side.rounded(*divmod(numerator * 10**places, denominator))
    if coefficient > MAX_COEFFICIENT:
        places -= 1
        coefficient = side.rounded(*divmod(numerator * 10**places, denominator))
    price = EXACT.scaleb(Decimal(coefficient), -places)
    if side is Side.BID and places < MAX_DECIMAL_PLACES:
        # The largest price of the next finer grid is below the ratio, because this is the finest grid that reaches the
        # ratio. It may be above this price.
        price = max(price, EXACT.scaleb(Decimal(MAX_COEFFICIENT), -places - 1))
    return EXACT.normalize(price)


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


def require_side(side: object) -> None:
    """Raise `InvalidOrderBook` unless the value is a `Side`."""
    if type(side) is not Side:
        raise InvalidOrderBook(f"side must be Side.BID or Side.ASK, got {safe_repr(side)}")


def _decimal_places(number: Decimal) -> int:
    """Return the decimal places of a number from `EXACT.normalize`, which has no positive exponent."""
    return -int(number.as_tuple().exponent)


def _require_range(ratio: Fraction) -> None:
    if ratio.numerator * _SCALE < ratio.denominator:
        raise _out_of_range("a price", ratio, f"be at least 10^-{MAX_DECIMAL_PLACES}")
    if ratio.numerator > MAX_COEFFICIENT * ratio.denominator:
        raise _out_of_range("a price", ratio, "be at most 2^96-1")


def _wrong_type(name: str, value: object) -> str:
    given = f"{name} must be a str or a Decimal, got {type(value).__name__}: {safe_repr(value)}"
    if type(value) in {int, float} and 0 < value <= MAX_COEFFICIENT:  # type: ignore[operator]  # numbers, both of them
        order = "; a level is (price, amount)" if type(value) is int and name == "a price" else ""
        return f"{given}; pass '{value}' or Decimal('{value}'){order}"
    return f"{given}; pass a Decimal, or the text of one"


def _out_of_range(name: str, value: object, rule: str) -> PriceOutOfRange:
    return PriceOutOfRange(f"{name} must {rule}, got {safe_repr(value)}")
