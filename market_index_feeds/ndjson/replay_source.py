"""The source of a feed that replays a recording: each change after the time that it took when it was recorded.

Theory of operation
    The first change is the whole content. Each later change is due after the difference of both `recorded_at`, divided
    by the speed. A difference below 0, of a clock that was set, counts as 0. Times are added up from the first change,
    so a change that is delivered late does not delay the others.

    In a loop, the first change follows the last one after `LOOP_SECONDS`, and retracts the pairs that it does not name.
    `sample:` is the recording in this package.

    A line that is rejected is handled as in other files of lines (docs/coverage.md). Between two changes, the source
    counts as checked once per second.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from threading import Event
from time import monotonic
from typing import Final

from market_index import Pair
from market_index_feeds.errors import Unavailable
from market_index_feeds.line_content import RejectedLine
from market_index_feeds.medium import Progress, Source, Update
from market_index_feeds.ndjson.recording import LACKS_COMMITS, SAMPLE, RecordedChange, open_recording, read_recording
from market_index_feeds.opened import shown_name
from market_index_feeds.store import published_now

LOOP_SECONDS: Final = 1.0
"""The time from the last change to the first one of the next round, divided by the speed."""

CHECK_SECONDS: Final = 1.0
"""The interval between two empty updates, which report that the source is healthy."""


class ReplaySource(Source):
    """A recording, replayed once or in a loop. Each process would replay it by itself, at times of its own."""

    record = "lines"
    followed_by_many = False

    def __init__(
        self,
        path: str,
        *,
        speed: float = 1.0,
        loop: bool = False,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        """`clock` returns seconds; `wait` waits for an event at most so many seconds."""
        super().__init__("sample" if path == SAMPLE else shown_name(path))
        self._path, self._speed = path, speed
        self.is_endless: bool = loop
        self._clock, self._wait = clock, wait
        # The pairs that were published, and not retracted since.
        self._pairs: set[Pair] = set()

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Yield the first change as the whole content, and each later change when it is due."""
        due = self._clock()
        while not stop.is_set():
            due = yield from self._round(stop, due, progress)
            if not self.is_endless and not stop.is_set():
                yield Update()
                return
            due, progress = due + LOOP_SECONDS / self._speed, None

    def _round(self, stop: Event, due: float, progress: Progress | None) -> Generator[Update, None, float]:
        """Yield the changes of the whole recording, the first one at the time `due`. Return the time of the last."""
        before: RecordedChange | None = None
        with open_recording(self._path) as file:
            for one in read_recording(file):
                if stop.is_set():
                    return due
                if isinstance(one, RejectedLine):
                    yield Update(rejected=[one.as_record()], is_loading=True)
                elif isinstance(one, RecordedChange):
                    if before is not None:
                        due += max((one.recorded_at - before.recorded_at).total_seconds(), 0) / self._speed
                    yield from self._until(due, stop)
                    if stop.is_set():
                        return due
                    update = self._update(one, is_first=before is None)
                    yield update
                    self._pairs.difference_update(update.removed)
                    before = one
                elif before is None and progress is not None:
                    progress(one.offset, one.size)
        if before is None:
            raise Unavailable(LACKS_COMMITS)
        return due

    def _until(self, due: float, stop: Event) -> Generator[Update, None, None]:
        """Wait until a time, or until `stop` is set."""
        while (seconds := due - self._clock()) > 0:
            if self._wait(stop, min(seconds, CHECK_SECONDS)):
                return
            if seconds > CHECK_SECONDS:
                yield Update(has_more=True)

    def _update(self, change: RecordedChange, *, is_first: bool) -> Update:
        changes = change.changes
        removed = set(changes.removed)
        if is_first and not changes.invalid:
            # An invalid line may contain a book of any of them: they are absent, but not retracted.
            removed |= self._pairs.difference(changes.books)
        self._pairs |= changes.books.keys()
        return Update(
            books=changes.books.values(),
            removed=removed,
            replaces_all=is_first,
            invalid=changes.invalid,
            freshness=published_now(change.freshness.as_of),
            is_publication=True,
            books_read=changes.books_read,
            has_more=True,
        )
