"""The source of a feed that watches a bucket.

The watch runs on an event loop in a thread of its own. The generator of updates waits for it, and decodes the books of
changes in its own thread. If the watch loses track of the bucket, the whole bucket is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from threading import Event, RLock
from typing import TypeAlias

from attrs import evolve

from market_index import InvalidFreshness, MarketIndexError, OrderBook, Pair, PairNotFound
from market_index_feeds.errors import FeedError, Unavailable, reason_of
from market_index_feeds.medium import Progress, Rejected, Source, Update
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import Message
from market_index_feeds.nats.connection import OPENING, BucketConnection, BucketServers, RetryTimeouts
from market_index_feeds.nats.errors import BUCKET_ERRORS, Lost, shown_text
from market_index_feeds.nats.event_loop import EventLoop
from market_index_feeds.nats.records import FRESHNESS_KEY, Statement, book_of, key_of, pair_of, statement_of
from market_index_feeds.nats.watch import Watch
from market_index_feeds.opened import shown_name

Identity: TypeAlias = tuple[int, int]
"""Identifies a message of a key: its sequence and its time, since sequences repeat after a rollback."""


class NatsSource(Source):
    """A bucket. It is read as a whole again after a purge, a rollback or a lost connection.

    The first reading is retried while no server answers, with the timeouts `opening`. Later the feed tries again.
    """

    record = "values"

    def __init__(self, address: Address, opening: RetryTimeouts = OPENING) -> None:
        super().__init__(address.shown)
        self._servers = BucketServers(address)
        self._opening = opening
        self._was_delivered = False
        # The messages of the live books, by key. They are not decoded again, even if the bucket was replaced.
        self._live: dict[str, Identity] = {}
        self._statement = Statement()
        # Reentrant: a signal handler may interrupt it while this thread holds the lock.
        self._lock = RLock()
        self._loop: EventLoop | None = None
        self._is_interrupted = False

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Yield the content of the bucket, then its changes."""
        try:
            with self._event_loop() as loop:
                reload_reason = None
                while not stop.is_set():
                    watch = yield from self._load(loop, progress, reload_reason)
                    reload_reason = yield from self._follow(loop, watch)
        except CancelledError:
            return

    def read_order_book(self, pair: Pair) -> OrderBook | None:
        """Return the book of one pair without reading the others."""
        key = key_of(pair)
        try:
            with self._event_loop() as loop:
                last = loop.run(self._servers.run(lambda connection: _last(connection, key), self._opening))
        except CancelledError:
            raise Unavailable("it was closed") from None
        if last is None or last.value is None:
            raise PairNotFound(pair)
        try:
            return book_of(key, last.value, last.headers)
        except MarketIndexError as error:
            raise Unavailable(f"value {key}: {error}") from None

    def interrupt(self) -> None:
        """Cancel what `updates` or `read_order_book` waits for, for good."""
        with self._lock:
            self._is_interrupted = True
            loop = self._loop
        if loop is not None:
            loop.close(self._servers.disconnect)

    @contextmanager
    def _event_loop(self) -> Iterator[EventLoop]:
        """Run an event loop. Raises `CancelledError` once it is interrupted, and `Unavailable`."""
        with self._lock:
            if self._is_interrupted:
                raise CancelledError
            try:
                loop = self._loop = EventLoop(f"connection to {self.name}")
            except RuntimeError as error:  # there are too many threads
                raise Unavailable(reason_of(error)) from None
        try:
            # Checked again: a signal handler may have interrupted it while the loop was made.
            if self._is_interrupted:
                raise CancelledError
            yield loop
        except BUCKET_ERRORS as error:
            raise Unavailable(reason_of(error)) from None
        finally:
            loop.close(self._servers.disconnect)

    def _load(
        self, loop: EventLoop, progress: Progress | None, reload_reason: str | None
    ) -> Generator[Update, None, Watch]:
        """Yield the whole content, and return the watch that delivers the changes after it."""
        contents = _Contents(self._live)
        timeouts = RetryTimeouts(0, 0) if self._was_delivered else self._opening
        reading = self._servers.run(lambda connection: _read(connection, contents), timeouts, lambda: contents.messages)
        watch = loop.run(reading, contents.reporter(progress))
        self._statement = Statement()
        yield evolve(
            self._update(contents, watch),
            replaces_all=True,
            unchanged=_pairs(contents.unchanged),
            is_blank=not contents.messages,
            reload_reason=reload_reason,
        )
        kept = contents.unchanged | contents.rejected.keys()
        self._live = {key: identity for key, identity in self._live.items() if key in kept} | contents.identities
        self._was_delivered = True
        return watch

    def _follow(self, loop: EventLoop, watch: Watch) -> Generator[Update, None, str]:
        """Yield the changes until the watch loses track of the bucket. Return the reason."""
        try:
            while True:
                changes = _Contents(self._live)
                changes.add(loop.run(watch.next()))
                yield self._update(changes, watch)
                for key in changes.deleted:
                    self._live.pop(key, None)
                self._live.update(changes.identities)
        except Lost as error:
            loop.run(watch.close())
            return str(error)

    def _update(self, contents: _Contents, watch: Watch) -> Update:
        """Return the update with these contents. While an older book may follow, their freshness is unknown."""
        self._statement = contents.statement or self._statement
        known = self._statement if watch.is_complete else Statement()
        return Update(
            books=contents.books.values(),
            removed=_pairs(contents.deleted),
            is_complete=known.complete == watch.stored.created,
            # A key that is not that of a pair is only counted.
            invalid=_pairs(contents.rejected),
            resolved=[key for key in contents.deleted if pair_of(key) is None],
            rejected=contents.rejected.values(),
            revision=watch.revision,
            freshness=known.freshness,
        )


