"""The one mutable cell: the current market index."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import RLock
from typing import Final, NoReturn, final
from weakref import WeakSet, ref

from market_index.errors import InvalidOrderBook, safe_repr
from market_index.freshness import UNKNOWN, Freshness
from market_index.index import MarketIndex
from market_index.order_book import OrderBook
from market_index.pairs import Pair


@final
class LiveIndex:
    """Holds the current `MarketIndex` and replaces it atomically.

    Any thread may read and write. A reader sees one whole index or the next, never a mix; writers take turns. Code that
    reads more than once takes `current` once and reads from that.

    >>> from market_index import ADA, AssetId, OrderBook, Pair
    >>> live = LiveIndex()
    >>> live.publish(OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA)))
    <MarketIndex: 1 pairs>
    >>> live.current
    <MarketIndex: 1 pairs>
    """

    __slots__ = ("__weakref__", "_current", "_is_shared", "_is_updating", "_lock", "_writer")

    def __init__(self, books: Iterable[OrderBook] = ()) -> None:
        self._current = MarketIndex(books)
        self._lock, self._is_updating = RLock(), False
        # The feed whose books it contains, or this index if the books are those of its callers.
        self._writer: ref[object] | None = ref(self) if self._current else None
        self._is_shared = False
        _INSTANCES.add(self)

    @property
    def current(self) -> MarketIndex:
        """The current index: immutable, so it can be kept and read at any time."""
        return self._current

    def publish(self, *books: OrderBook) -> MarketIndex:
        """Replace the books of their pairs atomically, and return the next index.

        Raises `InvalidOrderBook` for a value that is not an order book, and then changes nothing; `RuntimeError` in a
        signal handler that interrupted another update of the same thread.
        """
        return self.update(books)

    def retract(self, *pairs: Pair) -> MarketIndex:
        """Remove these pairs atomically, and return the next index; a pair that is not tracked is ignored."""
        return self.update((), pairs)

    def update(
        self,
        publish: Iterable[OrderBook],
        retract: Iterable[Pair] = (),
        as_of: str | None = None,
        published_at: datetime | None = None,
    ) -> MarketIndex:
        """Retract those pairs and publish those books atomically, and return the next index.

        A pair named on both sides stays, with its new book. `as_of` and `published_at` are kept unless they are given.
        Raises as `publish` does, and `InvalidFreshness`.
        """
        return self._update(self, publish, retract, lambda known: known.changed(as_of, published_at))

    def show(self, index: MarketIndex) -> None:
        """Make this index current, atomically, in place of whatever was: for a live index with one owner.

        Raises `InvalidOrderBook` for a value that is not a market index, and `RuntimeError` as `publish` does.
        """
        if type(index) is not MarketIndex:
            raise InvalidOrderBook(f"index must be a MarketIndex, got {type(index).__name__}: {safe_repr(index)}")
        with self._updating():
            self._current = index
            # Of those who updated it before, nothing is left.
            self._writer, self._is_shared = ref(self), False

    def update_from(
        self, feed: object, publish: Iterable[OrderBook], retract: Iterable[Pair], freshness: Freshness
    ) -> MarketIndex:
        """Update as `update` does, on behalf of a feed: the freshness is that of all its books.

        Once others have updated it as well, the freshness of the whole is not known, and stays so.
        """
        return self._update(feed, publish, retract, lambda _: freshness)

    def _update(
        self,
        writer: object,
        publish: Iterable[OrderBook],
        retract: Iterable[Pair],
        after: Callable[[Freshness], Freshness],
    ) -> MarketIndex:
        # The caller's iterables may be slow, or publish themselves: consume them before other writers have to wait.
        books, pairs = tuple(publish), tuple(retract)
        with self._updating():
            current = following = self._current
            is_shared = self._is_shared or (self._writer is not None and self._writer() is not writer)
            freshness = after(current.freshness)
            if pairs:
                following = following.without(*pairs)
            following = following.with_books(*books)
            self._current = following.with_freshness(UNKNOWN if is_shared else freshness)
            self._writer, self._is_shared = self._writer or ref(writer), is_shared
            return self._current

    @contextmanager
    def _updating(self) -> Iterator[None]:
        """Exclude other writers. Raises `RuntimeError` in a signal handler that interrupted another update."""
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

    def _reset_lock(self) -> None:
        self._lock, self._is_updating = RLock(), False

    def __repr__(self) -> str:
        return f"<LiveIndex: {len(self._current)} pairs>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a LiveIndex is a place, not a value: pickle or copy its current index")


_INSTANCES: Final[WeakSet[LiveIndex]] = WeakSet()


def _reset_all_locks() -> None:
    """In a forked child: the thread that was updating does not exist there and would hold the lock for ever."""
    for live in list(_INSTANCES):
        live._reset_lock()  # noqa: SLF001  # of the class above


if hasattr(os, "register_at_fork"):  # pragma: no branch  # Windows has no fork
    os.register_at_fork(after_in_child=_reset_all_locks)
