"""Tables for notebooks: small, with escaped text and without colours of their own.

A notebook calls the method `_repr_html_` of a value. It shows the table in its own colours, light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import singledispatch
from html import escape
from itertools import islice, zip_longest
from typing import Final, TypeAlias, final

from attrs import frozen

from market_index.assets import AssetId
from market_index.display.tokens import Tokens
from market_index.errors import require_type, safe_repr
from market_index.index import MarketIndex
from market_index.levels import Levels
from market_index.order_book import OrderBook
from market_index.pairs import Pair

SHOWN_ROWS: Final = 10
"""The maximum number of rows of a table."""

_Row: TypeAlias = Sequence[object]
"""Texts, assets, and numbers in smallest units or None. A row that begins with two assets has numbers of their pair."""

_Content: TypeAlias = tuple[Sequence[_Row], Sequence[str], Sequence[_Row], int]
"""The lines of the title, each in parts; the columns; the rows that are shown, and the number of all rows."""


@final
@frozen
class Table:
    """A table that a notebook shows. `html` is its text."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


def table(value: object, tokens: Tokens | None = None, pair: Pair | None = None) -> Table:
    """Return the table of a value, with at most ten rows.

    A notebook shows this table for the value itself, with identifiers and smallest units. Call the function for labels
    and human units.

    Args:
        value: An order book, levels, or an index.
        tokens: Labels and decimals; without them, numbers are in smallest units.
        pair: The pair of levels, which do not name it. Required with `tokens`.

    >>> from market_index import ADA, PriceLevel, Side
    >>> from market_index.display import Token
    >>> levels, snek = Levels(Side.ASK, [PriceLevel("4100.5", 7)]), AssetId(bytes(28), b"SNEK")
    >>> table(levels).html
    '<div>1 asks</div><table><tr><th>price</th><th>amount</th></tr><tr><td>4100.5</td><td>7</td></tr>...
    >>> table(levels, Tokens([Token(snek, decimals=0)]), Pair(snek, ADA)).html
    '<div>1 asks<br>in whole units</div>...<td>0.0041005</td><td>7</td></tr></table>'

    Raises:
        TypeError: The value has no table, `pair` is missing, or an argument has another type.
    """
    for name, given, kind in (("tokens", tokens, Tokens), ("pair", pair, Pair)):
        if given is not None:
            require_type(name, given, kind)
    title, columns, rows, count = _content(value)
    pair = value.pair if isinstance(value, OrderBook) else pair
    if tokens is not None:
        assets = [cell for row in rows for cell in row if isinstance(cell, AssetId)]
        title = [*title, [tokens.units(*(assets or ([pair.base, pair.quote] if pair else [])))]]
    lines = "<br>".join(["".join([_text(part, tokens, pair) for part in line]) for line in title])
    headings = "".join([f"<th>{column}</th>" for column in columns])
    body = ""
    for row in rows:
        of_row = Pair(row[0], row[1]) if isinstance(row[0], AssetId) and isinstance(row[1], AssetId) else pair
        body += f"<tr>{''.join([f'<td>{_text(cell, tokens, of_row)}</td>' for cell in row])}</tr>"
    more = f"<div>… {count - SHOWN_ROWS:,} more</div>" if count > SHOWN_ROWS else ""
    return Table(f"<div>{lines}</div><table><tr>{headings}</tr>{body}</table>{more}")


def _text(value: object, tokens: Tokens | None, pair: Pair | None) -> str:
    """Return the HTML of a cell: with tokens in labels and whole units, without in identifiers and smallest units."""
    if value is None:
        return "-"
    if isinstance(value, AssetId):
        return _asset(value, tokens)
    if not isinstance(value, (int, Decimal)):
        return escape(str(value))
    if tokens is None:
        return format(Decimal(value), "f")
    if pair is None:
        raise TypeError("pair must be given with tokens, because the value does not name its pair")
    number = tokens.human_amount(pair.base, value) if isinstance(value, int) else tokens.human_price(pair, value)
    return format(number, "f")


def _asset(asset: AssetId, tokens: Tokens | None) -> str:
    # Isolated, because letters of a script that is written from right to left would reorder the text around them.
    if tokens is not None:
        return f'<bdi title="{asset}">{escape(tokens.label(asset))}</bdi>'
    name = asset.asset_name_text
    return f"{asset} (<bdi>{escape(name)}</bdi>)" if name else str(asset)


@singledispatch
def _content(value: object) -> _Content:
    raise TypeError(f"value must be one that has a table, got {type(value).__name__}: {safe_repr(value)}")


@_content.register
def _(book: OrderBook) -> _Content:
    crossing = " (crossed)" if book.is_crossed else " (locked)" if book.is_locked else ""
    counts = f"; {len(book.bids):,} bids, {len(book.asks):,} asks"
    names: _Row = (book.pair.base, " / ", book.pair.quote)
    prices: _Row = ("spot ", book.spot, ", spread ", book.spread, crossing, ", mid ", book.mid, counts)
    sides = zip_longest(book.bids[:SHOWN_ROWS].items(), book.asks[:SHOWN_ROWS].items(), fillvalue=(None, None))
    rows = [(bid_amount, bid, ask, ask_amount) for (bid, bid_amount), (ask, ask_amount) in sides]
    return [names, prices], ("amount", "bid", "ask", "amount"), rows, max(len(book.bids), len(book.asks))


@_content.register
def _(levels: Levels) -> _Content:
    title = f"{len(levels):,} {levels.side.value}s"
    return [[title]], ("price", "amount"), list(levels[:SHOWN_ROWS].items()), len(levels)


@_content.register
def _(index: MarketIndex) -> _Content:
    title = [f"{len(index):,} pairs, as of ", index.as_of, ", published at ", index.published_at]
    rows = [
        (book.pair.base, book.pair.quote, book.spot, *[best and best.price for best in (book.best_bid, book.best_ask)])
        for book in islice(index.values(), SHOWN_ROWS)
    ]
    return [title], ("base", "quote", "spot", "best bid", "best ask"), rows, len(index)
