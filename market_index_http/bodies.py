"""Response bodies, encoded once per immutable value: JSON, gzip and ETag, and what a client may ask of them."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b, shake_128
from threading import Lock
from typing import Final, TypeAlias, final
from weakref import ref

from anyio import to_thread
from attrs import frozen
from starlette.types import Message, Receive, Scope, Send

from market_index import MarketIndex, OrderBook, PairInfo, wire

GZIP_LEAST: Final = 512
"""A body of fewer bytes is not worth compressing."""

GZIP_LARGE: Final = 32 * 1024
"""A body of as many bytes is compressed in a thread, while the event loop goes on."""

_GZIP_LEVEL: Final = 1
"""Identifiers are random digits: the usual level takes three times as long for five parts in a hundred."""

_LONGEST_ACCEPT_ENCODING: Final = 1024

_DIGEST_BYTES: Final = 16
_SUMMAND_BYTES: Final = 256
_MODULUS: Final = 256**_SUMMAND_BYTES
_VARY: Final = (b"vary", b"Accept-Encoding")
Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Header fields of an answer, its type among them."""

JSON_FIELDS: Final[Fields] = ((b"content-type", b"application/json"),)
_GZIP: Final = (b"content-encoding", b"gzip")

# RFC 9110, 8.8.3. The W/ before it makes no difference to If-None-Match (13.1.2).
_ENTITY_TAGS: Final = re.compile(rb'"[\x21\x23-\x7e\x80-\xff]*"').findall
_QUALITY: Final = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?").fullmatch


Answer: TypeAlias = tuple[Message, Message]
"""The two messages of an ASGI response: its start, and its body."""


