"""The persistent sorted map inside books, indexes and resting orders: keys and values in immutable chunks.

Theory of operation
    A `SortedMap` has keys in a fixed order, each with a value. It is split into chunks of 64 keys on average. Nothing
    is changed in place: a change copies the chunk that contains the key and the list of chunks. All other chunks are
    shared between the old and the new version. A value that equals the stored one changes nothing.

    A chunk ends at every key whose hash has six zero bits, and nowhere else (content-defined boundaries, as in prolly
    trees). The last chunk contains the keys after the last such key and may be empty. Up to 64 keys are always one
    chunk, because most books are that small and hashing their prices would take a tenth of the decoding time.
    Therefore the layout depends only on the keys: it is the same in every process and independent of history. Equal
    content has equal chunks, so comparison and digests work chunk by chunk. Chunk sizes vary. An adversary can choose
    keys so that all are in one chunk, or each is in its own. Results stay correct, but a call then takes time
    proportional to the number of keys, and each of its changes moves the following keys of its chunk.

    The JSON of a chunk is cached in its slot `encoded`. It is computed once for all versions that share the chunk. The
    JSON of a book with one chunk per side is not cached (see `market_index.wire.encode`).

The map is a private part of the values that have it. It does not validate: they accept only valid keys and values.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, MutableSequence, Sequence
from itertools import chain, pairwise
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, final
from zlib import crc32

from attrs import define, field, frozen

if TYPE_CHECKING:
    from market_index.wire.parts import EncodedPart

K = TypeVar("K")
V = TypeVar("V")

Change: TypeAlias = tuple[K, V | None]
"""A key and its new value; None removes the key."""

_Sought: TypeAlias = tuple[Any, K, V | None]
"""A change, after the sort value of its key."""

BOUNDARY_MASK: Final = 0x3F
"""A chunk ends at a key whose hash has none of these bits, on average at one key in 64."""

MAX_UNSPLIT: Final = 64
"""The maximum number of keys that are always one chunk."""


@final
@frozen(eq=False)
class KeyOrder(Generic[K, V]):
    """How keys are sorted, and where chunks end.

    Args:
        octets: Returns the bytes of a key, which differ between keys and are the same in every process.
        sort_key: Maps a key to its sort value; None if keys are sorted by themselves.
        keeps_encoded: Whether a value and its replacement have the same JSON.
    """

    octets: Callable[[K], bytes]
    sort_key: Callable[[Any], Any] | None = None
    keeps_encoded: Callable[[V, V], bool] = lambda _, __: False

    def sort_value(self, key: K) -> Any:
        """Return what a key is sorted by."""
        return key if self.sort_key is None else self.sort_key(key)

    def ends_chunk(self, key: K) -> bool:
        """Whether a chunk ends at this key."""
        return not crc32(self.octets(key)) & BOUNDARY_MASK


@final
@define(weakref_slot=False)
class Chunk(Generic[K, V]):
    """Adjacent keys and their values, which never change. `encoded` is a cache."""

    keys: tuple[K, ...]
    values: MutableSequence[V]
    encoded: EncodedPart | None = field(default=None, eq=False)

    def __getitem__(self, piece: slice) -> Chunk[K, V]:
        return Chunk(self.keys[piece], self.values[piece])


_KEYS: Final = attrgetter("keys")
_VALUES: Final = attrgetter("values")


@final
@define(weakref_slot=False)
class SortedMap(Generic[K, V]):
    """An immutable map from keys to values, in the order of the keys.

    Two are equal if they have the same keys and values; shared chunks are compared by identity.

    >>> numbers = SortedMap.of(KeyOrder(str.encode), [], [])
    >>> following = numbers.changed([("b", 7), ("a", 5)])
    >>> list(following.items()), list(following.changed([("a", None)]).items())
    ([('a', 5), ('b', 7)], [('b', 7)])
    """

    order: KeyOrder[K, V]
    size: int
    chunks: Sequence[Chunk[K, V]]
    bounds: tuple[Any, ...] = field(default=(), eq=False)
    """The sort value of the last key of each chunk but the last, to find the chunk of a key by bisection."""

    @classmethod
    def of(
        cls, order: KeyOrder[K, V], keys: Iterable[K], values: MutableSequence[V], octets: Iterable[bytes] | None = None
    ) -> SortedMap[K, V]:
        """Return the map of sorted, different keys and their values; `octets` are those of the keys, if known."""
        whole = Chunk(tuple(keys), values)
        if len(whole.keys) <= MAX_UNSPLIT:
            return cls(order, len(whole.keys), (whole,))
        return _of_chunks(order, len(whole.keys), _split(order, whole, octets))

    def keys(self) -> Iterator[K]:
        """Iterate over the keys, in order."""
        return chain.from_iterable(map(_KEYS, self.chunks))

    def values(self) -> Iterator[V]:
        """Iterate over the values, in the order of their keys."""
        return chain.from_iterable(map(_VALUES, self.chunks))

    def items(self) -> Iterator[tuple[K, V]]:
        """Iterate over the keys and their values, in order."""
        return zip(self.keys(), self.values(), strict=True)

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None if the key is absent."""
        sort_key, bounds = self.order.sort_key, self.bounds
        sought: Any = key if sort_key is None else sort_key(key)
        chunk = self.chunks[bisect_left(bounds, sought) if bounds else 0]
        position = bisect_left(chunk.keys, sought, key=sort_key)
        return chunk.values[position] if position < len(chunk.keys) and chunk.keys[position] == key else None

    def at(self, position: int) -> tuple[K, V]:
        """Return the key at a position, and its value."""
        number, position = self._place(position)
        chunk = self.chunks[number]
        return chunk.keys[position], chunk.values[position]

    def count_to(self, last: K) -> int:
        """Return the number of keys up to and including this one, which may be absent."""
        sought = self.order.sort_value(last)
        number = bisect_left(self.bounds, sought)
        before = sum(map(len, map(_KEYS, self.chunks[:number])))
        return before + bisect_right(self.chunks[number].keys, sought, key=self.order.sort_key)

    def head(self, count: int) -> SortedMap[K, V]:
        """Return the map of the first `count` keys, or itself if it has no more."""
        if count >= self.size:
            return self
        number, left = self._place(count)
        chunks = [*self.chunks[:number], self.chunks[number][:left]]
        if count > MAX_UNSPLIT:
            return SortedMap(self.order, count, chunks, self.bounds[:number])
        return SortedMap(self.order, count, (_joined(chunks),))

    def changed(self, changes: Collection[Change[K, V]]) -> SortedMap[K, V]:
        """Return the map after setting each key to its value, or itself if nothing changes.

        None removes the key; removing an absent key changes nothing. If a key repeats, the last change wins.
        """
        order, size = self.order, self.size
        changed: list[Chunk[K, V]] = []
        is_split = size > MAX_UNSPLIT
        # The numbers of chunks in which a boundary may have been added or removed.
        unsplit = [] if is_split else [0]
        for number, located in self._located(changes):
            chunk = self.chunks[number]
            edited = _edited(order, chunk, located)
            if edited is chunk:
                continue
            changed = changed or list(self.chunks)
            changed[number] = edited
            if edited.keys is not chunk.keys:
                size += len(edited.keys) - len(chunk.keys)
                for _, key, _ in located if is_split else ():
                    if order.ends_chunk(key):
                        unsplit.append(number)
                        break
        if not changed:
            return self
        if size <= MAX_UNSPLIT:
            return SortedMap(order, size, (_joined(changed),))
        if unsplit:
            return _of_chunks(order, size, _split_again(order, changed, unsplit))
        return SortedMap(order, size, changed, self.bounds)

    def changes_since(self, earlier: SortedMap[K, V]) -> tuple[list[tuple[K, V]], list[tuple[K, V]]]:
        """Return the entries that the earlier map lacks, and its entries whose keys this map lacks.

        Shared chunks are skipped.
        """
        pairs = [pair for pair in zip(self.chunks, earlier.chunks, strict=False) if pair[0] is not pair[1]]
        if len(self.chunks) == len(earlier.chunks) and all(now.keys == before.keys for now, before in pairs):
            # Only values changed, as in most changes of an index. This takes a fifth of the time.
            return [
                (key, value)
                for now, before in pairs
                for key, value, known in zip(now.keys, now.values, before.values, strict=True)
                if value is not known and value != known
            ], []
        shared = set(map(id, self.chunks)) & set(map(id, earlier.chunks))
        entries, known_entries = self._entries_outside(shared), earlier._entries_outside(shared)
        changed = [entry for octets, entry in entries.items() if entry != known_entries.get(octets)]
        return changed, [entry for octets, entry in known_entries.items() if octets not in entries]

    def _entries_outside(self, chunks: set[int]) -> dict[bytes, tuple[K, V]]:
        """Return the keys and values by the bytes of the key, without those of the chunks with these `id`s.

        By bytes, because hashes of numbers are predictable: an attacker could choose prices that collide.
        """
        octets = self.order.octets
        return {
            octets(key): (key, value)
            for chunk in self.chunks
            if id(chunk) not in chunks
            for key, value in zip(chunk.keys, chunk.values, strict=True)
        }

    def _located(self, changes: Collection[Change[K, V]]) -> Iterable[tuple[int, Collection[_Sought[K, V]]]]:
        """Return the number of each chunk that has changes, and its changes in the order of their keys."""
        sort_key, bounds = self.order.sort_key, self.bounds
        if len(changes) == 1:
            ((key, value),) = changes
            sought: Any = key if sort_key is None else sort_key(key)
            return ((bisect_left(bounds, sought) if bounds else 0, ((sought, key, value),)),)
        by_number: dict[int, list[_Sought[K, V]]] = {}
        # Inserting keys in their order moves only the old keys of a chunk. The sort is stable.
        for change in sorted([(self.order.sort_value(key), key, value) for key, value in changes], key=itemgetter(0)):
            by_number.setdefault(bisect_left(bounds, change[0]), []).append(change)
        return by_number.items()

    def _place(self, position: int) -> tuple[int, int]:
        """Return the number of the chunk that has a position, and the position in it. It walks from the nearer end."""
        chunks = self.chunks
        if 2 * position < self.size:
            number = 0
            while position >= len(chunks[number].keys):
                position -= len(chunks[number].keys)
                number += 1
            return number, position
        number, position = len(chunks) - 1, position - self.size
        while position < -len(chunks[number].keys):
            position += len(chunks[number].keys)
            number -= 1
        return number, position + len(chunks[number].keys)


