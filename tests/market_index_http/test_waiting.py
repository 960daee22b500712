"""Requests that wait for a change: `Prefer: wait`, decision 28."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any
from weakref import ref

import pytest
from attrs import define, field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.routing import Mount
from starlette.types import Message, Scope

from market_index import Freshness, LiveIndex, MarketIndex, Pair
from market_index_cli.server.http_server import Server
from market_index_http import create_app
from market_index_http.app import MarketIndexApp
from market_index_http.bodies import Fields, Response
from market_index_http.waiting import MAX_WAIT_SECONDS, Waits, preferred_wait
from tests.asgi import request as request_without_server
from tests.asgi import request_cached
from tests.market_index_http.books import PAIR_LIST, book, fetch, numbered_pair, target
from tests.service import Client, HttpResponse, Service, served
from tests.waiting import DEADLINE_SECONDS, eventually

ONE, TWO = target(numbered_pair(1)), target(numbered_pair(2))


@pytest.fixture
def live() -> LiveIndex:
    return LiveIndex([book(1, 1, "1"), book(2, 30, "2")])


@pytest.fixture
def app(live: LiveIndex) -> MarketIndexApp:
    return create_app(live, max_wait=60)


@pytest.fixture
def service(app: MarketIndexApp) -> Iterator[Service]:
    with served(app, Server(app, on_shutdown=app.end_waits)) as service:
        yield service


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def waiting(app: MarketIndexApp) -> int:
    """Return how many requests of an app wait."""
    return sum(len(waits) for watch in list(app._waits._watches.values()) for waits in list(watch._waits.values()))


OPENED: list[Client] = []


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


@define
class Reader:
    """A client of one target that waits for its next response. It is closed after the test."""

    service: Service
    target: str
    etag: str | None = None
    client: Client = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.client = Client(self.service.port)
        OPENED.append(self.client)

    def read(self, prefer: str | None = None, method: str = "GET", **headers: str | None) -> HttpResponse:
        """Send a request with the tag of the last response, and return the response."""
        answer = fetch(self.client, self.target, method, if_none_match=self.etag, prefer=prefer, **headers)
        self.etag = answer.headers.get("etag", self.etag)
        return answer


class TestPreference:
    """The seconds that a request prefers to wait, by its `Prefer` field."""

    @staticmethod
    def seconds(prefer: str | None, if_none_match: str | None = '"tag"') -> int:
        fields = {"prefer": prefer, "if-none-match": if_none_match}
        headers = [(name.encode(), text.encode()) for name, text in fields.items() if text is not None]
        return preferred_wait({"headers": headers})

    @pytest.mark.parametrize(
        "prefer",
        [
            *("wait=5", " wait = 5 ", "WAIT=5", "wait=05", "wait=5;x", "wait=5 ; x=1", 'wait=5; x="a, b"', "wait=5;"),
            *(
                "respond-async, wait=5",
                "x=, wait=5",
                "x=;y, wait=5",
                'x="a, wait=9", wait=5',
                'x="\\", wait=9", wait=5',
            ),
            *("wait=5, wait=9", "wait=5, respond-async", ", wait=5", "wait=5,,", "waits=9, wait=5"),
        ],
    )
    def test_the_first_preference_named_wait_counts(self, prefer: str):
        assert self.seconds(prefer) == 5

    @pytest.mark.parametrize(
        "prefer",
        [
            *("", "wait", "wait=", "wait=-5", "wait=+5", "wait=5.0", "wait=5s", "wait=0x5", 'wait="5"', "wait=\u0665"),
            *("wait 5", "wait=5 5", "wait==5", "=5, wait=5", '"wait"=5', 'wait="5', "wait=x, wait=5", "wait=0"),
            *("respond-async", "x=wait=5", "wait=5;;=", "wait=5" + " " * 1024, "wait[]=5", None),
        ],
    )
    def test_any_other_value_does_not_wait(self, prefer: str | None):
        assert self.seconds(prefer) == 0

    def test_several_fields_are_one(self):
        headers = [(b"prefer", b"respond-async"), (b"if-none-match", b'"tag"'), (b"prefer", b"wait=7")]
        assert preferred_wait({"headers": headers}) == 7

    @pytest.mark.parametrize("tags", ["*", " * ", ", *,", '*, "tag"', '"tag", *', '"ta*g", *'])
    def test_any_tag_does_not_wait(self, tags: str):
        assert self.seconds("wait=5", tags) == 0

    def test_a_star_in_a_tag_is_no_star(self):
        assert self.seconds("wait=5", '"t*g"') == 5

    @pytest.mark.parametrize("repeated", ["; ", ";b= ", ", ", "a=", "a ", 'a="', ";;", "=", "\t", 'a="\\" '])
    @pytest.mark.parametrize("end", ["(", "", ", wait=5", '"'])
    def test_the_time_is_linear_in_the_length(self, repeated: str, end: str):
        start = time.process_time()
        self.seconds("a" + repeated * (1_000 // len(repeated)) + end)
        assert time.process_time() - start < 0.1

    def test_a_value_of_many_digits_is_as_long_as_allowed(self):
        assert self.seconds("wait=" + "9" * 900) > MAX_WAIT_SECONDS


class TestThroughUvicorn:
    """Requests to a real server."""

    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    @pytest.mark.parametrize("path", [ONE, PAIR_LIST, ONE.replace("abcd", "ABCD")])
    def test_a_change_ends_a_wait_with_the_response_of_an_ordinary_request(
        self,
        live: LiveIndex,
        app: MarketIndexApp,
        service: Service,
        threads: ThreadPoolExecutor,
        path: str,
        method: str,
    ):
        reader = Reader(service, path)
        before = reader.read()
        answering = threads.submit(reader.read, "wait=20", method)
        eventually(lambda: waiting(app) == 1)
        live.update([book(1, 1, "3")], freshness=Freshness("block 7"))
        answer = answering.result(DEADLINE_SECONDS)
        assert answer.headers.pop("preference-applied") == "wait=20"
        ordinary = Reader(service, path).read(method=method)
        for one in (answer, ordinary):
            one.headers.pop("date")
        assert (answer.status, answer.headers, answer.body) == (200, ordinary.headers, ordinary.body)
        assert answer.headers["etag"] != before.headers["etag"]
        eventually(lambda: waiting(app) == 0)

    def test_at_the_deadline_the_response_is_304(self, service: Service):
        reader = Reader(service, ONE)
        assert "preference-applied" not in reader.read("wait=1").headers, "it has no tag yet"
        ordinary = reader.read()
        answer = reader.read("wait=1")
        assert (ordinary.status, answer.status, answer.headers["preference-applied"]) == (304, 304, "wait=1")
        assert ordinary.headers.keys() == answer.headers.keys() - {"preference-applied"}

    def test_a_longer_wait_is_reduced(self, live: LiveIndex):
        with served(create_app(live, max_wait=1)) as service:
            reader = Reader(service, ONE)
            reader.read()
            assert reader.read("wait=3600").headers["preference-applied"] == "wait=1"

    def test_a_retraction_ends_a_wait_with_404(
        self, live: LiveIndex, app: MarketIndexApp, service: Service, threads: ThreadPoolExecutor
    ):
        reader, lists = Reader(service, ONE), Reader(service, PAIR_LIST)
        reader.read(), lists.read()
        answering = [threads.submit(one.read, "wait=20") for one in (reader, lists)]
        eventually(lambda: waiting(app) == 2)
        live.retract(numbered_pair(1))
        gone, listed = (one.result(DEADLINE_SECONDS) for one in answering)
        assert (gone.status, gone.headers["preference-applied"]) == (404, "wait=20")
        assert gone.json == {"error": f"Pair {numbered_pair(1)} not found"}
        assert [pair["base"] for pair in listed.json["pairs"]] == [str(numbered_pair(2).base)]

    def test_a_response_that_is_not_304_is_immediate(self, service: Service):
        for path, status in ((ONE, 200), (target(numbered_pair(9)), 404), (ONE.replace("base", "bass"), 400)):
            answer = Reader(service, path, '"another"').read("wait=20")
            assert (answer.status, "preference-applied" in answer.headers) == (status, False)
        answer = Reader(service, ONE, "*").read("wait=20")
        assert (answer.status, "preference-applied" in answer.headers) == (304, False)

    def test_only_a_request_that_prefers_to_wait_has_no_cached_response(self, app: MarketIndexApp):
        answer = request_cached(app, ONE, headers={"If-None-Match": "*"})
        assert answer is not None
        assert answer.status == 304
        assert request_cached(app, ONE, headers={"If-None-Match": "*", "Prefer": "wait=1"}) is None

    @pytest.mark.parametrize("accept_encoding", [None, "gzip"])
    def test_a_cached_response_leaves_waiting_to_the_routes(
        self,
        live: LiveIndex,
        app: MarketIndexApp,
        service: Service,
        threads: ThreadPoolExecutor,
        accept_encoding: str | None,
    ):
        reader = Reader(service, TWO)
        statuses = [reader.read(accept_encoding=accept_encoding).status for _ in range(3)]
        assert statuses == [200, 304, 304]
        assert Reader(service, TWO).read("wait=20").status == 200
        answering = threads.submit(reader.read, "wait=20", accept_encoding=accept_encoding)
        eventually(lambda: waiting(app) == 1)
        live.publish(book(2, 30, "9"))
        assert answering.result(DEADLINE_SECONDS).status == 200

    def test_no_more_requests_wait_than_there_are_places(self, live: LiveIndex, threads: ThreadPoolExecutor):
        app = create_app(live, max_wait=60, max_waiting=2)
        with served(app, Server(app, on_shutdown=app.end_waits)) as service:
            readers = [Reader(service, path) for path in (ONE, PAIR_LIST, TWO)]
            for reader in readers:
                reader.read()
            answering = [threads.submit(reader.read, "wait=20") for reader in readers[:2]]
            eventually(lambda: waiting(app) == 2)
            answer = readers[2].read("wait=20")
            assert (answer.status, "preference-applied" in answer.headers) == (304, False)
            live.publish(book(1, 1, "7"))
            assert [one.result(DEADLINE_SECONDS).status for one in answering] == [200, 200]
            last = threads.submit(readers[2].read, "wait=20")
            eventually(lambda: waiting(app) == 1)
            live.publish(book(2, 1, "7"))
            assert last.result(DEADLINE_SECONDS).status == 200

    @pytest.mark.parametrize("limits", [{}, {"max_wait": 0}, {"max_wait": 60, "max_waiting": 0}])
    def test_where_none_may_wait_the_response_is_immediate(self, live: LiveIndex, limits: dict[str, Any]):
        with served(create_app(live, **limits)) as service:
            reader = Reader(service, ONE)
            reader.read()
            answer = reader.read("wait=20")
            assert (answer.status, "preference-applied" in answer.headers) == (304, False)

    def test_a_client_that_disconnects_gives_its_place_back(self, app: MarketIndexApp, service: Service):
        reader = Reader(service, ONE)
        reader.read()
        head = f"Host: x\r\nIf-None-Match: {reader.etag}\r\nPrefer: wait=50\r\n"
        reader.client.socket.sendall(f"GET {ONE} HTTP/1.1\r\n{head}\r\n".encode())
        # The body of a request is received before its disconnect, in parts or not.
        body = Client(service.port)
        body.socket.sendall(f"GET {ONE} HTTP/1.1\r\n{head}Content-Length: 6\r\n\r\nabc".encode())
        eventually(lambda: waiting(app) == 2)
        body.socket.sendall(b"def")
        reader.client.close()
        eventually(lambda: waiting(app) == 1)
        body.close()
        eventually(lambda: waiting(app) == 0)

    def test_the_app_ends_all_waits(
        self, live: LiveIndex, app: MarketIndexApp, service: Service, threads: ThreadPoolExecutor
    ):
        readers = [Reader(service, path) for path in (ONE, PAIR_LIST, TWO)]
        for reader in readers:
            reader.read()
        answering = [threads.submit(reader.read, "wait=50") for reader in readers]
        eventually(lambda: waiting(app) == 3)
        app.end_waits()
        answers = [one.result(DEADLINE_SECONDS) for one in answering]
        assert [(one.status, one.headers["preference-applied"]) for one in answers] == [(304, "wait=50")] * 3
        again = readers[0].read("wait=50")
        assert (again.status, "preference-applied" in again.headers) == (304, False)
        app.end_waits()

    def test_a_server_that_shuts_down_answers_all_that_wait(self, live: LiveIndex, threads: ThreadPoolExecutor):
        app = create_app(live, max_wait=60)
        with ExitStack() as stack:
            service = stack.enter_context(served(app, Server(app, on_shutdown=app.end_waits)))
            readers = [Reader(service, path) for path in (ONE, TWO, PAIR_LIST) * 2]
            for reader in readers:
                reader.read()
            answering = [threads.submit(reader.read, "wait=50") for reader in readers]
            eventually(lambda: waiting(app) == 6)
            stack.close()
            assert [one.result(DEADLINE_SECONDS).status for one in answering] == [304] * 6

    def test_apps_and_event_loops_share_a_live_index(
        self, live: LiveIndex, app: MarketIndexApp, service: Service, threads: ThreadPoolExecutor
    ):
        other = create_app(live, max_wait=60)
        host = Starlette(
            routes=[Mount("/api", app), Mount("/other", other)], middleware=[Middleware(BaseHTTPMiddleware, passed_on)]
        )
        with served(host) as hosting:
            readers = [
                *(Reader(service, ONE), Reader(hosting, f"/api{ONE}"), Reader(hosting, f"/other{ONE}")),
                Reader(hosting, f"/api{PAIR_LIST}"),
            ]
            for reader in readers:
                reader.read()
            for spot in ("4", "5"):
                answering = [threads.submit(reader.read, "wait=50") for reader in readers]
                eventually(lambda: (waiting(app), waiting(other)) == (3, 1))
                assert len(app._waits._watches) == 2
                live.publish(book(1, 1, spot))
                answers = [one.result(DEADLINE_SECONDS) for one in answering]
                assert [one.status for one in answers] == [200] * 4
                assert {one.json.get("spot", spot) for one in answers} == {spot}
            eventually(lambda: not app._waits._watches and not other._waits._watches)

    def test_a_waiting_request_keeps_no_index_alive(
        self, live: LiveIndex, app: MarketIndexApp, service: Service, threads: ThreadPoolExecutor
    ):
        reader = Reader(service, ONE)
        reader.read()
        answering = threads.submit(reader.read, "wait=50")
        eventually(lambda: waiting(app) == 1)
        index = ref(live.current)
        # The book of another pair: the request waits on.
        live.publish(book(2, 1, "7"))

        def is_freed(value: ref[MarketIndex]) -> bool:
            gc.collect()
            return value() is None

        eventually(lambda: is_freed(index))
        assert not answering.done()
        live.publish(book(1, 1, "2"))
        assert answering.result(DEADLINE_SECONDS).json["spot"] == "2"


async def passed_on(request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    return await call_next(request)


@define
class Request:
    """A request to `Waits` whose responses are those of a script: a tag, or an action before it."""

    waits: Waits
    live: LiveIndex
    pair: Pair | None
    acts: list[Callable[[], object]] = field(factory=list)
    responses: int = 0
    messages: list[Message] = field(factory=list)
    disconnected: asyncio.Event = field(factory=asyncio.Event)

    @property
    def content(self) -> object:
        index = self.live.current
        return [(one.pair, one.last_spot) for one in index.pair_list()] if self.pair is None else index.get(self.pair)

    async def receive(self) -> Message:
        if self.messages:
            return self.messages.pop(0)
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, prefer: str = "wait=60") -> Response:
        before = self.content

        async def respond(fields: Fields) -> Response:
            self.responses += 1
            content = self.content
            if content is None:
                raise HTTPException(404, "gone")
            if self.acts:
                self.acts.pop(0)()
            await asyncio.sleep(0)
            status = 304 if content == before else 200
            return Response({"type": "http.response.start", "status": status, "headers": [*fields]}, {})

        scope: Scope = {"headers": [(b"prefer", prefer.encode()), (b"if-none-match", b'"tag"')]}
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.waits.respond(scope, self.receive, self.pair, respond)


async def registered(waits: Waits, count: int) -> None:
    """Return when so many requests of this event loop wait, and all that was to be done is done."""
    while sum(len(each) for watch in waits._watches.values() for each in watch._waits.values()) < count:
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)


def status(response: Response) -> int:
    return int(response.start["status"])


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test in an event loop, in which no task fails unseen."""

    async def supervised() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        await main
        gc.collect()

    failures: list[dict[str, Any]] = []
    asyncio.run(supervised())
    assert failures == []


