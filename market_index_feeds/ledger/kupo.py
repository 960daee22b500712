"""The source that follows the orders of the ledger through a running Kupo.

Theory of operation
    `/checkpoints` has the last block that is stored. A bound such as `created_after=<slot>.<hash>` names a block. Kupo
    looks it up in the transaction of the query, and answers 400 if it is not on its chain (App/Http.hs,
    `assertPointExists`). So
    `created_after=A&created_before=B` and `spent_after=A&spent_before=B` are exactly the changes from block A to block
    B, whichever blocks follow B already: an output that was spent after B is unspent at B. These two requests return
    the outputs of all patterns, because only then Kupo uses its indexes of slots (SQLite.hs, `foldInputsQry`).

    If a rollback has removed the last block, the changes are read since an earlier block that is still on the chain.

    The first read takes as long as it takes. It begins at a block that a rollback will hardly remove. A query for
    unspent outputs has no bound for spends: an output that was spent since is missing. The changes since that block
    contain it, unless a rollback has removed the spend. So each pattern is read between two requests for the last
    stored block, and counts only if both are on the chain of the block at which the read ends. Otherwise it is read
    again, but not because of a new block.

    Not detected: a block that arrives and is rolled back between these two requests, and that spends an order which no
    later block spends. The order is then missing until the outputs are read as a whole again.

    Kupo sends status 200 before it runs a query. So a body that is cut is a failure, never a market without orders.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias, final

from attrs import define, field

from market_index_feeds.errors import FeedError
from market_index_feeds.http import Address, Client, Response
from market_index_feeds.ledger.market import ROLLBACK_SLOTS, Selection
from market_index_feeds.ledger.outputs import Match, output_of
from market_index_feeds.ledger.source import EXCHANGE_SECONDS, LedgerSource, NoBlock, Point
from market_index_feeds.source import utc_now

LOG: Final = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
"""The interval between two requests for the last block."""

MOVED_SECONDS: Final = 0.05
"""The interval between two attempts to read a block during a rollback, or to get a response from a busy Kupo."""

MAX_ATTEMPTS: Final = 20
"""After how many such attempts Kupo cannot be read now."""

MATCHES_SECONDS: Final = 120.0
"""Timeout of a request for outputs: that of Kupo itself (App/Http.hs, `Warp.setTimeout`)."""

LEAST_VERSION: Final = (2, 12)
"""The first version of Kupo that uses its indexes of slots for requests without a pattern."""

LAST_SLOT: Final = 10**12
"""After all slots of the next 30,000 years."""

STABLE_SLOTS: Final = 600
"""The first read begins at a block that is older than this, because rollbacks rarely are as deep."""

MAX_GAP_SLOTS: Final = 3600
"""How many slots of changes are read without a pattern: a Kupo may index the outputs of all the ledger."""

MAX_POINTS: Final = 256
"""How many blocks are remembered, so that a rollback to one of them does not need all outputs."""

MAX_MISSING: Final = 16
"""How many datums that are not known are asked for at each block."""

MAX_BYTES: Final = 64 * 1024
MAX_MATCHES_BYTES: Final = 512 * 1024 * 1024

# Kupo would answer `*/*` with the metrics of Prometheus.
_HEADERS: Final = {"Accept": "application/json"}
# No output has this transaction, so its index finds nothing at once.
_NOTHING: Final = f"/*@{'0' * 64}"

_version: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})").match

_Read: TypeAlias = tuple[Point, int, list[Match]]
"""A block, what was created or spent up to it, and after which slot."""


@define
class _FirstRead:
    """What was read of the outputs at a block: per pattern the last blocks before and after, and its matches."""

    base: Point
    patterns: dict[str, tuple[set[Point], list[Match]]] = field(factory=dict)


@final
class KupoSource(LedgerSource):
    """A Kupo at a base URL, such as `http://127.0.0.1:1442`.

    Args:
        url: The base URL. A user and a password in it are sent as basic authentication.
        selection: Which orders are read. Kupo must keep spent outputs for its hours and 12 more (`--prune-utxo`: 36).
        headers: Headers of all requests, such as `X-API-Key`.
        now: Returns the time of the wall clock.

    Raises:
        FeedError: The name is not such a URL, a header is not valid, or the selection is not.
    """

    def __init__(
        self,
        url: str,
        selection: Selection = Selection(),  # noqa: B008  # immutable
        *,
        headers: Mapping[str, str] = {},
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__(Address(url, headers, prefix="kupo:"), selection, now)
        self._paths = [f"/{exchange.pattern}" for exchange in self.exchanges]
        # The last blocks that were read, and which Kupo it was: its version and its patterns.
        self._points: list[Point] = []
        self._first: _FirstRead | None = None
        self._known = ""
        self._rollbacks, self._slots_behind = 0, 0

    @property
    def figures(self) -> Mapping[str, float]:
        """Those of the ledger, how many slots Kupo is behind its node, and how often a block was rolled back."""
        return {**super().figures, "slots behind the node": self._slots_behind, "rollbacks": self._rollbacks}

    async def read(self, client: Client) -> float:
        """Read the outputs at the last block, if it is another one."""
        kupo = _Kupo(client)
        health = await kupo.health()
        for _ in range(MAX_ATTEMPTS):
            last = await kupo.stored()
            if last is None:
                self.point = None
                raise NoBlock("has no block yet")
            self._slots_behind = max((health.get("most_recent_node_tip") or 0) - last.slot, 0)
            if last in self._points[-1:]:
                return POLL_SECONDS
            await self._check(kupo, str(health.get("version")))
            read = await (self._changes if self._points else self._whole)(kupo, last)
            if read is not None:
                await self._take(kupo, *read)
                return POLL_SECONDS
            await asyncio.sleep(MOVED_SECONDS)
        raise FeedError(f"no block could be read in {MAX_ATTEMPTS} attempts")

    async def _check(self, kupo: _Kupo, version: str) -> None:
        """Check the version and the patterns of Kupo. If they have changed, all outputs are read again."""
        if (found := _version(version)) and (int(found[1]), int(found[2])) < LEAST_VERSION:
            raise NoBlock(f"is a Kupo {version}, which must be 2.12 or later")
        patterns = set(await kupo.list("/patterns", EXCHANGE_SECONDS) or ())
        missing = [
            f"{one.venue} ({one.pattern})"
            for one in self.exchanges
            if patterns.isdisjoint({"*", "*/*", f"{one.script}/*", one.pattern})
        ]
        self.warning: str | None = f"does not index the outputs of {', '.join(missing)}" if missing else None
        known, self._known = self._known, f"{version} {sorted(patterns)}"
        if known != self._known:
            self._points.clear()
            self._first = None

    async def _take(self, kupo: _Kupo, block: Point, since: int, matches: list[Match]) -> None:
        """Show the outputs at a block, and ask for datums that were not known."""
        self.market.read(map(output_of, matches), block.slot, since=since)
        self._points = [*self._points, block][-MAX_POINTS:]
        self.point = None if self.market.is_empty else block
        if self.point is None:
            raise NoBlock(self.warning or "knows no output of an exchange; it must index their patterns")
        late = [
            match
            for one in self.market.missing(MAX_MISSING)
            for match in await kupo.matches(f"/{one.index}@{one.transaction_id}", "") or ()
        ]
        if late:
            self.market.read(map(output_of, late), block.slot, since=block.slot)

    async def _changes(self, kupo: _Kupo, last: Point) -> _Read | None:
        """Return what has changed up to a block since the last one, or since an earlier one after a rollback.

        Returns None if it cannot be read yet. If no earlier block is on the chain, all are forgotten.
        """
        known = len(self._points)
        for back in sorted({min(2**power, known) for power in range(known.bit_length() + 1)}):
            point = self._points[-back]
            if self._points[-1].slot - point.slot > ROLLBACK_SLOTS:
                break
            paths = [""] if last.slot - point.slot <= MAX_GAP_SLOTS else self._paths
            changed = await kupo.changes(point, last, paths)
            if changed is not None:
                self._roll_back(last, back - 1)
                return last, point.slot, changed
            if not await kupo.is_line(last, last):
                return None
        self._roll_back(last, known)
        return None

    def _roll_back(self, last: Point, blocks: int) -> None:
        """Forget the last blocks that were read."""
        if blocks:
            self._rollbacks += 1
            if blocks > 1:
                LOG.warning("%s: rolled back from %s; the last block is %s", self.name, self._points[-1], last)
            del self._points[-blocks:]

    async def _whole(self, kupo: _Kupo, last: Point) -> _Read | None:
        """Return all outputs at a block: unspent ones, and those that were spent in the window; None if not yet.

        What was read of each pattern stays for the next call, also if a request fails.
        """
        if self._first is None or not await kupo.is_line(self._first.base, last):
            self._first = _FirstRead(await kupo.stored(last.slot - STABLE_SLOTS) or last)
        base, read = self._first.base, self._first.patterns
        since = self.market.first_slot(base.slot)
        for path in [path for path in self._paths if path not in read]:
            before = last
            spent = await kupo.matches(path, f"spent_after={since}&spent_before={base}&")
            unspent = await kupo.matches(path, f"unspent&created_before={base}&")
            stored = await kupo.stored()
            if spent is None or unspent is None or stored is None:
                return None
            read[path], last = ({before, stored}, spent + unspent), stored
        changed = await kupo.changes(base, last, self._paths)
        if changed is None:
            return None
        points = set[Point]().union(*[around for around, _ in read.values()])
        lost = {point for point in points if not await kupo.is_line(point, last)}
        for path in [path for path in self._paths if not lost.isdisjoint(read[path][0])]:
            del read[path]
        if len(read) < len(self._paths):
            return None
        self._first = None
        return last, -1, [match for _, matches in read.values() for match in matches] + changed


class _Kupo:
    """Requests to a Kupo."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def health(self) -> dict[str, Any]:
        """Return its health. Raises `FeedError` or `NoBlock` if there is no block to read."""
        response = await self._get("/health", 200, 202, 503)
        if response.status == 202:
            raise NoBlock("is still reading the chain")
        if response.status == 503:
            raise FeedError("Kupo is not connected to its node")
        return dict(json.loads(response.body))

    async def stored(self, slot: int = LAST_SLOT) -> Point | None:
        """Return the last block that is stored, up to a slot."""
        found = json.loads((await self._get(f"/checkpoints/{max(slot, 0)}", 200)).body)
        return Point(int(found["slot_no"]), str(found["header_hash"])) if found else None

    async def changes(self, after: Point, until: Point, paths: Iterable[str]) -> list[Match] | None:
        """Return what was created and spent from a block to a later one; None if they are not on one chain."""
        changed: list[Match] = []
        for path in paths if after.slot <= until.slot else ():
            for moment in "created", "spent":
                found = await self.matches(path, f"{moment}_after={after}&{moment}_before={until}&")
                if found is None:
                    return None
                changed += found
        return changed if after.slot <= until.slot else None

    async def is_line(self, before: Point, after: Point) -> bool:
        """Whether both blocks are on the chain, the first one not after the second."""
        return await self.changes(before, after, [_NOTHING]) is not None

    async def matches(self, path: str, query: str) -> list[Match] | None:
        """Return the matches of a query; None if a block in it is not on the chain."""
        return await self.list(f"/matches{path}?{query}resolve_hashes", MATCHES_SECONDS)

    async def list(self, target: str, seconds: float) -> list[Any] | None:
        """Return the list of a response; None if its status is 400."""
        response = await self._get(target, 200, 400, seconds=seconds, max_bytes=MAX_MATCHES_BYTES)
        if response.status == 400:
            return None
        found = json.loads(response.body)
        if type(found) is not list:
            raise FeedError(f"response to {target} must be a list")
        return found

    async def _get(
        self, target: str, *statuses: int, seconds: float = EXCHANGE_SECONDS, max_bytes: int = MAX_BYTES
    ) -> Response:
        """Return the response to a request, which must have one of the statuses. A busy Kupo is asked again."""
        for attempt in range(MAX_ATTEMPTS):
            await asyncio.sleep(MOVED_SECONDS if attempt else 0)
            response = await self._client.get(target, _HEADERS, seconds=seconds, max_bytes=max_bytes)
            if response.status in statuses:
                return response
            if response.status != 503:
                raise FeedError(f"response to {target} must have status 200, got {response.status}")
        raise FeedError(f"response to {target} must have status 200, got 503")
