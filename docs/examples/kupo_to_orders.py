"""Writes the orders of Shadowbook, Splash and GeniusYield as events of orders. Copy this file and adapt it.

    pip install 'cbor2>=5.9'
    python kupo_to_orders.py http://127.0.0.1:1442 | market-index serve orders:-    # a running Kupo
    python kupo_to_orders.py --at 1764000000 first.json second.json                 # recorded responses

Standard error has the number of skipped outputs by reason. A rollback needs no code: a response is the whole state of
the chain that Kupo follows now, and only its difference from the last one is written.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections import Counter
from contextlib import suppress
from hashlib import blake2b
from http.client import HTTPException
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from cbor2 import CBORTag, loads

Json: TypeAlias = dict[str, Any]
Pairs: TypeAlias = dict[frozenset[str], tuple[str, str]]  # base and quote by both assets; all pairs if it is empty


class Skipped(Exception):
    """No book shows this output. The text is one of a few fixed reasons, and contains nothing of the ledger."""


# 1. A layout mirrors a datum. Constructor n is tag 121+n. A range contains integers, a frozenset the sizes of byte
# strings. A dict names the elements of a list, [layout] is a list of any length, a tuple has alternatives.


def read(part: Any, layout: Any) -> Any:
    """Return a part of a datum, with names instead of positions. Raises `Skipped` if it has another layout."""
    kind, wanted = type(part), type(layout)
    if kind is CBORTag and wanted is CBORTag:
        if part.tag == 102:  # any constructor: its number and its fields
            number, fields = read(part.value, {"number": range(7), "fields": None}).values()
            part = CBORTag(121 + number, fields)
        if part.tag == layout.tag:
            return read(part.value, layout.value)
    if wanted is tuple:
        for alternative in layout:
            with suppress(Skipped):
                return read(part, alternative)
    if kind in (list, tuple) and wanted is list:  # cbor2 6 returns tuples
        return [read(one, layout[0]) for one in part]
    if kind in (list, tuple) and wanted is dict and len(part) == len(layout):
        return {name: read(one, layout[name]) for name, one in zip(layout, part, strict=True)}
    is_octets = kind is bytes and (part == layout or (wanted is frozenset and len(part) in layout))
    if is_octets or layout is None or (kind is int and wanted is range and part in layout):
        return part
    raise Skipped("unknown datum")


HASH, U64, NONE, ALWAYS = frozenset({28}), range(2**64), CBORTag(122, {}), (float("-inf"), float("inf"))
ASSET_PARTS = {"policy": HASH, "name": frozenset(range(33))}, {"policy": frozenset({0}), "name": frozenset({0})}
PRICE_PARTS = {"numerator": range(2**128), "denominator": range(1, 2**128)}
ASSET, PRICE = CBORTag(121, ASSET_PARTS), CBORTag(121, PRICE_PARTS)
CREDENTIAL = CBORTag(121, {"key": HASH}), CBORTag(122, {"script": HASH})
STAKE = CBORTag(121, {"key": CREDENTIAL}), CBORTag(122, {"slot": U64, "transaction": U64, "certificate": U64})
ADDRESS = CBORTag(121, {"payment": CREDENTIAL, "stake": (NONE, CBORTag(121, {"of": STAKE}))})
MOMENT = CBORTag(121, {"milliseconds": range(-(2**512), 2**512)}), NONE

# 2. An exchange is a layout and a rule. This returns the first and the last moment of an order in POSIX milliseconds.

SPLASH = CBORTag(
    121,
    {"kind": b"\x00", "beacon": HASH}  # anybody can copy a beacon: it proves nothing
    | {"offered": ASSET, "amount": U64, "step cost": U64, "step output": U64, "asked": ASSET, "price": PRICE}
    | {"fee": U64, "owner": ADDRESS, "cancellation key": HASH, "executors": [HASH]},
)


def splash(order: Json, holds: dict[str, int], _: str) -> tuple[float, float]:
    """Require the lovelace that pay all steps of the execution, as Splash's executor does."""
    output = order["amount"] * order["price"]["numerator"] // order["price"]["denominator"]
    step = min(output, order["step output"])
    budget = holds["ADA"] - order["fee"] - (1_500_000 if order["asked"]["policy"] else 0)
    budget -= 0 if order["offered"]["policy"] else order["amount"]
    if output not in U64 or not step * order["step cost"] or budget < output // step * order["step cost"]:
        raise Skipped("budget exhausted")
    return ALWAYS


