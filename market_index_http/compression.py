"""gzip: which bodies are compressed, and how a part that was deflated before is not deflated again."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from market_index.wire import EncodedPart

MIN_GZIP_BYTES: Final = 512
"""A smaller body is not compressed."""

LARGE_BODY_BYTES: Final = 32 * 1024
"""From this size on a body is compressed in a thread, part by part, and a change costs one part.

A smaller one is compressed whole, which takes less than a millisecond and makes it a tenth smaller.
"""

GZIP_LEVEL: Final = 1
"""Identifiers are random digits: the default level takes three times as long to save five percent."""

# RFC 1952: deflate, no flags, no time, fastest compression, unknown operating system.
_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK: Final = b"\x03\x00"
_MODULUS: Final = 2**32

_deflated: Final[WeakKeyDictionary[EncodedPart, bytes]] = WeakKeyDictionary()


def gzip_body(content: bytes, parts: Sequence[EncodedPart]) -> bytes:
    """Return the content compressed: joined from its parts, or as a whole if there are none."""
    return gzip_parts(parts) if parts else gzip.compress(content, GZIP_LEVEL, mtime=0)


def gzip_parts(parts: Iterable[EncodedPart]) -> bytes:
    """Return the parts as one gzip member, which every client decodes.

    Each part is deflated for itself and ends with a full flush, so that it depends on no other and can be joined with
    any (RFC 1951). Its deflated form is cached for as long as the part exists. Only the CRC is computed over the whole.
    """
    pieces = [_HEADER]
    checksum = length = 0
    for part in parts:
        piece = _deflated.get(part)
        if piece is None:
            piece = _deflated[part] = _deflate(part.text)
        pieces.append(piece)
        checksum = zlib.crc32(part.text, checksum)
        length += len(part.text)
    return b"".join((*pieces, _LAST_BLOCK, struct.pack("<LL", checksum, length % _MODULUS)))


def _deflate(text: bytes) -> bytes:
    compressor = zlib.compressobj(GZIP_LEVEL, wbits=-zlib.MAX_WBITS)
    return compressor.compress(text) + compressor.flush(zlib.Z_FULL_FLUSH)
