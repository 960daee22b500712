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

from attrs import define, field, frozen

from market_index import ADA, Pair
from market_index_feeds.ledger.entries import EPOCH, NEVER, Entry, Execution, Reader, last_of
from market_index_feeds.ledger.exchange import Exchange, Fill
from market_index_feeds.ledger.exchanges import EXCHANGES
from market_index_feeds.ledger.outputs import Spend
from market_index_feeds.venue_orders import Output, SkippedOutput, VenueOrder, script_of

ROLLBACK_SLOTS: Final = 43_200
"""How long spent outputs are kept beyond the window: the longest rollback, of 2,160 blocks, takes the window back."""

LEAST_EXECUTION: Final = 5_000_000
"""The least value of an execution that counts, in lovelace."""


@frozen
class Selection:
    """Which orders are read.

    Args:
        exchanges: Exchanges besides those of `EXCHANGES`. One with the script of another replaces it.
        venues: The names of the exchanges that are read; all if there are none.
        network: Their network: `mainnet`, `preprod` or `preview`.
        pairs: Pairs that are always listed, with this base. Of other pairs, the base is the asset that is not ADA, and
            of two tokens the first in ledger order.
        only: Whether other pairs are hidden.
        hours: The window, in hours up to the last block, in which a spent output counts.
        least_execution: The least value of an execution that is a spot price, in lovelace. Between two tokens, it is
            the lower one of their values at their own spots; if neither has one, the execution does not count.
    """

    exchanges: Iterable[Exchange] = ()
    venues: Iterable[str] = ()
    network: str = "mainnet"
    pairs: Iterable[Pair] = ()
    only: bool = False
    hours: int = 24
    least_execution: int = LEAST_EXECUTION

    def selected(self) -> tuple[Exchange, ...]:
        """Return the exchanges that are read. Raises `ValueError` if a name of `venues` is not that of an exchange."""
        found = {one.script: one for one in (*EXCHANGES, *self.exchanges)}.values()
        of_network = [one for one in found if self.network in one.networks]
        names = {one.name for one in of_network}
        if unknown := set(self.venues) - names:
            raise ValueError(f"venues must be names such as {', '.join(sorted(names))}, got {', '.join(unknown)}")
        return tuple(one for one in of_network if not self.venues or one.name in self.venues)


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
    """The outputs of some exchanges at one point of the chain."""

    def __init__(self, selection: Selection) -> None:
        self._pairs, self._least = tuple(selection.pairs), selection.least_execution
        self._exchanges = {exchange.script: exchange for exchange in selection.selected()}
        by_assets = {frozenset({pair.base, pair.quote}): pair for pair in self._pairs}
        self._reader = Reader(selection.network, by_assets, selection.only)
        self._window, self._window_slots = timedelta(hours=selection.hours), selection.hours * 3600
        # The outputs at a slot, the addresses of those of another network, some of which may be gone, how many datums
        # were asked for, and what was shown last, None after each slot.
        self._slot = -1
        self._entries: dict[str, Entry] = {}
        self._foreign: dict[str, str] = {}
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

    def read(self, outputs: Iterable[tuple[Output, Spend | None]], slot: int, *, since: int) -> None:
        """Take the outputs at the block of a slot. If an error is raised, nothing has changed.

        Args:
            outputs: What was created or spent after the slot `since`, on the chain of the block, and how it was spent.
                Outputs of others than the exchanges are ignored, and so is what happened after the block. A later one
                replaces an earlier one with its id.
            slot: The slot of the block.
            since: Up to this slot, nothing differs from the last call. What is known of later ones is forgotten; with
                -1, all of it.
        """
        entries = self._entries.copy() if since >= self._slot else self._rewound(since)
        transactions = set[str | None]()
        for output, spend in outputs:
            exchange = self._exchanges.get(script_of(output.address))
            if exchange is None or output.slot > slot or not exchange.reads(output):
                continue
            # It is decoded once, and again if it is at another place after a rollback, or if its datum became known.
            entry = entries.get(output.id) or self._entries.get(output.id)
            if entry is None or entry.output != output:
                entry = self._reader.read(exchange, output)
                # The prefix of an address is that of its network (CIP-19).
                if output.address.startswith("addr_test1") is (self._reader.network == "mainnet"):
                    self._foreign[output.id] = output.address
            is_spent = spend is not None and spend.slot <= slot
            entries[output.id] = entry.spent(spend if is_spent else None)
            transactions |= {output.transaction_id, spend.transaction_id if spend is not None else None}
        transactions.discard(None)
        # The datum of any output of a transaction may become known late, and prove the execution of another one.
        created = defaultdict[str | None, list[Entry]](list)
        for one in entries.values():
            if one.output.transaction_id in transactions:
                created[one.output.transaction_id].append(one)
        for key, spend in [(key, one.spend) for key, one in entries.items() if one.spend is not None]:
            if spend.slot < self.first_slot(slot):
                del entries[key]
            elif spend.transaction_id in transactions:
                entries[key] = self._reader.proved(entries[key], spend, created[spend.transaction_id])
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
            if entry.execution is not None:
                executions[entry.execution.pair].append(entry.execution)
        shown.foreign = next((address for key, address in self._foreign.items() if key in self._entries), "")
        shown.spots |= dict.fromkeys(listed.union(executions))
        # Executions between tokens are valued by the spots of these.
        for pair in sorted(executions, key=lambda one: not (one.base.is_ada or one.quote.is_ada)):
            if counted := [one for one in executions[pair] if self._value(shown, one.fill) >= self._least]:
                last = last_of(counted)
                shown.spots[pair], shown.spot_times[pair] = last.price, self.time_of(last.spend.slot)
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
            is_shown = entry.spend is None and reason is None
            # With a clock that is behind, an order is shown that ended before its block.
            if is_shown or (has_begun and now - self._window <= ends_at):
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
