"""The orders, pairs and spot prices that outputs of the ledger prove: a function of the outputs, and of the clock.

Theory of operation
    An output never changes, so it is decoded once, when it is first seen. It only becomes spent. `Market` has the
    unspent outputs, and those that were spent within the window, and longer, because a rollback may take the window
    back. So all processes that read the same point of the chain show the same, whenever they were started.

    What is shown is the sum of what each output adds to it. It is derived from the outputs that have changed, and from
    those with an order that starts or expires.

    A pair is listed while it has, or had in the window, an order that could be filled. Its spot price is that of the
    last execution in the window that the ledger proves (decision 32). An execution counts if the filled output held
    what it gave, from a least value on. So an execution of one unit does not set the price of a day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import Final

from attrs import define, field

from market_index import ADA, Pair
from market_index_feeds.ledger.entries import EPOCH, Entry, Execution, Reader, last_of, spot_of
from market_index_feeds.ledger.exchange import Exchange, Fill
from market_index_feeds.ledger.outputs import Match, Spend, id_of, output_of, spend_of
from market_index_feeds.venue_orders import SkippedOutput, VenueOrder, address_bytes, script_of

ROLLBACK_SLOTS: Final = 43_200
"""How long spent outputs are kept beyond the window: the longest rollback, of 2,160 blocks, takes the window back."""

LEAST_EXECUTION: Final = 5_000_000
"""The least value of an execution that counts, in lovelace."""


@define
class State:
    """What is shown at one moment: orders by id, spots of the listed pairs with their times, and skipped outputs."""

    orders: dict[str, VenueOrder] = field(factory=dict)
    spots: dict[Pair, Decimal | None] = field(factory=dict)
    spot_times: dict[Pair, datetime] = field(factory=dict)
    skipped: dict[str, SkippedOutput] = field(factory=dict)
    changed: set[str] = field(factory=set, eq=False)
    """The ids of all orders that may differ from the state before."""


class Market:
    """The outputs of some exchanges at one point of the chain.

    Args:
        exchanges: The exchanges whose outputs are read.
        pairs: Pairs that are always listed. Their base is the base; of other pairs it is the asset that is not ADA, and
            of two tokens the first in ledger order.
        only: Whether other pairs are hidden.
        network: The network, which decides the time of a slot.
        window_slots: How many slots before the last block a spent output counts.
        least_execution: The least value of an execution that counts, in lovelace. Between two tokens, it is the lower
            one of their values at their own spots; if neither has one, the execution does not count.
    """

    def __init__(
        self,
        exchanges: Iterable[Exchange],
        pairs: Iterable[Pair] = (),
        *,
        only: bool = False,
        network: str = "mainnet",
        window_slots: int = 86_400,
        least_execution: int = LEAST_EXECUTION,
    ) -> None:
        pairs = tuple(pairs)
        self._exchanges = {exchange.script: exchange for exchange in exchanges}
        self._reader = Reader(network, {frozenset({pair.base, pair.quote}): pair for pair in pairs}, only)
        self._least, self._window_slots = least_execution, window_slots
        self._window = timedelta(seconds=window_slots)
        # The outputs at a slot, and the slots at which outputs were spent.
        self._slot = -1
        self._entries: dict[str, Entry] = {}
        self._spent: dict[str, int] = {}
        self._missing: dict[str, None] = {}
        self._foreign: dict[str, str] = {}
        # When which outputs change what is shown. Some may be gone since.
        self._moments: list[tuple[datetime, str]] = []
        # The state of the last call of `at`, and the outputs that have changed since, as they were.
        self._state, self._now = State(spots=dict.fromkeys(pairs)), EPOCH
        self._changed: dict[str, Entry | None] = {}
        # The outputs that list a pair, and the executions.
        self._listed: dict[Pair, set[str]] = defaultdict(set, {pair: {""} for pair in pairs})
        self._executions: dict[Pair, dict[str, Execution]] = defaultdict(dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is no output of an exchange, as on another network."""
        return not self._entries

    @property
    def foreign(self) -> str | None:
        """The address of an output that is of another network; None if there is none."""
        return next(iter(self._foreign.values()), None)

    def time_of(self, slot: int) -> datetime:
        """Return the time of a slot."""
        return self._reader.time_of(slot)

    def first_slot(self, slot: int) -> int:
        """Return the slot since which spent outputs are kept, at the block of a slot."""
        return max(slot - self._window_slots - ROLLBACK_SLOTS, 0)

    def missing(self, count: int) -> list[str]:
        """Return the ids of some outputs whose datum is not known, but may become known; others at the next call."""
        keys = [*self._missing][:count]
        self._missing = self._missing.fromkeys([*[*self._missing][count:], *keys])
        return keys

    def fills(self) -> dict[str, Fill]:
        """Return the executions that the ledger proves, by the id of the output that was filled."""
        return {key: entry.execution.fill for key, entry in self._entries.items() if entry.execution is not None}

    def read(self, matches: Iterable[Match], slot: int, *, since: int) -> None:
        """Take the outputs at the block of a slot.

        Args:
            matches: What was created or spent after the slot `since`, on the chain of the block. Matches of others than
                the exchanges are ignored, and so is what happened after the block. A later match replaces an earlier
                one.
            slot: The slot of the block.
            since: Up to this slot, nothing differs from the last call. What is known of later ones is forgotten; with
                -1, all of it.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: A match is not one of Kupo. Nothing has changed.
        """
        changed, late = self._rewound(since), set[str]()
        for match in matches:
            exchange, created_at = self._exchanges.get(script_of(match["address"])), match["created_at"]["slot_no"]
            if exchange is None or created_at > slot or not _holds(match, exchange.policy):
                continue
            key, spend = id_of(match), spend_of(match)
            entry = changed.get(key) or self._entries.get(key)
            is_late = entry is not None and entry.output.datum is None and match.get("datum") is not None
            # A transaction that was rolled back may be at another place now.
            place = created_at, match["transaction_index"]
            if entry is None or is_late or place != (entry.output.slot, entry.output.transaction_index):
                entry = self._reader.read(exchange, output_of(match))
                # Bit 0 of the header of an address is 1 on the main network (CIP-19).
                is_main = address_bytes(match["address"])[0] & 1 == 1
                if is_main != self._reader.is_main:
                    self._foreign[key] = match["address"]
            if is_late:
                late.update([entry.output.transaction_id, (spend and spend.transaction_id) or ""])
            changed[key] = entry.spent(None if spend is None or spend.slot > slot else spend)
        self._prove(changed, late)
        self._replace(changed)
        self._move(slot)

    def _prove(self, changed: dict[str, Entry | None], late: Collection[str]) -> None:
        """Replace changed outputs by those with their executions. `late`: the transactions of late datums.

        The outputs of the transaction that spent an output are as new as the spend. But a late datum may prove the
        execution of another output: then that one and its successor have not changed otherwise.
        """
        created: dict[str, list[Entry]] = defaultdict(list)
        for key, known in self._entries.items() if late else ():
            if key not in changed and known.spend and known.spend.transaction_id in late:
                changed[key] = known
            elif key not in changed and known.output.transaction_id in late:
                created[known.output.transaction_id].append(known)
        for entry in filter(None, changed.values()):
            created[entry.output.transaction_id].append(entry)
        for key, one in changed.items():
            if one is not None and one.spend is not None:
                changed[key] = one.with_execution(created.get(one.spend.transaction_id or "", ()))

    def _rewound(self, since: int) -> dict[str, Entry | None]:
        """Return what differs if what happened after a slot is forgotten."""
        if since >= self._slot:
            return {}
        entries = self._entries.items()
        changed: dict[str, Entry | None] = {key: None for key, one in entries if one.output.slot > since}
        spent = [key for key, spent_at in self._spent.items() if spent_at > since and key not in changed]
        return changed | {key: self._entries[key].spent(None) for key in spent}

    def _replace(self, changed: Mapping[str, Entry | None]) -> None:
        for key, entry in changed.items():
            self._changed.setdefault(key, self._entries.pop(key, None))
            self._spent.pop(key, None)
            self._missing.pop(key, None)
            if entry is None:
                self._foreign.pop(key, None)
                continue
            self._entries[key] = entry
            if entry.spend is not None:
                self._spent[key] = entry.spend.slot
            if entry.output.datum is None and entry.output.datum_hash is not None:
                self._missing[key] = None
            for moment in entry.moments(self._window):
                heappush(self._moments, moment)

    def _move(self, slot: int) -> None:
        """Move the window to a slot: spent outputs leave it, or come back into it."""
        first, first_before = slot - self._window_slots, self._slot - self._window_slots
        for key, spent_at in self._spent.items():
            if (spent_at < first) != (spent_at < first_before):
                self._changed.setdefault(key, self._entries[key])
        self._slot = slot
        forgotten = [key for key, spent_at in self._spent.items() if spent_at < self.first_slot(slot)]
        self._replace(dict.fromkeys(forgotten))

    def at(self, now: datetime) -> State:
        """Return what is shown at a moment; the same object as long as it does not change."""
        if now < self._now or len(self._moments) > 4 * len(self._entries) + 1000:
            self._moments = [moment for entry in self._entries.values() for moment in entry.moments(self._window)]
            heapify(self._moments)
            self._changed = {**self._entries, **self._changed}
        while self._moments and self._moments[0][0] <= now:
            key = heappop(self._moments)[1]
            self._changed.setdefault(key, self._entries.get(key))
        self._now = now
        if self._changed:
            last = self._state
            state = State(last.orders.copy(), last.spots.copy(), last.spot_times.copy(), last.skipped.copy())
            pairs = set[Pair]()
            for key, before in self._changed.items():
                pairs |= self._remove(state, key, before)
                pairs |= self._add(state, key, now)
            # Executions between tokens are valued by the spots of these.
            for pair in sorted(pairs.union(filter(_is_of_tokens, self._executions)), key=_is_of_tokens):
                self._change_spot(state, pair)
            self._state, self._changed = state, {}
        return self._state

    def _remove(self, state: State, key: str, entry: Entry | None) -> set[Pair]:
        """Remove from the state what an output has added to it. Return its pairs."""
        if entry is None:
            return set()
        for one in (*entry.orders, *entry.skipped):
            state.orders.pop(one, None)
            state.skipped.pop(one, None)
        state.changed.update(entry.orders)
        pairs = {order.order.pair for order in entry.orders.values()}
        if entry.execution is not None and (filled := self._pair_of(entry.execution.fill)):
            self._executions[filled].pop(key, None)
            pairs.add(filled)
        for pair in pairs:
            self._listed[pair].discard(key)
        return pairs

    def _add(self, state: State, key: str, now: datetime) -> set[Pair]:
        """Add to the state what an output adds to it at a moment. Return the pairs that it lists."""
        entry, pairs = self._entries.get(key), set[Pair]()
        if entry is None or (entry.spend is not None and entry.spend.slot < self._slot - self._window_slots):
            return pairs
        if entry.spend is None:
            state.skipped |= entry.skipped
        for order_id, order in entry.orders.items():
            reason, pair = order.hidden_because(now), order.order.pair
            if entry.spend is None and reason is None:
                state.orders[order_id] = order
            elif entry.spend is None and reason is not None:
                state.skipped[order_id] = SkippedOutput(reason, order.venue, entry.output, pair)
            if order_id in state.orders or self._could_be_filled(order, entry.spend, now):
                pairs.add(pair)
        state.changed.update(entry.orders)
        if entry.execution is not None and (filled := self._pair_of(entry.execution.fill)):
            self._executions[filled][key] = entry.execution
            pairs.add(filled)
        for pair in pairs:
            self._listed[pair].add(key)
        return pairs

    def _could_be_filled(self, order: VenueOrder, spend: Spend | None, now: datetime) -> bool:
        """Whether an order could be filled at a moment in the window; not one that was cancelled before its start."""
        began_at = max(order.created_at, order.starts_at or order.created_at)
        ends = [order.expires_at] if order.expires_at is not None else []
        ends += [] if spend is None else [self.time_of(spend.slot)]
        has_started = order.starts_at is None or order.starts_at <= now
        has_expired = order.expires_at is not None and order.expires_at < now - self._window
        return has_started and not has_expired and began_at <= min(ends, default=began_at)

    def _pair_of(self, fill: Fill) -> Pair | None:
        return self._reader.pair_of(fill.gave[0], fill.received[0])

    def _change_spot(self, state: State, pair: Pair) -> None:
        """Replace the spot of a pair in the state."""
        state.spots.pop(pair, None)
        state.spot_times.pop(pair, None)
        executions = self._executions[pair].values()
        if not executions:
            del self._executions[pair]
        if not self._listed[pair]:
            del self._listed[pair]
            return
        state.spots[pair] = None
        if counted := [one for one in executions if self._value(state, one.fill) >= self._least]:
            last = last_of(counted)
            state.spots[pair] = spot_of(pair, last.fill)
            state.spot_times[pair] = self.time_of(last.spend.slot)

    def _value(self, state: State, fill: Fill) -> Fraction | int:
        """Return the value of an execution in lovelace."""
        values = list[Fraction | int]()
        for asset, amount in fill.gave, fill.received:
            if asset.is_ada:
                return amount
            pair = self._reader.pair_of(asset, ADA)
            if pair is not None and (spot := state.spots.get(pair)):
                values.append(amount * (Fraction(spot) if pair.base == asset else 1 / Fraction(spot)))
        return min(values, default=0)


def _holds(match: Match, policy: str) -> bool:
    """Whether an output holds a token of a policy, or needs none."""
    return not policy or any(name.startswith(policy) for name in match["value"]["assets"])


def _is_of_tokens(pair: Pair) -> bool:
    return not (pair.base.is_ada or pair.quote.is_ada)
