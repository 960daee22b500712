"""Freshness over several hops: from a file through a relay into a bucket, and over HTTP into another feed."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread

import pytest

from market_index import Freshness, LiveIndex, MarketIndex
from market_index_feeds import Relay, open_feed, open_store
from market_index_http import create_app
from tests.command import running
from tests.market_index_feeds.http.services import polled
from tests.market_index_feeds.made_up import book, pair
from tests.service import Client, served
from tests.waiting import DEADLINE_SECONDS, eventually

BASE = f"{pair(1).base}".replace(":", "%3A")
BOOK = f"/trading-view/order-book?base={BASE}&quote=ADA"
LIST = "/trading-view/pair-list"


def fresh(number: int) -> Freshness:
    """Return the freshness of the publication of books with this spot."""
    return Freshness(str(number), datetime(2026, 11, 22, tzinfo=UTC) + timedelta(milliseconds=number))


@contextmanager
def relayed(source: str, target: str) -> Iterator[None]:
    with open_feed(source) as feed:
        relay = Relay(feed, lambda: open_store(target, wait=DEADLINE_SECONDS))
        relay.start()
        thread = Thread(target=relay.run)
        thread.start()
        try:
            yield
        finally:
            relay.close()
            thread.join(DEADLINE_SECONDS)


@contextmanager
def serving(source: str, folder: Path, workers: int) -> Iterator[int]:
    """Serve a source: in this process, or by several workers of the command. Yield the port."""
    if workers > 1:
        with running(folder, source, "--port", 0, "--workers", workers) as command:
            yield command.service.port
            command.end(signal.SIGTERM)
        return
    live = LiveIndex()
    with open_feed(source) as feed, served(create_app(live)) as service:
        feed.start(live)
        yield service.port


class Claims:
    """Observed pairs of an as_of and the spots under it. The as_of must not be later than any of the spots."""

    def __init__(self) -> None:
        self.behind: Counter[int] = Counter()
        self.unknown = 0
        self.wrong: list[tuple[str, list[int]]] = []

    def add(self, as_of: str | None, spots: list[int]) -> None:
        if as_of is None or not spots:
            self.unknown += 1
        elif int(as_of) > min(spots):
            self.wrong.append((as_of, spots))
        else:
            self.behind[min(spots) - int(as_of)] += 1

    def add_index(self, index: MarketIndex) -> None:
        self.add(index.as_of, [int(one.spot or 0) for one in index.values()])


@contextmanager
def repeated(work: Callable[[], object]) -> Iterator[None]:
    """Repeat the work in another thread."""
    stop = Event()

    def repeat() -> None:
        while not stop.wait(0.0005):
            work()

    thread = Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(DEADLINE_SECONDS)


def http_observer(client: Client, claims: Claims) -> Callable[[], None]:
    """Return a function that requests a book and the pair list, and adds their claims."""

    def observe() -> None:
        answer = client.request(BOOK)
        claims.add(answer.headers.get("market-index-as-of"), [int(answer.json["spot"])])
        answer = client.request(LIST)
        spots = [int(one["last_spot"]) for one in answer.json["pairs"]]
        claims.add(answer.headers.get("market-index-as-of"), spots)

    return observe


@pytest.mark.parametrize(
    ("publishes", "workers"),
    [
        (300, 1),
        pytest.param(300, 2, marks=pytest.mark.thorough),
        pytest.param(10_000, 2, marks=pytest.mark.thorough),
    ],
)
def test_no_hop_claims_an_as_of_that_is_newer_than_its_books(tmp_path: Path, bucket: str, publishes: int, workers: int):
    path = str(tmp_path / "market.db")
    last, near = LiveIndex(), LiveIndex()
    with ExitStack() as stack:
        store = stack.enter_context(open_store(path, synchronous="normal"))
        store.update([book(1, 1), book(2, 1)], freshness=fresh(1))
        stack.enter_context(relayed(path, bucket))
        port = stack.enter_context(serving(bucket, tmp_path, workers))
        stack.enter_context(open_feed(bucket)).start(near)
        stack.enter_context(polled(f"http://127.0.0.1:{port}")).start(last)
        with ExitStack() as observing:
            client = Client(port)
            observing.callback(client.close)
            claims, seen = Claims(), {id(live): Claims() for live in (near, last)}
            for live in (near, last):
                observing.enter_context(repeated(lambda live=live: seen[id(live)].add_index(live.current)))  # type: ignore[misc]  # a default has no type
            observing.enter_context(repeated(http_observer(client, claims)))
            for number in range(2, publishes + 1):
                store.update([book(1, number), book(2, number)], freshness=fresh(number))
            eventually(lambda: last.current.freshness == near.current.freshness == fresh(publishes))
        claimed = [*seen.values(), claims]
    assert [one.wrong for one in claimed] == [[], [], []]
    assert all(one.behind for one in claimed)


def test_every_hop_ends_with_the_same_freshness(tmp_path: Path, bucket: str):
    path = str(tmp_path / "market.db")
    time = datetime(2026, 11, 22, 1, 2, 3, 456000, tzinfo=UTC)
    last = LiveIndex()
    with (
        open_store(path) as store,
        relayed(path, bucket),
        serving(bucket, tmp_path, 1) as port,
        polled(f"http://127.0.0.1:{port}") as feed,
    ):
        feed.start(last)
        for freshness in (
            Freshness("slot 145000000, block 5f2b", time),
            Freshness("slot 145000000, block 5f2b", time + timedelta(seconds=20)),
            Freshness("~" * 200, time),
            Freshness(None, time),
            Freshness("0"),
            Freshness(),
        ):
            store.update([book(1, 1)], freshness=freshness)
            eventually(lambda freshness=freshness: last.current.freshness == freshness)  # type: ignore[misc]  # a default has no type
