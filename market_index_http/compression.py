"""gzip: which bodies are compressed, and how the deflated forms of unchanged parts are reused."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Collection, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from market_index.wire.internal import EncodedPart, text_of
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

MAX_DEFLATED_ON_LOOP: Final = 128 * 1024
"""The most bytes to deflate on the event loop, which takes 1 to 2 ms; a thread compresses what takes longer."""

MAX_PARTS_ON_LOOP: Final = 2_000
"""The most parts to look up and join on the event loop; a list of 30,000 pairs has half as many."""

_CHECKSUM_SPEED: Final = 32
"""How many bytes are checked and copied, at least, in the time in which one is deflated."""

GZIP_LEVEL: Final = 1
"""The fastest level. Identifiers are random digits: the default level takes three times as long to save 5 %."""

# RFC 1952: deflate, no flags, no time, fastest compression, unknown operating system.
_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK: Final = b"\x03\x00"
_MODULUS: Final = 2**32

_deflated: Final[WeakKeyDictionary[EncodedPart, bytes]] = WeakKeyDictionary()


def is_quick(length: int, groups: Collection[Group]) -> bool:
    """Whether the event loop may compress a content: most of its parts are cached, or it is small.

    Args:
        length: The length of the content in bytes.
        groups: The parts of its slices.
    """
    left = MAX_DEFLATED_ON_LOOP - length // _CHECKSUM_SPEED
    if left <= 0 or sum(map(len, groups)) > MAX_PARTS_ON_LOOP:
        return False
    parts = {part for group in groups if group not in _DEFLATED_SLICES for part in group}
    return sum([len(part.text) for part in parts if part not in _deflated]) <= left


def gzip_whole(content: bytes) -> bytes:
    """Return a content as one gzip member."""
    return gzip.compress(content, GZIP_LEVEL, mtime=0)


def gzip_slices(content: Slices, groups: Sequence[Group]) -> Slices:
    """Return a content as one gzip member.

    Each part is deflated separately and ends with a full flush, so it does not depend on the parts before it
    (RFC 1951). Its deflated form is cached for as long as the part exists. Only the CRC is computed over all parts.

    Args:
        content: The content.
        groups: The parts of its slices.
    """
    checksum = 0
    for one in content.slices:
        checksum = zlib.crc32(one.text, checksum)
    trailer = _LAST_BLOCK + struct.pack("<LL", checksum, len(content) % _MODULUS)
    return Slices(groups, _DEFLATED_SLICES, _HEADER, trailer)


def _deflated_part(part: EncodedPart) -> bytes:
    piece = _deflated.get(part)
    if piece is None:
        piece = _deflated[part] = _deflate(part.text)
    return piece


def _deflate(text: bytes) -> bytes:
    compressor = zlib.compressobj(GZIP_LEVEL, wbits=-zlib.MAX_WBITS)
    return compressor.compress(text) + compressor.flush(zlib.Z_FULL_FLUSH)


def _deflated_slice(group: Group) -> bytes:
    if sum([len(part.text) for part in group]) < MIN_MEAN_PART_BYTES * len(group):
        return _deflate(text_of(group))
    return b"".join(map(_deflated_part, group))


_DEFLATED_SLICES: Final = SliceCache(_deflated_slice)
