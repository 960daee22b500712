"""The one mutable cell: which market index is the current one."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import NoReturn, final

from market_index.index import MarketIndex
from market_index.order_book import OrderBook
from market_index.pairs import Pair


@final
class LiveIndex:
    """Holds the current `MarketIndex`, and swaps in the next one.

    Any thread may read and any thread may write: a reader sees one whole index or the next, never a mix; writers
    take turns. Whoever reads more than once takes `current` once and reads from that.

    >>> from market_index import ADA, AssetId, OrderBook, Pair
    >>> live = LiveIndex()
    >>> live.publish(OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA)))
    <MarketIndex: 1 pairs>
    >>> live.current
    <MarketIndex: 1 pairs>
    """

    __slots__ = ("__weakref__", "_current", "_turn")

    def __init__(self, books: Iterable[OrderBook] = ()) -> None:
        self._current = MarketIndex(books)
        self._turn = Lock()

    @property
    def current(self) -> MarketIndex:
        """The index as it stands now: immutable, so it can be kept and read at leisure."""
        return self._current

    def publish(self, *books: OrderBook) -> MarketIndex:
        """Swap in, at once, the index in which these books stand for their pairs, and return it.

        Raises `InvalidOrderBook` for what is not an order book; then nothing has changed.
        """
        return self.update(books)

    def retract(self, *pairs: Pair) -> MarketIndex:
        """Swap in the index without these pairs, and return it; one that is not tracked is no error."""
        return self.update((), pairs)

    def update(self, publish: Iterable[OrderBook], retract: Iterable[Pair] = ()) -> MarketIndex:
        """Retract those pairs and publish those books in one swap, and return the index that follows.

        A pair that is named on both sides stays, with its new book. Raises as `publish` does.
        """
        # An iterable of the caller's may take its time, or publish itself: not while the others wait.
        books, pairs = tuple(publish), tuple(retract)
        with self._turn:
            current = self._current.without(*pairs) if pairs else self._current
            self._current = current.with_books(*books)
            return self._current

    def __repr__(self) -> str:
        return f"<LiveIndex: {len(self._current)} pairs>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a LiveIndex is a place, not a value: pickle or copy its current index")
