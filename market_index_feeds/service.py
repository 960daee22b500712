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
import re
import ssl
from collections.abc import AsyncIterator, Collection, Coroutine, Generator
from concurrent.futures import Future, wait
from contextlib import aclosing, asynccontextmanager, closing, suppress
from importlib.metadata import version
from math import inf
from threading import Event, Thread
from time import monotonic
from typing import Any, Final, TypeVar, final
from urllib.parse import urlencode

import httpx
from attrs import frozen

from market_index import Freshness, InvalidFreshness, MarketIndex, MarketIndexError, OrderBook, Pair, wire
from market_index.errors import safe_repr
from market_index.wire import AS_OF, PUBLISHED_AT, parse_time
from market_index_feeds.errors import FeedError, reason_of
from market_index_feeds.opened import shown_name
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

MAX_RETRY_SECONDS: Final = 60.0
"""The longest pause that a service can ask for with `Retry-After`."""

MAX_IN_FLIGHT: Final = 8
"""How many requests are in flight at the same time."""

STOP_SECONDS: Final = 0.1
"""The maximum delay until a request notices that it is to stop."""

CLOSE_SECONDS: Final = 1.0
"""How long the end of a source waits for the end of its requests."""

EVENTS: Final = "text/event-stream"
HEADERS: Final = {
    "User-Agent": f"market-index/{version('market-index')}",
    "Accept": f"application/json, {EVENTS}",
    "Accept-Encoding": "identity",
}
"""The headers of all requests."""

STREAM: Final = "/stream?levels=changed"
PAIR_LIST: Final = "/trading-view/pair-list"
ORDER_BOOK: Final = "/trading-view/order-book"

UNAVAILABLE: Final = frozenset({429, 502, 503, 504})
"""The statuses by which a service, or a proxy in front of it, says that it can respond later."""

# A malformed tag would break the next request, and a longer one take memory for each pair.
_IS_ETAG: Final = re.compile(r'(W/)?"[!#-~]{0,256}"', re.ASCII).fullmatch
# The number of seconds of a Retry-After (RFC 9110). A date is ignored: it depends on two clocks.
_IS_DELAY: Final = re.compile(r"\d{1,9}", re.ASCII).fullmatch

T = TypeVar("T")


