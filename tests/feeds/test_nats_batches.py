"""Changes of a bucket that exceed one atomic batch: several versions, each of whole books."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import Freshness, OrderBook, wire
from market_index_feeds import (
    Conflict,
    FeedError,
    Receipt,
    Store,
    StoreBusy,
    StoreError,
    UnknownOutcome,
    mirror,
    open_feed,
    open_store,
)
from market_index_feeds.nats.publishing import NatsStore
from market_index_feeds.nats.record import Mark, Record
from market_index_feeds.nats.values import key_of
from tests import links, nats
from tests.feeds.contract.medium import Reader
from tests.feeds.made_up import book, pair, spots
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread

BATCH = 3
"""How many messages a batch has in these tests, unless they use the limit of the servers."""

SIZE = 8
"""The books of a change of three batches."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are small, and readers soon notice what no publisher announces."""
    monkeypatch.setattr("market_index_feeds.nats.publishing.MAX_BATCH", BATCH)
    monkeypatch.setattr("market_index_feeds.nats.reading.CHECK_SECONDS", 0.05)


def books(spot: int, size: int = SIZE) -> list[OrderBook]:
    return [book(number, spot) for number in range(size)]


def contents(spot: int, size: int = SIZE) -> dict[int, str | None]:
    return dict.fromkeys(range(size), str(spot))


class Killed(BaseException):
    """Ends a publisher between two batches, as `kill -9` does."""


def before_batches(store: Store, works: Mapping[int, Callable[[], object]]) -> None:
    """Call a function before the batch of a number, from 1, of the next change of a store."""
    assert isinstance(store, NatsStore)
    bucket: Any = store._bucket
    commit, number = bucket.commit, 0

    async def observed(*arguments: Any) -> int:
        nonlocal number
        number += 1
        works.get(number, lambda: None)()
        return int(await commit(*arguments))

    bucket.commit = observed


def kill() -> None:
    raise Killed


def set_wait(store: NatsStore, seconds: float) -> None:
    """Change how long the next batches of a store are retried: on a busy machine, the others take longer."""
    store._wait = seconds


CHANGES = {
    "publish": lambda store, spot: store.publish(*books(spot)),
    "update": lambda store, spot: store.update(books(spot), freshness=Freshness(f"slot {spot}")),
    "update after": lambda store, spot: store.update(
        books(spot), freshness=Freshness(f"slot {spot}"), after=store.read().position
    ),
    "replace": lambda store, spot: store.replace(books(spot), Freshness(f"slot {spot}")),
}
"""Changes of three batches."""

all_changes = pytest.mark.parametrize("change", list(CHANGES.values()), ids=list(CHANGES))


