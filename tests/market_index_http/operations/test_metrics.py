"""`/metrics`, read by the parser of prometheus-client, of an app that a real server serves."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from math import inf
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from starlette.middleware.base import BaseHTTPMiddleware

from market_index import LiveIndex, OrderBook
from market_index_http import Counters, Health, create_app
from market_index_http.counters import ENDPOINTS, GAUGES, OTHER, STATUSES
from market_index_http.operations.metrics import metrics_text
from tests.feed_state import FeedState
from tests.market_index_http.books import LARGE, MIDDLE, book, fetch, numbered_pair, target
from tests.metrics import Samples, samples_of, samples_of_text, scrape
from tests.service import Client, Service, served
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread

BOOK = "/trading-view/order-book"
LIST = "/trading-view/pair-list"


@pytest.fixture
def live() -> LiveIndex:
    return LiveIndex([MIDDLE])


@pytest.fixture
def feed() -> FeedState:
    return FeedState()


@pytest.fixture
def service(live: LiveIndex, feed: FeedState) -> Iterator[Service]:
    with served(create_app(live, max_wait=60, health=Health(feed, 60), metrics=True)) as service:
        yield service


class SlowFeed(FeedState):
    """A feed whose state is known once `resume` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.observed, self.resume = Event(), Event()
        self.resumed: list[bool] = []

    @property
    def retries(self) -> int:
        self.observed.set()
        self.resumed.append(self.resume.wait(DEADLINE_SECONDS))
        return 0

    @retries.setter
    def retries(self, _: int) -> None:
        pass


def requests(samples: Samples, endpoint: str, status: int | str) -> float:
    return samples["market_index_requests_total", f"endpoint={endpoint}", f"status={status}"]


def body_bytes(samples: Samples, endpoint: str) -> float:
    return samples["market_index_response_body_bytes_total", f"endpoint={endpoint}"]


def encodings(samples: Samples) -> tuple[float, float]:
    name = "market_index_encodings_total"
    return samples[name, "result=computed"], samples[name, "result=reused"]


def of_worker(samples: Samples, name: str) -> float | None:
    return samples.get((name, "worker=0"))


class TestFormat:
    """The text format 0.0.4, as Prometheus reads it."""

    def test_the_response_says_its_format_and_is_not_cached(self, service: Service):
        answer = service.request("/metrics")
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        assert service.request("/metrics", "HEAD").body == b""
        assert service.request("/metrics", "POST").status == 405

    def test_each_metric_has_a_type_and_a_description(self, service: Service):
        families = list(text_string_to_metric_families(service.request("/metrics").body.decode()))
        assert len({one.name for one in families}) == len(families)
        for family in families:
            assert family.documentation.endswith(".")
            # The parser removes the suffix of counters.
            is_counter = any(sample.name.endswith("_total") for sample in family.samples)
            assert family.type == ("counter" if is_counter else "gauge"), family.name

    def test_numbers_are_exact_and_infinity_has_the_name_of_the_format(self):
        counters = Counters()
        counters.count("/livez", 200, 2**49 + 1)
        counters.flush()
        counters.set_gauge("feed_published", -inf)
        counters.set_gauge("feed_revision", 1_234_567_890_123)
        text = metrics_text(counters)
        assert f'market_index_response_body_bytes_total{{endpoint="/livez"}} {2**49 + 1}\n' in text
        assert 'market_index_feed_revision{worker="0"} 1234567890123\n' in text
        assert 'market_index_feed_quiet_seconds{worker="0"} +Inf\n' in text
        assert samples_of_text(text)["market_index_feed_quiet_seconds", "worker=0"] == inf


