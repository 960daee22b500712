"""Correct and incorrect uses of `market_index.display`, for type checkers alone."""

from collections.abc import Iterable
from decimal import Decimal
from typing import assert_type

from market_index import ADA, AssetId, OrderBook, Pair
from market_index.display import Table, Token, Tokens, table

snek = AssetId(bytes(28), b"SNEK")
pair = Pair(snek, ADA)
entries: Iterable[Token] = iter([Token(snek, "SNEK", decimals=0)])
tokens = Tokens(entries, ["why"])
assert_type(tokens.entries, tuple[Token, ...])
assert_type(tokens.rejected, tuple[str, ...])
assert_type(tokens.decimals(snek), int | None)
assert_type(tokens.human_amount(ADA, 7), Decimal)
assert_type(tokens.human_amount(ADA, Decimal(7)), Decimal)
assert_type(tokens.amount_from_human(ADA, "0"), int)
assert_type(tokens.human_price(pair, Decimal(1)), Decimal)
assert_type(table(OrderBook(pair), tokens), Table)
assert_type(table(OrderBook(pair).asks, tokens, pair).html, str)

Token("SNEK")  # error: mypy[arg-type] pyright[reportArgumentType]
Tokens([snek])  # error: mypy[list-item] pyright[reportArgumentType]
tokens.human_amount(ADA, "1")  # error: mypy[arg-type] pyright[reportArgumentType]
tokens.human_price(pair, 1)  # error: mypy[arg-type] pyright[reportArgumentType]
table(OrderBook(pair), pair)  # error: mypy[arg-type] pyright[reportArgumentType]
