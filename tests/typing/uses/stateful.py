"""Correct and incorrect uses of `market_index.stateful`, for type checkers alone."""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import assert_type

from hypothesis.stateful import RuleBasedStateMachine

from market_index import ADA, AssetId, MarketIndex, Order, OrderBook, Pair
from market_index.stateful import Indexer, Offer, indexer_machine

token = AssetId(bytes(28), b"SNEK")
pair = Pair(token, ADA)

offer = Offer(pair, offered=ADA, amount=5, price=Fraction(1, 3))
assert_type(offer.order, Order)
assert_type(offer.offered, AssetId)

Offer(pair, ADA, 5, 0.5)  # error: mypy[arg-type] pyright[reportArgumentType]
offer.amount = 3  # error: mypy[misc] pyright[reportAttributeAccessIssue]


class Named:
    def __init__(self, name: str = "") -> None:
        self.name = name

    def place(self, order_id: str, offer: Offer) -> None: ...
    def remove(self, order_id: str) -> None: ...
    def set_spot(self, pair: Pair, spot: Decimal | None) -> None: ...
    def untrack(self, pair: Pair) -> None: ...
    def commit(self, block: str) -> None: ...
    def roll_back(self, block: str) -> None: ...
    def order_books(self) -> MarketIndex:
        return MarketIndex()


class WithoutRollback:
    def place(self, order_id: str, offer: Offer) -> None: ...
    def order_books(self) -> Mapping[Pair, OrderBook]:
        return {}


indexer: Indexer = Named()
assert_type(indexer_machine(Named), type[RuleBasedStateMachine])
assert_type(indexer_machine(lambda: Named("mine"), pairs=[pair], max_history=100), type[RuleBasedStateMachine])

indexer_machine(Named())  # error: mypy[arg-type] pyright[reportArgumentType]
indexer_machine(WithoutRollback)  # error: mypy[arg-type] pyright[reportArgumentType]
indexer_machine(Named, pairs=["ADA/x"])  # error: mypy[list-item] pyright[reportArgumentType]
indexer_machine(Named, [pair])  # error: mypy[call-arg] pyright[reportCallIssue]
