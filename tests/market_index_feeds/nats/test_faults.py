"""Faults of three servers: nothing acknowledged is lost, and every replica shows the same."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, Store, StoreError, open_feed, open_store
from tests import nats
from tests.market_index_feeds.made_up import book, spots
from tests.waiting import eventually

PAIRS = 40
HEALED_SECONDS = 60


class Publisher:
    """Publishes one book after the other, each with a higher price than all before, and notes what is acknowledged."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sent = 0
        self.acknowledged: dict[int, int] = {}
        self.failures: list[str] = []
        self._ending = Event()
        self._thread = Thread(target=self._run)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        store: Store | None = None
        number = 0
        while not self._ending.is_set():
            try:
                if store is None:
                    store = open_store(self.url, wait=2)
                self.sent += 1
                spot = self.sent
                store.publish(book(number % PAIRS, spot))
                self.acknowledged[number % PAIRS] = spot
                number += 1
            except StoreError as error:
                self.failures.append(str(error))
            time.sleep(0.002)
        if store is not None:
            store.close()


class Replica:
    """A follower, and whether what it showed ever went back, or vanished."""

    def __init__(self, url: str) -> None:
        self.live = LiveIndex()
        self.feed: Feed = open_feed(url)
        self.feed.start(self.live)
        self.went_back: list[str] = []
        self._ending = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()
        self.feed.close()

    def goes_on(self, sent: int) -> None:
        """Wait until it shows what was published after that."""
        eventually(lambda: max(float(spot or 0) for spot in spots(self.live).values()) > sent, HEALED_SECONDS)

    def _run(self) -> None:
        revision, before, shown = 0, dict.fromkeys(range(PAIRS + 1), 0), set[int]()
        while not self._ending.wait(0.005):
            now = {number: int(float(spot or 0)) for number, spot in spots(self.live).items()}
            reached = self.feed.revision or 0
            vanished = shown - now.keys()
            if reached < revision or vanished or any(now[number] < before[number] for number in now):
                self.went_back.append(f"from {revision} to {reached}, {before} to {now}")
            revision, before, shown = reached, before | now, shown | now.keys()


class Three:
    """Three servers, a publisher that never pauses, and two replicas."""

    def __init__(self, servers: list[nats.Server], bucket: str, stack: ExitStack) -> None:
        self.servers = servers
        self.bucket = bucket
        self.url = f"nats://{','.join(f'127.0.0.1:{server.port}' for server in servers)}/{bucket}"
        with nats.opened(self.url) as store:
            store.publish(*(book(number, "0.5") for number in range(PAIRS)))
        self.publisher = Publisher(self.url)
        self.replicas = [Replica(self.url) for _ in range(2)]
        for replica in self.replicas:
            stack.callback(replica.end)
        self.publisher.begin()
        stack.callback(self.publisher.end)

    def leader(self) -> nats.Server:
        """The server that leads the bucket."""
        names: list[str] = []

        def leads() -> bool:
            names[:] = [nats.leader_of(server, self.bucket) for server in self.servers if server.process is not None]
            return bool(names and names[0])

        eventually(leads, HEALED_SECONDS)
        return next(server for server in self.servers if server.name == names[0])

    def goes_on(self) -> None:
        """Wait until the publisher is acknowledged again."""
        sent = self.publisher.sent
        eventually(lambda: any(spot > sent for spot in self.publisher.acknowledged.values()), HEALED_SECONDS)

    def is_the_same_everywhere(self) -> None:
        """What was acknowledged is there, and every replica shows just what is there."""
        self.publisher.end()
        acknowledged = self.publisher.acknowledged
        with nats.opened(self.url) as store:
            stored = {number: int(float(spot or 0)) for number, spot in spots(reading(self.url)).items()}
            lost = {number: spot for number, spot in acknowledged.items() if stored.get(number, 0) < spot}
            assert not lost, f"{lost} were acknowledged, and {stored} is stored"
            store.publish(book(PAIRS, 7))
            there = spots(reading(self.url))
            assert len(there) == PAIRS + 1
            for replica in self.replicas:
                eventually(lambda replica=replica: spots(replica.live) == there, HEALED_SECONDS)  # type: ignore[misc]  # one of each
                eventually(lambda replica=replica: replica.feed.age < 2, HEALED_SECONDS)  # type: ignore[misc]  # one of each
                assert replica.feed.revision == store.revision
                assert not replica.went_back


def reading(url: str) -> LiveIndex:
    return LiveIndex(open_feed(url).read().values())


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[nats.Server]]:
    """A cluster for all tests: each of them ends with all three servers running."""
    with nats.cluster(tmp_path_factory.mktemp("three")) as servers:
        yield servers


@pytest.fixture
def three(servers: list[nats.Server], request: pytest.FixtureRequest) -> Iterator[Three]:
    with ExitStack() as stack:
        yield Three(servers, request.node.name, stack)
    for server in servers:
        if server.process is None:
            server.start()
            server.wait()


def test_the_leader_is_killed(three: Three):
    three.goes_on()
    leader = three.leader()
    leader.kill()
    three.goes_on()
    leader.start()
    leader.wait()
    three.goes_on()
    three.is_the_same_everywhere()


