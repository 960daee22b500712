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
assert_type(wire.object_from_json(b"{}"), dict[str, object])
assert_type(wire.text_of(wire.encoded_order_book(book)), bytes)
assert_type(wire.with_identifiers(b"{}", book.pair, "ADA", "ADA"), bytes)
assert_type(wire.encoded_order_book(book)[0], wire.EncodedPart)
assert_type(wire.digest_of(wire.encoded_order_book(book)), bytes)
assert_type(wire.error_to_json("not found"), bytes)

wire.order_book_from_json("{}")  # error: mypy[arg-type] pyright[reportArgumentType]
wire.order_book_to_json(book.pair)  # error: mypy[arg-type] pyright[reportArgumentType]
wire.pair_list_to_json([book])  # error: mypy[list-item] pyright[reportArgumentType]
wire.error_to_json(b"not found")  # error: mypy[arg-type] pyright[reportArgumentType]
str(wire.unknown_name)  # error: mypy[attr-defined] pyright[reportAttributeAccessIssue]