class TestWaits:
    """The steps of a wait, and what happens between them."""

    @pytest.fixture
    def waits(self, live: LiveIndex) -> Waits:
        return Waits(live, 60)

    @pytest.mark.parametrize("at", [1, 2])
    @pytest.mark.parametrize("pair", [numbered_pair(1), None])
    def test_a_change_while_a_response_is_made_is_not_lost(
        self, waits: Waits, live: LiveIndex, pair: Pair | None, at: int
    ):
        """The first response is made before the request is registered. Another change then leads to a second one."""

        async def main() -> None:
            acts: list[Callable[[], object]] = [lambda: live.publish(book(2, 40, "2"))] * (at - 1)
            request = Request(waits, live, pair, [*acts, lambda: live.publish(book(1, 1, "9"))])
            assert status(await request.send()) == 200
            assert request.responses == at + 1

        run(main())

    def test_a_change_of_another_pair_wakes_no_request(self, waits: Waits, live: LiveIndex):
        async def main() -> None:
            one, other = (Request(waits, live, numbered_pair(number)) for number in (1, 2))
            sending = [asyncio.create_task(request.send()) for request in (one, other)]
            await registered(waits, 2)
            for number in range(3, 9):
                live.publish(book(number))
                live.update((), freshness=Freshness(str(number)))
            live.publish(book(1, 1, "9"))
            assert status(await sending[0]) == 200
            assert (one.responses, other.responses) == (2, 1)
            live.retract(numbered_pair(2))
            with pytest.raises(HTTPException) as gone:
                await sending[1]
            assert (gone.value.status_code, gone.value.headers) == (404, {"preference-applied": "wait=60"})
            assert not waits._watches

        run(main())

    def test_only_a_change_of_a_pair_or_of_a_spot_wakes_the_pair_list(self, waits: Waits, live: LiveIndex):
        async def main() -> None:
            changes: list[Callable[[], object]] = [
                lambda: live.publish(book(1, 1, "9")),
                lambda: live.publish(book(3)),
                lambda: live.retract(numbered_pair(3)),
            ]
            for change in changes:
                request, one = Request(waits, live, None), Request(waits, live, numbered_pair(2))
                sending = [asyncio.create_task(each.send()) for each in (request, one)]
                await registered(waits, 2)
                spot = str(live.current.order_book(numbered_pair(2)).spot)
                live.publish(book(2, 20 + changes.index(change), spot))
                assert status(await sending[1]) == 200
                assert request.responses == 1
                change()
                assert status(await sending[0]) == 200
                assert request.responses == 2

        run(main())

    def test_a_change_that_is_undone_is_no_change(self, waits: Waits, live: LiveIndex):
        async def main() -> None:
            before = live.current.order_book(numbered_pair(1))
            request = Request(waits, live, numbered_pair(1))
            sending = asyncio.create_task(request.send())
            await registered(waits, 1)
            live.publish(book(1, 2))
            live.publish(before)
            await asyncio.sleep(0.01)
            assert request.responses == 1
            live.publish(book(1, 1, "1"))
            while request.responses < 2:
                await asyncio.sleep(0)
            live.publish(book(1, 3))
            assert status(await sending) == 200

        run(main())

    @pytest.mark.parametrize(
        "messages",
        [
            [],
            [{"type": "http.request"}],
            [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request", "body": b"b"}],
        ],
    )
    def test_a_disconnect_ends_a_wait(self, waits: Waits, live: LiveIndex, messages: list[Message]):
        async def main() -> None:
            request = Request(waits, live, None, messages=messages)
            sending = asyncio.create_task(request.send())
            await registered(waits, 1)
            assert not request.messages
            assert not sending.done()
            request.disconnected.set()
            assert status(await sending) == 304
            assert not waits._watches

        run(main())

    def test_a_server_that_delivers_a_request_again_does_not_block_the_event_loop(self, live: LiveIndex):
        app = create_app(live, max_wait=60)
        etag = request_without_server(app, ONE).headers["etag"]
        answer = request_without_server(app, ONE, headers={"If-None-Match": etag, "Prefer": "wait=50"})
        assert (answer.status, answer.headers["preference-applied"]) == (304, "wait=50")

    def test_a_cancelled_request_leaves_nothing_behind(self, waits: Waits, live: LiveIndex):
        async def main() -> None:
            requests = [Request(waits, live, pair) for pair in (None, numbered_pair(1), numbered_pair(1))]
            sending = [asyncio.create_task(request.send()) for request in requests]
            await registered(waits, 3)
            for task in sending:
                task.cancel()
            assert [type(one) for one in await asyncio.gather(*sending, return_exceptions=True)] == (
                [asyncio.CancelledError] * 3
            )
            assert not waits._watches
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == 1

        run(main())

    def test_waits_that_end_while_a_request_is_being_registered_end_it(self, waits: Waits, live: LiveIndex):
        async def main() -> None:
            request = Request(waits, live, None, [lambda: live.publish(book(2, 40, "2")), waits.end])
            assert status(await request.send()) == 304
            assert request.responses == 3

        run(main())

    def test_without_an_event_loop_of_asyncio_no_request_waits(self, waits: Waits, live: LiveIndex):
        async def respond(fields: Fields) -> Response:
            return Response({"type": "http.response.start", "status": 304, "headers": [*fields]}, {})

        scope: Scope = {"headers": [(b"prefer", b"wait=60"), (b"if-none-match", b'"tag"')]}
        responding = waits.respond(scope, Request(waits, live, None).receive, None, respond)
        with pytest.raises(StopIteration) as returned:
            responding.send(None)
        assert status(returned.value.value) == 304

    def test_the_places_of_an_event_loop_that_was_closed_come_back(self, live: LiveIndex):
        waits = Waits(live, 60, 1)

        def close_a_loop_that_waits() -> None:
            loop = asyncio.new_event_loop()
            sending = loop.create_task(Request(waits, live, None).send())
            loop.run_until_complete(registered(waits, 1))
            for task in asyncio.all_tasks(loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # they are never resumed, as intended
            loop.close()
            assert not sending.done()

        close_a_loop_that_waits()

        async def main() -> None:
            sending = asyncio.create_task(Request(waits, live, None).send())
            await registered(waits, 1)
            live.retract(numbered_pair(1))
            assert status(await sending) == 200

        asyncio.run(main())
        assert not waits._watches

    def test_the_end_of_all_waits_ignores_an_event_loop_that_was_closed(self, waits: Waits, live: LiveIndex):
        loop = asyncio.new_event_loop()
        request = Request(waits, live, None)
        sending = loop.create_task(request.send())
        loop.run_until_complete(registered(waits, 1))
        closing = threading.Thread(target=loop.close)
        closing.start()
        closing.join()
        waits.end()
        live.publish(book(1, 1, "9"))
        assert not sending.done()
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # they are never resumed, as intended
            coroutine = task.get_coro()
            assert coroutine is not None
            with suppress(RuntimeError):  # a coroutine that is closed may want to cancel a task of the closed loop
                coroutine.close()


@pytest.mark.parametrize("seconds", [-1, 1.5, True, "3", None, MAX_WAIT_SECONDS + 1])
def test_an_invalid_limit_of_time_is_rejected(seconds: Any):
    with pytest.raises(ValueError, match=r"^max_wait must be a whole number of seconds from 0 to 86400, got "):
        create_app(LiveIndex(), max_wait=seconds)


@pytest.mark.parametrize("requests", [-1, 1.5, True, "3", None])
def test_an_invalid_number_of_requests_is_rejected(requests: Any):
    with pytest.raises(ValueError, match=r"^max_waiting must be 0 or more requests, got "):
        create_app(LiveIndex(), max_waiting=requests)
