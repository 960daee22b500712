"""The freshness of a bucket: one message, written after the books that it describes.

Theory of operation
===================

Readers see the messages of a bucket one by one. So the freshness of a change is written after its last book is
acknowledged. Until then, and if the change fails, later books have an earlier freshness, which is a lower bound.

- A relay may go back in time, for example to a service that is behind. If a new freshness has no as_of, or is not later
  than the stored one by the clock of the publisher, the stored one is withdrawn before the first book is written. It is
  also withdrawn before all books are replaced: while the relay was down, its source may have been rolled back.
- If the servers do not accept a book, the bucket contains an outdated one. As long as it does, the as_of of all books
  is not known.
- A change that keeps as_of takes it from the stored message. If another publisher writes at the same time, it takes it
  again from the new message.
"""

from __future__ import annotations

from contextlib import suppress

from market_index import Freshness, InvalidFreshness
from market_index.freshness import UNKNOWN
from market_index_feeds.nats.bucket import Message
from market_index_feeds.nats.errors import NoBucket
from market_index_feeds.nats.publisher import Change, Publisher
from market_index_feeds.nats.records import FRESHNESS_KEY, Record, freshness_of, freshness_record
from market_index_feeds.nats.retry import RetryTimeouts, retry
from market_index_feeds.nats.writes import WriteState
from market_index_feeds.store import StoreError


class BucketFreshness:
    """Writes changes of a bucket with their freshness.

    `problem` is why the servers did not accept the last freshness; empty if they did.
    """

    def __init__(self, publisher: Publisher, target: str, timeouts: RetryTimeouts) -> None:
        self.problem: str = ""
        self._publisher = publisher
        self._target = target
        self._timeouts = timeouts
        # The stored freshness; None: it must be read.
        self._stored: Freshness | None = None
        # The keys of stored books that are older than the last published ones.
        self._outdated: set[str] = set()

    async def open(self) -> None:
        """Read the stored freshness. If the servers do not know a new bucket yet, the first change reads it."""
        with suppress(NoBucket):
            await self._read()

    async def _read(self) -> Freshness:
        found = await self._publisher.last([FRESHNESS_KEY])
        last = found[FRESHNESS_KEY]
        if last is not None:
            self._publisher.sequences[FRESHNESS_KEY] = last.sequence
        self._stored = _freshness_in(last)
        return self._stored

    async def write(self, change: Change, freshness: Freshness, *, keeps_as_of: bool, is_whole: bool) -> int:
        """Write a change and its freshness. Return the sequence of the last message, 0 if nothing is written.

        A change that `is_whole` determines all books of the bucket. A freshness that is already stored is not written
        again then.

        If the servers do not accept the freshness, the earlier one stays stored, and `problem` is set. Raises the same
        errors as `Publisher.write`.
        """
        self.problem = ""
        if is_whole:
            self._stored = None
        before = await retry(self._read, self._timeouts) if self._stored is None else self._stored
        is_other = before.as_of not in {None, freshness.as_of}
        # A freshness in flight could be stored after the books.
        is_in_flight = FRESHNESS_KEY in self._publisher.unacknowledged
        may_be_newer = is_in_flight or (is_other and (is_whole or _may_go_back(before, freshness)))
        if change.writes and may_be_newer and not keeps_as_of:
            await self._put(UNKNOWN, keeps_as_of=False)
            self.require_accepted()
        await self._publisher.write(change)
        self._outdated = set() if is_whole else self._outdated - change.written
        await self._note_outdated(change)
        if self._outdated:
            freshness, keeps_as_of = freshness.without_as_of(), False
        if is_whole and freshness == self._stored and FRESHNESS_KEY not in self._publisher.unacknowledged:
            return change.revision
        return await self._put(freshness, keeps_as_of=keeps_as_of) or change.revision

    def require_accepted(self) -> None:
        """Raise `StoreError` if the servers did not accept the last freshness."""
        if self.problem:
            raise StoreError(f"{self._target} does not accept the freshness of its books: {self.problem}")

    async def _note_outdated(self, change: Change) -> None:
        not_written = {write.key for write in change.writes} - change.written
        if not_written:
            self._outdated |= await retry(lambda: self._publisher.stored_among(not_written), self._timeouts)

    async def _put(self, freshness: Freshness, *, keeps_as_of: bool) -> int:
        """Write a freshness, and return its sequence; 0 if it is not accepted. `keeps_as_of` adds the stored as_of."""
        written = freshness

        def keeping(before: Freshness) -> Record:
            nonlocal written
            written = Freshness(before.as_of, freshness.published_at)
            return freshness_record(written)

        before, self._stored = self._stored or UNKNOWN, None
        change = Change({FRESHNESS_KEY: keeping(before) if keeps_as_of else freshness_record(freshness)})
        (write,) = change.writes
        if keeps_as_of:
            write.derived = lambda last: keeping(_freshness_in(last))
        await self._publisher.write(change)
        if write.state is WriteState.ACKNOWLEDGED:
            self._stored = written
        else:
            self.problem = str(write.rejection or "it is too large")
        return change.revision


def _freshness_in(message: Message | None) -> Freshness:
    """Return the freshness of a message; unknown if it is missing, deleted or invalid."""
    if message is None or message.value is None:
        return UNKNOWN
    try:
        return freshness_of(message.value, message.headers)
    except InvalidFreshness:
        return UNKNOWN


def _may_go_back(before: Freshness, after: Freshness) -> bool:
    """Whether the as_of after a change may be earlier than the one before it."""
    if after.as_of is None or before.published_at is None or after.published_at is None:
        return True
    return after.published_at <= before.published_at
