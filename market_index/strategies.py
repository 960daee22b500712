"""Hypothesis strategies for books, indexes, orders and their parts, for the test suites of users of the library.

Each strategy mixes generated values with edge cases: the empty and the longest asset name, the smallest and the largest
price, amounts above 2^53, books of one level, locked and crossed books. Values shrink towards short, readable ones. The
extra `hypothesis` also registers the strategies by type, for `st.from_type(OrderBook)` and `@given(book=...)`.

>>> from hypothesis import given
>>> @given(order_books(min_levels=1, crossed=False))
... def test_a_fill_is_never_better_than_the_best_price(book):
...     assert book.buy(1).average_price >= book.best_ask.price
>>> test_a_fill_is_never_better_than_the_best_price()

A part of a value, such as the pair in `order_books(pair=...)`, is given as a value or a strategy. An impossible range
or combination of arguments raises `InvalidArgument` of Hypothesis at once. An invalid part raises the error of its type
when a value is drawn. A strategy that you pass must draw enough different prices for the levels of
a book, and enough different pairs for an index.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from itertools import chain, product
from math import ceil, floor
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeAlias, TypeVar

from market_index.assets import ADA, MAX_ASSET_NAME_LENGTH, POLICY_ID_LENGTH, AssetId
from market_index.display.tokens import MAX_DECIMALS, Token, Tokens
from market_index.errors import missing_extra, safe_repr
from market_index.freshness import Freshness
from market_index.index import MarketIndex
from market_index.levels import MAX_LIQUIDITY, Levels, PriceLevel
from market_index.order_book import OrderBook
from market_index.orders import Order
from market_index.pairs import Pair, PairInfo
from market_index.prices import MAX_COEFFICIENT, MAX_DECIMAL_PLACES, Side, format_price, to_price
from market_index.resting_orders import RestingOrders

try:
    from hypothesis import strategies as st
    from hypothesis.errors import InvalidArgument
except ModuleNotFoundError as _missing:
    raise missing_extra(__name__, "hypothesis", _missing) from None

__all__ = [
    "amounts",
    "asset_ids",
    "freshness",
    "level_changes",
    "levels",
    "market_indexes",
    "order_books",
    "order_ids",
    "orders",
    "pair_infos",
    "pairs",
    "price_levels",
    "prices",
    "ratios",
    "resting_orders",
    "tokens",
]

_T = TypeVar("_T")

Part: TypeAlias = _T | st.SearchStrategy[_T] | None
"""A part of a value: a value, a strategy, or None for any valid value."""


# Functions that all strategies share


@st.composite
def _build(draw: st.DrawFn, target: Callable[..., _T], *parts: st.SearchStrategy[Any]) -> _T:
    """Build a value of drawn parts. Unlike with `st.builds`, a failing test shows the value, not the call."""
    return target(*map(draw, parts))


def _part(part: Part[_T], default: st.SearchStrategy[_T]) -> st.SearchStrategy[_T]:
    if part is None:
        return default
    return part if isinstance(part, st.SearchStrategy) else st.just(part)


# Assets and pairs


_AWKWARD_POLICY_IDS: Final = tuple(bytes([octet] * POLICY_ID_LENGTH) for octet in (0x00, 0xAB, 0xFF))

_AWKWARD_ASSET_NAMES: Final = (
    *(b"", b"SNEK", b"\x00", bytes(MAX_ASSET_NAME_LENGTH), b"\xff" * MAX_ASSET_NAME_LENGTH),
    *(b"\x00\x0d\xe1\x40NFT", "Ünï 大".encode(), b"A/B:C.D\n", b"\xff\xfe"),
)

_AWKWARD_TOKENS: Final = tuple(AssetId(*parts) for parts in product(_AWKWARD_POLICY_IDS, _AWKWARD_ASSET_NAMES))


def asset_ids(*, ada: bool = True) -> st.SearchStrategy[AssetId]:
    """Draw native tokens, and ADA unless `ada` is False. Some tokens share a policy id or an asset name.

    Names are texts, names with a CIP-67 label, and other bytes.
    """
    policy_ids = st.sampled_from(_AWKWARD_POLICY_IDS) | st.binary(min_size=POLICY_ID_LENGTH, max_size=POLICY_ID_LENGTH)
    names = st.sampled_from(_AWKWARD_ASSET_NAMES) | st.binary(max_size=MAX_ASSET_NAME_LENGTH)
    tokens = st.sampled_from(_AWKWARD_TOKENS) | _build(AssetId, policy_ids, names)
    return st.just(ADA) | tokens if ada else tokens


def pairs(*, base: Part[AssetId] = None, quote: Part[AssetId] = None) -> st.SearchStrategy[Pair]:
    """Draw pairs that can be tracked: base and quote differ."""
    # They differ in the simplest example: only if it is valid, Hypothesis starts with small examples.
    tokens_first = asset_ids(ada=False) | st.just(ADA)
    first = _part(base, asset_ids() if quote is None else tokens_first)
    return _build(Pair, first, _part(quote, tokens_first)).filter(lambda pair: pair.base != pair.quote)


# Prices, ratios and amounts


_LOWEST_PRICE: Final = Decimal(f"1E-{MAX_DECIMAL_PLACES}")
_HIGHEST_PRICE: Final = Decimal(MAX_COEFFICIENT)
_COMMON_DECIMAL_PLACES: Final = (0, 1, 2, 3, 8)

_AWKWARD_RATIOS: Final = (
    *(Fraction(1), Fraction(1, 3), Fraction(152648, 2832390295), Fraction(_LOWEST_PRICE), Fraction(_HIGHEST_PRICE)),
    *(Fraction(MAX_COEFFICIENT + 2, 10), 1 - Fraction(_LOWEST_PRICE), Fraction(MAX_COEFFICIENT * 3 - 1, 3)),
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
        InvalidArgument: No price is in the range, or a price cannot have so many decimal places.
    """
    lowest = _LOWEST_PRICE if min_value is None else to_price(min_value)
    highest = _HIGHEST_PRICE if max_value is None else to_price(max_value)
    return _on_grids(lowest, highest, max_decimal_places).map(next)


