"""Programs that are killed at random times. `make test-faults` kills more of them."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import pytest

from market_index import ADA, LiveIndex, wire
from market_index_feeds import Store, open_feed, open_store, replay
from tests.command import COMMAND, Running, running, started
from tests.faults.actors import (
    BLOCKS,
    KILLS,
    PAIRS,
    books,
    chain_block,
    command_killed,
    generation_of,
    order_lines,
    orders,
    producer_killed,
    publisher_killed,
)
from tests.feeds.ledger.stand_in import Kupo, serving
from tests.feeds.made_up import pair
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread

ROUNDS_PER_FILE = 10
"""After so many kills, the recording is removed: it would take long to read, and a new one is created."""

one_or_many = pytest.mark.parametrize("kills", [1, pytest.param(KILLS, marks=pytest.mark.thorough, id="many")])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "market.db", synchronous="normal") as store:
        store.publish(*books(1))
        yield store


@contextmanager
def publishing(store: Store) -> Iterator[list[int]]:
    """Publish one generation after the other. Yield those that are published."""
    is_over, published = Event(), [1]

    def publish() -> None:
        while not is_over.wait(0.005):
            store.publish(*books(published[-1] + 1))
            published.append(published[-1] + 1)

    thread = in_thread(publish)
    try:
        yield published
    finally:
        is_over.set()
        thread.join(DEADLINE_SECONDS)


@one_or_many
def test_a_killed_publisher_loses_no_acknowledged_change(tmp_path: Path, kills: int):
    numbers, path, live, generation = random.Random(kills), tmp_path / "market.db", LiveIndex(), 0
    open_store(path).close()
    with open_feed(path) as feed:
        feed.start(live)
        for _ in range(kills):
            acknowledged = publisher_killed(path, generation + 1, numbers.random() * 0.05)
            stored = open_feed(path)
            generation = generation_of(stored.read())
            # The change that was interrupted is stored as a whole, or not at all.
            assert generation in {acknowledged, acknowledged + 1}
            assert stored.health.rejected == 0
            eventually(lambda generation=generation: generation_of(live.current) == generation)  # type: ignore[misc]  # a default has no type
        assert (feed.health.problem, feed.health.rejected) == (None, 0)


@one_or_many
def test_a_killed_relay_leaves_a_version_of_its_feed(tmp_path: Path, store: Store, kills: int):
    numbers, target = random.Random(kills), tmp_path / "target.db"
    with publishing(store) as published:
        for _ in range(kills):
            command_killed("relay", store.name, target, after=numbers.random() * 0.1)
            assert generation_of(open_feed(target).read()) in published
        command_killed("relay", store.name, target, after=0)
    assert len(published) > kills


@one_or_many
def test_a_killed_relay_of_the_ledger_leaves_the_books_of_a_block(tmp_path: Path, kills: int):
    """A block has an order of each pair at the price of its number. The next one follows at every third `/health`."""
    numbers, target, kupo = random.Random(kills), tmp_path / "target.db", Kupo([chain_block(1)])

    def add_block(path: str) -> None:
        if path == "/health" and kupo.requests.count(path) % 3 == 0:
            kupo.blocks = [*kupo.blocks, chain_block(len(kupo.blocks) + 1)]

    kupo.on_request = add_block
    with serving(kupo):
        for _ in range(kills):
            command_killed("relay", f"kupo:{kupo.url}", target, after=numbers.random() * 1.5)
            index = open_feed(target).read()
            (price,) = {int(book.asks.prices[0]) for book in index.values()}
            assert (len(index), index.as_of) == (PAIRS, chain_block(price).text)
            assert all(len(book.asks) == 1 for book in index.values())


@one_or_many
def test_a_killed_recorder_leaves_a_valid_recording(tmp_path: Path, store: Store, kills: int):
    numbers, recording, changes = random.Random(kills), tmp_path / "recording.ndjson", 0
    with publishing(store):
        for number in range(kills):
            command_killed("record", store.name, recording, after=0.05 + numbers.random() * 0.1)
            generations = [generation_of(index) for _, index in replay(recording)]
            assert generations == sorted(generations)
            feed = open_feed(recording)
            assert (generation_of(feed.read()), feed.health.rejected) == (generations[-1], 0)
            changes += len(generations)
            if number % ROUNDS_PER_FILE == ROUNDS_PER_FILE - 1:
                recording.unlink()
    assert changes >= kills


@pytest.mark.thorough
def test_each_book_of_killed_producers_of_orders_is_that_of_a_block(tmp_path: Path):
    """Two workers serve the file. Each response must be the book of the block that it names."""
    numbers, path, last = random.Random(KILLS), tmp_path / "events.ndjson", 1000 * (KILLS + 2)
    path.write_bytes(order_lines(1000))
    with running(tmp_path, f"orders:{path}", "--port", 0, "--workers", 2) as command:
        service, is_over, wrong, blocks = command.service, Event(), list[str](), set[int]()
        eventually(lambda: command.stderr.count("listening on") == 2)

        def observe() -> None:
            while not is_over.is_set():
                answer = service.order_book(str(pair(1).base), str(ADA))
                block = answer.headers.get(wire.AS_OF.lower(), "none")
                shown = {int(one["price"]): one["accumulated_liquidity"] for one in answer.json["asks"]}
                if block.isdigit() and shown == orders(int(block)):
                    blocks.add(int(block))
                else:
                    wrong.append(f"{block}: {answer.json}")

        observing = in_thread(observe)
        try:
            for life in range(2, KILLS + 2):
                producer_killed(path, 1000 * life, numbers.randrange(len(order_lines(1000))))
            with path.open("ab") as file:
                file.write(order_lines(last))
            states: dict[int, tuple[object, object]] = {}

            def are_current() -> bool:
                health = service.request("/healthz").json
                states[health["process"]] = health["as_of"], health["problem"]
                return list(states.values()) == [(str(last + BLOCKS - 1), None)] * 2

            eventually(are_current)
        finally:
            is_over.set()
            observing.join(DEADLINE_SECONDS)
    assert wrong == []
    assert len(blocks) > KILLS // 2, "it was killed before it had done anything, again and again"
    assert any(map(is_part_of_a_line, path.read_bytes().splitlines())), "it was never killed in a line"


def is_part_of_a_line(line: bytes) -> bool:
    try:
        json.loads(line or b"{}")
    except ValueError:
        return True
    return False


@contextmanager
def relays(tmp_path: Path, source: str, target: str) -> Iterator[Callable[[], Running]]:
    """Yield a function that starts another relay."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(
            started(tmp_path / f"errors {len(list(tmp_path.iterdir()))}", COMMAND, "relay", source, target)
        )