@frozen
class _Response:
    """A response of status 200, 304 or 404."""

    status: int
    body: bytes
    etag: str
    freshness: Freshness


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
        # The monotonic time until which nothing is requested, and why.
        self._paused_until, self._pause = 0.0, ""
        # What the stream has sent since its last version, and whether the next one is its first.
        self._books: dict[Pair, OrderBook] = {}
        self._retracted: set[Pair] = set()
        self._invalid: set[Pair | None] = set()
        self._is_first = True
        self._silences = 0
        # What polling has received.
        self._pairs: tuple[Pair, ...] = ()
        self._list_etag = ""
        self._known: dict[Pair, tuple[OrderBook, str]] = {}  # with the entity tag

    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        """Follow the stream, or poll the service once a second. A round of many pairs takes longer."""
        if monotonic() < self._paused_until:
            raise FeedError(self._pause)
        with closing(_Client(self._url)) as client:
            while self._silences < MAX_SILENCES and not stop.is_set():
                try:
                    yield from self._streamed(client, stop, progress)
                    break
                except _Silence:
                    self._silences += 1
                    if self.last is not None:
                        raise
            # After polling has failed, the stream is tried again.
            self._silences = 0
            while not stop.is_set() and (found := client.run(self._round(client), stop, progress)) is not None:
                progress = None
                yield found
                stop.wait(CHECK_SECONDS)

    def read_order_book(self, pair: Pair) -> Version:
        """Return a version with the book of one pair: one request."""
        with closing(_Client(self._url)) as client:
            response = client.run(self._get(client, ORDER_BOOK, pair), Event())
        if response is None or response.status == 404:
            return Version(MarketIndex())
        return Version(MarketIndex([_book(response, pair)]).with_freshness(response.freshness))

    def _streamed(
        self, client: _Client, stop: Event, progress: Progress | None
    ) -> Generator[Version | NoVersion, None, None]:
        """Yield the versions of the stream until `stop` is set; none if the service has no stream."""
        self._books, self._retracted, self._invalid, self._is_first = {}, set(), set(), True
        stream = client.run(self._open_stream(client), stop, progress)
        opened_at, found = monotonic(), None
        reading: Future[list[tuple[bytes, bytes]]] | None = None
        while stream is not None and not stop.is_set():
            reading = reading or client.start(stream.read())
            if client.wait(reading, stop, progress, CHECK_SECONDS):
                for name, text in reading.result():
                    found = self._received(name, text) or found
                reading = None
                if monotonic() > opened_at + SILENCE_SECONDS:
                    self._silences = 0
            elif not stream.has_events:
                # The service is slow, or has no pair.
                client.run(self._request_list(client), stop, progress)
                found = None if self._pairs else NoVersion()
            if found is not None:
                progress = None
                yield found
            if self._invalid and not self._is_first and monotonic() > opened_at + REPAIR_SECONDS:
                raise FeedError("an invalid book was not repaired; the stream is opened again")

    async def _open_stream(self, client: _Client) -> _Stream | None:
        """Return the stream; None if the service has none."""
        async with _failures(f"no response to {STREAM}", SILENCE_SECONDS):
            response = await client.request(STREAM)
            kind = response.headers.get("content-type", "").partition(";")[0]
            if response.status_code == 200 and kind == EVENTS and not _is_compressed(response):
                return _Stream(response)
            await response.aclose()
        self._require_available(response, f"response to {STREAM} has status {response.status_code}")
        return None

    def _received(self, name: bytes, text: bytes) -> Version | NoVersion | None:
        """Apply an event, and return the version that it ends, if any. Unknown events are ignored."""
        if name == b"version":
            try:
                freshness = wire.freshness_from_json(text, ignore_unknown=True)
            except MarketIndexError as error:
                raise FeedError(f"invalid version in the stream: {error}") from None
            version = self.derive(
                self._books.values(),
                self._retracted,
                invalid=self._invalid,
                is_whole=self._is_first,
                freshness=freshness,
            )
            self._books, self._retracted, self._is_first = {}, set(), False
            return version if version.index or version.invalid else NoVersion()
        if name == b"retract":
            if (pair := wire.pair_named_in(text)) is None:
                raise FeedError(f"a retraction in the stream must name a pair, got {safe_repr(text)}")
            self._books.pop(pair, None)
            self._invalid.discard(pair)
            self._retracted.add(pair)
        elif name in {b"book", b"change"}:
            is_large = len(text) > wire.MAX_ORDER_BOOK_BYTES
            try:
                if is_large:
                    raise _Invalid(f"must have at most {wire.MAX_ORDER_BOOK_BYTES} bytes, got more")
                book = wire.order_book_from_json(text, ignore_unknown=True) if name == b"book" else self._changed(text)
            except MarketIndexError as error:
                pair = None if is_large else wire.pair_named_in(text)
                self._reject(pair, f"event of {'an unknown pair' if pair is None else pair}", error, self._invalid)
            else:
                self._invalid.discard(book.pair)
                self._retracted.discard(book.pair)
                self._books[book.pair] = book
        return None

    def _changed(self, text: bytes) -> OrderBook:
        """Return the next book of a pair, from the changes of its levels."""
        pair, bids, asks, spot = wire.order_book_changes_from_json(text, ignore_unknown=True)
        before = self._books.get(pair)
        if before is None and not (self._is_first or self.last is None or pair in self._retracted):
            before = self.last.index.get(pair)
        if before is None or pair in self._invalid:
            raise _Invalid("a change must follow the valid book of its pair")
        return before.apply(bids, asks, spot)

    async def _round(self, client: _Client) -> Version | NoVersion:
        """Request the list and all books, and return them as a version."""
        freshness = {await self._request_list(client)}
        pairs, invalid = self._pairs, set[Pair | None]()
        remaining = iter(pairs)

        async def request_books() -> None:
            for pair in remaining:
                book, etag = self._known.get(pair, (None, ""))
                try:
                    response = await self._get(client, ORDER_BOOK, pair, etag)
                    if book is None or response.status != 304:
                        book = _book(response, pair)
                    self._known[pair] = book, response.etag
                    freshness.add(response.freshness)
                except _Invalid as error:
                    self._reject(pair, f"the order book of {pair}", error, invalid)

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(MAX_IN_FLIGHT):
                    tasks.create_task(request_books())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        self._known = {pair: self._known[pair] for pair in pairs if pair in self._known}
        if not pairs:
            return NoVersion()
        books = [book for book, _ in self._known.values()]
        return self.derive(books, invalid=invalid, is_whole=True, freshness=_common(freshness))

    async def _request_list(self, client: _Client) -> Freshness:
        """Request the pair list, and return its freshness."""
        response = await self._get(client, PAIR_LIST, None, self._list_etag)
        if response.status == 404:
            raise FeedError("there is no pair list below this URL")
        if response.status == 200:
            try:
                pairs = tuple(info.pair for info in wire.pair_list_from_json(response.body, ignore_unknown=True))
            except MarketIndexError as error:
                raise FeedError(f"invalid pair list: {error}") from None
            self._pairs, self._list_etag = pairs, response.etag
        return response.freshness

    async def _get(self, client: _Client, path: str, pair: Pair | None, etag: str = "") -> _Response:
        """Return a response. Raises `_Invalid`, and `FeedError` if there is none."""
        query = "" if pair is None else f"?{urlencode({'base': pair.base, 'quote': pair.quote})}"
        target = f"{path}{query}"
        async with _failures(f"no response to {target}", EXCHANGE_SECONDS):
            response = await client.request(target, etag)
            async with aclosing(response):
                body = await _body(response, target)
        status = response.status_code
        if status in {200, 404} or (status == 304 and etag):
            tag = etag if status == 304 else _only(response, "etag")
            return _Response(status, body, tag if tag and _IS_ETAG(tag) else "", _freshness(response))
        reason = f"response to {target} has status {status}: {safe_repr(str(body, 'utf-8', 'replace'))}"
        self._require_available(response, reason)
        raise _Invalid(reason)

    def _require_available(self, response: httpx.Response, reason: str) -> None:
        """Raise `FeedError` if the service can respond later, and remember the pause that it asks for."""
        if response.status_code in UNAVAILABLE:
            delay = _only(response, "retry-after") or ""
            self._paused_until = monotonic() + (min(float(delay), MAX_RETRY_SECONDS) if _IS_DELAY(delay) else 0.0)
            self._pause = reason
            raise FeedError(reason)

    def _reject(self, pair: Pair | None, record: str, reason: object, invalid: set[Pair | None]) -> None:
        """Add the pair of an invalid record. It is counted and logged once, until its record is valid."""
        if pair not in invalid and (self.last is None or pair not in self.last.invalid):
            self.reject(record, reason)
        invalid.add(pair)


