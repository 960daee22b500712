"""A test bed of NATS servers, a publisher without pauses, and readers.

It checks that no acknowledged change is lost, and that every reader shows the stored books.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import Final, Protocol, TypeVar

from market_index import LiveIndex
from market_index_feeds import Feed, FeedError, Store, StoreError, open_feed, open_store
from tests import nats
from tests.market_index_feeds.made_up import book, spots
from tests.waiting import DEADLINE_SECONDS, eventually

T = TypeVar("T")

PAIRS: Final = 40

_PUBLISH_SECONDS: Final = 0.002
_READ_SECONDS: Final = 0.005


class Network(Protocol):
    """The network from which a thread connects."""

    def enter(self) -> None:
        """Move this thread, and the threads that it starts, into this network."""

    def inside(self, work: Callable[[], T]) -> T:
        """Run the work in this network, and return its result."""


class Host:
    """The network of this machine."""

    def enter(self) -> None:
        pass

    def inside(self, work: Callable[[], T]) -> T:
        return work()


HOST: Final = Host()


def read_spots(url: str) -> dict[int, str | None]:
    """Return the stored spots. Retry while disconnected servers catch up."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            return spots(open_feed(url).read())
        except FeedError:
            if time.monotonic() > deadline:
                raise


def numbers(found: dict[int, str | None]) -> dict[int, int]:
    return {number: int(float(spot or 0)) for number, spot in found.items()}


class Publisher:
    """Publishes books one by one, each with a higher spot than all before, and records acknowledgements and failures.

    It continues after a failure. `went_back` has the acknowledgements whose revision is not above all earlier ones:
    then an acknowledged change was lost.
    """

    def __init__(self, url: str, network: Network = HOST) -> None:
        self.url = url
        self.sent = 0
        self.acknowledged: dict[int, int] = {}
        self.failures: list[str] = []
        self.went_back: list[str] = []
        self._revision = 0
        self._network = network
        self._ending = Event()
        self._thread = Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        self._network.enter()
        store: Store | None = None
        number = 0
        while not self._ending.wait(_PUBLISH_SECONDS):
            try:
                if store is None:
                    store = open_store(self.url, wait=2)
                self.sent += 1
                spot = self.sent
                revision = store.publish(book(number % PAIRS, spot)).revision
                if revision <= self._revision:
                    self.went_back.append(f"from {self._revision} to {revision}")
                self._revision = revision
                self.acknowledged[number % PAIRS] = spot
                number += 1
            except StoreError as error:
                self.failures.append(str(error))
        if store is not None:
            store.close()


class Reader:
    """A feed. `went_back` records any pair that returned to an older book, or vanished."""

    def __init__(self, url: str, network: Network = HOST) -> None:
        self.live = LiveIndex()
        self.feed: Feed = open_feed(url)
        self.went_back: list[str] = []
        self._network = network
        self._ending = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()
        eventually(lambda: len(self.live.current) > 0)

    def end(self) -> None:
        self._ending.set()
        self._thread.join()
        self.feed.close()

    def await_later_than(self, sent: int) -> None:
        """Wait until it shows a later publication than `sent`."""
        eventually(lambda: max(numbers(spots(self.live)).values()) > sent)

    def _start(self) -> None:
        """Start the feed, again until it succeeds: a server that was cut off may not know a new bucket yet."""
        while not self._ending.is_set():
            try:
                self.feed.start(self.live)
            except FeedError:
                self._ending.wait(_READ_SECONDS)
            else:
                return

    def _run(self) -> None:
        self._network.enter()
        self._start()
        revision, before, shown = 0, dict.fromkeys(range(PAIRS + 1), 0), set[int]()
        while not self._ending.wait(_READ_SECONDS):
            now = numbers(spots(self.live))
            reached = self.feed.revision or 0
            vanished = shown - now.keys()
            if reached < revision or vanished or any(now[number] < before[number] for number in now):
                self.went_back.append(f"from {revision} to {reached}, {before} to {now}")
            revision, before, shown = reached, before | now, shown | now.keys()


