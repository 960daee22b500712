"""The feed from a bucket of NATS JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from threading import Lock

from attrs import define, field

from market_index import LiveIndex, MarketIndexError, OrderBook, Pair, PairNotFound
from market_index_feeds.errors import FeedError
from market_index_feeds.medium import Progress
from market_index_feeds.old_feed import LOG, Feed
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.bucket import Message
from market_index_feeds.nats.cluster import Cluster
from market_index_feeds.nats.errors import BUCKET_ERRORS, Lost, NoBucket
from market_index_feeds.nats.event_loop import EventLoop
from market_index_feeds.nats.records import book_of, key_of, pair_of
from market_index_feeds.nats.retry import OPENING, Patience, retry
from market_index_feeds.nats.watch import Watch, WatchState
from market_index_feeds.opened import shown_name
from market_index_feeds.backoff import next_backoff


@define
class _Snapshot:
    """A bucket as it is read from its start.

    `books` are those that were read, with the identity of the message that brought each; `same` are the keys under
    which the very message stands that is live already, `refused` those whose value holds no book.
    """

    books: dict[str, tuple[tuple[int, int], OrderBook]] = field(factory=dict)
    same: set[str] = field(factory=set)
    refused: set[str] = field(factory=set)


class NatsFeed(Feed):
    """A bucket, followed: each change goes live as it comes.

    Whatever may have been missed (a server was restarted, the bucket made again, purged, or rolled back) is noticed
    within two seconds, and the bucket is read anew. While no server answers, the last good index stays up.
    """

    record = "values"

    def __init__(self, address: Address, opening: Patience = OPENING) -> None:
        super().__init__(address.shown)
        self._patience = opening
        self._cluster = Cluster(address)
        self._event_loop: EventLoop | None = None
        self._gate = Lock()
        self._following: Future[None] | None = None
        self._watch: Watch | None = None
        self._snapshot: _Snapshot | None = None
        # Of each key whose book is live: the sequence and the time of the message that brought it.
        self._live: dict[str, tuple[int, int]] = {}
        self._read_length = self._length = 0

    def read_order_book(self, pair: Pair) -> OrderBook:
        """Return the book of one pair as the bucket holds it now, without reading the others."""
        self._begin()
        key = key_of(pair)
        with self, self._opening() as event_loop:
            last = event_loop.run(retry(lambda: self._last(key), self._patience))
        if last is None or last.value is None:
            raise PairNotFound(pair)
        try:
            return book_of(key, last.value, last.headers)
        except MarketIndexError as error:
            raise FeedError(f"{self.source} value {key} cannot be read: {error}") from None

    def close(self) -> None:
        """Stop following. What is live stays live. Closing twice does no harm."""
        with self._gate:
            self._closing.set()
            if self._following is not None:
                self._following.cancel()
        super().close()

    def _release(self) -> None:
        event_loop, self._event_loop = self._event_loop, None
        if event_loop is not None and event_loop.is_ours:
            event_loop.close(self._disconnect)

    def _load(self, live: LiveIndex, progress: Progress | None) -> None:
        def telling() -> None:
            if progress is not None:
                progress(min(self._read_length, self._length), self._length)

        with self._opening() as event_loop:
            event_loop.run(retry(lambda: self._read_whole(live), self._patience), telling)

    @contextmanager
    def _opening(self) -> Iterator[EventLoop]:
        closed = FeedError(f"{self.source} was closed while it was being opened")
        with self._gate:
            if self._closing.is_set():
                raise closed
            try:
                event_loop = self._event_loop = EventLoop(f"connection to {self.source}")
            except (OSError, RuntimeError) as error:
                raise FeedError(f"{self.source} cannot be opened: {_reason(error)}") from None
        try:
            yield event_loop
        except CancelledError:
            raise closed from None
        except BUCKET_ERRORS as error:
            raise FeedError(f"{self.source} cannot be opened: {_reason(error)}") from None

    def _follow(self, live: LiveIndex) -> None:
        with self._gate:
            event_loop = self._event_loop
            if self._closing.is_set() or event_loop is None:
                return
            self._following = event_loop.start(self._follow_on(live))
        with suppress(CancelledError):
            self._following.result()

    async def _follow_on(self, live: LiveIndex) -> None:
        pause = 0.0
        while True:
            try:
                await self._step(self._watch or await self._begin_watch(), live)
                pause = pause if self._snapshot else 0.0
            except BUCKET_ERRORS as error:
                await self._give_up(error)
                await asyncio.sleep(pause)
                pause = next_backoff(pause)

    async def _give_up(self, error: Exception) -> None:
        """Stop watching, and say why where it is not mended by watching anew."""
        if isinstance(error, Lost):
            LOG.info("%s is read anew: %s", self.source, error)
            await self._unwatch()
            return
        what = "is not there" if isinstance(error, NoBucket) else "cannot be read"
        self._tell(f"{what}; its {len(self._live)} pairs stay as they were", f": {_reason(error)}")
        await self._disconnect()

    async def _read_whole(self, live: LiveIndex) -> None:
        watch = await self._begin_watch()
        try:
            while self._snapshot is not None:
                await self._step(watch, live)
        except BaseException:
            await self._disconnect()
            raise

    async def _begin_watch(self) -> Watch:
        """Begin to read the bucket from its start."""
        watch = self._watch = await Watch.open(await self._cluster.connect())
        self._snapshot = _Snapshot()
        self._read_length, self._length = 0, watch.stored.length
        return watch

    async def _unwatch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.close()

    async def _disconnect(self) -> None:
        await self._unwatch()
        await self._cluster.disconnect()

    async def _last(self, key: str) -> Message | None:
        return await (await self._cluster.connect()).last(key)

    async def _step(self, watch: Watch, live: LiveIndex) -> None:
        """Wait for something new, and publish it: a change at once, what is read from the start when it is whole."""
        messages = await watch.next()
        if self._snapshot is not None:
            for message in messages:
                self._gather(self._snapshot, message)
            if watch.state is WatchState.IN_SYNC:
                self._publish_whole(live, self._snapshot)
                self._snapshot = None
        elif messages:
            self._publish_changes(live, messages)
        if self._snapshot is None:
            self.revision = watch.revision
            self._tell(None)
            self._good_at = watch.agreed_at

    def _gather(self, snapshot: _Snapshot, message: Message) -> None:
        key, identity = message.key, (message.sequence, message.time)
        self._read_length += len(message.value or b"")
        snapshot.books.pop(key, None)
        snapshot.same.discard(key)
        snapshot.refused.discard(key)
        if message.value is None:
            self._unreadable.discard(key)
        elif self._live.get(key) == identity:
            snapshot.same.add(key)
        elif (book := self._read(message)) is None:
            snapshot.refused.add(key)
        else:
            snapshot.books[key] = identity, book

    def _publish_whole(self, live: LiveIndex, snapshot: _Snapshot) -> None:
        """Publish what the bucket holds, and retract in the same swap what it holds no longer."""
        stay = {key: identity for key, identity in self._live.items() if key in snapshot.same | snapshot.refused}
        stands = stay | {key: identity for key, (identity, _) in snapshot.books.items()}
        live.update((book for _, book in snapshot.books.values()), _pairs(self._live.keys() - stands.keys()))
        self._live = stands

    def _publish_changes(self, live: LiveIndex, messages: list[Message]) -> None:
        books: dict[str, OrderBook] = {}
        gone: set[str] = set()
        for message in messages:
            key = message.key
            if message.value is None:
                books.pop(key, None)
                gone.add(key)
                self._live.pop(key, None)
                self._unreadable.discard(key)
            elif (book := self._read(message)) is not None:
                books[key] = book
                self._live[key] = message.sequence, message.time
        # A book that came after its pair was retracted holds.
        live.update(books.values(), _pairs(gone))

    def _read(self, message: Message) -> OrderBook | None:
        """Return the book of a value, or None where it holds none."""
        key, value, headers = message.key, message.value or b"", message.headers
        return self._taken(key, f"value {key}", lambda: book_of(key, value, headers))


def open_nats_feed(source: str, opening: Patience = OPENING) -> NatsFeed:
    """Open a bucket for following. Its servers are asked when the feed is started.

    Raises `FeedError` for what is no address of one.
    """
    try:
        return NatsFeed(Address.parse(source), opening)
    except ValueError as error:
        raise FeedError(f"{shown_name(source)} cannot be opened: {error}") from None


def _pairs(keys: Iterable[str]) -> list[Pair]:
    return [pair for pair in map(pair_of, keys) if pair is not None]


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
