"""Response bodies with an entity tag: plain, compressed once for all clients that accept gzip, or 304."""

from __future__ import annotations

import re
import zlib
from hashlib import blake2b
from typing import Final, Self, TypeAlias, final

from attrs import define
from starlette.types import Message, Receive, Scope, Send

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
NOT_STORED: Final[Fields] = ((b"cache-control", b"no-store"),)


@final
@define(eq=False)
class Response:
    """A whole response, as an ASGI application. It refers only to its messages: a replaced body can be freed."""

    start: Message
    body: Message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the messages."""
        del scope, receive  # the request was read, and its body is ignored
        await send(self.start)
        await send(self.body)


def text_response(scope: Scope, status: int, text: bytes, fields: Fields = JSON_FIELDS) -> Response:
    """Return a response with a text and header fields. The response to HEAD has the same fields and no body."""
    start = {"type": "http.response.start", "status": status, "headers": [*fields, _content_length(text)]}
    return Response(start, {"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else text})


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

    __slots__ = ("_gzip", "_plain", "digest")

    def __init__(
        self, text: bytes, digest: bytes, content_fields: Fields = JSON_FIELDS, cache_control: bytes = b"no-cache"
    ) -> None:
        self.digest: Final = digest
        fields = (
            (b"etag", b'W/"%b"' % digest.hex().encode("ascii")),
            (b"cache-control", cache_control),
            (b"vary", b"Accept-Encoding"),
            *content_fields,
            _content_length(text),
        )
        # The header fields and the text of each encoding. Formatting them takes longer than the rest of a response.
        self._plain: tuple[Fields, bytes] = fields, text
        self._gzip: tuple[Fields, bytes] | None = None

    @classmethod
    def constant(cls, text: bytes, content_fields: Fields = JSON_FIELDS) -> Self:
        """Return the body of a constant text, such as a file of the web page."""
        return cls(text, blake2b(text, digest_size=16).digest(), content_fields)

    @property
    def text(self) -> bytes:
        """The plain body."""
        return self._plain[1]

    def response(self, scope: Scope, fields: Fields = ()) -> Response:
        """Return the response to a request, with header fields that do not depend on the body."""
        accept_encoding = if_none_match = b""
        for name, value in scope["headers"]:
            if name == b"accept-encoding":
                accept_encoding += b"," + value
            elif name == b"if-none-match":
                if_none_match += b"," + value
        own_fields, text = self._plain
        if if_none_match and self._matches(if_none_match):
            start = {"type": "http.response.start", "status": 304, "headers": [*own_fields[:3], *fields]}
            return Response(start, {"type": "http.response.body", "body": b""})
        if accept_encoding and len(text) >= MIN_GZIP_BYTES and accepts_gzip(accept_encoding):
            if self._gzip is None:
                self._gzip = _compressed(own_fields, text)
            own_fields, text = self._gzip
        # A new list for each response: middleware may add to it.
        start = {"type": "http.response.start", "status": 200, "headers": [*own_fields, *fields]}
        return Response(start, {"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else text})

    def _matches(self, if_none_match: bytes) -> bool:
        tag = self._plain[0][0][1].removeprefix(b"W/")
        return if_none_match.strip(b", \t") == b"*" or (
            tag in if_none_match and tag in _ENTITY_TAG.findall(if_none_match)
        )


def _compressed(fields: Fields, text: bytes) -> tuple[Fields, bytes]:
    packed = compress(text, _GZIP_LEVEL, _GZIP_WBITS)
    return (*fields[:-1], _content_length(packed), (b"content-encoding", b"gzip")), packed


def _content_length(text: bytes) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % len(text)


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether an Accept-Encoding lists gzip, and not with quality 0 (RFC 9110, 12.5.3)."""
    for item in accept_encoding.lower().split(b","):
        coding, _, quality = item.partition(b";")
        if coding.strip(b" \t") == b"gzip":
            return _IS_ZERO(quality) is None
    return False