@final
class Body:
    """One body, as an ASGI application that answers a GET or a HEAD with it.

    It answers in gzip where the client prefers that, and with 304 where the client has it already.
    """

    __slots__ = ("_compressed", "_compressing", "_gzip_etag", "_headers", "content")

    def __init__(
        self,
        content: bytes,
        digest: str,
        cache_control: bytes,
        *,
        compress: bool = True,
        fields: Fields = JSON_FIELDS,
    ) -> None:
        self.content = content
        self._headers = (
            (b"etag", f'"{digest}"'.encode("ascii")),
            (b"cache-control", cache_control),
            _VARY,
            *fields,
            (b"content-length", b"%d" % len(content)),
        )
        self._gzip_etag = f'"{digest}-gzip"'.encode("ascii") if compress and len(content) >= GZIP_LEAST else None
        self._compressed: bytes | None = None
        self._compressing = Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, as ASGI has it."""
        del receive  # neither GET nor HEAD has a body that matters
        answer = self.answer(scope)
        if answer is None:
            await to_thread.run_sync(self._compress)
            answer = self.answer(scope)
        for message in answer or ():
            await send(message)

    def answer(self, scope: Scope) -> Answer | None:
        """Return what is to be sent, or None where that has to be compressed first, in a thread because it is large."""
        accepted, known = b"", b""
        for name, value in scope["headers"]:
            if name == b"accept-encoding":
                accepted += b"," + value
            elif name == b"if-none-match":
                known += b"," + value
        # A list of its own for each answer: middleware may add to it.
        headers, content = [*self._headers], self.content
        gzip_etag = self._gzip_etag if accepted and _prefers_gzip(accepted) else None
        if gzip_etag is not None:
            headers[0] = (b"etag", gzip_etag)
        if known and _names(known, headers[0][1]):
            return (
                {"type": "http.response.start", "status": 304, "headers": headers[:3]},
                {"type": "http.response.body", "body": b""},
            )
        if gzip_etag is not None:
            if self._compressed is None and len(content) >= GZIP_LARGE:
                return None
            content = self._compressed or self._compress()
            headers[-1] = (b"content-length", b"%d" % len(content))
            headers.append(_GZIP)
        return (
            {"type": "http.response.start", "status": 200, "headers": headers},
            {"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else content},
        )

    def _compress(self) -> bytes:
        """Compress the content, once however many ask for it at the same time and from whichever event loop."""
        with self._compressing:
            if self._compressed is None:
                self._compressed = _gzipped(self.content)
            return self._compressed


class KeptBody(ref[OrderBook]):
    """The body of a book, for as long as the book is there."""

    __slots__ = ("body", "key")
    body: Body
    key: int


@final
@frozen
class _Run:
    """A run of neighbours in the pair list, and the entries that tell of them."""

    pair_infos: tuple[PairInfo, ...]
    entries: list[bytes]
    text: bytes


@final
@frozen
class _PairList:
    """The body of a pair list, and what the next one can be made from."""

    index: Callable[[], MarketIndex | None]
    runs: dict[int, _Run]
    total: int
    body: Body


@final
class Bodies:
    """The bodies of what is current, each made when it is first asked for.

    That of an order book goes when the book goes. That of the pair list is made from the one before it, at the cost of
    what changed and of one join. `max_age` is for how many seconds a client may use an answer without asking again;
    None has it ask each time, and get a 304 while nothing has changed.
    """

    def __init__(self, max_age: int | None = None) -> None:
        if max_age is not None and (type(max_age) is not int or max_age < 0):
            raise ValueError(f"max_age must be None or a whole number of seconds, 0 or more, not {max_age!r}")
        self._cache_control = b"no-cache" if max_age is None else b"max-age=%d" % max_age
        self._order_books: dict[int, KeptBody] = {}
        self._pair_list: _PairList | None = None

    def order_book(self, book: OrderBook) -> KeptBody:
        """Return the body of a book, its identifiers in their canonical text."""
        kept = self._order_books.get(id(book))
        if kept is None:
            content = wire.order_book_to_json(book)
            kept = KeptBody(book, self._forget)
            kept.key, kept.body = id(book), self._body(content, _digest(content).hex())
            self._order_books[kept.key] = kept
        return kept

    def order_book_as_asked(self, book: OrderBook, base: str, quote: str) -> Body:
        """Return the body of a book that echoes other spellings of its identifiers.

        It is neither kept nor compressed: there are more spellings than anybody could keep.
        """
        content = wire.order_book_to_json(book, base=base, quote=quote)
        return Body(content, _digest(content).hex(), self._cache_control, compress=False)

    def pair_list(self, index: MarketIndex) -> Body:
        """Return the body of the pair list."""
        kept = self._pair_list
        if kept is None or kept.index() is not index:
            kept = self._pair_list = self._next_pair_list(kept, index)
        return kept.body

    def _next_pair_list(self, before: _PairList | None, index: MarketIndex) -> _PairList:
        """Return the pair list of another index, with nothing encoded but what is new in it."""
        kept = before.runs if before is not None else {}
        now = {id(pair_infos): pair_infos for pair_infos in index.pair_list_runs()}
        # What is kept holds on to its tuples, so that no other tuple can have the id of one.
        gone = [run for key, run in kept.items() if key not in now]
        if before is not None and not gone and len(kept) == len(now):
            return _PairList(ref(index), kept, before.total, before.body)
        known: dict[int, bytes] = {}
        for run in gone:
            known.update(zip(map(id, run.pair_infos), run.entries, strict=True))
        total = before.total if before is not None else 0
        new: dict[int, _Run] = {}
        for key, pair_infos in now.items():
            if key not in kept:
                # Whatever stays is taken out of what is known, so that in the end that is what went.
                entries = [known.pop(info, b"") for info in map(id, pair_infos)]
                for place, entry in enumerate(entries):
                    if not entry:
                        entries[place] = wire.pair_info_to_json(pair_infos[place])
                        total += _summand(entries[place])
                new[key] = _Run(pair_infos, entries, b",".join(entries))
        total = (total - sum(map(_summand, known.values()))) % _MODULUS
        runs = {key: kept[key] if key in kept else new[key] for key in now}
        content = wire.joined_pair_list([run.text for run in runs.values() if run.entries])
        digest = _digest(total.to_bytes(_SUMMAND_BYTES)).hex()
        return _PairList(ref(index), runs, total, self._body(content, digest))

    def _body(self, content: bytes, digest: str) -> Body:
        return Body(content, digest, self._cache_control)

    def _forget(self, kept: KeptBody) -> None:
        del kept.body
        self._order_books.pop(kept.key, None)


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _summand(entry: bytes) -> int:
    """Return what an entry adds to the total that tells one pair list from another.

    A sum is kept up to date at the cost of what changed, and it is the same for the same list whatever came before. So
    many bytes keep it from being made to collide, even by somebody who sets the prices of many pairs.
    """
    return int.from_bytes(shake_128(entry).digest(_SUMMAND_BYTES))


def _gzipped(content: bytes) -> bytes:
    return gzip.compress(content, _GZIP_LEVEL, mtime=0)


def _names(if_none_match: bytes, etag: bytes) -> bool:
    """Whether an If-None-Match, each of its lines led by a comma, names the entity tag or any at all."""
    return if_none_match.strip(b", \t") == b"*" or (etag in if_none_match and etag in _ENTITY_TAGS(if_none_match))


def _prefers_gzip(accept_encoding: bytes) -> bool:
    """Whether an Accept-Encoding, each of its lines led by a comma, puts gzip no lower than the body as it is."""
    return len(accept_encoding) <= _LONGEST_ACCEPT_ENCODING and _ranks_gzip_first(accept_encoding)


@lru_cache(maxsize=256)  # clients have few ways to say it, and each says the same every time
def _ranks_gzip_first(accept_encoding: bytes) -> bool:
    """RFC 9110, 12.5.3: codings with their qualities, `*` for those that are not named; quality 0 refuses."""
    qualities: dict[str, float] = {}
    for item in accept_encoding.decode("latin-1").lower().split(","):
        coding, *parameters = (part.strip(" \t") for part in item.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip(" \t") == "q":
                # What is no quality refuses: the body as it is can always be read.
                quality = float(value) if _QUALITY(value := value.strip(" \t")) else 0.0
        qualities["gzip" if coding == "x-gzip" else coding] = quality
    others = qualities.get("*", 0.0)
    wanted = qualities.get("gzip", others)
    return wanted > 0 and wanted >= qualities.get("identity", others)
