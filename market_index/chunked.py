"""The persistent sorted structure of books, indexes and orders: keys and values in immutable chunks.

Theory of operation
    A `Chunked` has keys in a fixed order, each with a value. It is split into chunks of 64 keys on
    average. Nothing is changed in place: a change copies the chunk that contains the key and the list of chunks. All
    other chunks are shared between the old and the new version. A value that equals the stored one changes nothing.

    A chunk ends at every key whose hash has six zero bits, and nowhere else (content-defined boundaries, as in prolly
    trees). The last chunk contains the keys after the last such key and may be empty. Up to 64 keys are always one
    chunk, because most books are that small and hashing their prices would take a tenth of the decoding time.
    Therefore the layout depends only on the keys: it is the same in every process and independent of history. Equal
    content has equal chunks, so comparison and digests work chunk by chunk. Chunk sizes vary. An adversary can choose
    keys so that all are in one chunk, or each is in its own. Results stay correct, but a call then takes time
    proportional to the number of keys, and each of its changes moves the following keys of its chunk.

    The JSON of a chunk is cached in its slot `encoded`. It is computed once for all versions that share the chunk. The
    JSON of a book with one chunk per side is not cached (see `market_index.wire.encode`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, MutableSequence, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, final
from zlib import crc32

from attrs import field, frozen

from market_index.value import Value, slot_setters

if TYPE_CHECKING:
    from market_index.wire.parts import EncodedPart

K = TypeVar("K")
V = TypeVar("V")

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

    def ends_chunk(self, key: K) -> bool:
        """Whether a chunk ends at this key."""
        return not crc32(self.octets(key)) & BOUNDARY_MASK


@final
@frozen(unsafe_hash=False, getstate_setstate=False, weakref_slot=False)
class Chunk(Value, Generic[K, V]):
    """Adjacent keys and their values, which never change once the chunk is shared. `encoded` is a cache."""

    keys: list[K]
    values: MutableSequence[V]
    encoded: EncodedPart | None = field(default=None, eq=False)

    def changed(
        self,
        position: int,
        entry: tuple[K, V | None],
        before: V | None,
        shared: Chunk[K, V],
        encoded: EncodedPart | None,
    ) -> Chunk[K, V]:
        """Return the chunk after setting the value of a key at its position (None: absent) and the cache.

        A column of the shared chunk is copied before it is changed. A column that was copied is changed in place.
        """
        keys, values, (key, value) = self.keys, self.values, entry
        if values is shared.values:
            values = values[:]
        if (before is None or value is None) and keys is shared.keys:
            keys = keys.copy()
        if value is None:
            del keys[position], values[position]
        elif before is None:
            keys.insert(position, key)
            values.insert(position, value)
        else:
            values[position] = value
        is_same = keys is self.keys and values is self.values and encoded is self.encoded
        return self if is_same else Chunk(keys, values, encoded)

    def __getitem__(self, piece: slice) -> Chunk[K, V]:
        return Chunk(self.keys[piece], self.values[piece])


set_encoded: Callable[[Chunk[Any, Any], EncodedPart | None], None] = slot_setters(Chunk, "encoded")[0]


class Chunked(Value, Generic[K, V]):
    """Immutable base class of collections: sorted keys and their values in chunks.

    The methods do not validate: a subclass defines keys and values, and accepts only valid ones. Two are equal if they
    have the same keys and values; shared chunks are compared by identity.

    >>> content = Chunked(KeyOrder(str.encode), Chunk([], []))
    >>> following = content._changed([("b", 7), ("a", 5)])
    >>> following.columns, following._changed([("a", None)]).columns
    ((('a', 'b'), (5, 7)), (('b',), (7,)))
    """

    __slots__ = ("_bounds", "_chunks", "_order", "_size")
    _order: KeyOrder[K, V]
    _chunks: list[Chunk[K, V]]
    _bounds: tuple[Any, ...]
    _size: int

    def __init__(self, order: KeyOrder[K, V], whole: Chunk[K, V], octets: Iterable[bytes] | None = None) -> None:
        """Split a chunk of sorted, different keys at its boundaries; `octets` are those of the keys, if known."""
        size = len(whole.keys)
        chunks = [whole] if size <= MAX_UNSPLIT else _split(order, whole, octets)
        _SET_ORDER(self, order)
        _SET_CHUNKS(self, chunks)
        _SET_BOUNDS(self, _bounds(order, chunks))
        _SET_SIZE(self, size)

    @property
    def chunks(self) -> tuple[Chunk[K, V], ...]:
        """The chunks, for code that caches a result per chunk. Callers must not change them."""
        return tuple(self._chunks)

    @property
    def columns(self) -> tuple[tuple[K, ...], tuple[V, ...]]:
        """All keys, in order, and the value of each."""
        chunks = self._chunks
        keys, values = [chunk.keys for chunk in chunks], [chunk.values for chunk in chunks]
        return tuple(chain.from_iterable(keys)), tuple(chain.from_iterable(values))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._order is other._order and self._size == other._size and self._chunks == other._chunks

    def __hash__(self) -> int:
        return hash(self.columns)

    def __len__(self) -> int:
        return self._size

    def _at(self, key: K) -> V | None:
        """Return the value of a key, or None if the key is absent."""
        sort_key, bounds = self._order.sort_key, self._bounds
        sought: Any = key if sort_key is None else sort_key(key)
        chunk = self._chunks[bisect_left(bounds, sought) if bounds else 0]
        position = bisect_left(chunk.keys, sought, key=sort_key)
        return chunk.values[position] if position < len(chunk.keys) and chunk.keys[position] == key else None

    def _changes_since(self, earlier: Chunked[K, V]) -> tuple[list[tuple[K, V]], list[tuple[K, V]]]:
        """Return the entries that the earlier object lacks, and its entries whose keys this object lacks.

        Shared chunks are skipped.
        """
        pairs = [pair for pair in zip(self._chunks, earlier._chunks, strict=False) if pair[0] is not pair[1]]
        if len(self._chunks) == len(earlier._chunks) and all(now.keys == before.keys for now, before in pairs):
            # Only values changed, as in most changes of an index. This takes a fifth of the time.
            return [
                (key, value)
                for now, before in pairs
                for key, value, known in zip(now.keys, now.values, before.values, strict=True)
                if value is not known and value != known
            ], []
        shared = set(map(id, self._chunks)) & set(map(id, earlier._chunks))
        entries, known_entries = self._entries_outside(shared), earlier._entries_outside(shared)
        changed = [entry for octets, entry in entries.items() if entry != known_entries.get(octets)]
        return changed, [entry for octets, entry in known_entries.items() if octets not in entries]

    def _entries_outside(self, chunks: set[int]) -> dict[bytes, tuple[K, V]]:
        """Return the keys and values by the bytes of the key, without those of the chunks with these `id`s.

        By bytes, because hashes of numbers are predictable: an attacker could choose prices that collide.
        """
        octets = self._order.octets
        return {
            octets(key): (key, value)
            for chunk in self._chunks
            if id(chunk) not in chunks
            for key, value in zip(chunk.keys, chunk.values, strict=True)
        }

    def _changed(self, changes: Collection[tuple[K, V | None]]) -> Self:
        """Return the collection after setting each key to its value, or itself if nothing changes.

        None removes the key; removing an absent key changes nothing. If a key repeats, the last change wins.
        """
        order, bounds, size = self._order, self._bounds, self._size
        sort_key, is_split = order.sort_key, size > MAX_UNSPLIT
        if len(changes) > 1:
            # Inserting keys in their order moves only the old keys of a chunk. The sort is stable.
            by_key = itemgetter(0) if sort_key is None else lambda change: sort_key(change[0])
            changes = sorted(changes, key=by_key)
        # The list is copied before it is changed.
        chunks = shared = self._chunks
        # The places of chunks that must be split again, because a boundary was added or removed.
        places = set() if is_split else {0}
        for change in changes:
            key, value = change
            sought: Any = key if sort_key is None else sort_key(key)
            at = bisect_left(bounds, sought) if bounds else 0
            chunk = chunks[at]
            position = bisect_left(chunk.keys, sought, key=sort_key)
            is_present = position < len(chunk.keys) and chunk.keys[position] == key
            before = chunk.values[position] if is_present else None
            if before is value or before == value:
                continue
            chunks = shared.copy() if chunks is shared else chunks
            if before is not None and value is not None:
                encoded = chunk.encoded if order.keeps_encoded(before, value) else None
            else:
                encoded = None
                size += 1 if before is None else -1
                if is_split and order.ends_chunk(key):
                    places.add(at)
            chunks[at] = chunk.changed(position, change, before, shared[at], encoded)
        if places and size > MAX_UNSPLIT:
            chunks = _split_again(order, chunks, sorted(places))
            bounds = _bounds(order, chunks)
        return self if chunks is shared else self._derived(chunks, bounds, size)

    def _place(self, position: int) -> tuple[int, int]:
        """Return the number of the chunk that has this position, and the position in the chunk."""
        at = 0
        while position >= len(self._chunks[at].keys):
            position -= len(self._chunks[at].keys)
            at += 1
        return at, position

    def _head(self, count: int) -> Self:
        """Return the collection of the first `count` keys, or itself if it has no more."""
        if count >= self._size:
            return self
        at, left = self._place(count)
        return self._derived([*self._chunks[:at], self._chunks[at][:left]], self._bounds[:at], count)

    def _derived(self, chunks: list[Chunk[K, V]], bounds: tuple[Any, ...], size: int) -> Self:
        """Return the collection of these chunks, joined into one if it is small, without the constructor."""
        if size <= MAX_UNSPLIT and len(chunks) > 1:
            chunks, bounds = [joined(chunks)], ()
        derived = object.__new__(type(self))
        _SET_ORDER(derived, self._order)
        _SET_CHUNKS(derived, chunks)
        _SET_BOUNDS(derived, bounds)
        _SET_SIZE(derived, size)
        return derived


_SET_ORDER, _SET_CHUNKS, _SET_BOUNDS, _SET_SIZE = slot_setters(Chunked, "_order", "_chunks", "_bounds", "_size")


def _split(order: KeyOrder[K, V], whole: Chunk[K, V], octets: Iterable[bytes] | None = None) -> list[Chunk[K, V]]:
    """Return the pieces of a chunk between its boundaries. The last piece may be empty."""
    hashes = map(crc32, octets or map(order.octets, whole.keys))
    ends = [end for end, mixed in enumerate(hashes, 1) if not mixed & BOUNDARY_MASK]
    return [whole[start:end] for start, end in pairwise([0, *ends, len(whole.keys)])]


def _bounds(order: KeyOrder[K, V], chunks: list[Chunk[K, V]]) -> tuple[Any, ...]:
    """Return the sort value of the last key of each chunk but the last, to find the chunk of a key by bisection."""
    last_keys = [chunk.keys[-1] for chunk in chunks[:-1]]
    return tuple(last_keys if order.sort_key is None else map(order.sort_key, last_keys))


def joined(chunks: Sequence[Chunk[K, V]]) -> Chunk[K, V]:
    """Return the content of adjacent chunks as one."""
    if len(chunks) == 1:
        return chunks[0]
    keys, values = list(chain.from_iterable([chunk.keys for chunk in chunks])), chunks[0].values[:]
    for chunk in chunks[1:]:
        values.extend(chunk.values)
    return Chunk(keys, values)


def _split_again(order: KeyOrder[K, V], chunks: list[Chunk[K, V]], places: list[int]) -> list[Chunk[K, V]]:
    """Return the chunks after splitting those at `places`. One that lost its boundary is joined with the next one."""
    result: list[Chunk[K, V]] = []
    start, last = 0, len(chunks) - 1
    for place in places:
        if place < start:
            continue
        end = place
        while end < last and not (chunks[end].keys and order.ends_chunk(chunks[end].keys[-1])):
            end += 1
        pieces = _split(order, joined(chunks[place : end + 1]))
        result += chunks[start:place]
        # Only the last chunk of all has keys after its last boundary.
        result += pieces if end == last else pieces[:-1]
        start = end + 1
    return result + chunks[start:]