def test_two_of_three_are_killed(three: Three):
    three.goes_on()
    shown = len(three.replicas[0].live.current)
    killed = three.servers[:2]
    for server in killed:
        server.kill()
    failures = len(three.publisher.failures)
    eventually(lambda: len(three.publisher.failures) >= failures + 2, HEALED_SECONDS)
    assert re.search("did not acknowledge|was not written to|cannot be opened", three.publisher.failures[-1])
    # No server can say what is current: the last index stays live, and its age grows.
    for replica in three.replicas:
        assert len(replica.live.current) == shown
        eventually(lambda replica=replica: replica.feed.age > 2)  # type: ignore[misc]  # one of each
    for server in killed:
        server.start()
    three.goes_on()
    three.is_the_same_everywhere()


def test_one_comes_back_with_an_emptied_disk(three: Three):
    three.goes_on()
    leader = three.leader()
    leader.kill()
    leader.empty()
    three.goes_on()
    leader.start()
    leader.wait()
    three.goes_on()
    three.is_the_same_everywhere()


def test_one_that_leads_is_cut_off_and_comes_back(three: Three):
    three.goes_on()
    leader = three.leader()
    leader.stop()
    try:
        three.goes_on()
    finally:
        leader.send(signal.SIGCONT)
    three.goes_on()
    three.is_the_same_everywhere()


def test_one_that_a_replica_is_connected_to_is_cut_off(three: Three):
    """Each in turn, so that it was the one of each replica once."""
    for server in three.servers:
        server.stop()
        try:
            three.goes_on()
            for replica in three.replicas:
                replica.goes_on(three.publisher.sent)
        finally:
            server.send(signal.SIGCONT)
    three.is_the_same_everywhere()


REPLICA = """
import sys, time
from market_index import LiveIndex
from market_index_feeds import open_feed
from tests.market_index_feeds.made_up import spots
live = LiveIndex()
with open_feed(sys.argv[1]) as feed:
    feed.start(live)
    print("joined", len(live.current), flush=True)
    for line in sys.stdin:
        patience = time.monotonic() + 60
        wanted = eval(line)
        while spots(live) != wanted and time.monotonic() < patience:
            time.sleep(0.01)
        print(spots(live) == wanted, feed.revision, flush=True)
"""


class Process:
    """A replica in a process of its own."""

    def __init__(self, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", REPLICA, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.said().startswith("joined")

    def said(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def shows(self, wanted: Mapping[int, str | None]) -> str:
        assert self.process.stdin
        self.process.stdin.write(f"{wanted!r}\n")
        self.process.stdin.flush()
        return self.said()


@contextmanager
def replica_process(url: str) -> Iterator[Process]:
    process = Process(url)
    try:
        yield process
    finally:
        process.process.kill()
        process.process.communicate()


def test_one_that_joins_amid_ten_thousand_publishes_comes_to_show_all(bucket: str):
    with open_store(bucket) as store, ExitStack() as stack:
        store.publish(*(book(number, 1) for number in range(500)))
        processes = []
        done = 0

        def publish() -> None:
            nonlocal done
            for spot in range(2, 22):
                store.publish(*(book(number, spot) for number in range(500)))
                done += 500

        publishing = Thread(target=publish)
        publishing.start()
        for some in (1000, 4000, 8000):
            eventually(lambda some=some: done >= some)  # type: ignore[misc]  # one of each
            processes.append(stack.enter_context(replica_process(bucket)))
        publishing.join()
        assert done == 10_000
        for process in processes:
            assert process.shows(dict.fromkeys(range(500), "21")) == f"True {store.revision}\n"


def test_one_that_does_not_read_for_a_while_comes_to_show_all(tmp_path: Path):
    """The servers cut it off, with all that they have sent to it meanwhile."""
    with nats.served(
        tmp_path / "slow", 'ping_interval: "1s"\nping_max: 1\ndebug: true\nwrite_deadline: "500ms"'
    ) as server:
        url = f"{server.url}/books"
        with open_store(url) as store, replica_process(url) as process:
            store.publish(book(1, 1))
            process.process.send_signal(signal.SIGSTOP)
            noise = [nats.noise(number) for number in range(60)]
            for _ in range(4):
                store.publish(*noise)
            eventually(lambda: "Stale Client Connection" in server.said or "Slow Consumer" in server.said)
            process.process.send_signal(signal.SIGCONT)
            wanted = {1: "1"} | dict.fromkeys(range(1000, 1060), "1")
            assert process.shows(wanted) == f"True {store.revision}\n"


def kills() -> int:
    return int(os.environ.get("MARKET_INDEX_SERVER_KILLS", "3"))


def test_a_server_that_is_killed_again_and_again(tmp_path: Path):
    """One server alone, killed at any moment: what it acknowledged and lost, it has to lose for all replicas."""
    with nats.served(tmp_path / "alone") as server:
        publisher = Publisher(f"{server.url}/books")
        publisher.begin()
        eventually(lambda: len(publisher.acknowledged) == PAIRS)
        live = LiveIndex()
        with open_feed(publisher.url) as feed:
            feed.start(live)
            for _ in range(kills()):
                server.kill()
                server.start()
                server.wait()
                sent = publisher.sent
                eventually(lambda sent=sent: min(publisher.acknowledged.values()) > sent, HEALED_SECONDS)  # type: ignore[misc]  # one of each
            publisher.end()
            there = spots(reading(publisher.url))
            assert {number: int(spot or 0) for number, spot in there.items()} == publisher.acknowledged
            eventually(lambda: spots(live) == there)
