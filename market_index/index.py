"""The market index: every tracked pair and its order book, at one moment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import Final, TypeAlias, final

from attrs import frozen

from market_index.errors import InvalidOrderBook, PairNotFound, shown
from market_index.order_book import OrderBook
from market_index.pairs import LedgerOrder, Pair, PairInfo

_BLOCK_SIZE: Final = 128
"""How many books a full block is cut to; it may grow to twice as many before it is cut again."""

_LEAST_BOOKS_A_BLOCK: Final = 16
"""Fewer than this on average, and the blocks are laid anew."""

_Changes: TypeAlias = dict[LedgerOrder, OrderBook | None]
"""The book that is to stand at each key, or None for none."""


@final
@frozen(eq=False)
class _Block:
    """A run of neighbouring books in ledger order: the unit in which an index shares with the next."""

    keys: tuple[LedgerOrder, ...]
    books: tuple[OrderBook, ...]

    @cached_property
    def pair_infos(self) -> tuple[PairInfo, ...]:
        """What the pair list says of these books."""
        return tuple(PairInfo(book.pair.base, book.pair.quote, book.spot) for book in self.books)

    def changed(self, changes: _Changes) -> list[_Block]:
        """Return the blocks that stand in the place of this one once the changes are made: none, one or more."""
        keys, books = list(self.keys), list(self.books)
        same_pairs = True
        position = 0
        # In sorted order whatever is inserted has only what is left of this block behind it.
        for key in sorted(changes):
            book = changes[key]
            position = bisect_left(keys, key, position)
            stands = position < len(keys) and keys[position] == key
            if stands and book is not None:
                books[position] = book
            elif stands or book is not None:
                same_pairs = False
                keys[position : position + stands] = [] if book is None else [key]
                books[position : position + stands] = [] if book is None else [book]
        if len(keys) <= 2 * _BLOCK_SIZE:
            return [_Block(self.keys if same_pairs else tuple(keys), tuple(books))] if keys else []
        return [
            _Block(tuple(keys[start : start + _BLOCK_SIZE]), tuple(books[start : start + _BLOCK_SIZE]))
            for start in range(0, len(keys), _BLOCK_SIZE)
        ]


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

    _blocks: tuple[_Block, ...]
    # Where each block begins: no key of it is below, and none of the block before it is above.
    _starts: tuple[LedgerOrder, ...]
    _size: int

    def __init__(self, books: Iterable[OrderBook] = ()) -> None:
        blocks = _Block((), ()).changed(_by_key(books))
        starts = tuple(block.keys[0] for block in blocks)
        self.__attrs_init__(tuple(blocks), starts, sum(len(block.keys) for block in blocks))

    def order_book(self, pair: Pair) -> OrderBook:
        """Return the book of the pair, or raise `PairNotFound`, which names the pair."""
        return self[pair]

    def pair_list(self) -> tuple[PairInfo, ...]:
        """Return what is known of every pair, in ledger order (decision 9)."""
        return tuple(chain.from_iterable(block.pair_infos for block in self._blocks))

    def with_books(self, *books: OrderBook) -> MarketIndex:
        """Return the index in which these books stand for their pairs.

        Raises `InvalidOrderBook` for what is not an order book; this index is as it was.
        """
        return self._next(_by_key(books))

    def without(self, *pairs: Pair) -> MarketIndex:
        """Return the index without these pairs; one that is not tracked is no error."""
        for pair in pairs:
            if type(pair) is not Pair:
                raise TypeError(_not_by_pair(pair))
        return self._next(dict.fromkeys(pair.ledger_order for pair in pairs))

    def __getitem__(self, pair: Pair) -> OrderBook:
        if type(pair) is not Pair:
            raise KeyError(_not_by_pair(pair))
        if self._blocks:
            key = pair.ledger_order
            block = self._blocks[self._block_of(key)]
            position = bisect_left(block.keys, key)
            if position < len(block.keys) and block.keys[position] == key:
                return block.books[position]
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
        return chain.from_iterable(block.books for block in self._blocks)

    def _block_of(self, key: LedgerOrder) -> int:
        """Return the position of the block in which the key stands or would stand; there is a block."""
        return max(bisect_right(self._starts, key) - 1, 0)

    def _next(self, changes: _Changes) -> MarketIndex:
        """Return the index in which the changes are made, sharing every block that none of them falls into."""
        if not changes:
            return self
        if not self._blocks:
            return MarketIndex(book for book in changes.values() if book is not None)
        changes_by_block: dict[int, _Changes] = {}
        for key, book in changes.items():
            changes_by_block.setdefault(self._block_of(key), {})[key] = book
        blocks, starts, size = list(self._blocks), self._starts, self._size
        # From the last to the first, so that a block that splits or goes does not move those still to come.
        for position in sorted(changes_by_block, reverse=True):
            block = blocks[position]
            successors = block.changed(changes_by_block[position])
            blocks[position : position + 1] = successors
            if len(successors) != 1:
                firsts = (successor.keys[0] for successor in successors)
                starts = (*starts[:position], *firsts, *starts[position + 1 :])
            size += sum(len(successor.keys) for successor in successors) - len(block.keys)
        following = MarketIndex.__new__(MarketIndex)
        following.__attrs_init__(tuple(blocks), starts, size)
        return following if size >= _LEAST_BOOKS_A_BLOCK * (len(blocks) - 1) else MarketIndex(following.values())


def _not_by_pair(value: object) -> str:
    return f"an index is asked by Pair, not by {type(value).__name__}: {shown(value)}"


def _by_key(books: Iterable[OrderBook]) -> _Changes:
    changes: _Changes = {}
    for book in books:
        if type(book) is not OrderBook:
            raise InvalidOrderBook(f"an index holds OrderBook, not {type(book).__name__}: {shown(book)}")
        changes[book.pair.ledger_order] = book
    return changes
