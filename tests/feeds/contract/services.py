"""Services in the contract: one with a stream, and one that is polled."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Final

import pytest

from market_index import Freshness, LiveIndex, MarketIndex, OrderBook, Pair, wire
from market_index_feeds import Feed, Version, service
from tests.feeds.contract.medium import Can, Fence, Marked
from tests.feeds.services import Answer, Front, served

INVALID: Final[Answer] = 200, {}, b'{"bids": 7}'


class PolledService(Marked):
    """A service of a live index, on a real server."""

    can = frozenset(Can) - {Can.COPY, Can.UNNAMED, Can.STORE, Can.SEVERAL, Can.REVISIONS}
    has_stream: ClassVar[bool] = False

    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(path, request)
        self.live = LiveIndex()
        self.front = Front(self.live, has_stream=self.has_stream)
        self._open = ExitStack()
        self._open.enter_context(pytest.MonkeyPatch.context()).setattr(service, "CHECK_SECONDS", 0.01)
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
        for book in books:
            self.front.answers.pop(book.pair, None)
        self.live.show(MarketIndex([*books, self.mark()]).with_freshness(freshness or Freshness()))
        return self.fence()

    def spoil(self, pair: Pair | None) -> Fence:
        assert pair is not None
        self.front.answers[pair] = INVALID
        self.live.publish(OrderBook(pair))

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


class StreamedService(PolledService):
    """The same service with its stream."""

    has_stream = True
    most_unread = 3  # one that has arrived, one that the service was sending during the last write, and the last one

    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        super().__init__(path, request)
        self.front.rewrite, self._now = self._spoiled, 0.0

    def feed(self) -> Feed:
        return Feed(service.ServiceSource(self.name, clock=self._clock))

    def hide(self) -> None:
        super().hide()
        self.front.end_streams()

    def _clock(self) -> float:
        """Return a time that passes only while the service has no pairs, and sends only comments."""
        self._now += 0 if self.live.current else 1
        return self._now

    def _spoiled(self, event: bytes) -> bytes:
        """Return an event, with an invalid book of a pair whose response is invalid."""
        head, _, text = event.partition(b"data: ")
        pair = wire.pair_named_in(text)
        if pair is None or pair not in self.front.answers:
            return event
        return head + b"data: " + wire.pair_to_json(pair).replace(b"}", b',"bids":7}')
