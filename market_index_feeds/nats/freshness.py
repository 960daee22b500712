"""What a bucket says of all its books, such as their freshness: one message, written after the books it describes.

Theory of operation
===================

Readers see the messages of a bucket one by one. So the freshness of a change is written after its last book is
acknowledged. Until then, and if the change fails, later books have an earlier freshness, which is a lower bound.

- A relay may go back in time, for example to a service that is behind. If a new freshness has no as_of, or is not later
  than the stored one by the clock of the publisher, the stored one is withdrawn before the first book is written. It is
  also withdrawn before all books are replaced: while the relay was down, its source may have been rolled back.
- If the servers do not accept a book, the bucket contains an outdated one. As long as it does, the as_of of all books
  is not known.
- A change that keeps the as_of or the mark `complete` takes it from the stored message. If another publisher writes at
  the same time, it takes it again from the new message.
"""

from __future__ import annotations

from market_index import Freshness, InvalidFreshness
from market_index_feeds.nats.bucket import Message
from market_index_feeds.nats.publisher import Publisher
from market_index_feeds.nats.records import FRESHNESS_KEY, Record, Statement, statement_of, statement_record
from market_index_feeds.nats.writes import Outcome, Write, WriteBatch
from market_index_feeds.store import StoreError, published_now


class BucketFreshness:
    """Writes changes of a bucket with their freshness.

    `problem` is why the servers did not accept the last freshness; empty if they did.
    """

    def __init__(self, publisher: Publisher, target: str) -> None:
        self.problem: str = ""
        self._publisher = publisher
        self._target = target
        # What is stored; None: it must be read.
        self._stored: Statement | None = None
        # The keys of stored books that are older than the last published ones.
        self._outdated: set[str] = set()

    async def _read(self) -> Statement:
        last = await self._publisher.last([FRESHNESS_KEY])
        self._stored = _statement_in(last[FRESHNESS_KEY])
        return self._stored

    async def update(self, batch: WriteBatch, freshness: Freshness | None) -> int:
        """Write a change and its freshness; None keeps the as_of. Return the sequence of the last message.

        If the servers do not accept the freshness, the earlier one stays stored, and `problem` is set. Raises the same
        errors as `Publisher.write`.
        """
        before = self._stored or await self._read()
        withdraws = freshness is not None and _may_go_back(before.freshness, freshness)
        await self._write_books(batch, withdraws=withdraws)
        return await self._put(self._known(freshness)) or batch.revision

    async def replace(self, batch: WriteBatch, freshness: Freshness, complete: str | None) -> int:
        """Write a change that determines all books, and its freshness. Return the sequence, 0 if nothing is written.

        `complete` is the mark, None if it is kept. It is also kept if the servers do not accept the book of a new pair,
        or if keys are gone that were stored before. What is already stored is not written again.
        """
        before = await self._read()
        self._outdated.clear()
        await self._write_books(batch, withdraws=before.freshness.as_of not in {None, freshness.as_of})
        has_all_keys = complete is not None and self._publisher.has_all_keys(await self._publisher.state())
        if not has_all_keys or not self._outdated.issuperset(batch.not_written):
            complete = before.complete
        is_stored = self._stored == Statement(freshness, complete) and not self._outdated
        if is_stored and FRESHNESS_KEY not in self._publisher.unacknowledged:
            return batch.revision
        return await self._put(self._known(freshness), complete) or batch.revision

    def require_accepted(self) -> None:
        """Raise `StoreError` if the servers did not accept the last freshness."""
        if self.problem:
            raise StoreError(f"{self._target} does not accept the freshness of its books: {self.problem}")

    async def _write_books(self, batch: WriteBatch, *, withdraws: bool) -> None:
        """Write the books of a change, after the earlier freshness is withdrawn if it may be newer than them."""
        self.problem = ""
        # A freshness in flight could be stored after the books.
        if batch.writes and (withdraws or FRESHNESS_KEY in self._publisher.unacknowledged):
            await self._put(Freshness())
            self.require_accepted()
        await self._publisher.write(batch)
        self._outdated -= batch.written
        if batch.not_written:
            self._outdated |= await self._publisher.stored_among(batch.not_written)

    def _known(self, freshness: Freshness | None) -> Freshness | None:
        """Return the freshness without its as_of if a book is outdated."""
        if not self._outdated:
            return freshness
        return published_now(None) if freshness is None else freshness.without_as_of()

    async def _put(self, freshness: Freshness | None, complete: str | None = None) -> int:
        """Write what the bucket says of its books, and return its sequence; 0 if it is not accepted. None is kept."""
        written = Statement()

        def after(before: Statement) -> Record:
            nonlocal written
            now = published_now(before.freshness.as_of) if freshness is None else freshness
            written = Statement(now, before.complete if complete is None else complete)
            return statement_record(written)

        before, self._stored = self._stored or await self._read(), None
        write = Write(FRESHNESS_KEY, after(before), derived=lambda last: after(_statement_in(last)))
        await self._publisher.write(WriteBatch([write]))
        if write.outcome is Outcome.STORED:
            self._stored = written
        else:
            self.problem = write.reason
        return write.sequence


def _statement_in(message: Message | None) -> Statement:
    """Return what a message says; nothing if it is missing, deleted or invalid."""
    if message is None or message.value is None:
        return Statement()
    try:
        return statement_of(message.value, message.headers)
    except InvalidFreshness:
        return Statement()


def _may_go_back(before: Freshness, after: Freshness) -> bool:
    """Whether the as_of after a change may be earlier than the one before it."""
    if before.as_of in {None, after.as_of}:
        return False
    if after.as_of is None or before.published_at is None or after.published_at is None:
        return True
    return after.published_at <= before.published_at