@final
class _Stream:
    """An open stream of server-sent events, parsed as the HTML standard says. `has_events`: whether it has sent any."""

    def __init__(self, response: httpx.Response) -> None:
        self.has_events = False
        self._pieces = response.aiter_raw()
        # The start of a line, and the event that the next empty line ends.
        self._line, self._name, self._text = bytearray(), b"", bytearray()

    async def read(self) -> list[tuple[bytes, bytes]]:
        """Return the names and texts of the events that the next piece ends."""
        async with _failures("nothing from the stream", SILENCE_SECONDS):
            piece = await anext(self._pieces, None)
        if piece is None:
            raise FeedError("the stream has ended")
        self._line += piece
        events = []
        *lines, self._line = self._line.split(b"\n") if b"\n" in piece else [self._line]
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
                    events.append((self._name, bytes(self._text[:-1])))
                self._name, self._text = b"", bytearray()
        self.has_events = self.has_events or bool(events)
        return events


@final
class _Client:
    """An HTTP client. Its event loop has a thread of its own: that of the caller may run one, as a notebook does."""

    def __init__(self, url: str) -> None:
        self._url = url
        # Not `AsyncClient`: that takes twice as long, and has cookies, redirects and the proxies of the environment.
        self._transport = httpx.AsyncHTTPTransport(
            verify=ssl.create_default_context() if url.startswith("https") else False,
            limits=httpx.Limits(max_connections=MAX_IN_FLIGHT),
        )
        self._loop = asyncio.new_event_loop()
        self._started: list[Future[Any]] = []
        self._thread = Thread(target=self._serve, name="requests", daemon=True)
        self._thread.start()

    async def request(self, target: str, etag: str = "") -> httpx.Response:
        """Send a request, and return the response, whose body is to be read."""
        connect = {"timeout": {"connect": CONNECT_SECONDS}}
        headers = HEADERS | ({"If-None-Match": etag} if etag else {})
        request = httpx.Request("GET", f"{self._url}{target}", headers=headers, extensions=connect)
        return await self._transport.handle_async_request(request)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine, until `close` cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._started = [*(one for one in self._started if not one.done()), future]
        return future

    def wait(self, future: Future[T], stop: Event, progress: Progress | None, seconds: float = inf) -> bool:
        """Return whether a coroutine ends before `stop` is set, and in time. `progress` is called meanwhile."""
        ends_at = monotonic() + seconds
        while not wait([future], STOP_SECONDS).done:
            if stop.wait(0) or monotonic() > ends_at:
                return False
            if progress is not None:
                progress(0, 0)
        return True

    def run(self, work: Coroutine[Any, Any, T], stop: Event, progress: Progress | None = None) -> T | None:
        """Return the result of a coroutine; None if `stop` is set before."""
        future = self.start(work)
        return future.result() if self.wait(future, stop, progress) else None

    def close(self) -> None:
        """End all requests."""
        # Not all tasks of the loop: anyio never awaits the coroutine of a task that is cancelled before it begins.
        for future in self._started:
            future.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_SECONDS)

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        # A response body that was not read to its end is a chain of generators. The end of one creates the task that
        # ends the next, but a step later.
        idle_steps = 0
        while idle_steps < 2:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            idle_steps = 0 if tasks else idle_steps + 1
            await (asyncio.wait(tasks) if tasks else asyncio.sleep(0))
        await self._transport.aclose()
        await self._loop.shutdown_asyncgens()


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


