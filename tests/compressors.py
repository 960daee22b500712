"""The compressors of the tests. Their output differs, except that `FASTEST` is `ZLIB` where isal is not installed."""

from __future__ import annotations

import zlib
from typing import Any

from market_index.compressors import FASTEST, ZLIB, Compressor


class OtherVersion:
    """zlib with another output, as another version may have it: at other levels, of whole texts and of parts."""

    def __init__(self, whole: int, part: int) -> None:
        self.whole, self.part = whole, part

    def compress(self, text: bytes, /, level: int, wbits: int) -> bytes:
        del level
        return zlib.compress(text, self.whole, wbits)

    def compressobj(self, level: int, *, wbits: int) -> Any:
        del level
        return zlib.compressobj(self.part, wbits=wbits)

    def crc32(self, text: bytes, value: int, /) -> int:
        return zlib.crc32(text, value)


COMPRESSORS = {"zlib": ZLIB, "fastest": FASTEST, "other version": Compressor(OtherVersion(6, 6))}
