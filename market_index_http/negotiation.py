"""Content negotiation and conditional requests: reads Accept-Encoding and If-None-Match (RFC 9110)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_MAX_ACCEPT_ENCODING_BYTES: Final = 1024

# RFC 9110, 8.8.3. If-None-Match compares tags weakly: it ignores the W/ before a tag (13.1.2).
_ENTITY_TAG: Final = re.compile(rb'"[\x21\x23-\x7e\x80-\xff]*"')
_OWN_TAG: Final = re.compile(rb'"[0-9a-z-]+"').fullmatch
_QUALITY: Final = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?").fullmatch


def matching_entity_tag(if_none_match: bytes, etag: bytes, start: bytes) -> bytes:
    """Return the entity tag that a response with status 304 has; empty if no tag of an If-None-Match matches.

    A tag with the same start as `etag` names the same content, which another replica has compressed with another
    compressor. The response has that tag, because a cache keeps the stored response that has it (RFC 9111, 4.3.4).

    Args:
        if_none_match: The field. Several fields are joined by commas.
        etag: The entity tag of the content.
        start: The start of every tag of the content, which for a plain content is the whole `etag`.
    """
    if if_none_match.strip(b", \t") == b"*":
        return etag
    if start not in if_none_match:
        return b""
    tags = _ENTITY_TAG.findall(if_none_match)
    if etag in tags:
        return etag
    return next((tag for tag in tags if tag.startswith(start) and _OWN_TAG(tag)), b"")


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
