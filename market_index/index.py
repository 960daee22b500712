"""The market index: every tracked pair and its order book, at one moment.

A `MarketIndex` is immutable. The next version shares all chunks that did not change, so that large indexes can be
updated with every message of a stream.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from datetime import datetime
from typing import Any, Final, TypeAlias, final

from market_index.errors import InvalidFreshness, InvalidOrderBook, require_iterable, require_type, safe_repr
from market_index.freshness import Freshness
from market_index.order_book import OrderBook
from market_index.pairs import LedgerOrder, Pair, PairInfo, PairNotFound, require_pair
from market_index.printing import repr_html, repr_pretty
from market_index.sorted_map import Chunk, KeyOrder, SortedMap
from market_index.value import Value, slot_setters

_ORDER: Final[KeyOrder[LedgerOrder, OrderBook]] = KeyOrder(
    bytes,
    # The entry of a book in the pair list contains only its spot price.
    keeps_encoded=lambda before, after: before.spot == after.spot,
)

PairsChunk: TypeAlias = Chunk[LedgerOrder, OrderBook]
"""Pairs and their books. `encoded` is the JSON of their entries in the pair list."""


@final
class MarketIndex(Value, Mapping[Pair, OrderBook]):
    """Every tracked pair and its order book: an immutable mapping from `Pair` to `OrderBook`, in ledger order.

    `books` are order books, or a mapping whose values they are, such as another index. If a pair repeats, the last book
    wins. `with_books` and `without` derive the next index, which shares all unchanged
    chunks: the cost hardly grows with the number of pairs. An index equals every mapping of the same pairs to the same
    books.

    `freshness` is what the books reflect and when they were published, if known. It is excluded from equality. Derived
    indexes keep it; `with_freshness` changes it.

    >>> from market_index import ADA, AssetId
    >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), spot="0.0042")
    >>> index = MarketIndex([book])
    >>> index.order_book(book.pair).spot
    Decimal('0.0042')
    >>> len(index), book.pair in index, book.pair in index.without(book.pair), index == {book.pair: book}
    (1, True, False, True)
    >>> MarketIndex([book], as_of="slot 145000000").without(book.pair).as_of
    'slot 145000000'

    Raises:
        InvalidOrderBook: A value is not an order book.
        InvalidFreshness: `as_of` or `published_at` is invalid.
    """

    __slots__ = ("__weakref__", "_by_key", "freshness")
    _by_key: SortedMap[LedgerOrder, OrderBook]

    freshness: Freshness
    """What the books reflect, and when they were published; excluded from equality."""

    def __init__(
        self,
        books: Iterable[OrderBook] | Mapping[Pair, OrderBook] = (),
        as_of: str | None = None,
        published_at: datetime | None = None,
    ) -> None:
        require_iterable("books", books, "OrderBook")
        found = _books_by_key(books.values() if isinstance(books, Mapping) else books)
        keys = sorted(found)
        _SET_BY_KEY(self, SortedMap.of(_ORDER, keys, [found[key] for key in keys]))
        _SET_FRESHNESS(self, Freshness(as_of, published_at))

    @property
    def as_of(self) -> str | None:
        """What the books reflect, in the publisher's terms; None if unknown."""
        return self.freshness.as_of

    @property
    def published_at(self) -> datetime | None:
        """When the books were published: wall-clock time of the publisher, in UTC; None if unknown."""
        return self.freshness.published_at

    def order_book(self, pair: Pair) -> OrderBook:
        """Return the book of a pair.

        Raises:
            PairNotFound: The pair is not tracked.
            KeyError: The value is not a `Pair`.
        """
        return self[pair]

    def pair_list(self) -> tuple[PairInfo, ...]:
        """Return the entry of every pair, in ledger order (decision 9)."""
        return tuple(PairInfo(book.pair.base, book.pair.quote, book.spot) for book in self._by_key.values())

    def with_books(self, *books: OrderBook) -> MarketIndex:
        """Return the index in which these books replace those of their pairs.

        A book that equals the one of its pair changes nothing: the index keeps the object that it has.

        Raises:
            InvalidOrderBook: A value is not an order book.
        """
        return self._with(self._by_key.changed(_books_by_key(books).items()), self.freshness)

    def without(self, *pairs: Pair) -> MarketIndex:
        """Return the index without these pairs; a pair that is not tracked is ignored.

        Raises:
            InvalidOrderBook: A value is not a `Pair`.
        """
        for pair in pairs:
            require_pair(pair)
        return self._with(self._by_key.changed([(pair.ledger_order, None) for pair in pairs]), self.freshness)

    def with_freshness(self, freshness: Freshness) -> MarketIndex:
        """Return the index with the same books and another freshness.

        Raises:
            InvalidFreshness: The value is not a `Freshness`.
        """
        if type(freshness) is not Freshness:
            raise InvalidFreshness(
                f"freshness must be a Freshness, got {type(freshness).__name__}: {safe_repr(freshness)}"
            )
        return self._with(self._by_key, freshness)

    def _with(self, books: SortedMap[LedgerOrder, OrderBook], freshness: Freshness) -> MarketIndex:
        """Return the index of these valid parts, or this one if they are the same."""
        if books is self._by_key and (freshness is self.freshness or freshness == self.freshness):
            return self
        derived = object.__new__(MarketIndex)
        _SET_BY_KEY(derived, books)
        _SET_FRESHNESS(derived, freshness)
        return derived

    def changes_since(self, earlier: MarketIndex) -> tuple[tuple[OrderBook, ...], tuple[Pair, ...]]:
        """Return the books that an earlier index does not have, and the pairs that only the earlier index has.

        Shared chunks are skipped, so the cost depends on what changed.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook(Pair(AssetId(bytes(28), b"SNEK"), ADA), spot="0.0042")
        >>> MarketIndex([book]).changes_since(MarketIndex()) == ((book,), ())
        True

        Raises:
            TypeError: `earlier` is not an index.
        """
        require_type("earlier", earlier, MarketIndex)
        changed, removed = self._by_key.changes_since(earlier._by_key)
        return tuple([book for _, book in changed]), tuple([book.pair for _, book in removed])

    def to_columns(self) -> dict[str, list[Any]]:
        """Return one row for each pair, as columns by name: `pandas.DataFrame(index.to_columns())`.

        `levels` is the number of bids and asks. `spot`, `bid`, `ask` and `spread` may be None.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), bids=[("3", 5)], asks=[("3.5", 4)])
        >>> {name: column[0] for name, column in MarketIndex([book]).to_columns().items() if name != "pair"}
        {'spot': None, 'bid': Decimal('3'), 'ask': Decimal('3.5'), 'spread': Decimal('0.5'), 'levels': 2}
        """
        books = list(self._by_key.values())
        return {
            "pair": [str(book.pair) for book in books],
            "spot": [book.spot for book in books],
            "bid": [best and best.price for best in [book.best_bid for book in books]],
            "ask": [best and best.price for best in [book.best_ask for book in books]],
            "spread": [book.spread for book in books],
            "levels": [len(book.bids) + len(book.asks) for book in books],
        }

    def values(self) -> ValuesView[OrderBook]:
        """Return a view of the books, in ledger order."""
        return _Books(self)

    def items(self) -> ItemsView[Pair, OrderBook]:
        """Return a view of the pairs and their books, in ledger order."""
        return _Items(self)

    def __getitem__(self, pair: Pair) -> OrderBook:
        if type(pair) is not Pair:
            raise KeyError(f"the key of an index must be a Pair, got {type(pair).__name__}: {safe_repr(pair)}")
        book = self._by_key.get(pair.ledger_order)
        if book is None:
            raise PairNotFound(f"Pair {pair} not found", pair)
        return book

    def __iter__(self) -> Iterator[Pair]:
        return (book.pair for book in self._by_key.values())

    def __len__(self) -> int:
        return self._by_key.size

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Value):  # resting orders are a mapping too, which equals only resting orders
            return type(other) is MarketIndex and self._by_key == other._by_key
        return Mapping.__eq__(self, other)

    def __hash__(self) -> int:
        return hash(tuple(self._by_key.values()))

    def __repr__(self) -> str:
        return f"<MarketIndex: {len(self)} pairs>" if self else "MarketIndex()"

    _repr_html_ = repr_html
    _repr_pretty_ = repr_pretty

    def _arguments(self) -> tuple[Any, ...]:
        return list(self._by_key.values()), self.as_of, self.published_at


