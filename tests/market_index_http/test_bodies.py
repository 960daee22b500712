"""Encoded once, and never stale: bodies, ETags, gzip, and what clients ask of them, through a real uvicorn."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from market_index import ADA, AssetId, LiveIndex, MarketIndex, OrderBook, Pair, wire
from market_index.strategies import order_books, pairs
from market_index_http import app as app_module
from market_index_http import bodies as bodies_module
from market_index_http import create_app
from market_index_http.bodies import GZIP_LARGE, GZIP_LEAST, Bodies, Body
from tests.service import Answer, Client, Service, served
from tests.waiting import eventually

PAIR_LIST = "/trading-view/pair-list"


def numbered_pair(number: int) -> Pair:
    return Pair(AssetId(number.to_bytes(28, "big"), b"\xab\xcd"), ADA)


def book(number: int, levels: int = 30, spot: str | None = None) -> OrderBook:
    prices = [f"0.{price:06}" for price in range(1, 2 * levels + 1)]
    return OrderBook.from_levels(
        numbered_pair(number),
        bids=[(price, number + 1) for price in prices[:levels]],
        asks=[(price, number + 1) for price in prices[levels:]],
        spot=spot,
    )


def target(pair: Pair) -> str:
    return f"/trading-view/order-book?base={pair.base}&quote={pair.quote}"


SMALL, MIDDLE, LARGE = book(1, 1), book(2, 30), book(3, 1_500)


@pytest.fixture(scope="module")
def live() -> LiveIndex:
    return LiveIndex([SMALL, MIDDLE, LARGE])


@pytest.fixture(scope="module")
def service(live: LiveIndex) -> Iterator[Service]:
    with served(create_app(live)) as service:
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    client = Client(service.port)
    yield client
    client.close()


def asked(client: Client, target: str, method: str = "GET", **headers: str | None) -> Answer:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items() if value is not None)
    return client.ask(target, method, lines)


class TestGzip:
    """RFC 9110, 12.5.3."""

    @pytest.mark.parametrize(
        ("accepted", "compressed"),
        [
            (None, False),
            ("", False),
            ("gzip", True),
            ("GZip", True),
            ("x-gzip", True),
            ("*", True),
            ("gzip, deflate, br, zstd", True),
            ("br;q=1.0, gzip;q=0.8, *;q=0.1", True),
            ("deflate, br", False),
            ("identity", False),
            ("gzip;q=0", False),
            ("gzip;q=0.000", False),
            ("gzip;q=0.001", True),
            ("gzip;q=1.000", True),
            ("gzip ; q=0.5", True),
            ("gzip;Q=0", False),
            ("gzip;q=0, *", False),
            ("*;q=0", False),
            ("*;q=0, gzip", True),
            ("*;q=0.5, gzip;q=0", False),
            ("identity;q=0, gzip;q=0.1", True),
            ("identity;q=0.5, gzip", True),
            ("identity, gzip;q=0.5", False),
            ("identity;q=0.5, *;q=0.4", False),
            ("gzip;q=2", False),
            ("gzip;q=-1", False),
            ("gzip;q=0.0001", False),
            ("gzip;q=x", False),
            ("gzip;q=", False),
            ("gzip;level=9", True),
            ("gzip;level=9;q=0", False),
            (",, gzip ,", True),
            ("gzipped", False),
            ("not-gzip", False),
            ("\u00e9, gzip", True),
            ("br," * 500 + "gzip", False),
            ("\r\nAccept-Encoding: gzip", True),
            ("gzip\r\nAccept-Encoding: identity;q=0.5", True),
            ("br\r\nAccept-Encoding: gzip;q=0", False),
        ],
    )
    def test_it_is_used_where_the_client_puts_it_no_lower_than_the_plain_body(
        self, client: Client, accepted: str | None, compressed: bool
    ):
        answer = asked(client, target(MIDDLE.pair), accept_encoding=accepted)
        assert (answer.headers.get("content-encoding") == "gzip") is compressed
        assert int(answer.headers["content-length"]) == len(answer.body)
        assert answer.headers["vary"].lower() == "accept-encoding"
        content = gzip.decompress(answer.body) if compressed else answer.body
        assert wire.order_book_from_json(content) == MIDDLE
        assert not compressed or len(answer.body) < len(content) / 2

    @pytest.mark.parametrize("one", [SMALL, MIDDLE, LARGE])
    @pytest.mark.parametrize("path", ["book", "list"])
    def test_plain_and_compressed_are_the_same_content_under_two_tags(self, client: Client, one: OrderBook, path: str):
        where = target(one.pair) if path == "book" else PAIR_LIST
        plain, packed = asked(client, where), asked(client, where, accept_encoding="gzip")
        if len(plain.body) < GZIP_LEAST:
            assert (packed.body, packed.headers["etag"]) == (plain.body, plain.headers["etag"])
            assert "content-encoding" not in packed.headers
        else:
            assert gzip.decompress(packed.body) == plain.body
            assert packed.headers["etag"] != plain.headers["etag"]

    def test_a_large_body_is_compressed_once_and_off_the_event_loop(self, monkeypatch: pytest.MonkeyPatch):
        compressing, go_on = threading.Event(), threading.Event()
        times: list[int] = []
        really = bodies_module._gzipped

        def slowly(content: bytes) -> bytes:
            times.append(len(content))
            compressing.set()
            assert go_on.wait(20)
            return really(content)

        waiting = Counted(Body._compress)
        monkeypatch.setattr(bodies_module, "_gzipped", slowly)
        monkeypatch.setattr(Body, "_compress", lambda body: waiting(body))  # noqa: PLW0108  # to be a method

        def ask(port: int) -> bytes:
            client = Client(port)
            answer = asked(client, target(LARGE.pair), accept_encoding="gzip")
            client.close()
            return gzip.decompress(answer.body)

        with served(create_app(LiveIndex([LARGE]))) as service, ThreadPoolExecutor(5) as threads:
            answers = [threads.submit(ask, service.port) for _ in range(5)]
            assert compressing.wait(20)
            eventually(lambda: waiting.calls == 5)
            # The server answers others meanwhile.
            assert service.pair_list().status == 200
            go_on.set()
            contents = {answer.result() for answer in answers}
            assert len(contents) == 1
            assert times == [len(contents.pop())]
            assert times[0] >= GZIP_LARGE

    @pytest.mark.parametrize("size", [GZIP_LEAST - 1, GZIP_LEAST, GZIP_LARGE - 1, GZIP_LARGE])
    def test_its_bounds_are_exact(self, size: int):
        body = Body(b"x" * size, "tag", b"no-cache")
        scope = {"method": "GET", "headers": [(b"accept-encoding", b"gzip")]}
        answer = body.answer(scope)
        assert (answer is None) is (size >= GZIP_LARGE)
        if answer is not None:
            assert ((b"content-encoding", b"gzip") in answer[0]["headers"]) is (size >= GZIP_LEAST)


class TestConditions:
    """RFC 9110, 13.1.2."""

    @pytest.mark.parametrize(
        ("condition", "matches"),
        [
            ("{tag}", True),
            ("W/{tag}", True),
            ('"other", {tag}', True),
            ('"other",{tag},"more"', True),
            ('W/"other", W/{tag}', True),
            ("*", True),
            (" * ", True),
            ('"other"\r\nIf-None-Match: {tag}', True),
            ('"other"', False),
            ('"a,b", "c"', False),
            ("{tag}x", True),
            ('"{bare}', False),
            ("{bare}", False),
            ('"x{bare}"', False),
            ('"{bare}-gzip"', False),
            ("", False),
            ('"*"', False),
            ('"\u00e9", {tag}', True),
            ('"\u00e9{bare}"', False),
            ('*, "other"', False),
        ],
    )
    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    @pytest.mark.parametrize("where", [PAIR_LIST, target(MIDDLE.pair), target(MIDDLE.pair).replace("abcd", "ABCD")])
    def test_what_the_client_has_is_304_and_no_body(
        self, client: Client, condition: str, matches: bool, method: str, where: str
    ):
        tag = asked(client, where).headers["etag"]
        condition = condition.replace("{tag}", tag).replace("{bare}", tag.strip('"'))
        answer = asked(client, where, method, if_none_match=condition)
        assert answer.status == (304 if matches else 200)
        assert (answer.body == b"") is (matches or method == "HEAD")
        assert answer.headers["etag"] == tag
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["vary"].lower() == "accept-encoding"
        if matches:
            assert not {"content-length", "content-type", "content-encoding"} & answer.headers.keys()
        # The connection is good for more.
        assert asked(client, where).headers["etag"] == tag

    @pytest.mark.parametrize("where", [PAIR_LIST, target(MIDDLE.pair)])
    def test_each_representation_matches_its_own_tag(self, client: Client, where: str, live: LiveIndex):
        live.update([book(number) for number in range(10, 20)])
        packed = asked(client, where, accept_encoding="gzip").headers["etag"]
        plain = asked(client, where).headers["etag"]
        assert asked(client, where, accept_encoding="gzip", if_none_match=packed).status == 304
        assert asked(client, where, accept_encoding="gzip", if_none_match=plain).status == 200
        assert asked(client, where, if_none_match=packed).status == 200

    def test_errors_are_not_conditional(self, client: Client):
        errors = {"/trading-view/order-book?base=ADA&quote=ADA": 404, "/trading-view/order-book": 400, "/nowhere": 404}
        for where, status in errors.items():
            assert asked(client, where, if_none_match="*").status == status

    @pytest.mark.parametrize("max_age", [0, 3, 86_400])
    def test_max_age_is_told(self, max_age: int):
        with served(create_app(LiveIndex([SMALL]), max_age=max_age)) as service:
            for where in (PAIR_LIST, target(SMALL.pair), target(SMALL.pair).replace("abcd", "ABCD")):
                assert service.ask(where).headers["cache-control"] == f"max-age={max_age}"

    @pytest.mark.parametrize("max_age", [-1, 1.5, True, "3"])
    def test_a_max_age_that_is_no_number_of_seconds_is_refused(self, max_age: Any):
        with pytest.raises(ValueError, match="max_age must be None or a whole number of seconds, 0 or more, not "):
            create_app(LiveIndex(), max_age=max_age)


@pytest.mark.parametrize("accepted", [None, "gzip"])
@pytest.mark.parametrize("where", [PAIR_LIST, target(SMALL.pair), target(MIDDLE.pair), target(LARGE.pair)])
def test_head_has_the_headers_of_get(client: Client, where: str, accepted: str | None):
    for _ in range(2):
        head = asked(client, where, "HEAD", accept_encoding=accepted)
        got = asked(client, where, accept_encoding=accepted)
        assert head.body == b""
        assert {**head.headers, "date": ""} == {**got.headers, "date": ""}
        assert int(head.headers["content-length"]) == len(got.body)


def test_another_spelling_is_echoed_under_its_own_tag_and_never_stale(client: Client, live: LiveIndex):
    shouted = target(MIDDLE.pair).replace("abcd", "ABCD")
    for spot in ("1", "2"):
        live.publish(book(2, 30, spot))
        plain, loud = asked(client, target(MIDDLE.pair)), asked(client, shouted)
        assert plain.json["spot"] == loud.json["spot"] == spot
        assert loud.json["base"] == plain.json["base"].replace("abcd", "ABCD")
        assert loud.headers["etag"] != plain.headers["etag"]
        assert loud.json | {"base": plain.json["base"]} == plain.json
        assert asked(client, shouted, accept_encoding="gzip").body == loud.body
    live.publish(MIDDLE)


class Counted:
    """A function that counts what it was called for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        return self.function(*arguments, **named)


