"""Correct and incorrect uses of `market_index.wire`, for type checkers alone."""

from typing import assert_type

from market_index import ADA, AssetId, OrderBook, Pair, PairInfo, wire

book = wire.order_book_from_json(b"{}")
assert_type(book, OrderBook)
assert_type(wire.order_book_from_json(memoryview(b"{}")), OrderBook)
assert_type(wire.order_book_to_json(book), bytes)
assert_type(wire.pair_list_from_json(b"{}"), tuple[PairInfo, ...])
assert_type(wire.pair_list_to_json([PairInfo(AssetId(bytes(28), b""), ADA)]), bytes)
assert_type(wire.pair_named_in(b"{}"), Pair | None)

wire.order_book_from_json("{}")  # error: mypy[arg-type] pyright[reportArgumentType]
wire.order_book_to_json(book.pair)  # error: mypy[arg-type] pyright[reportArgumentType]
wire.pair_list_to_json([book])  # error: mypy[list-item] pyright[reportArgumentType]
str(wire.unknown_name)  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
