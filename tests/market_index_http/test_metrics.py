"""`/metrics`, read by the parser of prometheus-client, of one process and of several."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from itertools import product
from math import inf
from pathlib import Path
from threading import Event
from time import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.middleware.cors import CORSMiddleware

from market_index import Freshness, LiveIndex
from market_index_cli.server.exposition import SLOT_BYTES, Exposition, clear_slot
from market_index_cli.server.http_server import Server
from market_index_http import create_app
from market_index_http.operating import Health
from market_index_http.operating.counting import Responses
from tests.apps import composed
from tests.asgi import request
from tests.feed_state import FeedState
from tests.market_index_http.books import MIDDLE, PAIR_LIST, book, fetch, numbered_pair, target
from tests.metrics import Samples, samples_of, samples_of_text, scrape
from tests.service import Client, Service, served
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread

BOOK = "/trading-view/order-book"


@pytest.fixture
def live() -> LiveIndex:
    return LiveIndex([MIDDLE])


@pytest.fixture
def feed() -> FeedState:
    return FeedState()


@pytest.fixture
def service(live: LiveIndex, feed: FeedState) -> Iterator[Service]:
    with served(composed(live, stream=True, health=Health(feed, 60), metrics=True)) as service:
        yield service


def requests(samples: Samples, endpoint: str, status: int, worker: int = 0) -> float:
    key = "market_index_requests_total", f"endpoint={endpoint}", f"status={status}", f"worker={worker}"
    return samples.get(key, 0)


def of_worker(samples: Samples, name: str, worker: int = 0) -> float | None:
    return samples.get((f"market_index_{name}", f"worker={worker}"))


class TestRequests:
    """Responses by endpoint and status."""

    def test_each_response_is_counted_once(self, live: LiveIndex, service: Service, monkeypatch: pytest.MonkeyPatch):
        with closing(Client(service.port)) as client:
            # The server sends these, with the cached responses of the app.
            etag, *_ = [fetch(client, target(MIDDLE.pair)).headers["etag"] for _ in range(3)]
            assert fetch(client, target(MIDDLE.pair), If_None_Match=etag).status == 304
            assert fetch(client, target(MIDDLE.pair), Accept_Encoding="gzip").status == 200
            assert fetch(client, target(MIDDLE.pair), "HEAD").status == 200
            for where in (BOOK, f"{BOOK}?base=ADA&quote=ADA", PAIR_LIST, PAIR_LIST, "/nowhere", f"{BOOK}/"):
                fetch(client, where)
            assert fetch(client, PAIR_LIST, "POST").status == 405
            with monkeypatch.context() as patched:
                patched.setattr("market_index_http.snapshots.encoded_order_book", None)
                live.publish(book(9))
                assert service.request(target(numbered_pair(9))).status == 500
            samples = samples_of(fetch(client, "/metrics"))
        assert {status: requests(samples, BOOK, status) for status in (200, 304, 400, 404, 500)} == {
            200: 5, 304: 1, 400: 1, 404: 1, 500: 1,
        }  # fmt: skip
        assert requests(samples, PAIR_LIST, 200) == 2
        assert requests(samples, PAIR_LIST, 405) == 1
        assert requests(samples, "other", 404) == 2
        assert requests(samples, "/metrics", 200) == 0, "the first scrape"
        again = service.request("/metrics")
        assert requests(samples_of(again), "/metrics", 200) == 1
        assert again.headers["content-type"].startswith("text/plain; version=")
        assert again.headers["cache-control"] == "no-store"

    def test_times_and_bytes_of_the_responses(self, service: Service):
        """Of cached responses, of those of the app, and of errors of the server itself. HEAD has no bytes."""
        bytes_of = Counter[str]()
        with closing(Client(service.port)) as client:
            for path, query in ((BOOK, target(MIDDLE.pair).removeprefix(BOOK)), (BOOK, "?base=ADA"), ("/livez", "")):
                for method in ("GET", "HEAD"):
                    bytes_of[path] += len(fetch(client, path + query, method).body)
            bytes_of["other"] = len(client.send(b"nonsense\r\n\r\n").body)
        samples = scrape(service)
        for path, number in ((BOOK, 4), ("/livez", 2), ("other", 1)):

            def of_path(name: str, *le: str, path: str = path) -> float:
                return samples[f"market_index_response_{name}", f"endpoint={path}", *le, "worker=0"]

            assert of_path("bytes_total") == bytes_of[path] > 0
            counts = [
                of_path("seconds_bucket", f"le={one}") for one in ("0.001", "0.005", "0.02", "0.1", "1.0", "+Inf")
            ]
            assert counts == sorted(counts)
            assert counts[-1] == of_path("seconds_count") == number
            assert of_path("seconds_sum") > 0

    def test_responses_of_middleware_around_the_app_are_counted(self):
        """As the command does it, to allow pages of other origins."""
        responses = Responses([PAIR_LIST])
        app = CORSMiddleware(create_app(LiveIndex()), allow_origins=["*"])
        with served(app, Server(app, responses=responses)) as service, closing(Client(service.port)) as client:
            asked = "Origin: https://page.example\r\nAccess-Control-Request-Method: GET\r\n"
            assert client.request(PAIR_LIST, "OPTIONS", asked).status == 200
        assert responses[PAIR_LIST].statuses[200] == 1


class TestState:
    """The state of the index, the feed and the process."""

    def test_the_feed(self, service: Service, feed: FeedState):
        feed.revision, feed.rejected, feed.current_rejections, feed.retries = 7, 5, 2, 3
        feed.age, feed.quiet_age, feed.change_age = 10, 20, inf
        before, samples, after = time(), scrape(service), time()
        found = {name: of_worker(samples, f"feed_{name}") for name in ("revision", "current_rejections")}
        assert found == {"revision": 7, "current_rejections": 2}
        assert of_worker(samples, "feed_rejected_records_total") == 5
        assert of_worker(samples, "feed_retries_total") == 3
        assert "skipped" not in str(samples)
        feed.skipped_by_reason = {"expired": 3, "any price, or out of range": 1}
        text = service.request("/metrics").body.decode()
        assert 'market_index_feed_skipped_outputs{reason="expired",worker="0"} 3.0' in text
        assert 'market_index_feed_skipped_outputs{reason="any price, or out of range",worker="0"} 1.0' in text
        assert of_worker(samples, "ready") == 1
        for name, age in (("healthy", 10), ("published", 20)):
            assert before <= (of_worker(samples, f"feed_{name}_timestamp_seconds") or 0) + age <= after
        assert of_worker(samples, "feed_changed_timestamp_seconds") == 0, "never"
        feed.age = 61
        assert of_worker(scrape(service), "ready") == 0

    def test_other_requests_are_answered_while_the_numbers_are_updated(self, live: LiveIndex):
        observed, resume = Event(), Event()

        class SlowFeed(FeedState):
            def __getattribute__(self, name: str) -> Any:
                if name == "age":
                    observed.set()
                    assert resume.wait(DEADLINE_SECONDS)
                return super().__getattribute__(name)

        with served(composed(live, health=Health(SlowFeed(), 60), metrics=True)) as service, ExitStack() as stack:
            stack.callback(resume.set)
            thread = in_thread(lambda: scrape(service))
            assert observed.wait(DEADLINE_SECONDS)
            assert service.pair_list().status == 200
            resume.set()
            thread.join(DEADLINE_SECONDS)

    def test_what_is_not_known_has_no_sample(self, live: LiveIndex, service: Service):
        samples = scrape(service)
        for name in ("feed_revision", "open_connections", "max_connections"):
            assert of_worker(samples, name) is None
        for health, ready in ((None, None), (Health(), 0)):
            samples = samples_of_text(request(composed(live, health=health, metrics=True), "/metrics").body.decode())
            assert of_worker(samples, "ready") == ready
            assert of_worker(samples, "feed_healthy_timestamp_seconds") is None
            assert of_worker(samples, "pairs") == 1

    def test_open_streams(self, service: Service):
        with closing(Client(service.port)) as client:
            client.socket.sendall(b"GET /stream HTTP/1.1\r\nHost: test\r\n\r\n")
            eventually(lambda: of_worker(scrape(service), "streams") == 1)
        eventually(lambda: of_worker(scrape(service), "streams") == 0)


def worker(slots: bytearray, number: int, lists: int = 0) -> Exposition:
    """Return the metrics of a worker that has sent so many pair lists."""
    live, exposition = LiveIndex(), Exposition(slots, number)
    exposition.metrics.watch(create_app(live), live, name=str(number)).responses[PAIR_LIST].statuses[200] += lists
    exposition.write()
    return exposition


class TestWorkers:
    """Several processes that share a buffer."""

    def test_any_worker_answers_for_all(self):
        slots = bytearray(3 * SLOT_BYTES)
        workers = [worker(slots, number, lists) for number, lists in ((0, 1), (2, 2))]
        for one in workers:
            samples = samples_of_text(one.text().decode())
            assert [requests(samples, PAIR_LIST, 200, number) for number in range(3)] == [1, 0, 2]
            assert [of_worker(samples, "pairs", number) for number in range(3)] == [0, None, 0]
            assert {key[1] for key in samples if key[0] == "process_max_fds"} == {"worker=0", "worker=2"}

    def test_a_worker_that_has_ended_has_no_samples(self):
        slots = bytearray(2 * SLOT_BYTES)
        assert not clear_slot(slots, 0)
        left = worker(slots, 0)
        worker(slots, 1)
        assert b'worker="1"' in left.text()
        assert clear_slot(slots, 1), "it has served"
        assert b'worker="1"' not in left.text()

    def test_a_text_that_is_not_wholly_written_is_not_read(self):
        slots = bytearray(2 * SLOT_BYTES)
        left = worker(slots, 0)
        worker(slots, 1)
        slots[SLOT_BYTES + 1_000] ^= 1
        assert b'worker="1"' not in left.text()


def test_a_failure_is_an_increase_from_0():
    """Prometheus does not see the first increase of a series that begins with it."""
    samples = samples_of_text(request(composed(LiveIndex(), metrics=True), "/metrics").body.decode())
    for path, status in product((PAIR_LIST, BOOK, "/metrics", "other"), (500, 503)):
        assert samples["market_index_requests_total", f"endpoint={path}", f"status={status}", "worker=0"] == 0


def test_the_docs_list_each_metric(service: Service, feed: FeedState):
    feed.revision, feed.skipped_by_reason, feed.figures = 1, {"expired": 1}, {"slot": 100}
    names = ["open_connections", "max_connections", "closed_connections", "workers", "cached_responses"]
    server = dict.fromkeys([*names, "relay_keeping", "relay_written_timestamp_seconds"], 1)
    live = LiveIndex()
    live.update((), freshness=Freshness("slot 1", datetime(2026, 11, 22, tzinfo=UTC)))
    app = composed(live, health=Health(feed), metrics=True, server=server)
    families = list(text_string_to_metric_families(request(app, "/metrics").body.decode()))
    assert all(family.documentation.endswith(".") for family in families)
    names_of_samples = {one.name.removeprefix("market_index_") for family in families for one in family.samples}
    found = {re.sub("_(bucket|count|sum)$", "", name) for name in names_of_samples if not name.startswith("process_")}
    page = (Path(__file__).resolve().parents[2] / "docs" / "operating.md").read_text()
    _, _, section = page.partition("After `market_index_`, the names are:")
    listed = re.findall(r"`(\w+)`", section.partition("\n\nTimestamps")[0])
    assert {*listed} - {"endpoint", "other", "status", "reason", "figure"} == found