@lru_cache(maxsize=64)  # expensive to create, and most other strategies use the same one
def _on_grids(
    lowest: Decimal = _LOWEST_PRICE, highest: Decimal = _HIGHEST_PRICE, max_places: int = MAX_DECIMAL_PLACES
) -> st.SearchStrategy[Iterator[Decimal]]:
    """Draw a price, and after it the following prices of its grid: the multiples of a power of ten in the range."""
    if not 0 <= max_places <= MAX_DECIMAL_PLACES:
        raise InvalidArgument(f"max_decimal_places must be from 0 to {MAX_DECIMAL_PLACES}, got {max_places}")
    # Of each number of decimal places: the smallest and the largest coefficient of a price in the range.
    grids = {
        places: (first, last)
        for places in range(max_places + 1)
        for first, last in [(_scaled(lowest, places, ceil), min(_scaled(highest, places, floor), MAX_COEFFICIENT))]
        if first <= last
    }
    if not grids:
        raise InvalidArgument(
            f"a price must exist between min_value and max_value with at most {max_places} decimal places, "
            f"got {lowest} and {highest}"
        )
    usual = [places for places in grids if places in {*_COMMON_DECIMAL_PLACES, max_places}]
    drawn = [(places, *grids[places]) for places in usual or grids]
    # Each in the finest grid: the coefficients next to a number.
    for number in (lowest, highest, *[min(max(Decimal(1), lowest), highest)] * 3):
        places = max(places for places in grids if _scaled(number, places, ceil) <= MAX_COEFFICIENT)
        first, last = grids[places]
        start = max(first, min(_scaled(number, places, ceil), last - _NEIGHBOURS + 1))
        drawn.append((places, start, min(start + _NEIGHBOURS - 1, last)))
    if 0 in grids:
        drawn += [(0, number, number) for number in _LARGE_INTEGERS if lowest <= number <= highest]
    # Drawn as a difference: an example shrinks to another grid, where a coefficient of this one would be large.
    ranges = st.sampled_from([(places, least, st.integers(0, most - least)) for places, least, most in drawn])

    @st.composite
    def on_grid(draw: st.DrawFn) -> Iterator[Decimal]:
        places, least, differences = draw(ranges)
        start = least + draw(differences)
        first, last = grids[places]
        coefficients = chain(range(start, last + 1), range(first, start))
        return (to_price(Decimal(f"{coefficient}E-{places}")) for coefficient in coefficients)

    return on_grid()


