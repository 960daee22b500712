"""The persistent sorted structure of books, indexes and orders: keys and values in immutable chunks.

Theory of operation
    A `Chunked` is a sequence of keys in a fixed order, each with a value. It is split into chunks of 64 keys on
    average. Nothing is changed in place: a change copies the chunk that contains the key and the list of chunks. All
    other chunks are shared between the old and the new version. A value that equals the stored one changes nothing.

    A chunk ends at every key whose hash has six zero bits, and nowhere else (content-defined boundaries, as in prolly
    trees). The last chunk contains the keys after the last such key and may be empty. Up to 64 keys are always one
    chunk, because most books are that small and hashing their prices would take a tenth of the decoding time.
    Therefore the layout depends only on the keys: it is the same in every process and independent of history. Equal
    content has equal chunks, so comparison and digests work chunk by chunk. Chunk sizes vary. Keys can be chosen so
    that no chunk ends, or that each key is a chunk; then a change costs as much as in one list. One call copies each
    list once, but each of its changes moves the following keys of the chunk.

    The JSON of a chunk is cached in its slot `encoded`. It is computed once for all versions that share the chunk,
    except the JSON of a book of one chunk a side (see `market_index.wire.encode`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, MutableSequence, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final
from zlib import crc32

from attrs import define, field, frozen

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
        keeps_encoded: Whether the JSON of a value is also that of its replacement.
    """

    octets: Callable[[K], bytes]
    sort_key: Callable[[Any], Any] | None = None
    keeps_encoded: Callable[[V, V], bool] = lambda _, __: False

    def ends_chunk(self, key: K) -> bool:
        """Whether a chunk ends at this key."""
        return not crc32(self.octets(key)) & BOUNDARY_MASK


@final
@define(weakref_slot=False)
class Chunk(Generic[K, V]):
    """Adjacent keys and their values, which never change once the chunk is shared. `encoded` is a cache."""

    keys: list[K]
    values: MutableSequence[V]
    encoded: EncodedPart | None = field(default=None, eq=False)

    def set(self, position: int, key: K, before: V | None, value: V | None) -> None:
        """Set the value of a key at its position, in a chunk that is not shared yet. None: absent."""
        if value is None:
            del self.keys[position], self.values[position]
        elif before is None:
            self.keys.insert(position, key)
            self.values.insert(position, value)
        else:
            self.values[position] = value

    def __getitem__(self, piece: slice) -> Chunk[K, V]:
        return Chunk(self.keys[piece], self.values[piece])


