"""Hypothesis strategies for every public type, for the test suites of users of the library.

Each strategy mixes generated values with awkward ones: the empty asset name and the longest, the smallest price and the
largest, amounts above 2^53, books of one level, locked and crossed books. Each shrinks towards a value that is easy to
read. If the extra `hypothesis` is installed, type hints are enough: `st.from_type(OrderBook)`, `@given(book=...)`.

>>> from hypothesis import given
>>> @given(order_books(min_levels=1, crossed=False))
... def test_a_fill_is_never_better_than_the_best_price(book):
...     assert book.simulate_fill(Side.ASK, 1).average_price >= book.best_ask.price
>>> test_a_fill_is_never_better_than_the_best_price()

A part of a value, such as `order_books(pair=...)`, is a value or a strategy. Impossible arguments raise `ValueError`
when the strategy is made. What a given strategy draws is not checked: the values must have the right type, and there
must be enough different ones for the levels or pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import ceil, floor
from operator import attrgetter, itemgetter
from typing import Any, Final, Literal, TypeAlias, TypeVar

from hypothesis import strategies as st

from market_index.assets import ADA, MAX_ASSET_NAME_LENGTH, POLICY_ID_LENGTH, AssetId
from market_index.depth import CumulativeLevel, Liquidity
from market_index.errors import safe_repr
from market_index.fills import SimulatedFill
from market_index.freshness import Freshness
from market_index.index import MarketIndex
from market_index.levels import MAX_LIQUIDITY, Levels, PriceLevel, Side
from market_index.live import LiveIndex
from market_index.order_book import OrderBook
from market_index.orders import Order
from market_index.pairs import Pair, PairInfo, require_trackable
from market_index.prices import MAX_COEFFICIENT, MAX_DECIMAL_PLACES, format_price, to_price, to_price_or_ratio
from market_index.resting_orders import RestingOrders

__all__ = [
    "amounts",
    "asset_ids",
    "asset_names",
    "cumulative_levels",
    "freshness",
    "invalid_asset_id_texts",
    "invalid_price_texts",
    "level_changes",
    "levels",
    "liquidities",
    "live_indexes",
    "market_indexes",
    "order_books",
    "order_ids",
    "orders",
    "pair_infos",
    "pairs",
    "policy_ids",
    "price_levels",
    "prices",
    "ratios",
    "resting_orders",
    "simulated_fills",
]

_T = TypeVar("_T")
_Touch: TypeAlias = Literal["open", "locked", "crossed"]
_Level: TypeAlias = tuple[Decimal, int]

_AS_OFS: Final = st.from_regex(r"[!-~]([ -~]{0,198}[!-~])?", fullmatch=True)

_AWKWARD_POLICY_IDS: Final = (
    bytes(POLICY_ID_LENGTH),
    b"\xab" * POLICY_ID_LENGTH,
    b"\xff" * POLICY_ID_LENGTH,
    bytes(range(POLICY_ID_LENGTH)),
)
_AWKWARD_ASSET_NAMES: Final = (
    b"",
    b"SNEK",
    b"\x00",
    bytes(MAX_ASSET_NAME_LENGTH),
    b"\xff" * MAX_ASSET_NAME_LENGTH,
    b"\x00\x0d\xe1\x40NFT",
    "Ünï 大".encode(),
    b"A/B:C.D\n",
    b"\xff\xfe",
)
_AWKWARD_TOKENS: Final = tuple(AssetId(*parts) for parts in product(_AWKWARD_POLICY_IDS, _AWKWARD_ASSET_NAMES))
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

# Integers that other programs lose: too large for 32 bits, for a float, and for 64 bits with a sign.
_LARGE_INTEGERS: Final = (2**32, 2**53 + 1, 2**63)


_RECURRING_IDS: Final = ("0", "a#0", "b#1", f"{'f' * 64}#65535", " ", "~" * 200)
_FEW_PAIRS: Final = st.sampled_from([Pair(token, ADA) for token in _AWKWARD_TOKENS[:3]])


def policy_ids() -> st.SearchStrategy[bytes]:
    """Draw policy ids of 28 bytes; half of them are from a few that recur."""
    return st.sampled_from(_AWKWARD_POLICY_IDS) | st.binary(min_size=POLICY_ID_LENGTH, max_size=POLICY_ID_LENGTH)


def asset_names(*, min_size: int = 0, max_size: int = MAX_ASSET_NAME_LENGTH) -> st.SearchStrategy[bytes]:
    """Draw asset names of `min_size` to `max_size` bytes: texts, names with a CIP-67 label, and other bytes."""
    _require_sizes("the bytes of an asset name", min_size, max_size, MAX_ASSET_NAME_LENGTH)
    awkward = [name for name in _AWKWARD_ASSET_NAMES if min_size <= len(name) <= max_size]
    others = st.binary(min_size=min_size, max_size=max_size)
    return st.sampled_from(awkward) | others if awkward else others


def asset_ids(
    *,
    ada: bool = True,
    policy_id: bytes | st.SearchStrategy[bytes] | None = None,
    asset_name: bytes | st.SearchStrategy[bytes] | None = None,
) -> st.SearchStrategy[AssetId]:
    """Draw native tokens, and ADA unless `ada` is False. Some tokens share a policy id or an asset name."""
    if isinstance(policy_id, bytes):
        # AssetId accepts an empty policy id, for ADA. Here it is an error.
        AssetId(policy_id or b"?", b"")
    if isinstance(asset_name, bytes):
        AssetId(bytes(POLICY_ID_LENGTH), asset_name)
    tokens = _made(AssetId, _drawn(policy_id, policy_ids), _drawn(asset_name, asset_names))
    if policy_id is None and asset_name is None:
        tokens = st.sampled_from(_AWKWARD_TOKENS) | tokens
    return st.just(ADA) | tokens if ada else tokens


def pairs(
    *,
    base: AssetId | st.SearchStrategy[AssetId] | None = None,
    quote: AssetId | st.SearchStrategy[AssetId] | None = None,
) -> st.SearchStrategy[Pair]:
    """Draw pairs that can be tracked: base and quote differ."""
    if isinstance(base, AssetId) and base == quote:
        raise ValueError(f"base and quote must differ, got twice {base}")
    assets = st.tuples(_drawn(base, asset_ids), _drawn(quote, asset_ids)).filter(_differ)
    return _made(_pair, assets)


def _differ(assets: tuple[AssetId, AssetId]) -> bool:
    return assets[0] != assets[1]


def _pair(assets: tuple[AssetId, AssetId]) -> Pair:
    return Pair(*assets)


def prices(
    *,
    min_value: Decimal | str | None = None,
    max_value: Decimal | str | None = None,
    max_decimal_places: int = MAX_DECIMAL_PLACES,
) -> st.SearchStrategy[Decimal]:
    """Draw prices from `min_value` to `max_value`, both included, with at most `max_decimal_places`.

    Most have few decimal places. They shrink towards whole numbers, and towards 1 or `min_value`.
    """
    lowest = _LOWEST_PRICE if min_value is None else to_price(min_value)
    highest = _HIGHEST_PRICE if max_value is None else to_price(max_value)
    if type(max_decimal_places) is not int or not 0 <= max_decimal_places <= MAX_DECIMAL_PLACES:
        raise ValueError(
            f"max_decimal_places must be an int from 0 to {MAX_DECIMAL_PLACES}, got {safe_repr(max_decimal_places)}"
        )
    return _prices(lowest, highest, max_decimal_places)


@lru_cache(maxsize=64)  # it is made of many strategies, and most parts of other values use the same one
def _prices(lowest: Decimal, highest: Decimal, max_places: int) -> st.SearchStrategy[Decimal]:
    grids = [
        (places, st.integers(start, last))
        for places in (*(places for places in _COMMON_DECIMAL_PLACES if places < max_places), max_places)
        for first, last in [_coefficients(lowest, highest, places)]
        for start in _starts(first, last)
    ]
    if not grids:
        raise ValueError(f"no price from {lowest} to {highest} has at most {max_places} decimal places")
    return _price(st.sampled_from(grids))


@st.composite
def _price(draw: st.DrawFn, grids: st.SearchStrategy[tuple[int, st.SearchStrategy[int]]]) -> Decimal:
    places, coefficients = draw(grids)
    return to_price(Decimal(f"{draw(coefficients)}E-{places}"))


def _coefficients(lowest: Decimal, highest: Decimal, places: int) -> tuple[int, int]:
    """Return the first and the last coefficient that a price of a range can have with these decimal places."""
    scale = 10**places
    return ceil(Fraction(lowest) * scale), min(floor(Fraction(highest) * scale), MAX_COEFFICIENT)


def ratios() -> st.SearchStrategy[Fraction]:
    """Draw prices as numerator and denominator, as orders on the ledger have them, from 10^-28 to 2^96-1."""
    numerators = _integers(1, MAX_COEFFICIENT)
    return st.one_of(
        _made(Fraction, numerators, st.integers(1, 100)),
        _made(Fraction, numerators, st.integers(1, 10**MAX_DECIMAL_PLACES)),
        st.sampled_from(_AWKWARD_RATIOS),
    )


def amounts(*, min_value: int = 1, max_value: int = MAX_LIQUIDITY) -> st.SearchStrategy[int]:
    """Draw amounts of the base asset, in its smallest unit. A level has at least 1; for a change, `min_value` is 0."""
    _require_sizes("amounts", min_value, max_value, MAX_LIQUIDITY)
    return _integers(min_value, max_value)


def _integers(least: int, most: int) -> st.SearchStrategy[int]:
    return st.one_of([st.integers(start, most) for start in _starts(least, most)])


def _starts(least: int, most: int) -> list[int]:
    """Return the starts of the ranges, each up to `most`, to draw integers from.

    Hypothesis prefers the ends of a range and small values in it. With ranges that start at large integers it draws
    these, and others that are large. They are values of the first range too, and shrink there.
    """
    return [start for start in (least, *_LARGE_INTEGERS) if least <= start <= most]


def price_levels(
    *,
    price: Decimal | str | st.SearchStrategy[Decimal] | None = None,
    amount: int | st.SearchStrategy[int] | None = None,
) -> st.SearchStrategy[PriceLevel]:
    """Draw price levels."""
    return st.builds(PriceLevel, _drawn_price(price), _drawn_amount(amount, 1))


def orders(
    *,
    pair: Pair | st.SearchStrategy[Pair] | None = None,
    side: Side | st.SearchStrategy[Side] | None = None,
    price: Decimal | Fraction | str | st.SearchStrategy[Decimal] | st.SearchStrategy[Fraction] | None = None,
    amount: int | st.SearchStrategy[int] | None = None,
) -> st.SearchStrategy[Order]:
    """Draw orders with decimal prices and with ratios. Some have an amount of 0."""
    if price is not None and not isinstance(price, st.SearchStrategy):
        to_price_or_ratio(price)
    if isinstance(pair, Pair):
        require_trackable(pair)
    return st.builds(
        Order,
        _drawn(pair, pairs),
        _drawn(side, lambda: st.sampled_from(Side)),
        _drawn(price, lambda: prices() | ratios()),
        _drawn_amount(amount, 0),
    )


def order_ids() -> st.SearchStrategy[str]:
    """Draw order ids: a few that recur, and any others."""
    return st.sampled_from(_RECURRING_IDS) | st.from_regex(r"[ -~]{1,200}", fullmatch=True)


def resting_orders(
    *, order: Order | st.SearchStrategy[Order] | None = None, min_orders: int = 0, max_orders: int = 8
) -> st.SearchStrategy[RestingOrders]:
    """Draw resting orders of a few pairs, some at one level. Some pairs have a spot price, or no orders."""
    _require_sizes("the orders", min_orders, max_orders)
    by_id = st.dictionaries(
        order_ids(), _drawn(order, lambda: orders(pair=_FEW_PAIRS)), min_size=min_orders, max_size=max_orders
    )
    spots = st.dictionaries(_FEW_PAIRS, st.none() | prices(), max_size=2)
    # A failing test shows the call: the repr has no orders.
    return st.builds(RestingOrders, by_id, spots, st.none() | _AS_OFS)


def pair_infos(
    *,
    pair: Pair | st.SearchStrategy[Pair] | None = None,
    last_spot: Decimal | str | st.SearchStrategy[Decimal | None] | None = None,
) -> st.SearchStrategy[PairInfo]:
    """Draw entries of a pair list. Unless `last_spot` is given, it is None or any price."""
    return _made(
        lambda pair, last_spot: PairInfo(pair.base, pair.quote, last_spot), _drawn(pair, pairs), _drawn_spot(last_spot)
    )


def order_books(
    *,
    pair: Pair | st.SearchStrategy[Pair] | None = None,
    sides: Side | Collection[Side] = tuple(Side),
    min_levels: int = 0,
    max_levels: int = 8,
    crossed: bool | None = None,
    locked: bool | None = None,
    price: Decimal | str | st.SearchStrategy[Decimal] | None = None,
    amount: int | st.SearchStrategy[int] | None = None,
    spot: Decimal | str | st.SearchStrategy[Decimal | None] | None = None,
) -> st.SearchStrategy[OrderBook]:
    """Draw order books with `min_levels` to `max_levels` levels on each of the `sides`; any other side is empty.

    In most books the best bid is below the best ask; some are locked, some crossed. `crossed` and `locked` fix
    `is_crossed` and `is_locked`; None allows both. If one of them is True, neither side is empty. Prices
    and amounts are drawn from `price` and `amount`. Unless `spot` is given, it is None or any price.

    All prices of a book differ, except the one at which a locked book meets. A book of fifty levels a side takes about
    twenty times as long as a default book. Hypothesis reports books of three hundred levels as too large.
    """
    _require_sizes("the levels of a side", min_levels, max_levels)
    wanted = _wanted(sides)
    # The number of different prices that each kind of book needs. A locked book has one price on both sides.
    least = len(wanted) * min_levels
    needed: dict[_Touch, int] = {"open": least, "locked": max(least - 1, 1), "crossed": max(least, 2)}
    touches = _touches(wanted, max_levels, crossed, locked)
    if price is not None and not isinstance(price, st.SearchStrategy):
        touches = [touch for touch in touches if needed[touch] <= 1]
        if not touches:
            raise ValueError(f"a book with these levels needs several prices, got only {safe_repr(price)}")
    if isinstance(pair, Pair):
        OrderBook(pair)
    level = st.tuples(_drawn_price(price), _drawn_amount(amount, 1))
    most = len(wanted) * max_levels
    levels = [st.lists(level, min_size=needed[touch], max_size=most, unique_by=itemgetter(0)) for touch in touches]
    kinds = st.sampled_from(list(zip(touches, levels, strict=True)))
    return _order_book(
        pair=_drawn(pair, pairs),
        kinds=kinds,
        wanted=wanted,
        min_levels=min_levels,
        max_levels=max_levels,
        spot=_drawn_spot(spot),
    )


@st.composite
def _order_book(
    draw: st.DrawFn,
    *,
    pair: st.SearchStrategy[Pair],
    kinds: st.SearchStrategy[tuple[_Touch, st.SearchStrategy[list[_Level]]]],
    wanted: frozenset[Side],
    min_levels: int,
    max_levels: int,
    spot: st.SearchStrategy[Decimal | None],
) -> OrderBook:
    touch, levels = draw(kinds)
    rising = sorted(draw(levels))
    if len(wanted) == 2:
        bids, asks = _split(draw, touch, rising, min_levels, max_levels)
    else:
        bids, asks = (rising if side in wanted else [] for side in (Side.BID, Side.ASK))
    return OrderBook.from_levels(draw(pair), bids, asks, draw(spot))


def _wanted(sides: Side | Collection[Side]) -> frozenset[Side]:
    wanted = frozenset([sides] if isinstance(sides, Side) else sides)
    if not wanted <= set(Side):
        raise ValueError(f"sides must be of Side.BID and Side.ASK, got {safe_repr(sides)}")
    return wanted


def _touches(wanted: frozenset[Side], max_levels: int, crossed: object, locked: object) -> list[_Touch]:
    """Return how the sides of a book may meet: the plainest first, repeated to be drawn more often."""
    if not {type(crossed), type(locked)} <= {bool, type(None)}:
        raise ValueError(
            f"crossed and locked must be True, False or None, got {safe_repr(crossed)} and {safe_repr(locked)}"
        )
    touches: list[_Touch] = []
    can_meet = len(wanted) == 2 and max_levels > 0
    if not crossed and not locked:
        touches += ["open"] * 3
    if can_meet and locked is not False and not crossed:
        touches.append("locked")
    if can_meet and crossed is not False and not locked:
        touches.append("crossed")
    if not touches:
        raise ValueError(
            f"no book of {len(wanted)} sides with up to {max_levels} levels is crossed={crossed} and locked={locked}"
        )
    return touches


def _split(
    draw: st.DrawFn, touch: _Touch, rising: list[_Level], min_levels: int, max_levels: int
) -> tuple[list[_Level], list[_Level]]:
    """Split levels of different, rising prices into bids and asks that are open, locked or crossed."""
    least = min_levels if touch == "open" else max(min_levels, 1)
    fewest = max(least, len(rising) - max_levels)
    most = min(max_levels, len(rising) - least + (touch == "locked"))
    bid_count = draw(st.integers(fewest, most))
    bids, asks = rising[:bid_count], rising[bid_count:]
    if touch == "locked":
        return bids, [bids[-1], *asks][:max_levels]
    if touch == "crossed":
        # Exchange the best levels of the two sides, or more of them.
        for depth in range(draw(st.integers(1, min(len(bids), len(asks))))):
            bids[-1 - depth], asks[depth] = asks[depth], bids[-1 - depth]
    return bids, asks


def level_changes(
    book: OrderBook,
    *,
    price: Decimal | str | st.SearchStrategy[Decimal] | None = None,
    amount: int | st.SearchStrategy[int] | None = None,
    max_changes: int = 8,
) -> st.SearchStrategy[list[tuple[Decimal, int]]]:
    """Draw changes for one side of `book.apply`, at its prices and at others, with removals and repeated prices."""
    if not isinstance(book, OrderBook):
        raise TypeError(f"changes are drawn for an OrderBook, got {safe_repr(book)}: draw the book first")
    _require_sizes("the changes", 0, max_changes)
    at = _drawn_price(price)
    if existing := [level.price for side in (book.bids, book.asks) for level in side]:
        at = st.sampled_from(existing) | at
    return st.lists(st.tuples(at, _drawn_amount(amount, 0)), max_size=max_changes)


def freshness() -> st.SearchStrategy[Freshness]:
    """Draw what books reflect and when they were published; either may be unknown."""
    return st.builds(Freshness, st.none() | _AS_OFS, st.none() | st.datetimes(timezones=st.just(UTC)))


def market_indexes(
    *, book: OrderBook | st.SearchStrategy[OrderBook] | None = None, min_pairs: int = 0, max_pairs: int = 6
) -> st.SearchStrategy[MarketIndex]:
    """Draw indexes of `min_pairs` to `max_pairs` pairs, with small books unless `book` is given."""
    return st.builds(MarketIndex.with_freshness, _books(book, min_pairs, max_pairs).map(MarketIndex), freshness())


def live_indexes(
    *, book: OrderBook | st.SearchStrategy[OrderBook] | None = None, min_pairs: int = 0, max_pairs: int = 6
) -> st.SearchStrategy[LiveIndex]:
    """Draw a new `LiveIndex` each time, with an index as `market_indexes` draws it."""
    return _books(book, min_pairs, max_pairs).map(LiveIndex)


def _books(
    book: OrderBook | st.SearchStrategy[OrderBook] | None, min_pairs: int, max_pairs: int
) -> st.SearchStrategy[list[OrderBook]]:
    _require_sizes("the pairs of an index", min_pairs, max_pairs)
    drawn = _drawn(book, lambda: order_books(max_levels=3))
    return st.lists(drawn, min_size=min_pairs, max_size=max_pairs, unique_by=attrgetter("pair"))


def levels(*, side: Side | st.SearchStrategy[Side] | None = None, max_levels: int = 8) -> st.SearchStrategy[Levels]:
    """Draw one side of a book, with at most `max_levels` levels."""
    return _made(
        lambda book, one: book.bids if one is Side.BID else book.asks,
        order_books(max_levels=max_levels),
        _drawn(side, lambda: st.sampled_from(Side)),
    )


def simulated_fills(
    *, book: OrderBook | st.SearchStrategy[OrderBook] | None = None, side: Side | st.SearchStrategy[Side] | None = None
) -> st.SearchStrategy[SimulatedFill]:
    """Draw simulated fills of base and quote amounts, also of empty sides and of more than a side has."""
    return _made(
        OrderBook.simulate_fill,
        _drawn(book, order_books),
        _drawn(side, lambda: st.sampled_from(Side)),
        amounts(min_value=0),
        st.sampled_from(("base", "quote")),
    )


def liquidities() -> st.SearchStrategy[Liquidity]:
    """Draw totals of some levels, or of none."""
    books = order_books(min_levels=1, max_levels=3)  # with a midpoint, so that the result is never None
    made: Callable[..., Any] = OrderBook.liquidity_within
    return _made(made, books, st.sampled_from(Side), prices())


def cumulative_levels() -> st.SearchStrategy[CumulativeLevel]:
    """Draw running totals, each the last of some side."""
    books = order_books(sides=[Side.ASK], min_levels=1, max_levels=3)
    return _made(lambda book: book.cumulative(Side.ASK)[-1], books)


_INVALID_ASSET_ID_TEXTS: Final = (
    "",
    *("ada", "Ada", "ADA ", "ADA:", "lovelace", ".", ":"),
    "00" * POLICY_ID_LENGTH,
    "\N{ARABIC-INDIC DIGIT ZERO}" * 2 * POLICY_ID_LENGTH + ":",
)
_NO_HEX_DIGITS: Final = "gGxX .:_-/\n\N{ARABIC-INDIC DIGIT THREE}\N{FULLWIDTH DIGIT TWO}\N{SUPERSCRIPT TWO}é"


def invalid_asset_id_texts() -> st.SearchStrategy[str]:
    """Draw texts that `AssetId.parse` rejects: most are a valid text with one fault, or in another spelling."""
    others = st.text(max_size=8).filter(lambda text: text != "ADA")
    return st.sampled_from(_INVALID_ASSET_ID_TEXTS) | _damaged_asset_ids() | others


@st.composite
def _damaged_asset_ids(draw: st.DrawFn) -> str:
    asset = draw(asset_ids(ada=False))
    text = draw(st.sampled_from((str(asset), str(asset).upper())))
    policy_id, _, asset_name = text.partition(":")
    at = draw(st.integers(0, len(text) - 1).filter(lambda at: text[at] != ":"))
    return draw(
        st.sampled_from(
            (
                asset.unit,
                f"{policy_id}.{asset_name}",
                f"{policy_id[:-1]}:{asset_name}",
                f"{policy_id}0:{asset_name}",
                f"{text}0",
                f"{text[:at]}{draw(st.sampled_from(_NO_HEX_DIGITS))}{text[at + 1 :]}",
                f"{policy_id}:{asset_name}{'00' * (MAX_ASSET_NAME_LENGTH + 1 - len(asset.asset_name))}",
                f"{text} ",
                f"0x{text}",
                f"{text}:",
            )
        )
    )


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
    """Draw texts that `parse_price` rejects: most are a valid text with one fault, or just out of range."""
    return st.sampled_from(_INVALID_PRICE_TEXTS) | _damaged_prices()


@st.composite
def _damaged_prices(draw: st.DrawFn) -> str:
    text = format_price(draw(prices()))
    at = draw(st.integers(0, len(text)))
    # Odd coefficients have no trailing zeros, so that they are too large with any number of decimal places.
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


@st.composite
def _made(draw: st.DrawFn, make: Callable[..., _T], *parts: st.SearchStrategy[Any]) -> _T:
    """Make a value of drawn parts. Unlike with `st.builds`, a failing test shows the value and not the call."""
    return make(*map(draw, parts))


def _drawn(part: object, otherwise: Callable[[], st.SearchStrategy[_T]]) -> st.SearchStrategy[_T]:
    """Return the strategy of a part, which is given as a strategy, as a value, or not at all."""
    if part is None:
        return otherwise()
    return part if isinstance(part, st.SearchStrategy) else st.just(part)  # type: ignore[arg-type]  # it is a _T


def _drawn_price(price: object) -> st.SearchStrategy[Decimal]:
    if price is None:
        return prices()
    # Normalize: equal prices must be one Decimal.
    return _made(to_price, price) if isinstance(price, st.SearchStrategy) else st.just(to_price(price))  # type: ignore[arg-type]  # to_price raises for other types


def _drawn_amount(amount: object, least: int) -> st.SearchStrategy[int]:
    if amount is None:
        return amounts(min_value=least)
    if isinstance(amount, st.SearchStrategy):
        return amount.filter(bool) if least else amount
    if type(amount) is not int or not least <= amount <= MAX_LIQUIDITY:
        raise ValueError(f"an amount must be an int from {least} to 2^64-1, got {safe_repr(amount)}")
    return st.just(amount)


def _drawn_spot(spot: object) -> st.SearchStrategy[Decimal | None]:
    if spot is None:
        return st.none() | prices()
    return spot if isinstance(spot, st.SearchStrategy) else st.just(to_price(spot))  # type: ignore[arg-type]  # to_price raises for other types


def _require_sizes(what: str, least: int, most: int, bound: int | None = None) -> None:
    if type(least) is not int or type(most) is not int or not 0 <= least <= most <= (most if bound is None else bound):
        highest = "" if bound is None else f" to {bound}"
        raise ValueError(
            f"{what} must be a range of whole numbers from 0{highest}, got {safe_repr(least)} to {safe_repr(most)}"
        )
