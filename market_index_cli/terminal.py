"""Formats books as text: a table of pairs, and the ladder of one book.

On a terminal, the text is aligned and coloured, and numbers are as people read them. In a pipe, tabs separate the
columns, and numbers are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import accumulate, pairwise
from typing import Final
from unicodedata import combining, east_asian_width

from click import style

from market_index import Freshness, OrderBook, Side
from market_index_cli.tokens import EXACT, SHORTEST, Display, shortened

_BAR_WIDTH: Final = 40
_HEADINGS: Final = ("pair", "spot", "best bid", "best ask", "spread", "bids", "asks", "base", "quote")
_FACTS: Final = len(_HEADINGS) - 2
_LEFT_OUT: Final = "There is no room for identifiers; --wide shows them."
_CUT: Final = "Identifiers are cut; --wide shows them whole."
_CROSSED: Final = "In yellow, with a spread of zero or less: locked or crossed."


def pair_table(books: Iterable[OrderBook], display: Display, columns: int, *, wide: bool = False) -> Iterator[str]:
    """Yield the lines of a table of pairs: prices, number of levels, and identifiers.

    Identifiers are shortened, and left out where the terminal has no room for them, unless `wide` is True.
    """
    books = list(books)
    facts = [_facts(book, display) for book in books]
    ids = [
        tuple(str(one) if wide else shortened(one, SHORTEST) for one in (book.pair.base, book.pair.quote))
        for book in books
    ]
    heading, *rows = _justified([_HEADINGS, *(row + pair for row, pair in zip(facts, ids, strict=True))])
    note = None if wide else _CUT
    if not wide and max(map(_width, (heading, *rows))) > columns:
        heading, *rows = _justified([_HEADINGS[:_FACTS], *facts])
        note = _LEFT_OUT
    yield style(heading, bold=True)
    are_crossed = [book.is_crossed or book.is_locked for book in books]
    for row, is_crossed in zip(rows, are_crossed, strict=True):
        yield style(row, fg="yellow") if is_crossed else row
    if any(are_crossed):
        yield style(_CROSSED, dim=True)
    if note:
        yield style(note, dim=True)


def pair_rows(books: Iterable[OrderBook], display: Display) -> Iterator[str]:
    """Yield the table for a pipe: headings first, with tabs between the columns."""
    yield "\t".join(_HEADINGS)
    for book in books:
        name, *numbers = _facts(book, display)
        yield "\t".join((name, *map(_ungrouped, numbers), str(book.pair.base), str(book.pair.quote)))


def ladder(book: OrderBook, depth: int, display: Display, columns: int) -> Iterator[str]:
    """Yield the lines of a book: asks above bids, the best of each in the middle.

    A line has the price, amount and value of a level, the total value from the best price on, and a bar for the value.
    """
    grouped, pair = display.grouped(book), book.pair
    shown = grouped.depth(depth)
    asks = len(shown.asks)
    levels = [*((Side.ASK, one) for one in reversed(shown.asks)), *((Side.BID, one) for one in shown.bids)]
    worth = [*reversed(_worth(book, shown, Side.ASK)), *_worth(book, shown, Side.BID)]
    prices = _aligned([display.level_price(pair, level.price, side) for side, level in levels])
    amounts = [display.amount(pair.base, level.accumulated_liquidity) for _, level in levels]
    values, totals = ([display.value(pair.quote, one[at]) for one in worth] for at in (0, 1))
    sides = [side.value for side, _ in levels]
    cells = zip(sides, prices, amounts, values, totals, strict=True)
    heading, *lines = _justified([("side", "price", "amount", "value", "total"), *cells])
    room = min(max(columns - max(map(_width, (heading, *lines))) - 2, 1), _BAR_WIDTH)
    largest = max((value for value, _ in worth), default=Decimal(1))
    rungs = []
    for side, line, (value, _) in zip(sides, lines, worth, strict=True):
        bar = "█" * max(int(value * room / largest), 1)
        rungs.append(f"{line}  {style(bar, fg='red' if side == 'ask' else 'green')}")
    yield style(display.pair_name(pair), bold=True)
    yield f"base   {pair.base}"
    yield f"quote  {pair.quote}"
    yield style(display.units(pair), dim=True)
    yield ""
    yield style(heading, dim=True)
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


def ladder_rows(book: OrderBook, display: Display) -> Iterator[str]:
    """Yield the levels in the order of the ladder, with tabs between side, price and amount; headings first."""
    yield "side\tprice\tamount"
    for side, levels in ((Side.ASK, reversed(book.asks)), (Side.BID, book.bids)):
        for level in levels:
            price = display.level_price(book.pair, level.price, side)
            amount = display.amount(book.pair.base, level.accumulated_liquidity)
            yield f"{side.value}\t{_ungrouped(price)}\t{_ungrouped(amount)}"


def freshness_lines(freshness: Freshness) -> Iterator[str]:
    """Yield what books reflect and when they were published. An unknown value has no line."""
    if freshness.as_of is not None:
        yield style(f"as of {freshness.as_of}", dim=True)
    if freshness.published_at is not None:
        yield style(f"published at {freshness.published_at:%Y-%m-%d %H:%M:%S} UTC", dim=True)


def _ungrouped(number: str) -> str:
    return number.replace(",", "")


def _aligned(numbers: Sequence[str]) -> list[str]:
    """Return the numbers padded to one width, with aligned decimal points."""
    parts = [number.partition(".") for number in numbers]
    before = max((len(whole) for whole, _, _ in parts), default=0)
    after = max((len(point + places) for _, point, places in parts), default=0)
    return [f"{whole:>{before}}{point + places:<{after}}" for whole, point, places in parts]


def _facts(book: OrderBook, display: Display) -> tuple[str, ...]:
    pair, best = book.pair, display.grouped(book.depth(1))
    bid = display.level_price(pair, best.best_bid and best.best_bid.price, Side.BID)
    ask = display.level_price(pair, best.best_ask and best.best_ask.price, Side.ASK)
    spot, spread = display.price(pair, book.spot), _like_bid(book, book.spread, display)
    return display.pair_name(pair), spot, bid, ask, spread, str(len(book.bids)), str(len(book.asks))


def _middle(book: OrderBook, display: Display) -> str:
    """Return the line between the asks and the bids."""
    state = " (crossed)" if book.is_crossed else " (locked)" if book.is_locked else ""
    spread, mid = (_like_bid(book, price, display) for price in (book.spread, book.mid))
    share = "" if book.spread is None or book.mid is None else f", {percent(book.spread, book.mid)} %"
    return f"spread {spread}{share}{state}  mid {mid}  spot {display.price(book.pair, book.spot)}"


def _like_bid(book: OrderBook, price: Decimal | None, display: Display) -> str:
    """Return the text of the spread or the mid. Its last digit is that of the prices of the book."""
    return display.price(book.pair, price, book.best_bid and book.best_bid.price)


def percent(part: Decimal, whole: Decimal) -> str:
    """Return a part in percent, with at most three significant digits; as on the page.

    >>> percent(Decimal(1), Decimal(3)), percent(Decimal("-0.00002"), Decimal(1)), percent(Decimal(0), Decimal(1))
    ('33.3', '-0.002', '0')
    """
    return format(Context(3, ROUND_HALF_UP).divide(part, whole).scaleb(2).normalize(), "f")


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
    """Return the width of a text in columns: two for a wide character, zero for a combining one."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(one) else 2 if east_asian_width(one) in {"W", "F"} else 1 for one in text)
