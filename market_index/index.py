"""The market index: every tracked pair and its order book, at one moment."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, TypeAlias, final

from attrs import frozen

from market_index.errors import InvalidOrderBook, safe_repr
from market_index.order_book import OrderBook
from market_index.pairs import LedgerOrder, Pair, PairInfo, PairNotFound, trusted_pair_info
from market_index.sorted_chunks import Chunk, bounds_between, cut, put

_CHUNK_SIZE: Final = 64


@final
class _Run:
    """A run of neighbouring books, and what the pair list says of each."""

    __slots__ = ("books", "pair_infos")

    def __init__(self, books: tuple[OrderBook, ...], pair_infos: tuple[PairInfo, ...]) -> None:
        self.books = books
        self.pair_infos = pair_infos

    def __getitem__(self, piece: slice, /) -> _Run:
        return _Run(self.books[piece], self.pair_infos[piece])

    def __add__(self, other: _Run, /) -> _Run:
        return _Run(self.books + other.books, self.pair_infos + other.pair_infos)

    def changed(self, position: int, stands: bool, book: OrderBook | None) -> _Run:  # noqa: FBT001  # no public name
        """Return the run with this book, or none, at a position where one stands or does not stand yet."""
        books = list(self.books)
        books[position : position + stands] = [] if book is None else [book]
        if stands and book is not None and book.spot == self.books[position].spot:
            # The pair list has nothing new to say.
            return _Run(tuple(books), self.pair_infos)
        pair_infos = list(self.pair_infos)
        pair_infos[position : position + stands] = [] if book is None else [_pair_info(book)]
        return _Run(tuple(books), tuple(pair_infos))


_Chunks: TypeAlias = list[Chunk[LedgerOrder, _Run]]


@final
@frozen(init=False, eq=False, repr=False)
class MarketIndex(Mapping[Pair, OrderBook]):
    """Every tracked pair and its order book: an immutable mapping from `Pair` to `OrderBook`, in ledger order.

    Of several books of one pair the last one holds. `with_books` and `without` derive the next index, which shares
    with this one all but the neighbourhood of what changed: the cost hardly grows with the number of pairs.

    >>> from market_index import ADA, AssetId
    >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), spot="0.0042")
    >>> index = MarketIndex([book])
    >>> index.order_book(book.pair).spot
    Decimal('0.0042')
    >>> len(index), book.pair in index, book.pair in index.without(book.pair)
    (1, True, False)

    Raises `InvalidOrderBook` for what is not an order book.
    """

    _chunks: _Chunks
    _bounds: list[LedgerOrder]
    _size: int

    def __init__(self, books: Iterable[OrderBook] = ()) -> None:
        by_key = _by_key(books)
        keys = sorted(by_key)
        in_order = tuple(by_key[key] for key in keys)
        chunks = cut(keys, _Run(in_order, tuple(map(_pair_info, in_order))), _CHUNK_SIZE)
        self.__attrs_init__(chunks, bounds_between(chunks), len(keys))

    def order_book(self, pair: Pair) -> OrderBook:
        """Return the book of the pair, or raise `PairNotFound`, which names the pair."""
        return self[pair]

    def pair_list(self) -> tuple[PairInfo, ...]:
        """Return what is known of every pair, in ledger order (decision 9)."""
        return tuple(chain.from_iterable(self.pair_list_runs()))

    def pair_list_runs(self) -> list[tuple[PairInfo, ...]]:
        """Return the pair list in runs of neighbours: the same tuples in the next index, where nothing in them changed.

        So what was worked out of a run need not be worked out again.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook(Pair(AssetId(bytes(28), b"SNEK"), ADA), spot="0.0042")
        >>> index = MarketIndex([book])
        >>> index.pair_list_runs()[0] is index.with_books(book.apply(bids=[("0.0041", 7)])).pair_list_runs()[0]
        True
        """
        return [run.pair_infos for _, run in self._chunks]

    def with_books(self, *books: OrderBook) -> MarketIndex:
        """Return the index in which these books stand for their pairs.

        Raises `InvalidOrderBook` for what is not an order book; this index is as it was.
        """
        if not self._size and books:
            # To sort them all takes less than to find the place of each.
            return MarketIndex(books)
        return self._next(_by_key(books).items())

    def without(self, *pairs: Pair) -> MarketIndex:
        """Return the index without these pairs; one that is not tracked is no error."""
        for pair in pairs:
            if type(pair) is not Pair:
                raise TypeError(_not_by_pair(pair))
        return self._next((pair.ledger_order, None) for pair in pairs)

    def changes_since(self, earlier: MarketIndex) -> tuple[tuple[OrderBook, ...], tuple[Pair, ...]]:
        """Return the books that were published since an earlier index, and the pairs that stand in that one alone.

        A book that was published again counts, though it may be equal. What the two have in common is not looked at: of
        an index that was derived from the other that is all but the neighbourhood of what changed.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook(Pair(AssetId(bytes(28), b"SNEK"), ADA), spot="0.0042")
        >>> index = MarketIndex([book])
        >>> index.changes_since(index.without(book.pair)) == ((book,), ())
        True
        >>> index.without(book.pair).changes_since(index) == ((), (book.pair,))
        True
        """
        common = {id(run) for _, run in self._chunks} & {id(run) for _, run in earlier._chunks}
        before, now = earlier._by_key_but(common), self._by_key_but(common)
        published = tuple(book for key, book in now.items() if before.get(key) is not book)
        return published, tuple(book.pair for key, book in before.items() if key not in now)

    def _by_key_but(self, runs: set[int]) -> dict[LedgerOrder, OrderBook]:
        """Return all books by their keys, but for those in these runs."""
        chunks = [(keys, run.books) for keys, run in self._chunks if id(run) not in runs]
        return {key: book for keys, books in chunks for key, book in zip(keys, books, strict=True)}

    def __getitem__(self, pair: Pair) -> OrderBook:
        if type(pair) is not Pair:
            raise KeyError(_not_by_pair(pair))
        key = pair.ledger_order
        keys, run = self._chunks[bisect_left(self._bounds, key)]
        position = bisect_left(keys, key)
        if position < len(keys) and keys[position] == key:
            return run.books[position]
        raise PairNotFound(pair)

    def __iter__(self) -> Iterator[Pair]:
        return (book.pair for book in self._books())

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        if type(other) is not MarketIndex:
            return NotImplemented
        return self._size == other._size and tuple(self._books()) == tuple(other._books())

    def __hash__(self) -> int:
        return hash(tuple(self._books()))

    def __repr__(self) -> str:
        return f"<MarketIndex: {self._size} pairs>"

    def __reduce__(self) -> tuple[type[MarketIndex], tuple[tuple[OrderBook, ...]]]:
        return MarketIndex, (tuple(self._books()),)

    def _books(self) -> Iterator[OrderBook]:
        return chain.from_iterable(run.books for _, run in self._chunks)

    def _next(self, changes: Iterable[tuple[LedgerOrder, OrderBook | None]]) -> MarketIndex:
        """Return the index in which each key has that book, or none: itself when there is nothing to change."""
        chunks: _Chunks | None = None
        bounds, size = self._bounds, self._size
        for key, book in changes:
            at = bisect_left(bounds, key)
            keys, run = (self._chunks if chunks is None else chunks)[at]
            position = bisect_left(keys, key)
            stands = position < len(keys) and keys[position] == key
            if book is (run.books[position] if stands else None):
                continue
            if chunks is None:
                chunks = self._chunks.copy()
            run = run.changed(position, stands, book)
            if stands and book is not None:
                chunks[at] = keys, run
                continue
            keys = keys.copy()
            keys[position : position + stands] = [] if book is None else [key]
            size += len(run.books) - len(chunks[at][0])
            bounds = put(chunks, bounds, at, (keys, run), _CHUNK_SIZE)
        if chunks is None:
            return self
        following = MarketIndex.__new__(MarketIndex)
        following.__attrs_init__(chunks, bounds, size)
        return following


def _pair_info(book: OrderBook) -> PairInfo:
    return trusted_pair_info(book.pair, book.spot)


def _not_by_pair(value: object) -> str:
    return f"an index is asked by Pair, not by {type(value).__name__}: {safe_repr(value)}"


def _by_key(books: Iterable[OrderBook]) -> dict[LedgerOrder, OrderBook]:
    by_key: dict[LedgerOrder, OrderBook] = {}
    for book in books:
        if type(book) is not OrderBook:
            raise InvalidOrderBook(f"an index holds OrderBook, not {type(book).__name__}: {safe_repr(book)}")
        by_key[book.pair.ledger_order] = book
    return by_key
