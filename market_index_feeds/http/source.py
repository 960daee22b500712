"""A running service as a source of a feed: its pair list, and the order book of each pair, polled with entity tags."""

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
from market_index_feeds.errors import FeedError, Unavailable
from market_index_feeds.http.connections import Answer, BaseUrl, Connections, NotFound
from market_index_feeds.http.freshness import oldest
from market_index_feeds.medium import Delta, Progress, Rejected, Snapshot, Source, Update
from market_index_feeds.opened import shown_name

POLL_SECONDS: Final = 1.0
"""How long to wait between the end of one round of questions and the start of the next."""

ROUND_SECONDS: Final = 60.0
"""After how long a round ends though some pairs were not asked for. The next round starts with these."""

MAX_PAIRS: Final = 20_000
"""How many pairs a service may list."""

MAX_LIST_BYTES: Final = 8 * 1024 * 1024
"""The size of the largest pair list, with the head of the answer."""

MAX_BOOK_BYTES: Final = 16 * 1024 * 1024
"""The size of the largest order book, with the head of the answer: about that of the longest line in a file."""

PAIR_LIST: Final = "/trading-view/pair-list"
ORDER_BOOK: Final = "/trading-view/order-book"


class HttpSource(Source):
    """A service that answers the two endpoints below a base URL, such as `http://127.0.0.1:8000`.

    It is asked for everything about once a second. If it answers all but some pairs, these keep their last good books,
    and the rest is published, except at the start.
    """

    record = "answers"

    def __init__(self, name: str, url: BaseUrl) -> None:
        super().__init__(name)
        self._url = url
        self._connections: Connections | None = None
        self._pairs: tuple[Pair, ...] = ()
        # Whether the last round rejected books. Their pairs may be answered with 304 in the next one.
        self._rejected: dict[Pair, Rejected] = {}
        # The listed pairs whose book was not found when it was last asked for.
        self._missing: set[Pair] = set()
        # The position in `_pairs` at which a round starts.
        self._first = 0
        # The entity tags of what is live, by pair; None for the pair list.
        self._etags: dict[Pair | None, str] = {}
        # That of all live books.
        self._freshness = UNKNOWN

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Yield a snapshot of each round of questions that found something new."""
        with closing(Connections(self._url)) as self._connections:
            while not stop.is_set():
                yield from self._round(self._connections, stop, progress)
                progress = None
                stop.wait(POLL_SECONDS)

    def read_order_book(self, pair: Pair) -> OrderBook | None:
        """Return the book of one pair without asking for the others."""
        with closing(Connections(self._url)) as self._connections:
            try:
                return _book(_ask_for(self._connections, pair, ""), pair)
            except NotFound:
                raise PairNotFound(pair) from None
            except MarketIndexError as error:
                raise Unavailable(str(error)) from None

    def interrupt(self) -> None:
        """Let no thread wait for an answer any longer."""
        connections = self._connections
        if connections is not None:
            connections.interrupt()

    def _round(self, connections: Connections, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Ask for everything once. An entity tag is stored once its book is delivered: else it would be missed."""
        pairs, listed = self._pair_list(connections, progress)
        is_first = None not in self._etags
        until = inf if is_first else monotonic() + ROUND_SECONDS
        order = deque(pairs)
        order.rotate(-self._first)
        read = _Round(listed.freshness)
        for pair, answer in connections.map(
            lambda pair: (pair, _ask_if_listed(connections, pair, self._etags.get(pair, ""))),
            takewhile(lambda _: monotonic() < until, order),
            progress,
        ):
            read.add(pair, answer)
            if stop.is_set():
                return
            if is_first and read.problem is not None:
                raise Unavailable(read.problem)
        if read.asked == len(pairs):
            self._first = 0
        else:
            self._first = (self._first + read.asked) % len(pairs)
            read.problem = read.problem or (
                f"only {read.asked} of {len(pairs)} pairs were answered in {ROUND_SECONDS:g} seconds"
            )
        rejected = self._rejected_after(read, pairs)
        freshness = self._freshness_after(read, len(pairs), is_first=is_first)
        if read.is_empty and pairs == self._pairs and rejected == self._rejected:
            yield Delta(freshness=freshness)
        else:
            yield Snapshot(
                books=read.books,
                rejected=rejected.values(),
                unchanged=pairs,
                problem=read.problem,
                freshness=freshness,
            )
        for pair in set(self._pairs).difference(pairs):
            self._etags.pop(pair, None)
        self._pairs, self._rejected, self._freshness = pairs, rejected, freshness
        self._missing = self._missing.difference(read.valid).intersection(pairs) | read.missing
        self._etags.update({None: listed.etag, **read.etags})

    def _rejected_after(self, read: _Round, pairs: tuple[Pair, ...]) -> dict[Pair, Rejected]:
        """Return what is rejected after a round, in the order of the pair list."""
        read.reject(self._missing & read.missing)
        rejected = {pair: one for pair, one in self._rejected.items() if pair not in read.valid} | read.rejected
        return {pair: rejected[pair] for pair in pairs if pair in rejected}

    def _freshness_after(self, read: _Round, pairs: int, *, is_first: bool) -> Freshness:
        """Return the freshness of all live books after a round. Those not answered in it are of an earlier one."""
        if not is_first and read.answered < pairs:
            read.freshness.add(self._freshness)
        return oldest(read.freshness, self._freshness)

    def _pair_list(self, connections: Connections, progress: Progress | None) -> tuple[tuple[Pair, ...], Answer]:
        etag = self._etags.get(None, "")
        try:
            (answer,) = connections.map(
                lambda target: connections.get(target, etag, MAX_LIST_BYTES), [PAIR_LIST], progress
            )
        except NotFound as error:
            raise Unavailable(f"there is no pair list below this URL: {error}") from None
        if answer.body is None:
            return self._pairs, answer
        try:
            pairs = tuple(info.pair for info in wire.pair_list_from_json(answer.body))
        except MarketIndexError as error:
            raise Unavailable(f"its pair list: {error}") from None
        if len(pairs) > MAX_PAIRS:
            raise Unavailable(f"its pair list has {len(pairs)} pairs, more than {MAX_PAIRS}")
        return pairs, answer


