"""Strategies for prices, ratios and amounts."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor
from typing import Final

from hypothesis import strategies as st

from market_index.errors import safe_repr
from market_index.levels import MAX_LIQUIDITY
from market_index.prices import MAX_COEFFICIENT, MAX_DECIMAL_PLACES, format_price, to_price
from market_index.strategies.drawing import build, require_range

_LOWEST_PRICE: Final = Decimal(f"1E-{MAX_DECIMAL_PLACES}")

_HIGHEST_PRICE: Final = Decimal(MAX_COEFFICIENT)

_COMMON_DECIMAL_PLACES: Final = (0, 1, 2, 3, 8)

_AWKWARD_RATIOS: Final = (
    Fraction(1, 3),
    Fraction(152648, 2832390295),
    Fraction(1),
    Fraction(1, 10**MAX_DECIMAL_PLACES),
    Fraction(MAX_COEFFICIENT),
    Fraction(MAX_COEFFICIENT + 2, 10),
    Fraction(10**MAX_DECIMAL_PLACES - 1, 10**MAX_DECIMAL_PLACES),
    Fraction(MAX_COEFFICIENT * 3 - 1, 3),
)


# Integers that overflow in other programs: above 32 bits, not exact as a float, above 63 bits.
_LARGE_INTEGERS: Final = (2**32, 2**53 + 1, 2**63)

_NEIGHBOURS: Final = 16
"""The number of neighbouring prices that are drawn close to a number."""


def prices(
    *,
    min_value: Decimal | str | None = None,
    max_value: Decimal | str | None = None,
    max_decimal_places: int = MAX_DECIMAL_PLACES,
) -> st.SearchStrategy[Decimal]:
    """Draw prices from `min_value` to `max_value` (inclusive) with at most `max_decimal_places`.

    Most have few decimal places. Some are close to 1 or to a bound, so two prices may differ by 10^-28 and be equal as
    floats. They shrink towards whole numbers, and towards 1 or `min_value`.

    Raises:
        InvalidPrice: A bound is not a price.
        ValueError: No price is in the range, or `max_decimal_places` is not an int from 0 to 28.
    """
    lowest = _LOWEST_PRICE if min_value is None else to_price(min_value)
    highest = _HIGHEST_PRICE if max_value is None else to_price(max_value)
    if type(max_decimal_places) is not int or not 0 <= max_decimal_places <= MAX_DECIMAL_PLACES:
        raise ValueError(
            f"max_decimal_places must be an int from 0 to {MAX_DECIMAL_PLACES}, got {safe_repr(max_decimal_places)}"
        )
    return _prices(lowest, highest, max_decimal_places)


@lru_cache(maxsize=64)  # expensive to create, and most other strategies use the same one
def _prices(lowest: Decimal, highest: Decimal, max_places: int) -> st.SearchStrategy[Decimal]:
    grids = [
        (places, first, last)
        for places in (*(places for places in _COMMON_DECIMAL_PLACES if places < max_places), max_places)
        for first, last in [_coefficients(lowest, highest, places)]
        if first <= last
    ]
    if not grids:
        raise ValueError(
            f"a price must exist between min_value and max_value with at most {max_places} decimal places, "
            f"got {lowest} and {highest}"
        )
    one = min(max(Decimal(1), lowest), highest)
    close = [_close_to(number, lowest, highest, max_places) for number in (lowest, highest)]
    large = [(0, number, number) for number in _LARGE_INTEGERS if lowest <= number <= highest]
    places, start, last = _close_to(one, lowest, highest, max_places)
    # Several times close to 1, so that neighbours meet in one book. These are drawn as the difference to a coefficient:
    # in another grid, to which an example shrinks, the coefficient itself would be large.
    close_to_one = [(places, start, st.integers(0, last - start))] * 3
    return _price(
        st.sampled_from(
            [(places, 0, st.integers(first, last)) for places, first, last in (*grids, *close, *large)] + close_to_one
        )
    )


def _close_to(number: Decimal, lowest: Decimal, highest: Decimal, max_places: int) -> tuple[int, int, int]:
    """Return the finest grid with a price next to a number: decimal places, and the bounds of a few coefficients."""
    grids = ((places, *_coefficients(lowest, highest, places)) for places in range(max_places, -1, -1))
    places, first, last = next(
        (places, first, last)
        for places, first, last in grids
        if first <= last and Fraction(number) * 10**places <= MAX_COEFFICIENT
    )
    start = max(first, min(ceil(Fraction(number) * 10**places), last - _NEIGHBOURS + 1))
    return places, start, min(start + _NEIGHBOURS - 1, last)


@st.composite
def _price(draw: st.DrawFn, grids: st.SearchStrategy[tuple[int, int, st.SearchStrategy[int]]]) -> Decimal:
    places, start, offsets = draw(grids)
    return to_price(Decimal(f"{start + draw(offsets)}E-{places}"))


def _coefficients(lowest: Decimal, highest: Decimal, places: int) -> tuple[int, int]:
    """Return the smallest and the largest coefficient of prices in a range with these decimal places."""
    scale = 10**places
    return ceil(Fraction(lowest) * scale), min(floor(Fraction(highest) * scale), MAX_COEFFICIENT)


def ratios() -> st.SearchStrategy[Fraction]:
    """Draw prices as ratios, as they are in orders on the ledger, from 10^-28 to 2^96-1."""
    numerators = _integers(1, MAX_COEFFICIENT)
    return st.one_of(
        build(Fraction, numerators, st.integers(1, 100)),
        build(Fraction, numerators, st.integers(1, 10**MAX_DECIMAL_PLACES)),
        st.sampled_from(_AWKWARD_RATIOS),
    )


def amounts(*, min_value: int = 1, max_value: int = MAX_LIQUIDITY) -> st.SearchStrategy[int]:
    """Draw amounts of the base asset, in its smallest unit. Levels have at least 1; a change to 0 removes a level."""
    require_range("amounts", min_value, max_value, MAX_LIQUIDITY)
    return _integers(min_value, max_value)


def _integers(least: int, most: int) -> st.SearchStrategy[int]:
    """Draw integers, some of them large, that shrink towards `least`."""
    large = [number for number in _LARGE_INTEGERS if least <= number <= most]
    # Not ranges that start at a large integer: an example may shrink within such a range, and not to small integers.
    return st.integers(least, most) | st.sampled_from([*large, most]) if large else st.integers(least, most)


def price_strategy(price: object) -> st.SearchStrategy[Decimal]:
    """Return the strategy of a price that is given as a value, as a strategy, or not at all."""
    if price is None:
        return prices()
    # Normalize: equal prices must be one Decimal.
    return build(to_price, price) if isinstance(price, st.SearchStrategy) else st.just(to_price(price))  # type: ignore[arg-type]  # to_price raises for other types


def amount_strategy(amount: object, least: int) -> st.SearchStrategy[int]:
    """Return the strategy of an amount from `least` (0 or 1) that is given as a value, as a strategy, or not at all."""
    if amount is None:
        return amounts(min_value=least)
    if isinstance(amount, st.SearchStrategy):
        return amount.filter(bool) if least else amount
    if type(amount) is not int or not least <= amount <= MAX_LIQUIDITY:
        raise ValueError(f"an amount must be an int from {least} to 2^64-1, got {safe_repr(amount)}")
    return st.just(amount)


def spot_strategy(spot: object) -> st.SearchStrategy[Decimal | None]:
    """Return the strategy of a spot price that is given as a value, as a strategy, or not at all."""
    if spot is None:
        return st.none() | prices()
    return spot if isinstance(spot, st.SearchStrategy) else st.just(to_price(spot))  # type: ignore[arg-type]  # to_price raises for other types


_INVALID_PRICE_TEXTS: Final = (
    "",
    *(".", "0", "0.000", "0e5", "NaN", "sNaN", "Infinity", "e5", "1e", "1e+", "1.2.3", "1,5", "0x10", "1/3"),
    *("1e1000000", "1e-1000000"),
    f"{MAX_COEFFICIENT + 1}",
    f"1e-{MAX_DECIMAL_PLACES + 1}",
    "\N{FULLWIDTH DIGIT ONE}",
    "\N{SUPERSCRIPT TWO}",
)

_NO_PRICE_CHARACTERS: Final = "+-_ ,'/x\n\t\N{ARABIC-INDIC DIGIT THREE}\N{FULLWIDTH DIGIT TWO}\N{SUPERSCRIPT TWO}\0"


def invalid_price_texts() -> st.SearchStrategy[str]:
    """Draw texts that `parse_price` rejects. Most have one fault, or are just out of range."""
    return st.sampled_from(_INVALID_PRICE_TEXTS) | _damaged_prices()


@st.composite
def _damaged_prices(draw: st.DrawFn) -> str:
    text = format_price(draw(prices()))
    at = draw(st.integers(0, len(text)))
    # An odd coefficient has no trailing zeros, so it is too large with any number of decimal places.
    too_large = MAX_COEFFICIENT + 2 + 2 * draw(st.integers(0, 2**16))
    return draw(
        st.sampled_from(
            (
                f"{text[:at]}{draw(st.sampled_from(_NO_PRICE_CHARACTERS))}{text[at:]}",
                f".{text}.",
                f"{text}e{2 * MAX_DECIMAL_PLACES + 2}",
                f"{text}e-{2 * MAX_DECIMAL_PLACES + 2}",
                f"{too_large}e-{draw(st.integers(0, MAX_DECIMAL_PLACES))}",
                f"{text}{'' if '.' in text else '.'}{'0' * MAX_DECIMAL_PLACES}1",
            )
        )
    )