class TestVersions:
    @pytest.mark.decision(37)
    @all_changes
    def test_each_batch_is_a_version_whose_as_of_is_unknown_until_the_last_one(
        self, bucket: str, change: Callable[[Store, int], Receipt]
    ):
        with nats.store_of(bucket) as store, Reader(open_feed(bucket)) as reader:
            store.replace(books(1), Freshness("slot 1"))
            reader.until(lambda version: version.index.as_of == "slot 1")

            def expects(changed: int) -> Callable[[], object]:
                expected = contents(1) | contents(2, changed)
                return lambda: reader.until(
                    lambda version: (spots(version.index), version.index.as_of) == (expected, None)
                )

            before_batches(store, {2: expects(3), 3: expects(6)})
            receipt = change(store, 2)
            assert (receipt.published, receipt.retracted) == (SIZE, 0)
            as_of = "slot 1" if change is CHANGES["publish"] else "slot 2"
            reader.until(lambda version: version.position == receipt.position)
            assert (spots(reader.versions[-1].index), reader.versions[-1].index.as_of) == (contents(2), as_of)
            assert [version.index.as_of for version in reader.versions] == ["slot 1", None, None, as_of]

    def test_books_are_written_first_and_pairs_retracted_last(self, bucket: str):
        with nats.store_of(bucket) as store, Reader(open_feed(bucket)) as reader:
            store.replace(books(1, 4), Freshness("slot 1"))
            reader.until(lambda version: version.index.as_of == "slot 1")
            sizes = list[int]()
            observe = {n: lambda: sizes.append(len(open_feed(bucket).read())) for n in (2, 3)}
            before_batches(store, observe)
            receipt = store.replace([book(number, 2) for number in range(4, 9)], Freshness("slot 2"))
            assert (receipt.published, receipt.retracted, sizes) == (5, 4, [7, 8])
            reader.until(lambda version: len(version.index) == 5)

    def test_the_servers_accept_a_change_of_thousands(self, bucket: str, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("market_index_feeds.nats.publishing.MAX_BATCH", 1000)
        with open_store(bucket) as store, Reader(open_feed(bucket)) as reader:
            store.publish(book(1, 1))
            assert store.replace(books(1, 2500), Freshness("slot 1")).published == 2499
            assert store.update(books(2, 999), map(pair, range(1000, 3000))).retracted == 1500
            expected = contents(2, 999) | {999: "1"}
            assert spots(store.read().index) == expected
            reader.until(lambda version: (spots(version.index), version.index.as_of) == (expected, "slot 1"))

    def test_a_first_change_that_is_not_finished_is_no_version(self, bucket: str):
        def check() -> None:
            with pytest.raises(FeedError, match="contains no whole change: its first one is not finished"):
                open_feed(bucket).read()

        with nats.store_of(bucket) as store:
            before_batches(store, {2: check, 3: check})
            store.update(books(1), freshness=Freshness("slot 1"))
        assert outcome(bucket) == (contents(1), "slot 1")


def succeeds(work: Callable[[], object]) -> bool:
    try:
        work()
    except StoreError:
        return False
    return True


def outcome(bucket: str) -> tuple[dict[int, str | None], str | None]:
    """Return what a new reader finds: the spot prices and the as_of."""
    index = open_feed(bucket).read()
    return spots(index), index.as_of


class TestUnfinished:
    @all_changes
    @pytest.mark.parametrize("number", [2, 3])
    @pytest.mark.parametrize("is_first", [False, True])
    def test_a_publisher_that_is_killed_locks_no_other_one_out(
        self, bucket: str, change: Callable[[Store, int], Receipt], number: int, is_first: bool, tmp_path: Path
    ):
        stored = contents(2, (number - 1) * BATCH)
        with nats.store_of(bucket) as store, Reader(open_feed(bucket)) as reader:
            if not is_first:
                store.replace(books(1), Freshness("slot 1"))
                reader.until(lambda version: version.index.as_of == "slot 1")
                stored = contents(1) | stored
            before_batches(store, {number: kill})
            with suppress(Killed):
                change(store, 2)
            if not is_first:
                assert outcome(bucket) == (stored, None)
            with open_store(bucket) as other:
                # A blind change is stored, and its as_of is not believed, also not that of many books.
                other.update([book(9, 3)], freshness=Freshness("slot 3"))
                assert outcome(bucket) == (stored | {9: "3"}, None)
                other.update(books(3), [pair(9)], freshness=Freshness("slot 3"))
                assert outcome(bucket) == (contents(3), None)
                other.publish(book(0, 4))
            with open_store(tmp_path / "market.db") as source:
                source.replace(books(5), Freshness("slot 5"))
            feed = open_feed(tmp_path / "market.db")
            mirror(feed, lambda: open_store(bucket), on_written=lambda *_: feed.close())
            assert outcome(bucket) == (contents(5), "slot 5")
            with open_store(bucket) as other:
                other.update([book(0, 6)], freshness=Freshness("slot 6"))
            reader.until(lambda version: version.index.as_of == "slot 6")

    @pytest.mark.parametrize("is_first", [False, True])
    @all_changes
    def test_a_bucket_that_is_full_in_the_second_batch(
        self, bucket: str, nats_server: nats.Server, change: Callable[[Store, int], Receipt], is_first: bool
    ):
        name = nats.name_of(bucket)

        def fill() -> None:
            length = nats.request(nats_server, f"STREAM.INFO.KV_{name}")["state"]["bytes"]
            nats.edit(nats_server, name, max_bytes=length + 10)

        with nats.store_of(bucket) as store:
            if not is_first:
                store.replace([book(0, 1)], Freshness("slot 1"))
            before_batches(store, {2: lambda: in_thread(fill).join(DEADLINE_SECONDS)})
            with pytest.raises(StoreError) as raised:
                change(store, 2)
            assert type(raised.value) is StoreError
            assert str(raised.value) == (
                f"{bucket} was written to only in part (3 books are stored, and 0 pairs retracted), "
                "and its as_of is not known: maximum bytes exceeded"
            )
            if is_first:
                with pytest.raises(FeedError, match="its first one is not finished"):
                    open_feed(bucket).read()
            else:
                assert outcome(bucket) == (contents(2, 3), None)
            nats.edit(nats_server, name, max_bytes=-1)
            with open_store(bucket) as other:
                assert other.retract(pair(1)).retracted == 1
            assert outcome(bucket) == ({0: "2", 2: "2"}, None)
            store.replace(books(3), Freshness("slot 3"))
            assert outcome(bucket) == (contents(3), "slot 3")

    @all_changes
    def test_a_link_that_is_down_during_a_change(
        self, bucket: str, nats_server: nats.Server, change: Callable[[Store, int], Receipt]
    ):
        """It is down before the second batch, until the publisher has noticed it."""
        with broken_link(nats_server) as (url, is_up, has_lost):
            with nats.store_of(f"{url}/{nats.name_of(bucket)}", wait=DEADLINE_SECONDS) as store:
                store.replace(books(1), Freshness("slot 1"))

                def repair() -> None:
                    assert has_lost.wait(DEADLINE_SECONDS)
                    is_up.set()

                before_batches(store, {2: is_up.clear})
                repairing = in_thread(repair)
                change(store, 2)
                repairing.join()
            as_of = "slot 1" if change is CHANGES["publish"] else "slot 2"
            assert outcome(bucket) == (contents(2), as_of)

    @all_changes
    def test_a_link_that_stays_down_during_a_change(
        self, bucket: str, nats_server: nats.Server, change: Callable[[Store, int], Receipt]
    ):
        with broken_link(nats_server) as (url, is_up, _):
            with nats.store_of(f"{url}/{nats.name_of(bucket)}", wait=DEADLINE_SECONDS) as store:
                store.replace(books(1), Freshness("slot 1"))
                before_batches(store, {1: lambda: set_wait(store, 0.5), 2: is_up.clear})
                expected = (
                    r"written to only in part \(3 books are stored, and 0 pairs retracted\), and its as_of is not"
                )
                with pytest.raises((UnknownOutcome, StoreError), match=expected):
                    change(store, 2)
                is_up.set()
                set_wait(store, DEADLINE_SECONDS)
                assert outcome(bucket)[1] is None
                with open_store(bucket) as other:
                    other.publish(book(9, 3))
                CHANGES["replace"](store, 4)
            assert outcome(bucket) == (contents(4), "slot 4")


@contextmanager
def broken_link(server: nats.Server) -> Iterator[tuple[str, Event, Event]]:
    """A server behind a link that loses each request, and the connection, while the first event is not set.

    The second event is set when a request was lost.
    """
    is_up, has_lost = Event(), Event()
    is_up.set()

    def there(_: bytes) -> None:
        if not is_up.is_set():
            has_lost.set()
            raise OSError

    with links.linked(server.port, there, lambda _: None) as port:
        yield f"nats://127.0.0.1:{port}", is_up, has_lost


def be_killed(other: NatsStore) -> None:
    """Begin a change of three batches, and be killed after the first one."""
    before_batches(other, {2: kill})
    with suppress(Killed):
        other.update([book(number, 9) for number in range(20, 28)], freshness=Freshness("slot 9"))


OTHERS: dict[str, Callable[[NatsStore], object]] = {
    "publish": lambda other: other.update([book(0, 9)], freshness=Freshness("slot 9")),
    "retract": lambda other: other.retract(pair(0)),
    "replace": lambda other: other.replace([book(20, 9)], Freshness("slot 9")),
    "killed": be_killed,
}
"""What another publisher does between two batches of a change."""


class TestOtherPublishers:
    @pytest.mark.decision(37)
    @all_changes
    @pytest.mark.parametrize("number", [2, 3])
    @pytest.mark.parametrize("what", [*OTHERS, "another program", "another bucket"])
    def test_an_as_of_covers_the_whole_change_also_after_a_write_between_its_batches(
        self, bucket: str, nats_server: nats.Server, change: Callable[[Store, int], Receipt], number: int, what: str
    ):
        left: list[tuple[dict[int, str | None], str | None]] = []
        name, value = nats.name_of(bucket), wire.order_book_to_json(book(0, 9))

        def write() -> None:
            if what == "another program":
                nats.put(nats_server, name, key_of(pair(0)), value)
            elif what == "another bucket":
                nats.delete(nats_server, name)
            if what not in OTHERS:
                open_store(bucket).close()
            else:
                with nats.store_of(bucket) as other:
                    OTHERS[what](other)
            with suppress(FeedError):  # the other bucket is empty
                left.append(outcome(bucket))

        with nats.store_of(bucket) as store:
            store.replace(books(1), Freshness("slot 1"))
            before_batches(store, {number: lambda: in_thread(write).join(DEADLINE_SECONDS)})
            if change is CHANGES["update after"]:
                with pytest.raises(Conflict, match=r"only in part .*: others have changed it"):
                    change(store, 2)
                assert what == "another bucket" or outcome(bucket) == left[0]
                return
            receipt = change(store, 2)
            found, as_of = outcome(bucket)
            if change is CHANGES["replace"]:
                assert (found, as_of) == (contents(2), "slot 2")
            else:
                assert receipt.published == SIZE
                assert found.items() >= dict.fromkeys(range((number - 1) * BATCH, SIZE), "2").items()
                assert as_of is None
                # Only who knows the whole content states an as_of again.
                store.update([book(0, 3)], freshness=Freshness("slot 3"))
                assert outcome(bucket)[1] is None
                store.update([book(0, 4)], freshness=Freshness("slot 4"), after=store.read().position)
                assert outcome(bucket)[1] == "slot 4"

    @pytest.mark.parametrize(("waits", "is_given_up"), [(0.6, False), (1.1, True)])
    def test_a_change_is_given_up_if_none_of_its_batches_is_stored_for_the_wait(
        self, bucket: str, monkeypatch: pytest.MonkeyPatch, waits: float, is_given_up: bool
    ):
        now = 0.0

        def overtake() -> None:
            nonlocal now
            now += waits * DEADLINE_SECONDS
            other.publish(book(20, 9))

        with nats.store_of(bucket, wait=DEADLINE_SECONDS) as store, open_store(bucket) as other:
            store.replace(books(1), Freshness("slot 1"))
            monkeypatch.setattr("market_index_feeds.nats.publishing.monotonic", lambda: now)
            # Each second attempt fails: the change takes longer than the wait, but no batch does.
            before_batches(store, {2: overtake, 4: overtake})
            if is_given_up:
                with pytest.raises(StoreBusy, match=r"only in part \(3 books .*others have been writing for"):
                    store.publish(*books(2))
            else:
                assert store.publish(*books(2)).published == SIZE

    def test_a_retraction_of_many_beside_a_publisher_of_one_book(self, bucket: str):
        with nats.store_of(bucket) as store, open_store(bucket) as other:
            store.replace(books(1), Freshness("slot 1"))

            def retract_one() -> None:
                numbers.append(min(outcome(bucket)[0]))
                assert other.retract(pair(numbers[0])).retracted == 1

            def publish_one() -> None:
                numbers.append(min(contents(1).keys() - outcome(bucket)[0].keys() - {numbers[0]}))
                other.publish(book(numbers[1], 9))

            numbers = list[int]()
            before_batches(store, {2: retract_one, 4: publish_one})
            receipt = store.update([], map(pair, range(SIZE)), Freshness("slot 2"))
            assert receipt.retracted == SIZE - 1
            assert outcome(bucket) == ({numbers[1]: "9"}, None)


class TestRecords:
    @given(st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.booleans(), st.booleans()), max_size=12))
    def test_an_as_of_is_stated_only_for_a_content_that_is_known(self, steps: list[tuple[int, bool, bool, bool]]):
        """Each step is a change of some batches: whether its publisher knows the content, is killed, and is another."""
        record, is_known, has_version = Record(mark=Mark.NOTHING), True, False
        for size, knows_content, is_killed, is_foreign in steps:
            if is_foreign:
                record, is_known, has_version = Record(), False, True
                continue
            knows = knows_content or record.is_known
            for number in range(size - is_killed):
                is_last = number == size - 1
                record = record.next(str(number), Freshness("slot 1"), is_last=is_last, is_known=knows)
                has_version, is_known = has_version or is_last, is_last and knows
                assert (record.freshness.as_of is not None) == is_known == (record.mark is Mark.WHOLE)
                assert (record.mark is Mark.FIRST) == (not has_version)
            assert record.is_known == (is_known or (not has_version and record.mark is Mark.NOTHING))


