"""Checks what a producer writes, all faults of a file or a stream of lines, and what a Kupo indexes.

A follower stops at the first wrong event of orders, until the next reset. Here the next events are still read, so that
one run shows all faults. What an earlier fault explains is no fault: an order that a wrong line placed cannot be
removed, and after a line that may have been any event, or a rollback to an unknown block, nothing that depends on the
state is reported until the next reset.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from attrs import define, field, frozen

from market_index import MarketIndexError, Pair
from market_index.contract import Request, Response
from market_index.wire import object_from_json
from market_index_feeds.book_lines import Invalid, read_line
from market_index_feeds.errors import FeedError, reason_of
from market_index_feeds.feed import Feed
from market_index_feeds.lines import Line, read_stream
from market_index_feeds.names import STANDARD_INPUT
from market_index_feeds.orders import DEFAULT_HISTORY, Blocks, Contradiction, Phase
from market_index_feeds.source import Version
from market_index_feeds.sources import EVENTS, LINES, kind_of

if TYPE_CHECKING:
    from market_index_feeds.ledger.source import LedgerSource

MAX_LAG_SLOTS: Final = 120
"""How many seconds the index of Kupo may be behind its node."""


@frozen
class Finding:
    """A fault of a line, or a warning. `event` is the kind of the event, and `order_id` its order, if it has one."""

    line: int
    reason: str
    is_warning: bool = False
    event: str | None = None
    order_id: str | None = None


def check_lines(source: str) -> Iterator[Finding]:
    """Yield the faults of lines of order books, or of events of orders, in a file or in standard input.

    Raises:
        FeedError: It cannot be read, or is neither.
    """
    kind = kind_of(source)
    opening = kind.opening(source)
    if kind not in (LINES, EVENTS):
        raise opening.error(f"lines of order books or of events are checked, got {kind.noun}")
    events = _Events(opening.options.get("history", DEFAULT_HISTORY)) if kind is EVENTS else None
    path = opening.target if opening.target == STANDARD_INPUT else Path(opening.target).absolute()
    try:
        for batch in read_stream(path, Event()):
            for line in batch.lines:
                if events is not None:
                    yield from events.check(line)
                elif isinstance(content := read_line(line), Invalid):
                    yield Finding(line.number, content.reason)
    except OSError as error:
        raise opening.error(reason_of(error)) from None
    if events is not None:
        yield from events.end()


@define(eq=False)
class _Events:
    """The state of events that may have faults."""

    history: int
    line: int = 0
    is_known: bool = False
    suspects: set[str] = field(factory=set)
    removed: set[str] = field(factory=set)
    saturated: dict[Pair, int] = field(factory=dict)
    found: list[Finding] = field(factory=list)
    blocks: Blocks = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.blocks = Blocks(self.history, lambda _, reason: self.add(str(reason), is_warning=True))

    def add(
        self, reason: str, event: str | None = None, order_id: str | None = None, *, is_warning: bool = False
    ) -> None:
        self.found.append(Finding(self.line, reason, is_warning, event, order_id))

    def check(self, line: Line) -> list[Finding]:
        """Return the findings of the next line."""
        self.line, self.found = line.number, []
        is_blank = line.fault is None and not line.text.strip()
        if is_blank or (self.blocks.phase is Phase.UNKNOWN and b'"reset"' not in line.text):
            return self.found  # a file may begin in the middle of events
        if line.fault is not None:
            self.add(line.fault)
            self.is_known = False
            return self.found
        event = order_id = None
        try:
            values = object_from_json(line.text)
            event = next((kind for kind in Blocks.KINDS if kind in values), None)
            text = values[event] if event in {"place", "remove"} else None
            order_id = text if isinstance(text, str) else None
            self.blocks.apply(values)
            self.applied(event, order_id)
        except Contradiction as error:
            is_consequence = order_id in self.suspects or (event == "untrack" and self.suspects)
            if self.is_known and not is_consequence:
                self.add(str(error), event, order_id)
            self.is_known &= event != "rollback"
        except MarketIndexError as error:
            self.add(str(error), event, order_id)
            if order_id is not None:
                self.suspects.add(order_id)
            self.is_known &= order_id is not None or event in {"spot", "untrack", "block"}
        return self.found

    def applied(self, event: str | None, order_id: str | None) -> None:
        if event == "reset":
            self.is_known, self.suspects, self.removed, self.saturated = True, set(), set(), {}
        elif event == "rollback":
            self.removed = set()  # the orders of a discarded block may be placed again
        elif event == "remove" and order_id is not None:
            self.removed.add(order_id)
        elif event == "place" and order_id is not None:
            self.suspects.discard(order_id)
            if order_id in self.removed:
                self.add(
                    "an id that was removed is placed again; one id is one order", event, order_id, is_warning=True
                )
        elif event == "block":
            before, self.saturated = self.saturated, self.blocks.visible.saturated
            for pair, levels in self.saturated.items():
                if levels > before.get(pair, 0):
                    self.add(f"{pair} has {levels} levels of 2^64-1 or more", event, is_warning=True)

    def end(self) -> Iterator[Finding]:
        """Yield the findings of the whole."""
        if self.blocks.phase is Phase.UNKNOWN:
            yield Finding(self.line, "contains no reset (order books are checked without orders: before their name)")
        elif self.blocks.pending:
            yield Finding(
                self.line, f"ends while events wait for a block (events: {self.blocks.pending})", is_warning=True
            )


@frozen
class LedgerFact:
    """A fact about a Kupo, and whether it is as it must be; None if it is only counted."""

    name: str
    text: str
    holds: bool | None = None


def check_ledger(source: LedgerSource, send: Callable[[Request], Response]) -> Iterator[LedgerFact]:
    """Yield the facts: version, node, lag, patterns and network, the exchanges, and the spots of the window.

    Raises:
        FeedError: It cannot be read.
        NoResponse: It does not respond, which `send` raises.
    """
    response = send(Request("/health", headers={"Accept": "application/json"}))
    try:
        health: Mapping[str, object] = dict(json.loads(response.body))
    except (TypeError, ValueError):
        raise FeedError(f"the health must be JSON, got status {response.status}: is it a Kupo?") from None
    yield LedgerFact("version", str(health.get("version")))
    yield LedgerFact("node", f"{health.get('connection_status')}", health.get("connection_status") == "connected")
    tip, read = health.get("most_recent_node_tip"), response.headers.get("x-most-recent-checkpoint", "")
    if isinstance(tip, int) and read.isdecimal():
        lag = tip - int(read)
        yield LedgerFact("lag", f"{lag} slots behind its node", lag <= MAX_LAG_SLOTS)
    with Feed(source) as feed:
        index = feed.read()
        version = feed.version or Version(index)
        problem = version.problem
        yield LedgerFact("patterns and network", problem or "all exchanges are indexed", problem is None)
        orders = Counter(one.venue for one in (version.venue_orders or {}).values())
        skipped = Counter(one.venue for one in version.skipped.values())
        for venue in dict.fromkeys(exchange.venue for exchange in source.exchanges):
            yield LedgerFact(venue, f"{orders[venue]} orders, {skipped[venue]} outputs skipped")
        spots = sum(book.spot is not None for book in index.values())
        yield LedgerFact("window", f"{source.hours} hours: {spots} of {len(index)} pairs have a spot")
