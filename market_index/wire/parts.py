"""Bodies in parts: the text of a chunk is encoded once, and shared by all versions that share the chunk."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, final

_DIGEST_BYTES: Final = 16


@final
class EncodedPart:
    """A part of a JSON body: its text, and a digest of the text, which is computed once."""

    __slots__ = ("_digest", "text")

    def __init__(self, text: bytes) -> None:
        self.text: Final = text
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        """The BLAKE2b digest of the text (16 bytes)."""
        if self._digest is None:
            self._digest = blake2b(self.text, digest_size=_DIGEST_BYTES).digest()
        return self._digest


def text_of(parts: Iterable[EncodedPart]) -> bytes:
    """Return the text of all parts."""
    return b"".join([part.text for part in parts])


def digest_of(parts: Iterable[EncodedPart]) -> bytes:
    """Return a digest of all parts (16 bytes), the same in every process for the same book or pair list.

    It is computed from the digests of the parts, which depend only on the content (see `market_index.sorted_map`).
    """
    return blake2b(b"".join([part.digest for part in parts]), digest_size=_DIGEST_BYTES).digest()
