"""Formats books as text: a table of pairs, and the ladder of one book.

On a terminal, the text is aligned and coloured, and numbers are as people read them. In a pipe, tabs separate the
columns, and numbers are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import Final
from unicodedata import category, combining, east_asian_width

from click import style

from market_index import AssetId, Freshness, OrderBook, Side
from market_index_cli.tokens import EXACT, SMALLEST, Display, percent, shortened

_BAR_WIDTH: Final = 40
_HEADINGS: Final = ("pair", "spot", "best bid", "best ask", "spread", "bids", "asks", "base", "quote")
_FACTS: Final = len(_HEADINGS) - 2
_COLUMN_COUNTS: Final = (len(_HEADINGS), _FACTS, _FACTS - 2, _FACTS - 3)
"""The columns for narrower and narrower terminals: without identifiers, numbers of levels, and the spread."""

_IDENTIFIERS: Final = "A pipe has whole identifiers: market-index pairs FEED | cat"
_IN_SMALLEST_UNITS: Final = f"{SMALLEST} in smallest units: the decimals are not known"
_CROSSED: Final = "In yellow, with a spread of zero or less: locked or crossed."


def pair_table(books: Collection[OrderBook], display: Display, columns: int) -> Iterator[str]:
    """Yield the lines of a table of pairs, with as many columns as the terminal has room for."""
    rows = [*pair_rows(books, display, shortened)]
    tables = [_justified([row[:count] for row in rows]) for count in _COLUMN_COUNTS]
    lines = next((table for table in tables if max(map(_width, table)) <= columns), tables[-1])
    yield style(lines[0], bold=True)
    are_crossed = [book.is_crossed or book.is_locked for book in books]
    for line, is_crossed in zip(lines[1:], are_crossed, strict=True):
        yield style(line, fg="yellow") if is_crossed else line
    if any(are_crossed):
        yield style(_CROSSED, dim=True)
    if any(SMALLEST in row[0] for row in rows):
        yield style(_IN_SMALLEST_UNITS, dim=True)
    yield style(_IDENTIFIERS, dim=True)


def pair_rows(
    books: Collection[OrderBook], display: Display, identifier: Callable[[AssetId], str] = str
) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a table of pairs: headings first, then prices, numbers of levels, and identifiers."""
    yield _HEADINGS
    for book in books:
        pair = book.pair
        yield (
            display.pair_name(pair),
            display.price(pair, book.spot),
            display.best_price(pair, book.best_bid, Side.BID),
            display.best_price(pair, book.best_ask, Side.ASK),
            display.price(pair, book.spread),
            *(str(len(side)) for side in (book.bids, book.asks)),
            *map(identifier, (pair.base, pair.quote)),
        )


def ladder(book: OrderBook, depth: int, display: Display, columns: int) -> Iterator[str]:
    """Yield the lines of a book: asks above bids, the best of each in the middle.

    A line has the price, amount and value of a level, the total value from the best price on, and a bar for the value.
    """
    grouped, pair = display.grouped(book), book.pair
    shown = grouped.depth(depth)
    headings, *rows = ladder_rows(shown, display)
    worth = [*reversed(_worth(book, shown, Side.ASK)), *_worth(book, shown, Side.BID)]
    prices = _aligned([price for _, price, _ in rows])
    cells = [
        (side, price, amount, *(display.amount(pair.quote, one) for one in values))
        for (side, _, amount), price, values in zip(rows, prices, worth, strict=True)
    ]
    heading, *lines = _justified([(*headings, "value", "total"), *cells])
    room = min(max(columns - max(map(_width, (heading, *lines))) - 2, 1), _BAR_WIDTH)
    largest = max((value for value, _ in worth), default=Decimal(1))
    rungs = []
    for (side, *_), line, (value, _) in zip(rows, lines, worth, strict=True):
        bar = "█" * max(int(value * room / largest), 1)
        rungs.append(f"{line}  {style(bar, fg='red' if side == 'ask' else 'green')}")
    yield style(display.pair_name(pair), bold=True)
    yield f"base   {pair.base}"
    yield f"quote  {pair.quote}"
    yield style(display.units(pair), dim=True)
    yield ""
    yield style(heading, dim=True)
    asks = len(shown.asks)
    yield from _more(len(grouped.asks) - asks, "asks above")
    yield from rungs[:asks]
    yield style(f"---  {_middle(book, display)}", bold=True)
    yield from rungs[asks:]
    yield from _more(len(grouped.bids) - len(shown.bids), "bids below")


def _worth(book: OrderBook, shown: OrderBook, side: Side) -> list[tuple[Decimal, Decimal]]:
    """Return the exact value of each level of a grouped book, and the total from the best price on."""
    totals = {one.base: one.quote for one in book.cumulative(side)}
    running = accumulate(level.accumulated_liquidity for level in (shown.bids if side is Side.BID else shown.asks))
    found = [totals[amount] for amount in running]
    return [(EXACT.subtract(total, before), total) for before, total in pairwise([Decimal(0), *found])]


def ladder_rows(book: OrderBook, display: Display) -> Iterator[tuple[str, str, str]]:
    """Yield side, price and amount of each level in the order of the ladder; headings first."""
    yield "side", "price", "amount"
    for side, levels in ((Side.ASK, reversed(book.asks)), (Side.BID, book.bids)):
        for level in levels:
            amount = display.amount(book.pair.base, level.accumulated_liquidity)
            yield side.value, display.level_price(book.pair, level, side), amount


def freshness_lines(freshness: Freshness) -> Iterator[str]:
    """Yield what books reflect and when they were published. An unknown value has no line."""
    if freshness.as_of is not None:
        yield style(f"as of {freshness.as_of}", dim=True)
    if freshness.published_at is not None:
        yield style(f"published at {freshness.published_at:%Y-%m-%d %H:%M:%S} UTC", dim=True)


def _aligned(numbers: Sequence[str]) -> list[str]:
    """Return the numbers padded to one width, with aligned decimal points."""
    parts = [number.partition(".") for number in numbers]
    before = max((len(whole) for whole, _, _ in parts), default=0)
    after = max((len(point + places) for _, point, places in parts), default=0)
    return [f"{whole:>{before}}{point + places:<{after}}" for whole, point, places in parts]


def _middle(book: OrderBook, display: Display) -> str:
    """Return the line between the asks and the bids."""
    state = " (crossed)" if book.is_crossed else " (locked)" if book.is_locked else ""
    spread, mid, spot = (display.price(book.pair, price) for price in (book.spread, book.mid, book.spot))
    share = "" if book.spread is None or book.mid is None else f", {percent(book.spread, book.mid)}"
    return f"spread {spread}{share}{state}  mid {mid}  spot {spot}"


def _more(count: int, what: str) -> Iterator[str]:
    if count:
        yield f"...  {count} more {what}"


def _justified(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines with aligned columns: numbers to the right; names and identifiers to the left."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]

    def cell(text: str, at: int) -> str:
        blanks = " " * (widths[at] - _width(text))
        return blanks + text if 0 < at < _FACTS else text + blanks

    return ["  ".join(cell(text, at) for at, text in enumerate(row)).rstrip() for row in rows]


def _width(text: str) -> int:
    """Return the width of a text in columns: two for a wide character, zero for a combining or invisible one."""
    if text.isascii():
        return len(text)
    visible = [one for one in text if not combining(one) and category(one) != "Cf"]
    return sum(2 if east_asian_width(one) in {"W", "F"} else 1 for one in visible)
