"""Large contents in slices, which versions share, so that a response that a client does not read holds no copy.

Theory of operation
    A content consists of parts, one per chunk and the separators between them. Adjacent parts are joined into slices,
    because sending thousands of parts takes longer than sending a few slices. After `MIN_SLICE_BYTES`, a slice ends at
    the first part whose digest has three zero bits, or after `MAX_SLICE_BYTES`. So slices depend on the content, as
    chunks do: a change affects the slice that contains it and seldom the ones after it. All others are the same objects
    in all versions of a content.

    A body refers to its slices, so they are joined once. Most contents are one slice, which is sent in one message. The
    response of a longer content refers only to the parts while it is sent: it joins the slices that no body refers to
    any more, one after the other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, TypeAlias, final
from weakref import WeakValueDictionary

from market_index.wire import EncodedPart, text_of

MIN_SLICE_BYTES: Final = 256 * 1024
MAX_SLICE_BYTES: Final = 512 * 1024
"""The most bytes of a message, which Python 3.11 copies if it is not sent, and of a slice, unless it is one part."""

_BOUNDARY_MASK: Final = 0x07

Group: TypeAlias = tuple[EncodedPart, ...]
"""The parts of one slice."""


def groups_of(
    parts: Sequence[EncodedPart], min_bytes: int = MIN_SLICE_BYTES, max_bytes: int = MAX_SLICE_BYTES
) -> list[Group]:
    """Return the parts of each slice."""
    ends = list(accumulate([len(part.text) for part in parts]))
    groups: list[Group] = []
    start = done = 0
    while start < len(parts):
        last = max(bisect_right(ends, done + max_bytes) - 1, start)
        first = min(max(bisect_left(ends, done + min_bytes), start), last)
        last = next((at for at in range(first, last) if not parts[at].digest[0] & _BOUNDARY_MASK), last)
        groups.append(tuple(parts[start : last + 1]))
        start, done = last + 1, ends[last]
    return groups


@final
class SliceCache:
    """The slices that exist, by their parts. `join` makes the text of a slice."""

    def __init__(self, join: Callable[[Group], bytes]) -> None:
        self._join = join
        self._slices: WeakValueDictionary[Group, EncodedPart] = WeakValueDictionary()

    def __contains__(self, group: Group) -> bool:
        return group in self._slices

    def __getitem__(self, group: Group) -> EncodedPart:
        found = self._slices.get(group)
        if found is None:
            found = self._slices[group] = EncodedPart(self._join(group))
        return found


PLAIN: Final = SliceCache(text_of)
"""The uncompressed slices."""


@final
class Slices:
    """A content in slices, which exist at least as long as this object. Its `len` is in bytes.

    Args:
        groups: The parts of each slice.
        cache: The slices by their parts.
        prefix: What precedes the first slice.
        suffix: What follows the last slice.
    """

    __slots__ = ("_cache", "_groups", "_length", "_prefix", "_suffix", "slices")

    def __init__(
        self, groups: Sequence[Group], cache: SliceCache = PLAIN, prefix: bytes = b"", suffix: bytes = b""
    ) -> None:
        self._groups = groups
        self._cache = cache
        self._prefix = prefix
        self._suffix = suffix
        self.slices: list[EncodedPart] = [cache[group] for group in groups]
        self._length = len(prefix) + sum([len(one.text) for one in self.slices]) + len(suffix)

    def __len__(self) -> int:
        return self._length

    @property
    def text(self) -> bytes | None:
        """The whole content if one message may contain it, otherwise None."""
        if len(self.slices) != 1 or self._length > MAX_SLICE_BYTES:
            return None
        return self._prefix + self.slices[0].text + self._suffix

    def texts(self) -> Iterator[bytes]:
        """Return an iterator over the content in texts of at most `MAX_SLICE_BYTES`, which holds only one slice."""
        return _texts(self._groups, self._cache, self._prefix, self._suffix)


def _texts(groups: Sequence[Group], cache: SliceCache, prefix: bytes, suffix: bytes) -> Iterator[bytes]:
    last = len(groups) - 1
    for position, group in enumerate(groups):
        text = cache[group].text
        if not position:
            text = prefix + text
        if position == last:
            text += suffix
        for start in range(0, len(text), MAX_SLICE_BYTES):
            # A slice of all bytes is the same object.
            yield text[start : start + MAX_SLICE_BYTES]