async def _body(response: httpx.Response, target: str) -> bytes:
    """Return the whole body. Raises `_Invalid`."""
    if _is_compressed(response):
        raise _Invalid(f"response to {target} must not be compressed")
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > wire.MAX_ORDER_BOOK_BYTES:
            raise _Invalid(f"response to {target} must have at most {wire.MAX_ORDER_BOOK_BYTES} bytes, got more")
    return bytes(body)


def _book(response: _Response, pair: Pair) -> OrderBook:
    """Return the book of a response. Raises `_Invalid` if it is not a valid book of the pair."""
    if response.status == 404:
        raise _Invalid("not found, although the list contains the pair")
    try:
        book = wire.order_book_from_json(response.body, ignore_unknown=True)
    except MarketIndexError as error:
        raise _Invalid(str(error)) from None
    if book.pair != pair:
        raise _Invalid(f"must be the book of the requested pair, got that of {book.pair}")
    return book


def _is_compressed(response: httpx.Response) -> bool:
    codings = response.headers.get_list("content-encoding", split_commas=True)
    return any(coding.lower() != "identity" for coding in codings)


def _only(response: httpx.Response, name: str) -> str | None:
    """Return the value of a header; None if it is missing or repeated."""
    values = response.headers.get_list(name)
    return values[0] if len(values) == 1 else None


def _freshness(response: httpx.Response) -> Freshness:
    """Return what the headers say. A value that is missing, repeated or invalid is not known."""
    found = UNKNOWN
    with suppress(InvalidFreshness):
        found = Freshness(_only(response, AS_OF))
    with suppress(InvalidFreshness):
        text = _only(response, PUBLISHED_AT)
        found = Freshness(found.as_of, None if text is None else parse_time(text))
    return found


def _common(found: Collection[Freshness]) -> Freshness:
    """Return the freshness of books from several responses: the as_of that all have, and the earliest publish time.

    If something was published during a round, the responses have several. Then no as_of is true of all books.
    """
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
