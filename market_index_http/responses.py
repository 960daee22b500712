"""Responses: errors, and bodies with an entity tag, which are compressed once for all clients that accept gzip."""

from __future__ import annotations

import re
import zlib
from hashlib import blake2b
from typing import Final, NamedTuple, Self, TypeAlias, final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from market_index.wire import error_to_json

try:
    from isal.isal_zlib import compress  # takes a fifth to a third of the time
except ImportError:
    from zlib import compress

MIN_GZIP_BYTES: Final = 512
"""A smaller body is not compressed."""

# Identifiers are random digits: higher levels take up to three times as long to save 5 %.
_GZIP_LEVEL: Final = 1
_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS

# RFC 9110, 8.8.3. The regular expression skips the W/ before a tag, so tags are compared weakly (13.1.2).
_ENTITY_TAG: Final = re.compile(rb'"[\x21\x23-\x7e\x80-\xff]*"')
_IS_ZERO: Final = re.compile(rb"[ \t]*q[ \t]*=[ \t]*0(?:\.0*)?[ \t]*").fullmatch

Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Header fields of a response, their names in lower case."""

JSON_FIELDS: Final[Fields] = ((b"content-type", b"application/json"),)


def error_response(error: HTTPException) -> Response:
    """Return the response of an error: `{"error": <message>}`, which no cache stores.

    Without `no-store`, a cache may store a 404 (RFC 9110, 15.5.5): a new pair would stay unknown.
    """
    if error.status_code < 200 or error.status_code in {204, 304}:  # they have no content (RFC 9110, 6.4.1)
        return Response(status_code=error.status_code, headers=error.headers)
    response = Response(error_to_json(error.detail), error.status_code, error.headers, "application/json")
    response.headers.setdefault("Cache-Control", "no-store")
    return response


@final
class Body:
    """The text of a response with an entity tag: plain, in gzip, or 304 if `If-None-Match` contains the tag.

    The tag is weak, because both encodings have the same (RFC 9110, 8.8.3).

    Args:
        text: The plain body.
        digest: Identifies the text; it becomes the tag.
        content_fields: Header fields of the content, which must include the content type.
        cache_control: The header field of the same name.
    """

    __slots__ = ("_content_fields", "_gzip", "_plain", "_tag", "_validators", "digest", "text")

    def __init__(
        self, text: bytes, digest: bytes, content_fields: Fields = JSON_FIELDS, cache_control: bytes = b"no-cache"
    ) -> None:
        self.text: Final = text
        self.digest: Final = digest
        self._tag = b'"%b"' % digest.hex().encode("ascii")
        self._validators: Fields = (
            (b"etag", b"W/" + self._tag),
            (b"cache-control", cache_control),
            (b"vary", b"Accept-Encoding"),
        )
        self._content_fields = content_fields
        self._plain = self._encoded(text)
        self._gzip: _Encoded | None = None

    @classmethod
    def constant(cls, text: bytes, content_fields: Fields = JSON_FIELDS) -> Self:
        """Return the body of a constant text, such as a file of the web page."""
        return cls(text, blake2b(text, digest_size=16).digest(), content_fields)

    def response(self, scope: Scope, fields: Fields = ()) -> Response:
        """Return the response to a request, with header fields that do not depend on the body."""
        accept_encoding = if_none_match = b""
        for name, value in scope["headers"]:
            if name == b"accept-encoding":
                accept_encoding += b"," + value
            elif name == b"if-none-match":
                if_none_match += b"," + value
        if if_none_match and self._matches(if_none_match):
            return _Prepared(304, [*self._validators, *fields], b"")
        encoded = self._plain
        if accept_encoding and len(self.text) >= MIN_GZIP_BYTES and accepts_gzip(accept_encoding):
            if self._gzip is None:
                packed = compress(self.text, _GZIP_LEVEL, _GZIP_WBITS)
                self._gzip = self._encoded(packed, (b"content-encoding", b"gzip"))
            encoded = self._gzip
        return _Prepared(200, [*encoded.fields, *fields], encoded.content)

    def _encoded(self, content: bytes, *more: tuple[bytes, bytes]) -> _Encoded:
        length = (b"content-length", b"%d" % len(content))
        return _Encoded((*self._validators, *self._content_fields, length, *more), content)

    def _matches(self, if_none_match: bytes) -> bool:
        return if_none_match.strip(b", \t") == b"*" or (
            self._tag in if_none_match and self._tag in _ENTITY_TAG.findall(if_none_match)
        )


class _Encoded(NamedTuple):
    """The content of a 200 in one encoding, and its header fields."""

    fields: Fields
    content: bytes


@final
class _Prepared(Response):
    """A response whose header fields are formatted already. Formatting them takes longer than the rest of a response.

    It refers to no `Body`, so a replaced one can be freed while its last response is sent.
    """

    background = None

    def __init__(self, status: int, fields: list[tuple[bytes, bytes]], content: bytes) -> None:
        self.status_code = status
        self.raw_headers = fields  # a list of its own: middleware may add to it
        self.body = content


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether an Accept-Encoding lists gzip, and not with quality 0 (RFC 9110, 12.5.3)."""
    for item in accept_encoding.lower().split(b","):
        coding, _, quality = item.partition(b";")
        if coding.strip(b" \t") == b"gzip":
            return _IS_ZERO(quality) is None
    return False
