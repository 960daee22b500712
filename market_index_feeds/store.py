"""The base class of all stores, and their errors. A store saves published books, and feeds follow it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from attrs import frozen

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

    The revisions of a store increase. If nothing changed, `revision` is that of the last change.
    """

    revision: int
    published: int = 0
    retracted: int = 0


class BookTooLarge(StoreError):
    """The books of `pairs` are larger than readers, or the servers of the store, accept. These pairs are unchanged.

    Everything else was written; see `receipt`.
    """

    def __init__(self, message: str, pairs: tuple[Pair, ...], receipt: Receipt) -> None:
        super().__init__(message, pairs, receipt)
        self.pairs = pairs
        self.receipt = receipt


class BookRejected(StoreError):
    """The servers of a store reject the books of `pairs`, or their removal, for another reason than their size.

    These pairs are unchanged; the books of some may also be too large. Everything else was written; see `receipt`.
    """

    def __init__(self, message: str, pairs: tuple[Pair, ...], receipt: Receipt) -> None:
        super().__init__(message, pairs, receipt)
        self.pairs = pairs
        self.receipt = receipt


def too_large(target: str, pairs: tuple[Pair, ...], limit: str, receipt: Receipt) -> BookTooLarge:
    """Return the error for books that exceed a limit, such as `16777216 bytes of JSON, got more`."""
    others = f" and those of {len(pairs) - 1} others" if len(pairs) > 1 else ""
    return BookTooLarge(
        f"{target} does not accept the book of {pairs[0]}{others}: it must have at most {limit}; all else was written",
        pairs,
        receipt,
    )


class Store(Closeable):
    """A store, opened for publishing. Open it with `open_store`, and close it when done.

    In a file, each call is one atomic change: if it raises `StoreError`, nothing is written, unless the message says
    that the change was written or may be lost because files were removed meanwhile. In a bucket, each book is a change
    of its own: all are stored when the call returns, and some may be stored when it raises. `BookTooLarge` is an
    exception to both: everything else is stored. Any thread may call; calls take turns. `target` is the name that the
    store was opened by, without credentials.
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
        published_at: datetime | None = None,
        *,
        freshness: Freshness | None = None,
    ) -> Receipt:
        """Retract pairs and store books, in one revision. If a pair is in both, it gets its book.

        `as_of` is what the books of the store reflect now, in terms of the publisher; None: unchanged. `published_at`
        is the publish time; None: the wall clock of this machine. An update without books is a heartbeat: it shows that
        the publisher is alive. A relay passes `freshness` instead of both, because a part of it may not be known.

        Raises `StoreError`, `InvalidFreshness`, and `InvalidOrderBook` if a book is not an order book.
        """
        given = _given_freshness(as_of, published_at, freshness)
        pairs = set(map(_require_pair, retract))
        checked = [require_book(book) for book in books]
        pairs -= {book.pair for book in checked}
        keeps_as_of = as_of is None and freshness is None
        return self._update(checked, pairs, given, keeps_as_of=keeps_as_of)

    def replace(
        self,
        books: Iterable[OrderBook],
        keep: Callable[[Pair], bool] = lambda _: False,
        as_of: str | None = None,
        published_at: datetime | None = None,
        *,
        freshness: Freshness | None = None,
    ) -> Receipt:
        """Make these books the whole content of the store: every other pair is retracted unless `keep(pair)` is true.

        All books are read before anything is changed; then `keep` is called with each other pair of the store. A book
        that is equal to the stored one is not written again. An exception of the iterable or of `keep` is passed on,
        and nothing is changed. `as_of`, `published_at` and `freshness` are as in `update`, except that an `as_of` of
        None is stored: what the books reflect is not known.

        Raises `StoreError`, `InvalidFreshness`, and `InvalidOrderBook` if a book is not an order book.
        """
        return self._replace(books, keep, _given_freshness(as_of, published_at, freshness))

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
    def _update(
        self, books: list[OrderBook], retract: set[Pair], freshness: Freshness, *, keeps_as_of: bool
    ) -> Receipt:
        """Update with validated arguments. With `keeps_as_of`, the stored as_of is kept, not that of `freshness`."""

    @abstractmethod
    def _replace(self, books: Iterable[OrderBook], keep: Callable[[Pair], bool], freshness: Freshness) -> Receipt:
        """Replace, as `replace` describes. The books are not validated yet."""


def _given_freshness(as_of: str | None, published_at: datetime | None, freshness: Freshness | None) -> Freshness:
    """Return the freshness that the caller gives, by default with the wall clock of this machine."""
    if freshness is not None:
        if (as_of, published_at) != (None, None):
            raise TypeError("either freshness, or as_of and published_at must be given, got both")
        return freshness
    return Freshness(as_of, datetime.now(UTC) if published_at is None else published_at)


def _require_pair(pair: Pair) -> Pair:
    if type(pair) is not Pair:
        raise TypeError(f"pair must be a Pair, got {type(pair).__name__}: {safe_repr(pair)}")
    return pair


def require_book(book: OrderBook) -> OrderBook:
    """Return the book. Raises `InvalidOrderBook` if it is not an `OrderBook`."""
    if type(book) is not OrderBook:
        raise InvalidOrderBook(f"book must be an OrderBook, got {type(book).__name__}: {safe_repr(book)}")
    return book
