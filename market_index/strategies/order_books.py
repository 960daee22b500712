"""Strategies for order books, their sides and their changes."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal
from operator import itemgetter
from typing import Final, Literal, TypeAlias

from hypothesis import strategies as st

from market_index.errors import safe_repr
from market_index.levels import Levels, PriceLevel
from market_index.order_book import OrderBook
from market_index.pairs import Pair
from market_index.prices import Side, format_price
from market_index.strategies.assets import pairs
from market_index.strategies.drawing import build, part_strategy, require_range
from market_index.strategies.numbers import amount_strategy, price_strategy, spot_strategy

_Touch: TypeAlias = Literal["open", "locked", "crossed"]
"""How best bid and best ask meet; open means that the best bid is below the best ask."""

_Level: TypeAlias = tuple[Decimal, int]

_DEEP: Final = 100
"""The number of levels of a deep book. Hypothesis draws no books of several times as many."""


def price_levels(
    *,
    price: Decimal | str | st.SearchStrategy[Decimal] | None = None,
    amount: int | st.SearchStrategy[int] | None = None,
) -> st.SearchStrategy[PriceLevel]:
    """Draw price levels; `price` and `amount` are values or strategies."""
    return st.builds(PriceLevel, price_strategy(price), amount_strategy(amount, 1))


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

    In most books the best bid is below the best ask; some are locked, some crossed. All prices of a book differ, except
    the common price of a locked book; some differ by 10^-28 only. One book in six is deep, unless `price` is given: it
    has three quarters of the levels that are allowed, or 100. A book of 50 levels a side takes about 20 times as long
    as a default book; Hypothesis reports books of at least 300 levels as too large.

    Args:
        pair: The pair; by default any that can be tracked.
        sides: The sides that have levels.
        min_levels: The minimum number of levels of each of these sides.
        max_levels: The maximum number of levels of each of these sides.
        crossed: The value of `is_crossed`; None allows both. If True, neither side is empty.
        locked: The value of `is_locked`; None allows both. If True, neither side is empty.
        price: The prices of the levels.
        amount: The amounts of the levels, in the smallest unit of the base asset.
        spot: The spot price; by default None or any price.

    Raises:
        ValueError: No book meets the arguments.
        InvalidOrderBook: `pair` cannot be tracked.
        InvalidPrice: `price` or `spot` is not a price.
    """
    require_range("the levels of a side", min_levels, max_levels)
    wanted = _wanted(sides)
    # How many different prices each kind of book needs. A locked book has one price on both sides.
    least = len(wanted) * min_levels
    needed: dict[_Touch, int] = {"open": least, "locked": max(least - 1, 1), "crossed": max(least, 2)}
    touches = _touches(wanted, max_levels, crossed, locked)
    if price is not None and not isinstance(price, st.SearchStrategy):
        touches = [touch for touch in touches if needed[touch] <= 1]
        if not touches:
            raise ValueError(f"price must be a strategy for a book of several prices, got {safe_repr(price)}")
    if isinstance(pair, Pair):
        OrderBook(pair)
    level = st.tuples(price_strategy(price), amount_strategy(amount, 1))
    most = len(wanted) * max_levels
    # Hypothesis draws about five elements more than the minimum, so a deep book needs a minimum of its own.
    # A strategy of the caller may have too few prices.
    deep = max(needed[touches[0]], min(most * 3 // 4, _DEEP)) if price is None else needed[touches[0]]
    sizes = [*((touch, needed[touch]) for touch in touches), (touches[0], deep)]
    kinds = st.sampled_from(
        [(touch, st.lists(level, min_size=size, max_size=most, unique_by=itemgetter(0))) for touch, size in sizes]
    )
    return _order_book(
        pair=part_strategy(pair, pairs),
        kinds=kinds,
        wanted=wanted,
        min_levels=min_levels,
        max_levels=max_levels,
        spot=spot_strategy(spot),
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
        raise ValueError(f"sides must contain only Side.BID and Side.ASK, got {safe_repr(sides)}")
    return wanted


def _touches(wanted: frozenset[Side], max_levels: int, crossed: object, locked: object) -> list[_Touch]:
    """Return how best bid and best ask may meet: the simplest first, and repeated to be drawn more often."""
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
            f"a book with {len(wanted)} sides of up to {max_levels} levels must be possible, "
            f"got crossed={crossed}, locked={locked}"
        )
    return touches


def _split(
    draw: st.DrawFn, touch: _Touch, rising: list[_Level], min_levels: int, max_levels: int
) -> tuple[list[_Level], list[_Level]]:
    """Split levels, sorted by price, into bids and asks that are open, locked or crossed."""
    least = min_levels if touch == "open" else max(min_levels, 1)
    fewest = max(least, len(rising) - max_levels)
    most = min(max_levels, len(rising) - least + (touch == "locked"))
    bid_count = draw(st.integers(fewest, most))
    bids, asks = rising[:bid_count], rising[bid_count:]
    if touch == "locked":
        return bids, [bids[-1], *asks][:max_levels]
    if touch == "crossed":
        # Exchange one or more of the best levels of the two sides.
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
    """Draw changes for one side of `book.apply`: at its prices and at others, with removals and repeated prices.

    Some prices are spelled differently: `Decimal("0.50")` for 0.5, `Decimal("1E+1")` for 10. If `amount` is not given,
    a third of the changes are removals.

    Raises:
        TypeError: `book` is not an `OrderBook`.
        ValueError: `max_changes` is not an int of 0 or more.
    """
    if not isinstance(book, OrderBook):
        raise TypeError(f"book must be an OrderBook, not a strategy of books, got {safe_repr(book)}")
    require_range("the changes", 0, max_changes)
    at = price_strategy(price)
    amounts = amount_strategy(amount, 0)
    if amount is None:
        amounts = st.just(0) | amounts
    if existing := [level.price for side in (book.bids, book.asks) for level in side]:
        at = st.sampled_from(existing) | at
    return st.lists(st.tuples(_respelled(at), amounts), max_size=max_changes)


@st.composite
def _respelled(draw: st.DrawFn, prices: st.SearchStrategy[Decimal]) -> Decimal:
    """Draw prices, some of them in a spelling that is not canonical."""
    price = draw(prices)
    text = format_price(price)
    spellings = [price, Decimal(f"{text}0" if "." in text else f"{text}.0")]
    if text.endswith("0"):
        spellings.append(Decimal(f"{text[:-1]}E1"))
    return draw(st.sampled_from(spellings))


def levels(*, side: Side | st.SearchStrategy[Side] | None = None, max_levels: int = 8) -> st.SearchStrategy[Levels]:
    """Draw one side of a book, with at most `max_levels` levels."""
    return build(
        lambda book, one: book.bids if one is Side.BID else book.asks,
        order_books(max_levels=max_levels),
        part_strategy(side, lambda: st.sampled_from(Side)),
    )