@contextmanager
def followed(target: str) -> Iterator[list[int]]:
    """Yield the generations of all versions that a reader shows, in order; -1: one of several changes."""
    feed, shown = open_feed(target), [1]

    def follow() -> None:
        for version in feed.versions():
            try:
                shown.append(generation_of(version.index))
            except AssertionError:
                shown.append(-1)

    thread = in_thread(follow)
    try:
        yield shown
    finally:
        feed.close()
        thread.join(DEADLINE_SECONDS)


@pytest.fixture(params=["file", "bucket"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found = str(request.getfixturevalue("bucket") if request.param == "bucket" else tmp_path / "target.db")
    with open_store(found) as store:
        store.publish(*books(1))
    return found


def killed_keeper(both: list[Running], published: list[int], shown: list[int]) -> Running:
    """Kill the relay that keeps the store, and return the other one once it has taken over."""
    eventually(lambda: any("relaying" in one.stderr for one in both))
    keeping, waiting = sorted(both, key=lambda one: "relaying" not in one.stderr)
    eventually(lambda: "waiting, because" in waiting.stderr)
    keeping.process.kill()
    after = published[-1]
    eventually(lambda: shown[-1] > after)
    assert "taking over" in waiting.stderr
    return waiting


@pytest.mark.decision(40)
@one_or_many
def test_a_waiting_relay_takes_over_from_a_killed_one(tmp_path: Path, store: Store, target: str, kills: int):
    with relays(tmp_path, store.name, target) as start, publishing(store) as published, followed(target) as shown:
        pair_of_relays = [start(), start()]
        for _ in range(kills):
            waiting = killed_keeper(pair_of_relays, published, shown)
            pair_of_relays = [waiting, start()]
    assert shown == sorted(shown), "no version of a former keeper comes back, and none is mixed"


@pytest.mark.thorough
@pytest.mark.decision(40)
def test_a_suspended_relay_of_a_bucket_is_replaced_and_writes_nothing_more(tmp_path: Path, store: Store, bucket: str):
    with open_store(bucket) as target:
        target.publish(*books(1))
    with relays(tmp_path, store.name, bucket) as start, publishing(store) as published, followed(bucket) as shown:
        suspended = start()
        eventually(lambda: "relaying" in suspended.stderr)
        other = start()
        eventually(lambda: "waiting, because" in other.stderr)
        suspended.process.send_signal(signal.SIGSTOP)
        eventually(lambda: "relaying" in other.stderr)
        suspended.process.send_signal(signal.SIGCONT)
        eventually(lambda: "waiting, because" in suspended.stderr)
        after = published[-1]
        eventually(lambda: shown[-1] > after)
        assert other.stderr.count("waiting") == 1
    assert shown == sorted(shown)