def test_each_value_is_encoded_once(monkeypatch: pytest.MonkeyPatch):
    books, entries, packings = (
        Counted(wire.order_book_to_json),
        Counted(wire.pair_info_to_json),
        Counted(bodies_module._gzipped),
    )
    monkeypatch.setattr(wire, "order_book_to_json", books)
    monkeypatch.setattr(wire, "pair_info_to_json", entries)
    monkeypatch.setattr(bodies_module, "_gzipped", packings)
    live = LiveIndex([book(number) for number in range(500)])
    with served(create_app(live)) as service:
        client = Client(service.port)

        def ask_all() -> None:
            for _ in range(3):
                for colon in (":", "%3A"):
                    asked(client, target(numbered_pair(7)).replace(":", colon))
                    asked(client, target(numbered_pair(8)).replace(":", colon), accept_encoding="gzip")
                asked(client, PAIR_LIST)
                asked(client, PAIR_LIST, accept_encoding="gzip")

        ask_all()
        assert (books.calls, entries.calls, packings.calls) == (2, 500, 2)
        live.publish(book(7, spot="1"))
        ask_all()
        # One book and one entry are new; so is the list, in gzip too. The book that stayed is not touched.
        assert (books.calls, entries.calls, packings.calls) == (3, 501, 3)
        live.publish(book(7, 31, spot="1"))
        ask_all()
        # The pair list has nothing new to say.
        assert (books.calls, entries.calls, packings.calls) == (4, 501, 3)
        live.update([book(number) for number in range(1_000, 1_300)], [numbered_pair(100)])
        ask_all()
        assert (books.calls, entries.calls, packings.calls) == (4, 801, 4)
        client.close()