SHADOWBOOK = CBORTag(
    121,
    {"kind": b"\x09", "owner": ADDRESS, "offered": ASSET_PARTS, "amount": U64, "step fee": U64, "asked": ASSET_PARTS}
    | {"price": PRICE_PARTS, "cancellation key": HASH, "beacon": frozenset({20})},
)


def shadowbook(order: Json, _: dict[str, int], __: str) -> tuple[float, float]:
    """Require a limit order, whose beacon begins with 0. A numerator of 1 accepts any price."""
    if order["beacon"][0] != 0 or order["price"]["numerator"] == 1:
        raise Skipped("market order")
    return ALWAYS


GENIUSYIELD = CBORTag(
    121,
    {"owner key": HASH, "owner": ADDRESS, "offered": ASSET, "original amount": U64, "amount": U64, "asked": ASSET}
    | {"price": PRICE, "NFT": frozenset({32}), "start": MOMENT, "end": MOMENT, "fills": U64, "maker fee": U64}
    | {"taker fee": U64, "contained fee": CBORTag(121, {"lovelace": U64, "offered": U64, "asked": U64}), "paid": U64},
)


def geniusyield(order: Json, holds: dict[str, int], policy: str) -> tuple[float, float]:
    """Require the NFT, which is minted for valid orders only."""
    if holds.get(f"{policy}:{order['NFT'].hex()}") != 1 or order["amount"] > order["original amount"]:
        raise Skipped("no valid NFT")
    return order["start"].get("milliseconds", ALWAYS[0]), order["end"].get("milliseconds", ALWAYS[1])


GENIUSYIELD_1 = "22f6999d4effc0ade05f6e1a70b702c65d6b3cdf0e301e4a8267f585"  # policies of NFTs
GENIUSYIELD_1_1 = "642c1f7bf79ca48c0f97239fcb2f3b42b92f2548184ab394e1e1e503"
GENIUSYIELD_TEST = "53827a77e4ed3d5c211706708c0aa9b9a3be19db901b1cbf7fa515b8"
EXCHANGES = {  # by the script that locks an output
    "464eeee89f05aff787d40045af2a40a83fd96c513197d32fbc54ff02": (SPLASH, splash, ""),
    "9e130eb0323f31df50bfbb731f35f5a795a630ef727b4ba272460b55": (SHADOWBOOK, shadowbook, ""),
    "edfff663d37fc5f9753bc4222e0da2bfe08aa48db0837d2c329adeb3": (GENIUSYIELD, geniusyield, GENIUSYIELD_1),
    "a8d7ff5cf4c117270288372f9ac8e1ce5b758ae15a7851c41661a48c": (GENIUSYIELD, geniusyield, GENIUSYIELD_1_1),
    "44376a5f63342097a4f20401088c62da272639e60644a9ec1d70f444": (GENIUSYIELD, geniusyield, GENIUSYIELD_TEST),
}
PATTERNS = [f"{policy}.*" if policy else f"{script}/*" for script, (*_, policy) in EXCHANGES.items()]


