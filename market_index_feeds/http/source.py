"""The source of a feed that follows a running service: its pair list, and the order book of each pair.

Theory of operation
    The service is polled in rounds, about once per second. A round requests the pair list and every book, with the
    entity tags of the live ones.

    Between two rounds of a small service, a request for each book, and one for the list, wait for a change (decision
    28). A book that arrives is live immediately, with the freshness of the earliest live book. While a request waits
    for each book, a round requests only the list: a response that is unchanged, freshness included, shows that the
    service is alive and that nothing was published.

    Requests wait only while all books are valid and have entity tags. If a service does not let them wait, or fails
    such a request, it is only polled for some time.

    An overloaded service (429, 503) can ask for a pause with `Retry-After`. It ends the round, and delays the next one.
    The first round, for which a caller waits, continues after the pause. It fails if no book was received before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator
from contextlib import closing
from itertools import takewhile
from math import inf
from threading import Event
from time import monotonic
from typing import Final
from urllib.parse import urlencode

from market_index import Freshness, InvalidOrderBook, MarketIndexError, OrderBook, Pair, PairNotFound, wire
from market_index_feeds.errors import FeedError, Unavailable
from market_index_feeds.http.client import (
    SLICE_SECONDS,
    BaseUrl,
    NotFound,
    Outcome,
    Overloaded,
    ServiceClient,
    ServiceRequest,
    ServiceResponse,
    TooLarge,
)
from market_index_feeds.http.freshness import oldest
from market_index_feeds.http.limits import PollingLimits
from market_index_feeds.http.waits import Content, Waits
from market_index_feeds.medium import Progress, Rejected, Source, Update
from market_index_feeds.opened import shown_name

PAIR_LIST: Final = "/trading-view/pair-list"
ORDER_BOOK: Final = "/trading-view/order-book"


class HttpSource(Source):
    """A service with the two endpoints below a base URL, such as `http://127.0.0.1:8000`.

    Its changes are live immediately, or within about one second if it has many pairs or does not let requests wait. If
    requests of some books fail, these pairs keep their last valid books, and all
    other books are published. In the first round, a failed request is an error of the whole source.
    """

    record = "responses"

    def __init__(self, name: str, url: BaseUrl, limits: PollingLimits) -> None:
        super().__init__(name)
        self._url = url
        self._limits = limits
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
        self._freshness = Freshness()
        # Whether the last round had no problem.
        self._was_whole = False
        # The monotonic time from which on requests may wait.
        self._waits_from = -inf
        # The monotonic time before which no further request is sent.
        self._resumes_at = -inf

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Yield the whole content after each round that found a change, and after each change in between."""
        with closing(ServiceClient(self._url, self._limits, stop)) as client, closing(Waits(client)) as waits:
            while not stop.is_set():
                yield from self._round(client, waits, stop, progress)
                progress = None
                yield from self._changes(waits, stop)

    def read_order_book(self, pair: Pair) -> OrderBook | None:
        """Return the book of one pair without requesting the others."""
        with closing(ServiceClient(self._url, self._limits, Event())) as client:
            try:
                return _book(client.get(self._book_request(pair)), pair)
            except NotFound:
                raise PairNotFound(pair) from None
            except MarketIndexError as error:
                raise Unavailable(str(error)) from None

    def _round(
        self, client: ServiceClient, waits: Waits, stop: Event, progress: Progress | None
    ) -> Generator[Update, None, None]:
        """Request the pair list once, and all books unless requests wait for them and nothing was published."""
        is_first = None not in self._etags
        if is_first:
            # The caller asks again.
            self._resumes_at = -inf
        elif self._resumes_at > monotonic():
            # What these requests receive may be out of date after the pause.
            waits.close()
            self._pause(stop)
            if stop.is_set():
                return
        listed = self._request_list(client, progress)
        if listed.body is None and listed.freshness == self._freshness and waits.include(self._pairs):
            yield Update()
            return
        pairs = self._listed(listed)
        until = monotonic() + self._limits.round_seconds
        order = deque(pairs)
        order.rotate(-self._first)
        read = _Round(listed.freshness)
        read.etags[None] = listed.etag
        requested = self._first_books(client, order, stop, progress) if is_first else self._books(client, order, until)
        with closing(requested) as outcomes:
            for pair, outcome in outcomes:
                read.add(pair, outcome)
                if stop.is_set():
                    return
                if is_first and read.problem is not None:
                    raise Unavailable(read.problem)
        waits.outdate()
        self._first = (self._first + read.requested) % len(pairs) if read.requested < len(pairs) else 0
        if read.requested < len(pairs) and read.problem is None:
            seconds = self._limits.round_seconds
            read.problem = f"only {read.requested} of {len(pairs)} pairs were requested in {seconds:g} seconds"
        yield from self._update(read, pairs)

    def _books(
        self, client: ServiceClient, pairs: Collection[Pair], until: float = inf, progress: Progress | None = None
    ) -> Generator[tuple[Pair, Outcome], None, None]:
        """Request books until the timeout, or until the service asks for a pause."""
        requests = map(self._book_request, takewhile(lambda _: self._resumes_at <= monotonic() < until, pairs))
        with closing(client.get_all(requests, progress)) as outcomes:
            for pair, outcome in zip(pairs, outcomes, strict=False):  # the outcomes may end early
                self._note_pause(outcome)
                yield pair, outcome

    def _first_books(
        self, client: ServiceClient, pairs: Collection[Pair], stop: Event, progress: Progress | None
    ) -> Generator[tuple[Pair, Outcome], None, None]:
        """Request books, and after each pause of the service those that it has not sent."""
        while pairs:
            received = set[Pair]()
            delayed: Unavailable | None = None
            for pair, outcome in self._books(client, pairs, progress=progress):
                if isinstance(outcome, Overloaded) and outcome.retry_seconds:
                    delayed = outcome
                else:
                    received.add(pair)
                    yield pair, outcome
            if delayed is not None and not received:
                raise delayed
            pairs = [pair for pair in pairs if pair not in received]
            self._pause(stop, progress)

    def _pause(self, stop: Event, progress: Progress | None = None) -> None:
        """Wait for the end of the pause that the service has asked for. `progress` is called repeatedly."""
        until, self._resumes_at = self._resumes_at, -inf
        while progress is not None and until - monotonic() > SLICE_SECONDS and not stop.is_set():
            progress(0, 0)
            stop.wait(SLICE_SECONDS)
        stop.wait(max(until - monotonic(), 0))

    def _changes(self, waits: Waits, stop: Event) -> Generator[Update, None, None]:
        """Let requests wait for changes, and yield these, until the next round is due."""
        until = monotonic() + self._limits.poll_seconds
        is_round_due = False
        while not is_round_due and not stop.is_set() and (left := until - monotonic()) > 0:
            if not self._can_wait():
                waits.close()
                stop.wait(left)
                return
            seconds = self._limits.wait_seconds
            requests: dict[Content, ServiceRequest] = {pair: self._book_request(pair, seconds) for pair in self._pairs}
            waits.replace(requests | {None: self._list_request(seconds)})
            outcomes = waits.outcomes(left, stop)
            read = _Round(self._freshness)
            for content, outcome in outcomes.items():
                is_round_due |= self._add_change(read, content, outcome)
            if read.etags or read.requested:
                yield from self._update(read, self._pairs)
            if outcomes:
                stop.wait(self._limits.change_seconds)

    def _can_wait(self) -> bool:
        """Whether requests for all contents may wait: each has an entity tag, so the service reports only changes."""
        return (
            self._was_whole
            and not (self._rejected or self._missing)
            and len(self._pairs) <= self._limits.waiting_pairs
            and all(self._etags.get(content) for content in (None, *self._pairs))
            and monotonic() >= self._waits_from
        )

    def _add_change(self, read: _Round, content: Content, outcome: Outcome) -> bool:
        """Add the outcome of a request that may have waited. Return whether a round is due."""
        if isinstance(outcome, NotFound) and content is not None:
            return True  # the pair was probably retracted
        if isinstance(outcome, Unavailable) or not (outcome.has_waited or outcome.body):
            self._note_pause(outcome)
            self._waits_from = monotonic() + self._limits.without_waits_seconds
            return isinstance(outcome, Unavailable)
        if content is not None:
            read.add(content, outcome)
            return False
        if self._listed(outcome) != self._pairs:
            return True
        read.etags[None] = outcome.etag  # only prices in the list have changed
        return False

    def _note_pause(self, outcome: Outcome) -> None:
        """Note how long the service asks for a pause."""
        if isinstance(outcome, Overloaded):
            seconds = min(outcome.retry_seconds, self._limits.retry_seconds)
            self._resumes_at = max(self._resumes_at, monotonic() + seconds)

    def _update(self, read: _Round, pairs: tuple[Pair, ...]) -> Generator[Update, None, None]:
        """Yield an update with the outcomes of requests.

        Entity tags are stored only after the update was delivered: otherwise an undelivered book would be skipped.
        """
        is_first = None not in self._etags
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
        self._was_whole = read.problem is None
        self._etags.update(read.etags)

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

    def _book_request(self, pair: Pair, wait_seconds: int = 0) -> ServiceRequest:
        target = f"{self._url.prefix}{ORDER_BOOK}?{urlencode({'base': pair.base, 'quote': pair.quote})}"
        return ServiceRequest(target, self._etags.get(pair, ""), self._limits.book_bytes, wait_seconds)

    def _list_request(self, wait_seconds: int = 0) -> ServiceRequest:
        target = self._url.prefix + PAIR_LIST
        return ServiceRequest(target, self._etags.get(None, ""), self._limits.list_bytes, wait_seconds)

    def _request_list(self, client: ServiceClient, progress: Progress | None) -> ServiceResponse:
        try:
            return client.get(self._list_request(), progress)
        except NotFound as error:
            raise Unavailable(f"there is no pair list below this URL: {error}") from None
        except Overloaded as error:
            self._note_pause(error)
            raise

    def _listed(self, response: ServiceResponse) -> tuple[Pair, ...]:
        """Return the pairs of a response, which are the last ones if it is unchanged."""
        if response.body is None:
            return self._pairs
        try:
            pairs = tuple(info.pair for info in wire.pair_list_from_json(response.body, ignore_unknown=True))
        except MarketIndexError as error:
            raise Unavailable(f"invalid pair list: {error}") from None
        if len(pairs) > self._limits.pairs:
            raise Unavailable(f"pair list must have at most {self._limits.pairs} pairs, got {len(pairs)}")
        return pairs


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

    def add(self, pair: Pair, outcome: Outcome) -> None:
        """Add the outcome of the request for one pair."""
        self.requested += 1
        if isinstance(outcome, NotFound):
            self.missing.add(pair)
        elif isinstance(outcome, TooLarge):
            self._reject(pair, outcome.reason)
        elif isinstance(outcome, Unavailable):
            self.problem = self.problem or outcome.reason
        else:
            self.received += 1
            self.freshness.add(outcome.freshness)
            try:
                if outcome.body is not None:
                    self.books.append(_book(outcome, pair))
                    self.etags[pair] = outcome.etag
                self.valid.add(pair)
            except MarketIndexError as error:
                self._reject(pair, str(error))

    def reject(self, pairs: set[Pair]) -> None:
        """Reject pairs whose book is not found for the second time.

        The first time is no fault: the service may drop a pair between its list and its book. The next list lacks it.
        """
        for pair in pairs:
            self._reject(pair, "not found, although the pair list contains the pair")

    def _reject(self, pair: Pair, reason: str) -> None:
        self.rejected[pair] = Rejected(f"the order book of {pair}", reason, pair)


def open_http_source(source: str, limits: PollingLimits | None = None) -> HttpSource:
    """Open a running service by its base URL. The first request is sent when the feed is started.

    Raises `FeedError` if it is not a base URL.
    """
    name = shown_name(source)
    try:
        return HttpSource(name, BaseUrl.parse(source), limits or PollingLimits())
    except ValueError as error:
        raise FeedError(f"{name} cannot be opened: {error}") from None


def _book(response: ServiceResponse, pair: Pair) -> OrderBook:
    """Return the book of a response. Raises a `MarketIndexError` if it is not a valid book of the pair."""
    book = wire.order_book_from_json(response.body or b"", ignore_unknown=True)
    if book.pair != pair:
        raise InvalidOrderBook(f"must be the book of the requested pair, got that of {book.pair}")
    return book
