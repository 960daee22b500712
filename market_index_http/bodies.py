"""Response bodies: encoded and compressed once per immutable value, and cached with their headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from threading import Lock
from typing import Final, TypeAlias, TypeVar, final
from weakref import ref

from anyio import to_thread
from attrs import frozen
from starlette.types import Message, Receive, Scope, Send

from market_index import MarketIndex, OrderBook, Pair
from market_index.errors import safe_repr
from market_index.wire import (
    EncodedPart,
    digest_of,
    encoded_order_book,
    encoded_pair_list,
    text_of,
    with_identifiers,
)
from market_index_http import compression
from market_index_http.compression import LARGE_BODY_BYTES, MIN_GZIP_BYTES
from market_index_http.negotiation import names_entity_tag, prefers_gzip

V = TypeVar("V", OrderBook, MarketIndex)

MAX_AGE_SECONDS: Final = 2**31
"""The longest time that Cache-Control can express everywhere (RFC 9111, 1.2.2)."""

MAX_ENTRIES_ON_LOOP: Final = 10_000
"""The most levels or pairs to encode on the event loop, which takes 2 to 4 ms; a thread encodes larger values."""

Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Header fields of a response, their names in lower case."""

JSON_FIELDS: Final[Fields] = ((b"content-type", b"application/json"),)
_VARY: Final = (b"vary", b"Accept-Encoding")
_GZIP: Final = (b"content-encoding", b"gzip")

Messages: TypeAlias = tuple[Message, Message]
"""The two messages of an ASGI response: its start, and its body."""


