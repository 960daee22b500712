"""Content negotiation and conditional requests: reads Accept-Encoding and If-None-Match (RFC 9110)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_MAX_ACCEPT_ENCODING_BYTES: Final = 1024

# RFC 9110, 8.8.3. If-None-Match compares tags weakly: it ignores the W/ before a tag (13.1.2).
_ENTITY_TAG: Final = re.compile(rb'"[\x21\x23-\x7e\x80-\xff]*"')
_QUALITY: Final = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?").fullmatch


def names_entity_tag(if_none_match: bytes, etag: bytes) -> bool:
    """Whether an If-None-Match contains the entity tag, or is `*`. Several fields are joined by commas."""
    return if_none_match.strip(b", \t") == b"*" or (
        etag in if_none_match and etag in _ENTITY_TAG.findall(if_none_match)
    )


def matches_any(if_none_match: bytes) -> bool:
    """Whether `*` is a member of an If-None-Match. RFC 9110 allows it only alone."""
    return b"*" in if_none_match and b"*" in _ENTITY_TAG.sub(b"", if_none_match)


def prefers_gzip(accept_encoding: bytes) -> bool:
    """Whether an Accept-Encoding ranks gzip no lower than the plain body. Several fields are joined by commas."""
    return len(accept_encoding) <= _MAX_ACCEPT_ENCODING_BYTES and _ranks_gzip_first(accept_encoding)


@lru_cache(maxsize=256)  # clients send few different values
def _ranks_gzip_first(accept_encoding: bytes) -> bool:
    """RFC 9110, 12.5.3: codings have qualities, `*` means all codings not listed, and quality 0 rejects a coding."""
    qualities: dict[str, float] = {}
    for item in accept_encoding.decode("latin-1").lower().split(","):
        coding, *parameters = (part.strip(" \t") for part in item.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip(" \t") == "q":
                # An invalid quality rejects the coding, since every client can read the plain body.
                quality = float(value) if _QUALITY(value := value.strip(" \t")) else 0.0
        qualities["gzip" if coding == "x-gzip" else coding] = quality
    others = qualities.get("*", 0.0)
    gzip_quality = qualities.get("gzip", others)
    return gzip_quality > 0 and gzip_quality >= qualities.get("identity", others)
