"""The source that follows a running service: by its stream of changes, or by polling.

A stream begins with all books, and continues with changes. They are shown at the `version` event after them, so a
change of many books is atomic, and has the freshness of the service. Each connection begins with all books again.

A service without a stream, or behind a proxy that withholds it, is polled. A round requests the pair list and each
book, with the entity tags of what was received before. A whole round is a version.

A book that is not valid is an invalid record of its pair, as is a change that cannot be applied. The next valid book
repairs it. The service may send only changes, so the stream is opened again after some time. Everything else that is
not valid, or no response, means that the service cannot be read now.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from importlib.metadata import version
from threading import Event
from time import monotonic
from typing import Final, final
from urllib.parse import urlencode

import httpx

from market_index import Freshness, InvalidFreshness, MarketIndexError, OrderBook, Pair, wire
from market_index.errors import safe_repr
from market_index.wire import AS_OF, PUBLISHED_AT, parse_time
from market_index_feeds.errors import FeedError, reason_of
from market_index_feeds.event_loop import blocking, pulled
from market_index_feeds.names import shown_name
from market_index_feeds.source import UNKNOWN, NoVersion, Progress, Source, Version

CHECK_SECONDS: Final = 1.0
"""The interval of versions while nothing changes; in polling, from the end of a round to the start of the next."""

SILENCE_SECONDS: Final = 15.0
"""The timeout of a stream: a service sends at least a comment every 5 seconds."""

MAX_SILENCES: Final = 2
"""After how many silent streams in a row the service is polled: a proxy may withhold them."""

REPAIR_SECONDS: Final = 60.0
"""After which time a stream with an invalid record is opened again, because it begins with all books."""

EXCHANGE_SECONDS: Final = 20.0
"""Timeout of a whole exchange: the look-up of the host, the connection, the request and the response."""

CONNECT_SECONDS: Final = 5.0
"""Timeout of a connection, with its TLS handshake."""

MAX_IN_FLIGHT: Final = 8
"""How many requests are in flight at the same time."""

GATHER_SECONDS: Final = 0.001
"""How long bytes of a stream are received before their events are read, so that a slow caller gets fewer versions."""

EVENTS: Final = "text/event-stream"
HEADERS: Final = {
    "User-Agent": f"market-index/{version('market-index')}",
    "Accept": f"application/json, {EVENTS}",
    "Accept-Encoding": "identity",
}
"""The headers of all requests."""

STREAM: Final = "/stream?levels=changed"
PAIR_LIST: Final = "/trading-view/pair-list"

UNAVAILABLE: Final = frozenset({429, 502, 503, 504})
"""The statuses by which a service, or a proxy in front of it, says that it can respond later."""


class _Invalid(FeedError):
    """The response is not valid."""


class _Silence(FeedError):
    """Nothing was received in time."""


@final
class ServiceSource(Source):
    """A service with the two endpoints below a base URL, such as `http://127.0.0.1:8000`.

    Raises:
        FeedError: The name is not such a URL.
    """

    def __init__(self, url: str) -> None:
        super().__init__(shown_name(url))
        self._url = _base_url(url, self.name)
        self._silences = 0

    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        """Follow the stream, or poll the service once a second. A round of many pairs takes longer."""
        return pulled(self._versions(), stop, progress)

    def read_order_book(self, pair: Pair) -> Version:
        """Return a version with the book of one pair: one request."""
        return blocking(lambda: asyncio.run(self._read_order_book(pair)))

    def reject_once(self, pair: Pair | None, record: str, reason: object, invalid: set[Pair | None]) -> None:
        """Add the pair of an invalid record. It is counted and logged once, until its record is valid."""
        if pair not in invalid and (self.last is None or pair not in self.last.invalid):
            self.reject(record, reason)
        invalid.add(pair)

    async def _versions(self) -> AsyncGenerator[Version | NoVersion, None]:
        async with aclosing(_Client(self._url)) as client:
            polling = _Polling(self, client)
            while self._silences < MAX_SILENCES:
                try:
                    async with client.stream() as stream:
                        if stream is None:
                            break
                        following = _Following(self, stream, polling)
                        while True:
                            found = await following.next()
                            if stream.has_lasted:
                                self._silences = 0
                            yield found
                            if following.is_damaged and monotonic() > stream.opened_at + REPAIR_SECONDS:
                                raise FeedError("an invalid book was not repaired; the stream is opened again")
                except _Silence:
                    self._silences += 1
                    if self.last is not None:
                        raise
            # After polling has failed, the stream is tried again.
            self._silences = 0
            while True:
                yield await polling.next()
                await asyncio.sleep(CHECK_SECONDS)

    async def _read_order_book(self, pair: Pair) -> Version:
        async with aclosing(_Client(self._url)) as client:
            response, body = await client.get(_book_target(pair))
        if response.status_code == 404:
            self.derive((), [pair])
        else:
            self.derive([_book(response, body, pair)], freshness=_freshness(response))
        return self.content


@final
class _Following:
    """The versions of a stream. `is_damaged`: whether its last version has an invalid record."""

    def __init__(self, source: ServiceSource, stream: _Stream, polling: _Polling) -> None:
        self.is_damaged = False
        self._source, self._stream, self._polling = source, stream, polling
        self._found: Version | NoVersion | None = None
        # What the stream has sent since its last version, and whether the next one is its first.
        self._books: dict[Pair, OrderBook] = {}
        self._retracted: set[Pair] = set()
        self._invalid: set[Pair | None] = set()
        self._is_first = True

    async def next(self) -> Version | NoVersion:
        """Return the newest version that has arrived; after a second without any, the last one again."""
        while True:
            for name, text in await self._stream.events():
                self._receive(name, text)
            if not self._stream.has_events:
                # The service is slow, or has no pair.
                await self._polling.request_list()
                self._found = None if self._polling.pairs else NoVersion()
            if self._found is not None:
                return self._found

    def _receive(self, name: bytes, text: bytes) -> None:
        """Apply an event. Unknown events are ignored."""
        if name == b"version":
            try:
                freshness = wire.freshness_from_json(text, ignore_unknown=True)
            except MarketIndexError as error:
                raise FeedError(f"invalid version in the stream: {error}") from None
            version = self._source.derive(
                self._books.values(),
                self._retracted,
                invalid=self._invalid,
                is_whole=self._is_first,
                freshness=freshness,
            )
            self._books, self._retracted, self._is_first = {}, set(), False
            self.is_damaged = bool(self._invalid)
            self._found = version if isinstance(version, NoVersion) or version.index else NoVersion()
        elif name == b"retract":
            if (pair := wire.pair_named_in(text)) is None:
                raise FeedError(f"a retraction in the stream must name a pair, got {safe_repr(text)}")
            self._books.pop(pair, None)
            self._invalid.discard(pair)
            self._retracted.add(pair)
        elif name in {b"book", b"change"}:
            try:
                book = wire.order_book_from_json(text, ignore_unknown=True) if name == b"book" else self._changed(text)
            except MarketIndexError as error:
                pair = wire.pair_named_in(text)
                record = f"event of {'an unknown pair' if pair is None else pair}"
                self._source.reject_once(pair, record, error, self._invalid)
            else:
                self._invalid.discard(book.pair)
                self._retracted.discard(book.pair)
                self._books[book.pair] = book

    def _changed(self, text: bytes) -> OrderBook:
        """Return the next book of a pair, from the changes of its levels."""
        pair, bids, asks, spot = wire.order_book_changes_from_json(text, ignore_unknown=True)
        before, last = self._books.get(pair), self._source.last
        if before is None and not (self._is_first or last is None or pair in self._retracted):
            before = last.index.get(pair)
        if before is None or pair in self._invalid:
            raise _Invalid("a change must follow the valid book of its pair")
        return before.apply(bids, asks, spot)


@final
class _Polling:
    """The versions of a service that is polled: each is a round of requests. `pairs` are those of the last list."""

    def __init__(self, source: ServiceSource, client: _Client) -> None:
        self.pairs: tuple[Pair, ...] = ()
        self._source, self._client = source, client
        self._list_etag = ""
        # The books of the last round, with their entity tags.
        self._known: dict[Pair, tuple[OrderBook, str]] = {}

    async def next(self) -> Version | NoVersion:
        """Request the list and all books, and return them as a version."""
        freshness = {await self.request_list()}
        if not self.pairs:
            return NoVersion()
        remaining, known, invalid = iter(self.pairs), dict[Pair, tuple[OrderBook, str]](), set[Pair | None]()

        async def request_books() -> None:
            for pair in remaining:
                try:
                    book, etag = self._known.get(pair, (None, ""))
                    response, body = await self._client.get(_book_target(pair), etag)
                    if book is None or response.status_code != 304:
                        book = _book(response, body, pair)
                    known[pair] = book, response.headers.get("etag", "")
                    freshness.add(_freshness(response))
                except _Invalid as error:
                    self._source.reject_once(pair, f"the order book of {pair}", error, invalid)

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(MAX_IN_FLIGHT):
                    tasks.create_task(request_books())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        self._known = known
        books = [book for book, _ in known.values()]
        return self._source.derive(books, invalid=invalid, is_whole=True, freshness=_common(freshness))

    async def request_list(self) -> Freshness:
        """Request the pair list, and return its freshness."""
        response, body = await self._client.get(PAIR_LIST, self._list_etag)
        if response.status_code == 404:
            raise FeedError("there is no pair list below this URL")
        if response.status_code == 200:
            try:
                self.pairs = tuple(info.pair for info in wire.pair_list_from_json(body, ignore_unknown=True))
            except MarketIndexError as error:
                raise FeedError(f"invalid pair list: {error}") from None
        self._list_etag = response.headers.get("etag", "")
        return _freshness(response)


@final
class _Client:
    """Sends requests to a service."""

    def __init__(self, url: str) -> None:
        self._url = url
        # Not `AsyncClient`: that takes twice as long, and has cookies, redirects and the proxies of the environment.
        self._transport = httpx.AsyncHTTPTransport(
            verify=ssl.create_default_context() if url.startswith("https") else False
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def get(self, target: str, etag: str = "") -> tuple[httpx.Response, bytes]:
        """Return a response of status 200, 304 or 404, and its body.

        Raises `_Invalid`, and `FeedError` if there is none.
        """
        body = bytearray()
        async with _failures(f"no response to {target}", EXCHANGE_SECONDS):
            response = await self._send(target, etag)
            # To its end, also if it is too large: a loop that is left leaves the generators of httpx behind.
            async for piece in response.aiter_raw():
                if len(body) <= wire.MAX_ORDER_BOOK_BYTES:
                    body += piece
        if len(body) > wire.MAX_ORDER_BOOK_BYTES:
            raise _Invalid(f"response to {target} must have at most {wire.MAX_ORDER_BOOK_BYTES} bytes, got more")
        status = response.status_code
        if status in {200, 404} or (status == 304 and etag):
            return response, bytes(body)
        reason = f"response to {target} has status {status}: {safe_repr(str(body, 'utf-8', 'replace'))}"
        raise FeedError(reason) if status in UNAVAILABLE else _Invalid(reason)

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[_Stream | None]:
        """Open the stream of changes, and read it in a task until the end of the block; None if there is none."""
        async with _failures(f"no response to {STREAM}", SILENCE_SECONDS):
            response = await self._send(STREAM)
        async with aclosing(response):
            status = response.status_code
            if status in UNAVAILABLE:
                raise FeedError(f"response to {STREAM} has status {status}")
            if status != 200 or response.headers.get("content-type", "").partition(";")[0] != EVENTS:
                yield None
                return
            stream = _Stream()
            receiving = asyncio.create_task(stream.receive(response))
            try:
                yield stream
            finally:
                receiving.cancel()
                await asyncio.wait({receiving})

    async def _send(self, target: str, etag: str = "") -> httpx.Response:
        """Send a request, and return the response, whose body is to be read."""
        connect = {"timeout": {"connect": CONNECT_SECONDS}}
        headers = HEADERS | ({"If-None-Match": etag} if etag else {})
        request = httpx.Request("GET", f"{self._url}{target}", headers=headers, extensions=connect)
        return await self._transport.handle_async_request(request)


@final
class _Stream:
    """An open stream of server-sent events, parsed as the HTML standard says.

    `has_events`: whether the service has sent any. `has_lasted`: whether it has sent something after `SILENCE_SECONDS`.
    """

    def __init__(self) -> None:
        self.has_events = self.has_lasted = False
        self.opened_at = monotonic()
        self._received, self._has_received = bytearray(), asyncio.Event()
        self._end: Exception | None = None
        self._silent_seconds = 0.0
        # The start of a line, and the event that the next empty line ends.
        self._line, self._name, self._text = bytearray(), b"", bytearray()

    async def receive(self, response: httpx.Response) -> None:
        """Receive all that arrives whenever the event loop runs, until the stream ends, or the task is cancelled.

        A loop that is left otherwise would leave the generators of httpx behind.
        """
        end: Exception = FeedError("the stream has ended")
        try:
            async for piece in response.aiter_raw():
                self._received += piece
                self._has_received.set()
        except httpx.HTTPError as error:
            end = FeedError(reason_of(error))
        except Exception as error:  # noqa: BLE001  # raised by `events`: otherwise it looks like a silent stream
            end = error
        self._end = end
        self._has_received.set()

    async def events(self) -> list[tuple[bytes, bytes]]:
        """Return the names and texts of the events that have arrived, at most a second later."""
        try:
            await asyncio.wait_for(self._has_received.wait(), CHECK_SECONDS)
        except TimeoutError:
            # Not a timeout of the event loop, which does not run while the caller is busy.
            self._silent_seconds += CHECK_SECONDS
            if self._silent_seconds >= SILENCE_SECONDS:
                raise _Silence(f"nothing from the stream within {SILENCE_SECONDS:g} seconds") from None
            return []
        await asyncio.sleep(GATHER_SECONDS)
        received, self._received = self._received, bytearray()
        if self._end is None:
            self._has_received.clear()
        elif not received:
            raise self._end
        self._silent_seconds = 0.0
        self.has_lasted = monotonic() > self.opened_at + SILENCE_SECONDS
        events = list(self._parse(received))
        self.has_events = self.has_events or bool(events)
        return events

    def _parse(self, received: bytearray) -> Iterator[tuple[bytes, bytes]]:
        """Yield the events that end."""
        self._line += received
        *lines, self._line = self._line.split(b"\n") if b"\n" in received else [self._line]
        # The rest of a larger event is not kept: it is invalid.
        del self._line[wire.MAX_ORDER_BOOK_BYTES + 100 :]
        for line in lines:
            field, _, value = bytes(line.removesuffix(b"\r")).partition(b":")
            value = value.removeprefix(b" ")
            if field == b"event":
                self._name = value
            elif field == b"data" and len(self._text) <= wire.MAX_ORDER_BOOK_BYTES:
                self._text += value + b"\n"
            elif not line.strip(b"\r"):
                if self._text:
                    yield self._name, bytes(self._text[:-1])
                self._name, self._text = b"", bytearray()


@asynccontextmanager
async def _failures(what: str, seconds: float) -> AsyncIterator[None]:
    """Turn the failures of an exchange, or one that takes longer, into a `FeedError`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise _Silence(f"{what} within {seconds:g} seconds") from None
    except (httpx.HTTPError, OSError) as error:
        raise FeedError(reason_of(error)) from None


