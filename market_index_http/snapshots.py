"""What the responses for one version of the index share: the bodies, each encoded when it is first requested.

Versions of a book or of the pair list share the encoded text of their common chunks. The whole text is joined and
compressed once for each value. The next snapshot reuses it if the value has not changed.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, TypeAlias, final

from market_index import Freshness, LiveIndex, MarketIndex, OrderBook, Pair
from market_index.wire import (
    AS_OF,
    PUBLISHED_AT,
    EncodedPart,
    digest_of,
    encoded_order_book,
    encoded_pair_list,
    format_time,
    text_of,
    with_identifiers,
)
from market_index_http.responses import Body, Fields

Books: TypeAlias = dict[Pair, tuple[OrderBook, Body]]
"""The bodies of books. All snapshots share them: a thread never sees a book with the body of another one."""


@final
class Snapshot:
    """One version of the index, and the bodies that were requested of it. Several threads may use it."""

    def __init__(self, index: MarketIndex, cache_control: bytes, books: Books, list_before: Body | None = None) -> None:
        self.index: Final = index
        self.fields: Final = freshness_fields(index.freshness)
        self.by_query: Final[dict[bytes, Body]] = {}
        """The bodies of the books by the query of a request, for the endpoint."""
        self._cache_control: Final = cache_control
        self._books: Final = books
        self._list_before: Final = list_before
        self._list: Body | None = None

    def next(self, index: MarketIndex) -> Snapshot:
        """Return the snapshot of another version, with the bodies of the values that both have."""
        changed, retracted = index.changes_since(self.index)
        # No value that only a former version has stays in memory.
        for pair in (*retracted, *(book.pair for book in changed)):
            self._books.pop(pair, None)
        return Snapshot(index, self._cache_control, self._books, self._list or self._list_before)

    def pair_list(self) -> Body:
        """Return the body of the pair list."""
        if self._list is None:
            parts, before = encoded_pair_list(self.index), self._list_before
            # A change of levels alone does not change the pair list.
            self._list = before if before and before.digest == digest_of(parts) else self._body(parts)
        return self._list

    def order_book(self, pair: Pair) -> Body:
        """Return the body of the book of a pair.

        Raises:
            PairNotFound: the pair is not tracked.
        """
        book = self.index.order_book(pair)
        cached = self._books.get(pair)
        if cached is None or cached[0] is not book:
            cached = self._books[pair] = book, self._body(encoded_order_book(book))
        return cached[1]

    def spelled(self, body: Body, pair: Pair, base: str, quote: str) -> Body:
        """Return the body of a pair's book with the identifiers as the client spelled them (decision 7).

        It is not cached, because there are too many spellings.
        """
        digest = blake2b(b"%b %b/%b" % (body.digest, base.encode(), quote.encode()), digest_size=16).digest()
        return Body(with_identifiers(body.text, pair, base, quote), digest, cache_control=self._cache_control)

    def _body(self, parts: tuple[EncodedPart, ...]) -> Body:
        return Body(text_of(parts), digest_of(parts), cache_control=self._cache_control)


@final
class Snapshots:
    """The snapshot of the current version of a live index."""

    def __init__(self, live: LiveIndex, cache_control: bytes) -> None:
        self._live = live
        # Replaced as a whole, because several threads may serve the app.
        self._snapshot = Snapshot(MarketIndex(), cache_control, {})

    def current(self) -> Snapshot:
        """Return the snapshot of the current index, with the bodies of what has not changed since the last one."""
        index, snapshot = self._live.current, self._snapshot
        if snapshot.index is not index:
            snapshot = self._snapshot = snapshot.next(index)
        return snapshot


def freshness_fields(freshness: Freshness) -> Fields:
    """Return the header fields of a freshness (decision 23); an unknown value has no field.

    >>> freshness_fields(Freshness("slot 145000000"))
    ((b'market-index-as-of', b'slot 145000000'),)
    """
    published_at = freshness.published_at and format_time(freshness.published_at)
    known = ((name, text) for name, text in ((AS_OF, freshness.as_of), (PUBLISHED_AT, published_at)) if text)
    return tuple((name.lower().encode("ascii"), text.encode("ascii")) for name, text in known)
