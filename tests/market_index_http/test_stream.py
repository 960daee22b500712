"""The stream of changes: what a client has after each `version` is what the endpoint returns."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from itertools import count
from pathlib import Path
from runpy import run_path
from typing import Any
from unittest.mock import Mock
from weakref import ref

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from market_index import AssetId, Freshness, LiveIndex, MarketIndex, OrderBook, Pair, wire
from market_index.strategies import level_changes, order_books
from market_index_http import create_app
from market_index_http.stream import Stream, audience, steps
from tests.apps import composed
from tests.asgi import request, request_cached, scope_of
from tests.market_index_http.books import book, numbered_pair
from tests.openapi import validator
from tests.service import Client, served
from tests.waiting import DEADLINE_SECONDS

CLIENTS = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
PAIRS = [numbered_pair(number) for number in range(4)]


SCHEMAS = {"book": "OrderBook", "change": "BookChange", "retract": "Pair", "version": "Freshness"}
"""The schemas of the description by the names of events."""


@define
class Copy:
    """What a client knows after the events that it has read: a small independent reader of the stream."""

    books: dict[Pair, OrderBook] = field(factory=dict)
    versions: list[tuple[dict[Pair, OrderBook], str | None]] = field(factory=list)
    events: list[str] = field(factory=list)
    comments: int = 0
    retry_milliseconds: int = 0
    fields: dict[bytes, bytes] = field(factory=dict)
    rest: bytes = b""

    def read(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            name, _, value = line.partition(b": ")
            if line == b":":
                self.comments += 1
            elif line:
                self.fields[name] = value
            else:
                # A block without data is an empty event for some clients.
                assert b"data" in self.fields
                self.retry_milliseconds = int(self.fields.get(b"retry", self.retry_milliseconds))
                self.apply(self.fields[b"event"].decode(), self.fields[b"data"])
                self.fields.clear()

    def check(self, pair: Pair) -> None:
        """The id of an event is the tag that the endpoint has for the book to which it leads."""
        target = f"/trading-view/order-book?base={pair.base}&quote={pair.quote}"
        response = request_cached(create_app(LiveIndex([self.books[pair]])), target)
        assert response
        assert response.headers["etag"] == f'W/"{self.fields[b"id"].decode()}"'

    def apply(self, event: str, data: bytes) -> None:
        self.events.append(event)
        value = json.loads(data)
        validator(SCHEMAS[event]).validate(value)
        if event == "version":
            assert b"id" not in self.fields
            self.versions.append((dict(self.books), value["as_of"]))
            return
        pair = Pair(AssetId.parse(value["base"]), AssetId.parse(value["quote"]))
        if event == "book":
            self.books[pair] = wire.order_book_from_json(data)
        elif event == "retract":
            assert b"id" not in self.fields
            self.books.pop(pair, None)
            return
        else:
            assert event == "change"
            bids, asks = (
                [(one["price"], one["accumulated_liquidity"]) for one in value[side]] for side in ("bids", "asks")
            )
            self.books[pair] = self.books[pair].apply(bids, asks, value["spot"])
        self.check(pair)


@define
class Reader:
    """A stream of an app without a server. It accepts data while `open` is set, and disconnects with `gone`."""

    copy: Copy = field(factory=Copy)
    open: asyncio.Event = field(factory=asyncio.Event)
    gone: asyncio.Event = field(factory=asyncio.Event)
    is_complete: bool = False
    task: Any = None

    async def send(self, message: Any) -> None:
        await self.open.wait()
        if message["type"] == "http.response.body":
            self.copy.read(message.get("body", b""))
            self.is_complete = not message.get("more_body")

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def has(self, version: MarketIndex, of: frozenset[Pair] | None = None) -> None:
        """Wait until the last version is this one."""
        self.open.set()
        expected = {pair: one for pair, one in version.items() if of is None or pair in of}
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not self.copy.versions or self.copy.versions[-1] != (expected, version.as_of):
                await asyncio.sleep(0)


@asynccontextmanager
async def reading(app: Any, query: str = "", *, is_open: bool = True) -> AsyncIterator[Reader]:
    reader = Reader()
    if is_open:
        reader.open.set()
    reader.task = asyncio.create_task(app(scope_of(f"/stream{query}"), reader.receive, reader.send))
    try:
        yield reader
    finally:
        reader.task.cancel()
        await asyncio.gather(reader.task, return_exceptions=True)


def query_of(pairs: frozenset[Pair] | None, levels: str | None) -> str:
    parameters = [] if pairs is None else [f"pairs={','.join(map(str, sorted(pairs)))}"]
    return "?" + "&".join(parameters + ([f"levels={levels}"] if levels else []))


# The law


@st.composite
def histories(draw: st.DrawFn) -> list[MarketIndex | str]:
    """Draw versions, and moments in which the client accepts what there is."""
    index = MarketIndex([draw(order_books(pair=PAIRS[0]))], as_of="0")
    history: list[MarketIndex | str] = [index]
    for number in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["publish", "change", "retract", "freshness", "read", "read"]))
        pair = draw(st.sampled_from(PAIRS))
        if kind == "read":
            if isinstance(history[-1], MarketIndex):
                history.append("read")
            continue
        if kind == "publish":
            index = index.with_books(draw(order_books(pair=pair)))
        elif kind == "change" and pair in index:
            earlier = index[pair]
            index = index.with_books(earlier.apply(draw(level_changes(earlier)), draw(level_changes(earlier))))
        elif kind == "retract" and index.keys() - {pair}:  # an empty index is no first version
            index = index.without(pair)
        else:
            index = index.with_freshness(Freshness(str(number)))
        history.append(index)
    return history


@pytest.mark.decision(28)
@given(histories(), st.none() | st.frozensets(st.sampled_from(PAIRS), min_size=1), st.sampled_from([None, "changed"]))
def test_after_each_version_a_client_has_what_the_endpoint_returned(history, pairs, levels):
    async def run() -> None:
        live = LiveIndex()
        live.show(history[0])
        async with reading(composed(live, stream=True), query_of(pairs, levels), is_open=False) as reader:
            shown = [history[0]]
            for step in history[1:]:
                if isinstance(step, str):
                    await reader.has(shown[-1], pairs)
                    reader.open.clear()
                else:
                    shown.append(step)
                    live.show(step)
                    await asyncio.sleep(0)
            await reader.has(shown[-1], pairs)
        possible = iter(shown)
        for books, as_of in reader.copy.versions:
            # Each version is one that was shown, and none is older than the one before.
            assert any(
                books == {pair: one for pair, one in index.items() if pairs is None or pair in pairs}
                and as_of == index.as_of
                for index in possible
            )

    asyncio.run(run())


CHANGED = book(1, 30).apply(bids=[("0.00001", 7), ("0.00002", 0)], spot="0.5")


@pytest.mark.parametrize(
    ("query", "steps", "events"),
    [
        pytest.param("?levels=changed", [[book(1, 30)], [CHANGED]], "book version change version", id="changed levels"),
        pytest.param("", [[book(1, 30)], [CHANGED]], "book version book version", id="whole books"),
        pytest.param(
            "?levels=changed",
            [[book(1, 30)], [OrderBook(numbered_pair(1))]],
            "book version book version",
            id="a change that is longer than the book",
        ),
        pytest.param(
            f"?pairs={numbered_pair(2)}",
            [[book(1)], [book(1), book(2)]],
            "retract version book version",
            id="a pair that is not tracked yet",
        ),
        pytest.param(
            f"?pairs={numbered_pair(1)}",
            [[book(1), book(2)], [book(1), book(2, spot="0.5")], [book(1), book(2)], [book(1, spot="0.6"), book(2)]],
            "book version book version",
            id="a change of other pairs, and an equal book",
        ),
        pytest.param("", [[], [book(1)], []], "book version retract version", id="the first version has a pair"),
        pytest.param(
            f"?pairs={numbered_pair(1)}",
            [[book(1), book(2)], "slot 7"],
            "book version version",
            id="a heartbeat, which concerns all clients",
        ),
    ],
)
def test_the_events_of_versions(query: str, steps: list[list[OrderBook] | str], events: str):
    """A step shows books, or publishes an as_of. What was never published is no version (decision 31)."""
    live = LiveIndex()

    async def run() -> Reader:
        async with reading(composed(live, stream=True), query) as reader:
            for step in steps:
                live.show(live.current.with_freshness(Freshness(step)) if isinstance(step, str) else MarketIndex(step))
                for _ in range(20):  # more turns of the loop than a client needs that has something to send
                    await asyncio.sleep(0)
        return reader

    copy = asyncio.run(run()).copy
    assert " ".join(copy.events) == events
    assert 1_000 <= copy.retry_milliseconds <= 1_250
    assert copy.books.items() <= live.current.items()


def test_a_slow_client_gets_fewer_versions_and_the_last_one():
    live = LiveIndex([book(1)])

    async def run() -> Reader:
        async with reading(composed(live, stream=True)) as reader:
            await reader.has(live.current)
            reader.open.clear()  # while the first changes are written
            for spot in range(1, 101):
                live.publish(book(1, spot=str(spot)))
                await asyncio.sleep(0)
            await reader.has(live.current)
        return reader

    copy = asyncio.run(run()).copy
    assert copy.books[numbered_pair(1)].spot == Decimal(100)
    assert len(copy.versions) < 5


def test_the_text_of_a_change_is_made_once_for_all_clients(monkeypatch):
    """The text of a first version is made for each client: it may be a hundred megabytes, so it is not cached."""
    made = Mock(wraps=wire.encoded_order_book)
    monkeypatch.setattr(wire, "encoded_order_book", made)
    live = LiveIndex([book(1), book(2)])
    app = composed(live, stream=True)

    async def run() -> None:
        async with reading(app) as one, reading(app) as other:
            for spot, expected in (("0.5", 2 * 2), ("0.6", 2 * 2 + 1)):
                live.publish(book(1, spot=spot))
                await one.has(live.current)
                await other.has(live.current)
                assert made.call_count == expected

    asyncio.run(run())


def test_a_client_of_a_quiet_pair_keeps_no_old_version():
    live = LiveIndex([book(1), book(2)])

    async def run() -> None:
        async with reading(composed(live, stream=True), f"?pairs={numbered_pair(1)}") as reader:
            await reader.has(MarketIndex([book(1)]))
            old = ref(live.current)
            live.publish(book(2, spot="0.5"))
            async with asyncio.timeout(DEADLINE_SECONDS):
                spots = count(1)
                while old() is not None:
                    live.publish(book(2, spot=str(next(spots))))
                    await asyncio.sleep(0)
                    gc.collect()

    asyncio.run(run())


def test_a_client_of_a_quiet_market_gets_comments_also_while_another_one_ends_slowly(monkeypatch):
    """The `send` of a middleware may take long to clean up after its cancellation."""
    monkeypatch.setattr(audience, "CHECK_SECONDS", 2**-10)
    monkeypatch.setattr(audience, "PING_SECONDS", 2**-9)
    monkeypatch.setattr(audience, "SEND_SECONDS", 2**-8)
    live = LiveIndex([book(1)])
    app = composed(live, stream=True)
    cancelled, released = asyncio.Event(), asyncio.Event()

    async def send(_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await released.wait()

    async def run() -> None:
        async with reading(app) as other, asyncio.timeout(DEADLINE_SECONDS):
            ending = asyncio.create_task(app(scope_of("/stream"), Reader().receive, send))
            try:
                await cancelled.wait()
                comments = other.copy.comments
                while other.copy.comments < comments + 3:
                    await asyncio.sleep(0)
                assert other.copy.events == ["book", "version"]
            finally:
                released.set()
            await ending

    asyncio.run(run())


@pytest.mark.parametrize("has_written", [True, False])
@pytest.mark.parametrize("by", ["time", "shutdown"])
def test_a_client_that_accepts_nothing_is_closed(by: str, has_written: bool, monkeypatch):
    """After 30 seconds, and at once at a shutdown, also if it does not accept the end of its stream."""
    monkeypatch.setattr(audience, "CHECK_SECONDS", 2**-10)
    monkeypatch.setattr(audience, "PING_SECONDS", 2**-9)
    monkeypatch.setattr(audience, "SEND_SECONDS", 2**-8 if by == "time" else 2**20)
    live = LiveIndex([book(1)])
    app = composed(live, stream=True)

    async def run() -> None:
        async with (
            reading(app) as other,
            reading(app, is_open=has_written) as stalled,
            asyncio.timeout(DEADLINE_SECONDS),
        ):
            await other.has(live.current)
            if has_written:
                await stalled.has(live.current)
                stalled.open.clear()
            if by == "shutdown":
                app.end_streams()
                await other.task
            await stalled.task
            assert other.task.done() == (by == "shutdown")
            assert other.is_complete == (by == "shutdown")
            assert not stalled.is_complete

    asyncio.run(run())


def test_a_client_that_leaves_gets_no_more_of_a_large_version():
    """A server accepts all that is sent to a client that has just disconnected."""
    live = LiveIndex(map(book, range(200)))

    async def run() -> Reader:
        async with reading(composed(live, stream=True)) as reader, asyncio.timeout(DEADLINE_SECONDS):
            while not reader.copy.events:
                await asyncio.sleep(0)
            reader.gone.set()
            await reader.task
        return reader

    assert len(asyncio.run(run()).copy.events) < 100


def test_in_each_turn_of_the_event_loop_one_of_many_new_clients_is_served():
    """The loop must accept connections, and respond to other requests, while many streams begin."""
    live = LiveIndex(map(book, range(200)))
    app = composed(live, stream=True)
    pieces: Counter[int] = Counter()
    turn = 0

    async def send(message: Any) -> None:
        pieces[turn] += len(message.get("body", b"")) >= steps.PIECE_BYTES

    async def run() -> None:
        nonlocal turn
        reader = Reader()
        tasks = [asyncio.create_task(app(scope_of("/stream"), reader.receive, send)) for _ in range(20)]
        async with asyncio.timeout(DEADLINE_SECONDS), reading(app) as last:
            while not last.copy.versions:
                turn += 1
                await asyncio.sleep(0)
        reader.gone.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())
    assert pieces.total() >= 20
    assert max(pieces.values()) == 1


def test_an_unexpected_error_ends_all_streams_and_the_next_one_works(monkeypatch, caplog):
    """Without it, the clients get comments for ever, and look live."""
    live = LiveIndex([book(1)])
    app = composed(live, stream=True, metrics=True)

    async def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    async def run() -> None:
        async with reading(app) as reader, reading(app) as other:
            await reader.has(live.current)
            await other.has(live.current)
            with monkeypatch.context() as patched:
                patched.setattr(LiveIndex, "changed", fail)
                live.publish(book(2))
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await asyncio.gather(reader.task, other.task)
            assert reader.is_complete
            assert other.is_complete
        async with reading(app) as reader:
            await reader.has(live.current)

    asyncio.run(run())
    assert caplog.messages == ["unexpected error: all streams end"]
    assert "RuntimeError: a defect" in caplog.text
    assert b'market_index_stream_failures_total{worker="0"} 1.0' in request(app, "/metrics").body


@pytest.mark.parametrize("query", ["", f"?pairs={numbered_pair(1)}", f"?pairs={numbered_pair(9)}"])
@pytest.mark.parametrize("reads_on", [True, False])
def test_nothing_of_a_client_that_has_left_stays_in_memory(query, reads_on):
    """Neither while another client stays, nor when all have left. The last pair is not tracked."""
    live = LiveIndex([book(1), book(2)])
    stream = Stream(live)

    async def visited() -> ref[MarketIndex]:
        """Return the version that a client had which has left."""
        async with reading(stream, query) as reader:
            while not reader.copy.versions:
                await asyncio.sleep(0)
            if not reads_on:
                reader.open.clear()
            old = ref(live.current)
            live.publish(book(1, spot="0.5"))
            await asyncio.sleep(0)
            reader.gone.set()
            reader.open.set()
            await reader.task
        return old

    async def run() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS), reading(stream) as staying:
            old = await visited()
            live.publish(book(1, spot="0.6"))
            await staying.has(live.current)
            assert len(stream) == 1
            gc.collect()
            assert old() is None
            stream.end()
            await staying.task
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0)
        assert len(stream) == 0

    asyncio.run(run())


def test_streams_in_several_event_loops_follow_one_index():
    live = LiveIndex([book(1)])
    app = composed(live, stream=True)
    ready = threading.Barrier(3)

    def one() -> None:
        async def run() -> None:
            async with reading(app) as reader:
                await reader.has(MarketIndex([book(1)]))
                await asyncio.to_thread(ready.wait)
                await reader.has(MarketIndex([book(1, spot="0.5")]))

        asyncio.run(run())

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait(DEADLINE_SECONDS)
    live.publish(book(1, spot="0.5"))
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()


# The request


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("?pairs=", "Query parameter 'pairs': a pair must be BASE/QUOTE, got ''"),
        ("?pairs=ADA", "Query parameter 'pairs': a pair must be BASE/QUOTE, got 'ADA'"),
        ("?pairs=ADA/ada", "Query parameter 'pairs': an asset identifier must be ADA or policy:name in hex, got 'ada'"),
        ("?pairs=ADA/ADA&pairs=ADA/ADA", "Query parameter 'pairs' must be given once, got ['ADA/ADA', 'ADA/ADA']"),
        ("?levels=all", "Query parameter 'levels' must be 'changed', got 'all'"),
        (f"?pairs={'x' * 9000}", "The request target must have at most 8192 bytes"),
    ],
)
def test_a_malformed_request_is_400_with_the_error_body(query, message):
    response = request(composed(LiveIndex(), stream=True), f"/stream{query}")
    assert (response.status, json.loads(response.body)) == (400, {"error": message})


def test_head_has_the_fields_and_no_events():
    response = request(composed(LiveIndex([book(1)]), stream=True), "/stream", "HEAD")
    assert response.status == 200
    assert response.body == b""
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"


# A real server


def test_the_program_of_the_page_checks_a_book_that_it_has_followed(tmp_path):
    found = re.search(r"^```python\n# check.py\n(.*?)^```$", CLIENTS.read_text(), re.DOTALL | re.MULTILINE)
    assert found
    (tmp_path / "check.py").write_text(found[1])
    live, pair = LiveIndex([book(1, 30), book(2)]), numbered_pair(1)
    with served(composed(live, stream=True)) as service:
        url = f"http://127.0.0.1:{service.port}"
        command = [sys.executable, "check.py", url, str(pair)]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            try:
                assert process.stdout.readline() == "True\n"
                for levels in ([("0.00001", 7)], [("0.00002", 0), ("0.5", 1)], [("0.5", 0)]):
                    live.publish(live.current[pair].apply(bids=levels, spot="0.5"))
                    assert process.stdout.readline() == "True\n"
            finally:
                process.kill()
        is_equal = run_path(str(tmp_path / "check.py"))["is_equal"]
        response = service.order_book(str(pair.base), str(pair.quote))
        tag = response.headers["etag"].split('"')[1]
        assert is_equal(url, response.json, tag) is True
        assert is_equal(url, response.json | {"bids": []}, tag) is False
        assert is_equal(url, response.json, "0") is None


HOST = """
from fastapi import FastAPI
from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair
from market_index_http import create_app
from market_index_http.stream import Stream
live = LiveIndex([OrderBook(Pair(AssetId(bytes(28), b"SNEK"), ADA), spot="1")])
app = FastAPI()
app.mount("/api", create_app(live, routes=[Stream(live).route()]))
"""


def test_a_host_under_plain_uvicorn_ends_its_streams_at_a_signal(tmp_path):
    (tmp_path / "host.py").write_text(HOST)
    command = [sys.executable, "-m", "uvicorn", "host:app", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        started = next(line for line in process.stderr if "running on" in line)
        port = int(started.rpartition("127.0.0.1:")[2].split()[0])
        clients = [Client(port) for _ in range(20)]
        for client in clients:
            client.socket.sendall(b"GET /api/stream HTTP/1.1\r\nHost: test\r\n\r\n")
            while b"event: version" not in client.socket.recv(65536):
                pass
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(DEADLINE_SECONDS)
        finally:
            process.kill()
        rest = process.stderr.read()
        for client in clients:
            while client.socket.recv(65536):
                pass
            client.close()
    assert "Traceback" not in rest, rest
    assert "ERROR" not in rest, rest
    assert process.returncode == -signal.SIGTERM  # uvicorn raises the signal again after its shutdown
