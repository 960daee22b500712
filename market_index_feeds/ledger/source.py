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
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import aclosing
from datetime import datetime
from threading import Event
from typing import Final

from attrs import frozen

from market_index import Freshness, Pair, RestingOrders
from market_index.errors import safe_repr
from market_index_feeds.errors import FeedError, problem_of
from market_index_feeds.event_loop import pulled
from market_index_feeds.http import Address, Client
from market_index_feeds.ledger.exchange import Exchange
from market_index_feeds.ledger.exchanges import EXCHANGES
from market_index_feeds.ledger.market import LEAST_EXECUTION, Market, State
from market_index_feeds.source import NoVersion, Progress, Source, Version, utc_now

LOG: Final = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.5
"""The longest interval between two looks at the clock."""

WINDOW_HOURS: Final = 24
"""How long an execution is a spot price, and a pair without orders is listed."""

EXCHANGE_SECONDS: Final = 10.0
"""Timeout of a request for a few bytes."""


@frozen
class Point:
    """A block of the chain: its slot and its hash."""

    slot: int
    hash: str

    def __str__(self) -> str:
        return f"{self.slot}.{self.hash}"


class NoBlock(Exception):
    """The ledger has no block to read. The text completes "kupo:http://... is still reading the chain"."""


@frozen
class Selection:
    """Which orders are read.

    Args:
        exchanges: Exchanges besides those of `EXCHANGES`. One with the script of another replaces it.
        venues: The names of the exchanges that are read; all if there are none.
        network: Their network: `mainnet`, `preprod` or `preview`.
        pairs: Pairs that are always listed, with this base.
        only: Whether other pairs are hidden.
        hours: The window, in hours up to the last block.
        least_execution: The least value of an execution that is a spot price, in lovelace.
    """

    exchanges: Iterable[Exchange] = ()
    venues: Iterable[str] = ()
    network: str = "mainnet"
    pairs: Iterable[Pair] = ()
    only: bool = False
    hours: int = WINDOW_HOURS
    least_execution: int = LEAST_EXECUTION

    def selected(self) -> tuple[Exchange, ...]:
        """Return the exchanges that are read. Raises `ValueError` if a name of `venues` is not that of an exchange."""
        found = {one.script: one for one in (*EXCHANGES, *self.exchanges)}.values()
        of_network = [one for one in found if self.network in one.networks]
        names = {one.name for one in of_network}
        if unknown := set(self.venues) - names:
            raise ValueError(f"venues must be names such as {', '.join(sorted(names))}, got {', '.join(unknown)}")
        return tuple(one for one in of_network if not self.venues or one.name in self.venues)


class LedgerSource(Source):
    """A source that reads the ledger. `point` is the block of the last version."""

    def __init__(self, address: Address, selection: Selection, now: Callable[[], datetime] = utc_now) -> None:
        super().__init__(address.name)
        try:
            self.exchanges = selection.selected()
        except ValueError as error:
            raise FeedError(f"{self.name} cannot be opened: {error}") from None
        self._address, self._selection, self._now = address, selection, now
        self.market = Market(
            self.exchanges,
            selection.pairs,
            only=selection.only,
            network=selection.network,
            window_slots=selection.hours * 3600,
            least_execution=selection.least_execution,
        )
        self.hours: int = selection.hours
        self.point: Point | None = None
        # Why the ledger could not be read the last time, and what is wrong with it although it can be read.
        self.problem: str | None = None
        self.warning: str | None = None
        # What the last version shows.
        self._orders, self._shown = RestingOrders(), State(now())
        self._index = self._orders.index

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
            seconds, self.problem = await self.read(client), None
        except NoBlock as reason:
            seconds, self.problem = TICK_SECONDS, str(reason)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise self._failed(FeedError(f"a response is not valid: {safe_repr(error)}")) from None
        except (FeedError, OSError) as error:
            raise self._failed(error) from None
        return seconds

    def _failed(self, error: FeedError | OSError) -> FeedError | OSError:
        self.problem = None if self.point is None else problem_of(error)
        return error

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
