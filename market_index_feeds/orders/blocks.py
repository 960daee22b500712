"""The visible state of the orders: blocks commit it, rollbacks restore it, and an invalid line makes it unknown.

Theory of operation
===================

    UNKNOWN ──reset──▶ RESETTING ──block──▶ KNOWN ──reset──▶ RESETTING
       ▲                   │                  │
       └──── a line that is malformed or inconsistent ────┘

- UNKNOWN: all events are skipped until the next reset. This is the initial phase: a file may start with a reset, or in
  the middle of events.
- RESETTING: a new state is read, up to its first block.
- KNOWN: the net effect of events is collected. A block applies it atomically.

Only a block or a rollback changes the visible state. A wrong book is worse than an old one: after a line that is
malformed or contradicts the state, no later event is reliable, so events are skipped until the producer sends its whole
state again.

The state of a block is an immutable value that shares its unchanged parts with the state before. Therefore many states
need little memory, and a rollback only selects one of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from itertools import chain
from operator import attrgetter
from typing import Final

from attrs import frozen

from market_index import Freshness, InvalidOrderBook, MarketIndexError, Order, Pair, RestingOrders
from market_index.errors import safe_repr
from market_index_feeds.line_content import LineContent, RejectedLine, Reported, lines_of
from market_index_feeds.line_kind import EVENTS
from market_index_feeds.line_source import LineBatch
from market_index_feeds.medium import Update
from market_index_feeds.orders.events import (
    Block,
    Event,
    Place,
    Remove,
    Reset,
    Rollback,
    Spot,
    Untrack,
    read_event,
)
from market_index_feeds.orders.wide_table import WideTable

DEFAULT_HISTORY: Final = 2160
"""How many blocks before the last one a rollback may go back by default: no rollback of Cardano exceeds it."""


class Phase(Enum):
    """The phases of a feed of orders; see the module docstring."""

    UNKNOWN = "waits for a reset"
    RESETTING = "reads a new state, up to its first block"
    KNOWN = "collects events for the next block"


@frozen
class _State:
    """The orders at one moment, and the lines of impossible orders and spot prices, by record.

    An order whose pair cannot be tracked is only in `faults`.
    """

    orders: RestingOrders
    faults: WideTable[RejectedLine]

    def has_order(self, order_id: str) -> bool:
        """Whether an order with this id rests."""
        return order_id in self.orders or _order_record(order_id) in self.faults


_EMPTY: Final = _State(RestingOrders(), WideTable())


class _PendingEvents:
    """The net effect of events that are not applied yet. `events` is their number."""

    def __init__(self) -> None:
        self.events: int = 0
        self._placed: dict[str, Order | None] = {}
        self._removed: set[str] = set()
        self._spots: dict[Pair, Decimal | None] = {}
        # The pairs of orders that later events removed or replaced. They are tracked nevertheless.
        self._pairs: set[Pair] = set()
        self._faults: dict[str, RejectedLine] = {}

    def place(self, event: Place, line: int) -> None:
        """Place an order."""
        self.events += 1
        order_id = event.order_id
        if order_id in self._placed:
            self._withdraw(order_id)
        self._placed[order_id] = event.order
        self._faults.pop(_order_record(order_id), None)
        if event.fault is not None:
            reason = f"order {safe_repr(order_id)} has no liquidity: {event.fault}"
            self._add_fault(_order_record(order_id), line, reason)

    def remove(self, order_id: str, before: _State) -> bool:
        """Remove an order. Return whether it exists."""
        was_placed = order_id in self._placed
        if was_placed:
            self._withdraw(order_id)
        self._faults.pop(_order_record(order_id), None)
        if order_id not in self._removed and before.has_order(order_id):
            self._removed.add(order_id)
        elif not was_placed:
            return False
        self.events += 1
        return True

    def _withdraw(self, order_id: str) -> None:
        """Forget an order that was placed before, but keep its pair."""
        if (order := self._placed.pop(order_id)) is not None:
            self._pairs.add(order.pair)

    def set_spot(self, event: Spot, line: int) -> None:
        """Set the last executed price of a pair."""
        self.events += 1
        self._spots[event.pair] = event.price
        self._faults.pop(_spot_record(event.pair), None)
        if event.fault is not None:
            self._add_fault(_spot_record(event.pair), line, f"{event.pair} has no spot price: {event.fault}")

    def _add_fault(self, record: str, line: int, reason: str) -> None:
        self._faults[record] = RejectedLine(line, reason, record=record)

    def applied_to(self, before: _State, as_of: str | None = None) -> _State:
        """Return the state after the events, which follow the state `before`."""
        tracked: dict[Pair, Decimal | None] = {pair: None for pair in self._pairs if pair not in before.orders.index}
        placed = {order_id: order for order_id, order in self._placed.items() if order is not None}
        removed = self._removed.union(self._placed) if len(placed) < len(self._placed) else self._removed
        orders = before.orders.apply(placed, removed, tracked | self._spots, as_of, missing_ok=True)
        records = chain(map(_order_record, {*self._placed, *self._removed}), map(_spot_record, self._spots))
        ended: dict[str, None] = dict.fromkeys(records) if before.faults else {}
        return _State(orders, before.faults.changed({**ended, **self._faults}))


class Blocks(LineContent):
    """The states of the orders in one file or stream: the visible one, and those of the retained blocks."""

    kind = EVENTS
    commit = "block"
    pending_record = "event"

    def __init__(self, history: int = DEFAULT_HISTORY) -> None:
        """`history` is how many blocks before the last one a rollback may go back."""
        self.phase: Phase = Phase.UNKNOWN
        self._lost: str | None = "its state is not known yet"
        self._max_blocks = history + 1
        self._blocks: OrderedDict[str, _State] = OrderedDict()
        # The state of the last block, or a later one if pending events had to be applied.
        self._applied = _EMPTY
        self._pending = _PendingEvents()
        self._visible = self._delivered = _EMPTY
        self._is_publication = False

    @property
    def problem(self) -> str | None:
        """Why the state is not known, and which event makes it known again; None if it is known."""
        if self._lost is None:
            return None
        awaited = "a reset" if self.phase is Phase.UNKNOWN else "the first block after its reset"
        return f"{self._lost}; waiting for {awaited}"

    @property
    def pending(self) -> int:
        """The number of events after the last block."""
        return self._pending.events

    def read(self, batch: LineBatch) -> Iterator[Reported]:
        """Read the lines of the next batch. Report each block and rollback, and each rejected line."""
        for line, fault in lines_of(batch):
            text = line.text or b""
            if self.phase is not Phase.UNKNOWN or _may_be_reset(text):
                reported = self._read(line.number, text, fault)
                if reported is not None:
                    yield reported

    def _read(self, number: int, text: bytes, fault: str | None) -> Reported | None:
        if fault is not None:
            return self._rejected(number, fault)
        try:
            event = read_event(text)
            if self.phase is Phase.UNKNOWN and not isinstance(event, Reset):
                return None
            return self._apply(event, number)
        except MarketIndexError as error:
            return self._rejected(number, str(error))
        except BaseException:
            # The line may have taken effect in part, and a stream cannot be read again.
            self._rejected(number, "unexpected error")
            raise

    def _apply(self, event: Event, line: int) -> Freshness | None:
        """Apply the next event; return the freshness of what it makes visible. Raises `InvalidOrderBook`."""
        match event:
            case Place():
                self._pending.place(event, line)
            case Remove(order_id):
                if not self._pending.remove(order_id, self._applied):
                    raise InvalidOrderBook(f"cannot remove order {safe_repr(order_id)}: there is no such order")
            case Spot():
                self._pending.set_spot(event, line)
            case Untrack():
                self._untrack(event.pair)
            case Block():
                return self._commit(event.text)
            case Rollback():
                return self._roll_back(event.text)
            case Reset():  # pragma: no branch  # the last kind of event
                self._start(Phase.RESETTING)
                self._lost = self._lost or f"its state is reset since line {line}"
        return None

    def _untrack(self, pair: Pair) -> None:
        events = self._pending.events + 1
        applied, self._pending = self._pending.applied_to(self._applied), _PendingEvents()
        self._pending.events = events
        self._applied = _State(applied.orders.untrack(pair), applied.faults.changed({_spot_record(pair): None}))

    def _commit(self, text: str) -> Freshness:
        if text in self._blocks:
            raise InvalidOrderBook(f"the text of a block must not repeat, got {safe_repr(text)} again")
        self._blocks[text] = self._applied = self._pending.applied_to(self._applied, text)
        if len(self._blocks) > self._max_blocks:
            self._blocks.popitem(last=False)
        self.phase, self._lost = Phase.KNOWN, None
        return self._show()

    def _roll_back(self, text: str) -> Freshness:
        if text not in self._blocks:
            raise InvalidOrderBook(f"block {safe_repr(text)} must be retained for a rollback to it")
        while next(reversed(self._blocks)) != text:
            self._blocks.popitem()
        self._applied = self._blocks[text]
        return self._show()

    def _show(self) -> Freshness:
        """Make the applied state visible, and drop pending events."""
        self._visible, self._pending, self._is_publication = self._applied, _PendingEvents(), True
        return self._visible.orders.index.freshness

    def _start(self, phase: Phase) -> None:
        """Start a phase without a state: forget all states but the visible one."""
        self.phase = phase
        self._blocks.clear()
        self._applied, self._pending = _EMPTY, _PendingEvents()

    def _rejected(self, line: int, reason: str) -> RejectedLine:
        """Reject a line. The first rejected line is the reason why the state is not known."""
        if self.phase is not Phase.UNKNOWN:
            self._lost = f"its state is unknown since line {line}: {reason}"
            self._start(Phase.UNKNOWN)
        return RejectedLine(line, reason)

    def changes(self) -> Update:
        """Return the difference between the visible state and the last delivered one."""
        now, before = self._visible, self._delivered
        books, removed = now.orders.index.changes_since(before.orders.index)
        faults, corrected = now.faults.changes_since(before.faults)
        return Update(
            books=books,
            removed=removed,
            rejected=[fault.as_record() for fault in sorted(faults, key=attrgetter("number"))],
            resolved=[fault.record for fault in corrected],
            # A block names all pairs.
            is_complete=self._is_publication or None,
            freshness=now.orders.index.freshness if self._is_publication else None,
            is_publication=self._is_publication,
        )

    def deliver(self) -> None:
        """Record that the changes were delivered."""
        self._delivered, self._is_publication = self._visible, False

    @property
    def reads_on(self) -> bool:
        """Whether the next line may be visible: not before its block."""
        return False


def _order_record(order_id: str) -> str:
    return f"order {order_id}"


def _spot_record(pair: Pair) -> str:
    return f"spot {pair}"


def _may_be_reset(text: bytes) -> bool:
    """Whether a line may be a reset. Other lines are skipped without decoding."""
    return b'"reset"' in text or b"\\" in text
