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

from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import Final, Literal, TypeAlias, TypeVar

from hypothesis import strategies as st

from market_index import depth
from market_index.assets import ADA, MAX_ASSET_NAME_LENGTH, POLICY_ID_LENGTH, AssetId
from market_index.depth import CumulativeLevel, Liquidity
from market_index.errors import shown
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
_AWKWARD_PRICES: Final = (
    Decimal(1),
    Decimal("0.1"),
    Decimal(10),
    _LOWEST_PRICE,
    _HIGHEST_PRICE,
    Decimal(f"{MAX_COEFFICIENT}E-{MAX_DECIMAL_PLACES}"),
    Decimal("0.0000001"),
    Decimal(2**53 + 1),
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
_AWKWARD_AMOUNTS: Final = (1, 2**53 + 1, 2**63, MAX_LIQUIDITY)

# It is the draws that take time. So most values are made of one drawn integer: its last digit, to base 4, tells the
# kind of value, the plainest first, and the rest makes it. Small integers make plain values and awkward ones, and small
# integers are what Hypothesis shrinks towards.
_KINDS: Final = 4


def policy_ids() -> st.SearchStrategy[bytes]:
    """Policy ids, 28 bytes each, some of which come again and again."""
    return st.integers(0, _KINDS * _POLICY_IDS - 1).map(_policy_id)


def _policy_id(number: int) -> bytes:
    number, kind = divmod(number, _KINDS)
    return number.to_bytes(POLICY_ID_LENGTH) if kind == _KINDS - 1 else _one_of(_AWKWARD_POLICY_IDS, number)


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
        AssetId(policy_id or b"?", b"")
    if isinstance(asset_name, bytes):
        AssetId(bytes(POLICY_ID_LENGTH), asset_name)
    if policy_id is None and asset_name is None:
        numbers = st.integers(0, _KINDS * (MAX_ASSET_NAME_LENGTH + 1) * _ASSET_NAMES * _POLICY_IDS - 1)
        return numbers.map(_asset_id if ada else _token)
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
    sides = st.tuples(_drawn(base, asset_ids), _drawn(quote, asset_ids))
    return sides.filter(_differ).map(_pair)


def _differ(sides: tuple[AssetId, AssetId]) -> bool:
    return sides[0] != sides[1]


def _pair(sides: tuple[AssetId, AssetId]) -> Pair:
    return Pair(*sides)


def prices(
    *,
    min_value: Decimal | str | None = None,
    max_value: Decimal | str | None = None,
    max_decimal_places: int = MAX_DECIMAL_PLACES,
) -> st.SearchStrategy[Decimal]:
    """Prices of a range, its ends among them, some of them near each other, with so many decimal places at most.

    They shrink to 1 or, where that is out of the range, towards its lowest.
    """
    lowest = _LOWEST_PRICE if min_value is None else to_price(min_value)
    highest = _HIGHEST_PRICE if max_value is None else to_price(max_value)
    if type(max_decimal_places) is not int or not 0 <= max_decimal_places <= MAX_DECIMAL_PLACES:
        raise ValueError(f"max_decimal_places must be an int from 0 to {MAX_DECIMAL_PLACES}, not {max_decimal_places}")
    if (lowest, highest, max_decimal_places) == (_LOWEST_PRICE, _HIGHEST_PRICE, MAX_DECIMAL_PLACES):
        return st.integers(0, _KINDS * _PRICES - 1).map(_price)
    awkward = [price for price in (Decimal(1), lowest, highest, *_AWKWARD_PRICES) if lowest <= price <= highest]
    known = [price for price in awkward if (Fraction(price) * 10**max_decimal_places).denominator == 1]
    grids = [
        st.builds(_scaled, st.integers(first, last), st.just(places))
        for places in dict.fromkeys((min(3, max_decimal_places), max_decimal_places))
        for first, last in [_ends(lowest, highest, places)]
        if first <= last
    ]
    if not known and not grids:
        raise ValueError(f"there is no price of {max_decimal_places} decimal places from {lowest} to {highest}")
    return st.one_of(*([st.sampled_from(known)] if known else []), *grids)


_PRICES: Final = MAX_COEFFICIENT * (MAX_DECIMAL_PLACES + 1)


def _price(number: int) -> Decimal:
    number, kind = divmod(number, _KINDS)
    if kind == 0:
        return Decimal(number % 1_000 + 1)
    if kind == 1:
        return _one_of(_AWKWARD_PRICES, number)
    if kind == 2:
        return _scaled(number // 4 % 1_000 + 1, number % 4)
    coefficient, places = divmod(number, MAX_DECIMAL_PLACES + 1)
    return _scaled(coefficient + 1, places)


def _scaled(coefficient: int, places: int) -> Decimal:
    return to_price(Decimal(f"{coefficient}E-{places}"))


def _ends(lowest: Decimal, highest: Decimal, places: int) -> tuple[int, int]:
    """Return the first and the last coefficient of that many decimal places in a range."""
    scale = 10**places
    return ceil(Fraction(lowest) * scale), min(floor(Fraction(highest) * scale), MAX_COEFFICIENT)


def ratios() -> st.SearchStrategy[Fraction]:
    """Prices as a numerator and a denominator, as orders on the ledger have them, from 10^-28 to 2^96-1."""
    return st.integers(0, _KINDS * MAX_COEFFICIENT * 10**MAX_DECIMAL_PLACES - 1).map(_ratio)


def _ratio(number: int) -> Fraction:
    number, kind = divmod(number, _KINDS)
    if kind == 1:
        return _one_of(_AWKWARD_RATIOS, number)
    numerator, denominator = divmod(number, {0: 100, 2: 2**64, 3: 10**MAX_DECIMAL_PLACES}[kind])
    return Fraction(numerator % MAX_COEFFICIENT + 1, denominator + 1)


def amounts(*, min_value: int = 1, max_value: int = MAX_LIQUIDITY) -> st.SearchStrategy[int]:
    """Amounts of the base asset, in its smallest unit, the ends among them: a level has at least 1, a change 0."""
    _require_sizes("amounts", min_value, max_value, MAX_LIQUIDITY)
    known = dict.fromkeys((min_value, *_AWKWARD_AMOUNTS, max_value))
    awkward = [amount for amount in known if min_value <= amount <= max_value]
    count = max_value - min_value + 1

    def amount(number: int) -> int:
        number, kind = divmod(number, _KINDS)
        if kind == 1:
            return _one_of(awkward, number)
        return min_value + number % (min(1_000, count) if kind == 0 else count)

    return st.integers(0, _KINDS * count - 1).map(amount)


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
    return st.builds(_pair_info, _drawn(pair, pairs), _drawn_spot(last_spot))


def _pair_info(pair: Pair, last_spot: Decimal | None) -> PairInfo:
    return PairInfo(pair.base, pair.quote, last_spot)


def order_books(
    *,
    pair: Pair | st.SearchStrategy[Pair] | None = None,
    sides: Collection[Side] = tuple(Side),
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
    if not {type(crossed), type(locked)} <= {bool, type(None)}:
        raise ValueError(f"crossed and locked must be True, False or None, not {shown(crossed)} and {shown(locked)}")
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
            f"no book has sides={shown(sides)}, max_levels={max_levels}, crossed={crossed} and locked={locked} at once"
        )
    least = len(wanted) * min_levels
    # So many different prices each takes. Where a locked book meets, there is one price for two levels.
    needed = {"open": least, "locked": max(least - 1, 1), "crossed": max(least, 2)}
    levels = st.lists(
        st.tuples(_drawn_price(price), _drawn_amount(amount, 1)),
        min_size=min(needed[touch] for touch in touches),
        max_size=len(wanted) * max_levels,
        unique_by=_price_of,
    )

    def book(
        of: Pair, levels: list[tuple[Decimal, int]], touch: _Touch, choice: int, spot: Decimal | None
    ) -> OrderBook:
        levels.sort(key=_price_of)
        if len(levels) < needed[touch]:
            touch = next(touch for touch in touches if len(levels) >= needed[touch])
        if wanted == set(Side):
            bids, asks = _sides(touch, levels, min_levels, max_levels, choice)
        else:
            bids, asks = (levels if side in wanted else [] for side in (Side.BID, Side.ASK))
        return OrderBook.from_levels(of, bids, asks, spot)

    touch, choice = st.sampled_from(touches), st.integers(0, 2**16 - 1)
    if isinstance(pair, Pair):
        OrderBook(pair)
    return st.builds(book, _drawn(pair, pairs), levels, touch, choice, _drawn_spot(spot))


def _wanted(sides: Collection[Side]) -> frozenset[Side]:
    wanted = frozenset(sides)
    if not wanted <= set(Side):
        raise ValueError(f"sides must be of Side.BID and Side.ASK, not {shown(sides)}")
    return wanted


def _price_of(level: tuple[Decimal, int]) -> Decimal:
    return level[0]


def _sides(
    touch: _Touch, levels: list[tuple[Decimal, int]], min_levels: int, max_levels: int, choice: int
) -> tuple[list[tuple[Decimal, int]], list[tuple[Decimal, int]]]:
    """Return bids and asks of levels that rise, all of different prices, so that the two sides meet as they shall."""
    least = min_levels if touch == "open" else max(min_levels, 1)
    fewest = max(least, len(levels) - max_levels)
    most = min(max_levels, len(levels) - least + (touch == "locked"))
    choice, more = divmod(choice, most - fewest + 1)
    bid_count = fewest + more
    bids, asks = levels[:bid_count], levels[bid_count:]
    if touch == "locked":
        return bids, [bids[-1], *asks][:max_levels]
    if touch == "crossed":
        # The two that would be best change sides; and whichever of the others.
        for place in range(min(len(bids), len(asks))):
            if place == 0 or choice >> place & 1:
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
    return st.builds(
        OrderBook.fill,
        _drawn(book, order_books),
        _drawn(side, lambda: st.sampled_from(Side)),
        amounts(min_value=0),
        st.sampled_from(("base", "quote")),
    )


def liquidities() -> st.SearchStrategy[Liquidity]:
    """Totals of some levels, or of none."""
    return st.lists(price_levels(), max_size=3).map(lambda levels: depth.liquidity(tuple(levels)))


def cumulative_levels() -> st.SearchStrategy[CumulativeLevel]:
    """Draw running totals, each the last of some side."""
    books = order_books(sides=[Side.ASK], min_levels=1, max_levels=3)
    return books.map(lambda book: book.cumulative(Side.ASK)[-1])


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
    damaged = st.builds(
        _damaged_asset_id,
        st.integers(0, _KINDS * (MAX_ASSET_NAME_LENGTH + 1) * _ASSET_NAMES * _POLICY_IDS - 1).map(_token),
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
        f"{text}{_one_of(' ', number)}",
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
    damaged = st.builds(_damaged_price, prices(), st.integers(0, 5), st.integers(0, 2**16 - 1))
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


def _drawn(part: object, otherwise: Callable[[], st.SearchStrategy[_T]]) -> st.SearchStrategy[_T]:
    """Return the strategy of a part of a value, which is given as a strategy, as a value, or not at all."""
    if part is None:
        return otherwise()
    return part if isinstance(part, st.SearchStrategy) else st.just(part)  # type: ignore[arg-type]  # it is a _T


def _drawn_price(price: object) -> st.SearchStrategy[Decimal]:
    if price is None:
        return prices()
    # One price has one Decimal, whoever draws it.
    return price.map(to_price) if isinstance(price, st.SearchStrategy) else st.just(to_price(price))  # type: ignore[arg-type]  # refused if it is none


def _drawn_amount(amount: object, least: int) -> st.SearchStrategy[int]:
    if amount is None:
        return amounts(min_value=least)
    if isinstance(amount, st.SearchStrategy):
        return amount.filter(bool) if least else amount
    if type(amount) is not int or not least <= amount <= MAX_LIQUIDITY:
        raise ValueError(f"an amount must be an int from {least} to 2^64-1, not {shown(amount)}")
    return st.just(amount)


def _drawn_spot(spot: object) -> st.SearchStrategy[Decimal | None]:
    if spot is None:
        return st.none() | prices()
    return spot if isinstance(spot, st.SearchStrategy) else st.just(to_price(spot))  # type: ignore[arg-type]  # refused if it is none


def _one_of(values: Sequence[_T], number: int) -> _T:
    return values[number % len(values)]


def _require_sizes(what: str, least: int, most: int, bound: int | None = None) -> None:
    if type(least) is not int or type(most) is not int or not 0 <= least <= most <= (most if bound is None else bound):
        highest = "" if bound is None else f" to {bound}"
        raise ValueError(f"{what}: from {shown(least)} to {shown(most)} is no range of whole numbers from 0{highest}")
