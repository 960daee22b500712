"""gzip: which bodies are compressed, and how the deflated forms of unchanged parts are reused."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import Final, final
from weakref import WeakKeyDictionary

from market_index.compressors import FASTEST, Compressor
from market_index.wire import EncodedPart, text_of
from market_index_http.slices import Group, SliceCache, Slices

MIN_GZIP_BYTES: Final = 512
"""A smaller body is not compressed."""

LARGE_BODY_BYTES: Final = 32 * 1024
"""The smallest body that is compressed part by part. A change deflates only the changed parts.

A smaller body is compressed as a whole, which takes less than a millisecond and makes it a tenth smaller.
"""

MIN_MEAN_PART_BYTES: Final = 256
"""A slice whose parts are smaller on average is deflated as a whole. Prices can be chosen so that each level is a part,
whose deflated form is longer than its text.
"""

MAX_DEFLATED_ON_LOOP: Final = 256 * 1024
"""The most bytes to deflate on the event loop; a thread compresses what takes longer.

It takes 1 ms with isal, and 3 ms with zlib.
"""

MAX_PARTS_ON_LOOP: Final = 2_000
"""The most parts to look up and join on the event loop; a list of 30,000 pairs has half as many."""

_CHECKSUM_SPEED: Final = 32
"""How many bytes are checked and copied, at least, in the time in which one is deflated."""

# RFC 1952: deflate, no flags, no time, fastest compression, unknown operating system.
_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK: Final = b"\x03\x00"
_MODULUS: Final = 2**32


@final
class GzipEncoder:
    """Encodes contents in gzip with one compressor, and caches the deflated forms of unchanged parts.

    Args:
        compressor: Deflates.
    """

    def __init__(self, compressor: Compressor = FASTEST) -> None:
        self.tag_end: Final = b'-%b"' % compressor.identifier().encode("ascii")
        """The end of the entity tags: equal tags mean equal bytes, also between replicas with different compressors."""
        self._compressor = compressor
        self._deflated: WeakKeyDictionary[EncodedPart, bytes] = WeakKeyDictionary()
        self._slices = SliceCache(self._deflated_slice)

    def is_quick(self, length: int, groups: Collection[Group]) -> bool:
        """Whether the event loop may compress a content: most of its parts are cached, or it is small.

        Args:
            length: The length of the content in bytes.
            groups: The parts of its slices.
        """
        left = MAX_DEFLATED_ON_LOOP - length // _CHECKSUM_SPEED
        if left <= 0 or sum(map(len, groups)) > MAX_PARTS_ON_LOOP:
            return False
        parts = {part for group in groups if group not in self._slices for part in group}
        return sum([len(part.text) for part in parts if part not in self._deflated]) <= left

    def whole(self, content: bytes) -> bytes:
        """Return a content as one gzip member."""
        return self._compressor.gzip(content)

    def slices(self, content: Slices, groups: Sequence[Group]) -> Slices:
        """Return a content as one gzip member.

        Each part is deflated separately and ends with a full flush, so it does not depend on the parts before it
        (RFC 1951). Its deflated form is cached for as long as the part exists. Only the CRC is computed over all parts.

        Args:
            content: The content.
            groups: The parts of its slices.
        """
        checksum = 0
        for one in content.slices:
            checksum = self._compressor.crc32(one.text, checksum)
        trailer = _LAST_BLOCK + struct.pack("<LL", checksum, len(content) % _MODULUS)
        return Slices(groups, self._slices, _HEADER, trailer)

    def _deflated_slice(self, group: Group) -> bytes:
        if sum([len(part.text) for part in group]) < MIN_MEAN_PART_BYTES * len(group):
            return self._compressor.deflated_part(text_of(group))
        return b"".join(map(self._deflated_part, group))

    def _deflated_part(self, part: EncodedPart) -> bytes:
        piece = self._deflated.get(part)
        if piece is None:
            piece = self._deflated[part] = self._compressor.deflated_part(part.text)
        return piece


GZIP: Final = GzipEncoder()
"""The encoder of all apps of a process, which share equal parts."""
