"""Columns and rows for tables."""

from __future__ import annotations

import json

import pandas as pd
from hypothesis import given

from market_index import OrderBook, Side, wire


@given(...)
def test_columns_are_the_values(book: OrderBook, side: Side):
    levels = book.bids if side is Side.BID else book.asks
    frame = pd.DataFrame(levels.to_columns(), dtype=object)
    assert list(frame.itertuples(index=False, name=None)) == [(one.price, one.accumulated_liquidity) for one in levels]
    running = pd.DataFrame(book.cumulative(side).to_columns(), dtype=object)
    assert list(running.itertuples(index=False, name=None)) == [
        (one.price, one.base, one.quote) for one in book.cumulative(side)
    ]
    fill = book.simulate_fill(side, 7)
    (row,) = pd.DataFrame(fill.to_columns(), dtype=object).itertuples(index=False)
    assert row == (fill.filled, fill.paid, fill.average_price, fill.best_price, fill.worst_price, fill.complete)


@given(...)
def test_a_dict_of_a_book_is_its_json(book: OrderBook):
    assert book.to_dict() == json.loads(wire.order_book_to_json(book))
    assert wire.order_book_from_json(json.dumps(book.to_dict()).encode()) == book