def test_memory_is_flat_over_many_publishes_and_bodies_go_with_their_books():
    live = LiveIndex([book(number, 5) for number in range(200)])
    bodies = Bodies()

    def publish(count: int) -> None:
        for number in range(count):
            live.publish(book(number % 250, 5, spot=str(number + 1)))
            live.retract(numbered_pair((number * 7) % 250))
            bodies.pair_list(live.current)
            for one in list(live.current.values())[number % 50 : number % 50 + 3]:
                bodies.order_book(one)

    publish(1_000)
    gc.collect()
    tracemalloc.start()
    try:
        publish(250)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        publish(2_000)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < before + 100_000
    finally:
        tracemalloc.stop()
    assert len(bodies._order_books) <= len(live.current)
    for one in list(live.current.values()):
        bodies.order_book(one)
    assert len(bodies._order_books) == len(live.current)
    live.retract(*live.current)
    del one
    gc.collect()
    assert len(bodies._order_books) == 0


class TestShortWay:
    """Past Starlette's routes, for what is asked all the time."""

    def test_a_query_that_was_answered_is_not_taken_apart_again(self, monkeypatch: pytest.MonkeyPatch):
        live = LiveIndex([MIDDLE])
        taken_apart = Counted(app_module._asset)
        monkeypatch.setattr(app_module, "_asset", taken_apart)
        with served(create_app(live)) as service:
            answers = {service.ask(target(MIDDLE.pair)).body for _ in range(3)}
            assert (len(answers), taken_apart.calls) == (1, 2)
            live.publish(book(2, 31))
            assert len(service.ask(target(MIDDLE.pair)).json["bids"]) == 31
            live.retract(MIDDLE.pair)
            assert service.ask(target(MIDDLE.pair)).status == 404
            live.publish(MIDDLE)
            assert service.ask(target(MIDDLE.pair)).status == 200

    @pytest.mark.parametrize("extra", ["&x=1", "&", "&base=", "#", "%20"])
    def test_only_plain_spellings_are_remembered(self, extra: str):
        live = LiveIndex([MIDDLE])
        app = create_app(live)
        base, quote = str(MIDDLE.pair.base), "ADA"
        spellings = [f"base={base.replace(':', colon)}&quote={quote}" for colon in (":", "%3A", "%3a")]
        spellings += [f"base={base.upper().replace(':', colon)}&quote={quote}" for colon in (":", "%3A", "%3a")]
        spellings += [f"quote={quote}&base={base}", f"base={base}&quote=ADA{extra}", f"base={base}&quote=%41DA"]
        with served(app) as service:
            for query in spellings:
                service.ask(f"/trading-view/order-book?{query}")
        assert len(app._endpoints._pairs) == 4  # type: ignore[attr-defined]  # what only this test looks into

    def test_no_more_queries_are_remembered_than_there_is_room_for(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(app_module, "MOST_QUERIES", 3)
        app = create_app(LiveIndex([book(number, 1) for number in range(10)]))
        with served(app) as service:
            for number in sorted([*range(10)] * 3):
                assert service.ask(target(numbered_pair(number))).json["base"] == str(numbered_pair(number).base)
                endpoints = app._endpoints  # type: ignore[attr-defined]  # what only this test looks into
                assert len(endpoints._pairs) <= 3
                assert len(endpoints._answers[1]) <= 3

    def test_routes_that_were_put_before_its_own_are_taken(self):
        app = create_app(LiveIndex([MIDDLE]))

        async def closed(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 451, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

        app.mount("/trading-view", closed)
        app.router.routes.insert(0, app.router.routes.pop())
        with served(app) as service:
            assert service.ask(PAIR_LIST).status == 451
            assert service.ask(target(MIDDLE.pair)).status == 451

    def test_routes_that_come_and_go_later_count_too(self):
        app = create_app(LiveIndex([MIDDLE]))

        async def closed(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 451, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

        with served(app) as service:
            assert service.ask(PAIR_LIST).status == 200
            app.router.routes.insert(0, Mount("/trading-view", closed))
            assert service.ask(PAIR_LIST).status == 451
            app.router.routes.clear()
            assert service.ask(PAIR_LIST).status == 404

    def test_a_failure_in_the_midst_of_an_answer_is_answered_and_handled(self, monkeypatch: pytest.MonkeyPatch):
        def failing(content: bytes) -> bytes:
            raise RuntimeError("a secret detail")

        app = create_app(LiveIndex([MIDDLE, LARGE]))
        with served(app) as service:
            client = Client(service.port)
            plain = {one.pair: asked(client, target(one.pair)).body for one in (MIDDLE, LARGE)}
            monkeypatch.setattr(bodies_module, "_gzipped", failing)
            for one in (MIDDLE, LARGE):
                for _ in range(2):
                    answer = asked(client, target(one.pair), accept_encoding="gzip")
                    assert (answer.status, answer.json) == (500, {"error": "Internal Server Error"})
                    client.close()
                    client = Client(service.port)
            monkeypatch.undo()
            for one in (MIDDLE, LARGE):
                answer = asked(client, target(one.pair), accept_encoding="gzip")
                assert gzip.decompress(answer.body) == plain[one.pair]
            client.close()

    @pytest.mark.parametrize(
        ("path", "root_path", "status"),
        [
            (PAIR_LIST, "", 200),
            (PAIR_LIST, None, 200),
            (f"/api{PAIR_LIST}", "/api", 200),
            (PAIR_LIST, "/trading-view", 404),
            (f"/api{PAIR_LIST}", "", 404),
            (f"{PAIR_LIST}{PAIR_LIST}", PAIR_LIST, 200),
        ],
    )
    def test_paths_are_those_that_starlette_sees(self, path: str, root_path: str | None, status: int):
        app, sent = create_app(LiveIndex([MIDDLE])), []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}
        for given_root in ({"root_path": root_path}, {} if root_path is None else {"root_path": root_path}):
            asyncio.run(app(scope | given_root, None, send))  # type: ignore[arg-type]  # nothing is received
            assert sent[0]["status"] == status
            sent.clear()

    def test_what_is_not_http_goes_the_way_of_starlette(self):
        app, sent = create_app(LiveIndex([MIDDLE])), []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        scope = {"type": "websocket", "path": PAIR_LIST, "root_path": "", "query_string": b"", "headers": []}
        asyncio.run(app(scope, receive, send))
        assert [message["type"] for message in sent] == ["websocket.close"]

    def test_an_index_that_is_no_longer_current_is_let_go(self):
        live = LiveIndex([book(number, 1) for number in range(5)])
        with served(create_app(live)) as service:
            for _ in range(2):
                service.ask(target(numbered_pair(1)))
                service.ask(PAIR_LIST)
            index, one = ref(live.current), ref(live.current.order_book(numbered_pair(1)))
            live.retract(*live.current)
            gc.collect()
            assert index() is None
            assert one() is None

    def test_headers_that_a_host_adds_stay_with_their_answer(self):
        inner = create_app(LiveIndex([MIDDLE]))

        async def host(scope: Scope, receive: Receive, send: Send) -> None:
            async def stamping(message: Any) -> None:
                if message["type"] == "http.response.start":
                    message["headers"].append((b"x-stamp", b"1"))
                await send(message)

            await inner(scope, receive, stamping)

        with served(host) as service:
            for where in (PAIR_LIST, target(MIDDLE.pair)):
                lengths = {len(str(service.ask(where).headers)) for _ in range(4)}
                assert len(lengths) == 1


@given(data=st.data())
def test_the_pair_list_made_from_the_one_before_is_the_one_made_anew(data: st.DataObject):
    bodies = Bodies()
    index = MarketIndex(OrderBook(numbered_pair(number)) for number in range(data.draw(st.sampled_from([0, 3, 300]))))
    tags: dict[bytes, str] = {}
    for _ in range(data.draw(st.integers(1, 6))):
        kind = data.draw(st.sampled_from(["spot", "levels", "many", "without", "same"]))
        start = data.draw(st.integers(0, 400))
        many = range(start, start + data.draw(st.integers(1, 200)), data.draw(st.integers(1, 3)))
        if kind == "spot":
            index = index.with_books(OrderBook(numbered_pair(start), spot=str(data.draw(st.integers(1, 3)))))
        elif kind == "levels":
            index = index.with_books(OrderBook.from_levels(numbered_pair(start), bids=[("1", 1)]))
        elif kind == "many":
            index = index.with_books(*(OrderBook(numbered_pair(number), spot="2") for number in many))
        elif kind == "without":
            index = index.without(*map(numbered_pair, many))
        body, anew = bodies.pair_list(index), Bodies().pair_list(MarketIndex(index.values()))
        assert body.content == anew.content == wire.pair_list_to_json(index.pair_list())
        assert json.loads(body.content)
        tag = body._headers[0][1]
        assert tag == anew._headers[0][1]
        assert tags.setdefault(body.content, str(tag)) == str(tag)
        assert bodies.pair_list(index) is body
    assert len(set(tags.values())) == len(tags)


class NeverStale(RuleBasedStateMachine):
    """Publishes, retracts and reads through HTTP, against a dict: whatever is read is what was published last."""

    # A state machine takes no fixtures: the one below puts these here.
    live: LiveIndex
    port: int

    @initialize()
    def start(self) -> None:
        self.client = Client(self.port)
        self.live.retract(*self.live.current)
        self.model: dict[Pair, OrderBook] = {}
        self.seen: dict[tuple[str, str | None], tuple[str, bytes]] = {}

    @rule(book=order_books(max_levels=3), another=st.booleans(), data=st.data())
    def publish(self, book: OrderBook, another: bool, data: st.DataObject) -> None:
        if self.model and another:
            book = OrderBook(data.draw(st.sampled_from(sorted(self.model))), book.bids, book.asks, book.spot)
        self.live.publish(book)
        self.model[book.pair] = book

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        if self.model:
            pair = data.draw(st.sampled_from(sorted(self.model)))
            self.model[pair] = self.model[pair].apply(bids=[("1", data.draw(st.integers(0, 3)))])
            self.live.publish(self.model[pair])

    @rule(data=st.data())
    def retract(self, data: st.DataObject) -> None:
        if self.model:
            pair = data.draw(st.sampled_from(sorted(self.model)))
            self.live.retract(pair)
            del self.model[pair]

    @rule(data=st.data(), accepted=st.sampled_from([None, "gzip"]), conditional=st.booleans(), loud=st.booleans())
    def read_a_book(self, data: st.DataObject, accepted: str | None, conditional: bool, loud: bool) -> None:
        tracked = st.sampled_from(sorted(self.model) or [numbered_pair(1)])
        pair = data.draw(st.one_of(pairs(), tracked))
        base = str(pair.base).upper() if loud else str(pair.base)
        where = f"/trading-view/order-book?base={base}&quote={pair.quote}"
        content = self.read(where, accepted, conditional)
        if pair in self.model:
            assert content is not None
            assert wire.order_book_from_json(content) == self.model[pair]
            assert json.loads(content)["base"] == base
        else:
            assert content is None

    @rule(accepted=st.sampled_from([None, "gzip"]), conditional=st.booleans())
    def read_the_list(self, accepted: str | None, conditional: bool) -> None:
        content = self.read(PAIR_LIST, accepted, conditional)
        assert content is not None
        assert [(f"{one['base']}/{one['quote']}", one["last_spot"]) for one in json.loads(content)["pairs"]] == [
            (str(pair), None if (spot := self.model[pair].spot) is None else format(spot, "f"))
            for pair in sorted(self.model)
        ]

    def read(self, where: str, accepted: str | None, conditional: bool) -> bytes | None:
        """What a client with a cache of its own ends up with."""
        tag, content = self.seen.get((where, accepted), (None, b""))
        answer = asked(self.client, where, accept_encoding=accepted, if_none_match=tag if conditional else None)
        if answer.status == 404:
            return None
        if answer.status == 304:
            assert answer.headers["etag"] == tag
            return content
        content = gzip.decompress(answer.body) if "content-encoding" in answer.headers else answer.body
        self.seen[where, accepted] = answer.headers["etag"], content
        return content

    def teardown(self) -> None:
        self.client.close()


@pytest.fixture(scope="module", autouse=True)
def served_for_the_machine() -> Iterator[None]:
    NeverStale.live = LiveIndex()
    with served(create_app(NeverStale.live)) as service:
        NeverStale.port = service.port
        yield


TestNeverStale = NeverStale.TestCase
TestNeverStale.settings = settings(settings(), max_examples=settings().max_examples // 2, stateful_step_count=30)