def _scaled(number: Decimal, places: int, rounded: Callable[[Fraction], int]) -> int:
    return rounded(Fraction(number) * 10**places)


def ratios() -> st.SearchStrategy[Fraction]:
    """Draw prices as ratios, as they are in orders on the ledger, from 10^-28 to 2^96-1."""
    denominators = st.integers(1, 100) | st.integers(1, 10**MAX_DECIMAL_PLACES)
    return _build(Fraction, _integers(1, MAX_COEFFICIENT), denominators) | st.sampled_from(_AWKWARD_RATIOS)


def amounts(*, min_value: int = 1, max_value: int = MAX_LIQUIDITY) -> st.SearchStrategy[int]:
    """Draw amounts of the base asset, in its smallest unit. Levels have at least 1; a change to 0 removes a level.

    Raises:
        InvalidArgument: The range is empty, or a bound is not from 0 to 2^64-1.
    """
    return _integers(_possible(min_value), _possible(max_value))


def _possible(amount: int, least: int = 0) -> int:
    if type(amount) is not int or not least <= amount <= MAX_LIQUIDITY:
        raise InvalidArgument(f"an amount must be a whole number (int) from {least} to 2^64-1, got {safe_repr(amount)}")
    return amount


def _integers(least: int, most: int) -> st.SearchStrategy[int]:
    """Draw integers, some of them large, that shrink towards `least`."""
    large = [number for number in _LARGE_INTEGERS if least <= number <= most]
    # Not ranges that start at a large integer: an example may shrink within such a range, and not to small integers.
    return st.integers(least, most) | st.sampled_from([*large, most]) if large else st.integers(least, most)


def _price(price: Part[Decimal | str]) -> st.SearchStrategy[Decimal]:
    drawn: st.SearchStrategy[Decimal | str] = _part(price, prices())
    # Normalized: equal prices must be one Decimal.
    return drawn.map(to_price)


def _amount(amount: Part[int], least: int = 1) -> st.SearchStrategy[int]:
    if isinstance(amount, int):
        return st.just(_possible(amount, least))
    return _part(amount, amounts(min_value=least))


# Books, their sides and changes


_DEEP: Final = 50
"""The number of levels on each side of a deep book. Hypothesis draws no books of several times as many."""


def price_levels(*, price: Part[Decimal | str] = None, amount: Part[int] = None) -> st.SearchStrategy[PriceLevel]:
    """Draw price levels; `price` and `amount` are values or strategies."""
    return _build(PriceLevel, _price(price), _amount(amount))