class Replication:
    """Several servers, a publisher and some readers. `observer` is the network of the test itself."""

    def __init__(
        self,
        servers: list[nats.Server],
        bucket: str,
        *,
        observer: Network = HOST,
        publisher: Network = HOST,
        readers: Sequence[Network] = (HOST, HOST),
    ) -> None:
        self.servers = servers
        self.bucket = bucket
        self.url = f"nats://{','.join(server.address for server in servers)}/{bucket}"
        self.publisher = Publisher(self.url, publisher)
        self.readers: list[Reader] = []
        self._observer = observer
        self._readers = readers

    @contextmanager
    def running(self) -> Iterator[Replication]:
        """Initialize the bucket, start readers and publisher, and wait for an acknowledgement."""
        with ExitStack() as stack:
            self._observer.inside(self._initialize)
            for network in self._readers:
                self.readers.append(Reader(self.url, network))
                stack.callback(self.readers[-1].end)
            self.publisher.start()
            stack.callback(self.publisher.end)
            self.await_publishing()
            yield self

    @property
    def leader(self) -> nats.Server:
        """The server that leads the bucket; waits until there is one."""
        return self._observer.inside(self._leader)

    @property
    def follower(self) -> nats.Server:
        """A server that does not lead the bucket."""
        leader = self.leader
        return next(server for server in self.servers if server is not leader)

    def await_publishing(self) -> None:
        """Wait until a change sent after this call is acknowledged."""
        sent = self.publisher.sent
        eventually(lambda: any(spot > sent for spot in list(self.publisher.acknowledged.values())))

    def await_failures(self, count: int = 2) -> None:
        """Wait until `count` more changes have failed."""
        failures = len(self.publisher.failures)
        eventually(lambda: len(self.publisher.failures) >= failures + count)

    def await_readers(self) -> None:
        """Wait until every reader shows a change sent after this call."""
        for reader in self.readers:
            reader.await_later_than(self.publisher.sent)

    def await_current(self, server: nats.Server) -> None:
        """Wait until a server has caught up with the leader."""
        first = self.servers[0]
        self._observer.inside(lambda: eventually(lambda: server.name in nats.current_of(first, self.bucket)))

    def check(self) -> None:
        """End the publisher, and assert that acknowledged changes are stored and that every reader shows the store."""
        self.publisher.end()
        assert not self.publisher.went_back
        stored, revision = self._observer.inside(self._stored)
        assert len(stored) == PAIRS + 1
        for reader in self.readers:
            eventually(lambda reader=reader: spots(reader.live) == stored)  # type: ignore[misc]  # a default has no type
            # A feed updates its revision after the change is live.
            eventually(lambda reader=reader: reader.feed.revision == revision)  # type: ignore[misc]  # a default has no type
            eventually(lambda reader=reader: reader.feed.age < 2)  # type: ignore[misc]  # a default has no type
            assert not reader.went_back

    def _initialize(self) -> None:
        with nats.opened(self.url) as store:
            store.publish(*(book(number, "0.5") for number in range(PAIRS)))

    def _leader(self) -> nats.Server:
        names: list[str] = []

        def leads() -> bool:
            names[:] = [nats.leader_of(server, self.bucket) for server in self.servers if server.process is not None]
            return bool(names and names[0])

        eventually(leads)
        return next(server for server in self.servers if server.name == names[0])

    def _stored(self) -> tuple[dict[int, str | None], int]:
        """Return the stored spots and the revision, after one more change."""
        acknowledged = self.publisher.acknowledged
        with nats.opened(self.url) as store:
            stored = numbers(read_spots(self.url))
            lost = {number: spot for number, spot in acknowledged.items() if stored.get(number, 0) < spot}
            assert not lost, f"acknowledged but not stored: {lost}; stored: {stored}"
            store.publish(book(PAIRS, 7))
            return read_spots(self.url), store.revision
