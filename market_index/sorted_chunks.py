"""Sorted keys and the values beside them, in chunks: so that what follows a change shares all chunks but one.

Chunks stand in a list, at least one, of which the last alone may be empty. Beside them stands a list of bounds, one of
each chunk but the last: no key of the chunk is above its bound, and every key behind the chunk is. So
`bisect_left(bounds, key)` is the position of the chunk of a key, and no change within a chunk touches the bounds.

What is in such a list is never changed in place: a copy of a chunk is changed, and put into a copy of the list.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol, Self, TypeAlias, TypeVar


class _Sequence(Protocol):
    """A list or a tuple."""

    def __getitem__(self, piece: slice, /) -> Self: ...
    def __add__(self, other: Self, /) -> Self: ...


K = TypeVar("K")
Values = TypeVar("Values", bound=_Sequence)

Chunk: TypeAlias = tuple[list[K], Values]
"""Keys that rise, and as many values."""


def cut(keys: list[K], values: Values, size: int) -> list[Chunk[K, Values]]:
    """Return these in chunks of about `size` each, or in a single one while they are at most twice as many.

    >>> cut([1, 2, 3, 4, 5], ["a", "b", "c", "d", "e"], size=2)
    [([1, 2], ['a', 'b']), ([3, 4, 5], ['c', 'd', 'e'])]
    """
    if len(keys) <= 2 * size:
        return [(keys, values)]
    count = len(keys) // size
    edges = [number * len(keys) // count for number in range(count + 1)]
    return [(keys[start:end], values[start:end]) for start, end in pairwise(edges)]


def bounds_between(chunks: list[Chunk[K, Values]]) -> list[K]:
    """Return the bounds of chunks that were just cut."""
    return [keys[-1] for keys, _ in chunks[:-1]]


def put(chunks: list[Chunk[K, Values]], bounds: list[K], at: int, chunk: Chunk[K, Values], size: int) -> list[K]:
    """Put a chunk in the place of the one at a position, and return the bounds that hold then.

    One that has grown to more than twice `size` is cut; one that has shrunk to less than a quarter of it joins the
    chunk behind it.
    """
    keys, values = chunk
    if size <= 4 * len(keys) <= 8 * size:
        chunks[at] = chunk
        return bounds
    end = at + 1
    if 4 * len(keys) < size and end < len(chunks):
        keys = keys + chunks[end][0]
        values = values + chunks[end][1]
        end += 1
    pieces = cut(keys, values, size)
    chunks[at:end] = pieces
    return [*bounds[:at], *bounds_between(pieces), *bounds[end - 1 :]]