def script_of(address: str) -> str:
    """Return the hash of the script that locks an address, in hex; empty if there is none."""
    digits = ["qpzry9x8gf2tvdw0s3jn54khce6mua7l".find(one) for one in address.rpartition("1")[2][:-6]]
    number = sum(digit << 5 * place for place, digit in enumerate(reversed(digits)))
    octets = (number >> len(digits) * 5 % 8).to_bytes(len(digits) * 5 // 8) if min(digits, default=-1) >= 0 else b""
    return octets[1:29].hex() if len(octets) >= 29 and octets[0] & 0x90 == 0x10 else ""


def decoded(match: Json) -> Any:
    """Return the datum of an output. A stranger wrote it, so every error means that it is broken."""
    if match.get("datum") is None:
        raise Skipped("missing datum")
    octets = bytes.fromhex(match["datum"])
    with suppress(Exception):
        if blake2b(octets, digest_size=32).hexdigest() == match["datum_hash"]:
            return loads(octets)
    raise Skipped("broken datum")


def order_of(match: Json, pairs: Pairs) -> tuple[float, float, Json]:
    """Return the first and last moment of an order, and its event without the id."""
    script = script_of(match["address"])
    if match["spent_at"] is not None or script not in EXCHANGES:
        raise Skipped("another address" if match["spent_at"] is None else "spent")
    layout, rule, policy = EXCHANGES[script]
    order = read(decoded(match), layout)
    amount, (asks, per_offered) = order["amount"], order["price"].values()
    parts = order["offered"], order["asked"]
    offered, asked = (f"{one['policy'].hex()}:{one['name'].hex()}" if one["policy"] else "ADA" for one in parts)
    assets = match["value"]["assets"].items()
    holds = {key.replace(".", ":") if "." in key else f"{key}:": int(str(n)) for key, n in assets}
    holds["ADA"] = int(str(match["value"]["coins"]))
    base, quote = pairs.get(frozenset({offered, asked})) or sorted((offered, asked), key=lambda it: (it == "ADA", it))
    units, per = (asks, per_offered) if offered == base else (per_offered, asks)
    for is_wrong, reason in (
        (offered == asked or amount == 0, "nothing offered"),
        (amount > holds.get(offered, 0), "holds less than it offers"),
        (per > units * 10**28 or units > per * (2**96 - 1), "any price, or out of range"),
        (pairs and frozenset({offered, asked}) not in pairs, "pair not listed"),
    ):
        if is_wrong:
            raise Skipped(reason)
    event = {"base": base, "quote": quote, "offered": "base" if offered == base else "quote", "amount": amount}
    return *rule(order, holds, policy), event | {"price": f"{asks}/{per_offered}"}


def state_of(responses: list[Any], pairs: Pairs) -> tuple[dict[str, tuple[float, float, Json]], Counter[str]]:
    """Return the orders of all responses by output, and the number of skipped outputs by reason."""
    orders, skipped = {}, Counter[str]()
    matches = chain.from_iterable(one if type(one) is list else [one] for one in responses)
    outputs = {f"{one['transaction_id']}#{one['output_index']}": one for one in matches}  # one can match two patterns
    for order_id, match in outputs.items():
        if not re.fullmatch("[0-9a-f]{64}#[0-9]{1,5}", order_id):
            raise ValueError(f"must be an output, got {order_id!r}")
        try:
            orders[order_id] = order_of(match, pairs)
        except Skipped as reason:
            skipped[str(reason)] += 1
    return orders, skipped


class Events:
    """Writes the difference between each state and the last one."""

    def __init__(self, pairs: Pairs) -> None:
        self._listed = set(pairs.values())
        self._placed: dict[str, Json] = {}
        self._texts: dict[str, int] = {}

    def write(self, state: Any, text: str, now: float, *, is_new: bool) -> None:
        """Write a block if the state is new, or if an order has started or expired."""
        skipped, placed, before = state[1].copy(), {}, self._placed
        for order_id, (start, end, event) in state[0].items():
            if start <= 1000 * now <= end:
                placed[order_id] = event
            else:
                skipped["expired" if end < 1000 * now else "not active yet"] += 1
        lines: list[Json] = [{"remove": one} for one in before if one not in placed]
        lines += [{"place": one} | event for one, event in placed.items() if before.get(one) != event]
        pairs, last = ({(one["base"], one["quote"]) for one in orders.values()} for orders in (placed, before))
        lines += [{"untrack": True, "base": base, "quote": quote} for base, quote in last - pairs - self._listed]
        if not self._texts:
            lines = [{"reset": True}, *({"spot": None, "base": b, "quote": q} for b, q in self._listed), *lines]
            sys.stdout.write("\n")  # a program before this one may have been killed within a line
        if not lines and not is_new:
            return
        times = self._texts[text] = self._texts.pop(text, 0) + 1  # again after a rollback, or if an order expires
        if len(self._texts) > 10_000:  # more than a feed retains
            del self._texts[next(iter(self._texts))]
        block = text if times == 1 else f"{text} ({times})"
        sys.stdout.write("".join(json.dumps(line) + "\n" for line in [*lines, {"block": block}]))
        sys.stdout.flush()
        self._placed = placed
        counts = "".join(f", {count} skipped: {reason}" for reason, count in sorted(skipped.items()))
        sys.stderr.write(f"{block}: {len(placed)} orders{counts}\n")


def read_kupo(kupo: str, tag: str) -> tuple[str, str, list[Any]] | None:
    """Return the text and the tag of the last block, and all responses; None if the tag is its tag."""
    blocks, responses = set(), []
    for pattern in PATTERNS:
        request = Request(f"{kupo}/matches/{pattern}?unspent&resolve_hashes", headers={"If-None-Match": tag})
        try:
            with urlopen(request, timeout=60) as response:
                blocks.add(f"slot {response.headers['X-Most-Recent-Checkpoint']} {response.headers['ETag']}")
                responses.append(json.loads(response.read()))
        except HTTPError as error:
            if error.code != 304:
                raise
            return None
        tag = ""  # the other requests have no condition
    with urlopen(f"{kupo}/health", timeout=60) as response:
        if response.status != 200 or not re.fullmatch("slot [0-9]{1,20} [0-9a-f]{64}", block := "".join(blocks)):
            raise ValueError("Kupo is syncing, or a block has just arrived")
    return block[:-56], block[-64:], responses


def follow(kupo: str, pairs: Pairs, at: float | None, poll: float) -> None:
    """Write the events of each block, for ever."""
    events, state, text, tag, is_settled, delay = Events(pairs), None, "", "", False, poll
    while True:
        is_new = False
        try:
            # Kupo announces a block before it is stored, so the first responses with a new tag are read again.
            if found := read_kupo(kupo, tag if is_settled else ""):
                state, is_new = state_of(found[2], pairs), found[1] != tag
                text, tag, is_settled = *found[:2], not is_new
            delay = poll
        except (OSError, HTTPException, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            delay = min(2 * delay, 30)
            sys.stderr.write(f"{kupo}: {error!r}; retrying in {delay:g} s\n")
        if state:
            events.write(state, text, time.time() if at is None else at, is_new=is_new)
        time.sleep(delay)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Write the orders of a Kupo as events of orders.")
    parser.add_argument("source", nargs="+", help="the URL of a Kupo, or files of recorded responses")
    parser.add_argument("--pair", action="append", default=[], help="BASE/QUOTE: show only such pairs")
    parser.add_argument("--at", type=float, help="the time, in POSIX seconds, instead of the clock")
    parser.add_argument("--poll", type=float, default=2, help="seconds between two requests (default: 2)")
    options = parser.parse_args()
    name = "(ADA|[0-9a-f]{56}:(?:[0-9a-f]{2}){0,32})"
    found = [re.fullmatch(f"{name}/(?!\\1$){name}", one) for one in options.pair]
    if None in found:
        parser.error("--pair must be BASE/QUOTE; each is ADA, or <policy id>:<asset name> in small hex digits")
    pairs = {frozenset(one.groups()): (one[1], one[2]) for one in found if one}
    if options.source[0].startswith(("http://", "https://")):
        follow(options.source[0].rstrip("/"), pairs, options.at, options.poll)
    events = Events(pairs)
    for path in map(Path, options.source):
        text = re.sub("[^ -'*-~]", "?", path.name)[:150].strip()
        state = state_of([json.loads(path.read_bytes())], pairs)
        events.write(state, text, time.time() if options.at is None else options.at, is_new=True)


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):  # the reader has ended, or Ctrl-C
        os._exit(1)