@final
@frozen(repr=False, weakref_slot=False)
class Chunked(Generic[K, V]):
    """Sorted keys and their values in chunks. Immutable; callers must not change the chunks.

    The methods do not validate: the owner defines keys and values, and passes only valid ones. Two are equal if they
    have the same keys and values; shared chunks are compared by identity.

    >>> content = Chunked.of(KeyOrder(str.encode), Chunk([], []))
    >>> following = content.changed([("b", 7), ("a", 5)])
    >>> following.keys, following.values, following.changed([("a", None)]).keys
    (('a', 'b'), (5, 7), ('b',))
    """

    order: KeyOrder[K, V]
    chunks: list[Chunk[K, V]]
    bounds: tuple[Any, ...] = field(eq=False)
    size: int

    @staticmethod
    def of(order: KeyOrder[K, V], whole: Chunk[K, V], octets: Iterable[bytes] | None = None) -> Chunked[K, V]:
        """Split a chunk of sorted, different keys at its boundaries; `octets` are those of the keys, if known."""
        size = len(whole.keys)
        chunks = [whole] if size <= MAX_UNSPLIT else _split(order, whole, octets)
        return Chunked(order, chunks, _bounds(order, chunks), size)

    @property
    def keys(self) -> tuple[K, ...]:
        """All keys, in order."""
        return tuple(chain.from_iterable([chunk.keys for chunk in self.chunks]))

    @property
    def values(self) -> tuple[V, ...]:
        """The value of each key."""
        return tuple(chain.from_iterable([chunk.values for chunk in self.chunks]))

    def __hash__(self) -> int:
        return hash((self.keys, self.values))

    def at(self, key: K) -> V | None:
        """Return the value of a key, or None if the key is absent."""
        sort_key, bounds = self.order.sort_key, self.bounds
        sought: Any = key if sort_key is None else sort_key(key)
        chunk = self.chunks[bisect_left(bounds, sought) if bounds else 0]
        position = bisect_left(chunk.keys, sought, key=sort_key)
        return chunk.values[position] if position < len(chunk.keys) and chunk.keys[position] == key else None

    def changes_since(self, earlier: Chunked[K, V]) -> tuple[list[tuple[K, V]], list[tuple[K, V]]]:
        """Return the entries that the earlier object lacks, and its entries whose keys this object lacks.

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

    def changed(self, changes: Collection[tuple[K, V | None]]) -> Chunked[K, V]:
        """Return the sequence after setting each key to its value, or itself if nothing changes.

        None removes the key; removing an absent key changes nothing. If a key repeats, the last change wins.
        """
        order, bounds, size = self.order, self.bounds, self.size
        sort_key, is_split = order.sort_key, size > MAX_UNSPLIT
        if len(changes) > 1:
            # Inserting keys in their order moves only the old keys of a chunk. The sort is stable.
            by_key = itemgetter(0) if sort_key is None else lambda change: sort_key(change[0])
            changes = sorted(changes, key=by_key)
        # A chunk at its place in `shared` is copied before it is changed, and so is the list.
        chunks = shared = self.chunks
        # The places of chunks that must be split again, because a boundary was added or removed.
        places = set() if is_split else {0}
        for key, value in changes:
            sought: Any = key if sort_key is None else sort_key(key)
            at = bisect_left(bounds, sought) if bounds else 0
            chunk = chunks[at]
            position = bisect_left(chunk.keys, sought, key=sort_key)
            is_present = position < len(chunk.keys) and chunk.keys[position] == key
            before = chunk.values[position] if is_present else None
            if before is value or before == value:
                continue
            if chunk is shared[at]:
                chunks = shared.copy() if chunks is shared else chunks
                chunks[at] = chunk = Chunk(chunk.keys, chunk.values[:], chunk.encoded)
            if before is None or value is None:
                if chunk.keys is shared[at].keys:
                    chunk.keys = chunk.keys.copy()
                size += 1 if before is None else -1
                if is_split and order.ends_chunk(key):
                    places.add(at)
            if before is None or value is None or not order.keeps_encoded(before, value):
                chunk.encoded = None
            chunk.set(position, key, before, value)
        if places and size > MAX_UNSPLIT:
            chunks = _split_again(order, chunks, sorted(places))
            bounds = _bounds(order, chunks)
        return self if chunks is shared else self._derived(chunks, bounds, size)

    def head(self, count: int) -> Chunked[K, V]:
        """Return the sequence of the first `count` keys, or itself if it has no more."""
        if count >= self.size:
            return self
        at, left = 0, count
        while left >= len(self.chunks[at].keys):
            left -= len(self.chunks[at].keys)
            at += 1
        return self._derived([*self.chunks[:at], self.chunks[at][:left]], self.bounds[:at], count)

    def front(self, count: int) -> Chunk[K, V]:
        """Return a chunk that starts with the first `count` keys, or with all if there are no more."""
        at, left = 0, count - len(self.chunks[0].keys)
        while left > 0 and at + 1 < len(self.chunks):
            at += 1
            left -= len(self.chunks[at].keys)
        return _joined(self.chunks[: at + 1])

    def _derived(self, chunks: list[Chunk[K, V]], bounds: tuple[Any, ...], size: int) -> Chunked[K, V]:
        """Return the sequence of these chunks, joined into one if it is small."""
        if size <= MAX_UNSPLIT and len(chunks) > 1:
            chunks, bounds = [_joined(chunks)], ()
        return Chunked(self.order, chunks, bounds, size)


def _split(order: KeyOrder[K, V], whole: Chunk[K, V], octets: Iterable[bytes] | None = None) -> list[Chunk[K, V]]:
    """Return the pieces of a chunk between its boundaries. The last piece may be empty."""
    hashes = map(crc32, octets or map(order.octets, whole.keys))
    ends = [end for end, mixed in enumerate(hashes, 1) if not mixed & BOUNDARY_MASK]
    return [whole[start:end] for start, end in pairwise([0, *ends, len(whole.keys)])]


def _bounds(order: KeyOrder[K, V], chunks: list[Chunk[K, V]]) -> tuple[Any, ...]:
    """Return the sort value of the last key of each chunk but the last, to find the chunk of a key by bisection."""
    last_keys = [chunk.keys[-1] for chunk in chunks[:-1]]
    return tuple(last_keys if order.sort_key is None else map(order.sort_key, last_keys))


def _joined(chunks: Sequence[Chunk[K, V]]) -> Chunk[K, V]:
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
        pieces = _split(order, _joined(chunks[place : end + 1]))
        result += chunks[start:place]
        # Only the last chunk of all has keys after its last boundary.
        result += pieces if end == last else pieces[:-1]
        start = end + 1
    return result + chunks[start:]