def _of_chunks(order: KeyOrder[K, V], size: int, chunks: Sequence[Chunk[K, V]]) -> SortedMap[K, V]:
    return SortedMap(order, size, chunks, tuple([order.sort_value(chunk.keys[-1]) for chunk in chunks[:-1]]))


def _edited(order: KeyOrder[K, V], chunk: Chunk[K, V], changes: Iterable[_Sought[K, V]]) -> Chunk[K, V]:
    """Return the chunk after changes of its keys, or itself if nothing changes."""
    sort_key, values, encoded = order.sort_key, chunk.values, chunk.encoded
    keys: Any = chunk.keys  # a list after the first change
    for sought, key, value in changes:
        position = bisect_left(keys, sought, key=sort_key)
        before = values[position] if position < len(keys) and keys[position] == key else None
        if before is value or before == value:
            continue
        if values is chunk.values:
            values = values[:]
        if before is not None and value is not None:
            values[position] = value
            encoded = encoded if order.keeps_encoded(before, value) else None
            continue
        if keys is chunk.keys:
            keys = list(keys)
        if value is None:
            del keys[position], values[position]
        else:
            keys.insert(position, key)
            values.insert(position, value)
        encoded = None
    return chunk if values is chunk.values else Chunk(tuple(keys), values, encoded)