def order_books(
    *,
    pair: Part[Pair] = None,
    sides: Side | Collection[Side] = tuple(Side),
    min_levels: int = 0,
    max_levels: int = 8,
    crossed: bool | None = None,
    locked: bool | None = None,
    price: Part[Decimal | str] = None,
    amount: Part[int] = None,
    spot: Part[Decimal | str | None] = None,
) -> st.SearchStrategy[OrderBook]:
    """Draw order books with `min_levels` to `max_levels` levels on each of the `sides`; any other side is empty.

    In most books the best bid is below the best ask; some are locked, some crossed. All prices of a book differ, except
    the common price of a locked book; some differ by 10^-28 only. One book in six is deep, unless `price` is given:
    each side has at least three quarters of the levels that are allowed, or 50. A book of 50 levels a side takes about
    20 times as long as a default book; Hypothesis reports books of at least 300 levels as too large.

    Args:
        pair: The pair; by default any that can be tracked.
        sides: The sides that have levels.
        min_levels: The minimum number of levels of each of these sides.
        max_levels: The maximum number of levels of each of these sides.
        crossed: The value of `is_crossed`; None allows both. If True, neither side is empty.
        locked: The value of `is_locked`; None allows both. If True, neither side is empty.
        price: The prices of the levels; all prices of a book differ, except the one at which a locked book meets.
        amount: The amounts of the levels, in the smallest unit of the base asset; from 1.
        spot: The spot price; by default None or any price.

    Raises:
        InvalidArgument: No book meets `sides`, `min_levels`, `max_levels`, `crossed`, `locked` and `amount`.
    """
    wanted = frozenset([sides] if isinstance(sides, Side) else sides)
    if not wanted <= set(Side):
        raise InvalidArgument(f"sides must contain only Side.BID and Side.ASK, got {safe_repr(sides)}")
    can_meet = len(wanted) == 2 and max_levels > 0
    # The kinds of books: the fewest levels of each side, how many of the best levels the sides exchange, and whether
    # the best prices are one.
    kinds: list[tuple[int, st.SearchStrategy[int], bool]] = []
    if not crossed and not locked:
        kinds += [(min_levels, st.just(0), False)] * 3
    if can_meet and locked is not False and not crossed:
        kinds.append((max(min_levels, 1), st.just(0), True))
    if can_meet and crossed is not False and not locked:
        kinds.append((max(min_levels, 1), st.integers(1, max_levels), False))
    if not kinds:
        raise InvalidArgument(
            f"a book with {len(wanted)} sides of up to {max_levels} levels must be possible, "
            f"got crossed={crossed}, locked={locked}"
        )
    if price is None:
        # Hypothesis draws about five elements more than the minimum, so a deep book needs a minimum of its own. A
        # strategy of the caller may have too few prices.
        kinds.append((max(kinds[0][0], min(max_levels * 3 // 4, _DEEP)), *kinds[0][1:]))
    drawn_pair, drawn_kind, drawn_spot = _part(pair, pairs()), st.sampled_from(kinds), _part(spot, st.none() | prices())
    # Not st.tuples: to explain a failure, Hypothesis varies each part of each tuple.
    level = _build(lambda *parts: parts, _on_grids() if price is None else _price(price), _amount(amount))

    def levels_beside(taken: Mapping[Decimal, int], least: int, most: int) -> st.SearchStrategy[dict[Decimal, int]]:
        if price is None:
            return st.lists(level, min_size=least, max_size=most).map(partial(_moved, taken))
        others = level.filter(lambda one: one[0] not in taken)
        return st.lists(others, min_size=least, max_size=most, unique_by=itemgetter(0)).map(dict)

    @st.composite
    def book(draw: st.DrawFn) -> OrderBook:
        of_pair = draw(drawn_pair)
        fewest, exchanges, shared = draw(drawn_kind)
        exchanged = draw(exchanges)
        # Each side is a list of its own, so that an example can shrink by any level.
        bids = draw(levels_beside({}, fewest, max_levels)) if Side.BID in wanted else {}
        asks = draw(levels_beside(bids, fewest - shared, max_levels - shared)) if Side.ASK in wanted else {}
        rising, at = sorted((bids | asks).items()), len(bids)
        exchanged = min(exchanged, len(bids), len(asks))
        low, high = rising[at - exchanged - shared : at], rising[at : at + exchanged]
        low, high = rising[: at - exchanged] + high, low + rising[at + exchanged :]
        return OrderBook.from_levels(of_pair, low, high, draw(drawn_spot))

    return book()


def _moved(taken: Mapping[Decimal, int], drawn: Iterable[tuple[Iterator[Decimal], int]]) -> dict[Decimal, int]:
    """Return levels at prices that are not taken: one that repeats moves on its grid.

    Examples shrink by one price at a time. A filter of repeated prices would block most steps.
    """
    found: dict[Decimal, int] = {}
    for candidates, liquidity in drawn:
        found[next(one for one in candidates if one not in found and one not in taken)] = liquidity
    return found


def levels(*, side: Part[Side] = None) -> st.SearchStrategy[Levels]:
    """Draw one side of a book."""
    return _part(side, st.sampled_from(Side)).flatmap(lambda of: order_books(sides=of).map(lambda book: book.side(of)))


def level_changes(
    book: OrderBook, *, price: Part[Decimal | str] = None, amount: Part[int] = None, max_changes: int = 8
) -> st.SearchStrategy[list[tuple[Decimal, int]]]:
    """Draw changes for one side of `book.apply`: at its prices and at others, with removals and repeated prices.

    Some prices are spelled differently: `Decimal("0.50")` for 0.5, `Decimal("1E+1")` for 10. If `amount` is not given,
    a third of the changes are removals.
    """
    if not isinstance(book, OrderBook):
        raise TypeError(f"book must be an OrderBook, not a strategy of books, got {safe_repr(book)}")
    at = _price(price)
    absolute = _amount(st.just(0) | amounts(min_value=0) if amount is None else amount, least=0)
    if existing := [level.price for side in (book.bids, book.asks) for level in side]:
        at = st.sampled_from(existing) | at
    return st.lists(st.tuples(at.flatmap(_spellings), absolute), max_size=max_changes)


def _spellings(price: Decimal) -> st.SearchStrategy[Decimal]:
    """Draw the canonical spelling of a price, or another one."""
    text = format_price(price)
    spellings = [price, Decimal(f"{text}0" if "." in text else f"{text}.0")]
    if text.endswith("0"):
        spellings.append(Decimal(f"{text[:-1]}E1"))
    return st.sampled_from(spellings)


# Orders and indexes


_AS_OFS: Final = st.from_regex(r"[!-~]([ -~]{0,198}[!-~])?", fullmatch=True)
_RECURRING_IDS: Final = ("0", "a#0", "b#1", f"{'f' * 64}#65535", " ", "~" * 200)
_FEW_PAIRS: Final = st.sampled_from([Pair(token, ADA) for token in _AWKWARD_TOKENS[:3]])


def orders(
    *,
    pair: Part[Pair] = None,
    side: Part[Side] = None,
    price: Part[Decimal | Fraction | str] = None,
    amount: Part[int] = None,
) -> st.SearchStrategy[Order]:
    """Draw orders with decimal prices or ratios. Some have an amount of 0."""
    return _build(
        Order,
        _part(pair, pairs()),
        _part(side, st.sampled_from(Side)),
        _part(price, prices() | ratios()),
        _amount(amount, least=0),
    )


def order_ids() -> st.SearchStrategy[str]:
    """Draw order ids, some of them from a small set, so that ids repeat."""
    return st.sampled_from(_RECURRING_IDS) | st.from_regex(r"[ -~]{1,200}", fullmatch=True)


def resting_orders(
    *, order: Part[Order] = None, min_orders: int = 0, max_orders: int = 8
) -> st.SearchStrategy[RestingOrders]:
    """Draw resting orders of a few pairs, some of them at one level. A pair may have a spot price, or no orders."""
    by_id = st.dictionaries(
        order_ids(), _part(order, orders(pair=_FEW_PAIRS)), min_size=min_orders, max_size=max_orders
    )
    spots = st.dictionaries(_FEW_PAIRS, st.none() | prices(), max_size=2)
    return _build(RestingOrders, by_id, spots, st.none() | _AS_OFS)


def pair_infos() -> st.SearchStrategy[PairInfo]:
    """Draw entries of a pair list; `last_spot` is None or any price."""
    return _build(lambda pair, spot: PairInfo(pair.base, pair.quote, spot), pairs(), st.none() | prices())


def freshness() -> st.SearchStrategy[Freshness]:
    """Draw freshness; `as_of` and `published_at` may each be unknown."""
    return _build(Freshness, st.none() | _AS_OFS, st.none() | st.datetimes(timezones=st.just(UTC)))


def market_indexes(
    *, book: Part[OrderBook] = None, min_pairs: int = 0, max_pairs: int = 6
) -> st.SearchStrategy[MarketIndex]:
    """Draw indexes of `min_pairs` to `max_pairs` pairs, with small books unless `book` is given."""
    drawn_books = _part(book, order_books(max_levels=3))
    books = st.lists(drawn_books, min_size=min_pairs, max_size=max_pairs, unique_by=attrgetter("pair"))
    return _build(MarketIndex.with_freshness, books.map(MarketIndex), freshness())


# Labels of tokens


_RECURRING_LABELS: Final = ("SNEK", "snek", "ADA", " ", "A\N{RIGHT-TO-LEFT OVERRIDE}B")


def tokens() -> st.SearchStrategy[Tokens]:
    """Draw entries of the token registry. Some tickers and names recur, and some have invisible characters."""
    label = st.none() | st.sampled_from(_RECURRING_LABELS) | st.text(max_size=60)
    entries = _build(Token, asset_ids(ada=False), label, label, st.none() | st.integers(0, MAX_DECIMALS))
    return _build(Tokens, st.lists(entries, unique_by=attrgetter("asset")))
