"""What the readers of the ledger have in common: there is a version for each block, and for each start or expiry.

Theory of operation
    A task reads the ledger. Time passes meanwhile: whether it waits for a response, or fails, a version shows the
    orders of this moment. While the ledger cannot be read, the version has a problem.

    `published_at` is the time of the block, not of the request: a node that lags, or a copy that was restored, is not
    fresh because it answers.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing
from datetime import datetime
from threading import Event
from typing import Final

from attrs import frozen

from market_index import Freshness, RestingOrders
from market_index.errors import safe_repr
from market_index_feeds.errors import FeedError, problem_of
from market_index_feeds.event_loop import pulled
from market_index_feeds.http import Address, Client
from market_index_feeds.ledger.exchange import Exchange
from market_index_feeds.ledger.market import Market, Selection, State
from market_index_feeds.source import NoVersion, Progress, Source, Version, utc_now

LOG: Final = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.5
"""The longest interval between two looks at the clock."""

EXCHANGE_SECONDS: Final = 10.0
"""Timeout of a request for a few bytes."""


_INVALID: Final = AttributeError, LookupError, RecursionError, TypeError, ValueError


@frozen
class Point:
    """A block of the chain: its slot and its hash."""

    slot: int
    hash: str

    def __str__(self) -> str:
        return f"{self.slot}.{self.hash}"


class NoBlock(Exception):
    """The ledger has no block to read. The text completes "kupo:http://... is still reading the chain"."""


class LedgerSource(Source):
    """A source that reads the ledger. `point` is the block of the last version."""

    def __init__(self, address: Address, selection: Selection, now: Callable[[], datetime] = utc_now) -> None:
        super().__init__(address.name)
        try:
            self.exchanges: tuple[Exchange, ...] = selection.selected()
        except ValueError as error:
            raise FeedError(f"{self.name} cannot be opened: {error}") from None
        self._address, self._selection, self._now = address, selection, now
        self.market: Market = Market(selection)
        self.hours: int = selection.hours
        self.point: Point | None = None
        # Why the ledger could not be read the last time, and what is wrong with it although it can be read.
        self.problem: str | None = None
        self.warning: str | None = None
        # What the last version shows.
        self._orders, self._shown = RestingOrders(), State(now())
        self._index = self._orders.index

    @property
    def figures(self) -> Mapping[str, float]:
        """The slot of the last version, and its orders by venue."""
        slot = {} if self.point is None else {"slot": self.point.slot}
        return {**Counter(f"orders of {one.venue}" for one in self._shown.orders.values()), **slot}

    @abstractmethod
    async def read(self, client: Client) -> float:
        """Read the last block, if it is another one. Return the seconds until the next call.

        Raises:
            FeedError, OSError: The ledger cannot be read now.
            NoBlock: It has no block that can be read.
        """

    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        """Yield a version for each block, and for each order that starts or expires."""
        return pulled(self._versions(), stop, progress)

    async def _versions(self) -> AsyncGenerator[Version | NoVersion, None]:
        async with aclosing(Client(self._address)) as client:
            reading = asyncio.create_task(self._read_after(client, 0))
            try:
                while True:
                    done, _ = await asyncio.wait({reading}, timeout=TICK_SECONDS)
                    if self.point is not None:
                        yield self._show(self.point)
                    elif self.problem is not None:
                        yield NoVersion(self.problem)
                    if done:
                        reading = asyncio.create_task(self._read_after(client, reading.result()))
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read_after(self, client: Client, seconds: float) -> float:
        await asyncio.sleep(seconds)
        try:
            seconds = await self.read(client)
            self.problem = None if self.point is not None else self.problem
        except NoBlock as reason:
            seconds, self.problem = TICK_SECONDS, str(reason)
        except (FeedError, OSError, *_INVALID) as error:
            is_read = isinstance(error, (FeedError, OSError))
            failure = error if is_read else FeedError(f"a response is not valid: {safe_repr(error)}")
            self.problem = None if self.point is None else problem_of(failure)
            raise failure from None
        return seconds

    def _show(self, point: Point) -> Version:
        """Return the version of the last block at this moment."""
        now, before = self.market.at(self._now()), self._shown
        if now is not before:
            orders = self._orders.apply(
                {key: one.order for key, one in now.orders.items() if before.orders.get(key) is not one},
                before.orders.keys() - now.orders.keys(),
                {pair: spot for pair, spot in now.spots.items() if before.spots.get(pair, "") != spot},
            )
            self._orders, self._shown = orders.untrack(*(before.spots.keys() - now.spots.keys())), now
            freshness = Freshness(f"slot {point.slot} {point.hash[:8]}", self.market.time_of(point.slot))
            self._index = self._orders.index.with_freshness(freshness)
            self._log_skipped(now, before)
        warning = self.warning
        if now.foreign:
            warning = f"is another network than {self._selection.network}: it has {now.foreign}"
        return self.version_of(
            self._index,
            orders=self._orders,
            venue_orders=now.orders,
            spot_times=now.spot_times,
            skipped=now.skipped,
            problem=self.problem or warning,
        )

    def _log_skipped(self, now: State, before: State) -> None:
        """Log how many outputs are skipped since the last version, by reason."""
        new = Counter(one.reason for key, one in now.skipped.items() if key not in before.skipped)
        if new:
            reasons = ", ".join(f"{count} {reason}" for reason, count in new.items())
            LOG.info("%s: outputs skipped: %s (market-index orders --skipped lists them)", self.name, reasons)
