"""The source that follows the orders of the ledger, through a running Kupo or the mini-Kupo of Dolos.

Theory of operation
    There is a version for each block, and for each start or expiry of an order by the clock. `/health` announces a
    block: its slot and its hash. Then the outputs of all exchanges are read. They are used only if Kupo names the same
    block before, with, and after them. Kupo announces a block a moment before it has stored it, so it is also asked
    whether the block is stored.

    The first time, all outputs are read: the unspent ones, and those that were spent within the window. Then only the
    outputs are read that were created or spent since the last block. The request names the hash of that block: if a
    rollback has removed it, Kupo answers 400, and all outputs are read again. A Dolos knows no spent outputs, so all
    are read each time.

    Kupo sends status 200 before it runs a query. So a body that is cut is a failure, never a market without orders.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from threading import Event
from typing import Any, Final, final

from attrs import frozen

from market_index import Pair, RestingOrders
from market_index.errors import safe_repr
from market_index_feeds.errors import FeedError, problem_of
from market_index_feeds.event_loop import pulled
from market_index_feeds.http import Address, Client, Response
from market_index_feeds.ledger.exchange import Exchange
from market_index_feeds.ledger.exchanges import EXCHANGES
from market_index_feeds.ledger.market import Match, Outputs, State
from market_index_feeds.source import NoVersion, Progress, Source, Version, utc_now

LOG: Final = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
"""The interval between two requests for the last block."""

MOVED_SECONDS: Final = 0.05
"""The interval between two attempts to read a block that is not stored yet, or was followed by another one."""

MAX_ATTEMPTS: Final = 20
"""After how many such attempts Kupo cannot be read now."""

EXCHANGE_SECONDS: Final = 10.0
"""Timeout of a request for a few bytes."""

MATCHES_SECONDS: Final = 300.0
"""Timeout of a request for outputs."""

WINDOW_HOURS: Final = 24
"""How long an execution is a spot price, and a pair without orders is listed, if the name of the feed does not say."""

MAX_BYTES: Final = 64 * 1024
MAX_MATCHES_BYTES: Final = 512 * 1024 * 1024

# Kupo would answer `*/*` with the metrics of Prometheus.
_HEADERS: Final = {"Accept": "application/json"}

_is_slot: Final = re.compile(r"[0-9]{1,15}\Z").match
_tag: Final = re.compile(r'(?:W/)?"?([0-9a-f]{64})"?\Z').match


@frozen
class Point:
    """A block of the chain: its slot and its hash."""

    slot: int
    hash: str

    def __str__(self) -> str:
        return f"{self.slot}.{self.hash}"


class _Moved(Exception):
    """Another block arrived while the outputs were read, or the block is not stored yet."""


@final
class KupoSource(Source):
    """A Kupo at a base URL, such as `http://127.0.0.1:1442`.

    Args:
        url: The base URL. A user and a password in it are sent as basic authentication.
        pairs: Pairs that are always listed, with this base.
        only: Whether other pairs are hidden.
        hours: The window, in hours up to the last block. Kupo must keep spent outputs that long (`--prune-utxo`: 36).
        exchanges: The exchanges whose outputs are read.
        headers: Headers of all requests, such as `X-API-Key`.
        now: Returns the time of the wall clock.

    Raises:
        FeedError: The name is not such a URL, a header is not valid, or two exchanges have the same script.
    """

    def __init__(
        self,
        url: str,
        pairs: Iterable[Pair] = (),
        *,
        only: bool = False,
        hours: int = WINDOW_HOURS,
        exchanges: Iterable[Exchange] = EXCHANGES,
        headers: Mapping[str, str] = {},
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._address = Address(url, headers, prefix="kupo:")
        super().__init__(self._address.name)
        self._exchanges, self._now = tuple(exchanges), now
        scripts = [exchange.script for exchange in self._exchanges]
        if repeated := {script for script in scripts if scripts.count(script) > 1}:
            raise FeedError(
                f"{self.name} cannot be opened: two exchanges have the script {', '.join(sorted(repeated))}"
            )
        self._outputs = Outputs(self._exchanges, pairs, only=only, window_slots=hours * 3600)
        self._point: Point | None = None
        self._knows_spent = True
        self._orders = RestingOrders()
        self._shown = State()

    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        """Yield a version for each block, and for each order that starts or expires."""
        return pulled(self._versions(), stop, progress)

    async def _versions(self) -> AsyncGenerator[Version | NoVersion, None]:
        async with aclosing(Client(self._address)) as client:
            while True:
                try:
                    found = await self._follow(client)
                except (FeedError, OSError) as error:
                    # Orders start and expire also while Kupo cannot be read.
                    if self._point is not None:
                        yield self._show(problem_of(error))
                    raise
                if found is None and self._outputs.is_empty:
                    found = NoVersion("knows no output of an exchange; it must index their patterns")
                yield found or self._show()
                await asyncio.sleep(POLL_SECONDS)

    async def _follow(self, client: Client) -> NoVersion | None:
        """Read the outputs of the last block, if it is another one. Return why there is none."""
        for _ in range(MAX_ATTEMPTS):
            health = await _get(client, "/health", 200, 202, 503)
            if health.status == 202:
                return NoVersion("is still reading the chain")
            if health.status == 503:
                raise FeedError("Kupo is not connected to its node")
            point = _point_of(health)
            if point is None:
                return NoVersion("has no block yet")
            if point == self._point:
                return None
            try:
                await self._read(client, point)
            except _Moved:
                await asyncio.sleep(MOVED_SECONDS)
            else:
                return None
        raise FeedError(f"no block could be read as a whole in {MAX_ATTEMPTS} attempts")

    async def _read(self, client: Client, point: Point) -> None:
        """Read what changed since the last block, or everything. Raises `_Moved`."""
        stored = await _get(client, f"/checkpoints/{point.slot}?strict", 200, 404)
        # A Dolos does not have this resource. Two blocks of one slot differ in their hash.
        if stored.status == 200 and point.hash.encode() not in stored.body:
            raise _Moved
        last, changed = self._point, None
        if last is not None and last.slot < point.slot and self._knows_spent:
            changed = await self._matches(client, point, f"unspent&created_after={last}", f"spent_after={last}")
        is_whole = changed is None
        if changed is None:
            changed = await self._all_matches(client, point)
        if _point_of(await _get(client, "/health", 200, 202, 503)) != point:
            raise _Moved
        try:
            self._outputs.read(changed, point.slot, is_whole=is_whole)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise FeedError(f"a match of Kupo is not valid: {safe_repr(error)}") from None
        self._point = point

    async def _all_matches(self, client: Client, point: Point) -> list[Match]:
        """Return the unspent outputs, and those that were spent within the window."""
        matches = await self._matches(client, point, "unspent") or []
        if self._knows_spent:
            first_slot = self._outputs.first_slot(point.slot)
            spent = await self._matches(client, point, f"spent_after={first_slot}")
            if spent is not None:
                return matches + spent
            LOG.warning("%s: Kupo knows no spent outputs (as a Dolos), so spot prices are unknown", self.name)
            self._knows_spent = False
        return matches

    async def _matches(self, client: Client, point: Point, *queries: str) -> list[Match] | None:
        """Return the matches of all exchanges; None if Kupo rejects a query, such as one after an unknown block."""
        matches: list[Match] = []
        for exchange in self._exchanges:
            for query in queries:
                target = f"/matches/{exchange.pattern}?{query}&resolve_hashes"
                response = await _get(client, target, 200, 400, seconds=MATCHES_SECONDS, max_bytes=MAX_MATCHES_BYTES)
                if response.status == 400 and "after=" in query:
                    return None
                if (_point_of(response) or point) != point:
                    raise _Moved
                matches += _list_of(response, target)
        return matches

    def _show(self, problem: str | None = None) -> Version:
        """Return the version of the last block at this moment."""
        now, before, point = self._outputs.at(self._now()), self._shown, self._point
        if now is not before or self.last is None:
            orders = self._orders.apply(
                {key: one.order for key, one in now.orders.items() if before.orders.get(key) is not one},
                [key for key in before.orders if key not in now.orders],
                {key: spot for key, spot in now.spots.items() if key not in before.spots or before.spots[key] != spot},
                f"slot {point.slot} {point.hash[:8]}" if point else None,
            )
            self._orders = orders.untrack(*[pair for pair in before.spots if pair not in now.spots])
            self._shown = now
            self._log_skipped(now.skipped, before.skipped)
        orders = self._orders
        return self.version_of(
            orders.index, orders=orders, venue_orders=now.orders, skipped=now.skipped, problem=problem
        )

    def _log_skipped(self, skipped: Mapping[str, str], before: Mapping[str, str]) -> None:
        """Log how many outputs are skipped since the last version, by reason."""
        new = Counter(reason for key, reason in skipped.items() if key not in before)
        if new:
            reasons = ", ".join(f"{count} {reason}" for reason, count in new.items())
            LOG.info("%s: outputs skipped: %s (market-index orders --skipped lists them)", self.name, reasons)


async def _get(
    client: Client, target: str, *statuses: int, seconds: float = EXCHANGE_SECONDS, max_bytes: int = MAX_BYTES
) -> Response:
    """Return the response to a request, which must have one of the statuses."""
    response = await client.get(target, _HEADERS, seconds=seconds, max_bytes=max_bytes)
    if response.status not in statuses:
        raise FeedError(f"response to {target} must have status 200, got {response.status}")
    return response


def _list_of(response: Response, target: str) -> list[Any]:
    try:
        matches = json.loads(response.body)
    except (RecursionError, ValueError):
        raise FeedError(f"response to {target} must be JSON, and is cut or damaged") from None
    if type(matches) is not list:
        raise FeedError(f"response to {target} must be a list of matches")
    return matches


def _point_of(response: Response) -> Point | None:
    """Return the block that a response is of, None if it does not name one. A proxy may quote or weaken its tag."""
    slot = response.headers.get("X-Most-Recent-Checkpoint", "")
    tag = _tag(response.headers.get("ETag", ""))
    return Point(int(slot), tag[1]) if _is_slot(slot) and tag else None