def _joined(chunks: Sequence[Chunk[K, V]]) -> Chunk[K, V]:
    """Return the content of adjacent chunks as one."""
    if len(chunks) == 1:
        return chunks[0]
    values = chunks[0].values[:]
    for chunk in chunks[1:]:
        values.extend(chunk.values)
    return Chunk(tuple(chain.from_iterable(map(_KEYS, chunks))), values)


def _split(order: KeyOrder[K, V], whole: Chunk[K, V], octets: Iterable[bytes] | None = None) -> list[Chunk[K, V]]:
    """Return the pieces of a chunk between its boundaries. The last piece may be empty."""
    hashes = map(crc32, octets or map(order.octets, whole.keys))
    ends = [end for end, mixed in enumerate(hashes, 1) if not mixed & BOUNDARY_MASK]
    return [whole[start:end] for start, end in pairwise([0, *ends, len(whole.keys)])]


def _split_again(order: KeyOrder[K, V], chunks: Sequence[Chunk[K, V]], numbers: list[int]) -> list[Chunk[K, V]]:
    """Return the chunks after splitting some of them. One that lost its boundary is joined with the next one."""
    result: list[Chunk[K, V]] = []
    start, last = 0, len(chunks) - 1
    for number in numbers:
        if number < start:
            continue
        end = number
        while end < last and not (chunks[end].keys and order.ends_chunk(chunks[end].keys[-1])):
            end += 1
        pieces = _split(order, _joined(chunks[number : end + 1]))
        result += chunks[start:number]
        # Only the last chunk of all has keys after its last boundary.
        result += pieces if end == last else pieces[:-1]
        start = end + 1
    return [*result, *chunks[start:]]
