"""Checks what a producer writes: all faults of a file or a stream of lines.

A follower stops at the first wrong event of orders, until the next reset. Here the next events are still read, so that
one run shows all faults. What an earlier fault explains is no fault: an order that a wrong line placed cannot be
removed, and after a line that may have been any event, or a rollback to an unknown block, nothing that depends on the
state is reported until the next reset.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

from attrs import frozen

from market_index import InvalidOrderBook, MarketIndexError, Pair
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
    events = _Events(opening.options.get("history", DEFAULT_HISTORY))
    path = opening.target if opening.target == STANDARD_INPUT else Path(opening.target).absolute()
    try:
        for batch in read_stream(path, Event()):
            for line in batch.lines:
                if kind is EVENTS:
                    yield from events.check(line)
                elif isinstance(content := read_line(line), Invalid):
                    yield Finding(line.number, content.reason)
    except OSError as error:
        raise opening.error(reason_of(error)) from None
    if kind is EVENTS:
        yield from events.end()


class _Events:
    """The state of events that may have faults."""

    def __init__(self, history: int) -> None:
        self._warnings: list[str] = []
        self._blocks = Blocks(history, lambda _, reason: self._warnings.append(str(reason)))
        self._line = 0
        self._forget(is_known=False)

    def _forget(self, *, is_known: bool) -> None:
        """Start again. `is_known`: whether what contradicts the state is a fault."""
        self._is_known = is_known
        # The orders of wrong lines, the ids that were removed, and how many levels of each pair are saturated.
        self._suspects, self._removed, self._saturated = set[str](), set[str](), dict[Pair, int]()

    def check(self, line: Line) -> Iterator[Finding]:
        """Yield the findings of the next line."""
        self._line = line.number
        if self._blocks.skips(line):
            return
        event = order_id = None
        try:
            if line.fault is not None:
                raise InvalidOrderBook(line.fault)
            values = object_from_json(line.text)
            event = next((kind for kind in Blocks.KINDS if kind in values), None)
            given = values[event] if event in {"place", "remove"} else None
            order_id = given if isinstance(given, str) else None
            self._blocks.apply(values)
            self._follow(event, order_id or "")
        except Contradiction as error:
            is_consequence = order_id in self._suspects or (event == "untrack" and self._suspects)
            if self._is_known and not is_consequence:
                yield Finding(line.number, str(error), event=event, order_id=order_id)
            self._is_known &= event != "rollback"
        except MarketIndexError as error:
            yield Finding(line.number, str(error), event=event, order_id=order_id)
            if order_id is not None:
                self._suspects.add(order_id)
            self._is_known &= order_id is not None or event in {"spot", "untrack", "block"}
        for warning in self._warnings:
            yield Finding(line.number, warning, is_warning=True, event=event, order_id=order_id)
        self._warnings.clear()

    def _follow(self, event: str | None, order_id: str) -> None:
        """Collect the warnings of an event that was applied."""
        if event == "reset":
            self._forget(is_known=True)
        elif not self._is_known:
            return
        elif event == "rollback":
            self._removed.clear()  # the orders of a discarded block may be placed again
        elif event == "remove":
            self._removed.add(order_id)
        elif event == "place":
            self._suspects.discard(order_id)
            if order_id in self._removed:
                self._warnings.append("an id that was removed is placed again; one id is one order")
        elif event == "block":
            before, self._saturated = self._saturated, self._blocks.visible.saturated
            for pair, levels in self._saturated.items():
                if levels > before.get(pair, 0):
                    self._warnings.append(f"{pair} has {levels} levels of 2^64-1 or more")

    def end(self) -> Iterator[Finding]:
        """Yield the findings of the whole."""
        if self._blocks.phase is Phase.UNKNOWN:
            yield Finding(self._line, "contains no reset (order books are checked without orders: before their name)")
        elif waiting := self._blocks.pending:
            yield Finding(self._line, f"ends while events wait for a block (events: {waiting})", is_warning=True)