_SET_BY_KEY, _SET_FRESHNESS = slot_setters(MarketIndex, "_by_key", "freshness")


def by_key(index: MarketIndex) -> SortedMap[LedgerOrder, OrderBook]:
    """Return the map of books by the sort key of their pair, for other modules of this package."""
    return index._by_key  # noqa: SLF001  # of the class above


@final
class _Books(ValuesView[OrderBook]):
    """The values of an index, chunk by chunk. The view of `Mapping` would look up each pair."""

    __slots__ = ()
    _mapping: MarketIndex

    def __iter__(self) -> Iterator[OrderBook]:
        return self._mapping._by_key.values()  # noqa: SLF001  # of the class above


@final
class _Items(ItemsView[Pair, OrderBook]):
    """The items of an index, chunk by chunk. The view of `Mapping` would look up each pair."""

    __slots__ = ()
    _mapping: MarketIndex

    def __iter__(self) -> Iterator[tuple[Pair, OrderBook]]:
        return ((book.pair, book) for book in self._mapping._by_key.values())  # noqa: SLF001  # of the class above


def _books_by_key(books: Iterable[OrderBook]) -> dict[LedgerOrder, OrderBook]:
    found: dict[LedgerOrder, OrderBook] = {}
    for book in books:
        if type(book) is not OrderBook:
            raise InvalidOrderBook(
                f"a value of an index must be an OrderBook, got {type(book).__name__}: {safe_repr(book)}"
                f"{'; pass *books' if type(book) in {list, tuple} else ''}"
            )
        found[book.pair.ledger_order] = book
    return found
