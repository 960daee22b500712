"""The source that reads the orders of the ledger from Koios, a free public index of Cardano.

Theory of operation
    `POST /credential_utxos` returns the unspent outputs of all scripts (files/grest/rpc/address/credential_utxos.sql of
    cardano-community/koios-artifacts). Nodes behind the balancer may differ by a block. So a reading counts only if the
    tip is the same before and after it, if all pages state the same number of rows, and if no row is there twice.
    Two equal tips do not prove that the pages between came from the same node.

    A reading starts only when the tip is at least two blocks above that of the last version. So a node that is one
    block behind shows nothing older than what was shown. An output that is missing is removed at once.

    After the first reading, the ids of all outputs are read, and only the rows above the last block, less a few: rows
    of earlier blocks are known. Koios knows no spent outputs in this query, so there are no spot prices.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, final

from attrs import frozen

from market_index_feeds.backoff import next_backoff
from market_index_feeds.errors import FeedError
from market_index_feeds.http import Address, Client, Response
from market_index_feeds.ledger.entries import SLOT_ZEROS
from market_index_feeds.ledger.market import Selection
from market_index_feeds.ledger.outputs import Match, output_of
from market_index_feeds.ledger.source import EXCHANGE_SECONDS, LedgerSource, NoBlock, Point
from market_index_feeds.source import utc_now

LOG: Final = logging.getLogger(__name__)

BASE_URLS: Final = {
    "mainnet": "https://api.koios.rest/api/v1",
    "preprod": "https://preprod.koios.rest/api/v1",
    "preview": "https://preview.koios.rest/api/v1",
}

EVERY_SECONDS: Final = 300
"""The interval between two readings: with some 15 requests each, 5,000 a day are not exceeded."""

MAX_ROWS: Final = 1000
"""The most rows of a page: specs/fragments/info.yaml of koios-artifacts, "Limits"."""

MAX_SCRIPTS: Final = 16
MAX_HASHES: Final = 14
"""How many hashes fit into the 1 kB that the body of a request of the public tier may have."""

QUERY_SECONDS: Final = 35.0
"""Timeout of a request for rows. Koios itself answers 504 after 30 seconds."""

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_ATTEMPTS: Final = 5
LIMIT_SECONDS: Final = 60.0
"""How long Koios rejects requests once a limit is exceeded, if it does not say."""

REORDERED_BLOCKS: Final = 10
"""How many blocks before the last one are read again: rollbacks rarely are deeper."""

_COLUMNS: Final = (
    "tx_hash,tx_index,address,value,block_height,block_time,datum_hash,inline_datum->bytes,asset_list"
    ",reference_script->hash"
)


@frozen
class Tip:
    """The last block that a node of Koios knows."""

    hash: str
    slot: int
    height: int


@final
class KoiosSource(LedgerSource):
    """A Koios at a base URL, by default the public one of the network.

    Args:
        url: The base URL, such as `https://api.koios.rest/api/v1`; that of the network if it is empty.
        selection: Which orders are read. Its window does not matter, because there are no executions.
        every: The interval between two readings, in seconds.
        headers: Headers of all requests, such as `Authorization: Bearer …` of a registered user.
        now: Returns the time of the wall clock.

    Raises:
        FeedError: The name is not such a URL, a header is not valid, or the selection is not.
    """

    def __init__(
        self,
        url: str = "",
        selection: Selection = Selection(),  # noqa: B008  # immutable
        *,
        every: float = EVERY_SECONDS,
        headers: Mapping[str, str] = {},
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__(Address(url or BASE_URLS[selection.network], headers, prefix="koios:"), selection, now)
        self._every, self._zero = every, SLOT_ZEROS[selection.network]
        self._rows: dict[tuple[str, int], Any] = {}
        self._datums: dict[str, str] = {}
        self._tip: Tip | None = None

    async def read(self, client: Client) -> float:
        """Read all outputs, if the tip is two blocks above the last one."""
        for _ in range(MAX_ATTEMPTS):
            tip, last = await self._tip_of(client), self._tip
            if last is not None and tip.height < last.height + 2:
                return self._every
            rows = await self._all_rows(client)
            if rows is not None and await self._tip_of(client) == tip:
                if last is None:
                    LOG.info("%s: Koios knows no executions, so all spots are null", self.name)
                self.market.read(map(output_of, map(self._match, rows.values())), tip.slot, since=-1)
                self._tip, self._rows = tip, rows
                self.point: Point | None = None if self.market.is_empty else Point(tip.slot, tip.hash)
                if self.point is None:
                    raise NoBlock("knows no output of an exchange: is it another network?")
                return self._every
        raise FeedError(f"no block could be read in {MAX_ATTEMPTS} attempts: its nodes differ")

    async def _tip_of(self, client: Client) -> Tip:
        (found,) = json.loads((await self._response(client, "/tip")).body)
        return Tip(str(found["hash"]), int(found["abs_slot"]), int(found["block_height"]))

    async def _all_rows(self, client: Client) -> dict[tuple[str, int], Any] | None:
        """Return all rows by their ids, of which known ones are not read again; None if a page lost or repeated one."""
        above = -1 if self._tip is None or not self._rows else self._tip.height - REORDERED_BLOCKS
        ids = await self._pages(client, "select=tx_hash,tx_index")
        new = await self._pages(client, f"select={_COLUMNS}&block_height=gt.{above}")
        if ids is None or new is None:
            return None
        if not ids.keys() <= self._rows.keys() | new.keys():
            self._rows = {}
            return None
        # Only of new rows: otherwise, outputs with unknown datums would take the requests of a day.
        hashes = {row["datum_hash"] for row in new.values() if row["datum_hash"] and not row["bytes"]}
        for some in _batches(sorted(hashes - self._datums.keys()), MAX_HASHES):
            response = await self._response(client, "/datum_info", {"_datum_hashes": some})
            self._datums |= {row["datum_hash"]: row["bytes"] for row in json.loads(response.body)}
        return {key: new.get(key) or self._rows[key] for key in ids}

    async def _pages(self, client: Client, query: str) -> dict[tuple[str, int], Any] | None:
        """Return the rows of a query by their ids; None if a page lost or repeated one."""
        rows: dict[tuple[str, int], Any] = {}
        total = 0
        for scripts in _batches([exchange.script for exchange in self.exchanges], MAX_SCRIPTS):
            offset, count, page = 0, 1, [None]
            while offset < count and page:
                target = f"/credential_utxos?{query}&order=tx_hash,tx_index&limit={MAX_ROWS}&offset={offset}"
                body = {"_payment_credentials": scripts, "_extended": True}
                response = await self._response(client, target, body)
                page = json.loads(response.body)
                stated = int(response.headers.get("Content-Range", "").rpartition("/")[2])
                if offset and stated != count:
                    return None
                offset, count = offset + len(page), stated
                rows |= {(row["tx_hash"], row["tx_index"]): row for row in page}
            total += count
        return rows if len(rows) == total else None

    def _match(self, row: Mapping[str, Any]) -> Match:
        """Return a row as Kupo returns an output."""
        assets = {
            one["policy_id"] + (f".{one['asset_name']}" if one["asset_name"] else ""): one["quantity"]
            for one in row["asset_list"] or ()
        }
        return {
            "transaction_id": row["tx_hash"],
            "output_index": row["tx_index"],
            "transaction_index": None,
            "address": row["address"],
            "value": {"coins": row["value"], "assets": assets},
            "datum_hash": row["datum_hash"],
            "datum": row["bytes"] or self._datums.get(row["datum_hash"]),
            "datum_type": "inline" if row["bytes"] else "hash",
            "script_hash": row["hash"],
            "created_at": {"slot_no": row["block_time"] - self._zero},
            "spent_at": None,
        }

    async def _response(self, client: Client, target: str, body: Any = None) -> Response:
        """Return the response to a request. If a limit is exceeded, or a node is slow, wait and try again."""
        headers = {"Accept": "application/json", "Content-Type": "application/json", "Prefer": "count=exact"}
        method, seconds = ("GET", EXCHANGE_SECONDS) if body is None else ("POST", QUERY_SECONDS)
        content = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        backoff, problem = 0.0, ""
        for _ in range(MAX_ATTEMPTS):
            try:
                response = await client.get(
                    target, headers, seconds=seconds, max_bytes=MAX_BYTES, method=method, content=content
                )
            except FeedError as error:
                hint = "Koios must be reachable without a proxy, and its name must resolve"
                raise FeedError(f"{error}; {hint}") from None
            if response.status in {200, 206}:
                return response
            problem = f"response to {target.partition('?')[0]} must have status 200, got {response.status}"
            if response.status not in {429, 502, 503, 504}:
                break
            after, backoff = response.headers.get("Retry-After", ""), next_backoff(backoff)
            pause = LIMIT_SECONDS if response.status == 429 else backoff
            if self.point is not None:
                self.problem: str | None = f"cannot be read: {problem}; waiting"
            await asyncio.sleep(min(float(after), 600.0) if after.isdecimal() else pause)
        raise FeedError(problem)


def _batches(items: list[str], size: int) -> Iterable[list[str]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
