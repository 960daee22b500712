"""A source that does what its script says, for tests of the feed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from threading import Event
from typing import Any

from market_index import LiveIndex
from market_index_feeds import Feed
from market_index_feeds.medium import Progress, Rejected, Source, Update
from tests.market_index_feeds.made_up import book, pair, spots
from tests.waiting import eventually


class Scripted(Source):
    """A source with a script: it yields updates, raises errors and makes calls, then waits or ends."""

    record = "records"

    def __init__(self, *script: Update | Exception | Callable[[], object], ends: bool = False) -> None:
        super().__init__("a script")
        self.left = list(script)
        self.ends = ends
        self.opened = self.closed = 0

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        self.opened += 1
        try:
            while self.left and not stop.is_set():
                step = self.left[0]
                if isinstance(step, Exception):
                    del self.left[0]
                    raise step
                if isinstance(step, Update):
                    yield step
                else:
                    step()
                del self.left[0]
            if not self.ends:
                stop.wait()
        finally:
            self.closed += 1


def live_after(*script: Any) -> dict[int, str | None]:
    """Return the live pairs and their spots after a feed has followed a script to its end."""
    live = LiveIndex()
    with Feed(source := Scripted(*script)) as feed:
        feed.start(live)
        eventually(lambda: not source.left)
    return spots(live)


def bad(record: Hashable = None) -> Rejected:
    """Return a rejection of the record with this identity; a number is that of a pair."""
    return Rejected("record", "no book", pair(record) if isinstance(record, int) else record)


def whole(*numbers: int, **fields: Any) -> Update:
    """Return an update with the whole content: the books of these pairs."""
    return Update(books=[book(number) for number in numbers], replaces_all=True, **fields)


def complete(*numbers: int, **fields: Any) -> Update:
    """Return an update with a whole content that is complete."""
    return whole(*numbers, is_complete=True, **fields)
