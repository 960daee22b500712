"""Large contents in slices, which versions share, so that a response that a client does not read holds no copy.

Theory of operation
    A content consists of parts, one per chunk and the separators between them. Adjacent parts are joined into slices,
    because sending thousands of parts takes longer than sending a few slices. After `MIN_SLICE_BYTES`, a slice ends at
    the first part whose digest has three zero bits, or after `MAX_SLICE_BYTES`. So slices depend on the content, as
    chunks do: a change affects the slice that contains it and seldom the ones after it. All others are the same objects
    in all versions of a content, also in those that were decoded one after the other and share no chunk. A slice exists
    as long as a body or a response that is still being sent refers to it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, TypeAlias, final
from weakref import WeakValueDictionary

from market_index.wire import EncodedPart, digest_of, text_of

MIN_SLICE_BYTES: Final = 128 * 1024
MAX_SLICE_BYTES: Final = 512 * 1024
"""The most bytes of a slice, unless it is one part, and of a message."""

_BOUNDARY_MASK: Final = 0x07

Group: TypeAlias = tuple[EncodedPart, ...]
"""The parts of one slice."""


@final
class Slices:
    """A content in slices. Its `len` is in bytes."""

    __slots__ = ("_length", "slices")

    def __init__(self, slices: Sequence[EncodedPart]) -> None:
        self.slices: Sequence[EncodedPart] = slices
        self._length = sum([len(one.text) for one in slices])

    def __len__(self) -> int:
        return self._length

    def texts(self) -> Iterator[bytes]:
        """Yield the content in texts of at most `MAX_SLICE_BYTES`: the event loop of Python 3.11 copies unsent ones."""
        for one in self.slices:
            text = one.text
            for start in range(0, len(text), MAX_SLICE_BYTES):
                # A slice of all bytes is the same object.
                yield text[start : start + MAX_SLICE_BYTES]


def groups_of(parts: Sequence[EncodedPart]) -> list[Group]:
    """Return the parts of each slice."""
    ends = list(accumulate([len(part.text) for part in parts]))
    groups: list[Group] = []
    start = done = 0
    while start < len(parts):
        last = max(bisect_right(ends, done + MAX_SLICE_BYTES) - 1, start)
        first = min(max(bisect_left(ends, done + MIN_SLICE_BYTES), start), last)
        last = next((at for at in range(first, last) if not parts[at].digest[0] & _BOUNDARY_MASK), last)
        groups.append(tuple(parts[start : last + 1]))
        start, done = last + 1, ends[last]
    return groups


@final
class SliceCache:
    """The slices that exist, by the digest of their parts. `join` makes the text of a slice."""

    def __init__(self, join: Callable[[Group], bytes]) -> None:
        self._join = join
        self._slices: WeakValueDictionary[bytes, EncodedPart] = WeakValueDictionary()

    def __contains__(self, group: Group) -> bool:
        return digest_of(group) in self._slices

    def __getitem__(self, group: Group) -> EncodedPart:
        digest = digest_of(group)
        found = self._slices.get(digest)
        if found is None:
            found = self._slices[digest] = EncodedPart(self._join(group))
        return found


PLAIN: Final = SliceCache(text_of)
"""The uncompressed slices."""
