"""Correct and incorrect uses of `market_index.stateful`, for type checkers alone."""

from decimal import Decimal
from fractions import Fraction
from typing import assert_type

from hypothesis.stateful import RuleBasedStateMachine

from market_index import ADA, AssetId, MarketIndex, Order, Pair
from market_index.stateful import Indexer, Offer, indexer_machine

pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
assert_type(Offer(pair, offered=ADA, amount=5, price=Fraction(1, 3)).order, Order)
Offer(pair, ADA, 5, 0.5)  # error: mypy[arg-type] pyright[reportArgumentType]


class WithoutBooks:
    def place(self, order_id: str, offer: Offer) -> None: ...
    def remove(self, order_id: str) -> None: ...
    def set_spot(self, pair: Pair, spot: Decimal | None) -> None: ...
    def untrack(self, pair: Pair) -> None: ...
    def commit(self, block: str) -> None: ...
    def roll_back(self, block: str) -> None: ...


class Named(WithoutBooks):
    def __init__(self, name: str = "") -> None:
        self.name = name

    def order_books(self) -> MarketIndex:
        return MarketIndex()


indexer: Indexer = Named()
assert_type(indexer_machine(lambda: Named("mine"), pairs=[pair], max_history=100), type[RuleBasedStateMachine])

indexer_machine(Named())  # error: mypy[arg-type] pyright[reportArgumentType]
indexer_machine(WithoutBooks)  # error: mypy[arg-type] pyright[reportArgumentType]
indexer_machine(Named, pairs=["ADA/x"])  # error: mypy[list-item] pyright[reportArgumentType]
