"""The live index: a mutable reference to the current market index, which is immutable.

It is the only mutable object of the domain. Any thread may read it and wait for its changes, and publishers and feeds
replace its index atomically.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final, NoReturn, final
from weakref import WeakSet

from market_index.errors import InvalidOrderBook, safe_repr
from market_index.freshness import Freshness
from market_index.index import MarketIndex
from market_index.order_book import OrderBook
from market_index.pairs import Pair
from market_index.waiters import Waiters


@final
class LiveIndex:
    """A reference to the current `MarketIndex`, which is replaced atomically.

    Any thread may read and write. A reader gets one whole index, never a mix of two. Writers are serialized by a lock.
    Code that reads several books reads `current` once, so that they are of one index.

    >>> from market_index import ADA, AssetId, OrderBook, Pair
    >>> live = LiveIndex()
    >>> live.publish(OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA)))
    <MarketIndex: 1 pairs>
    >>> live.current
    <MarketIndex: 1 pairs>
    """

    __slots__ = ("__weakref__", "_current", "_is_updating", "_lock", "_waiters")

    def __init__(self, books: Iterable[OrderBook] = ()) -> None:
        self._current = MarketIndex(books)
        self._lock, self._is_updating = RLock(), False
        self._waiters = Waiters()
        _INSTANCES.add(self)

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
            timeout: In seconds; None waits without end.

        >>> from market_index import ADA, AssetId, OrderBook, Pair
        >>> live = LiveIndex()
        >>> seen = live.wait()
        >>> live.wait(after=seen, timeout=0.01) is seen
        True
        >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), spot="0.0041")
        >>> _ = live.publish(book)
        >>> live.wait(after=seen).changes_since(seen) == ((book,), ())
        True
        """
        if self._current is after:
            self._waiters.wait(lambda: self._current is not after, timeout)
        return self._current

    async def changed(self, after: MarketIndex | None = None) -> MarketIndex:
        """Wait until the current index is not `after`, and return it: `wait` for a task of any asyncio event loop.

        `asyncio.timeout` limits the time.

        Raises:
            RuntimeError: No asyncio event loop runs in this thread.
        """
        if self._current is after:
            await self._waiters.wait_in_task(lambda: self._current is not after)
        return self._current

    def publish(self, *books: OrderBook) -> MarketIndex:
        """Replace the books of their pairs atomically, and return the next index.

        Raises:
            InvalidOrderBook: A value is not an order book. Nothing is changed.
            RuntimeError: The caller is a signal handler that interrupted another update of the same thread.
        """
        return self.update(books)

    def retract(self, *pairs: Pair) -> MarketIndex:
        """Remove these pairs atomically, and return the next index; a pair that is not tracked is ignored.

        Raises:
            TypeError: A value is not a `Pair`. Nothing is changed.
            RuntimeError: As `publish`.
        """
        return self.update((), pairs)

    def update(
        self, publish: Iterable[OrderBook], retract: Iterable[Pair] = (), freshness: Freshness | None = None
    ) -> MarketIndex:
        """Retract pairs and publish books atomically, and return the next index.

        A pair in both stays, with its new book. `freshness` is that of all books of the index; None: unchanged.

        Raises:
            InvalidOrderBook: A value of `publish` is not an order book. Nothing is changed.
            InvalidFreshness: `freshness` is not a `Freshness`. Nothing is changed.
            TypeError: A value of `retract` is not a `Pair`. Nothing is changed.
            RuntimeError: As `publish`.
        """
        # Before the lock: an iterable of the caller may be slow, or may itself publish.
        books, pairs = tuple(publish), tuple(retract)
        with self._updating():
            following = self._current.without(*pairs) if pairs else self._current
            following = following.with_books(*books)
            following = following if freshness is None else following.with_freshness(freshness)
            self._current = following
        self._waiters.wake()
        return following

    def show(self, index: MarketIndex, instead_of: MarketIndex | None = None) -> bool:
        """Replace the whole index atomically: for a live index with a single writer.

        With `instead_of`, it is replaced only if that is the current index, so that the caller learns of other writers.
        Return whether it was replaced.

        Raises:
            InvalidOrderBook: The value is not a market index.
            RuntimeError: As `publish`.
        """
        if type(index) is not MarketIndex:
            raise InvalidOrderBook(f"index must be a MarketIndex, got {type(index).__name__}: {safe_repr(index)}")
        with self._updating():
            if instead_of is not None and self._current is not instead_of:
                return False
            self._current = index
        self._waiters.wake()
        return True

    @contextmanager
    def _updating(self) -> Iterator[None]:
        """Hold the lock. Raises `RuntimeError` in a signal handler that interrupted another update."""
        with self._lock:
            if self._is_updating:
                raise RuntimeError(
                    "a LiveIndex must not be updated by a signal handler that interrupts an update of it"
                )
            self._is_updating = True
            try:
                yield
            finally:
                self._is_updating = False

    def _reset(self) -> None:
        self._lock, self._is_updating = RLock(), False
        self._waiters = Waiters()

    def __repr__(self) -> str:
        return f"<LiveIndex: {len(self._current)} pairs>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a LiveIndex is a reference and cannot be pickled or copied; pickle or copy its current index")


_INSTANCES: Final[WeakSet[LiveIndex]] = WeakSet()


def _reset_all() -> None:
    """Forget locks and waiters in a forked child: their threads do not exist in it, and could never release a lock."""
    for live in list(_INSTANCES):
        live._reset()  # noqa: SLF001  # of the class above


if hasattr(os, "register_at_fork"):  # pragma: no branch  # Windows has no fork
    os.register_at_fork(after_in_child=_reset_all)
