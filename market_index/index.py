"""The market index: every tracked pair and its order book, at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import is_
from typing import Final, final
from zlib import crc32

from attrs import frozen

from market_index.chunked import Chunk, Chunked, KeyOrder
from market_index.errors import InvalidOrderBook, safe_repr
from market_index.order_book import OrderBook
from market_index.pairs import LedgerOrder, Pair, PairInfo, PairNotFound


def _hashes(keys: Iterable[LedgerOrder]) -> Iterable[int]:
    return map(crc32, map(b"".join, keys))


_ORDER: Final[KeyOrder[LedgerOrder, OrderBook]] = KeyOrder(
    hashes=_hashes,
    is_same=is_,
    # The cached item is the entry in the pair list, which contains nothing else of the book.
    keeps_item=lambda before, after: before.spot == after.spot,
)


@final
@frozen(init=False, eq=False, repr=False)
class MarketIndex(Chunked[LedgerOrder, OrderBook], Mapping[Pair, OrderBook]):
    """Every tracked pair and its order book: an immutable mapping from `Pair` to `OrderBook`, in ledger order.

    If a pair repeats, the last book wins. `with_books` and `without` derive the next index, which shares all but the
    chunks that changed: the cost hardly grows with the number of pairs. An index equals every mapping of the same pairs
    to the same books.

    >>> from market_index import ADA, AssetId
    >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), spot="0.0042")
    >>> index = MarketIndex([book])
    >>> index.order_book(book.pair).spot
    Decimal('0.0042')
    >>> len(index), book.pair in index, book.pair in index.without(book.pair), index == {book.pair: book}
    (1, True, False, True)

    Raises `InvalidOrderBook` for a value that is not an order book.
    """

    def __init__(self, books: Iterable[OrderBook] = ()) -> None:
        by_key = _by_key(books)
        keys = sorted(by_key)
        super().__init__(_ORDER, Chunk(keys, [by_key[key] for key in keys]))

    def order_book(self, pair: Pair) -> OrderBook:
        """Return the book of the pair. Raises `PairNotFound`, which names the pair."""
        return self[pair]

    def pair_list(self) -> tuple[PairInfo, ...]:
        """Return the entry of every pair, in ledger order (decision 9)."""
        return tuple(PairInfo(book.pair.base, book.pair.quote, book.spot) for book in self._books())

    def with_books(self, *books: OrderBook) -> MarketIndex:
        """Return the index in which these books replace those of their pairs.

        Raises `InvalidOrderBook` for a value that is not an order book; this index is unchanged.
        """
        if not self._size and books:
            # Sorting them all is faster than inserting them one by one.
            return MarketIndex(books)
        return self._changed(_by_key(books).items())

    def without(self, *pairs: Pair) -> MarketIndex:
        """Return the index without these pairs; a pair that is not tracked is ignored."""
        return self._changed([(_key(pair), None) for pair in pairs])

    def changes_since(self, earlier: MarketIndex) -> tuple[tuple[OrderBook, ...], tuple[Pair, ...]]:
        """Return the books that an earlier index does not have, and the pairs that only the earlier index has.

        Books are compared by identity: a book that is equal to the earlier one but another object counts, the same
        object published again does not. Chunks that both share are skipped.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook(Pair(AssetId(bytes(28), b"SNEK"), ADA), spot="0.0042")
        >>> index = MarketIndex([book])
        >>> index.changes_since(index.without(book.pair)) == ((book,), ())
        True
        >>> index.without(book.pair).changes_since(index) == ((), (book.pair,))
        True
        """
        common = set(map(id, self._chunks)) & set(map(id, earlier._chunks))
        before, now = earlier._books_outside(common), self._books_outside(common)
        published = tuple(book for key, book in now.items() if before.get(key) is not book)
        return published, tuple(book.pair for key, book in before.items() if key not in now)

    def _books_outside(self, chunks: set[int]) -> dict[LedgerOrder, OrderBook]:
        """Return all books by their keys, except those in the chunks of these ids."""
        return {
            key: book
            for chunk in self._chunks
            if id(chunk) not in chunks
            for key, book in zip(chunk.keys, chunk.values, strict=True)
        }

    def __getitem__(self, pair: Pair) -> OrderBook:
        if type(pair) is not Pair:
            raise KeyError(_not_a_pair(pair))
        found = self._find(pair.ledger_order)
        if found is None:
            raise PairNotFound(pair)
        chunk, position = found
        return chunk.values[position]

    def __iter__(self) -> Iterator[Pair]:
        return (book.pair for book in self._books())

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        if type(other) is MarketIndex:
            return self._has_same_content(other)
        return Mapping.__eq__(self, other)

    def __hash__(self) -> int:
        return hash(tuple(self._books()))

    def __repr__(self) -> str:
        return f"<MarketIndex: {len(self)} pairs>"

    def __reduce__(self) -> tuple[type[MarketIndex], tuple[tuple[OrderBook, ...]]]:
        return MarketIndex, (tuple(self._books()),)

    def _books(self) -> Iterator[OrderBook]:
        return chain.from_iterable([chunk.values for chunk in self._chunks])


def _key(pair: Pair) -> LedgerOrder:
    if type(pair) is not Pair:
        raise TypeError(_not_a_pair(pair))
    return pair.ledger_order


def _not_a_pair(value: object) -> str:
    return f"the key of an index must be a Pair, got {type(value).__name__}: {safe_repr(value)}"


def _by_key(books: Iterable[OrderBook]) -> dict[LedgerOrder, OrderBook]:
    by_key: dict[LedgerOrder, OrderBook] = {}
    for book in books:
        if type(book) is not OrderBook:
            raise InvalidOrderBook(f"an index holds OrderBook only, got {type(book).__name__}: {safe_repr(book)}")
        by_key[book.pair.ledger_order] = book
    return by_key
