"""A running service as a feed: its pair list, and the order book of each pair, asked for again and again.

Answers carry entity tags, so that what has not changed is not sent again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from socket import SHUT_RDWR
from threading import local
from time import monotonic
from typing import Final
from urllib.parse import urlencode, urlsplit

from attrs import frozen

from market_index import InvalidOrderBook, LiveIndex, MarketIndexError, OrderBook, Pair, PairInfo, PairNotFound, wire
from market_index.errors import safe_repr
from market_index_feeds.feed import Feed, FeedError, Progress
from market_index_feeds.opened import shown_name

POLL_SECONDS: Final = 1.0
"""How long to rest between one round of questions and the next."""

TIMEOUT_SECONDS: Final = 10.0
"""How long an answer is waited for."""

CONNECTIONS: Final = 8
"""How many questions are asked at the same time."""

ANSWER_SECONDS: Final = 60.0
"""How long a whole answer may take, however it drips."""

MAX_ANSWER_LENGTH: Final = 256 * 1024 * 1024
"""The most bytes of an answer."""

_PIECE: Final = 1024 * 1024


@frozen
class _Answer:
    """An answer to a question that was asked with the entity tag of the last answer: None where that holds still."""

    body: bytes | None
    etag: str


class _Unanswered(Exception):
    """Why the service did not answer as it should."""


class _NotFound(_Unanswered):
    """The service does not know what was asked for."""


class ServiceFeed(Feed):
    """A service that answers the two endpoints below a base URL, such as `http://127.0.0.1:8000`.

    It is asked for everything about once a second. A pair that it lists no longer is dropped. A service that does not
    answer leaves the last good index up, and an answer that holds no order book the last good book of its pair.
    """

    record = "answers"

    def __init__(self, source: str) -> None:
        """Take the URL apart; raise `ValueError` where it is none."""
        super().__init__(shown_name(source))
        url = urlsplit(source)
        if not url.hostname or url.username is not None or url.query or url.fragment:
            raise ValueError("the base URL of a service is like http://127.0.0.1:8000")
        self._kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
        self._host, self._port, self._prefix = url.hostname, url.port, url.path.rstrip("/")
        # Each thread has a connection of its own; all of them are in the set, to be closed at the end.
        self._own = local()
        self._connections: set[HTTPConnection] = set()
        self._asking: ThreadPoolExecutor | None = None
        self._listed: tuple[Pair, ...] = ()
        self._list_etag = ""
        self._etags: dict[Pair, str] = {}

    def read_order_book(self, pair: Pair) -> OrderBook:
        """Return the book of one pair, without asking for the others."""
        self._begin()
        try:
            with self:
                return _book(self._ask_for(pair), pair)
        except _NotFound:
            raise PairNotFound(pair) from None
        except (_Unanswered, MarketIndexError) as error:
            raise FeedError(f"{self.source} cannot be read: {error}") from None

    def close(self) -> None:
        """Stop asking, and do not wait for what was asked."""
        self._closing.set()
        self._hang_up()
        super().close()

    def _release(self) -> None:
        if self._asking is not None:
            self._asking.shutdown(cancel_futures=True)
            self._asking = None
        for connection in list(self._connections):
            connection.close()

    def _hang_up(self) -> None:
        """Let nobody wait for an answer any longer."""
        for connection in list(self._connections):
            socket = connection.sock
            if socket is not None:
                with suppress(OSError):
                    socket.shutdown(SHUT_RDWR)

    def _load(self, live: LiveIndex, progress: Progress | None) -> None:
        try:
            failed = self._round(live, progress, whole=True)
        except _Unanswered as error:
            failed = str(error)
        if failed:
            raise FeedError(f"{self.source} cannot be read: {failed}")

    def _follow(self, live: LiveIndex) -> None:
        while not self._closing.wait(POLL_SECONDS):
            try:
                failed = self._round(live, None, whole=False)
            except _Unanswered as error:
                failed = str(error)
            if not self._closing.is_set():
                stay = f"cannot be read ({failed}); what was read of its {len(self._listed)} pairs before stays"
                self._tell(stay if failed else None)

    def _round(self, live: LiveIndex, progress: Progress | None, *, whole: bool) -> str | None:
        """Ask for everything once, and publish in one swap what has changed; return what went wrong with a pair.

        Where the answers are wanted `whole`, one that failed has nothing published.

        What was answered is remembered by its tag only once it is live: else it would never be sent again.
        """
        listed, list_etag = self._pair_list()
        if self._asking is None:
            self._asking = ThreadPoolExecutor(CONNECTIONS, f"feed {self.source}")
        books: list[OrderBook] = []
        etags: dict[Pair, str] = {}
        failed: str | None = None
        for pair, answer in zip(listed, self._asking.map(self._ask_if_listed, listed), strict=True):
            if isinstance(answer, _Unanswered):
                failed = failed or str(answer)
            elif answer is not None and answer.body is not None:
                book = self._read(pair, answer)
                if book is not None:
                    books.append(book)
                    etags[pair] = answer.etag
            if progress is not None:
                progress(0, 0)
        if self._closing.is_set() or (whole and failed):
            return failed
        gone = set(self._listed) - set(listed)
        if books or gone:
            live.update(books, gone)
        self._etags.update(etags)
        for pair in gone:
            self._etags.pop(pair, None)
            self._unreadable.discard(pair)
        self._listed, self._list_etag = listed, list_etag
        return failed

    def _pair_list(self) -> tuple[tuple[Pair, ...], str]:
        try:
            answer = self._ask("/trading-view/pair-list", self._list_etag)
        except _NotFound as error:
            raise _Unanswered(f"there is no pair list below this URL: {error}") from None
        if answer.body is None:
            return self._listed, answer.etag
        try:
            return tuple(map(_pair, wire.pair_list_from_json(answer.body))), answer.etag
        except MarketIndexError as error:
            raise _Unanswered(f"its pair list: {error}") from None

    def _ask_if_listed(self, pair: Pair) -> _Answer | _Unanswered | None:
        """Ask for the book of a pair; None where it is gone since the list was made."""
        try:
            return self._ask_for(pair, self._etags.get(pair, ""))
        except _NotFound:
            return None
        except _Unanswered as error:
            return error

    def _ask_for(self, pair: Pair, etag: str = "") -> _Answer:
        return self._ask(f"/trading-view/order-book?{urlencode({'base': pair.base, 'quote': pair.quote})}", etag)

    def _read(self, pair: Pair, answer: _Answer) -> OrderBook | None:
        return self._taken(pair, f"the order book of {pair}", lambda: _book(answer, pair))

    def _ask(self, target: str, etag: str) -> _Answer:
        """Ask on the connection that this thread has; on a new one, where the service has closed that meanwhile."""
        connection: HTTPConnection | None = getattr(self._own, "connection", None)
        first = connection is None
        try:
            if connection is None:
                connection = self._kind(self._host, self._port, timeout=TIMEOUT_SECONDS)
                self._own.connection = connection
                self._connections.add(connection)
            return self._ask_on(connection, self._prefix + target, etag)
        except (OSError, HTTPException, ValueError) as error:
            if connection is not None:
                connection.close()
                self._connections.discard(connection)
            self._own.connection = None
            if first or self._closing.is_set():
                raise _Unanswered(getattr(error, "strerror", None) or str(error) or repr(error)) from None
            return self._ask(target, etag)

    def _ask_on(self, connection: HTTPConnection, target: str, etag: str) -> _Answer:
        if self._closing.is_set():
            raise _Unanswered("it is not asked any longer")
        connection.request("GET", target, headers={"If-None-Match": etag} if etag else {})
        response = connection.getresponse()
        patience = monotonic() + ANSWER_SECONDS
        pieces: list[bytes] = []
        length = 0
        while piece := response.read1(_PIECE):
            pieces.append(piece)
            length += len(piece)
            too_long = length > MAX_ANSWER_LENGTH
            if too_long or monotonic() > patience or self._closing.is_set():
                connection.close()
                limit = f"{MAX_ANSWER_LENGTH} bytes" if too_long else f"{ANSWER_SECONDS:g} seconds"
                raise _Unanswered(f"it answers {target} with more than {limit}")
        if response.length:
            connection.close()
            raise _Unanswered(f"its answer to {target} was cut off, {response.length} bytes before its end")
        body = b"".join(pieces)
        if response.status == 304 and etag:
            return _Answer(None, etag)
        if response.status == 200:
            return _Answer(body, response.getheader("ETag", ""))
        kind = _NotFound if response.status == 404 else _Unanswered
        raise kind(f"it answers {target} with {response.status}: {safe_repr(str(body, 'utf-8', 'replace'))}")


def open_service(source: str) -> ServiceFeed:
    """Open a running service by its base URL. It is asked when the feed is started.

    Raises `FeedError` for what is no such URL.
    """
    try:
        return ServiceFeed(source)
    except ValueError as error:
        raise FeedError(f"{shown_name(source)} cannot be opened: {error}") from None


def _pair(pair_info: PairInfo) -> Pair:
    return pair_info.pair


def _book(answer: _Answer, pair: Pair) -> OrderBook:
    book = wire.order_book_from_json(answer.body or b"")
    if book.pair != pair:
        raise InvalidOrderBook(f"it holds the book of another pair: {book.pair}")
    return book