@pytest.mark.decision(37)
@pytest.mark.parametrize("batch", [100, 1000])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_batch_that_is_stored_in_part_is_a_change_that_was_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int, is_first: bool
):
    """If an account is full, the server stores the first messages of a batch, and does not answer."""
    limited = "accounts {{ A {{ jetstream {{ max_disk: {} }}, users: [{{user: a, password: a}}] }} }}"
    monkeypatch.setattr("market_index_feeds.nats.publishing.MAX_BATCH", batch)
    monkeypatch.setattr("market_index_feeds.nats.connection.REQUEST_SECONDS", 0.5)
    with nats.served(tmp_path / "full", limited.format(60_000)) as server, ExitStack() as stack:
        bucket = f"nats://a:a@{server.address}/books"
        store = stack.enter_context(open_store(bucket, wait=DEADLINE_SECONDS))
        before = {} if is_first else dict.fromkeys(range(1000, 1020), "1")
        reader = stack.enter_context(Reader(open_feed(bucket)))
        if before:
            store.replace([book(number, 1) for number in before], Freshness("slot 1"))
            reader.until(lambda version: version.index.as_of == "slot 1")
        with pytest.raises(StoreError, match="a disk or an account of its servers may be full") as raised:
            store.update(books(2, 400), freshness=Freshness("slot 2"))
        assert type(raised.value) is StoreError
        (stored,) = map(int, re.findall(r"written to only in part \((\d+) books are stored", str(raised.value)))
        assert stored % batch
        with pytest.raises(StoreError, match="was not written to: resource limits exceeded for account"):
            store.publish(book(5000, 1))
        if before:
            assert outcome(bucket) == (before | contents(2, stored), None)
            reader.until(lambda version: spots(version.index) == before | contents(2, stored))
            assert {version.index.as_of for version in reader.versions} == {"slot 1", None}
        elif stored < batch:
            with pytest.raises(FeedError, match="its first one is not finished"):
                open_feed(bucket).read()
        server.more = limited.format(10_000_000)
        server.reload()
        with open_store(bucket, wait=DEADLINE_SECONDS) as other:
            eventually(lambda: succeeds(lambda: other.update([book(0, 3)], freshness=Freshness("slot 3"))))
            assert outcome(bucket)[1] is None
            other.replace(books(4), Freshness("slot 4"))
        assert outcome(bucket) == (contents(4), "slot 4")


