"""The source of a feed that polls a running service: its pair list, and the order book of each pair.

The service is polled in rounds. A round requests the pair list and every book, with the entity tags of the live ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import closing
from itertools import takewhile
from math import inf
from threading import Event
from time import monotonic
from typing import Final
from urllib.parse import urlencode

from market_index import Freshness, InvalidOrderBook, MarketIndexError, OrderBook, Pair, PairNotFound, wire
from market_index.freshness import UNKNOWN
from market_index_feeds.book_size import require_size
from market_index_feeds.errors import FeedError, Unavailable
from market_index_feeds.http.channel import TooLarge
from market_index_feeds.http.connections import BaseUrl, Connections, NotFound, Response
from market_index_feeds.http.freshness import oldest
from market_index_feeds.medium import Progress, Rejected, Source, Update
from market_index_feeds.opened import shown_name

POLL_SECONDS: Final = 1.0
"""Interval between the end of one round and the start of the next."""

ROUND_SECONDS: Final = 60.0
"""Timeout of a round. If some pairs were not requested until then, the next round starts with them."""

MAX_PAIRS: Final = 20_000
"""How many pairs a service may list."""

MAX_LIST_BYTES: Final = 8 * 1024 * 1024
"""The maximum size of a pair list, including the head of the response."""

MAX_BOOK_RESPONSE_BYTES: Final = wire.MAX_ORDER_BOOK_BYTES + 256 * 1024
"""The maximum size of the response with an order book: that of the book, and of the head and the chunks around it."""

PAIR_LIST: Final = "/trading-view/pair-list"
ORDER_BOOK: Final = "/trading-view/order-book"


class HttpSource(Source):
    """A service with the two endpoints below a base URL, such as `http://127.0.0.1:8000`.

    It is polled about once per second. If requests of some books fail, these pairs keep their last valid books, and all
    other books are published. In the first round, a failed request is an error of the whole source.
    """

    record = "responses"

    def __init__(self, name: str, url: BaseUrl) -> None:
        super().__init__(name)
        self._url = url
        self._connections: Connections | None = None
        self._pairs: tuple[Pair, ...] = ()
        # The books rejected in the last round.
        self._rejected: dict[Pair, Rejected] = {}
        # The listed pairs whose book was not found when it was last requested.
        self._missing: set[Pair] = set()
        # The position in `_pairs` at which the next round starts.
        self._first = 0
        # The entity tags of the live content, by pair; None for the pair list.
        self._etags: dict[Pair | None, str] = {}
        # The freshness of all live books.
        self._freshness = UNKNOWN

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Yield the whole content after each round that found a change."""
        with closing(Connections(self._url)) as self._connections:
            while not stop.is_set():
                yield from self._round(self._connections, stop, progress)
                progress = None
                stop.wait(POLL_SECONDS)

    def read_order_book(self, pair: Pair) -> OrderBook | None:
        """Return the book of one pair without requesting the others."""
        with closing(Connections(self._url)) as self._connections:
            try:
                return _book(_request(self._connections, pair, ""), pair)
            except NotFound:
                raise PairNotFound(pair) from None
            except MarketIndexError as error:
                raise Unavailable(str(error)) from None

    def interrupt(self) -> None:
        """End all waits for responses."""
        connections = self._connections
        if connections is not None:
            connections.interrupt()

    def _round(self, connections: Connections, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Request the pair list and all books once.

        Entity tags are stored only after the update was delivered: otherwise an undelivered book would be skipped.
        """
        pairs, listed = self._pair_list(connections, progress)
        is_first = None not in self._etags
        until = inf if is_first else monotonic() + ROUND_SECONDS
        order = deque(pairs)
        order.rotate(-self._first)
        read = _Round(listed.freshness)
        for pair, response in connections.map(
            lambda pair: (pair, _try_request(connections, pair, self._etags.get(pair, ""))),
            takewhile(lambda _: monotonic() < until, order),
            progress,
        ):
            read.add(pair, response)
            if stop.is_set():
                return
            if is_first and read.problem is not None:
                raise Unavailable(read.problem)
        self._first = (self._first + read.requested) % len(pairs) if read.requested < len(pairs) else 0
        read.require_all(len(pairs))
        rejected = self._rejected_after(read, pairs)
        freshness = self._freshness_after(read, len(pairs), is_first=is_first)
        if not is_first and read.is_empty and pairs == self._pairs and rejected == self._rejected:
            yield Update(freshness=freshness)
        else:
            yield Update(
                books=read.books,
                removed=set(self._pairs).difference(pairs),
                replaces_all=True,
                unchanged=pairs,
                is_complete=True,
                invalid=rejected,
                rejected=rejected.values(),
                problem=read.problem,
                freshness=freshness,
            )
        for pair in set(self._pairs).difference(pairs):
            self._etags.pop(pair, None)
        self._pairs, self._rejected, self._freshness = pairs, rejected, freshness
        self._missing = self._missing.difference(read.valid).intersection(pairs) | read.missing
        self._etags.update({None: listed.etag, **read.etags})

    def _rejected_after(self, read: _Round, pairs: tuple[Pair, ...]) -> dict[Pair, Rejected]:
        """Return the rejected books after a round, in the order of the pair list."""
        read.reject(self._missing & read.missing)
        rejected = {pair: one for pair, one in self._rejected.items() if pair not in read.valid} | read.rejected
        return {pair: rejected[pair] for pair in pairs if pair in rejected}

    def _freshness_after(self, read: _Round, pairs: int, *, is_first: bool) -> Freshness:
        """Return the freshness of all live books after a round, including books of earlier rounds."""
        if not is_first and read.received < pairs:
            read.freshness.add(self._freshness)
        return oldest(read.freshness, self._freshness)

    def _pair_list(self, connections: Connections, progress: Progress | None) -> tuple[tuple[Pair, ...], Response]:
        etag = self._etags.get(None, "")
        try:
            (response,) = connections.map(
                lambda target: connections.get(target, etag, MAX_LIST_BYTES), [PAIR_LIST], progress
            )
        except NotFound as error:
            raise Unavailable(f"there is no pair list below this URL: {error}") from None
        if response.body is None:
            return self._pairs, response
        try:
            pairs = tuple(info.pair for info in wire.pair_list_from_json(response.body))
        except MarketIndexError as error:
            raise Unavailable(f"invalid pair list: {error}") from None
        if len(pairs) > MAX_PAIRS:
            raise Unavailable(f"pair list must have at most {MAX_PAIRS} pairs, got {len(pairs)}")
        return pairs, response


class _Round:
    """The results of one round so far."""

    def __init__(self, listed: Freshness) -> None:
        self.freshness: set[Freshness] = {listed}
        self.books: list[OrderBook] = []
        self.rejected: dict[Pair, Rejected] = {}
        self.missing: set[Pair] = set()
        """The listed pairs whose book is not found."""
        self.valid: set[Pair] = set()
        """The pairs whose book is valid, or unchanged (304)."""
        self.etags: dict[Pair | None, str] = {}
        self.problem: str | None = None
        self.requested = self.received = 0

    @property
    def is_empty(self) -> bool:
        """Whether the round found no change and no problem."""
        return not self.books and not self.rejected and self.problem is None

    def add(self, pair: Pair, response: Response | Unavailable | None) -> None:
        """Add the response for one pair: an error if the request failed, None if the book was not found."""
        self.requested += 1
        if isinstance(response, TooLarge):
            self._reject(pair, response.reason)
        elif isinstance(response, Unavailable):
            self.problem = self.problem or response.reason
        elif response is None:
            self.missing.add(pair)
        else:
            self.received += 1
            self.freshness.add(response.freshness)
            try:
                if response.body is not None:
                    self.books.append(_book(response, pair))
                    self.etags[pair] = response.etag
                self.valid.add(pair)
            except MarketIndexError as error:
                self._reject(pair, str(error))

    def require_all(self, pairs: int) -> None:
        """Record a problem if fewer than `pairs` pairs were requested before the timeout of the round."""
        if self.requested < pairs:
            reason = f"only {self.requested} of {pairs} pairs were requested in {ROUND_SECONDS:g} seconds"
            self.problem = self.problem or reason

    def reject(self, pairs: set[Pair]) -> None:
        """Reject pairs whose book is not found for the second time.

        The first time is no fault: the service may drop a pair between its list and its book. The next list lacks it.
        """
        for pair in pairs:
            self._reject(pair, "not found, although the pair list contains the pair")

    def _reject(self, pair: Pair, reason: str) -> None:
        self.rejected[pair] = Rejected(f"the order book of {pair}", reason, pair)


def open_http_source(source: str) -> HttpSource:
    """Open a running service by its base URL. The first request is sent when the feed is started.

    Raises `FeedError` if it is not a base URL.
    """
    name = shown_name(source)
    try:
        return HttpSource(name, BaseUrl.parse(source))
    except ValueError as error:
        raise FeedError(f"{name} cannot be opened: {error}") from None


def _request(connections: Connections, pair: Pair, etag: str) -> Response:
    target = f"{ORDER_BOOK}?{urlencode({'base': pair.base, 'quote': pair.quote})}"
    return connections.get(target, etag, MAX_BOOK_RESPONSE_BYTES)


def _try_request(connections: Connections, pair: Pair, etag: str) -> Response | Unavailable | None:
    """Request the book of a pair. Return None if it is not found, and the error if the request fails."""
    try:
        return _request(connections, pair, etag)
    except NotFound:
        return None
    except Unavailable as error:
        return error


def _book(response: Response, pair: Pair) -> OrderBook:
    """Return the book of a response. Raises a `MarketIndexError` if it is not a valid book of the pair."""
    text = response.body or b""
    require_size(text)
    book = wire.order_book_from_json(text)
    if book.pair != pair:
        raise InvalidOrderBook(f"must be the book of the requested pair, got that of {book.pair}")
    return book
