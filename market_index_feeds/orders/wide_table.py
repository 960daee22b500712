"""An immutable mapping in 256 dicts, by the hash of the key, so that a change copies only a part of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Generic, TypeVar, final
from zlib import crc32

V = TypeVar("V")


@final
class WideTable(Mapping[str, V], Generic[V]):
    """An immutable mapping. Derived mappings share its unchanged dicts. Values are compared by identity.

    >>> table = WideTable().changed({"a": "first", "b": "second"})
    >>> following = table.changed({"a": None, "c": "third"})
    >>> sorted(following), following.changes_since(table)
    (['b', 'c'], (['third'], ['first']))
    """

    __slots__ = ("_dicts",)

    def __init__(self) -> None:
        self._dicts: list[dict[str, V]] = [{}] * 256

    def changed(self, changes: Mapping[str, V | None]) -> WideTable[V]:
        """Return the mapping after setting each key to its value; None removes the key."""
        following: WideTable[V] = WideTable()
        following._dicts = self._dicts.copy()
        for key, value in changes.items():
            at = crc32(key.encode()) >> 24
            if following._dicts[at] is self._dicts[at]:
                following._dicts[at] = self._dicts[at].copy()
            if value is None:
                following._dicts[at].pop(key, None)
            else:
                following._dicts[at][key] = value
        return following

    def changes_since(self, earlier: WideTable[V]) -> tuple[list[V], list[V]]:
        """Return the values that an earlier mapping lacks, and its values whose keys this mapping lacks."""
        changed: list[V] = []
        removed: list[V] = []
        for now, before in zip(self._dicts, earlier._dicts, strict=True):
            if now is not before:
                changed += [value for key, value in now.items() if before.get(key) is not value]
                removed += [value for key, value in before.items() if key not in now]
        return changed, removed

    def __getitem__(self, key: str) -> V:
        return self._dicts[crc32(key.encode()) >> 24][key]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._dicts)

    def __len__(self) -> int:
        return sum(map(len, self._dicts))
