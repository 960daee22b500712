"""One law for all that happens to a chain: who has followed it shows what who has just begun shows.

The chain grows and is rolled back between any two requests, transactions come back at other places, and datums become
known late. What is shown is compared with an independent model of the chain, and with a source that begins.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any
from urllib.parse import urlsplit

import httpx
from attrs import define, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from market_index import ADA, AssetId, Pair
from market_index_feeds import FeedError
from market_index_feeds.http import Response
from market_index_feeds.ledger import Selection, kupo
from market_index_feeds.ledger.entries import SLOT_ZEROS
from market_index_feeds.ledger.kupo import KupoSource
from market_index_feeds.ledger.source import NoBlock
from tests.feeds.ledger.datums import (
    GENIUSYIELD,
    SATURNSWAP,
    SHADOWBOOK,
    SPLASH,
    TOKEN,
    Asset,
    Constructor,
    asset_key,
    datum,
    encoded,
    geniusyield,
    id_of,
    output,
    saturnswap,
    shadowbook,
    splash,
)
from tests.feeds.ledger.stand_in import Block, Kupo

HOURS = 1
WINDOW = 3600 * HOURS
NOW = datetime(2027, 1, 15, tzinfo=UTC)
OTHER = "ab" * 28
SELECTION = Selection(venues=("splash", "shadowbook", "geniusyield", "saturnswap"), hours=HOURS)
SECOND = (TOKEN[0], b"SECOND")
PAIRS = {asset: Pair(AssetId(*asset), ADA) for asset in (TOKEN, SECOND)}

Key = tuple[str, int]


@frozen
class Transaction:
    """A transaction: what it creates, how it spends outputs, and the executions that it is, by the order."""

    id: str
    created: Sequence[Mapping[str, Any]] = ()
    spent: Mapping[str, Mapping[str, Any]] = {}
    executions: Mapping[str, tuple[Asset, int, int]] = {}
    """Per order that is filled: the token, how many units, and for how many lovelace."""


def order(number: int, asset: Asset, amount: int, lovelace: int, *, holds: int | None = None, **fields: Any) -> Any:
    """Return an order of SaturnSwap that sells a token."""
    parts = {"offered policy": asset[0], "offered name": asset[1], "asked policy": b"", "asked name": b""}
    fields = {"amount": amount, "asked amount": lovelace, **parts, **fields}
    value = {"coins": 2_000_000, "assets": {asset_key(asset): amount if holds is None else holds}}
    return output(SATURNSWAP, datum(saturnswap(**fields)), number) | {"value": value}


def beside(match: Mapping[str, Any], number: int) -> Any:
    """Return another order of the same transaction, whose datum may become known at another time."""
    return order(number, TOKEN, number, 10**6) | {"transaction_id": match["transaction_id"], "output_index": 1}


def spent(transaction: str, received: int, index: int = 0) -> dict[str, Any]:
    redeemer = encoded(Constructor(0, (received, 0, 0))).hex()
    return {"transaction_id": transaction, "input_index": index, "redeemer": redeemer}


def transactions() -> list[Transaction]:
    """Return all transactions that may be in a chain. Several spend the same output; one of them wins."""
    found = []
    kinds: list[tuple[str, Callable[..., dict[str, Any]]]]
    kinds = [(SPLASH, splash), (SHADOWBOOK, shadowbook), (GENIUSYIELD, geniusyield), (OTHER, splash)]
    for number in range(24):
        script, fields = kinds[number % 4]
        one: Any = output(script, datum(fields(amount=5_000_000 - number)), 100 + number)
        found.append(Transaction(one["transaction_id"], [one]))
        cancel: dict[str, Any] = {"transaction_id": f"{200 + number:064x}", "input_index": 0, "redeemer": "d87980"}
        found.append(Transaction(cancel["transaction_id"], spent={id_of(one): cancel}))
    orders: list[Any] = [
        order(300 + number, (TOKEN, SECOND)[number % 2], 1000, 1000 * (10_000 + number)) for number in range(8)
    ]
    for number, one in enumerate(orders):
        asset, lovelace = (TOKEN, SECOND)[number % 2], 1000 * (10_000 + number)
        found.append(Transaction(one["transaction_id"], [one, beside(one, 310 + number)]))
        half = f"{400 + number:064x}"
        named = Constructor(0, (bytes.fromhex(one["transaction_id"]), 0))
        rest = order(400 + number, asset, 500, lovelace // 2, previous=named)
        executions = {id_of(one): (asset, 500, lovelace // 2)}
        found.append(
            Transaction(half, [rest, beside(rest, 410 + number)], {id_of(one): spent(half, lovelace // 2)}, executions)
        )
        for what, amount, start in (one, 1000, 500), (rest, 500, 600):
            whole, paid = f"{start + number:064x}", lovelace * amount // 1000
            how = {id_of(what): spent(whole, paid)}
            found.append(Transaction(whole, (), how, {id_of(what): (asset, amount, paid)}))
    # One transaction that fills two orders, and orders that hold nothing, which their owner spends as if filled.
    both, two = f"{700:064x}", (orders[0], orders[2])
    how = {id_of(one): spent(both, 1000 * (10_000 + 2 * number), number) for number, one in enumerate(two)}
    filled = {id_of(one): (TOKEN, 1000, 1000 * (10_000 + 2 * number)) for number, one in enumerate(two)}
    found.append(Transaction(both, (), how, filled))
    for number in range(3):
        empty = order(800 + number, TOKEN, 1000, 77_000_000, holds=0)
        found.append(Transaction(empty["transaction_id"], [empty]))
        found.append(Transaction(f"{900 + number:064x}", (), {id_of(empty): spent(f"{900 + number:064x}", 77_000_000)}))
    return found


TRANSACTIONS = transactions()
CREATED = {id_of(one): one for transaction in TRANSACTIONS for one in transaction.created}
OURS = {key for key, one in CREATED.items() if one["address"] != output(OTHER, b"")["address"]}
DATUMS = sorted({one["datum_hash"] for key, one in CREATED.items() if key in OURS})


@frozen
class ChainBlock(Block):
    """A block with its transactions, in their order."""

    transactions: Sequence[Transaction] = ()


def block_of(slot: int, fork: str, found: Sequence[Transaction]) -> ChainBlock:
    created = [
        {**one, "transaction_index": 2 * place}
        for place, transaction in enumerate(found)
        for one in transaction.created
    ]
    how = {key: spend for transaction in found for key, spend in transaction.spent.items()}
    return ChainBlock(slot, created, how, fork, found)


@define
class Chain:
    """A Kupo whose chain moves before each request, up to a number of times. It is the client of a source.

    A block is rolled back only after a request for the last block: what else happens in a first read cannot be known.
    """

    random: Random
    moves: int
    pace: int = 1
    """It moves before one of so many requests."""
    blocks: list[ChainBlock] = field(factory=list)
    seen: set[str] = field(factory=set)
    known: dict[str, list[ChainBlock]] = field(factory=dict)
    count: int = 0
    requests: int = 0
    unknown: set[str] = field(factory=set)

    def number(self, limit: int) -> int:
        return self.random.randrange(limit)

    def move(self) -> None:
        """Make up to 3 steps: a block, or a rollback and perhaps another block. Rarely, a datum becomes known."""
        steps = 0 if self.number(self.pace) else (0, 1, 1, 2, 3)[self.number(5)]
        for _ in range(min(steps, self.moves)):
            self.moves -= 1
            kept = len(self.blocks)
            if self.number(3) == 0:
                kept = max(kept - 1 - self.number(4), 1)
                while not self.seen.issuperset(block.hash for block in self.blocks[kept:]):
                    kept += 1
            is_shorter = kept < len(self.blocks) and self.number(2)
            self.blocks = self.blocks[:kept]
            if not is_shorter:
                self.add(self.next_block(self.blocks))
            if self.unknown and self.number(4) == 0:
                self.unknown.remove(self.random.choice(sorted(self.unknown)))

    def add(self, block: ChainBlock) -> None:
        self.blocks = [*self.blocks, block]
        self.known[block.hash] = self.blocks

    def next_block(self, before: Sequence[ChainBlock], *, is_empty: bool = False) -> ChainBlock:
        self.count += 1
        slot = before[-1].slot + (1 if is_empty else (1, 20, 20, 20, 300, 1500)[self.number(6)])
        unspent = {id_of(one) for block in before for one in block.created}
        unspent -= {key for block in before for key in block.spent}
        done = {transaction.id for block in before for transaction in block.transactions}
        found = []
        for transaction in self.random.sample(TRANSACTIONS, len(TRANSACTIONS)):
            chance = 5 if transaction.created and not transaction.spent else 12
            if is_empty or transaction.id in done or self.number(chance) or not unspent.issuperset(transaction.spent):
                continue
            found.append(transaction)
            unspent -= transaction.spent.keys()
            unspent |= {id_of(one) for one in transaction.created}
        return block_of(slot, f"{self.count:x}", found)

    def start(self) -> None:
        self.add(block_of(5_000_000, "0", TRANSACTIONS[:8:2]))
        for _ in range(self.number(6)):
            self.add(self.next_block(self.blocks))

    async def get(self, target: str, headers: Mapping[str, str], *, seconds: float, max_bytes: int) -> Response:
        self.move()
        self.requests += 1
        path, query = urlsplit(target).path, urlsplit(target).query
        options = {name: value for name, _, value in (part.partition("=") for part in query.split("&") if part)}
        if path == "/health":
            return Response(200, httpx.Headers(), b'{"version": "v2.12.0"}')
        if path == "/patterns":
            return Response(200, httpx.Headers(), b'["*"]')
        if path.startswith("/checkpoints/"):
            self.seen |= {block.hash for block in self.blocks}
            points = [block.point for block in self.blocks if block.slot <= int(path.rpartition("/")[2])]
            return Response(200, httpx.Headers(), json.dumps(points[-1] if points else None).encode())
        stored = Kupo(unknown=self.unknown)
        found = stored.matches(self.blocks, path.removeprefix("/matches").removeprefix("/"), options)
        return Response(400 if found is None else 200, httpx.Headers(), json.dumps(found).encode())


def moments(blocks: Sequence[ChainBlock]) -> dict[str, int | None]:
    """Return when each output of ours was spent in the window, None if it is unspent."""
    found: dict[str, int | None] = {}
    for block in blocks:
        found |= {id_of(one): None for one in block.created if id_of(one) in OURS}
        found |= {key: block.slot for key in block.spent if key in OURS}
    return {key: slot for key, slot in found.items() if slot is None or slot >= blocks[-1].slot - WINDOW}


def spots(blocks: Sequence[ChainBlock]) -> dict[Pair, tuple[Decimal, datetime] | None]:
    """Return the price and the time of the last execution of each pair in the window, None if there is none."""
    found: dict[Pair, tuple[Decimal, datetime] | None] = {}
    for asset, pair in PAIRS.items():
        for block in reversed([one for one in blocks if one.slot >= blocks[-1].slot - WINDOW]):
            filled = [
                (place, bool(transaction.created), transaction.id, how["input_index"], amount, lovelace)
                for place, transaction in enumerate(block.transactions)
                for key, (token, amount, lovelace) in transaction.executions.items()
                if token == asset
                for how in [transaction.spent[key]]
            ]
            if filled:
                # Only of a transaction that creates an order, Kupo tells the place.
                is_known = all(one[1] for one in filled)
                last = max(filled, key=lambda one: (one[0] if is_known else one[5], one[2], one[3]))
                time = datetime.fromtimestamp(SLOT_ZEROS["mainnet"] + block.slot, UTC)
                found[pair] = Decimal(last[5]) / last[4], time
                break
    return found


def shown(source: KupoSource) -> Any:
    """Return what a source shows, and each execution in the window: only the last one of a pair is a spot."""
    assert source.point is not None
    first = source.point.slot - WINDOW
    spent = {key: one for key, one in source.market._entries.items() if one.spend and one.spend.slot >= first}
    return source.market.at(NOW), {key: one.execution for key, one in spent.items()}


def check(source: KupoSource, chain: Chain) -> None:
    """Compare what a source shows with the model, and with a source that begins at the same block."""
    assert source.point is not None
    blocks = chain.known[source.point.hash]
    state, executions = shown(source)
    assert executions.keys() == {key for key, one in moments(blocks).items() if one is not None}
    assert state.orders.keys() | state.skipped.keys() == {key for key, one in moments(blocks).items() if one is None}
    if not chain.unknown:
        prices = {pair: (spot, state.spot_times[pair]) for pair, spot in state.spots.items() if spot is not None}
        assert prices == spots(blocks)
    still = Chain(Random(0), 0, blocks=blocks, unknown=chain.unknown)
    beginner = KupoSource("http://h", SELECTION)
    asyncio.run(beginner.read(still))  # type: ignore[arg-type]  # its client
    assert shown(beginner) == (state, executions)


def followed(chain: Chain, reads: int) -> int:
    """Follow the chain, and check each block that was read. Return how many were."""
    source = KupoSource("http://h", SELECTION, now=lambda: NOW)
    chain.start()
    count = 0
    is_late = bool(chain.unknown)
    while count < reads or chain.moves > 0:
        assert chain.requests < 5000
        try:
            asyncio.run(source.read(chain))  # type: ignore[arg-type]  # its client
        except (FeedError, NoBlock):
            continue
        count += 1
        if not is_late:
            check(source, chain)
    # What became known since the last block is asked for at the next ones. Half of the rest becomes known now.
    chain.unknown -= set(chain.random.sample(sorted(chain.unknown), len(chain.unknown) // 2))
    for _ in range(1 + len(CREATED) // kupo.MAX_MISSING if is_late else 1):
        chain.add(chain.next_block(chain.blocks, is_empty=True))
        asyncio.run(source.read(chain))  # type: ignore[arg-type]
        assert source.point is not None
        assert source.point.hash == chain.blocks[-1].hash
    check(source, chain)
    return count


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 150), st.sampled_from([1, 4, 12]), st.booleans())
def test_who_follows_a_chain_shows_what_who_begins_shows(seed: int, moves: int, pace: int, is_late: bool):
    """Whatever happens to the chain between the requests."""
    random = Random(seed)
    unknown = set(random.sample(DATUMS, len(DATUMS) // 3)) if is_late else set[str]()
    assert followed(Chain(random, moves, pace, unknown=unknown), 3) >= 3
