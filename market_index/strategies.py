"""Hypothesis strategies for every public type, for the test suites of whoever uses the library.

Each mixes generated values with awkward ones: the empty asset name and the longest, the smallest price and the largest,
amounts above 2^53, books of one level, locked and crossed. Each shrinks towards something that a person can read. Where
the extra `hypothesis` is installed, type hints are enough: `st.from_type(OrderBook)`, `@given(book=...)`.

>>> from hypothesis import given
>>> @given(order_books(min_levels=1, crossed=False))
... def test_a_fill_is_never_better_than_the_best_price(book):
...     assert book.fill(Side.ASK, 1).average_price >= book.best_ask.price
>>> test_a_fill_is_never_better_than_the_best_price()

A part of a value, such as `order_books(pair=...)`, is given as a value or as a strategy of its own. What cannot be
meant raises `ValueError` when the strategy is made. A part that is a strategy is taken at its word: what it draws has
to be of the right type, and various enough for as many levels or pairs as are asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import Any, Final, Literal, TypeAlias, TypeVar

from hypothesis import strategies as st

from market_index import depth
from market_index.assets import ADA, MAX_ASSET_NAME_LENGTH, POLICY_ID_LENGTH, AssetId
from market_index.depth import CumulativeLevel, Liquidity
from market_index.errors import safe_repr
from market_index.fills import Fill
from market_index.index import MarketIndex
from market_index.levels import MAX_LIQUIDITY, PriceLevel, Side
from market_index.live import LiveIndex
from market_index.order_book import Order, OrderBook
from market_index.pairs import Pair, PairInfo
from market_index.prices import MAX_COEFFICIENT, MAX_DECIMAL_PLACES, price_text, to_price, to_price_or_ratio

__all__ = [
    "amounts",
    "asset_ids",
    "asset_names",
    "cumulative_levels",
    "fills",
    "invalid_asset_id_texts",
    "invalid_price_texts",
    "level_changes",
    "liquidities",
    "live_indexes",
    "market_indexes",
    "order_books",
    "orders",
    "pair_infos",
    "pairs",
    "policy_ids",
    "price_levels",
    "prices",
    "ratios",
]

_T = TypeVar("_T")
_Touch: TypeAlias = Literal["open", "locked", "crossed"]

_POLICY_IDS: Final = 256**POLICY_ID_LENGTH
_ASSET_NAMES: Final = 256**MAX_ASSET_NAME_LENGTH
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
_LOWEST_PRICE: Final = Decimal(f"1E-{MAX_DECIMAL_PLACES}")
_HIGHEST_PRICE: Final = Decimal(MAX_COEFFICIENT)
# These rise, as the amounts do.
_AWKWARD_PRICES: Final = (
    _LOWEST_PRICE,
    Decimal("0.0000001"),
    Decimal("0.1"),
    Decimal(1),
    Decimal(f"{MAX_COEFFICIENT}E-{MAX_DECIMAL_PLACES}"),
    Decimal(10),
    Decimal(2**53 + 1),
    _HIGHEST_PRICE,
)
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
_AWKWARD_AMOUNTS: Final = (1, 999_999, 2**32, 2**53 + 1, 2**63, MAX_LIQUIDITY)

# It is the draws that take time, so most values are made of an integer or two. The last digit of one tells the kind of
# value: to base 5, since the large integers that Hypothesis draws are often multiples of high powers of 2.
_KINDS: Final = 5

# Of a number the last kind is the awkward value next below the one that the rest of the integer makes. Hypothesis,
# which makes integers smaller, gets from it to a plain number that is hardly larger, and from there to the smallest
# that fails.
_AWKWARD: Final = _KINDS - 1
_PLAIN_BITS: Final = 12


def _numbers(most: int) -> st.SearchStrategy[int]:
    """Return what draws the integers of which the numbers from 0 to `most` are made."""
    return st.integers(0, _KINDS * (most + 1) - 1)


def _number(integer: int, most: int) -> tuple[int, bool]:
    """Return the number from 0 to `most` that an integer makes, and whether the awkward one next below is meant."""
    number, kind = divmod(integer, _KINDS)
    if kind >= 2 and number >> _PLAIN_BITS:
        # Hypothesis draws large integers seldom.
        larger = number * (number >> _PLAIN_BITS)
        number = min(larger, most) if kind == _AWKWARD or larger <= most else number
    return number, kind == _AWKWARD


def policy_ids() -> st.SearchStrategy[bytes]:
    """Policy ids, 28 bytes each, some of which come again and again."""
    return _made(_policy_id, st.integers(0, _KINDS * _POLICY_IDS - 1))


def _policy_id(number: int) -> bytes:
    number, kind = divmod(number, _KINDS)
    return number.to_bytes(POLICY_ID_LENGTH) if kind == 3 else _one_of(_AWKWARD_POLICY_IDS, number)


def asset_names(*, min_size: int = 0, max_size: int = MAX_ASSET_NAME_LENGTH) -> st.SearchStrategy[bytes]:
    """Asset names of so many bytes, of 0 to 32: texts, with a label of CIP-67 or without, and what is no text."""
    _require_sizes("the bytes of an asset name", min_size, max_size, MAX_ASSET_NAME_LENGTH)
    others = st.binary(min_size=min_size, max_size=max_size)
    known = [name for name in _AWKWARD_ASSET_NAMES if min_size <= len(name) <= max_size]
    return st.sampled_from(known) | others if known else others


def asset_ids(
    *,
    ada: bool = True,
    policy_id: bytes | st.SearchStrategy[bytes] | None = None,
    asset_name: bytes | st.SearchStrategy[bytes] | None = None,
) -> st.SearchStrategy[AssetId]:
    """Native tokens, some of them with a policy id or an asset name in common, and ADA unless `ada` is False."""
    if isinstance(policy_id, bytes):
        # Without any bytes it would be ADA.
        AssetId(policy_id or b"?", b"")
    if isinstance(asset_name, bytes):
        AssetId(bytes(POLICY_ID_LENGTH), asset_name)
    if policy_id is None and asset_name is None:
        numbers = st.integers(0, _KINDS * (MAX_ASSET_NAME_LENGTH + 1) * _ASSET_NAMES * _POLICY_IDS - 1)
        return _made(_asset_id if ada else _token, numbers)
    tokens = st.builds(AssetId, _drawn(policy_id, policy_ids), _drawn(asset_name, asset_names))
    return st.just(ADA) | tokens if ada else tokens


def _asset_id(number: int) -> AssetId:
    return _token(number) if number % _KINDS else ADA


def _token(number: int) -> AssetId:
    number, kind = divmod(number, _KINDS)
    if kind < 2:
        number, name = divmod(number, len(_AWKWARD_ASSET_NAMES))
        return AssetId(_one_of(_AWKWARD_POLICY_IDS, number), _AWKWARD_ASSET_NAMES[name])
    number, length = divmod(number, MAX_ASSET_NAME_LENGTH + 1)
    number, name = divmod(number, _ASSET_NAMES)
    # Of a small number only the last bytes would differ from zero.
    asset_name = name.to_bytes(MAX_ASSET_NAME_LENGTH, "little")[:length]
    policy_id = _one_of(_AWKWARD_POLICY_IDS, number) if kind == 2 else number.to_bytes(POLICY_ID_LENGTH, "little")
    return AssetId(policy_id, asset_name)


def pairs(
    *,
    base: AssetId | st.SearchStrategy[AssetId] | None = None,
    quote: AssetId | st.SearchStrategy[AssetId] | None = None,
) -> st.SearchStrategy[Pair]:
    """Pairs that can be tracked: base and quote differ."""
    if isinstance(base, AssetId) and base == quote:
        raise ValueError(f"a pair of an asset with itself cannot be tracked: {base}")
    if base is None and quote is None:
        return _made(_pair, asset_ids(), asset_ids())
    sides = st.tuples(_drawn(base, asset_ids), _drawn(quote, asset_ids)).filter(_differ)
    return _made(lambda sides: Pair(*sides), sides)


def _differ(sides: tuple[AssetId, AssetId]) -> bool:
    return sides[0] != sides[1]


def _pair(base: AssetId, quote: AssetId) -> Pair:
    if base == quote:
        quote = _token(0) if base.is_ada else ADA
    return Pair(base, quote)


def prices(
    *,
    min_value: Decimal | str | None = None,
    max_value: Decimal | str | None = None,
    max_decimal_places: int = MAX_DECIMAL_PLACES,
) -> st.SearchStrategy[Decimal]:
    """Prices of a range, its ends among them, most with few decimal places, and none with more than so many.

    They shrink towards whole numbers, and towards 1 or the lowest of the range.
    """
    lowest = _LOWEST_PRICE if min_value is None else to_price(min_value)
    highest = _HIGHEST_PRICE if max_value is None else to_price(max_value)
    if type(max_decimal_places) is not int or not 0 <= max_decimal_places <= MAX_DECIMAL_PLACES:
        raise ValueError(f"max_decimal_places must be an int from 0 to {MAX_DECIMAL_PLACES}, not {max_decimal_places}")
    if (lowest, highest, max_decimal_places) == (_LOWEST_PRICE, _HIGHEST_PRICE, MAX_DECIMAL_PLACES):
        return _made(_price, _numbers(MAX_COEFFICIENT - 1), st.integers(0, _PLACES - 1))
    grids = [
        (places, first, last)
        for places in sorted({*range(min(_FEW_PLACES, max_decimal_places + 1)), max_decimal_places})
        for first, last in [_ends(lowest, highest, places)]
        if first <= last
    ]
    if not grids:
        raise ValueError(f"there is no price of {max_decimal_places} decimal places from {lowest} to {highest}")
    return st.one_of(*(_prices_of_grid(*grid) for grid in grids))


_FEW_PLACES: Final = 4
_PLACES: Final = 128


def _price(integer: int, places: int) -> Decimal:
    """Return a price of few decimal places, three times of four, or of any number of them."""
    few = places < _PLACES * 3 // 4
    coefficient, awkward = _number(integer, MAX_COEFFICIENT - 1)
    price = _scaled(coefficient + 1, places % (_FEW_PLACES if few else MAX_DECIMAL_PLACES + 1))
    return _highest_up_to(_AWKWARD_PRICES, price) if awkward else price


def _prices_of_grid(places: int, first: int, last: int) -> st.SearchStrategy[Decimal]:
    ends = [_scaled(first, places), _scaled(last, places)]
    scale = 10**places
    known = sorted({price for price in _AWKWARD_PRICES if ends[0] <= price <= ends[1]} | set(ends))
    known = [price for price in known if (Fraction(price) * scale).denominator == 1]

    def price(integer: int) -> Decimal:
        coefficient, awkward = _number(integer, last - first)
        price = _scaled(first + coefficient, places)
        return _highest_up_to(known, price) if awkward else price

    return _made(price, _numbers(last - first))


def _scaled(coefficient: int, places: int) -> Decimal:
    return to_price(Decimal(f"{coefficient}E-{places}"))


def _ends(lowest: Decimal, highest: Decimal, places: int) -> tuple[int, int]:
    """Return the first and the last coefficient of that many decimal places in a range."""
    scale = 10**places
    return ceil(Fraction(lowest) * scale), min(floor(Fraction(highest) * scale), MAX_COEFFICIENT)


def ratios() -> st.SearchStrategy[Fraction]:
    """Prices as a numerator and a denominator, as orders on the ledger have them, from 10^-28 to 2^96-1."""
    return _made(_ratio, st.integers(0, _KINDS * MAX_COEFFICIENT * 10**MAX_DECIMAL_PLACES - 1))


def _ratio(number: int) -> Fraction:
    number, kind = divmod(number, _KINDS)
    if kind == 1:
        return _one_of(_AWKWARD_RATIOS, number)
    numerator, denominator = divmod(number, {2: 2**64, 3: 10**MAX_DECIMAL_PLACES}.get(kind, 100))
    return Fraction(numerator % MAX_COEFFICIENT + 1, denominator + 1)


def amounts(*, min_value: int = 1, max_value: int = MAX_LIQUIDITY) -> st.SearchStrategy[int]:
    """Amounts of the base asset, in its smallest unit, the ends among them: a level has at least 1, a change 0."""
    _require_sizes("amounts", min_value, max_value, MAX_LIQUIDITY)
    known = sorted({min_value, max_value, *_AWKWARD_AMOUNTS})
    return _made(lambda integer: _amount(integer, min_value, max_value, known), _numbers(max_value - min_value))


def _amount(integer: int, least: int = 1, most: int = MAX_LIQUIDITY, known: Sequence[int] = _AWKWARD_AMOUNTS) -> int:
    more, awkward = _number(integer, most - least)
    return _highest_up_to(known, least + more) if awkward else least + more


def price_levels(
    *,
    price: Decimal | str | st.SearchStrategy[Decimal] | None = None,
    amount: int | st.SearchStrategy[int] | None = None,
) -> st.SearchStrategy[PriceLevel]:
    """Price levels."""
    return st.builds(PriceLevel, _drawn_price(price), _drawn_amount(amount, 1))


def orders(
    *,
    side: Side | st.SearchStrategy[Side] | None = None,
    price: Decimal | Fraction | str | st.SearchStrategy[Decimal] | st.SearchStrategy[Fraction] | None = None,
    amount: int | st.SearchStrategy[int] | None = None,
) -> st.SearchStrategy[Order]:
    """Orders, at decimal prices and at ratios, some of them with nothing left."""
    if price is not None and not isinstance(price, st.SearchStrategy):
        to_price_or_ratio(price)
    return st.builds(
        Order,
        _drawn(side, lambda: st.sampled_from(Side)),
        _drawn(price, lambda: prices() | ratios()),
        _drawn_amount(amount, 0),
    )


def pair_infos(
    *,
    pair: Pair | st.SearchStrategy[Pair] | None = None,
    last_spot: Decimal | str | st.SearchStrategy[Decimal | None] | None = None,
) -> st.SearchStrategy[PairInfo]:
    """Entries of a pair list, of pairs that can be tracked; with no last spot price or any, unless it is given."""
    return _made(_pair_info, _drawn(pair, pairs), _drawn_spot(last_spot))


def _pair_info(pair: Pair, last_spot: Decimal | None) -> PairInfo:
    return PairInfo(pair.base, pair.quote, last_spot)


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
    """Order books of `min_levels` to `max_levels` levels on each of the `sides`; any other side is empty.

    Of most the best bid is below the best ask; some are locked, some crossed. `crossed` and `locked` are what
    `is_crossed` and `is_locked` shall be, or None for either; where one of them is True neither side is empty. Prices
    and amounts are drawn from `price` and `amount`; `spot` is none, or any price, unless it is given.

    All prices of a book differ, but for the one at which a locked book meets. Fifty levels a side take some thirty
    times as long as a default book; of three hundred Hypothesis says that they are too large.
    """
    _require_sizes("the levels of a side", min_levels, max_levels)
    wanted = _wanted(sides)
    touches = _touches(wanted, max_levels, crossed, locked)
    least = len(wanted) * min_levels
    # So many different prices each takes. Where a locked book meets, there is one price for two levels.
    needed = {"open": least, "locked": max(least - 1, 1), "crossed": max(least, 2)}
    fewest = min(needed[touch] for touch in touches)
    if price is not None and not isinstance(price, st.SearchStrategy) and fewest > 1:
        raise ValueError(f"a book of {fewest} levels or more has not all of them at the price of {safe_repr(price)}")
    if isinstance(pair, Pair):
        OrderBook(pair)
    parts, made = _levels(price, amount)

    def book(of: Pair, parts: list[Any], touch: _Touch, spot: Decimal | None) -> OrderBook:
        levels = sorted(map(made, parts), key=_price_of)
        if len(levels) < needed[touch]:
            touch = next(touch for touch in touches if len(levels) >= needed[touch])
        if wanted == set(Side):
            bids, asks = _sides(touch, levels, min_levels, max_levels)
        else:
            bids, asks = (levels if side in wanted else [] for side in (Side.BID, Side.ASK))
        return OrderBook.from_levels(of, [level[:2] for level in bids], [level[:2] for level in asks], spot)

    return _made(
        book,
        _drawn(pair, pairs),
        st.lists(parts, min_size=fewest, max_size=len(wanted) * max_levels, unique_by=lambda parts: made(parts)[0]),
        st.sampled_from(touches),
        _drawn_spot(spot),
    )


def _wanted(sides: Side | Collection[Side]) -> frozenset[Side]:
    wanted = frozenset([sides] if isinstance(sides, Side) else sides)
    if not wanted <= set(Side):
        raise ValueError(f"sides must be of Side.BID and Side.ASK, not {safe_repr(sides)}")
    return wanted


def _touches(wanted: frozenset[Side], max_levels: int, crossed: object, locked: object) -> list[_Touch]:
    """Return how the sides of a book may meet, the plainest first and most often."""
    if not {type(crossed), type(locked)} <= {bool, type(None)}:
        raise ValueError(
            f"crossed and locked must be True, False or None, not {safe_repr(crossed)} and {safe_repr(locked)}"
        )
    touches: list[_Touch] = []
    can_meet = wanted == set(Side) and max_levels > 0
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


_Level: TypeAlias = tuple[Decimal, int, int]
"""A price, an amount, and two bits: whether the level is a bid rather, and whether it may change sides."""

_WHERE: Final = 4


def _levels(price: object, amount: object) -> tuple[st.SearchStrategy[Any], Callable[[Any], _Level]]:
    """Return what draws the parts of a level, and what makes the level of them."""
    where = st.integers(0, _WHERE - 1)
    if price is None and amount is None:
        places = st.integers(0, _PLACES * _WHERE - 1)
        return st.tuples(_numbers(MAX_COEFFICIENT - 1), _numbers(MAX_LIQUIDITY - 1), places), _level
    return st.tuples(_drawn_price(price), _drawn_amount(amount, 1), where), tuple


def _level(parts: tuple[int, int, int]) -> _Level:
    coefficient, amount, rest = parts
    places, where = divmod(rest, _WHERE)
    return _price(coefficient, places), _amount(amount), where


def _price_of(level: _Level) -> Decimal:
    return level[0]


def _sides(touch: _Touch, levels: list[_Level], min_levels: int, max_levels: int) -> tuple[list[_Level], list[_Level]]:
    """Return bids and asks of levels that rise, all of different prices, so that the two sides meet as they shall."""
    least = min_levels if touch == "open" else max(min_levels, 1)
    fewest = max(least, len(levels) - max_levels)
    most = min(max_levels, len(levels) - least + (touch == "locked"))
    bid_count = min(max(sum(not where & 1 for _, _, where in levels), fewest), most)
    bids, asks = levels[:bid_count], levels[bid_count:]
    if touch == "locked":
        return bids, [bids[-1], *asks][:max_levels]
    if touch == "crossed":
        # The two that would be best change sides; and whichever of the others.
        for place in range(min(len(bids), len(asks))):
            if place == 0 or asks[place][2] & 2:
                bids[-1 - place], asks[place] = asks[place], bids[-1 - place]
    return bids, asks


def level_changes(
    book: OrderBook,
    *,
    price: Decimal | str | st.SearchStrategy[Decimal] | None = None,
    amount: int | st.SearchStrategy[int] | None = None,
    max_changes: int = 8,
) -> st.SearchStrategy[list[tuple[Decimal, int]]]:
    """Draw changes for one side of `book.apply`: at its prices and at others, removals and repeats among them."""
    if not isinstance(book, OrderBook):
        raise TypeError(f"changes are drawn for an OrderBook, not for {safe_repr(book)}: draw the book first")
    _require_sizes("the changes", 0, max_changes)
    at = _drawn_price(price)
    if standing := [level.price for level in book.bids + book.asks]:
        at = st.sampled_from(standing) | at
    return st.lists(st.tuples(at, _drawn_amount(amount, 0)), max_size=max_changes)


def market_indexes(
    *, book: OrderBook | st.SearchStrategy[OrderBook] | None = None, min_pairs: int = 0, max_pairs: int = 6
) -> st.SearchStrategy[MarketIndex]:
    """Indexes of `min_pairs` to `max_pairs` pairs, with small books unless `book` draws others."""
    return _books(book, min_pairs, max_pairs).map(MarketIndex)


def live_indexes(
    *, book: OrderBook | st.SearchStrategy[OrderBook] | None = None, min_pairs: int = 0, max_pairs: int = 6
) -> st.SearchStrategy[LiveIndex]:
    """Cells that hold an index, as `market_indexes` draws it; each is new."""
    return _books(book, min_pairs, max_pairs).map(LiveIndex)


def _books(
    book: OrderBook | st.SearchStrategy[OrderBook] | None, min_pairs: int, max_pairs: int
) -> st.SearchStrategy[list[OrderBook]]:
    _require_sizes("the pairs of an index", min_pairs, max_pairs)
    drawn = _drawn(book, lambda: order_books(max_levels=3))
    return st.lists(drawn, min_size=min_pairs, max_size=max_pairs, unique_by=_pair_of)


def _pair_of(book: OrderBook) -> Pair:
    return book.pair


def fills(
    *, book: OrderBook | st.SearchStrategy[OrderBook] | None = None, side: Side | st.SearchStrategy[Side] | None = None
) -> st.SearchStrategy[Fill]:
    """Draw what amounts take of books, empty sides and amounts of more than there is among them."""
    return _made(
        OrderBook.fill,
        _drawn(book, order_books),
        _drawn(side, lambda: st.sampled_from(Side)),
        amounts(min_value=0),
        st.sampled_from(("base", "quote")),
    )


def liquidities() -> st.SearchStrategy[Liquidity]:
    """Totals of some levels, or of none."""
    return _made(lambda levels: depth.liquidity(tuple(levels)), st.lists(price_levels(), max_size=3))


def cumulative_levels() -> st.SearchStrategy[CumulativeLevel]:
    """Draw running totals, each the last of some side."""
    books = order_books(sides=[Side.ASK], min_levels=1, max_levels=3)
    return _made(lambda book: book.cumulative(Side.ASK)[-1], books)


_NO_ASSET_ID_TEXTS: Final = (
    "",
    "ada",
    "Ada",
    "ADA ",
    "ADA:",
    "lovelace",
    ".",
    ":",
    "00" * POLICY_ID_LENGTH,
    "\N{ARABIC-INDIC DIGIT ZERO}" * 2 * POLICY_ID_LENGTH + ":",
)
_NO_HEX_DIGITS: Final = "gGxX .:_-/\n\N{ARABIC-INDIC DIGIT THREE}\N{FULLWIDTH DIGIT TWO}\N{SUPERSCRIPT TWO}é"


def invalid_asset_id_texts() -> st.SearchStrategy[str]:
    """Texts that `AssetId.parse` refuses: most differ little from one that it reads, or are another spelling."""
    damaged = _made(
        _damaged_asset_id,
        asset_ids(ada=False),
        st.integers(0, 9),
        st.integers(0, 2**16 - 1),
    )
    return st.sampled_from(_NO_ASSET_ID_TEXTS) | damaged | st.text(max_size=8).filter(lambda text: text != "ADA")


def _damaged_asset_id(asset: AssetId, damage: int, number: int) -> str:
    text = str(asset) if number % 2 else str(asset).upper()
    policy_id, _, asset_name = text.partition(":")
    at = number % len(policy_id + asset_name)
    no_digit = _one_of(_NO_HEX_DIGITS, number)
    digits = policy_id + asset_name
    digits = digits[:at] + no_digit + digits[at + 1 :]
    return (
        asset.unit,
        f"{policy_id}.{asset_name}",
        f"{policy_id[:-1]}:{asset_name}",
        f"{policy_id}0:{asset_name}",
        f"{text}0",
        f"{digits[: len(policy_id)]}:{digits[len(policy_id) :]}",
        f"{policy_id}:{asset_name}{'00' * (MAX_ASSET_NAME_LENGTH + 1 - len(asset.asset_name))}",
        f"{text} ",
        f"0x{text}",
        f"{text}:",
    )[damage]


_NO_PRICE_TEXTS: Final = (
    "",
    ".",
    "0",
    "0.000",
    "0e5",
    "NaN",
    "sNaN",
    "Infinity",
    "e5",
    "1e",
    "1e+",
    "1.2.3",
    "1,5",
    "0x10",
    "1/3",
    "1e1000000",
    "1e-1000000",
    f"{MAX_COEFFICIENT + 1}",
    f"1e-{MAX_DECIMAL_PLACES + 1}",
    "\N{FULLWIDTH DIGIT ONE}",
    "\N{SUPERSCRIPT TWO}",
)
_NO_PRICE_CHARACTERS: Final = "+-_ ,'/x\n\t\N{ARABIC-INDIC DIGIT THREE}\N{FULLWIDTH DIGIT TWO}\N{SUPERSCRIPT TWO}\0"


def invalid_price_texts() -> st.SearchStrategy[str]:
    """Texts that `parse_price` refuses: most differ little from one that it reads, or are just out of range."""
    damaged = _made(_damaged_price, prices(), st.integers(0, 5), st.integers(0, 2**16 - 1))
    return st.sampled_from(_NO_PRICE_TEXTS) | damaged


def _damaged_price(price: Decimal, damage: int, number: int) -> str:
    text = price_text(price)
    at = number % (len(text) + 1)
    # Odd, so that no trailing zeros make it fit.
    too_large = MAX_COEFFICIENT + 2 + 2 * number
    return (
        text[:at] + _one_of(_NO_PRICE_CHARACTERS, number) + text[at:],
        f".{text}.",
        f"{text}e{2 * MAX_DECIMAL_PLACES + 2}",
        f"{text}e-{2 * MAX_DECIMAL_PLACES + 2}",
        f"{too_large}e-{number % (MAX_DECIMAL_PLACES + 1)}",
        f"{text}{'' if '.' in text else '.'}{'0' * MAX_DECIMAL_PLACES}1",
    )[damage]


@st.composite
def _made(draw: st.DrawFn, make: Callable[..., _T], *parts: st.SearchStrategy[Any]) -> _T:
    """Draw the parts, and make the value of them: shown as what it is then, and not as the call that made it."""
    return make(*map(draw, parts))


def _drawn(part: object, otherwise: Callable[[], st.SearchStrategy[_T]]) -> st.SearchStrategy[_T]:
    """Return the strategy of a part of a value, which is given as a strategy, as a value, or not at all."""
    if part is None:
        return otherwise()
    return part if isinstance(part, st.SearchStrategy) else st.just(part)  # type: ignore[arg-type]  # it is a _T


def _drawn_price(price: object) -> st.SearchStrategy[Decimal]:
    if price is None:
        return prices()
    # One price has one Decimal, whoever draws it.
    return _made(to_price, price) if isinstance(price, st.SearchStrategy) else st.just(to_price(price))  # type: ignore[arg-type]  # refused if it is none


def _drawn_amount(amount: object, least: int) -> st.SearchStrategy[int]:
    if amount is None:
        return amounts(min_value=least)
    if isinstance(amount, st.SearchStrategy):
        return amount.filter(bool) if least else amount
    if type(amount) is not int or not least <= amount <= MAX_LIQUIDITY:
        raise ValueError(f"an amount must be an int from {least} to 2^64-1, not {safe_repr(amount)}")
    return st.just(amount)


def _drawn_spot(spot: object) -> st.SearchStrategy[Decimal | None]:
    if spot is None:
        return st.none() | prices()
    return spot if isinstance(spot, st.SearchStrategy) else st.just(to_price(spot))  # type: ignore[arg-type]  # refused if it is none


def _highest_up_to(values: Sequence[Any], value: Any) -> Any:
    """Return the highest of the values, which rise, that is not above one; the first is not."""
    return values[bisect_right(values, value) - 1]


def _one_of(values: Sequence[_T], number: int) -> _T:
    return values[number % len(values)]


def _require_sizes(what: str, least: int, most: int, bound: int | None = None) -> None:
    if type(least) is not int or type(most) is not int or not 0 <= least <= most <= (most if bound is None else bound):
        highest = "" if bound is None else f" to {bound}"
        raise ValueError(
            f"{what}: from {safe_repr(least)} to {safe_repr(most)} is no range of whole numbers from 0{highest}"
        )
