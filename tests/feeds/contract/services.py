"""A polled service in the contract."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from market_index import Freshness, LiveIndex, MarketIndex, OrderBook, Pair
from market_index_feeds import Version
from tests.feeds.contract.medium import Can, Fence, Marked
from tests.feeds.services import Answer, Front, served

INVALID: Final[Answer] = 200, {}, b'{"bids": 7}'


class PolledService(Marked):
    """A service of a live index, on a real server."""

    can = frozenset(Can) - {Can.UNNAMED, Can.STORE}

    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(path, request)
        self.live = LiveIndex()
        self.front = Front(self.live)
        self._open = ExitStack()
        self._url = self._open.enter_context(served(self.front))

    @property
    def name(self) -> str:
        return self._url

    def write(self, *books: OrderBook, retract: tuple[Pair, ...] = (), freshness: Freshness | None = None) -> Fence:
        for book in books:
            self.front.answers.pop(book.pair, None)
        self.live.update([*books, self.mark()], retract, freshness)
        return self.fence()

    def replace(self, *books: OrderBook, freshness: Freshness | None = None) -> Fence:
        self.live.show(MarketIndex([*books, self.mark()]).with_freshness(freshness or Freshness()))
        return self.fence()

    def spoil(self, pair: Pair | None) -> Fence:
        assert pair is not None
        self.live.publish(OrderBook(pair))
        self.front.answers[pair] = INVALID

        def is_invalid(version: Version) -> bool:
            return pair in version.invalid

        return is_invalid

    def hide(self) -> None:
        self.front.everything = 503, {}, b"{}"

    def show(self) -> None:
        self.front.everything = None

    def reset(self) -> None:
        self.live.show(MarketIndex())

    def close(self) -> None:
        self._open.close()