def _book(response: httpx.Response, body: bytes, pair: Pair) -> OrderBook:
    """Return the book of a response. Raises `_Invalid` if it is not a valid book of the pair."""
    if response.status_code == 404:
        raise _Invalid("not found, although the list contains the pair")
    try:
        book = wire.order_book_from_json(body, ignore_unknown=True)
    except MarketIndexError as error:
        raise _Invalid(str(error)) from None
    if book.pair != pair:
        raise _Invalid(f"must be the book of the requested pair, got that of {book.pair}")
    return book


def _book_target(pair: Pair) -> str:
    return f"/trading-view/order-book?{urlencode({'base': pair.base, 'quote': pair.quote})}"


def _freshness(response: httpx.Response) -> Freshness:
    """Return what the headers say; nothing is known if one of them is invalid."""
    published_at = response.headers.get(PUBLISHED_AT)
    with suppress(InvalidFreshness):
        return Freshness(response.headers.get(AS_OF), published_at and parse_time(published_at))
    return UNKNOWN


def _common(found: Collection[Freshness]) -> Freshness:
    """Return the freshness of several responses: the as_of if all have the same, and the earliest publish time."""
    as_ofs = {one.as_of for one in found}
    times = [one.published_at for one in found if one.published_at is not None]
    return Freshness(as_ofs.pop() if len(as_ofs) == 1 else None, min(times) if len(times) == len(found) else None)


def _base_url(text: str, name: str) -> str:
    """Return a base URL without a slash at its end. Raises `FeedError`, without the credentials of the text."""
    with suppress(httpx.InvalidURL, ValueError):
        url = httpx.URL(text)
        is_base = url.scheme in {"http", "https"} and url.host and url.port != 0
        if is_base and not (url.userinfo or url.query or url.fragment or text.endswith(("?", "#"))):
            return str(url).rstrip("/")
    raise FeedError(f"{name} cannot be opened: it must be the base URL of a service, such as http://127.0.0.1:8000")


__all__ = ["ServiceSource"]
