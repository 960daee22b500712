"""The base class of all stores, and their errors. A store saves published books, and feeds follow it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from attrs import field, frozen

from market_index import Freshness, InvalidOrderBook, MarketIndexError, OrderBook, Pair
from market_index.errors import safe_repr
from market_index_feeds.opened import Closeable


class StoreError(MarketIndexError):
    """A store cannot be opened, or a change was not written."""


class StoreBusy(StoreError):
    """Other processes were writing to the store until the timeout of the caller."""


class Unacknowledged(StoreError):
    """The servers of a store did not acknowledge a change before the timeout.

    The books of `pairs` are in flight: they may be stored later, but they never overwrite a later change.
    """

    def __init__(self, message: str, pairs: tuple[Pair, ...]) -> None:
        super().__init__(message, pairs)
        self.pairs = pairs


@frozen
class Receipt:
    """What was written: the numbers of `published` books and `retracted` pairs, and the `revision` of the store.

    The revisions of a store increase. If nothing changed, `revision` is that of the last change. `kept` has the pairs
    that `replace` left in the store, because it had neither to store nor to retract them. `pairs` has the pairs whose
    books were published; it is excluded from equality.
    """

    revision: int
    published: int = 0
    retracted: int = 0
    kept: frozenset[Pair] = field(default=frozenset(), repr=False)
    pairs: frozenset[Pair] = field(default=frozenset(), repr=False, eq=False)


class BooksRejected(StoreError):
    """The books of `pairs`, or their removal, were not stored; these pairs are unchanged.

    Everything else was written; see `receipt`. `limit` is the limit that a book exceeds, such as `16777216 bytes of
    JSON`, None if the servers of the store gave another reason.
    """

    def __init__(self, message: str, pairs: tuple[Pair, ...], receipt: Receipt, limit: str | None = None) -> None:
        super().__init__(message, pairs, receipt, limit)
        self.pairs = pairs
        self.receipt = receipt
        self.limit = limit

    @property
    def can_retry(self) -> bool:
        """Whether the same books may be accepted later: if they exceed no limit."""
        return self.limit is None


def too_large(target: str, pairs: tuple[Pair, ...], limit: str, receipt: Receipt, *, got: str) -> BooksRejected:
    """Return the error for books that exceed a limit, such as `16777216 bytes of JSON`; `got` is the first size."""
    return BooksRejected(
        f"{target} does not accept the book of {shown_pairs(pairs)}: it must have at most {limit}, got {got}; "
        "all else was written",
        pairs,
        receipt,
        limit,
    )


def shown_pairs(pairs: tuple[Pair, ...]) -> str:
    """Return the text of some pairs for a message: the first one, and how many others there are."""
    return f"{pairs[0]} and those of {len(pairs) - 1} others" if len(pairs) > 1 else str(pairs[0])


class Store(Closeable):
    """A store, opened for publishing. Open it with `open_store`, and close it when done.

    In a file, each call is one atomic change: if it raises `StoreError`, nothing is written, unless the message says
    that the change may be lost because files were removed meanwhile: then it may be stored. In a bucket, each book is a
    change of its own: all are stored when the call returns, and some may be stored when it raises. `BooksRejected` is
    an exception to both: everything else is stored. Any thread may call; calls take turns. `target` is the name that
    the store was opened by, without credentials.
    """

    def __init__(self, target: str) -> None:
        self.target = target

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.target}>"

    def publish(self, *books: OrderBook) -> Receipt:
        """Store these books; each replaces the stored book of its pair. If a pair repeats, its last book wins.

        A book that is equal to the stored one also makes a revision; `replace` skips such books. Without books, nothing
        is written.

        Raises `StoreError`, and `InvalidOrderBook` if an argument is not an order book.
        """
        return self.update(books) if books else Receipt(self.revision)

    def retract(self, *pairs: Pair) -> Receipt:
        """Remove these pairs. A pair that is not in the store is no error, and is not counted.

        Raises `StoreError`.
        """
        return self.update((), pairs) if pairs else Receipt(self.revision)

    def update(
        self,
        books: Iterable[OrderBook],
        retract: Iterable[Pair] = (),
        as_of: str | None = None,
        *,
        freshness: Freshness | None = None,
    ) -> Receipt:
        """Retract pairs and store books, in one revision. If a pair is in both, it gets its book.

        `as_of` is what the books of the store reflect now, in terms of the publisher; None: unchanged. The publish time
        is the wall clock of this machine, unless `freshness` is given instead of `as_of`. An update without books is a
        heartbeat: it shows that the publisher is alive.

        Raises `StoreError`, `InvalidFreshness`, and `InvalidOrderBook` if a book is not an order book.
        """
        pairs = set(map(_require_pair, retract))
        checked = [_require_book(book) for book in books]
        pairs -= {book.pair for book in checked}
        is_given = as_of is not None or freshness is not None
        return self._update(checked, pairs, _given(as_of, freshness) if is_given else None)

    def replace(
        self,
        books: Iterable[OrderBook],
        retract: Collection[Pair] | None = None,
        as_of: str | None = None,
        *,
        freshness: Freshness | None = None,
    ) -> Receipt:
        """Make these books the whole content of the store, which is then marked as complete, if none is rejected.

        Every other pair is retracted. With `retract`, only those of these pairs are; the others are kept, so the as_of
        is not known, and the mark is unchanged. All books are read before anything is changed. A book that is equal to
        the stored one is not written again. An exception of the iterable is passed on, and nothing is changed. `as_of`
        and `freshness` are as in `update`, except that an `as_of` of None is stored: what the books reflect is not
        known.

        Raises `StoreError`, `InvalidFreshness`, and `InvalidOrderBook` if a book is not an order book.
        """
        pairs = None if retract is None else frozenset(map(_require_pair, retract))
        return self._replace([_require_book(book) for book in books], pairs, _given(as_of, freshness))

    @property
    @abstractmethod
    def revision(self) -> int:
        """The revision of the last change by any process; 0 before the first."""

    @abstractmethod
    def is_unchanged_by_others(self) -> bool:
        """Whether no other publisher has changed the store since the last `replace` of this object; False before it.

        Raises `StoreError`.
        """

    @abstractmethod
    def _update(self, books: list[OrderBook], retract: set[Pair], freshness: Freshness | None) -> Receipt:
        """Update with validated arguments. Without a freshness, the as_of is kept, and the publish time is now."""

    @abstractmethod
    def _replace(self, books: list[OrderBook], retract: frozenset[Pair] | None, freshness: Freshness) -> Receipt:
        """Replace with validated arguments."""


def published_now(as_of: str | None) -> Freshness:
    """Return the freshness of books that are published now, by the wall clock of this machine."""
    return Freshness(as_of, datetime.now(UTC))


def _given(as_of: str | None, freshness: Freshness | None) -> Freshness:
    """Return the freshness that the caller gives, by default with the wall clock of this machine."""
    if freshness is None:
        return published_now(as_of)
    if as_of is not None:
        raise TypeError("either as_of or freshness must be given, got both")
    return freshness


def _require_pair(pair: Pair) -> Pair:
    if type(pair) is not Pair:
        raise TypeError(f"pair must be a Pair, got {type(pair).__name__}: {safe_repr(pair)}")
    return pair


def _require_book(book: OrderBook) -> OrderBook:
    """Return the book. Raises `InvalidOrderBook` if it is not an `OrderBook`."""
    if type(book) is not OrderBook:
        raise InvalidOrderBook(f"book must be an OrderBook, got {type(book).__name__}: {safe_repr(book)}")
    return book
