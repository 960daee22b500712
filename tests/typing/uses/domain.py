"""Correct and incorrect uses of `market_index`, for type checkers alone."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import assert_type

import market_index
from market_index import (
    ADA,
    AssetId,
    CumulativeLevels,
    InvalidPrice,
    Levels,
    Liquidity,
    LiveIndex,
    MarketIndex,
    MarketIndexError,
    Order,
    OrderBook,
    OrderNotFound,
    Pair,
    PairInfo,
    PairNotFound,
    PriceLevel,
    RestingOrders,
    Side,
    SimulatedFill,
    parse_price,
)

str(market_index.unknown_name)  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]

# Assets and pairs

token = AssetId(bytes(28), b"SNEK")
assert_type(token.fingerprint, str | None)
assert_type(AssetId.parse("ADA"), AssetId)
pair = Pair(token, ADA)

AssetId(bytes(28), "SNEK")  # error: mypy[arg-type] pyright[reportArgumentType]
Pair("ADA", token)  # error: mypy[arg-type] pyright[reportArgumentType]

# Prices, levels and books. A spot may be missing, and a side may be empty.

assert_type(parse_price("0.5"), Decimal)
level = PriceLevel("0.5", 7)
assert_type(level.price, Decimal)
book = OrderBook.from_levels(pair, bids=[("0.5", 7), (Decimal(1), 2), level], asks=iter([("2", 1)]))
side: Sequence[PriceLevel] = book.bids
assert_type(book.bids, Levels)
assert_type(book.apply(asks=[["0.5", 7]]), OrderBook)
assert_type(list(book.side(Side.BID).items()), list[tuple[Decimal, int]])
assert_type(book.bids[0], PriceLevel)
assert_type(book.bids[:2], Levels)
assert_type(book.bids.amount_at("0.5"), int)
assert_type(OrderBook(pair, spot=None).spot, Decimal | None)
assert_type(book.best_bid, PriceLevel | None)

parse_price(0.5)  # error: mypy[arg-type] pyright[reportArgumentType]
PriceLevel(0.5, 7)  # error: mypy[arg-type] pyright[reportArgumentType]
OrderBook.from_levels(pair, bids=[(0.5, 7)])  # error: mypy[list-item] pyright[reportArgumentType]
OrderBook(pair, bids=[("0.5", 7)])  # error: mypy[list-item] pyright[reportArgumentType]
book.bids = book.asks  # error: mypy[misc] pyright[reportAttributeAccessIssue]
str(book.spot + 1)  # error: mypy[operator] pyright[reportOptionalOperand]

# Changes and analysis

assert_type(book.apply(bids=[("0.5", 0)], spot=None), OrderBook)
assert_type(book.changes_since(book)[0], tuple[tuple[Decimal, int], ...])
assert_type(book.cumulative(Side.BID), CumulativeLevels)
assert_type(book.liquidity_within(Side.ASK, "0.01"), Liquidity | None)
fill = book.buy(5, "quote")
assert_type(fill, SimulatedFill)
assert_type(fill.slippage(book.mid), Decimal | None)

book.apply(spot=0.5)  # error: mypy[arg-type] pyright[reportArgumentType]
book.buy(5, "USD")  # error: mypy[arg-type] pyright[reportArgumentType]

# Orders

order = Order(pair, Side.BID, Fraction(1, 3), 5)
assert_type(order.level_price, Decimal)
assert_type(OrderBook.from_orders(pair, [order], spot="0.5"), OrderBook)
assert_type(Order.from_offer(pair, offered=ADA, amount=5, price="7/29000"), Order)
resting = RestingOrders({"a#0": order}, {pair: "0.5", Pair(ADA, token): None}, as_of="block 1")
orders: Mapping[str, Order] = resting
assert_type(resting.apply({"a#0": order}, ["b#1"], {pair: Decimal(1)}, "block 2", missing_ok=True), RestingOrders)
assert_type(resting.index, MarketIndex)

Order(pair, Side.BID, 0.5, 5)  # error: mypy[arg-type] pyright[reportArgumentType]
Order.from_offer(pair, offered=ADA, amount=5, price=0.5)  # error: mypy[arg-type] pyright[reportArgumentType]
Order.from_offer(pair, ADA, 5, "7")  # error: mypy[call-arg] pyright[reportCallIssue]
RestingOrders({1: order})  # error: mypy[dict-item] pyright[reportArgumentType]
resting.untrack([pair])  # error: mypy[arg-type] pyright[reportArgumentType]

# Indexes

index = MarketIndex([book])
books: Mapping[Pair, OrderBook] = index
assert_type(index.order_book(pair), OrderBook)
assert_type(index.pair_list(), tuple[PairInfo, ...])
assert_type(index.with_books(book).without(pair), MarketIndex)
assert_type(index.changes_since(MarketIndex()), tuple[tuple[OrderBook, ...], tuple[Pair, ...]])
live = LiveIndex(index.values())
assert_type(live.publish(book, book), MarketIndex)
assert_type(live.update([book], retract=[pair]), MarketIndex)
assert_type(next(live.changes()), tuple[MarketIndex, tuple[OrderBook, ...], tuple[Pair, ...]])

MarketIndex(book)  # error: mypy[arg-type] pyright[reportArgumentType]
index.with_books([book])  # error: mypy[arg-type] pyright[reportArgumentType]
live.publish([book])  # error: mypy[arg-type] pyright[reportArgumentType]
live.current = index  # error: mypy[misc] pyright[reportAttributeAccessIssue]

# Errors

invalid: ValueError = InvalidPrice("a price must be above 0, got '-1'").at("bids[3].price")
missing: KeyError = PairNotFound("message", pair)
assert_type(OrderNotFound("message", "a#0").order_id, str)
errors: list[MarketIndexError] = [PairNotFound("message", pair), InvalidPrice()]

PairNotFound("message", "ADA/x")  # error: mypy[arg-type] pyright[reportArgumentType]


class MyBook(OrderBook):  # error: mypy[misc] pyright[reportGeneralTypeIssues]
    pass
