"""A stand-in for Kupo: it serves outputs from a chain of blocks, as Kupo 2.12 does, and can fail as a real one can.

`make ledger` runs it with a made-up market, so that everybody can try a feed of the ledger without a node:

    python -m tests.feeds.ledger.stand_in market-index serve
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Thread
from time import time
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import define, field, frozen

from market_index_feeds.ledger.entries import SLOT_ZEROS
from market_index_feeds.venue_orders import script_of
from tests.feeds.ledger.datums import (
    ADA,
    SATURNSWAP,
    SHADOWBOOK,
    SPLASH,
    Constructor,
    asset_key,
    datum,
    encoded,
    id_of,
    output,
    saturnswap,
    shadowbook,
    splash,
)

DEADLINE_SECONDS = 30.0


@frozen
class Block:
    """A block: its slot, the outputs that it creates, and how outputs are spent, by id."""

    slot: int
    created: Sequence[Mapping[str, Any]] = ()
    spent: Mapping[str, Mapping[str, Any]] = {}
    fork: str = "a"

    @property
    def hash(self) -> str:
        return f"{self.slot:012x}{self.fork}".ljust(64, "0")

    @property
    def point(self) -> dict[str, Any]:
        return {"slot_no": self.slot, "header_hash": self.hash}

    @property
    def text(self) -> str:
        """The as_of of the version of this block."""
        return f"slot {self.slot} {self.hash[:8]}"


@define
class Kupo:
    """A chain of blocks, and how its responses are wrong. Another thread may replace `blocks`."""

    blocks: Sequence[Block] = ()
    port: int = 0
    failure: str = ""
    version: str = "v2.12.0+7ee832"
    patterns: Sequence[str] = ("*",)
    on_request: Callable[[str], object] = lambda _: None
    """Called with the target of each request, before the response."""
    requests: list[str] = field(factory=list)
    unknown: set[str] = field(factory=set)
    """The hashes of the datums that it does not know yet."""
    statuses: list[int] = field(factory=list)
    """The statuses of the next responses to requests for outputs."""
    lag: int = 0
    """By how many slots the last block of its node is later."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def matches(self, blocks: Sequence[Block], pattern: str, query: Mapping[str, str]) -> list[Any] | None:
        """Return the matches of a pattern, most recent first; None if the query is not valid."""
        bounds = {name: value for name, value in query.items() if name.endswith(("_after", "_before"))}
        if len({name.partition("_")[2] for name in bounds}) < len(bounds):
            return None  # Kupo takes one lower and one upper bound
        points = {(block.slot, block.hash) for block in blocks}
        slots = {}
        for name, value in bounds.items():
            slot, _, tag = value.partition(".")
            if tag and (int(slot), tag) not in points:
                return None
            slots[name] = int(slot)
        found: dict[str, dict[str, Any]] = {}
        for block in blocks:
            for match in block.created:
                if _fits(match, pattern):
                    found[id_of(match)] = {**match, "created_at": block.point, "spent_at": None}
            for output_id, how in block.spent.items():
                if output_id in found:
                    found[output_id]["spent_at"] = {**block.point, **how}
        matches: list[Any] = list(reversed(found.values()))
        matches = [{**one, "datum": None} if one["datum_hash"] in self.unknown else one for one in matches]
        if "unspent" in query:
            matches = [one for one in matches if one["spent_at"] is None]
        for name, limit in slots.items():
            moment = f"{name.partition('_')[0]}_at"
            matches = [one for one in matches if one[moment] is not None]
            if name.endswith("_after"):
                matches = [one for one in matches if one[moment]["slot_no"] >= limit]
            else:
                matches = [one for one in matches if one[moment]["slot_no"] <= limit]
        return matches


def _fits(match: Mapping[str, Any], pattern: str) -> bool:
    """Whether a pattern selects an output: all, a credential with any stake part, a policy, or a transaction."""
    if pattern in {"", "*"}:
        return True
    index, mark, transaction_id = pattern.partition("@")
    if mark:
        return bool(match["transaction_id"] == transaction_id and index in {"*", str(match["output_index"])})
    if pattern.endswith("/*"):
        return script_of(match["address"]) == pattern.removesuffix("/*")
    policy = pattern.removesuffix(".*")
    return any(name.partition(".")[0] == policy for name in match["value"]["assets"])


