"""A stand-in for Koios: PostgREST in front of the outputs of a stand-in for Kupo, with nodes that may differ.

It follows credential_utxos.sql, datum_info.sql and tip.sql of koios-artifacts, and its limits: pages of at most 1,000
rows, bodies of at most 1 kB, 429, 504, and pages of HTML of the balancer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from attrs import define, field

from market_index_feeds.ledger.entries import SLOT_ZEROS
from market_index_feeds.venue_orders import script_of
from tests.feeds.ledger.stand_in import Block, Handler, Kupo, served


@define
class Koios:
    """A chain of blocks; the height of a block is its place. Another thread may replace `blocks`."""

    blocks: Sequence[Block] = ()
    port: int = 0
    failures: list[tuple[int, Mapping[str, str]]] = field(factory=list)
    """Statuses and headers of the next responses, whose bodies are HTML."""
    lags: Iterator[int] | None = None
    """By how many blocks the node of each response is behind."""
    on_page: Callable[[list[Any], int], list[Any]] = lambda rows, _: rows
    """Called with the rows of a page, and its offset."""
    requests: list[tuple[str, Any]] = field(factory=list)
    max_rows: int = 1000

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def rows(self, blocks: Sequence[Block], scripts: Sequence[str]) -> list[dict[str, Any]]:
        heights = {block.slot: height for height, block in enumerate(blocks)}
        found = []
        for one in Kupo().matches(blocks, "", {"unspent": ""}) or ():
            if script_of(one["address"]) in scripts:
                slot, is_inline = one["created_at"]["slot_no"], one.get("datum_type") == "inline"
                assets = [
                    (name.partition(".")[0], name.partition(".")[2], n) for name, n in one["value"]["assets"].items()
                ]
                found.append(
                    {
                        "tx_hash": one["transaction_id"],
                        "tx_index": one["output_index"],
                        "address": one["address"],
                        "value": str(one["value"]["coins"]),
                        "block_height": heights[slot],
                        "block_time": slot + SLOT_ZEROS["mainnet"],
                        "datum_hash": one["datum_hash"],
                        "inline_datum": {"bytes": one["datum"], "value": {}} if is_inline else None,
                        "reference_script": one["script_hash"] and {"hash": one["script_hash"]},
                        "asset_list": [
                            {"policy_id": policy, "asset_name": name, "quantity": str(n)} for policy, name, n in assets
                        ],
                    }
                )
        return found

    def datums(self, hashes: Sequence[str]) -> list[dict[str, Any]]:
        found = {one["datum_hash"]: one["datum"] for block in self.blocks for one in block.created}
        return [{"datum_hash": one, "bytes": found[one]} for one in hashes if found.get(one)]


class KoiosHandler(Handler):
    """Answers `/tip`, `/credential_utxos` and `/datum_info`."""

    stand_in: Koios

    def do_GET(self) -> None:  # noqa: N802  # http.server calls it
        self.respond(None)

    def do_POST(self) -> None:  # noqa: N802  # the same
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if len(content) > 1024:
            self.send(413, b"too large")
            return
        self.respond(json.loads(content))

    def respond(self, body: Any) -> None:
        koios, target = self.stand_in, urlsplit(self.path)
        koios.requests.append((self.path, body))
        if koios.failures:
            status, headers = koios.failures.pop(0)
            self.send(status, b"<html>an error of the balancer</html>", headers)
            return
        lag = 0 if koios.lags is None else next(koios.lags, 0)
        blocks = koios.blocks[: len(koios.blocks) - lag]
        options = dict(parse_qsl(target.query, keep_blank_values=True))
        if target.path == "/tip":
            last = blocks[-1]
            self.send_rows([{"hash": last.hash, "abs_slot": last.slot, "block_height": len(blocks) - 1}])
        elif target.path == "/datum_info":
            self.send_rows(koios.datums(body["_datum_hashes"]))
        else:
            rows = koios.rows(blocks, body["_payment_credentials"])
            above = int(options.get("block_height", "gt.-1").removeprefix("gt."))
            rows = [one for one in rows if one["block_height"] > above]
            columns = options["order"].split(",")
            rows.sort(key=lambda row: [row[column] for column in columns])
            offset, limit = int(options["offset"]), min(int(options["limit"]), koios.max_rows)
            page = koios.on_page(rows[offset : offset + limit], offset)
            picked = [{_name(column): _part(row, column) for column in options["select"].split(",")} for row in page]
            self.send_rows(picked, f"{offset}-{offset + len(page) - 1}/{len(rows)}" if page else f"*/{len(rows)}")

    def send_rows(self, rows: list[Any], content_range: str = "") -> None:
        is_part = bool(content_range) and not content_range.startswith("0-") and not content_range.startswith("*")
        self.send(206 if is_part else 200, json.dumps(rows).encode(), {"Content-Range": content_range})


def _name(column: str) -> str:
    return column.rpartition(">")[2]


def _part(row: Mapping[str, Any], column: str) -> Any:
    """Return a column; of `inline_datum->bytes` a part of it, null if there is none."""
    first, _, part = column.partition("->")
    return row[first] and row[first][part] if part else row[first]


@contextmanager
def serving_koios(koios: Koios) -> Iterator[Koios]:
    """Serve a Koios on a free port."""
    with served(KoiosHandler, koios):
        yield koios
