"""Checks what a producer writes: all faults of a file or a stream of lines, each with its line.

A follower stops at the first wrong event of orders, until the next reset. Here the next events are still read, so that
one run shows all faults. What an earlier fault explains is no fault: an order that a wrong line placed cannot be
removed, and after a line that may have been any event, or a rollback to an unknown block, nothing that depends on the
state is reported until the next reset.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

from attrs import define, field, frozen

from market_index import MarketIndexError, Pair
from market_index.wire import object_from_json
from market_index_feeds.book_lines import Invalid, read_line
from market_index_feeds.errors import reason_of
from market_index_feeds.lines import Line, read_stream
from market_index_feeds.names import STANDARD_INPUT
from market_index_feeds.orders import DEFAULT_HISTORY, Blocks, Contradiction, Phase
from market_index_feeds.sources import EVENTS, LINES, kind_of


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
