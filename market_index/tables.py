"""Immutable mappings in the persistent structure of books and indexes.

`Table` is a sorted mapping. `WideTable` splits many keys over 256 tables, so that a change copies less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge
from itertools import chain
from operator import is_
from typing import Any, Final, Generic, TypeVar, final
from zlib import crc32

from market_index.chunked import Chunk, Chunked, KeyOrder, ValueOf

__all__ = ["WideTable"]

K = TypeVar("K")
V = TypeVar("V")
C = TypeVar("C")

TABLES = 256
"""The number of tables of a `WideTable`."""


def text_hashes(texts: Iterable[str]) -> Iterable[int]:
    """Return one integer per text, the same in every process."""
    return map(crc32, map(str.encode, texts))


@final
class Table(Chunked[K, V, None], Mapping[K, V]):
    """An immutable sorted mapping. Derived mappings share its unchanged chunks."""

    __slots__ = ()

    def changed(self, changes: Collection[tuple[K, C]], value_of: ValueOf[K, V, C] | None = None) -> Table[K, V]:
        """Return the mapping after setting each key to its value; None removes the key. The last change wins.

        With `value_of`, the value is computed from the value before and the change of a key.
        """
        return self._changed(changes, value_of)

    def at(self, key: K) -> V | None:
        """Return the value of a key, or None. It takes half the time of `get`."""
        return self._at(key)

    def has_same_content(self, other: Table[K, V]) -> bool:
        """Whether the other mapping has the same keys and values. Shared chunks are compared by identity."""
        return self._has_same_content(other)

    def changes_since(self, earlier: Table[K, V]) -> tuple[list[V], list[V]]:
        """Return the values that an earlier mapping lacks, and its values whose keys this mapping lacks."""
        return self._changes_since(earlier)

    def __getitem__(self, key: K) -> V:
        value = self._at(key)
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable([chunk.keys for chunk in self._chunks])

    def __len__(self) -> int:
        return self._size


_EMPTY_TABLES: Final[list[Table[str, Any]]] = [Table(KeyOrder(text_hashes, is_same=is_), Chunk([], []))] * TABLES


@final
class WideTable(Mapping[str, V], Generic[V]):
    """An immutable sorted mapping in 256 tables, by the hash of the key, so that equal content has equal tables.

    With a million keys in one `Table`, copying the list of chunks would take half the time of a change. Values are
    compared by identity.

    >>> table = WideTable().changed({"a": "first", "b": "second"})
    >>> following = table.changed({"a": None, "c": "third"})
    >>> dict(following), following.changes_since(table)
    ({'b': 'second', 'c': 'third'}, (['third'], ['first']))
    """

    __slots__ = ("_tables",)

    def __init__(self, tables: list[Table[str, V]] = _EMPTY_TABLES) -> None:
        self._tables = tables

    def changed(self, changes: Mapping[str, C], value_of: ValueOf[str, V, C] | None = None) -> WideTable[V]:
        """Return the mapping after setting each key to its value, or itself if it is the same; None removes the key.

        With `value_of`, the value is computed from the value before and the change of a key.
        """
        by_table: defaultdict[int, list[tuple[str, C]]] = defaultdict(list)
        for at, change in zip(map(_table_of, changes), changes.items(), strict=True):
            by_table[at].append(change)
        tables = self._tables
        for at, in_table in by_table.items():
            table = tables[at].changed(in_table, value_of)
            if table is not tables[at]:
                tables = tables.copy() if tables is self._tables else tables
                tables[at] = table
        return self if tables is self._tables else WideTable(tables)

    def changes_since(self, earlier: WideTable[V]) -> tuple[list[V], list[V]]:
        """Return the values that an earlier mapping lacks, and its values whose keys this mapping lacks.

        Shared chunks are skipped.
        """
        changed: list[V] = []
        removed: list[V] = []
        for now, before in zip(self._tables, earlier._tables, strict=True):
            if now is not before:
                differing, gone = now.changes_since(before)
                changed += differing
                removed += gone
        return changed, removed

    def has_same_content(self, other: WideTable[V]) -> bool:
        """Whether the other mapping has the same keys and values. Shared chunks are compared by identity."""
        return all(map(Table.has_same_content, self._tables, other._tables))

    def at(self, key: str) -> V | None:
        """Return the value of a key, or None. It takes half the time of `get`."""
        return self._tables[_table_of(key)].at(key)

    def __getitem__(self, key: str) -> V:
        return self._tables[_table_of(key)][key]

    def __iter__(self) -> Iterator[str]:
        return merge(*self._tables)

    def __len__(self) -> int:
        return sum(map(len, self._tables))


def _table_of(key: str) -> int:
    # The highest bits, because the lowest ones decide where chunks end.
    return crc32(key.encode()) >> 24
