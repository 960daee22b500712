"""Columns and rows for tables."""

from __future__ import annotations

import json

import pandas as pd
from hypothesis import given

from market_index import MarketIndex, OrderBook, Side, wire


@given(...)
def test_columns_are_the_values(book: OrderBook, side: Side):
    levels = book.side(side)
    frame = pd.DataFrame(levels.to_columns(), dtype=object)
    assert list(frame.itertuples(index=False, name=None)) == [(one.price, one.accumulated_liquidity) for one in levels]
    running = pd.DataFrame(book.cumulative(side).to_columns(), dtype=object)
    assert list(running.itertuples(index=False, name=None)) == [
        (one.price, one.base, one.quote) for one in book.cumulative(side)
    ]
    fill = (book.buy if side is Side.ASK else book.sell)(7)
    (row,) = pd.DataFrame(fill.to_columns(), dtype=object).itertuples(index=False)
    best, worst = fill.best_price, fill.worst_price
    assert row == (fill.filled, fill.paid, fill.total, fill.average_price, best, worst, fill.complete)


@given(...)
def test_the_columns_of_a_book_are_its_levels(book: OrderBook):
    rows = list(pd.DataFrame(book.to_columns(), dtype=object).itertuples(index=False, name=None))
    assert rows == [
        (side.value, one.price, one.base - before, one.base)
        for side in Side
        for one, before in zip(book.cumulative(side), [0, *[one.base for one in book.cumulative(side)]], strict=False)
    ]


@given(...)
def test_the_columns_of_an_index_are_its_books(index: MarketIndex):
    rows = list(pd.DataFrame(index.to_columns(), dtype=object).itertuples(index=False, name=None))
    best = [(book.best_bid, book.best_ask) for book in index.values()]
    assert rows == [
        (str(book.pair), book.spot, bid and bid.price, ask and ask.price, book.spread, len(book.bids) + len(book.asks))
        for book, (bid, ask) in zip(index.values(), best, strict=True)
    ]


@given(...)
def test_a_dict_of_a_book_is_its_json(book: OrderBook):
    assert book.to_dict() == json.loads(wire.order_book_to_json(book))
    assert wire.order_book_from_json(json.dumps(book.to_dict()).encode()) == book
