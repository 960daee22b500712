"""Response bodies: encoded and compressed once per immutable value, and cached with their headers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from functools import lru_cache, partial
from hashlib import blake2b
from threading import Lock
from typing import Final, Generic, TypeAlias, TypeVar, final
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
    shared_parts,
    text_of,
    with_identifiers,
)
from market_index_http.compression import GZIP, LARGE_BODY_BYTES, MIN_GZIP_BYTES, GzipEncoder
from market_index_http.counters import COMPUTED, REUSED, Counters
from market_index_http.negotiation import matching_entity_tag, prefers_gzip
from market_index_http.slices import Slices, groups_of

C = TypeVar("C", bound=Sized)
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

Messages: TypeAlias = Iterable[Message]
"""The messages of an ASGI response: its start, and one or more of its body."""


def is_not_modified(messages: Messages) -> bool:
    """Whether the messages are those of a response with status 304."""
    return type(messages) is tuple and messages[0]["status"] == 304


def constant_fields(cache_control: bytes, content_fields: Fields = JSON_FIELDS) -> Fields:
    """Return the header fields of a body that do not depend on its content: those for caches, and the given ones."""
    return (b"cache-control", cache_control), _VARY, *content_fields


@lru_cache(maxsize=1024)
def _with_length(fields: Fields, length: int) -> Fields:
    """Return the fields and Content-Length, the same object for bodies of equal length."""
    return *fields, _content_length(length)


# Formatting a number takes longer than finding it.
@lru_cache(maxsize=1024)
def _content_length(length: int) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % length


@final
@frozen
class Response:
    """A response, as an ASGI application. It refers only to its messages: a body that is replaced can be freed."""

    messages: Messages

    @property
    def is_not_modified(self) -> bool:
        """Whether the status is 304."""
        return is_not_modified(self.messages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the messages."""
        del scope, receive  # the request was read, and its body is ignored
        for message in self.messages:
            await send(message)