class _Round:
    """What one round of questions has found so far."""

    def __init__(self, listed: Freshness) -> None:
        self.freshness: set[Freshness] = {listed}
        self.books: list[OrderBook] = []
        self.rejected: dict[Pair, Rejected] = {}
        self.missing: set[Pair] = set()
        """The pairs whose book is not found, although they are listed."""
        self.valid: set[Pair] = set()
        """The pairs whose book is valid, or is the last valid one (304)."""
        self.etags: dict[Pair | None, str] = {}
        self.problem: str | None = None
        self.asked = self.answered = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to report."""
        return not self.books and not self.rejected and self.problem is None

    def add(self, pair: Pair, answer: Answer | Unavailable | None) -> None:
        """Add the answer to the question for one pair."""
        self.asked += 1
        if isinstance(answer, Unavailable):
            self.problem = self.problem or answer.reason
        elif answer is None:
            self.missing.add(pair)
        else:
            self.answered += 1
            self.freshness.add(answer.freshness)
            try:
                if answer.body is not None:
                    self.books.append(_book(answer, pair))
                    self.etags[pair] = answer.etag
                self.valid.add(pair)
            except MarketIndexError as error:
                self.rejected[pair] = Rejected(f"the order book of {pair}", str(error), pair, pair)

    def reject(self, pairs: set[Pair]) -> None:
        """Reject the answers for pairs that are missing for the second time.

        Once is no fault: the service may drop a pair after it has answered the list. Then the next list lacks it.
        """
        for pair in pairs:
            reason = "it is not found, although the pair list contains it"
            self.rejected[pair] = Rejected(f"the order book of {pair}", reason, pair, pair)


def open_http_source(source: str) -> HttpSource:
    """Open a running service by its base URL. It is asked when the feed is started.

    Raises `FeedError` for what is not such a URL.
    """
    name = shown_name(source)
    try:
        return HttpSource(name, BaseUrl.parse(source))
    except ValueError as error:
        raise FeedError(f"{name} cannot be opened: {error}") from None


def _ask_for(connections: Connections, pair: Pair, etag: str) -> Answer:
    return connections.get(f"{ORDER_BOOK}?{urlencode({'base': pair.base, 'quote': pair.quote})}", etag, MAX_BOOK_BYTES)


def _ask_if_listed(connections: Connections, pair: Pair, etag: str) -> Answer | Unavailable | None:
    """Ask for the book of a pair; None if it is not found, as when it was dropped after the list was answered."""
    try:
        return _ask_for(connections, pair, etag)
    except NotFound:
        return None
    except Unavailable as error:
        return error


def _book(answer: Answer, pair: Pair) -> OrderBook:
    """Return the book of an answer. Raises a `MarketIndexError` if it contains no valid one of the pair."""
    book = wire.order_book_from_json(answer.body or b"")
    if book.pair != pair:
        raise InvalidOrderBook(f"it holds the book of another pair: {book.pair}")
    return book