class _Contents:
    """The content of messages, by key. If a key repeats, its last message wins.

    `identities` has the messages of `books`. A message that is already live is not decoded; its key is in `unchanged`.
    `statement` is the last one on all books, None if there was none. `messages` counts the added messages.
    """

    def __init__(self, live: dict[str, Identity]) -> None:
        self._live = live
        self.restart(0)

    def restart(self, total: int) -> None:
        """Forget everything; `total` is the expected length in bytes."""
        self.books: dict[str, OrderBook] = {}
        self.rejected: dict[str, Rejected] = {}
        self.identities: dict[str, Identity] = {}
        self.unchanged: set[str] = set()
        self.deleted: set[str] = set()
        self.statement: Statement | None = None
        self.messages: int = 0
        self._length, self._total = 0, total

    def reporter(self, progress: Progress | None) -> Callable[[], object] | None:
        """Return a function that reports how much was read; None without `progress`."""
        return None if progress is None else lambda: progress(min(self._length, self._total), self._total)

    def add(self, messages: Collection[Message]) -> None:
        """Add messages in the order of their sequences."""
        self.messages += len(messages)
        for key, message in {message.key: message for message in messages}.items():
            self.books.pop(key, None)
            self.rejected.pop(key, None)
            self.identities.pop(key, None)
            self.unchanged.discard(key)
            self.deleted.discard(key)
            self._add(key, message)

    def _add(self, key: str, message: Message) -> None:
        identity = message.sequence, message.time
        if key == FRESHNESS_KEY:
            self._add_statement(message)
        elif message.value is None:
            self.deleted.add(key)
        elif self._live.get(key) == identity:
            self.unchanged.add(key)
        else:
            self._length += len(message.value)
            try:
                self.books[key] = book_of(key, message.value, message.headers)
                self.identities[key] = identity
            except MarketIndexError as error:
                self.rejected[key] = Rejected(f"value {shown_text(key)}", str(error), pair_of(key) or key)

    def _add_statement(self, message: Message) -> None:
        self.statement = Statement()
        try:
            if message.value is not None:
                self.statement = statement_of(message.value, message.headers)
            # Its last value may have been rejected.
            self.deleted.add(FRESHNESS_KEY)
        except InvalidFreshness as error:
            self.rejected[FRESHNESS_KEY] = Rejected(f"value {FRESHNESS_KEY}", str(error), FRESHNESS_KEY)


def open_nats_source(source: str, opening: RetryTimeouts = OPENING) -> NatsSource:
    """Open a bucket for following. It is connected to when the feed is started.

    Raises `FeedError` if it is not the URL of a bucket.
    """
    try:
        return NatsSource(Address.parse(source), opening)
    except ValueError as error:
        raise FeedError(f"{shown_name(source)} cannot be opened: {error}") from None


def _pairs(keys: Iterable[str]) -> list[Pair]:
    return [pair for pair in map(pair_of, keys) if pair is not None]


async def _read(connection: BucketConnection, contents: _Contents) -> Watch:
    """Read the bucket from the start, and return the watch once it is in sync."""
    watch = await Watch.open(connection)
    contents.restart(watch.stored.length)
    await watch.read_all(contents.add)
    return watch


async def _last(connection: BucketConnection, key: str) -> Message | None:
    """Return the last message of a key of a bucket that stores exactly the last values."""
    await connection.state()  # raises Misconfigured
    return await connection.last(key)