class Body(ABC, Generic[C]):
    """One body, as an ASGI application that responds to GET and HEAD with it.

    The response is compressed if the client prefers gzip, and 304 if `If-None-Match` contains its entity tag.

    Args:
        plain: The uncompressed content.
        digest: Identifies the content; it becomes the entity tag. That of the gzip form also names the compressor.
        fields: The header fields that do not depend on the content, from `constant_fields`.
        encoder: Compresses the content.
    """

    # There is one for each small book. So rare attributes are in subclasses, bodies share equal header fields, and the
    # other fields are created for each response.
    __slots__ = ("_encoder", "_etag", "_fields", "_gzip", "_plain")

    def __init__(self, plain: C, digest: str, fields: Fields, encoder: GzipEncoder = GZIP) -> None:
        self._plain = plain
        self._encoder = encoder
        self._etag = f'"{digest}"'.encode("ascii")
        self._fields = _with_length(fields, len(plain))
        self._gzip: C | None = None

    @property
    def digest(self) -> str:
        """The digest in the entity tag."""
        return self._etag[1:-1].decode("ascii")

    @property
    def _is_compressible(self) -> bool:
        return True

    @abstractmethod
    def _compress_quickly(self) -> C | None:
        """Compress the content, or return None if that takes long."""

    def _compress(self) -> None:
        """Compress the content, in a thread."""

    @abstractmethod
    def _messages(self, start: Message, content: C) -> Messages:
        """Return the messages of a response with a content."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        response = await self.response(scope)
        await response(scope, receive, send)

    async def response(self, scope: Scope, fields: Fields = ()) -> Response:
        """Return the response, with header fields that do not depend on the body."""
        messages = self.messages(scope, fields)
        if messages is None:
            await to_thread.run_sync(self._compress)
            messages = self.messages(scope, fields)
        return Response(messages or ())

    def messages(self, scope: Scope, fields: Fields = ()) -> Messages | None:
        """Return the messages to send; None if a thread must compress the body first."""
        accept_encoding, if_none_match = b"", b""
        for name, value in scope["headers"]:
            if name == b"accept-encoding":
                accept_encoding = accept_encoding + b"," + value if accept_encoding else value
            elif name == b"if-none-match":
                if_none_match += b"," + value
        etag = tag_start = self._etag
        content = self._plain
        is_compressed = accept_encoding != b"" and prefers_gzip(accept_encoding) and self._is_compressible
        if is_compressed:
            tag_start = etag[:-1] + b"-gzip"
            etag = tag_start + self._encoder.tag_end
        # A new list for each response: middleware may add to it.
        if if_none_match and (matching := matching_entity_tag(if_none_match, etag, tag_start)):
            headers = [(b"etag", matching), *self._fields[:2], *fields]
            return (
                {"type": "http.response.start", "status": 304, "headers": headers},
                {"type": "http.response.body", "body": b""},
            )
        if is_compressed:
            compressed = self._gzip or self._compress_quickly()
            if compressed is None:
                return None
            content = compressed
            headers = [(b"etag", etag), *self._fields[:-1], _content_length(len(content)), _GZIP, *fields]
        else:
            headers = [(b"etag", etag), *self._fields, *fields]
        start: Message = {"type": "http.response.start", "status": 200, "headers": headers}
        if scope["method"] == "HEAD":
            return start, {"type": "http.response.body", "body": b""}
        return self._messages(start, content)


@final
class SmallBody(Body[bytes]):
    """A body that is sent in one message. It is compressed on the event loop."""

    __slots__ = ()

    @property
    def content(self) -> Slices:
        """The uncompressed content."""
        return Slices([(EncodedPart(self._plain),)])

    @property
    def _is_compressible(self) -> bool:
        return len(self._plain) >= MIN_GZIP_BYTES

    def _compress_quickly(self) -> bytes:
        self._gzip = compressed = self._encoder.whole(self._plain)
        return compressed

    def _messages(self, start: Message, content: bytes) -> Messages:
        return _in_one_message(start, content)


@final
class LargeBody(Body[Slices]):
    """A body that is sent in slices. A thread compresses it, unless most of its parts are compressed already.

    Args:
        parts: The parts of the content.
        digest: Identifies the content, as in `Body`.
        fields: The header fields that do not depend on the content.
        encoder: Compresses the content.
    """

    __slots__ = ("_compressing", "_groups")

    def __init__(self, parts: Sequence[EncodedPart], digest: str, fields: Fields, encoder: GzipEncoder = GZIP) -> None:
        self._groups = groups_of(parts)
        self._compressing = Lock()
        super().__init__(Slices(self._groups), digest, fields, encoder)

    @property
    def content(self) -> Slices:
        """The uncompressed content."""
        return self._plain

    def _compress_quickly(self) -> Slices | None:
        if not self._encoder.is_quick(len(self._plain), self._groups):
            return None
        # Without the lock: at worst, a thread does the same.
        self._gzip = compressed = self._encoder.slices(self._plain, self._groups)
        return compressed

    def _compress(self) -> None:
        """Compress the content once, however many threads call this."""
        with self._compressing:
            self._gzip = self._gzip or self._encoder.slices(self._plain, self._groups)

    def _messages(self, start: Message, content: Slices) -> Messages:
        text = content.text
        return _in_slices(start, content.texts()) if text is None else _in_one_message(start, text)


@final
class SpelledBody(Body[Slices]):
    """A body whose start differs from that of another body. It is made when it is sent, and not compressed.

    Args:
        plain: The content of the other body.
        digest: Identifies the content, as in `Body`.
        fields: The header fields that do not depend on the content.
        spelled: Applied to the first text of the content; it must not change the length.
    """

    __slots__ = ("_spelled",)

    def __init__(self, plain: Slices, digest: str, fields: Fields, spelled: Callable[[bytes], bytes]) -> None:
        super().__init__(plain, digest, fields)
        self._spelled = spelled

    @property
    def _is_compressible(self) -> bool:
        return False

    def _compress_quickly(self) -> None:
        """Return None: the body is not compressed."""

    def _messages(self, start: Message, content: Slices) -> Messages:
        return _in_slices(start, _respelled(self._spelled, content.texts()))


def _respelled(spelled: Callable[[bytes], bytes], texts: Iterator[bytes]) -> Iterator[bytes]:
    yield spelled(next(texts))
    yield from texts


def _in_one_message(start: Message, text: bytes) -> Messages:
    return start, {"type": "http.response.body", "body": text}


def _in_slices(start: Message, texts: Iterator[bytes]) -> Iterator[Message]:
    """Yield the messages of a response whose content is sent in several texts."""
    yield start
    text = next(texts, b"")
    for following in texts:
        yield {"type": "http.response.body", "body": text, "more_body": True}
        text = following
    yield {"type": "http.response.body", "body": text}


EncodedBody: TypeAlias = SmallBody | LargeBody


@final
class _CachedBody(ref[OrderBook]):
    """A weak reference to a book, with its body. The cache must not keep the book alive."""

    __slots__ = ("body", "pair")
    body: EncodedBody
    pair: Pair


@final
class Bodies:
    """A cache of the bodies of current values, each encoded when it is first requested.

    Args:
        max_age: Seconds for which a client may reuse a response without revalidation. None requires revalidation each
            time; the response is 304 while nothing has changed.
        counters: Where encoded and reused bodies are counted.
        encoder: Compresses the bodies.

    Raises:
        ValueError: `max_age` is not a whole number of seconds from 0 to 2^31.
    """

    def __init__(
        self, max_age: int | None = None, counters: Counters | None = None, encoder: GzipEncoder = GZIP
    ) -> None:
        if max_age is not None and (type(max_age) is not int or not 0 <= max_age <= MAX_AGE_SECONDS):
            raise ValueError(
                f"max_age must be None or a whole number of seconds from 0 to 2^31, got {safe_repr(max_age)}"
            )
        self._fields = constant_fields(b"no-cache" if max_age is None else b"max-age=%d" % max_age)
        self.counters: Counters = counters or Counters()
        self._cells = self.counters.cells
        self._encoder = encoder
        self._order_books: dict[Pair, _CachedBody] = {}
        # A bound method would be one more object for each book.
        self._forget = partial(_forget, self._order_books)
        # One tuple, so that a thread never sees an index with the body of another one.
        self._pair_list: tuple[ref[MarketIndex], EncodedBody] | None = None
        self._encoding = Lock()

    async def order_book_from_thread(self, book: OrderBook) -> EncodedBody:
        """Return the body of a book; if it is large and not cached, encode it in a thread, once."""
        if not self.is_slow_book(book):
            return self.order_book(book)
        return await to_thread.run_sync(self._encode_once, self.order_book, book)

    async def pair_list_from_thread(self, index: MarketIndex) -> EncodedBody:
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

    def _encode_once(self, encode: Callable[[V], EncodedBody], value: V) -> EncodedBody:
        # Threads that waited for the lock find the body in the cache.
        with self._encoding:
            return encode(value)

    def order_book(self, book: OrderBook) -> EncodedBody:
        """Return the body of a book, with canonical identifiers."""
        cached = self._order_books.get(book.pair)
        if cached is None or cached() is not book:
            cached = _CachedBody(book, self._forget)
            parts = encoded_order_book(book)
            if len(parts) > 1:
                parts = shared_parts(parts)
            cached.pair, cached.body = book.pair, self._body(parts, digest_of(parts).hex())
            self._order_books[book.pair] = cached
            self._cells[COMPUTED] += 1
        else:
            self._cells[REUSED] += 1
        return cached.body

    def respelled(self, body: EncodedBody, pair: Pair, base: str, quote: str) -> SpelledBody:
        """Return the body of a pair's book with the identifiers as the client spelled them.

        It is made from the cached body when it is sent. It is neither cached nor compressed, because there are too many
        spellings to cache. Spellings differ only in letter case, so the length is the same.
        """
        digest = blake2b(f"{body.digest} {base}/{quote}".encode("ascii"), digest_size=16).hexdigest()
        spelled = partial(with_identifiers, pair=pair, base=base, quote=quote)
        return SpelledBody(body.content, digest, self._fields, spelled)

    def pair_list(self, index: MarketIndex) -> EncodedBody:
        """Return the body of the pair list; the previous body if the list did not change."""
        before = self._pair_list
        if before is not None and before[0]() is index:
            self._cells[REUSED] += 1
            return before[1]
        parts = encoded_pair_list(index)
        # A change of levels alone does not change the pair list.
        digest = digest_of(parts).hex()
        is_same = before is not None and before[1].digest == digest
        body = before[1] if before is not None and is_same else self._body(parts, digest)
        self._pair_list = ref(index), body
        self._cells[COMPUTED] += 1
        return body

    def _body(self, parts: tuple[EncodedPart, ...], digest: str) -> EncodedBody:
        if sum([len(part.text) for part in parts]) >= LARGE_BODY_BYTES:
            return LargeBody(parts, digest, self._fields, self._encoder)
        return SmallBody(text_of(parts), digest, self._fields, self._encoder)


def _forget(order_books: dict[Pair, _CachedBody], cached: _CachedBody) -> None:
    """Drop the body of a book that was freed. A replaced reference is never called back."""
    order_books.pop(cached.pair, None)
