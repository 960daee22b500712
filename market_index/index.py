"""The market index: every tracked pair and its order book, at one moment.

A `MarketIndex` is immutable. The next version shares all chunks that did not change, so that large indexes can be
updated with every message of a stream.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from datetime import datetime
from functools import cached_property
from itertools import chain, islice
from typing import Any, Final, TypeAlias, final

from attrs import evolve, field, frozen

from market_index.chunked import Chunk, Chunked, KeyOrder
from market_index.errors import InvalidFreshness, InvalidOrderBook, require_iterable, safe_repr
from market_index.freshness import Freshness, checked_as_of, checked_time
from market_index.notebook import SHOWN_ROWS, html_table, to_html
from market_index.order_book import OrderBook
from market_index.pairs import LedgerOrder, Pair, PairInfo, PairNotFound
from market_index.value import Value, print_call

_ORDER: Final[KeyOrder[LedgerOrder, OrderBook]] = KeyOrder(
    bytes,
    # Of a book, its entry in the pair list contains only the spot price.
    keeps_encoded=lambda before, after: before.spot == after.spot,
)

PRINTED_PAIRS: Final = 20
"""The number of books of an index that IPython and Hypothesis print."""

PairsChunk: TypeAlias = Chunk[LedgerOrder, OrderBook]
"""Pairs and their books. `encoded` is the JSON of their entries in the pair list."""


def _chunked(books: Iterable[OrderBook]) -> Chunked[LedgerOrder, OrderBook]:
    """Return books in ledger order, or the chunks of another index: `attrs.evolve` passes them."""
    given: object = books
    if type(given) is Chunked and given.order is _ORDER:
        return given
    by_key = _by_key(books)
    keys = sorted(by_key)
    return Chunked.of(_ORDER, Chunk(keys, [by_key[key] for key in keys]))


@final
@frozen(eq=False, repr=False)
class MarketIndex(Value, Mapping[Pair, OrderBook]):
    """Every tracked pair and its order book: an immutable mapping from `Pair` to `OrderBook`, in ledger order.

    If a pair repeats, the last book wins. `with_books` and `without` derive the next index, which shares all unchanged
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

    by_pair: Chunked[LedgerOrder, OrderBook] = field(
        default=Chunked.of(_ORDER, Chunk([], [])), alias="books", converter=_chunked
    )

    as_of: str | None = field(default=None, converter=checked_as_of)
    """What the books reflect, in the publisher's terms; None if unknown."""

    published_at: datetime | None = field(default=None, converter=checked_time)
    """When the books were published: wall-clock time of the publisher, in UTC; None if unknown."""

    @cached_property
    def freshness(self) -> Freshness:
        """What the books reflect, and when they were published; excluded from equality."""
        return Freshness(self.as_of, self.published_at)

    @property
    def chunks(self) -> list[PairsChunk]:
        """The chunks, for code that caches a result per chunk. Callers must not change them."""
        return self.by_pair.chunks

    def order_book(self, pair: Pair) -> OrderBook:
        """Return the book of a pair.

        Raises:
            PairNotFound: The pair is not tracked.
            KeyError: The value is not a `Pair`.
        """
        return self[pair]

    def pair_list(self) -> tuple[PairInfo, ...]:
        """Return the entry of every pair, in ledger order (decision 9)."""
        return tuple(PairInfo(book.pair.base, book.pair.quote, book.spot) for book in self._books())

    def with_books(self, *books: OrderBook) -> MarketIndex:
        """Return the index in which these books replace those of their pairs.

        A book that equals the one of its pair changes nothing: the index keeps the object that it has.

        Raises:
            InvalidOrderBook: A value is not an order book.
        """
        return self._of(self.by_pair.changed(_by_key(books).items()))

    def without(self, *pairs: Pair) -> MarketIndex:
        """Return the index without these pairs; a pair that is not tracked is ignored.

        Raises:
            TypeError: A value is not a `Pair`.
        """
        return self._of(self.by_pair.changed([(_key(pair), None) for pair in pairs]))

    def with_freshness(self, freshness: Freshness) -> MarketIndex:
        """Return the index with the same books and another freshness.

        Raises:
            InvalidFreshness: The value is not a `Freshness`.
        """
        if type(freshness) is not Freshness:
            raise InvalidFreshness(
                f"freshness must be a Freshness, got {type(freshness).__name__}: {safe_repr(freshness)}"
            )
        if freshness.as_of == self.as_of and freshness.published_at == self.published_at:
            return self
        return evolve(self, as_of=freshness.as_of, published_at=freshness.published_at)

    def _of(self, by_pair: Chunked[LedgerOrder, OrderBook]) -> MarketIndex:
        """Return the index of valid books with this freshness, or itself if they are its own."""
        if by_pair is self.by_pair:
            return self
        index = object.__new__(MarketIndex)
        _SET_BY_PAIR(index, by_pair)
        _SET_AS_OF(index, self.as_of)
        _SET_PUBLISHED_AT(index, self.published_at)
        return index

    def changes_since(self, earlier: MarketIndex) -> tuple[tuple[OrderBook, ...], tuple[Pair, ...]]:
        """Return the books that an earlier index does not have, and the pairs that only the earlier index has.

        Shared chunks are skipped, so the cost depends on what changed.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook(Pair(AssetId(bytes(28), b"SNEK"), ADA), spot="0.0042")
        >>> MarketIndex([book]).changes_since(MarketIndex()) == ((book,), ())
        True
        """
        changed, removed = self.by_pair.changes_since(earlier.by_pair)
        return tuple([book for _, book in changed]), tuple([book.pair for _, book in removed])

    def values(self) -> ValuesView[OrderBook]:
        """Return a view of the books, in ledger order."""
        return _Books(self)

    def items(self) -> ItemsView[Pair, OrderBook]:
        """Return a view of the pairs and their books, in ledger order."""
        return _Items(self)

    def __getitem__(self, pair: Pair) -> OrderBook:
        if type(pair) is not Pair:
            raise KeyError(_not_a_pair(pair))
        book = self.by_pair.at(pair.ledger_order)
        if book is None:
            raise PairNotFound(pair)
        return book

    def __iter__(self) -> Iterator[Pair]:
        return (book.pair for book in self._books())

    def __len__(self) -> int:
        return self.by_pair.size

    def __eq__(self, other: object) -> bool:
        if type(other) is MarketIndex:
            return self.by_pair == other.by_pair
        return Mapping.__eq__(self, other)

    def __hash__(self) -> int:
        return hash(tuple(self._books()))

    def __repr__(self) -> str:
        return f"<MarketIndex: {len(self)} pairs>"

    def _repr_html_(self) -> str:
        title = f"{len(self):,} pairs, as of {to_html(self.as_of)}, published at {to_html(self.published_at)}"
        rows = [
            (
                book.pair.base,
                book.pair.quote,
                book.spot,
                book.best_bid and book.best_bid.price,
                book.best_ask and book.best_ask.price,
            )
            for book in islice(self._books(), SHOWN_ROWS)
        ]
        headings = ("base", "quote", "spot", "best bid", "best ask")
        return html_table(title, headings, rows, left_out=len(self) - SHOWN_ROWS)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001  # the signature of IPython
        del cycle
        if len(self) > PRINTED_PAIRS:
            printer.text(repr(self))
        else:
            print_call(printer, "MarketIndex", list(self._books()), as_of=self.as_of, published_at=self.published_at)

    def __reduce__(self) -> tuple[Any, ...]:
        return MarketIndex, (tuple(self._books()), self.as_of, self.published_at)

    def _books(self) -> Iterator[OrderBook]:
        return chain.from_iterable([chunk.values for chunk in self.by_pair.chunks])


