"""The feed of orders as an indexer: the library's state machine for indexers, with events as they are on a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal

from market_index import OrderBook, Pair
from market_index.stateful import Offer, indexer_machine
from market_index_feeds.orders.blocks import Phase
from tests.market_index_feeds.orders.test_blocks import Reader

HISTORY = 3


class FedIndexer:
    """The lines that a producer writes for each step, read as one batch."""

    def __init__(self) -> None:
        self._reader = Reader(HISTORY)
        self._write(reset=True)

    def place(self, order_id: str, offer: Offer) -> None:
        price = f"{offer.price.numerator}/{offer.price.denominator}"
        offered = "base" if offer.offered == offer.pair.base else "quote"
        self._write(offer.pair, place=order_id, offered=offered, amount=str(offer.amount), price=price)

    def remove(self, order_id: str) -> None:
        self._write(remove=order_id)

    def set_spot(self, pair: Pair, spot: Decimal | None) -> None:
        self._write(pair, spot=None if spot is None else format(spot, "f"))

    def untrack(self, pair: Pair) -> None:
        self._write(pair, untrack=True)

    def commit(self, block: str) -> None:
        self._write(block=block)

    def roll_back(self, block: str) -> None:
        self._write(rollback=block)

    def order_books(self) -> Mapping[Pair, OrderBook]:
        assert self._reader.blocks.phase is not Phase.UNKNOWN
        return self._reader.index

    def _write(self, pair: Pair | None = None, **event: object) -> None:
        if pair is not None:
            event |= {"base": str(pair.base), "quote": str(pair.quote)}
        self._reader.read(json.dumps(event).encode() + b"\n")


TestFedIndexer = indexer_machine(FedIndexer, max_history=HISTORY).TestCase
