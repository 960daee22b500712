"""Formats books as text: a table of pairs, and the ladder of one book. Numbers are exact.

On a terminal, the text is aligned and coloured. In a pipe, tabs separate the columns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final
from unicodedata import combining, east_asian_width

import click
from attrs import frozen

from market_index import Freshness, OrderBook, Pair, PriceLevel
from market_index_cli.tokens import SHORTEST, Display, shortened

_BAR_WIDTH: Final = 40
_EIGHTHS: Final = "▏▎▍▌▋▊▉"
_LEAST_WHOLE: Final = len(f"{bytes(28).hex()}:")
"""The length of the shortest identifier of a token: one with an empty name."""
_HEADINGS: Final = ("pair", "spot", "best bid", "best ask", "spread", "bids", "asks", "base", "quote")
_FACTS: Final = len(_HEADINGS) - 2
_UNITS: Final = (("d", 86_400), ("h", 3600), ("min", 60))


@frozen
class Terminal:
    """The capabilities of a terminal, and how it shows assets and numbers.

    Capabilities are its width in columns, colour, and block characters for bars.
    """

    columns: int
    colour: bool = True
    blocks: bool = True
    display: Display = Display()  # noqa: RUF009  # it is immutable

    def styled(self, text: str, **style: object) -> str:
        """Return the text with the style if the terminal has colour; otherwise the plain text."""
        return click.style(text, **style) if self.colour else text  # type: ignore[arg-type]  # click checks the styles


def pair_table(books: Iterable[OrderBook], terminal: Terminal, *, wide: bool = False) -> Iterator[str]:
    """Yield the lines of a table of pairs: prices, number of levels, and identifiers.

    Identifiers are shortened to the width of the terminal, unless `wide` is True.
    """
    facts = [(book, _facts(book, terminal.display)) for book in books]
    rows = [_HEADINGS[:_FACTS], *(row for _, row in facts)]
    widths = [max(_width(row[column]) for row in rows) for column in range(_FACTS)]
    bases, quotes = [book.pair.base for book, _ in facts], [book.pair.quote for book, _ in facts]
    needed = [
        max(len(heading), *(len(str(one)) for one in ids)) if ids else len(heading)
        for heading, ids in zip(_HEADINGS[_FACTS:], (bases, quotes), strict=True)
    ]
    room = terminal.columns - sum(widths) - 2 * (_FACTS + 1)
    given, is_cut = needed, not wide and sum(needed) > room
    if is_cut:
        # Each column may use the space that the other one does not need. Either both columns are cut, or none.
        given = [
            min(own, max(room // 2, room - other), _LEAST_WHOLE - 1)
            for own, other in zip(needed, reversed(needed), strict=True)
        ]
    is_left_out = any(one < min(own, SHORTEST) for one, own in zip(given, needed, strict=True))

    def line(cells: Sequence[str], base: str, quote: str) -> str:
        ids = () if is_left_out else (f"{base:<{given[0]}}", quote)
        return "  ".join((*_justified(cells, widths), *ids))

    yield terminal.styled(line(_HEADINGS[:_FACTS], *_HEADINGS[_FACTS:]), bold=True)
    for book, row in facts:
        text = line(row, shortened(book.pair.base, given[0]), shortened(book.pair.quote, given[1]))
        yield terminal.styled(text, fg="yellow") if _is_crossed_or_locked(book) else text
    if any(_is_crossed_or_locked(book) for book, _ in facts):
        yield terminal.styled("In yellow, with a spread of zero or less: locked or crossed.", dim=True)
    if is_left_out:
        yield terminal.styled("There is no room for identifiers; --wide shows them.", dim=True)
    elif is_cut:
        yield terminal.styled("Identifiers are cut to fit; --wide shows them whole.", dim=True)


def pair_rows(books: Iterable[OrderBook], display: Display) -> Iterator[str]:
    """Yield the table for a pipe: headings first, with tabs between the columns."""
    yield "\t".join(_HEADINGS)
    for book in books:
        yield "\t".join((*_facts(book, display), str(book.pair.base), str(book.pair.quote)))


def ladder(book: OrderBook, depth: int, terminal: Terminal) -> Iterator[str]:
    """Yield the lines of a book: asks above bids, the best of each in the middle, with a bar for each amount."""
    shown = book.depth(depth)
    levels = (*shown.asks, *shown.bids)
    pair, display = book.pair, terminal.display
    prices = dict(zip(levels, _aligned([display.price(pair, level.price) for level in levels]), strict=True))
    amounts = dict(
        zip(levels, _aligned([display.amount(pair.base, level.accumulated_liquidity) for level in levels]), strict=True)
    )
    price_width = max(map(len, prices.values()), default=0)
    amount_width = max(map(len, amounts.values()), default=0)
    largest = max((level.accumulated_liquidity for level in levels), default=1)
    room = min(_BAR_WIDTH, max(terminal.columns - price_width - amount_width - 9, 1))

    def rung(side: str, level: PriceLevel, colour: str) -> str:
        bar = _bar(level.accumulated_liquidity, largest, room, blocks=terminal.blocks)
        return f"{side}  {prices[level]}  {amounts[level]}  {terminal.styled(bar, fg=colour)}"

    yield terminal.styled(_name(pair, display), bold=True)
    yield f"base   {book.pair.base}"
    yield f"quote  {book.pair.quote}"
    yield terminal.styled(display.units(pair), dim=True)
    yield ""
    yield from _more(len(book.asks) - len(shown.asks), "asks above")
    for level in reversed(shown.asks):
        yield rung("ask", level, "red")
    yield terminal.styled(f"---  {_middle(book, display)}", bold=True)
    for level in shown.bids:
        yield rung("bid", level, "green")
    yield from _more(len(book.bids) - len(shown.bids), "bids below")


def ladder_rows(book: OrderBook, display: Display) -> Iterator[str]:
    """Yield the levels in the order of the ladder, with tabs between side, price and amount; headings first."""
    yield "side\tprice\tamount"
    for side, levels in (("ask", reversed(book.asks)), ("bid", book.bids)):
        for level in levels:
            amount = display.amount(book.pair.base, level.accumulated_liquidity).replace(",", "")
            yield f"{side}\t{display.price(book.pair, level.price)}\t{amount}"


def freshness_lines(freshness: Freshness, now: datetime, terminal: Terminal) -> Iterator[str]:
    """Yield the as_of of books and the time since their publication. An unknown value has no line.

    `now` is the wall clock of this machine, in UTC. If the clock of the publisher is ahead, the time is 0 seconds.
    """
    if freshness.as_of is not None:
        yield terminal.styled(f"as of {freshness.as_of}", dim=True)
    if freshness.published_at is not None:
        age = duration((now - freshness.published_at).total_seconds())
        yield terminal.styled(f"published {age} ago, by the clocks of the publisher and this machine", dim=True)


def duration(seconds: float) -> str:
    """Return a duration in the largest unit of which it has at least one (two for days), rounded down; as on the page.

    >>> duration(59.9), duration(3599), duration(100_000), duration(-5)
    ('59 s', '59 min', '27 h', '0 s')
    """
    whole = max(int(seconds), 0)
    for name, length in _UNITS:
        if whole >= length * (2 if name == "d" else 1):
            return f"{whole // length} {name}"
    return f"{whole} s"


def _aligned(numbers: Sequence[str]) -> list[str]:
    """Return the numbers padded to one width, with aligned decimal points."""
    parts = [number.partition(".") for number in numbers]
    before = max((len(whole) for whole, _, _ in parts), default=0)
    after = max((len(point + places) for _, point, places in parts), default=0)
    return [f"{whole:>{before}}{point + places:<{after}}" for whole, point, places in parts]


def _name(pair: Pair, display: Display) -> str:
    return f"{display.name(pair.base)}/{display.name(pair.quote)}"


def _facts(book: OrderBook, display: Display) -> tuple[str, ...]:
    bid, ask = book.best_bid, book.best_ask
    prices = (book.spot, bid and bid.price, ask and ask.price, book.spread)
    return (
        _name(book.pair, display),
        *(display.price(book.pair, price) for price in prices),
        str(len(book.bids)),
        str(len(book.asks)),
    )


def _middle(book: OrderBook, display: Display) -> str:
    """Return the line between the asks and the bids."""
    state = " (crossed)" if book.is_crossed else " (locked)" if book.is_locked else ""
    spread, mid, spot = (display.price(book.pair, price) for price in (book.spread, book.mid, book.spot))
    return f"spread {spread}{state}  mid {mid}  spot {spot}"


def _more(count: int, what: str) -> Iterator[str]:
    if count:
        yield f"...  {count} more {what}"


def _bar(amount: int, largest: int, room: int, *, blocks: bool) -> str:
    """Return a bar with a length proportional to the amount, but never empty."""
    if not blocks:
        return "#" * max(1, amount * room // largest)
    whole, rest = divmod(max(1, amount * room * 8 // largest), 8)
    return "█" * whole + (_EIGHTHS[rest - 1] if rest else "")


def _is_crossed_or_locked(book: OrderBook) -> bool:
    return book.is_crossed or book.is_locked


def _justified(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yield the cells padded to their widths: the first one left-aligned, the numbers right-aligned."""
    for column, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        blanks = " " * (width - _width(cell))
        yield cell + blanks if column == 0 else blanks + cell


def _width(text: str) -> int:
    """Return the width of a text in columns: two for a wide character, zero for a combining one."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(one) else 2 if east_asian_width(one) in {"W", "F"} else 1 for one in text)


def can_show_blocks(encoding: str | None) -> bool:
    """Whether the encoding has the block characters of bars."""
    try:
        ("█" + _EIGHTHS).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def wants_colour() -> bool:
    """Whether colour is enabled: NO_COLOR is not set (https://no-color.org)."""
    return not os.environ.get("NO_COLOR")
