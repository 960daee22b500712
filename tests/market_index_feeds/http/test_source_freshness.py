"""The freshness of the books of a service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from starlette.responses import Response

from market_index import Freshness, LiveIndex, OrderBook
from market_index_feeds import Feed
from market_index_http import create_app
from tests.market_index_feeds.http.services import polled
from tests.market_index_feeds.made_up import book, pair, spots
from tests.service import served
from tests.waiting import eventually


def fresh(number: int) -> Freshness:
    """Return the freshness of a publication, by its number."""
    return Freshness(str(number), datetime(2026, 11, 22, tzinfo=UTC) + timedelta(seconds=number))


def publish(upstream: LiveIndex, number: int, *books: OrderBook) -> None:
    upstream.update(books, (), fresh(number))


class TestFreshness:
    """The freshness is never later than a live book."""

    def test_freshness_is_followed_without_a_change_of_a_book(self, upstream: LiveIndex, feed: Feed, live: LiveIndex):
        publish(upstream, 1)
        eventually(lambda: live.current.freshness == fresh(1))
        quiet, kept = feed.quiet_age, live.current.order_book(pair(1))
        publish(upstream, 2)
        eventually(lambda: live.current.freshness == fresh(2))
        assert feed.quiet_age < quiet + 1
        assert live.current.order_book(pair(1)) is kept
        assert feed.books == 3
        publish(upstream, 3, book(1, 9))
        eventually(lambda: (spots(live)[1], live.current.freshness) == ("9", fresh(3)))

    @pytest.mark.parametrize("status", [503, 404])
    def test_a_pair_without_a_response_keeps_its_last_freshness(
        self, upstream: LiveIndex, live: LiveIndex, status: int
    ):
        app = create_app(upstream)
        failing: list[bool] = []

        async def sometimes(scope: Any, receive: Any, send: Any) -> None:
            is_failing = failing and str(pair(2).base).replace(":", "%3A").encode() in scope["query_string"]
            await (Response(b"not now", status) if is_failing else app)(scope, receive, send)

        seen: list[Freshness] = []
        publish(upstream, 1)
        with served(sometimes) as one, polled(f"http://127.0.0.1:{one.port}") as feed:
            feed.start(live)
            assert live.current.freshness == fresh(1)
            failing.append(True)
            publish(upstream, 2, book(1, 5), book(2, 6))

            def is_read() -> bool:
                index = live.current
                seen.append(index.freshness)
                return spots(index) == {1: "5", 2: "2", 3: "3"}

            eventually(is_read)
            # A pair that is not found twice is rejected. Its retained book is of another time.
            assert set(seen) <= {fresh(1), Freshness()}
            failing.clear()
            eventually(lambda: (spots(live)[2], live.current.freshness) == ("6", fresh(2)))

    @pytest.mark.parametrize("max_wait", [0, 60], ids=["polling", "waiting"])
    def test_workers_that_are_behind_make_the_freshness_older_never_newer(self, live: LiveIndex, max_wait: int):
        workers = [LiveIndex([book(1, 1), book(2, 1)]) for _ in range(2)]
        apps, asked = [create_app(worker, max_wait=max_wait) for worker in workers], [0]

        async def either(scope: Any, receive: Any, send: Any) -> None:
            asked[0] += 1
            await apps[asked[0] % 2](scope, receive, send)

        def shows(number: int) -> bool:
            index = live.current
            assert index.as_of is None or int(index.as_of) <= min(int(one.spot or 0) for one in index.values())
            return index.freshness == fresh(number)

        def is_asked_twice(before: int, number: int) -> bool:
            shows(number)
            return asked[0] >= before + 2

        with served(either) as one, polled(f"http://127.0.0.1:{one.port}") as feed:
            feed.start(live)
            for number in range(2, 62):
                for worker in workers if number % 3 or number % 20 == 1 else workers[:1]:
                    publish(worker, number, book(1, number), book(2, number))
                eventually(partial(is_asked_twice, asked[0], number))
                if number % 20 == 1:
                    eventually(partial(shows, number))