class Handler(BaseHTTPRequestHandler):
    """Sends responses of a stand-in."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for the head and the body: otherwise each response waits for an acknowledgement

    def send(self, status: int, body: bytes, headers: Mapping[str, str] = {}, *, is_cut: bool = False) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if is_cut else body)
        self.close_connection = self.close_connection or is_cut

    def log_message(self, *_: object) -> None:
        pass


class KupoHandler(Handler):
    """Answers `/health`, `/patterns`, `/checkpoints/<slot>` and `/matches/<pattern>`."""

    stand_in: Kupo

    def do_GET(self) -> None:
        kupo = self.stand_in
        kupo.requests.append(self.path)
        kupo.on_request(self.path)
        blocks, target = list(kupo.blocks), urlsplit(self.path)
        options = {name: value for name, _, value in (part.partition("=") for part in target.query.split("&") if part)}
        match kupo.failure, target.path.split("/")[1:]:
            case "closed", _:
                self.close_connection = True
            case "error", _:
                self.send_json(500, {"hint": "an error"})
            case "syncing", ["health"]:
                self.send_json(202, {"connection_status": "connected"})
            case "disconnected", ["health"]:
                self.send_json(503, {"connection_status": "disconnected"})
            case _, ["health"]:
                last = blocks[-1].slot if blocks else 0
                health = {"connection_status": "connected", "version": kupo.version}
                self.send_json(200, health | {"most_recent_node_tip": last + kupo.lag}, last)
            case _, ["patterns"]:
                self.send_json(200, list(kupo.patterns))
            case _, ["checkpoints", slot]:
                points = [block.point for block in blocks if block.slot <= int(slot)]
                self.send_json(200, points[-1] if points else None)
            case failure, ["matches", *pattern]:
                matches = kupo.matches(blocks, "/".join(pattern), options)
                forced = kupo.statuses.pop(0) if kupo.statuses else 200
                status = 400 if matches is None else forced
                wrong = {"another body": {}, "another match": [{"transaction_id": 1}]}
                if status != 200:
                    self.send_json(status, {"hint": "an error"})
                else:
                    self.send(200, json.dumps(wrong.get(failure, matches)).encode(), is_cut=failure == "cut")
            case _:
                self.send_json(404, {"hint": "not found"})

    def send_json(self, status: int, value: Any, last_slot: int = 0) -> None:
        self.send(status, json.dumps(value).encode(), {"X-Most-Recent-Checkpoint": str(last_slot)})


@contextmanager
def served(handler: type[Handler], stand_in: Any) -> Iterator[None]:
    """Serve a stand-in on its port, or on a free one."""
    of_one = type("HandlerOfOne", (handler,), {"stand_in": stand_in})
    with ThreadingHTTPServer(("127.0.0.1", stand_in.port), of_one) as server:
        stand_in.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join(DEADLINE_SECONDS)


@contextmanager
def serving(kupo: Kupo) -> Iterator[Kupo]:
    """Serve a Kupo on its port, or on a free one."""
    with served(KupoHandler, kupo):
        yield kupo


def recorded_blocks(folder: Path, first_slot: int = 1_000_000) -> list[Block]:
    """Return a chain over the recorded outputs: their slots keep their order, 20 seconds apart."""
    created: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json")):
        matches = json.loads(path.read_text())
        for match in matches if isinstance(matches, list) else ():
            key = id_of(match)
            if not match["address"].startswith("addr1"):
                continue  # of a test network
            if key not in created or match["spent_at"] is not None:
                created[key] = match
    moments = {match["created_at"]["slot_no"] for match in created.values()}
    moments |= {match["spent_at"]["slot_no"] for match in created.values() if match["spent_at"] is not None}
    blocks = []
    for number, moment in enumerate(sorted(moments)):
        new = [match for match in created.values() if match["created_at"]["slot_no"] == moment]
        spent = {
            key: {name: match["spent_at"].get(name) for name in ("transaction_id", "input_index", "redeemer")}
            for key, match in created.items()
            if match["spent_at"] is not None and match["spent_at"]["slot_no"] == moment
        }
        blocks.append(Block(first_slot + 20 * number, new, spent))
    return blocks


TOKENS: Final = {
    "NIGHT": ("0691b2fecca1ac4f53cb6dfb00b7013e561d1f34403b957cbb5af1fa", "NIGHT", 6, 412_000),
    "SNEK": ("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f", "SNEK", 0, 4_310),
    "IAG": ("5d16cc1a177b5d9ba9cfa9793b07e60f1fb70fea1f8aef064415d114", "IAG", 6, 268_000),
}
"""Per ticker the policy, the name, the decimals, and a price: lovelace per whole token. Of the main network."""


def market_blocks(last_slot: int, slots: int = 20) -> list[Block]:
    """Return a block with levels on both sides of some books, and later ones in which the best orders are filled.

    There are so many slots between two blocks.
    """
    placed, fills = [], []
    for number, (policy, name, decimals, price) in enumerate(TOKENS.values(), 1):
        token = bytes.fromhex(policy), name.encode()
        sells = {"offered": Constructor(0, token), "asked": Constructor(0, ADA), "executors": []}
        parts = {"offered policy": token[0], "offered name": token[1], "asked policy": b"", "asked name": b""}
        for level in range(1, 9):
            tokens, at = 250 * level * 10**decimals, 1000 * number + 10 * level
            ask, bid = (price * 250 * level * (1000 + step) // 1000 for step in (4 * level, -4 * level))
            fields = saturnswap(amount=tokens, **parts, **{"asked amount": ask})
            placed.append(_held(output(SATURNSWAP, datum(fields), at), 2_000_000, token, tokens))
            steps = {"amount": tokens, "price": Constructor(0, (ask + ask // 700, tokens)), "step output": ask}
            placed.append(_held(output(SPLASH, datum(splash(**sells, **steps)), at + 1), 4_000_000, token, tokens))
            bought = shadowbook(asked=list(token), amount=bid, price=[tokens, bid])
            placed.append(_held(output(SHADOWBOOK, datum(bought), at + 2), bid + 5_000_000, token, 0))
            how = {"transaction_id": f"{at + 9:064x}", "input_index": 0}
            how["redeemer"] = encoded(Constructor(0, (ask, 0, 0))).hex()
            fills.append((level, {f"{at:064x}#0": how}))
    # From the best level on, of one token after the other, but not all levels.
    spent = [one for level, one in sorted(fills, key=lambda item: item[0]) if level <= 4]
    first = last_slot - slots * len(spent)
    fork = f"{last_slot:x}"
    later = [Block(first + slots * at, (), one, fork) for at, one in enumerate(spent, 1)]
    return [Block(first, placed, {}, fork), *later]


def _held(match: dict[str, Any], coins: int, token: tuple[bytes, bytes], amount: int) -> dict[str, Any]:
    """Return an output that holds lovelace and a token."""
    return match | {"value": {"coins": coins, "assets": {asset_key(token): amount} if amount else {}}}


def registry() -> str:
    """Return the entries of the tokens, as the token registry has them."""
    entries = [
        {"subject": policy + name.encode().hex(), "name": {"value": name}, "description": {"value": name}}
        | {"ticker": {"value": ticker}, "decimals": {"value": decimals}}
        for ticker, (policy, name, decimals, _) in TOKENS.items()
    ]
    return json.dumps(entries)


def main() -> int:
    """Serve a made-up market of known tokens to a command, until it ends. Return its exit code.

    Every few seconds there is one more block, in which the best order of a book is filled. After the last one, all of
    them are rolled back, and others follow, whose last one is of now. The command gets the name of the feed, and of a
    file with the tokens, in the environment.
    """
    parser = argparse.ArgumentParser(description="Serve made-up outputs of the ledger as Kupo does, to a command.")
    parser.add_argument("--seconds", type=float, default=5, help="the time between two blocks (default: 5)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run once the outputs are served")
    options = parser.parse_args()
    slots = max(int(options.seconds), 1)
    with ExitStack() as temporary:
        kupo = temporary.enter_context(serving(Kupo()))
        print(f"a stand-in for Kupo is at {kupo.url}: a block every {options.seconds:g} seconds", flush=True)
        tokens = temporary.enter_context(NamedTemporaryFile("w", suffix=".json"))
        tokens.write(registry())
        tokens.flush()
        environment = {"MARKET_INDEX_TOKENS": tokens.name} | os.environ | {"MARKET_INDEX_FEED": f"kupo:{kupo.url}"}
        waiting: list[Block] = []
        # The signal of Ctrl-C is also that of the command, which then ends by itself.
        with subprocess.Popen(options.command, env=environment) as process, suppress(KeyboardInterrupt):
            while process.poll() is None:
                if not waiting:
                    kupo.blocks, waiting = [], market_blocks(int(time()) - SLOT_ZEROS["mainnet"], slots)
                kupo.blocks = [*kupo.blocks, waiting.pop(0)]
                with suppress(subprocess.TimeoutExpired):
                    process.wait(options.seconds)
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