class TestWait:
    @pytest.fixture
    def suspended(self, bucket: str, nats_server: nats.Server) -> Iterator[NatsStore]:
        """A store that waits half a second, and whose server does not answer. Requests have timeouts of a minute."""
        with nats.store_of(bucket, wait=DEADLINE_SECONDS) as store:
            store.replace(books(1), Freshness("slot 1"))
            set_wait(store, 0.5)
            nats_server.stop()
            try:
                yield store
            finally:
                nats_server.send(signal.SIGCONT)

    def test_a_change_is_given_up_after_the_wait(self, suspended: NatsStore):
        reason = r"did not acknowledge a change within 0\.5 seconds \(no answer within 0\.\d+ seconds\)"
        with pytest.raises(UnknownOutcome, match=reason):
            suspended.publish(book(1, 2))

    def test_a_read_is_given_up_after_the_wait(self, suspended: NatsStore):
        for use in (suspended.read, lambda: suspended.position, lambda: suspended.replace(books(2))):
            with pytest.raises(StoreError, match=r"no answer within 0\.\d+ seconds|TimeoutError"):
                use()

    def test_without_a_wait_a_change_is_tried_once(self, bucket: str, nats_server: nats.Server):
        with nats.store_of(bucket, wait=0) as store:
            store.replace(books(1), Freshness("slot 1"))
            assert outcome(bucket) == (contents(1), "slot 1")
