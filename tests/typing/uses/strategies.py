"""Correct and incorrect uses of `market_index.strategies`, for type checkers alone."""

from decimal import Decimal
from typing import assert_type

from hypothesis.strategies import SearchStrategy

from market_index import ADA, AssetId, MarketIndex, Order, OrderBook, Pair, PriceLevel, RestingOrders, Side
from market_index import strategies as st

assert_type(st.asset_ids(ada=False), SearchStrategy[AssetId])
assert_type(st.pairs(base=ADA, quote=st.asset_ids()), SearchStrategy[Pair])
assert_type(st.prices(min_value="0.5", max_value=Decimal(2)), SearchStrategy[Decimal])
assert_type(st.price_levels(price=st.prices(), amount=1), SearchStrategy[PriceLevel])
assert_type(st.orders(pair=st.pairs(), side=Side.BID), SearchStrategy[Order])
assert_type(st.resting_orders(order=st.orders(), max_orders=3), SearchStrategy[RestingOrders])
assert_type(st.order_books(pair=st.pairs(), sides=Side.BID, crossed=False, spot=None), SearchStrategy[OrderBook])
assert_type(st.market_indexes(book=st.order_books()), SearchStrategy[MarketIndex])

st.prices(min_value=0.5)  # error: mypy[arg-type] pyright[reportArgumentType]
st.order_books(st.pairs())  # error: mypy[call-arg] pyright[reportCallIssue]
st.order_books(pair="ADA/x")  # error: mypy[arg-type] pyright[reportArgumentType]
st.order_books(sides="bid")  # error: mypy[arg-type] pyright[reportArgumentType]
st.resting_orders(order=st.pairs())  # error: mypy[arg-type] pyright[reportArgumentType]
