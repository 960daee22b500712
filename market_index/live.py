"""The live index: a mutable reference to the current market index, which is immutable.

It is the only mutable object of the domain. Any thread may read it and wait for its changes, and publishers and feeds
replace its index atomically.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import suppress
from math import isnan
from threading import TIMEOUT_MAX, Condition
from typing import TYPE_CHECKING, NoReturn, TypeAlias, final
from weakref import WeakValueDictionary

from market_index.errors import InvalidOrderBook, require_iterable, safe_repr
from market_index.freshness import Freshness
from market_index.index import MarketIndex
from market_index.order_book import OrderBook
from market_index.pairs import Pair, require_pair

if TYPE_CHECKING:  # asyncio loads 60 modules; a program whose tasks wait has loaded it
    from asyncio import AbstractEventLoop, Event

Change: TypeAlias = tuple[MarketIndex, tuple[OrderBook, ...], tuple[Pair, ...]]
"""An index, its books that differ from those of the index before, and the pairs that only the index before has."""


@final
class LiveIndex:
    """A reference to the current `MarketIndex`, which is replaced atomically.

    Any thread may read and write. A reader gets one whole index, never a mix of two. Writers are serialized by a lock.
    To read several books of one index, read `current` once. A signal handler must not publish, and no thread may
    publish while the process forks.

    It begins with `books`, or with an index, which it shows as it is.

    >>> from market_index import ADA, AssetId, OrderBook, Pair
    >>> live = LiveIndex()
    >>> live.publish(OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA)))
    <MarketIndex: 1 pairs>
    >>> live.current
    <MarketIndex: 1 pairs>
    """

    __slots__ = ("__weakref__", "_condition", "_current", "_events")

    def __init__(self, books: Iterable[OrderBook] | Mapping[Pair, OrderBook] = ()) -> None:
        self._current = books if isinstance(books, MarketIndex) else MarketIndex(books)
        # Its lock is held while the index is replaced. Threads wait for it.
        self._condition = Condition()
        # The event for which the tasks of each event loop wait. It is used for one change, and exists while one waits.
        self._events: WeakValueDictionary[AbstractEventLoop, Event] = WeakValueDictionary()

    @property
    def current(self) -> MarketIndex:
        """The current index, which is immutable: it can be stored and read later."""
        return self._current

    def wait(self, after: MarketIndex | None = None, timeout: float | None = None) -> MarketIndex:
        """Wait until the current index is not `after`, and return it; return `after` at the timeout.

        A change of the freshness alone also replaces the index: then `changes_since(after)` is empty. Several changes
        that were made in between are seen as one. Without `after` it returns the current index without waiting. A
        coroutine awaits `changed` instead, because this method blocks its thread.

        Args:
            after: The index that the caller knows, compared by identity.
            timeout: In seconds; None and infinity wait without end, and a negative number does not wait.

        Raises:
            ValueError: `timeout` is not a number (NaN).

        >>> live = LiveIndex()
        >>> seen = live.wait()
        >>> live.wait(after=seen, timeout=0.01) is seen
        True
        """
        if timeout is not None:
            if isnan(timeout):
                raise ValueError("timeout must be None or a number of seconds, got nan")
            timeout = min(timeout, TIMEOUT_MAX)
        if self._current is after:
            with self._condition:
                self._condition.wait_for(lambda: self._current is not after, timeout)
        return self._current

    async def changed(self, after: MarketIndex | None = None) -> MarketIndex:
        """Wait until the current index is not `after`, and return it: `wait` for a task of any asyncio event loop.

        `asyncio.timeout` limits the time.

        Raises:
            RuntimeError: No asyncio event loop runs in this thread.
        """
        while self._current is after:
            from asyncio import Event, get_running_loop  # noqa: PLC0415  # see above

            with self._condition:
                event = self._events.setdefault(get_running_loop(), Event())
                if self._current is not after:
                    break
            await event.wait()
        return self._current

    def changes(self, timeout: float | None = None) -> Iterator[Change]:
        """Wait for each change, and yield the index, its new books, and the pairs that it no longer has.

        The first step is the current index with all its books, at once. A slow caller gets fewer and larger steps: each
        is the difference to the step before, and none is lost. A step without books and pairs is a change of the
        freshness.

        Args:
            timeout: End after this many seconds without a change; None never ends. A process does not exit while a
                thread waits here without end, unless the thread is a daemon. To let it exit, pass a timeout, and
                iterate again until the program should end.

        >>> from market_index import ADA, AssetId, OrderBook, Pair
        >>> live = LiveIndex([OrderBook(Pair(AssetId(bytes(28), b"SNEK"), ADA))])
        >>> changes = live.changes()
        >>> [len(part) for part in next(changes)]
        [1, 1, 0]
        >>> _ = live.retract(*live.current)
        >>> [len(part) for part in next(changes)]
        [0, 0, 1]
        >>> [len(index) for index, _, _ in live.changes(timeout=0)]
        [0]
        """
        before, index = MarketIndex(), self._current
        while True:
            yield index, *index.changes_since(before)
            before, index = index, self.wait(index, timeout)
            if index is before:
                return

    async def changes_async(self) -> AsyncGenerator[Change, None]:
        """Return `changes` for a task of any asyncio event loop: `async for index, books, pairs in ...`."""
        before, index = MarketIndex(), self._current
        while True:
            yield index, *index.changes_since(before)
            before, index = index, await self.changed(index)

    def publish(self, *books: OrderBook) -> MarketIndex:
        """Replace the books of their pairs atomically, and return the next index.

        Raises:
            InvalidOrderBook: A value is not an order book. Nothing is changed.
        """
        return self.update(books)

    def retract(self, *pairs: Pair) -> MarketIndex:
        """Remove these pairs atomically, and return the next index; a pair that is not tracked is ignored.

        Raises:
            InvalidOrderBook: A value is not a `Pair`. Nothing is changed.
        """
        return self.update((), pairs)

    def update(
        self, publish: Iterable[OrderBook], retract: Iterable[Pair] = (), freshness: Freshness | None = None
    ) -> MarketIndex:
        """Retract pairs and publish books atomically, and return the next index.

        A pair in both stays, with its new book. `freshness` is that of all books of the index; None: unchanged.

        Raises:
            InvalidOrderBook: A value of `publish` is not an order book, or one of `retract` not a `Pair`. Nothing is
                changed.
            InvalidFreshness: `freshness` is not a `Freshness`. Nothing is changed.
        """
        # Before the lock: an iterable of the caller may be slow, or may itself publish.
        require_iterable("publish", publish, "OrderBook")
        require_iterable("retract", retract, "Pair")
        books, pairs = tuple(publish), tuple(retract)
        for pair in pairs:
            require_pair(pair)
        with self._condition:
            following = self._current.with_books(*books)
            if pairs:
                published = {book.pair for book in books}
                following = following.without(*[pair for pair in pairs if pair not in published])
            following = following if freshness is None else following.with_freshness(freshness)
            self._replace(following)
        return following

    def show(self, index: MarketIndex, instead_of: MarketIndex | None = None) -> bool:
        """Replace the whole index atomically: for a live index with a single writer.

        With `instead_of`, the index is replaced only if `instead_of` is still the current one. Return whether it was
        replaced: if not, there is another writer.

        Raises:
            InvalidOrderBook: The value is not a market index.
        """
        if type(index) is not MarketIndex:
            raise InvalidOrderBook(f"index must be a MarketIndex, got {type(index).__name__}: {safe_repr(index)}")
        with self._condition:
            if instead_of is not None and self._current is not instead_of:
                return False
            self._replace(index)
        return True

    def _replace(self, index: MarketIndex) -> None:
        """Set the current index, and wake all that wait. The lock is held."""
        if index is self._current:
            return
        self._current = index
        self._condition.notify_all()
        if not self._events:
            return
        events, self._events = self._events, WeakValueDictionary()
        for loop, event in events.items():
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(event.set)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a LiveIndex cannot be copied or pickled, because tasks wait for it: copy its `current`")

    def __repr__(self) -> str:
        return f"<LiveIndex: {len(self._current)} pairs>"
