"""The persistent sorted structure of books, indexes and orders: keys and values in immutable chunks.

Theory of operation
    A `Chunked` is a sequence of keys in a fixed order, each with a value. It is split into chunks of 64 keys on
    average. Nothing is changed in place: a change copies the chunk that contains the key and the list of chunks. All
    other chunks are shared between the old and the new version.

    A chunk ends at every key whose hash has six zero bits, and nowhere else (content-defined boundaries, as in prolly
    trees). The last chunk contains the keys after the last such key and may be empty. Up to 64 keys are always one
    chunk, because most books are that small and hashing their prices would take a tenth of the decoding time.
    Therefore the layout depends only on the keys: it is the same in every process and independent of history. Equal
    content has equal chunks, so comparison and digests work chunk by chunk. A new boundary splits one chunk, a removed
    one joins two, and no other chunk changes. Chunk sizes vary. Keys can be chosen so that no chunk ends, or that each
    key is a chunk; then a change costs as much as in one list. One call copies each list once, but each of its changes
    moves the following keys of the chunk.

    Results computed from a chunk are cached in its slots `items` (one object per value) and `encoded` (the JSON of all
    values). They are computed once for all versions that share the chunk, except the JSON of a book of one chunk a side
    (see `market_index.wire.encode`). A change keeps the items of the other values.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, MutableSequence
from itertools import chain, islice, pairwise
from operator import eq, itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeAlias, TypeVar, final

from attrs import frozen

if TYPE_CHECKING:
    from market_index.wire.parts import EncodedPart

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
C = TypeVar("C")

ValueOf: TypeAlias = Callable[[K, V | None, C], V | None]
"""Returns the next value of a key, None if it is removed, from its value before, None if it is absent, and a change."""

BOUNDARY_MASK: Final = 0x3F
"""A chunk ends at a key whose hash has none of these bits, on average at one key in 64."""

MAX_UNSPLIT: Final = 64
"""The maximum number of keys that are always one chunk."""


@final
@frozen(eq=False)
class KeyOrder(Generic[K, V]):
    """How keys are sorted and hashed, and when values count as unchanged.

    Args:
        hashes: Returns one non-negative integer per key, the same in every process, with well mixed lowest six bits.
        is_same: Whether a new value equals the old one, so that the chunk is kept.
        sort_key: Maps a key to its sort value; None if keys are sorted by themselves.
        keeps_item: Whether the cached item of a value is also valid for its replacement.
        new_item: Returns the item of a new value in a chunk that has items; None if the item is computed later.
    """

    hashes: Callable[[Iterable[K]], Iterable[int]]
    is_same: Callable[[V, V], bool]
    sort_key: Callable[[Any], Any] | None = None
    keeps_item: Callable[[V, V], bool] | None = None
    new_item: Callable[[K, V], Any] = lambda _, __: None


@final
class Chunk(Generic[K, V, T]):
    """Adjacent keys and their values, which never change once the chunk is shared.

    `items` and `encoded` are caches, None until computed.
    """

    __slots__ = ("encoded", "items", "keys", "values")

    def __init__(
        self,
        keys: list[K],
        values: MutableSequence[V],
        items: list[T] | None = None,
        encoded: EncodedPart | None = None,
    ) -> None:
        self.keys: list[K] = keys
        self.values: MutableSequence[V] = values
        self.items: list[T] | None = items
        self.encoded: EncodedPart | None = encoded

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chunk) and self.keys == other.keys and self.values == other.values

    __hash__: ClassVar[None]  # type: ignore[assignment]  # only a whole sequence is hashed, over its columns

    def __getitem__(self, piece: slice) -> Chunk[K, V, T]:
        items = self.items
        return Chunk(self.keys[piece], self.values[piece], None if items is None else items[piece])

    def copy(self) -> Chunk[K, V, T]:
        """Return a chunk of the same content that may be changed until it is shared.

        Both have one list of keys. Replace it before `insert` and `remove`.
        """
        # Without the constructor, which takes as long as all of this.
        copied: Chunk[K, V, T] = object.__new__(Chunk)
        copied.keys, copied.values, copied.encoded = self.keys, self.values[:], self.encoded
        copied.items = None if self.items is None else self.items.copy()
        return copied

    def replace(self, position: int, value: V, order: KeyOrder[K, V]) -> None:
        """Set the value at a position."""
        values = self.values
        if order.keeps_item is None or not order.keeps_item(values[position], value):
            self.encoded = None
            if self.items is not None:
                self.items[position] = order.new_item(self.keys[position], value)
        values[position] = value

    def insert(self, position: int, key: K, value: V, order: KeyOrder[K, V]) -> None:
        """Insert a new key and its value at a position."""
        self.keys.insert(position, key)
        self.values.insert(position, value)
        self.encoded = None
        if self.items is not None:
            self.items.insert(position, order.new_item(key, value))

    def remove(self, position: int) -> None:
        """Remove the key at a position."""
        del self.keys[position], self.values[position]
        self.encoded = None
        if self.items is not None:
            del self.items[position]


class Chunked(Generic[K, V, T]):
    """Immutable base class of sorted keys and values in chunks, which cache an item of class `T` per value.

    `_changed`, `_head` and `_of_chunk` return objects of the same class. They do not validate: a subclass defines keys
    and values, and accepts only valid ones. `_bounds` has the sort key of the last key of each chunk but the last, so
    that a bisection finds the chunk of a key. `_size` is the number of keys.
    """

    __slots__ = ("_bounds", "_chunks", "_order", "_size")
    _order: KeyOrder[K, V]
    _chunks: list[Chunk[K, V, T]]
    _bounds: tuple[Any, ...]
    _size: int

    def __init__(self, order: KeyOrder[K, V], whole: Chunk[K, V, T]) -> None:
        """Split a chunk of sorted, different keys at its boundaries."""
        self._order = order
        self._size = len(whole.keys)
        self._chunks, self._bounds = _split(order, whole)

    @property
    def chunks(self) -> tuple[Chunk[K, V, T], ...]:
        """The chunks, for code that caches a result per chunk. Callers must not change them."""
        return tuple(self._chunks)

    def _has_same_content(self, other: Chunked[K, V, T]) -> bool:
        """Whether the other object has the same keys and values. Shared chunks are compared by identity."""
        return self._order is other._order and self._size == other._size and self._chunks == other._chunks

    def _changes_since(self, earlier: Chunked[K, V, T]) -> tuple[list[V], list[V]]:
        """Return the values that the earlier object lacks, and its values whose keys this object lacks.

        Values are compared by identity. Shared chunks are skipped.
        """
        common = set(map(id, self._chunks)) & set(map(id, earlier._chunks))
        twins = {id(chunk.keys): chunk for chunk in earlier._chunks if id(chunk) not in common}
        changed: list[V] = []
        others: list[Chunk[K, V, T]] = []
        for chunk in self._chunks:
            if id(chunk) in common:
                continue
            # A chunk in which no key was added or removed has the same list of keys.
            twin = twins.pop(id(chunk.keys), None)
            if twin is None:
                others.append(chunk)
            else:
                changed += [now for now, before in zip(chunk.values, twin.values, strict=True) if now is not before]
        before, now = _by_key(twins.values()), _by_key(others)
        changed += [value for key, value in now.items() if before.get(key) is not value]
        return changed, [value for key, value in before.items() if key not in now]

    def _at(self, key: K) -> V | None:
        """Return the value of a key, or None if the key is absent."""
        sort_key, bounds = self._order.sort_key, self._bounds
        sought: Any = key if sort_key is None else sort_key(key)
        chunk = self._chunks[bisect_left(bounds, sought) if bounds else 0]
        position = bisect_left(chunk.keys, sought, key=sort_key)
        return chunk.values[position] if position < len(chunk.keys) and chunk.keys[position] == key else None

    def _changed(self, changes: Collection[tuple[K, C]], value_of: ValueOf[K, V, C] | None = None) -> Self:
        """Return the sequence after setting each key to its value, or itself if nothing changes.

        None removes the key; removing an absent key changes nothing. If a key repeats, the last change wins.

        With `value_of` no key may repeat. It returns the value of a key from the value before, None if the key is
        absent, and from the change. It is called once per key, in any order.
        """
        if not self._size:
            return self._filled(changes, value_of)
        return self._merged(changes if len(changes) < 2 else self._sorted(changes), value_of)

    def _merged(self, changes: Iterable[tuple[K, Any]], value_of: ValueOf[K, V, Any] | None) -> Self:
        """Return this sequence, which is not empty, after changes that are sorted by key."""
        order, bounds, size = self._order, self._bounds, self._size
        sort_key, is_split = order.sort_key, size > MAX_UNSPLIT
        # A chunk at its place in `shared` is copied before it is changed, and so is the list.
        chunks = shared = self._chunks
        # Added and removed boundaries, and the places of their chunks, which are split and joined after all changes.
        places: list[int] = []
        ends: list[Any] = []
        for key, change in changes:
            sought: Any = key if sort_key is None else sort_key(key)
            at = bisect_left(bounds, sought) if bounds else 0
            chunk = chunks[at]
            keys = chunk.keys
            position = bisect_left(keys, sought, key=sort_key)
            is_present = position < len(keys) and keys[position] == key
            value = (
                change if value_of is None else value_of(key, chunk.values[position] if is_present else None, change)
            )
            if value is None and not is_present:
                continue
            if value is not None and is_present and order.is_same(chunk.values[position], value):
                continue
            if chunk is shared[at]:
                chunks = shared.copy() if chunks is shared else chunks
                chunks[at] = chunk = chunk.copy()
            if value is not None and is_present:
                chunk.replace(position, value, order)
                continue
            if keys is shared[at].keys:
                chunk.keys = keys.copy()
            if value is not None:
                chunk.insert(position, key, value, order)
                size += 1
                is_end = is_split and _ends_chunk(order, key)
            else:
                chunk.remove(position)
                size -= 1
                is_end = position == len(chunk.keys) and at < len(bounds)
            if is_end:
                places.append(at)
                ends.append(sought)
        if ends or (size > MAX_UNSPLIT and not is_split):
            chunks, bounds = _rechunked(order, chunks, bounds, places, ends) if is_split else _split(order, chunks[0])
        return self if chunks is shared else self._derived(chunks, bounds, size)

    def _filled(self, changes: Collection[tuple[K, Any]], value_of: ValueOf[K, V, Any] | None) -> Self:
        """Return this empty sequence after the changes. Columns are filled faster than keys are inserted one by one."""
        ordered = changes if len(changes) < 2 else self._sorted(changes)
        if value_of is not None:
            ordered = [(key, value_of(key, None, change)) for key, change in ordered]
        keys = [key for key, _ in ordered]
        if any(map(eq, keys, islice(keys, 1, None))):
            # The sort is stable: the last change of a key comes last.
            followed_by = chain(islice(keys, 1, None), [None])
            ordered = [change for change, key in zip(ordered, followed_by, strict=True) if change[0] != key]
        present = [change for change in ordered if change[1] is not None]
        if not present:
            return self
        values = self._chunks[0].values[:]
        values.extend([value for _, value in present])
        return self._of_chunk(Chunk([key for key, _ in present], values))

    def _of_chunk(self, whole: Chunk[K, V, T]) -> Self:
        """Return the sequence of the keys and values of a chunk, in the order of this sequence."""
        return self._derived(*_split(self._order, whole), len(whole.keys))

    def _sorted(self, changes: Collection[tuple[K, C]]) -> list[tuple[K, C]]:
        """Return the changes by key. The sort is stable: the last change of a key comes last.

        Inserting keys in their order moves only the old keys of a chunk.
        """
        sort_key = self._order.sort_key
        return sorted(changes, key=itemgetter(0) if sort_key is None else lambda change: sort_key(change[0]))

    def _head(self, count: int) -> Self:
        """Return the sequence of the first `count` keys, or itself if it has no more."""
        if count >= self._size:
            return self
        at, left = 0, count
        while left >= len(self._chunks[at].keys):
            left -= len(self._chunks[at].keys)
            at += 1
        return self._derived([*self._chunks[:at], self._chunks[at][:left]], self._bounds[:at], count)

    def _derived(self, chunks: list[Chunk[K, V, T]], bounds: tuple[Any, ...], size: int) -> Self:
        """Return the sequence of these chunks, joined into one if it is small, without the constructor."""
        if size <= MAX_UNSPLIT and len(chunks) > 1:
            chunks, bounds = [_joined(chunks)], ()
        derived = object.__new__(type(self))
        derived._order = self._order
        derived._chunks = chunks
        derived._bounds = bounds
        derived._size = size
        return derived


def _by_key(chunks: Iterable[Chunk[K, V, T]]) -> dict[K, V]:
    return {key: value for chunk in chunks for key, value in zip(chunk.keys, chunk.values, strict=True)}


def _ends_chunk(order: KeyOrder[K, V], key: K) -> bool:
    (mixed,) = order.hashes((key,))
    return not mixed & BOUNDARY_MASK


def _split(order: KeyOrder[K, V], whole: Chunk[K, V, T]) -> tuple[list[Chunk[K, V, T]], tuple[Any, ...]]:
    """Return the pieces of a chunk and the bounds between them: one if it is small. The last piece may be empty."""
    keys = whole.keys
    if len(keys) <= MAX_UNSPLIT:
        return [whole], ()
    ends = [end for end, mixed in enumerate(order.hashes(keys), 1) if not mixed & BOUNDARY_MASK]
    last_keys = [keys[end - 1] for end in ends]
    bounds = tuple(last_keys if order.sort_key is None else map(order.sort_key, last_keys))
    return [whole[start:end] for start, end in pairwise([0, *ends, len(keys)])], bounds


def _joined(chunks: list[Chunk[K, V, T]]) -> Chunk[K, V, T]:
    """Return the content of adjacent chunks as one."""
    keys, values = list(chain.from_iterable([chunk.keys for chunk in chunks])), chunks[0].values[:]
    for chunk in chunks[1:]:
        values.extend(chunk.values)
    items = [chunk.items for chunk in chunks if chunk.items is not None]
    return Chunk(keys, values, list(chain.from_iterable(items)) if len(items) == len(chunks) else None)


def _rechunked(
    order: KeyOrder[K, V], chunks: list[Chunk[K, V, T]], bounds: tuple[Any, ...], places: list[int], ends: list[Any]
) -> tuple[list[Chunk[K, V, T]], tuple[Any, ...]]:
    """Return the chunks and their bounds after boundaries were added or removed in the chunks at `places`, in order.

    One pass, because copying the lists at each boundary takes quadratic time if every key is one.
    """
    rechunked: list[Chunk[K, V, T]] = []
    new_bounds: list[Any] = []
    start = done = 0
    while done < len(places):
        # A chunk without its boundary is joined with the next one.
        first = last = places[done]
        while last < len(bounds) and not (chunks[last].keys and _ends_chunk(order, chunks[last].keys[-1])):
            last += 1
        following = bisect_right(places, last, done)
        whole, cuts = _joined(chunks[first : last + 1]), [0]
        rechunked += chunks[start:first]
        new_bounds += bounds[start:first]
        for end in (*ends[done:following], *bounds[last : last + 1]):
            cut = bisect_right(whole.keys, end, key=order.sort_key)
            # A removed boundary is absent. One that changed twice was cut already.
            if max(cuts[-1], bisect_left(whole.keys, end, key=order.sort_key)) < cut:
                cuts.append(cut)
                new_bounds.append(end)
        pieces = pairwise(cuts if last < len(bounds) else [*cuts, len(whole.keys)])
        rechunked += [whole[cut:end] for cut, end in pieces]
        start, done = last + 1, following
    rechunked += chunks[start:]
    new_bounds += bounds[start:]
    return rechunked, tuple(new_bounds)
