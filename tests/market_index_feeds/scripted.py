"""A source that does what its script says, for tests of the follower."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from threading import Event
from typing import Any

from market_index import LiveIndex, Pair
from market_index_feeds import Feed
from market_index_feeds.medium import Delta, Loading, Names, Progress, Rejected, Snapshot, Source, Update
from tests.market_index_feeds.made_up import pair, spots
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
                if isinstance(step, (Snapshot, Delta, Loading)):
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


def bad(names: int | Names, record: Hashable = None) -> Rejected:
    named: Pair | Names = pair(names) if isinstance(names, int) else names
    return Rejected("record", "no book", named, record)
