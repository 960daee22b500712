"""Requests that wait: those that are started, ended and answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from threading import Event
from threading import enumerate as all_threads
from time import monotonic

import pytest

from market_index import LiveIndex, Pair
from market_index_feeds.errors import Unavailable
from market_index_feeds.http.client import BaseUrl, NotFound, ServiceClient, ServiceRequest, ServiceResponse
from market_index_feeds.http.limits import PollingLimits
from market_index_feeds.http.waits import Waits
from market_index_http import create_app
from tests.faults import upstreams
from tests.market_index_feeds.http.services import LIST
from tests.market_index_feeds.made_up import book, pair
from tests.service import served
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread

BOOK_OF_1 = f"/trading-view/order-book?base={pair(1).base}&quote=ADA"


@pytest.fixture
def stop() -> Event:
    return Event()


@pytest.fixture
def client(upstream: LiveIndex, stop: Event) -> Iterator[ServiceClient]:
    with served(create_app(upstream, max_wait=60)) as one, closing(client_of(one.port, stop)) as client:
        yield client


def client_of(port: int, stop: Event, **limits: float) -> ServiceClient:
    return ServiceClient(BaseUrl.parse(f"http://127.0.0.1:{port}"), PollingLimits(**limits), stop)  # type: ignore[arg-type]  # each is a number


def waiting(client: ServiceClient, target: str, seconds: int = 60) -> ServiceRequest:
    """Return a request that waits for a change of the present content."""
    return ServiceRequest(target, client.get(ServiceRequest(target, "", 10_000)).etag, 10_000, seconds)


def test_a_request_is_answered_when_its_content_changes(upstream: LiveIndex, client: ServiceClient, stop: Event):
    requests: dict[Pair | None, ServiceRequest] = {None: waiting(client, LIST), pair(1): waiting(client, BOOK_OF_1)}
    with closing(Waits(client)) as waits:
        waits.replace(requests)
        assert waits.include([None, pair(1)])
        assert not waits.include([pair(1), pair(2)])
        assert waits.outcomes(0.05, stop) == {}
        upstream.publish(book(1, 1).apply(bids=[("1", 77)]))
        (outcome,) = waits.outcomes(DEADLINE_SECONDS, stop).values()
        assert isinstance(outcome, ServiceResponse)
        assert b"77" in (outcome.body or b"")
        assert outcome.has_waited
        assert outcome.etag != requests[pair(1)].etag
        assert not waits.include([pair(1)])
        # Only the request that was answered is started again.
        waits.replace(requests)
        assert waits.outcomes(DEADLINE_SECONDS, stop).keys() == {pair(1)}
        upstream.retract(pair(1))
        waits.replace({pair(1): waits_for(outcome)})
        assert isinstance(waits.outcomes(DEADLINE_SECONDS, stop)[pair(1)], NotFound)


def waits_for(outcome: ServiceResponse) -> ServiceRequest:
    return ServiceRequest(BOOK_OF_1, outcome.etag, 10_000, 60)


def test_all_requests_that_are_over_are_returned_together(upstream: LiveIndex, client: ServiceClient, stop: Event):
    with closing(Waits(client)) as waits:
        waits.replace({None: waiting(client, LIST), pair(1): waiting(client, BOOK_OF_1)})
        upstream.publish(book(1, 9))
        eventually(lambda: all(one.is_over for one in waits._open.values()))
        assert waits.outcomes(0, stop).keys() == {None, pair(1)}
        assert waits.outcomes(0, stop) == {}


def test_a_request_that_the_service_does_not_let_wait_is_answered_as_unchanged(upstream: LiveIndex, stop: Event):
    with (
        served(create_app(upstream)) as one,
        closing(client_of(one.port, stop)) as client,
        closing(Waits(client)) as waits,
    ):
        waits.replace({None: waiting(client, LIST)})
        outcome = waits.outcomes(DEADLINE_SECONDS, stop)[None]
        assert isinstance(outcome, ServiceResponse)
        assert (outcome.body, outcome.has_waited) == (None, False)


def test_a_request_that_is_replaced_ends_and_its_answer_is_ignored(
    upstream: LiveIndex, client: ServiceClient, stop: Event
):
    with closing(Waits(client)) as waits:
        waits.replace({pair(1): waiting(client, BOOK_OF_1)})
        (former,) = waits._open.values()
        upstream.publish(book(1, 9))
        current = waiting(client, BOOK_OF_1)
        waits.replace({pair(1): current})
        eventually(lambda: former.is_over)
        assert waits.outcomes(0.05, stop) == {}
        waits.replace({})
        assert not waits.include([pair(1)])
        assert client.get(ServiceRequest(LIST, "", 10_000)).body, "other requests are not affected"


def test_a_wait_for_outcomes_ends_with_stop(client: ServiceClient, stop: Event):
    with closing(Waits(client)) as waits:
        waits.replace({None: waiting(client, LIST)})
        started = monotonic()
        ended = in_thread(lambda: waits.outcomes(10 * DEADLINE_SECONDS, stop))
        stop.set()
        ended.join(DEADLINE_SECONDS)
        assert not ended.is_alive()
        assert monotonic() < started + DEADLINE_SECONDS


def test_a_request_without_a_response_ends_at_its_deadline(stop: Event):
    with upstreams.upstream(upstreams.lists_and_stalls) as url:
        port = int(url.rpartition(":")[2])
        with closing(client_of(port, stop, exchange_seconds=0.1)) as client, closing(Waits(client)) as waits:
            waits.replace({pair(1): ServiceRequest(BOOK_OF_1, '"a"', 10_000, 60)})

            def is_late() -> bool:
                outcome = waits.outcomes(0.01, stop).get(pair(1))
                return isinstance(outcome, Unavailable) and "within 0.1 seconds" in outcome.reason

            eventually(is_late)
            assert not waits.include([pair(1)])


def test_the_end_leaves_no_thread(client: ServiceClient):
    with closing(Waits(client)) as waits:
        waits.replace({pair(number): waiting(client, BOOK_OF_1) for number in range(20)})
        assert sum(one.name == "requests to 127.0.0.1" for one in all_threads()) >= 20
    client.close()
    eventually(lambda: not [one for one in all_threads() if one.name == "requests to 127.0.0.1"])
