"""Formats books as text: a table of pairs, and the ladder of one book.

On a terminal, the columns are aligned, and numbers are as people read them. In a pipe, tabs separate the columns, and
numbers are exact.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from market_index import Freshness, OrderBook, Side
from market_index_cli.tokens import SMALLEST, Display

_HEADINGS: Final = ("pair", "spot", "best bid", "best ask", "spread", "bids", "asks", "base", "quote")
_LEVEL_DIGITS: Final = 9
"""The most digits of the price of a level: levels are closer to each other than the best prices are."""


def pair_table(books: Collection[OrderBook], display: Display) -> Iterator[str]:
    """Yield the lines of a table of pairs. The pair is last, because names have any width."""
    names, *numbers, _, _ = zip(*pair_rows(books, display), strict=True)
    lines = _justified([*zip(*numbers, strict=True)])
    yield from map("  ".join, zip(lines, names, strict=True))
    if any(SMALLEST in name for name in names):
        yield f"{SMALLEST} in smallest units: the decimals are not known"
    yield "A pipe has whole identifiers: market-index pairs FEED | cat"


def pair_rows(books: Collection[OrderBook], display: Display) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a table of pairs: headings first, then prices, numbers of levels, and identifiers."""
    yield _HEADINGS
    for book in books:
        pair, bid, ask = book.pair, book.best_bid, book.best_ask
        yield (
            display.pair_name(pair),
            display.price(pair, book.spot),
            display.price(pair, bid and bid.price, Side.BID),
            display.price(pair, ask and ask.price, Side.ASK),
            display.price(pair, book.spread),
            *(str(len(side)) for side in (book.bids, book.asks)),
            *map(str, (pair.base, pair.quote)),
        )


def ladder(book: OrderBook, depth: int, display: Display) -> Iterator[str]:
    """Yield the lines of a book: asks above bids, the best of each in the middle."""
    shown, pair = book.depth(depth), book.pair
    sides, prices, amounts = zip(*ladder_rows(shown, display), strict=True)
    padded = [f"{side:4}" for side in sides], (prices[0], *_aligned(prices[1:])), amounts
    heading, *levels = _justified([*zip(*padded, strict=True)])
    asks = len(shown.asks)
    yield display.pair_name(pair)
    yield f"base   {pair.base}"
    yield f"quote  {pair.quote}"
    yield display.units(pair)
    yield ""
    yield heading
    yield from _more(len(book.asks) - asks, "asks above")
    yield from levels[:asks]
    yield _middle(book, display)
    yield from levels[asks:]
    yield from _more(len(book.bids) - len(shown.bids), "bids below")


def ladder_rows(book: OrderBook, display: Display) -> Iterator[tuple[str, str, str]]:
    """Yield side, price and amount of each level in the order of the ladder; headings first."""
    yield "side", "price", "amount"
    for side, levels in ((Side.ASK, reversed(book.asks)), (Side.BID, book.bids)):
        for level in levels:
            price = display.price(book.pair, level.price, side, _LEVEL_DIGITS)
            yield side.value, price, display.amount(book.pair.base, level.accumulated_liquidity)


def freshness_lines(freshness: Freshness) -> Iterator[str]:
    """Yield what books reflect and when they were published. An unknown value has no line."""
    if freshness.as_of is not None:
        yield f"as of {freshness.as_of}"
    if freshness.published_at is not None:
        yield f"published at {freshness.published_at:%Y-%m-%d %H:%M:%S} UTC"


def _aligned(numbers: Sequence[str]) -> list[str]:
    """Return the numbers padded at their ends, so that the decimal points of a column to the right are aligned."""
    places = [len(number) - len(number.partition(".")[0]) for number in numbers]
    return [number + " " * (max(places) - count) for number, count in zip(numbers, places, strict=True)]


def _middle(book: OrderBook, display: Display) -> str:
    """Return the line between the asks and the bids."""
    state = " (crossed)" if book.is_crossed else " (locked)" if book.is_locked else ""
    spread, mid, spot = (display.price(book.pair, price) for price in (book.spread, book.mid, book.spot))
    return f"---  spread {spread}{state}  mid {mid}  spot {spot}"


def _more(count: int, what: str) -> Iterator[str]:
    if count:
        yield f"...  {count} more {what}"


def _justified(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines whose columns are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)) for row in rows]