_SET_BY_PAIR, _SET_AS_OF, _SET_PUBLISHED_AT = [
    MarketIndex.__dict__[name].__set__ for name in ("by_pair", "as_of", "published_at")
]


@final
class _Books(ValuesView[OrderBook]):
    """The values of an index. Those of `Mapping` look up each pair."""

    __slots__ = ()
    _mapping: MarketIndex

    def __contains__(self, book: object) -> bool:
        return type(book) is OrderBook and self._mapping.get(book.pair) == book

    def __iter__(self) -> Iterator[OrderBook]:
        return self._mapping._books()  # noqa: SLF001  # of the class above


@final
class _Items(ItemsView[Pair, OrderBook]):
    """The items of an index. Those of `Mapping` look up each pair."""

    __slots__ = ()
    _mapping: MarketIndex

    def __iter__(self) -> Iterator[tuple[Pair, OrderBook]]:
        return ((book.pair, book) for book in self._mapping._books())  # noqa: SLF001  # of the class above


def _key(pair: Pair) -> LedgerOrder:
    if type(pair) is not Pair:
        raise TypeError(_not_a_pair(pair))
    return pair.ledger_order


def _not_a_pair(value: object) -> str:
    return f"the key of an index must be a Pair, got {type(value).__name__}: {safe_repr(value)}"


def _by_key(books: Iterable[OrderBook]) -> dict[LedgerOrder, OrderBook]:
    require_iterable("books", books, "OrderBook")
    by_key: dict[LedgerOrder, OrderBook] = {}
    for book in books:
        if type(book) is not OrderBook:
            raise InvalidOrderBook(
                f"a value of an index must be an OrderBook, got {type(book).__name__}: {safe_repr(book)}"
                f"{'; pass *books' if type(book) in {list, tuple} else ''}"
            )
        by_key[book.pair.ledger_order] = book
    return by_key
