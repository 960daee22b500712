"""The source that follows a running service: by its stream of changes, or by polling.

Theory of operation
===================

    STREAM ──the service has no stream, or two silent ones in a row──▶ POLLING
       ▲                                                                  │
       └─────────────────────────── it fails ─────────────────────────────┘

- STREAM: A stream begins with all books, and continues with changes. They are shown at the `version` event after them,
  so a change of many books is atomic, and has the freshness of the service. Each connection begins with all books
  again. A service without pairs sends only comments: if a stream has sent no event within 5 seconds, it has none. A
  stream that sends nothing for 5 seconds is silent: a proxy withholds it.
- POLLING: A round requests the pair list and each book, with the entity tags of what was received before. It is a
  version if all its responses have the same freshness. Otherwise something was published meanwhile, and the next round
  follows at once.

A book that is not valid is an invalid record of its pair, as is a change that cannot be applied. The next valid book
repairs it. If anything else is not valid, or there is no response, the service cannot be read now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, suppress
from threading import Event
from time import monotonic
from typing import Final, final
from urllib.parse import urlencode

from market_index import Freshness, InvalidFreshness, MarketIndex, MarketIndexError, OrderBook, Pair, wire
from market_index.errors import safe_repr
from market_index.wire import AS_OF, PUBLISHED_AT, parse_time
from market_index_feeds.errors import FeedError, InvalidResponse, NothingReceived
from market_index_feeds.event_loop import pulled
from market_index_feeds.event_stream import EventParser
from market_index_feeds.http import EXCHANGE_SECONDS, Address, Client, Response, Stream
from market_index_feeds.source import UNKNOWN, NoVersion, Progress, Source, Version

LOG: Final = logging.getLogger(__name__)

CHECK_SECONDS: Final = 1.0
"""The interval of versions while nothing changes; in polling, from the end of a round to the start of the next."""

SILENCE_SECONDS: Final = 5.0
"""The timeout of a stream, and of its first event: a service sends at least a comment every 2 seconds."""

MAX_SILENCES: Final = 2
"""After so many silent streams in a row the service is polled: a proxy may withhold them."""

MAX_ROUNDS: Final = 5
"""If something is published during each of so many rounds in a row, the service cannot be read now."""

MAX_IN_FLIGHT: Final = 8
"""How many requests are in flight at the same time."""

MAX_PAIR_LIST_BYTES: Final = 32 * 1024 * 1024
"""The maximum size of a pair list: 100,000 pairs, each with the longest names and price."""

STREAM: Final = "/stream?levels=changed"
PAIR_LIST: Final = "/trading-view/pair-list"

EVENTS: Final = "text/event-stream"
ACCEPT_EVENTS: Final = {"Accept": EVENTS}
ACCEPT_JSON: Final = {"Accept": "application/json"}

UNAVAILABLE: Final = frozenset({429, 502, 503, 504})
"""The statuses by which a service, or a proxy in front of it, asks to try again later."""


@final
class ServiceSource(Source):
    """A service with the two endpoints below a base URL, such as `http://127.0.0.1:8000`.

    Args:
        name: The base URL. A user and a password in it are sent as basic authentication.
        headers: Headers of all requests, such as `X-API-Key`. They are never logged, nor sent to another host.
        clock: Returns seconds.

    Raises:
        FeedError: The name is not such a URL, or a header is not valid.
    """

    def __init__(self, name: str, headers: Mapping[str, str] = {}, *, clock: Callable[[], float] = monotonic) -> None:
        self._address = Address(name, headers)
        super().__init__(self._address.name)
        self.clock = clock
        self.silences: int = 0
        """The number of silent streams in a row."""

    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        """Follow the stream, or poll the service once a second.

        The next version takes longer than a second while the source connects (up to 5 seconds), waits for the first
        event (5 seconds), receives all books of a stream, or requests many books.
        """
        return pulled(self._versions(), stop, progress)

    def versions_of(self, pair: Pair, stop: Event) -> Generator[Version | NoVersion, None, None]:
        """Yield a version with the book of one pair, for one request."""
        return pulled(self._versions_of(pair), stop, None)

    async def _versions(self) -> AsyncGenerator[Version | NoVersion, None]:
        async with aclosing(Client(self._address)) as client:
            while self.silences < MAX_SILENCES:
                try:
                    async with client.stream(STREAM, ACCEPT_EVENTS, seconds=SILENCE_SECONDS) as stream:
                        if not _has_events(stream):
                            break
                        following = _Following(self, stream)
                        while True:
                            yield await following.next()
                except NothingReceived as error:
                    self.silences += 1
                    if self.last is not None:
                        raise
                    LOG.warning("%s: %s", self.name, error)
            # After polling has failed, the stream is tried again.
            self.silences, polling = 0, _Polling(self, client)
            while True:
                yield await polling.next()
                await asyncio.sleep(CHECK_SECONDS)

    async def _versions_of(self, pair: Pair) -> AsyncGenerator[Version | NoVersion, None]:
        async with aclosing(Client(self._address)) as client:
            response = await _request(client, _book_target(pair), "", wire.MAX_ORDER_BOOK_BYTES)
            if response.status == 404:
                await _Polling(self, client).request_list()  # or it is no service
            books = [] if response.status == 404 else [_book(response, pair)]
            yield self.version_of(MarketIndex(books).with_freshness(_freshness(response)))


@final
class _Following:
    """The versions of a stream."""

    def __init__(self, source: ServiceSource, stream: Stream) -> None:
        self._source, self._stream = source, stream
        self._parser = EventParser(wire.MAX_ORDER_BOOK_BYTES)
        self._found: Version | NoVersion | None = None
        self._error: FeedError | None = None
        # What the stream has sent since its last version, and whether the next one is its first.
        self._books: dict[Pair, OrderBook] = {}
        self._retracted: set[Pair] = set()
        self._invalid: dict[Pair | None, MarketIndexError] = {}
        self._is_first = True
        # The pairs of which a book may have been sent that could not be read.
        self._unsure: set[Pair] = set()
        # By the clock of the source.
        self._opened_at = self._received_at = source.clock()
        self._has_event = False

    async def next(self) -> Version | NoVersion:
        """Return the newest version that has arrived; after a second without any, the last one again."""
        if self._error is not None:
            raise self._error
        while True:
            received = await self._stream.read(CHECK_SECONDS)
            self._check_silence(is_silent=not received)
            try:
                for event in self._parser.parse(received):
                    self._has_event = True
                    self._apply(event.name, event.data)
            except FeedError as error:
                if self._found is None:
                    raise
                # What was whole before it is a version, also the first one of all.
                self._error = error
            is_due = self._source.clock() >= self._opened_at + SILENCE_SECONDS
            if is_due and not self._has_event and self._parser.is_between_events:
                self._found = NoVersion()
            if self._found is not None:
                return self._found

    def _check_silence(self, *, is_silent: bool) -> None:
        now = self._source.clock()
        if not is_silent:
            self._received_at = now
            if now > self._opened_at + SILENCE_SECONDS:
                self._source.silences = 0
        elif now >= self._received_at + SILENCE_SECONDS:
            raise NothingReceived(f"nothing from the stream within {SILENCE_SECONDS:g} seconds")

    def _apply(self, name: bytes, text: bytes) -> None:
        """Apply an event. Unknown events are ignored."""
        if name == b"version":
            try:
                freshness = wire.freshness_from_json(text, ignore_unknown=True)
            except MarketIndexError as error:
                raise FeedError(f"invalid version in the stream: {error}") from None
            self._source.reject_new({_record(pair): reason for pair, reason in self._invalid.items()})
            is_empty = not (self._books or self._is_first or self._source.content.index.without(*self._retracted))
            self._found = self._source.derive(
                self._books.values(),
                self._retracted,
                invalid=self._invalid,
                is_whole=self._is_first,
                # The pair list of a service without pairs has no retractions: late readers cannot know them.
                incomplete=NoVersion().reason if is_empty else None,
                freshness=freshness,
            )
            self._books, self._retracted, self._is_first = {}, set(), False
        elif name == b"retract":
            if (pair := wire.pair_named_in(text)) is None:
                raise FeedError(f"a retraction in the stream must name a pair, got {safe_repr(text)}")
            self._books.pop(pair, None)
            self._invalid.pop(pair, None)
            self._retracted.add(pair)
        elif name in {b"book", b"change"}:
            try:
                book = wire.order_book_from_json(text, ignore_unknown=True) if name == b"book" else self._changed(text)
            except MarketIndexError as error:
                pair = wire.pair_named_in(text)
                if name == b"change":
                    # The next change would lead to a book that never existed: begin again with whole books.
                    self._source.reject(_record(pair), error)
                    raise FeedError(f"invalid change in the stream: {error}") from None
                self._invalid[pair] = error
                if pair is None:
                    self._unsure = {*self._source.content.index}
            else:
                self._unsure.discard(book.pair)
                self._invalid.pop(book.pair, None)
                self._retracted.discard(book.pair)
                self._books[book.pair] = book

    def _changed(self, text: bytes) -> OrderBook:
        """Return the next book of a pair, from the changes of its levels."""
        pair, bids, asks, spot = wire.order_book_changes_from_json(text, ignore_unknown=True)
        before = self._books.get(pair)
        if before is None and not (self._is_first or pair in self._retracted):
            before = self._source.content.index.get(pair)
        if before is None or pair in self._invalid or pair in self._unsure:
            raise InvalidResponse("a change must follow the valid book of its pair")
        return before.apply(bids, asks, spot)


@final
class _Polling:
    """The versions of a service that is polled: each is a round of requests. `pairs` are those of the last list."""

    def __init__(self, source: ServiceSource, client: Client) -> None:
        self.pairs: tuple[Pair, ...] = ()
        self._source, self._client = source, client
        self._list_etag = ""
        # The books of the last round, with their entity tags.
        self._known: dict[Pair, tuple[OrderBook, str]] = {}

    async def next(self) -> Version | NoVersion:
        """Return the next version: the first round during which nothing was published."""
        for _ in range(MAX_ROUNDS):
            freshness = {await self.request_list()}
            if not self.pairs:
                return NoVersion()
            reasons = await self._request_books(freshness)
            if len(freshness) == 1:
                self._source.reject_new({_record(pair): reason for pair, reason in reasons.items()})
                books = [book for book, _ in self._known.values()]
                return self._source.derive(books, invalid=reasons, is_whole=True, freshness=freshness.pop())
        raise FeedError(f"it published during each of {MAX_ROUNDS} rounds of requests")

    async def request_list(self) -> Freshness:
        """Request the pair list, and return its freshness."""
        response = await _request(self._client, PAIR_LIST, self._list_etag, MAX_PAIR_LIST_BYTES)
        if response.status == 404:
            raise FeedError("there is no pair list below this URL (for a Kupo, write kupo: before it)")
        if response.status == 200:
            try:
                self.pairs = tuple(info.pair for info in wire.pair_list_from_json(response.body, ignore_unknown=True))
            except MarketIndexError as error:
                raise FeedError(f"invalid pair list: {error}") from None
        self._list_etag = response.headers.get("etag", "")
        return _freshness(response)

    async def _request_books(self, freshness: set[Freshness]) -> dict[Pair, InvalidResponse]:
        """Request all books, and add their freshness. Return why books are invalid, by pair."""
        remaining, known, reasons = iter(self.pairs), dict[Pair, tuple[OrderBook, str]](), dict[Pair, InvalidResponse]()

        async def request() -> None:
            for pair in remaining:
                try:
                    book, etag = self._known.get(pair, (None, ""))
                    response = await _request(self._client, _book_target(pair), etag, wire.MAX_ORDER_BOOK_BYTES)
                    if book is None or response.status != 304:
                        book = _book(response, pair)
                    known[pair] = book, response.headers.get("etag", "")
                    freshness.add(_freshness(response))
                except InvalidResponse as error:
                    reasons[pair] = error

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(MAX_IN_FLIGHT):
                    tasks.create_task(request())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        self._known = known
        return reasons


async def _request(client: Client, target: str, etag: str, max_bytes: int) -> Response:
    """Return a response of status 200 or 404, or 304 if an entity tag is given.

    Raises:
        FeedError: There is none, or the service can respond later.
        InvalidResponse: It has another status, or is too large.
    """
    headers = ACCEPT_JSON | ({"If-None-Match": etag} if etag else {})
    response = await client.get(target, headers, seconds=EXCHANGE_SECONDS, max_bytes=max_bytes)
    status = response.status
    if status in {200, 404} or (status == 304 and etag):
        return response
    reason = f"response to {target} has status {status}: {safe_repr(str(response.body, 'utf-8', 'replace'))}"
    raise FeedError(reason) if status in UNAVAILABLE else InvalidResponse(reason)


def _has_events(stream: Stream) -> bool:
    """Whether a response is a stream of events. Raises `FeedError` if the service can respond later."""
    if stream.status in UNAVAILABLE:
        raise FeedError(f"response to {STREAM} has status {stream.status}")
    media_type = stream.headers.get("content-type", "").partition(";")[0]
    return stream.status == 200 and media_type.strip().lower() == EVENTS


def _book(response: Response, pair: Pair) -> OrderBook:
    """Return the book of a response. Raises `InvalidResponse` if it is not a valid book of the pair."""
    if response.status == 404:
        raise InvalidResponse("not found, although the list contains the pair")
    try:
        book = wire.order_book_from_json(response.body, ignore_unknown=True)
    except MarketIndexError as error:
        raise InvalidResponse(str(error)) from None
    if book.pair != pair:
        raise InvalidResponse(f"must be the book of the requested pair, got that of {book.pair}")
    return book


def _record(pair: Pair | None) -> str:
    return f"the order book of {'an unknown pair' if pair is None else pair}"


def _book_target(pair: Pair) -> str:
    return f"/trading-view/order-book?{urlencode({'base': pair.base, 'quote': pair.quote})}"


def _freshness(response: Response) -> Freshness:
    """Return what the headers say; nothing is known if one of them is invalid."""
    published_at = response.headers.get(PUBLISHED_AT)
    with suppress(InvalidFreshness):
        return Freshness(response.headers.get(AS_OF), published_at and parse_time(published_at))
    return UNKNOWN