class TestRequests:
    """Responses by endpoint and status, their bytes, and how their bodies were made."""

    def test_each_response_is_counted_once(self, service: Service, live: LiveIndex):
        with closing(Client(service.port)) as client:
            answers = [fetch(client, target(MIDDLE.pair)) for _ in range(3)]
            etag = answers[0].headers["etag"]
            assert fetch(client, target(MIDDLE.pair), If_None_Match=etag).status == 304
            answers.append(fetch(client, target(MIDDLE.pair), Accept_Encoding="gzip"))
            assert fetch(client, target(MIDDLE.pair), "HEAD").status == 200
            errors = [fetch(client, BOOK), fetch(client, f"{BOOK}?base=ADA&quote=ADA")]
            lists = [fetch(client, LIST), fetch(client, LIST)]
            nowhere = [fetch(client, "/nowhere"), fetch(client, f"{BOOK}/")]
            assert fetch(client, LIST, "POST").status == 405
            samples = samples_of(fetch(client, "/metrics"))
        assert {status: requests(samples, BOOK, status) for status in (200, 304, 400, 404, 500)} == {
            200: 5, 304: 1, 400: 1, 404: 1, 500: 0,
        }  # fmt: skip
        assert requests(samples, LIST, 200) == 2
        assert requests(samples, LIST, 405) == 1
        assert requests(samples, "other", 404) == 2
        assert body_bytes(samples, BOOK) == sum(len(one.body) for one in answers + errors)
        assert body_bytes(samples, "other") == sum(len(one.body) for one in nowhere)
        assert body_bytes(samples, LIST) == sum(len(one.body) for one in lists) + len('{"error":"Method Not Allowed"}')
        assert requests(samples, "/metrics", 200) == 0, "the first scrape"
        assert requests(scrape(service), "/metrics", 200) == 1

    @pytest.mark.parametrize("coding", ["identity", "gzip"])
    def test_the_bytes_of_a_body_in_slices_are_counted(self, coding: str):
        large = book(3, 9_000)
        with served(create_app(LiveIndex([large, LARGE]), metrics=True)) as service:
            with closing(Client(service.port)) as client:
                answers = [fetch(client, target(large.pair), Accept_Encoding=coding) for _ in range(3)]
            samples = scrape(service)
        # The first response is sent by a route, the others by the fast path. The client counts compressed bytes too.
        assert body_bytes(samples, BOOK) == sum(int(one.headers["content-length"]) for one in answers)
        assert requests(samples, BOOK, 200) == 3

    def test_a_failure_is_counted(self, service: Service, monkeypatch: pytest.MonkeyPatch):
        def fail(*_: object, **__: object) -> bytes:
            raise RuntimeError("a defect")

        monkeypatch.setattr("market_index_http.bodies.encoded_pair_list", fail)
        assert service.pair_list().status == 500
        assert requests(scrape(service), LIST, 500) == 1

    def test_encodings_are_computed_once_and_reused(self, service: Service, live: LiveIndex):
        for _ in range(5):
            service.request(target(MIDDLE.pair))
            service.pair_list()
        assert encodings(scrape(service)) == (2, 8)
        live.publish(book(2, 31))
        service.request(target(MIDDLE.pair))
        assert encodings(scrape(service)) == (3, 8)

    def test_requests_are_counted_below_a_mount_and_below_middleware(self, live: LiveIndex):
        async def passing_on(request: Any, call_next: Any) -> Any:
            return await call_next(request)

        app = create_app(live, metrics=True)
        app.add_middleware(BaseHTTPMiddleware, dispatch=passing_on)
        host = FastAPI()
        host.mount("/plain", create_app(live, metrics=True))
        host.mount("/api", app)
        with served(host) as service:
            for prefix in ("/plain", "/api"):
                for _ in range(3):
                    assert service.pair_list(prefix).status == 200
                samples = scrape(service, prefix)
                assert requests(samples, LIST, 200) == 3
                assert body_bytes(samples, LIST) == 3 * len(service.pair_list(prefix).body)

    def test_another_protocol_than_http_is_not_counted(self, live: LiveIndex):
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "lifespan.startup" if not sent else "lifespan.shutdown"}

        async def send(message: Any) -> None:
            sent.append(message)

        app = create_app(live, metrics=(counters := Counters()))
        asyncio.run(app({"type": "lifespan", "asgi": {}, "state": {}}, receive, send))
        assert [one["type"] for one in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert counters.requests("other", 200) == 0


class TestState:
    """The state of the index, the feed and the process."""

    def test_pairs_and_crossed_pairs(self, service: Service, live: LiveIndex):
        def counts() -> tuple[float | None, float | None]:
            samples = scrape(service)
            return of_worker(samples, "market_index_pairs"), of_worker(samples, "market_index_crossed_pairs")

        def with_prices(number: int, bid: str, ask: str) -> OrderBook:
            return OrderBook.from_levels(numbered_pair(number), bids=[(bid, 1)], asks=[(ask, 1)])

        assert counts() == (1, 0)
        live.publish(with_prices(5, "2", "1"), with_prices(6, "3", "1"), with_prices(7, "1", "1"))
        assert counts() == (4, 2)
        live.publish(with_prices(5, "1", "2"), with_prices(7, "2", "1"))
        assert counts() == (4, 2)
        live.retract(numbered_pair(6))
        assert counts() == (3, 1)
        assert counts() == (3, 1)

    def test_the_feed(self, service: Service, feed: FeedState):
        feed.revision, feed.rejected, feed.current_rejections, feed.retries = 7, 5, 2, 3
        feed.age, feed.quiet_age, feed.change_age = 10, 20, 30
        samples = scrape(service)
        assert of_worker(samples, "market_index_feed_revision") == 7
        assert of_worker(samples, "market_index_feed_rejected_records_total") == 5
        assert of_worker(samples, "market_index_feed_current_rejections") == 2
        assert of_worker(samples, "market_index_feed_retries_total") == 3
        assert of_worker(samples, "market_index_ready") == 1
        for name, age in (("age", 10), ("quiet", 20), ("unchanged", 30)):
            found = of_worker(samples, f"market_index_feed_{name}_seconds")
            assert found is not None
            assert age <= found < age + DEADLINE_SECONDS
        feed.age = 61
        assert of_worker(scrape(service), "market_index_ready") == 0

    def test_other_requests_are_answered_while_the_numbers_are_updated(self, live: LiveIndex):
        feed = SlowFeed()
        with served(create_app(live, health=Health(feed, 60), metrics=True)) as service, ExitStack() as stack:
            stack.callback(feed.resume.set)
            thread = in_thread(lambda: scrape(service))
            assert feed.observed.wait(DEADLINE_SECONDS)
            assert service.pair_list().status == 200
            feed.resume.set()
            thread.join(DEADLINE_SECONDS)
        assert False not in feed.resumed

    def test_what_is_not_known_has_no_sample(self, live: LiveIndex, service: Service):
        samples = scrape(service)
        for name in ("feed_revision", "feed_retained_seconds", "open_connections", "max_connections"):
            assert of_worker(samples, f"market_index_{name}") is None
        with served(create_app(live, metrics=True)) as without_feed:
            samples = scrape(without_feed)
        for name in ("ready", "feed_age_seconds", "feed_quiet_seconds", "feed_current_rejections"):
            assert of_worker(samples, f"market_index_{name}") is None
        assert of_worker(samples, "market_index_pairs") == 1

    def test_waiting_requests(self, service: Service, live: LiveIndex):
        with closing(Client(service.port)) as client:
            etag = fetch(client, LIST).headers["etag"]
            thread = in_thread(lambda: fetch(client, LIST, If_None_Match=etag, Prefer="wait=60"))
            eventually(lambda: of_worker(scrape(service), "market_index_waiting_requests") == 1)
            live.publish(book(9))
            thread.join(DEADLINE_SECONDS)
        eventually(lambda: of_worker(scrape(service), "market_index_waiting_requests") == 0)

    def test_the_process(self, service: Service):
        first, second = scrape(service), scrape(service)
        for name in ("process_cpu_seconds_total", "process_start_time_seconds"):
            assert 0 < (of_worker(first, name) or 0) <= (of_worker(second, name) or 0)

    @pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
    def test_the_memory_and_files_of_the_process(self, service: Service):
        samples = scrape(service)
        assert (of_worker(samples, "process_resident_memory_bytes") or 0) > 2**20
        assert (of_worker(samples, "process_open_fds") or 0) > 3

    def test_a_process_that_has_ended_has_no_memory_and_no_files(self):
        counters = Counters()
        counters.set_gauge("process_id", 2**22 + os.getpid())  # above the largest process id of Linux
        samples = samples_of_text(metrics_text(counters))
        assert of_worker(samples, "process_resident_memory_bytes") is None
        assert of_worker(samples, "process_open_fds") is None


DOCUMENTED = re.compile(r"^\| `(\w+)` \| ([^|]*) \| (counter|gauge) \|", re.MULTILINE)


def test_the_docs_list_each_metric_with_its_labels_and_its_type():
    counters = Counters()
    for name in GAUGES:
        counters.set_gauge(name, os.getpid())
    found = {
        (sample.name, frozenset(sample.labels), family.type)
        for family in text_string_to_metric_families(metrics_text(counters))
        for sample in family.samples
    }
    page = (Path(__file__).resolve().parents[3] / "docs" / "operating.md").read_text()
    listed = DOCUMENTED.findall(page)
    assert {(name, frozenset(re.findall(r"`(\w+)`", labels)), kind) for name, labels, kind in listed} == found
    assert all(f"`{label}`" in page for label in (*ENDPOINTS, OTHER))
    assert all(str(status) in page for status in STATUSES)
