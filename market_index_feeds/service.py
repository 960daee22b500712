"""The source that polls a running service: its pair list, and the order book of each pair.

A round requests the list and every book, with the entity tags of what was received before, so that the service does not
send unchanged content again. A round that was received as a whole is a version. Its freshness is that of the oldest
response. A round that fails is continued by the next attempt, which does not request again what it has received.

A response that is not valid is an invalid record of its pair. Without a response, the service cannot be read now.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Collection, Coroutine, Generator, Iterable
from concurrent.futures import wait
from contextlib import aclosing, closing, suppress
from importlib.metadata import version
from itertools import takewhile
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

POLL_SECONDS: Final = 1.0
"""Interval between the end of one round and the start of the next."""

EXCHANGE_SECONDS: Final = 20.0
"""Timeout of a whole exchange: the look-up of the host, the connection, the request and the response."""

CONNECT_SECONDS: Final = 5.0
"""Timeout of a connection, with its TLS handshake."""

MAX_RETRY_SECONDS: Final = 60.0
"""The longest pause that a service can ask for with `Retry-After`."""

MAX_IN_FLIGHT: Final = 8
"""How many requests are in flight at the same time."""

MAX_LIST_BYTES: Final = 8 * 1024 * 1024
"""The maximum size of a pair list, decompressed: some 40,000 pairs."""

STOP_SECONDS: Final = 0.1
"""The maximum delay until a round notices that it is to stop."""

CLOSE_SECONDS: Final = 1.0
"""How long the end of a source waits for the end of its requests."""

HEADERS: Final = {
    "User-Agent": f"market-index/{version('market-index')}",
    "Accept": "application/json",
    "Accept-Encoding": "gzip",
}
"""The headers of all requests."""

PAIR_LIST: Final = "/trading-view/pair-list"
ORDER_BOOK: Final = "/trading-view/order-book"

# A malformed tag would break the next request, and a longer one take memory for each pair.
_IS_ETAG: Final = re.compile(r'(W/)?"[!#-~]{0,256}"', re.ASCII).fullmatch
# The number of seconds of a Retry-After (RFC 9110). A date is ignored: it depends on two clocks.
_IS_DELAY: Final = re.compile(r"\d{1,9}", re.ASCII).fullmatch

T = TypeVar("T")


@frozen
class _Response:
    """A response of status 200, 304 or 404, with its body, decompressed, and its headers."""

    status: int
    body: bytes
    etag: str
    freshness: Freshness


@frozen
class _Content:
    """What was last received of a pair. `book` is None if the response was not valid."""

    book: OrderBook | None
    etag: str
    freshness: Freshness


class _Invalid(FeedError):
    """The response is not valid."""


class _Overloaded(FeedError):
    """The service asks for a pause: it responds with 429 or 503."""


@final
class ServiceSource(Source):
    """A service with the two endpoints below a base URL, such as `http://127.0.0.1:8000`.

    Raises:
        FeedError: The name is not such a URL.
    """

    def __init__(self, url: str) -> None:
        super().__init__(shown_name(url))
        self._url = _base_url(url, self.name)
        self._pairs: tuple[Pair, ...] = ()
        self._list_etag = ""
        self._known: dict[Pair, _Content] = {}
        # The pairs whose books this round has received.
        self._received: set[Pair] = set()
        # The monotonic time until which nothing is requested, and why.
        self._paused_until, self._pause = 0.0, _Overloaded()

    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        """Poll the service once a second. A round of a service with many pairs takes longer."""
        transport = self._transport()
        with closing(_LoopThread(transport)) as thread:
            while not stop.is_set():
                received = len(self._received)
                try:
                    found = thread.run(self._round(transport), stop, progress)
                except _Overloaded:
                    if self.last is not None or len(self._received) == received:
                        raise
                    # The first round continues after each pause: its caller waits for it.
                    stop.wait(self._paused_until - monotonic())
                    continue
                if found is None:
                    return
                progress = None
                yield found
                stop.wait(POLL_SECONDS)

    def read_order_book(self, pair: Pair) -> Version:
        """Return a version with the book of one pair: one request."""
        transport = self._transport()
        with closing(_LoopThread(transport)) as thread:
            response = thread.run(self._get(transport, ORDER_BOOK, pair), Event())
        if response is None or response.status == 404:
            return Version(MarketIndex())
        return Version(MarketIndex([_book(response, pair)]).with_freshness(response.freshness))

    def _transport(self) -> httpx.AsyncHTTPTransport:
        # Not a client: that takes twice as long, and has cookies, redirects, and the proxies of the environment.
        return httpx.AsyncHTTPTransport(
            verify=ssl.create_default_context() if self._url.startswith("https") else False,
            limits=httpx.Limits(max_connections=MAX_IN_FLIGHT),
        )

    async def _round(self, transport: httpx.AsyncHTTPTransport) -> Version | NoVersion:
        """Request the list, and the books that this round has not received yet. Raises `FeedError`."""
        if monotonic() < self._paused_until:
            raise self._pause
        freshness = [await self._request_list(transport)]
        pairs = self._pairs
        missing = await self._request_books(transport, [pair for pair in pairs if pair not in self._received])
        if missing:
            # The service may have dropped the pair between its list and its book. Then the next list lacks it.
            freshness.append(await self._request_list(transport))
            for pair in missing.intersection(self._pairs):
                self._reject(pair, "not found, although the list contains the pair")
            pairs = tuple(pair for pair in pairs if pair not in missing or pair in self._pairs)
        self._received.clear()
        self._known = {pair: self._known[pair] for pair in pairs}
        if not pairs:
            return NoVersion()
        found = self._known.values()
        freshness += [one.freshness for one in found]
        return self.derive(
            [one.book for one in found if one.book is not None],
            invalid={pair for pair, one in self._known.items() if one.book is None},
            is_whole=True,
            freshness=oldest(freshness, UNKNOWN if self.last is None else self.last.index.freshness),
        )

    async def _request_list(self, transport: httpx.AsyncHTTPTransport) -> Freshness:
        """Request the pair list, and return its freshness."""
        response = await self._get(transport, PAIR_LIST, None, self._list_etag)
        if response.status == 404:
            raise FeedError("there is no pair list below this URL")
        if response.status == 200:
            try:
                pairs = tuple(info.pair for info in wire.pair_list_from_json(response.body, ignore_unknown=True))
            except MarketIndexError as error:
                raise FeedError(f"invalid pair list: {error}") from None
            self._pairs, self._list_etag = pairs, response.etag
        return response.freshness

    async def _request_books(self, transport: httpx.AsyncHTTPTransport, pairs: Collection[Pair]) -> set[Pair]:
        """Request the books of pairs, and return the pairs that are not found."""
        remaining, missing, pauses = iter(pairs), set[Pair](), list[_Overloaded]()

        async def request_all() -> None:
            # After a pause that the service asks for, only what is in flight is received.
            for pair in takewhile(lambda _: not pauses, remaining):
                known = self._known.get(pair)
                try:
                    response = await self._get(transport, ORDER_BOOK, pair, "" if known is None else known.etag)
                    if response.status == 404:
                        missing.add(pair)
                        continue
                    book = known.book if known is not None and response.status == 304 else _book(response, pair)
                    self._known[pair] = _Content(book, response.etag, response.freshness)
                except _Overloaded as error:
                    pauses.append(error)
                    return
                except _Invalid as error:
                    self._reject(pair, error)
                self._received.add(pair)

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(MAX_IN_FLIGHT):
                    tasks.create_task(request_all())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        if pauses:
            raise pauses[0]
        return missing

    def _reject(self, pair: Pair, reason: object) -> None:
        """Note that there is no valid book of a pair. It is logged once."""
        known = self._known.get(pair)
        if known is None or known.book is not None:
            self.reject(f"the order book of {pair}", reason)
        self._known[pair] = _Content(None, "", UNKNOWN)

    async def _get(
        self, transport: httpx.AsyncHTTPTransport, path: str, pair: Pair | None, etag: str = ""
    ) -> _Response:
        """Return a response. Raises `_Invalid`, `_Overloaded`, and `FeedError` if there is none."""
        query = "" if pair is None else f"?{urlencode({'base': pair.base, 'quote': pair.quote})}"
        target = f"{path}{query}"
        headers = HEADERS | ({"If-None-Match": etag} if etag else {})
        connect = {"timeout": {"connect": CONNECT_SECONDS}}
        request = httpx.Request("GET", f"{self._url}{target}", headers=headers, extensions=connect)
        max_bytes = MAX_LIST_BYTES if pair is None else wire.MAX_ORDER_BOOK_BYTES
        try:
            async with asyncio.timeout(EXCHANGE_SECONDS):
                response = await transport.handle_async_request(request)
                async with aclosing(response):
                    body = await _body(response, target, max_bytes)
        except TimeoutError:
            raise FeedError(f"no response to {target} within {EXCHANGE_SECONDS:g} seconds") from None
        except httpx.DecodingError as error:
            raise _Invalid(f"response to {target} is not valid gzip: {reason_of(error)}") from None
        except (httpx.HTTPError, OSError) as error:
            raise FeedError(reason_of(error)) from None
        status = response.status_code
        if status in {200, 404} or (status == 304 and etag):
            tag = etag if status == 304 else _only(response, "etag")
            return _Response(status, body, tag if tag and _IS_ETAG(tag) else "", _freshness(response))
        reason = f"response to {target} has status {status}: {safe_repr(str(body, 'utf-8', 'replace'))}"
        if status in {429, 503}:
            delay = _only(response, "retry-after") or ""
            self._pause = _Overloaded(reason)
            self._paused_until = monotonic() + (min(float(delay), MAX_RETRY_SECONDS) if _IS_DELAY(delay) else 0.0)
            raise self._pause
        raise _Invalid(reason)


class _LoopThread:
    """An event loop in a thread of its own, because that of the caller may run another one, as a notebook does.

    If a look-up of a host blocks the thread, neither the caller nor the end of the process waits for it.
    """

    def __init__(self, transport: httpx.AsyncHTTPTransport) -> None:
        self._loop, self._closing, self._ended = asyncio.new_event_loop(), asyncio.Event(), Event()
        Thread(target=self._serve, args=(transport,), name="requests", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T], stop: Event, progress: Progress | None = None) -> T | None:
        """Return the result of a coroutine; None if `stop` is set before. `progress` is called meanwhile."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while not wait([future], STOP_SECONDS).done:
                if stop.is_set():
                    return None
                if progress is not None:
                    progress(0, 0)
            return future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """End all requests."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._ended.wait(CLOSE_SECONDS)

    def _serve(self, transport: httpx.AsyncHTTPTransport) -> None:
        async def serve() -> None:
            await self._closing.wait()
            # The cancelled round ends the tasks that it has started, in their order.
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
            await transport.aclose()

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(serve())
        self._ended.set()


async def _body(response: httpx.Response, target: str, max_bytes: int) -> bytes:
    """Return the whole body, decompressed. Raises `_Invalid`."""
    if (coding := response.headers.get("content-encoding", "identity").lower()) not in {"identity", "gzip"}:
        # Each of several codings could multiply the size by a thousand.
        raise _Invalid(f"response to {target} must be compressed with gzip or not at all, got {safe_repr(coding)}")
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > max_bytes:
            raise _Invalid(f"response to {target} must have at most {max_bytes} bytes, got more")
    return bytes(body)


def _book(response: _Response, pair: Pair) -> OrderBook:
    """Return the book of a response. Raises `_Invalid` if it is not a valid book of the pair."""
    try:
        book = wire.order_book_from_json(response.body, ignore_unknown=True)
    except MarketIndexError as error:
        raise _Invalid(str(error)) from None
    if book.pair != pair:
        raise _Invalid(f"must be the book of the requested pair, got that of {book.pair}")
    return book


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


def oldest(seen: Iterable[Freshness], before: Freshness) -> Freshness:
    """Return the freshness of books from several responses: the earliest one. `before` is that of the last version.

    Responses differ if something was published in between, or if they come from several workers or caches. Only the
    clock of the publisher shows which was published first. The as_of is not known if two responses have the earliest
    publish time, if that is earlier than before, so that the clock may have been set back, or if a response has no
    as_of.
    """
    different = set(seen)
    if len(different) == 1:
        return different.pop()
    times = [one.published_at for one in different if one.published_at is not None]
    if len(times) < len(different):
        return UNKNOWN
    first = min(times)
    one, *others = (one for one in different if one.published_at == first)
    is_earlier = before.published_at is not None and first < before.published_at
    is_known = all(one.as_of is not None for one in different)
    return one if is_known and not (others or is_earlier) else one.without_as_of()


def _base_url(text: str, name: str) -> str:
    """Return a base URL without a slash at its end. Raises `FeedError`, without the credentials of the text."""
    with suppress(httpx.InvalidURL, ValueError):
        url = httpx.URL(text)
        is_base = url.scheme in {"http", "https"} and url.host and url.port != 0
        if is_base and not (url.userinfo or url.query or url.fragment or text.endswith(("?", "#"))):
            return str(url).rstrip("/")
    raise FeedError(f"{name} cannot be opened: it must be the base URL of a service, such as http://127.0.0.1:8000")


__all__ = ["ServiceSource"]
