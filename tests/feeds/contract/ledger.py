"""The ledger in the contract: a stand-in for Kupo, in which each book has a spot price and no orders."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from market_index import Freshness, OrderBook, Pair
from market_index_feeds.ledger import kupo
from tests.feeds.contract.medium import MARK, Can, Fence, Marked
from tests.feeds.ledger.datums import filled
from tests.feeds.ledger.stand_in import Block, Kupo, serving


class LedgerOrders(Marked):
    """A chain of blocks. A book is an order that is placed and filled in one block; a retraction is a rollback."""

    can = frozenset({Can.LIVE, Can.RETRACT, Can.REPLACE, Can.HIDE, Can.BLANK, Can.MANY})

    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(path, request)
        self._open = ExitStack()
        patch = self._open.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(kupo, "POLL_SECONDS", 0.01)
        patch.setattr(kupo, "MOVED_SECONDS", 0.01)
        self.kupo = self._open.enter_context(serving(Kupo()))
        self.books: dict[Pair, OrderBook] = {}
        self._numbers = count(1)

    @property
    def name(self) -> str:
        return f"kupo:{self.kupo.url}"

    def write(self, *books: OrderBook, retract: tuple[Pair, ...] = (), freshness: Freshness | None = None) -> Fence:
        if retract:
            after = self.books | {book.pair: book for book in books}
            return self.replace(*[book for pair, book in after.items() if pair not in retract])
        self.kupo.blocks = [*self.kupo.blocks, self._block(*books, self.mark())]
        return self.fence()

    def replace(self, *books: OrderBook, freshness: Freshness | None = None) -> Fence:
        self.books = {}
        self.kupo.blocks = [self._block(*books, self.mark())]
        return self.fence()

    def hide(self) -> None:
        self.kupo.failure = "error"

    def show(self) -> None:
        self.kupo.failure = ""

    def reset(self) -> None:
        self.books, self.kupo.blocks = {}, []

    def close(self) -> None:
        self._open.close()

    def _block(self, *books: OrderBook) -> Block:
        self.books |= {book.pair: book for book in books if book.pair != MARK}
        orders, spent = [], {}
        for book in books:
            number = next(self._numbers)
            assert book.spot is not None
            order, how = filled(book.pair, int(book.spot), number)
            orders.append(order)
            spent[f"{order['transaction_id']}#0"] = how
        return Block(100 + next(self._numbers), orders, spent)
