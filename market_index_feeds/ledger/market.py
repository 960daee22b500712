"""The orders, pairs and spot prices that outputs of the ledger prove: a function of the outputs, and of the clock.

Theory of operation
    An output never changes, so it is decoded once, when it is first seen. It only becomes spent. `Market` has the
    unspent outputs, and those that were spent within the window, and longer, because a rollback may take the window
    back. So all processes that read the same point of the chain show the same, whenever they were started.

    What is shown is derived from all outputs at each block, and when an order starts or expires. So it has no history.

    A pair is listed while it has, or had in the window, an order that could be filled. Its spot price is that of the
    last execution in the window that the ledger proves (decision 32). An execution counts if the filled output held
    what it gave, from a least value on. So an execution of one unit does not set the price of a day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final

from attrs import define, field

from market_index import ADA, Pair
from market_index_feeds.ledger.entries import EPOCH, NEVER, Entry, Execution, Reader, last_of, spot_of
from market_index_feeds.ledger.exchange import Exchange, Fill
from market_index_feeds.ledger.outputs import Match, id_of, output_of, spend_of
from market_index_feeds.venue_orders import Output, SkippedOutput, VenueOrder, script_of

ROLLBACK_SLOTS: Final = 43_200
"""How long spent outputs are kept beyond the window: the longest rollback, of 2,160 blocks, takes the window back."""

LEAST_EXECUTION: Final = 5_000_000
"""The least value of an execution that counts, in lovelace."""


@define
class State:
    """What is shown from one moment to a later one: orders by id, spots of the listed pairs, and skipped outputs.

    `foreign` is the address of an output that is of another network, empty if there is none.
    """

    since: datetime = field(eq=False)
    until: datetime = field(default=NEVER, eq=False)
    orders: dict[str, VenueOrder] = field(factory=dict)
    spots: dict[Pair, Decimal | None] = field(factory=dict)
    spot_times: dict[Pair, datetime] = field(factory=dict)
    skipped: dict[str, SkippedOutput] = field(factory=dict)
    foreign: str = ""


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
        self._pairs = tuple(pairs)
        self._exchanges = {exchange.script: exchange for exchange in exchanges}
        self._reader = Reader(network, {frozenset({pair.base, pair.quote}): pair for pair in self._pairs}, only)
        self._least, self._window_slots = least_execution, window_slots
        self._window = timedelta(seconds=window_slots)
        # The outputs at a slot, how many datums were asked for, and what was shown last, None after each slot.
        self._slot = -1
        self._entries: dict[str, Entry] = {}
        self._asked = 0
        self._state: State | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is no output of an exchange, as on another network."""
        return not self._entries

    def time_of(self, slot: int) -> datetime:
        """Return the time of a slot."""
        return self._reader.time_of(slot)

    def first_slot(self, slot: int) -> int:
        """Return the slot since which spent outputs are kept, at the block of a slot."""
        return max(slot - self._window_slots - ROLLBACK_SLOTS, 0)

    def missing(self, count: int) -> list[Output]:
        """Return some outputs whose datum is not known, but may become known; others at the next call."""
        outputs = [entry.output for entry in self._entries.values()]
        missing = [one for one in outputs if one.datum is None and one.datum_hash is not None]
        first = self._asked % max(len(missing), 1)
        self._asked += count
        return (missing[first:] + missing[:first])[:count]

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
        entries = self._entries.copy() if since >= self._slot else self._rewound(since)
        transactions = set[str]()
        for match in matches:
            exchange, created_at = self._exchanges.get(script_of(match["address"])), match["created_at"]["slot_no"]
            if exchange is None or created_at > slot or not _holds(match, exchange.policy):
                continue
            key, spend = id_of(match), spend_of(match)
            # An output never changes, so it is decoded once. But it may be of another block after a rollback.
            entry = entries.get(key) or self._entries.get(key)
            is_late = entry is not None and entry.output.datum is None and match.get("datum") is not None
            place = created_at, match["transaction_index"]
            if entry is None or is_late or place != (entry.output.slot, entry.output.transaction_index):
                entry = self._reader.read(exchange, output_of(match))
            entries[key] = entry.spent(None if spend is None or spend.slot > slot else spend)
            transactions.add(entry.output.transaction_id)
            if spend is not None and spend.transaction_id is not None:
                transactions.add(spend.transaction_id)
        # The datum of any output of a transaction may become known late, and prove the execution of another one.
        created = defaultdict[str | None, list[Entry]](list)
        for one in entries.values():
            if one.output.transaction_id in transactions:
                created[one.output.transaction_id].append(one)
        for key, one in list(entries.items()):
            if one.spend is not None and one.spend.slot < self.first_slot(slot):
                del entries[key]
            elif one.spend is not None and one.spend.transaction_id in transactions:
                entries[key] = one.with_execution(created[one.spend.transaction_id])
        self._entries, self._slot, self._state = entries, slot, None

    def _rewound(self, since: int) -> dict[str, Entry]:
        """Return the outputs as they were at a slot."""
        entries = {key: one for key, one in self._entries.items() if one.output.slot <= since}
        spent = {key: one.spend.slot for key, one in entries.items() if one.spend is not None}
        return entries | {key: entries[key].spent(None) for key, slot in spent.items() if slot > since}

    def at(self, now: datetime) -> State:
        """Return what is shown at a moment; the same object as long as it does not change."""
        if self._state is None or not self._state.since <= now < self._state.until:
            self._state = self._state_at(now)
        return self._state

    def _state_at(self, now: datetime) -> State:
        shown, listed = State(now), set(self._pairs)
        executions = defaultdict[Pair, list[Execution]](list)
        for entry in self._entries.values():
            if entry.spend is None:
                shown.orders |= entry.orders
                shown.skipped |= entry.skipped
            elif entry.spend.slot < self._slot - self._window_slots:
                continue
            listed |= entry.pairs if entry.is_timeless else self._timed(shown, entry, now)
            if (done := entry.execution) and (filled := self._reader.pair_of(done.fill.gave[0], done.fill.received[0])):
                executions[filled].append(done)
        shown.foreign = next((one.foreign for one in self._entries.values() if one.foreign), "")
        shown.spots |= dict.fromkeys(listed.union(executions))
        # Executions between tokens are valued by the spots of these.
        for pair in sorted(executions, key=lambda one: not (one.base.is_ada or one.quote.is_ada)):
            if counted := [one for one in executions[pair] if self._value(shown, one.fill) >= self._least]:
                last = last_of(counted)
                shown.spots[pair], shown.spot_times[pair] = spot_of(pair, last.fill), self.time_of(last.spend.slot)
        return shown

    def _timed(self, shown: State, entry: Entry, now: datetime) -> set[Pair]:
        """Hide the orders that cannot be filled at a moment. Return the pairs of those that could be, in the window.

        An order that was cancelled before its start could not be filled.
        """
        pairs, spent_at = set[Pair](), NEVER if entry.spend is None else self.time_of(entry.spend.slot)
        for key, order in entry.orders.items():
            starts_at, ends_at = order.starts_at or EPOCH, order.expires_at or NEVER
            reason, pair = order.hidden_because(now), order.order.pair
            has_begun = starts_at <= now and max(starts_at, order.created_at) <= min(ends_at, spent_at)
            if has_begun and now - self._window <= ends_at:
                pairs.add(pair)
            changes = starts_at, ends_at + timedelta.resolution, ends_at + timedelta.resolution + self._window
            shown.until = min([shown.until, *(one for one in changes if one > now)])
            if entry.spend is None and reason is not None:
                del shown.orders[key]
                shown.skipped[key] = SkippedOutput(reason, order.venue, entry.output, pair)
        return pairs

    def _value(self, shown: State, fill: Fill) -> Fraction | int:
        """Return the value of an execution in lovelace."""
        values = list[Fraction | int]()
        for asset, amount in fill.gave, fill.received:
            if asset.is_ada:
                return amount
            pair = self._reader.pair_of(asset, ADA)
            if pair is not None and (spot := shown.spots.get(pair)):
                values.append(amount * (Fraction(spot) if pair.base == asset else 1 / Fraction(spot)))
        return min(values, default=0)


def _holds(match: Match, policy: str) -> bool:
    """Whether an output holds a token of a policy, or needs none."""
    return not policy or any(name.startswith(policy) for name in match["value"]["assets"])
