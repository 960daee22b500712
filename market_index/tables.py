"""Immutable mappings in the persistent structure of books and indexes.

`Table` is a sorted mapping. `WideTable` splits many keys over 256 tables, so that a change copies less.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge
from itertools import chain
from typing import Generic, TypeVar, final
from zlib import crc32

from market_index.chunked import Chunked

K = TypeVar("K")
V = TypeVar("V")

TABLES = 256
"""The number of tables of a `WideTable`."""


def text_hashes(texts: Iterable[str]) -> Iterable[int]:
    """Return one integer per text, the same in every process."""
    return map(crc32, map(str.encode, texts))


@final
class Table(Chunked[K, V], Mapping[K, V]):
    """An immutable sorted mapping. Derived mappings share its unchanged chunks."""

    __slots__ = ()

    def changed(self, changes: Collection[tuple[K, V | None]]) -> Table[K, V]:
        """Return the mapping after setting each key to its value; None or 0 removes the key. The last change wins."""
        return self._changed(changes)

    def has_same_content(self, other: Table[K, V]) -> bool:
        """Whether the other mapping has the same keys and values. Shared chunks are compared by identity."""
        return self._has_same_content(other)

    def __getitem__(self, key: K) -> V:
        found = self._find(key)
        if found is None:
            raise KeyError(key)
        return found[0].values[found[1]]

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable([chunk.keys for chunk in self._chunks])

    def __len__(self) -> int:
        return self._size


@final
class WideTable(Mapping[str, V], Generic[V]):
    """An immutable sorted mapping in 256 tables, by the hash of the key, so that equal content has equal tables.

    With a million keys in one `Table`, copying the list of chunks would take half the time of a change.
    """

    __slots__ = ("_tables",)

    def __init__(self, tables: list[Table[str, V]]) -> None:
        self._tables = tables

    @classmethod
    def of_empty(cls, table: Table[str, V]) -> WideTable[V]:
        """Return the empty mapping, all of whose tables are this empty table."""
        return cls([table] * TABLES)

    def changed(self, changes: Mapping[str, V | None]) -> WideTable[V]:
        """Return the mapping after setting each key to its value; None removes the key."""
        by_table: dict[int, list[tuple[str, V | None]]] = {}
        for change in changes.items():
            by_table.setdefault(_table_of(change[0]), []).append(change)
        tables = self._tables.copy()
        for at, in_table in by_table.items():
            tables[at] = tables[at].changed(in_table)
        return WideTable(tables)

    def has_same_content(self, other: WideTable[V]) -> bool:
        """Whether the other mapping has the same keys and values. Shared chunks are compared by identity."""
        return all(map(Table.has_same_content, self._tables, other._tables))

    def __getitem__(self, key: str) -> V:
        return self._tables[_table_of(key)][key]

    def __iter__(self) -> Iterator[str]:
        return merge(*self._tables)

    def __len__(self) -> int:
        return sum(map(len, self._tables))


def _table_of(key: str) -> int:
    # The highest bits, because the lowest ones decide where chunks end.
    return crc32(key.encode()) >> 24