@final
class Body:
    """One body, as an ASGI application that responds to GET and HEAD with it.

    The response is compressed if the client prefers gzip, and 304 if `If-None-Match` contains its entity tag.

    Args:
        content: The uncompressed body.
        digest: Identifies the content; it becomes the entity tag, with the suffix `-gzip` for the gzip form.
        cache_control: The value of Cache-Control.
        parts: The parts of the content, to join the gzip form from cached pieces; empty to compress it as a whole.
        compress: Whether the body may be compressed.
        fields: Further header fields, which must include the content type.
        spelled: Applied to the content when it is sent; it must not change the length.
    """

    __slots__ = ("_compressing", "_gzip", "_gzip_etag", "_headers", "_parts", "_spelled", "content", "digest")

    def __init__(
        self,
        content: bytes,
        digest: str,
        cache_control: bytes,
        *,
        parts: Sequence[EncodedPart] = (),
        compress: bool = True,
        fields: Fields = JSON_FIELDS,
        spelled: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self.content: bytes = content
        self.digest: str = digest
        self._headers = (
            (b"etag", f'"{digest}"'.encode("ascii")),
            (b"cache-control", cache_control),
            _VARY,
            *fields,
            (b"content-length", b"%d" % len(content)),
        )
        self._gzip_etag = f'"{digest}-gzip"'.encode("ascii") if compress and len(content) >= MIN_GZIP_BYTES else None
        self._gzip: bytes | None = None
        self._parts = parts
        self._spelled = spelled
        self._compressing = Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        del receive  # the request body is ignored
        await self.send(scope, send)

    async def send(self, scope: Scope, send: Send, fields: Fields = ()) -> None:
        """Send the response, with header fields that do not depend on the body."""
        messages = self.messages(scope, fields)
        if messages is None:
            await to_thread.run_sync(self._compress)
            messages = self.messages(scope, fields)
        for message in messages or ():
            await send(message)

    def messages(self, scope: Scope, fields: Fields = ()) -> Messages | None:
        """Return the messages to send; None if a thread must compress the body first."""
        accept_encoding, if_none_match = b"", b""
        for name, value in scope["headers"]:
            if name == b"accept-encoding":
                accept_encoding += b"," + value
            elif name == b"if-none-match":
                if_none_match += b"," + value
        # A new list for each response: middleware may add to it.
        headers, content = [*self._headers], self.content
        gzip_etag = self._gzip_etag if accept_encoding and prefers_gzip(accept_encoding) else None
        if gzip_etag is not None:
            headers[0] = (b"etag", gzip_etag)
        if if_none_match and names_entity_tag(if_none_match, headers[0][1]):
            return (
                {"type": "http.response.start", "status": 304, "headers": [*headers[:3], *fields]},
                {"type": "http.response.body", "body": b""},
            )
        if gzip_etag is not None:
            compressed = self._gzip or self._compress_quickly()
            if compressed is None:
                return None
            content = compressed
            headers[-1] = (b"content-length", b"%d" % len(content))
            headers.append(_GZIP)
        headers += fields
        if scope["method"] == "HEAD":
            content = b""
        elif self._spelled is not None:
            content = self._spelled(content)
        return (
            {"type": "http.response.start", "status": 200, "headers": headers},
            {"type": "http.response.body", "body": content},
        )

    def _compress_quickly(self) -> bytes | None:
        """Compress the content, or return None if that takes long or another thread does it."""
        if not compression.is_quick(self.content, self._parts) or not self._compressing.acquire(blocking=False):
            return None
        try:
            self._gzip = self._gzip or compression.gzip_body(self.content, self._parts)
            return self._gzip
        finally:
            self._compressing.release()

    def _compress(self) -> bytes:
        """Compress the content once, however many threads and event loops call this."""
        with self._compressing:
            if self._gzip is None:
                self._gzip = compression.gzip_body(self.content, self._parts)
            return self._gzip


@final
@frozen
class FreshBody:
    """A body with the header fields of its index, as an ASGI application."""

    body: Body
    fields: Fields

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        del receive  # the request body is ignored
        await self.body.send(scope, send, self.fields)


@final
class _CachedBody(ref[OrderBook]):
    """A weak reference to a book, with its body. The cache must not keep the book alive."""

    __slots__ = ("body", "pair")
    body: Body
    pair: Pair


@final
class Bodies:
    """A cache of the bodies of current values, each encoded when it is first requested.

    Args:
        max_age: Seconds for which a client may reuse a response without revalidation. None requires revalidation each
            time; the response is 304 while nothing has changed.

    Raises:
        ValueError: `max_age` is not a whole number of seconds from 0 to 2^31.
    """

    def __init__(self, max_age: int | None = None) -> None:
        if max_age is not None and (type(max_age) is not int or not 0 <= max_age <= MAX_AGE_SECONDS):
            raise ValueError(
                f"max_age must be None or a whole number of seconds from 0 to 2^31, got {safe_repr(max_age)}"
            )
        self._cache_control = b"no-cache" if max_age is None else b"max-age=%d" % max_age
        self._order_books: dict[Pair, _CachedBody] = {}
        # One tuple, so that a thread never sees an index with the body of another one.
        self._pair_list: tuple[ref[MarketIndex], Body] | None = None
        self._encoding = Lock()

    async def order_book_from_thread(self, book: OrderBook) -> Body:
        """Return the body of a book; if it is large and not cached, encode it in a thread, once."""
        if not self.is_slow_book(book):
            return self.order_book(book)
        return await to_thread.run_sync(self._encode_once, self.order_book, book)

    async def pair_list_from_thread(self, index: MarketIndex) -> Body:
        """Return the body of the pair list; if it is large and not cached, encode it in a thread, once."""
        if not self.is_slow_list(index):
            return self.pair_list(index)
        return await to_thread.run_sync(self._encode_once, self.pair_list, index)

    def is_slow_book(self, book: OrderBook) -> bool:
        """Whether encoding a book would block the event loop: it is large, and its body is not cached."""
        if len(book.bids) + len(book.asks) <= MAX_ENTRIES_ON_LOOP:
            return False
        cached = self._order_books.get(book.pair)
        return cached is None or cached() is not book

    def is_slow_list(self, index: MarketIndex) -> bool:
        """Whether encoding the pair list would block the event loop: it is large, and its body is not cached."""
        if len(index) <= MAX_ENTRIES_ON_LOOP:
            return False
        return self._pair_list is None or self._pair_list[0]() is not index

    def _encode_once(self, encode: Callable[[V], Body], value: V) -> Body:
        # Threads that waited for the lock find the body in the cache.
        with self._encoding:
            return encode(value)

    def order_book(self, book: OrderBook) -> Body:
        """Return the body of a book, with canonical identifiers."""
        cached = self._order_books.get(book.pair)
        if cached is None or cached() is not book:
            cached = _CachedBody(book, self._forget)
            parts = encoded_order_book(book)
            cached.pair, cached.body = book.pair, self._body(parts, digest_of(parts).hex())
            self._order_books[book.pair] = cached
        return cached.body

    def respelled(self, body: Body, pair: Pair, base: str, quote: str) -> Body:
        """Return the body of a pair's book with the identifiers as the client spelled them.

        The content is made from the cached body when it is sent. It is neither cached nor compressed, because there are
        too many spellings to cache. Spellings differ only in letter case, so the length is the same.
        """
        digest = blake2b(f"{body.digest} {base}/{quote}".encode("ascii"), digest_size=16).hexdigest()
        spelled = partial(with_identifiers, pair=pair, base=base, quote=quote)
        return Body(body.content, digest, self._cache_control, compress=False, spelled=spelled)

    def pair_list(self, index: MarketIndex) -> Body:
        """Return the body of the pair list; the previous body if the list did not change."""
        before = self._pair_list
        if before is not None and before[0]() is index:
            return before[1]
        parts = encoded_pair_list(index)
        # A change of levels alone does not change the pair list.
        digest = digest_of(parts).hex()
        is_same = before is not None and before[1].digest == digest
        body = before[1] if before is not None and is_same else self._body(parts, digest)
        self._pair_list = ref(index), body
        return body

    def _body(self, parts: tuple[EncodedPart, ...], digest: str) -> Body:
        content = text_of(parts)
        # Parts are used for large bodies only; those of a small one would store its text twice.
        parts = parts if len(content) >= LARGE_BODY_BYTES else ()
        return Body(content, digest, self._cache_control, parts=parts)

    def _forget(self, cached: _CachedBody) -> None:
        """Drop the body of a book that was freed. A replaced reference is never called back."""
        self._order_books.pop(cached.pair, None)
