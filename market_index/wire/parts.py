"""Bodies in parts: the text of a chunk is encoded once, and shared by all versions that share the chunk."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, final
from weakref import WeakValueDictionary

_DIGEST_BYTES: Final = 16


@final
class EncodedPart:
    """A part of a JSON body: its text, and a digest of the text.

    A book of one chunk a side is one part. Otherwise, every body has the same `EncodedPart` object for the same chunk.
    Callers can cache derived results weakly by it, because parts compare by identity. Equal texts have equal digests.
    """

    __slots__ = ("__weakref__", "_digest", "text")

    def __init__(self, text: bytes) -> None:
        self.text: Final = text
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        """The BLAKE2b digest of the text (16 bytes), computed lazily."""
        if self._digest is None:
            self._digest = blake2b(self.text, digest_size=_DIGEST_BYTES).digest()
        return self._digest


_shared: Final[WeakValueDictionary[bytes, EncodedPart]] = WeakValueDictionary()


def shared_parts(parts: Iterable[EncodedPart]) -> tuple[EncodedPart, ...]:
    """Return the parts, each replaced by an equal one that exists already.

    Versions of a book that were decoded one after the other share no chunk, but most texts.
    """
    # A part with a digest was returned before.
    return tuple([part if part._digest is not None else _shared.setdefault(part.digest, part) for part in parts])  # noqa: SLF001  # the slot of the property


def text_of(parts: Iterable[EncodedPart]) -> bytes:
    """Return the text of all parts."""
    return b"".join([part.text for part in parts])


def digest_of(parts: Iterable[EncodedPart]) -> bytes:
    """Return a digest of all parts (16 bytes), the same in every process for the same book or pair list.

    It is computed from the digests of the parts, which depend only on the content (see `market_index.chunked`).
    """
    # A call of the property for each part would take half of the time.
    digests = [part._digest or part.digest for part in parts]  # noqa: SLF001  # the slot of that property
    return blake2b(b"".join(digests), digest_size=_DIGEST_BYTES).digest()
