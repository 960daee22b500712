"""Large contents in slices, which versions share, so that a response that a client does not read holds no copy.

Theory of operation
    A content consists of parts, one per chunk and the separators between them. Adjacent parts are joined into slices,
    because sending thousands of parts takes longer than sending a few slices. After `_MIN_PARTS` parts, a slice ends at
    the first part whose digest has three zero bits, or after `_MAX_PARTS`. So slices depend on the content, as chunks
    do: a change affects the slice that contains it and seldom the ones after it. All others are the same objects in
    all versions of a content, also in those that were decoded one after the other and share no chunk. A slice exists as
    long as a body or a response that is still being sent refers to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, final
from weakref import WeakValueDictionary

from market_index.wire import EncodedPart, digest_of, text_of

MAX_MESSAGE_BYTES: Final = 512 * 1024
"""The most bytes to send in one message. The event loop of Python 3.11 copies what a socket does not take."""

_BOUNDARY_MASK: Final = 0x07
_MIN_PARTS: Final = 64
_MAX_PARTS: Final = 128

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
        """Yield the content in texts of at most `MAX_MESSAGE_BYTES`."""
        for one in self.slices:
            text = one.text
            for start in range(0, len(text), MAX_MESSAGE_BYTES):
                # A slice of all bytes is the same object.
                yield text[start : start + MAX_MESSAGE_BYTES]


def groups_of(parts: Sequence[EncodedPart]) -> list[Group]:
    """Return the parts of each slice."""
    groups: list[Group] = []
    start = 0
    while start < len(parts):
        last = min(start + _MAX_PARTS, len(parts)) - 1
        candidates = range(start + _MIN_PARTS - 1, last)
        end = 1 + next((at for at in candidates if not parts[at].digest[0] & _BOUNDARY_MASK), last)
        groups.append(tuple(parts[start:end]))
        start = end
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
