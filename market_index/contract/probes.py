"""Checks a service: which requests are sent, and what their responses must be.

Theory of operation
    The service may change at any moment. So whatever two responses say together (two spots; a listed pair and a missing
    book; HEAD and GET) counts only if both requests, sent again in turn and after pauses, have the same responses.

    What finds most comes first, because a slow service may use up the time: the list, a few books of different kinds,
    all other requests, the other books.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import chain, pairwise
from typing import Final, TypeAlias, final

from attrs import evolve

from market_index.contract.bodies import Book, Examination, Pair, Price, content_of
from market_index.contract.messages import LimitReached, NoResponse, Request, Response, Send
from market_index.contract.report import MAX_FAULTS, Report, Rule
from market_index.errors import safe_repr

PAIR_LIST: Final = "/trading-view/pair-list"
ORDER_BOOK: Final = "/trading-view/order-book"

_LIST: Final = Request(PAIR_LIST)

FIRST_BOOKS: Final = 12
"""How many books are requested before all other requests."""

MAX_BOOKS: Final = 1_000
"""The maximum number of pairs whose books are requested. Of more pairs, they are distributed evenly over the list."""

MAX_UNDECIDED: Final = 5
"""After so many differences that a changing service leaves undecided, a rule is not checked any more."""

MIN_STEPS: Final = 8
"""How many steps from level to level, in all sides together, must not fall to look like running sums."""

# 16 or 17 digits, all of which a double rounds to: a binary float.
_is_float: Final = re.compile(r"0?\.?0*(?=[0-9.]{16,18}$)[0-9.]*(?:0{6}[1-9]{1,2}|9{6}[0-9]?)").fullmatch
_TURNS: Final = "abba baab abba"
"""How two requests are sent again, with pauses: no rhythm of changes looks like a difference between them."""

_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}
_UNAVAILABLE: Final = frozenset({0, 502, 503, 504})
_UNREADABLE: Final = _UNAVAILABLE | {301, 302, 307, 308, 401, 403, 404}

_is_tag: Final = re.compile(r'(?:W/)?"[!#-~\x80-\xff]*"').fullmatch

_STRANGE: Final = "f00d" * 14 + ":"
"""An asset that does not exist."""

_NO_ASSETS: Final = ("UNKNOWN", ":", "ADA:", "zz" * 28 + ":", "00" * 27 + ":", f"{_STRANGE}0", _STRANGE + "00" * 33)
_OTHER_SPELLINGS: Final = ("", "ada", "lovelace", ".", "%20ADA", "ADA%20", "ADA%0A", "%00", "%ff", "%EF%BC%A1DA")

View: TypeAlias = Callable[[Response], object]


def check(send: Send, *, max_requests: int = 2_000, pause: Callable[[], object] = lambda: None) -> Report:
    """Check a service against all rules. The requests only read.

    Args:
        send: Sends a request, and returns the response.
        max_requests: The maximum number of requests.
        pause: Waits a moment, such as half a second. It is called before a difference is asked again.

    Raises:
        NoResponse: The pair list cannot be read, the service has stopped to respond, or a limit ended the check before
            anything was checked.
    """
    probes = _Probes(send, max_requests, pause)
    stopped = None
    try:
        probes.check()
    except LimitReached as limit:
        stopped = str(limit)
        if not any(one.checked for one in probes.results.values()):
            raise NoResponse(f"nothing was checked: {stopped}") from None
    return Report(tuple(probes.results.values()), probes.requests, stopped)


@final
class _Probes(Examination):
    def __init__(self, send: Send, max_requests: int, pause: Callable[[], object]) -> None:
        super().__init__()
        self._send, self._max_requests, self._pause = send, max_requests, pause
        self.requests = 0
        self._tagged: dict[tuple[str, str], int] = {}

    def check(self) -> None:
        response = self._get(_LIST)
        if response.status in _UNREADABLE:
            raise NoResponse(f"the pair list cannot be read: {response}")
        if not self.require(Rule.LIST_STATUS, response.status == 200, "status 200", response):
            return
        listed = self.pair_list(response)
        pairs = _sample([*listed])
        books = [*self._books(listed, pairs[:FIRST_BOOKS])]
        for pair in _related(pairs[:4]):
            if pair not in listed:
                self._check_absent(pair)
        self._check_variants(_LIST, f"{PAIR_LIST}?limit=1&depth=1&offset=1")
        self._check_other_routes(book_of(pairs[0] if pairs else Pair("ADA", "ADA")))
        for pair in pairs[:4]:
            for query, name in (("", "base"), (f"?base={pair.base}", "quote"), (f"?quote={pair.quote}", "base")):
                response = self._error(Rule.MALFORMED, Request(ORDER_BOOK + query), 400, name)
                self.require(Rule.REQUIRED, response.status != 200, "no book", response)
        if books:
            # One with hex letters and levels, which has other spellings and can be cut.
            self._check_book(
                max(books, key=lambda one: (":" in f"{one.pair}", min(len(one.bids) + len(one.asks), 20))).pair
            )
        books += self._books(listed, pairs[FIRST_BOOKS:])
        self._give_hints(books)

    def _get(self, request: Request) -> Response:
        """Send a request, and again if the service is unavailable."""
        self.request = request
        response = self._get_once(request)
        if response.status in _UNAVAILABLE:
            response = self._get_once(request)
        if response.status == 0 and request is not _LIST:
            self._send(_LIST)  # raises if the service is gone, and not only this response
        if response.status == 200 and (tag := response.headers.get("etag")) and request.method == "GET":
            content = hash(str(content_of(response)))  # of a large service, the contents would fill the memory
            before = self._tagged.setdefault((request.target, tag), content)
            self.require(Rule.TAGS, content == before, f"other content has another ETag than {tag}", response)
        return response

    def _get_once(self, request: Request) -> Response:
        """Send a request. If there is no response, the status is 0."""
        if self.requests >= self._max_requests:
            raise LimitReached(f"the limit of {self._max_requests} requests was reached")
        self.requests += 1
        try:
            response = self._send(evolve(request, headers=_HEADERS | dict(request.headers)))
        except NoResponse as error:
            return Response(0, {}, str(error).encode())
        if response.status == 429:
            raise LimitReached("the service limits the rate of requests (status 429)")
        return response

    def _same(self, rule: Rule, first: Request, second: Request, view: View, view_of_first: View | None = None) -> None:
        """Require that two responses have the same view at one moment."""
        result, seen = self.results[rule], dict[str, object]()
        if result.failed >= MAX_FAULTS or result.undecided >= MAX_UNDECIDED:
            return
        for name in _TURNS:
            if name == " ":
                self._pause()
                continue
            value = (view_of_first or view)(self._get(first)) if name == "a" else view(self._get(second))
            if seen.setdefault(name, value) != value:
                result.undecided += 1
                return
            if len(seen) == 2 and seen["a"] == seen["b"]:
                result.checked += 1
                return
        self.request = second
        self.require(rule, None, f"{safe_repr(seen['a'])}, as {first} says", seen["b"])

    def _as_listed(self, rule: Rule, pair: Pair, holds: object) -> None:
        """Require that a book has the status and the spot of the list; if it seems not to hold, at one moment."""

        def listed(response: Response) -> object:
            spots = Examination().pair_list(response)
            return f"status 200, spot {spots[pair]}" if pair in spots else "status 404"

        def found(response: Response) -> object:
            book = Examination().book(pair, response) if response.status == 200 else None
            return f"status {response.status}" + (f", spot {book.spot}" if book else "")

        if holds:
            self.results[rule].checked += 1
        else:
            self._same(rule, _LIST, book_of(pair), found, listed)

    def _books(self, listed: dict[Pair, Price], pairs: Iterable[Pair]) -> Iterator[Book]:
        """Request the books of listed pairs."""
        for pair in pairs:
            response = self._get(book_of(pair))
            self._as_listed(Rule.BOOK_STATUS, pair, response.status == 200)
            if response.status == 200 and (book := self.book(pair, response)):
                self._as_listed(Rule.SPOT, pair, book.spot == listed[pair])
                yield book

    def _check_absent(self, pair: Pair) -> None:
        """Check the response for a pair that is not listed."""
        request = book_of(pair)
        response = self._get(request)
        is_one = pair.base == pair.quote and response.status != 200
        self._as_listed(Rule.TWO_ASSETS if is_one else Rule.NOT_FOUND, pair, response.status == 404)
        if response.status == 404:
            message = self.message(Rule.ERROR_BODY, response)
            parts = [part for part in f"{pair.base}:{pair.quote}".lower().split(":") if part != "ada"]
            self.require(Rule.ERROR_NAMES, all(part in message.lower() for part in parts), "both assets", message)
            text = f"Pair {pair.base}/{pair.quote} not found"
            self.require(Rule.NOT_FOUND_TEXT, message.startswith(text), text, message)

    def _check_variants(self, plain: Request, with_unknown: str) -> None:
        """Check requests that must have the same content: with unknown parameters, by HEAD, with an ETag."""
        self._same(Rule.UNKNOWN, plain, Request(with_unknown), content_of)
        head = Request(plain.target, "HEAD")
        names = sorted({"content-type", "content-length", "etag"} & self._get(head).headers.keys())

        def view(response: Response) -> object:
            headers = {"content-length": str(len(response.body)), **response.headers}
            return response.status, [headers.get(name) for name in names]

        self._same(Rule.HEAD, plain, head, view)
        current = self._get(plain)
        if tag := current.headers.get("etag"):
            self.require(Rule.TAGS, _is_tag(tag), 'an ETag as "…" or W/"…"', tag)
            for condition in (tag, f'"none", {tag}', '"none"', f'{tag[:-1]}x"'):
                response = self._get(Request(plain.target, headers={"If-None-Match": condition}))
                may_match = tag in condition and response.headers.get("etag", tag) == tag
                self.require(Rule.TAGS, may_match or response.status != 304, f"no 304, or for {tag}", response)
                if may_match or (tag in condition and content_of(response) == content_of(current)):
                    self.require(Rule.REVALIDATION, response.status == 304, "status 304", response)

    def _check_book(self, pair: Pair) -> None:
        """Check other spellings of the request for a book."""
        base, quote, plain = pair.base, pair.quote, book_of(pair)
        self._check_variants(plain, f"{plain.target}&limit=1&depth=1&levels=1&BASE=x")
        encoded = plain.target.replace(":", "%3A").replace("=A", "=%41").replace("=0", "=%30")
        for target in (f"{ORDER_BOOK}?quote={quote}&base={base}", encoded):
            self._same(Rule.PARAMETERS, plain, Request(target), content_of)
        upper = Pair(base.upper(), quote.upper())
        self._same(Rule.LETTER_CASE, plain, book_of(upper), _levels)
        if (response := self._get(book_of(upper))).status == 200:
            self.book(upper, response)
        for name in ("base", "quote"):
            self._error(Rule.MALFORMED, Request(f"{plain.target}&{name}={base}"), 400, name)
        token = base if ":" in base else quote
        for text in (*_OTHER_SPELLINGS, token.replace(":", "."), token.replace(":", ""), f"0x{token}", *_NO_ASSETS):
            for name, asked in (("base", Pair(text, quote)), ("quote", Pair(base, text))):
                response = self._error(Rule.MALFORMED, book_of(asked), 400, name, text)
                if text in _NO_ASSETS:
                    self.require(Rule.NOT_FOUND, response.status != 200, "no book", response)

    def _check_other_routes(self, book: Request) -> None:
        for path in ("/trading-view", "/trading-view/nothing", f"{PAIR_LIST}/", book.target.replace("?", "/?")):
            self._error(Rule.OTHER_PATHS, Request(path), 404)
        for path in (PAIR_LIST, ORDER_BOOK):
            # A method that only reads, and that no such service has: it is of WebDAV (RFC 4918, 9.1).
            allowed = self._error(Rule.OTHER_METHODS, Request(path, "PROPFIND"), 405).headers.get("allow", "")
            methods = {one.strip() for one in allowed.split(",")}
            self.require(
                Rule.OTHER_METHODS, {"GET"} <= methods <= {"GET", "HEAD", "OPTIONS"}, "Allow: GET, HEAD", allowed
            )
        for query in ("?x=" + "x" * 8192, "?" + "&".join(["x=1"] * 33)):
            self._error(Rule.EXCESSIVE, Request(PAIR_LIST + query), 400)

    def _error(self, rule: Rule, request: Request, status: int, *named: str) -> Response:
        """Check the response to a request that is an error, whose message has these texts."""
        response = self._get(request)
        self.require(rule, response.status == status, f"status {status}", response)
        if response.status >= 400:
            is_not_found = response.status == 404 and request.target.startswith(f"{ORDER_BOOK}?")
            message = self.message(Rule.ERROR_BODY if is_not_found else rule, response)
            if named and response.status == 400:
                # Decision 16: the value may be cut to 80 characters.
                shows = all(text[:64] in message for text in named if text.isalnum())
                self.require(Rule.ERROR_SHOWS, shows, " and ".join(named), message)
        return response

    def _give_hints(self, books: list[Book]) -> None:
        """Check what only looks like a mistake, in all books together."""
        self.request = Request(ORDER_BOOK)
        sides = [[one for one in side if type(one[0]) is Decimal] for book in books for side in (book.bids, book.asks)]
        amounts = [pairwise(amount for _, amount in side if type(amount) is int) for side in sides]
        steps = [two - one for one, two in chain(*amounts)]
        if len(steps) >= MIN_STEPS:
            self.require(Rule.SUMS, min(steps) < 0, "amounts that fall somewhere", max(sides, key=len))
        floats = [price for side in sides for price, _ in side if _is_float(str(price))]
        self.require(Rule.FLOATS, not floats, "no price as 0.30000000000000004", floats)
        both = [(bids, asks) for bids, asks in zip(sides[::2], sides[1::2], strict=True) if bids and asks]
        crossed = [bids[-1] > asks[-1] or bids == asks[::-1] for bids, asks in both]
        if len(both) > 1 or (both and len(books) > 3):
            self.require(Rule.SIDES, not all(crossed), "bids below asks", "all bids above all asks, in each book")
        seen: dict[str, Pair] = {}
        for book in books:
            other = seen.setdefault(f"{book.bids} {book.asks}", book.pair)
            is_other = other is book.pair or len(book.bids) + len(book.asks) < 2
            self.require(Rule.SAME_BOOKS, is_other, f"other levels than {other}", book.pair)


def _sample(pairs: list[Pair]) -> list[Pair]:
    count = min(len(pairs), MAX_BOOKS)
    return [pairs[number * len(pairs) // count] for number in range(count)]


def book_of(pair: Pair) -> Request:
    """Return the request for the book of a pair."""
    return Request(f"{ORDER_BOOK}?base={pair.base}&quote={pair.quote}")


def _related(pairs: list[Pair]) -> list[Pair]:
    """Return pairs that may not be listed: inverse, of the same assets, with an unknown asset, of one asset."""
    texts = [("ADA", "ADA"), ("ADA", _STRANGE), ("ADA", _STRANGE.upper()), (_STRANGE + "4e4f" * 16, "ADA")]
    texts += [(one.quote, one.base) for one in pairs] + [(one.base, two.quote) for one in pairs for two in pairs]
    texts += [text for one in pairs[:2] for text in ((one.base, _STRANGE), (_STRANGE, one.quote), (one.base, one.base))]
    return [Pair(*text) for text in dict.fromkeys(texts)]


def _levels(response: Response) -> object:
    status, value = content_of(response)
    return (value.get("bids"), value.get("asks")) if status == 200 and type(value) is dict else status
