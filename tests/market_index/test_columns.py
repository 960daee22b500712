"""Columns and rows for tables."""

from __future__ import annotations

import pandas as pd
from hypothesis import given

from market_index import OrderBook, Side


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
    assert pd.DataFrame([fill.to_row()], dtype=object).filled[0] == fill.filled
