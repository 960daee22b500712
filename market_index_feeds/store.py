"""What every store can do: store the books that are published, for feeds to follow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from attrs import frozen

from market_index import Freshness, InvalidOrderBook, MarketIndexError, OrderBook, Pair
from market_index.errors import safe_repr
from market_index_feeds.opened import Opened


class StoreError(MarketIndexError):
    """A store cannot be opened, or what was to be written was not."""


class StoreBusy(StoreError):
    """Other processes were writing to the store for as long as the caller was willing to wait."""


class Unacknowledged(StoreError):
    """The servers of a store did not acknowledge in time what was written.

    `pairs` are in flight: their books may be stored later, but not over anything that is written after them.
    """

    def __init__(self, message: str, pairs: tuple[Pair, ...]) -> None:
        super().__init__(message, pairs)
        self.pairs = pairs


@frozen
class Receipt:
    """What was written, for good: `published` books and `retracted` pairs, up to that `revision`.

    Revisions of a store rise. If there was nothing to change, it is the revision of the last change.
    """

    revision: int
    published: int = 0
    retracted: int = 0


class BookTooLarge(StoreError):
    """The servers of a store do not take books as large as those of `pairs`, which stay as they were.

    All else was written, as `receipt` says.
    """

    def __init__(self, message: str, pairs: tuple[Pair, ...], receipt: Receipt) -> None:
        super().__init__(message, pairs, receipt)
        self.pairs = pairs
        self.receipt = receipt


class BookRejected(StoreError):
    """The servers of a store reject the books of `pairs`, or their removal, for another reason than their size.

    These stay as they were; some may be too large as well. All else was written, as `receipt` says.
    """

    def __init__(self, message: str, pairs: tuple[Pair, ...], receipt: Receipt) -> None:
        super().__init__(message, pairs, receipt)
        self.pairs = pairs
        self.receipt = receipt


class Store(Opened):
    """Where books are published. Open one with `open_store`, close it when done.

    In a file each call is one change: whole in the store when the call returns, and not there at all when it raises
    `StoreError`, unless the error says that it was written, or may be lost: then files were removed meanwhile. In a
    bucket each book is one: all are there when the call returns, and some may be when it raises. Any thread may call;
    calls take turns. `target` is the name that the store was opened by, without credentials.
    """

    def __init__(self, target: str) -> None:
        self.target = target

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.target}>"

    def publish(self, *books: OrderBook) -> Receipt:
        """Store these books, each instead of the former one of its pair. If a pair repeats, its last book counts.

        A book that is stored already makes a revision, too; `replace` leaves it as it is. No books: nothing is stored.

        Raises `StoreError`, and `InvalidOrderBook` for what is not an order book.
        """
        return self.update(books) if books else Receipt(self.revision)

    def retract(self, *pairs: Pair) -> Receipt:
        """Remove these pairs; one that is not in the store is no error, and not counted.

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
        """Retract those pairs and store those books, in one revision. A pair named on both sides gets its book.

        `as_of` is what the books of the store reflect now, in terms of the publisher; None: as before. `published_at`
        is the time, None: that of this machine's clock. So an update without books shows that the publisher is alive.
        A relay passes the `freshness` of its feed, exactly as far as that is known, instead of both.

        Raises `StoreError`, `InvalidFreshness`, and `InvalidOrderBook` for what is not an order book.
        """
        known = _known(as_of, published_at, freshness)
        pairs = set(map(_require_pair, retract))
        checked = [require_book(book) for book in books]
        pairs -= {book.pair for book in checked}
        keeps_as_of = as_of is None and freshness is None
        return self._update(checked, pairs, known, keeps_as_of=keeps_as_of)

    def replace(
        self,
        books: Iterable[OrderBook],
        keep: Callable[[Pair], bool] = lambda _: False,
        as_of: str | None = None,
        published_at: datetime | None = None,
        *,
        freshness: Freshness | None = None,
    ) -> Receipt:
        """Make these books the whole of the store, in one change: every other pair is retracted, unless `keep` says so.

        The books are all read before anything is changed, and `keep` is asked after that, of each pair that they do
        not name. A book that is stored already is left as it is. Whatever the iterable or `keep` raises is
        passed on; then nothing has changed. `as_of`, `published_at` and `freshness` are as in `update`, except that an
        `as_of` of None is stored as well: what the books reflect is not known then.

        Raises `StoreError`, `InvalidFreshness`, and `InvalidOrderBook` for what is not an order book.
        """
        return self._replace(books, keep, _known(as_of, published_at, freshness))

    @property
    @abstractmethod
    def revision(self) -> int:
        """The revision of the last change, by any process; 0 before the first."""

    @abstractmethod
    def is_as_left(self) -> bool:
        """Whether no other process has changed it since this store last replaced all of it.

        Raises `StoreError`.
        """

    @abstractmethod
    def _update(
        self, books: list[OrderBook], retract: set[Pair], freshness: Freshness, *, keeps_as_of: bool
    ) -> Receipt:
        """Update, with checked arguments. `keeps_as_of` says that the stored as_of stays, whatever `freshness` has."""

    @abstractmethod
    def _replace(self, books: Iterable[OrderBook], keep: Callable[[Pair], bool], freshness: Freshness) -> Receipt:
        """Replace; see `replace`. The books are not checked yet."""


def _known(as_of: str | None, published_at: datetime | None, freshness: Freshness | None) -> Freshness:
    """Return the freshness that the caller gives, with the time of this machine unless another is given."""
    if freshness is not None:
        if (as_of, published_at) != (None, None):
            raise TypeError("a store takes either freshness, or as_of and published_at")
        return freshness
    return Freshness(as_of, datetime.now(UTC) if published_at is None else published_at)


def _require_pair(pair: Pair) -> Pair:
    if type(pair) is not Pair:
        raise TypeError(f"a store is asked by Pair, not by {type(pair).__name__}: {safe_repr(pair)}")
    return pair


def require_book(book: OrderBook) -> OrderBook:
    """Return the book, or raise `InvalidOrderBook` where it is none."""
    if type(book) is not OrderBook:
        raise InvalidOrderBook(f"a store holds OrderBook, not {type(book).__name__}: {safe_repr(book)}")
    return book
