"""A relay makes a store the same as a feed, after any interruption."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import Any

import pytest

from market_index import LiveIndex, MarketIndex, OrderBook, wire
from market_index_feeds import Relay, Store, StoreError, open_feed, open_store
from market_index_feeds.feed import NO_ORDER_BOOK
from market_index_feeds.nats.bucket import configuration
from market_index_feeds.nats.freshness import BucketFreshness
from tests import nats
from tests.market_index_feeds.made_up import book, pair
from tests.market_index_feeds.media import Bucket, File
from tests.market_index_feeds.relays import as_of, await_spots, is_complete, read, read_or_none, relaying
from tests.waiting import DEADLINE_SECONDS, eventually

INCOMPLETE = "is not complete: it must be replaced as a whole"


def test_the_store_is_made_the_same_and_kept_the_same(source: Store, bucket: str):
    source.replace([book(1, 1), book(2, 2)])
    with open_store(bucket) as before:
        before.publish(book(2, 2), book(8, 8))
        revision = before.revision
    with relaying(source, bucket) as relay:
        assert read(bucket) == {1: "1", 2: "2"}
        assert relay.target == bucket
        with open_store(bucket) as after:
            # One message for each book that differs, and one for the freshness.
            assert after.revision == revision + 3, "an equal book must not be written again"
        source.publish(book(1, 9), book(3, 3))
        await_spots(bucket, {1: "9", 2: "2", 3: "3"})
        source.retract(pair(2))
        await_spots(bucket, {1: "9", 3: "3"})


def test_any_feed_is_relayed_into_any_store(source: Store, bucket: str, tmp_path: Path):
    copy = str(tmp_path / "copy.db")
    with relaying(source, bucket), relaying(bucket, copy):
        source.publish(book(1, 1))
        await_spots(copy, {1: "1"})
        source.retract(pair(1))
        await_spots(copy, {})


def test_an_interrupted_relay_resumes(source: Store, bucket: str):
    source.publish(book(1, 1), book(2, 2))
    with relaying(source, bucket):
        await_spots(bucket, {1: "1", 2: "2"})
    source.retract(pair(1))
    source.publish(book(3, 3))
    with relaying(source, bucket):
        await_spots(bucket, {2: "2", 3: "3"})


def test_an_unreachable_store_is_retried(source: Store, tmp_path: Path, logged: pytest.LogCaptureFixture):
    source.publish(book(1, 1))
    with nats.served(tmp_path / "own") as server:
        target = f"{server.url}/books"
        with relaying(source, target, wait=0.5):
            await_spots(target, {1: "1"})
            server.kill()
            source.publish(book(1, 2))
            source.retract(pair(9))
            eventually(lambda: "; retrying" in logged.text)
            source.publish(book(2, 2))
            server.empty()
            server.start()
            server.wait()
            await_spots(target, {1: "2", 2: "2"})
            eventually(lambda: f"{target}: recovered (revision" in logged.text)
            # Writes from now on are unacknowledged.
            server.stop()
            failures = logged.text.count("; retrying")
            source.publish(book(1, 3))
            eventually(lambda: logged.text.count("; retrying") > failures)
            source.publish(book(1, 4))
            server.send(signal.SIGCONT)
            await_spots(target, {1: "4", 2: "2"})
            source.publish(book(1, 5))
            await_spots(target, {1: "5", 2: "2"})


def test_changes_of_other_publishers_are_undone(source: Store, bucket: str, nats_server: nats.Server):
    name = Bucket(bucket, nats_server).name
    source.replace([book(1, 1), book(2, 2)])
    with relaying(source, bucket):
        with open_store(bucket) as other:
            other.publish(book(1, 7), book(9, 9))
            other.retract(pair(2))
        await_spots(bucket, {1: "1", 2: "2"})
        nats.purge(nats_server, name)
        await_spots(bucket, {1: "1", 2: "2"})
        nats.delete(nats_server, name)
        await_spots(bucket, {1: "1", 2: "2"})
        Bucket(bucket, nats_server).spoil(pair(1), b"nonsense")
        await_spots(bucket, {1: "1", 2: "2"})


def test_changes_of_other_publishers_are_undone_while_the_relay_publishes(source: Store, bucket: str, tmp_path: Path):
    source.publish(book(1, 1), book(2, 2))
    copy = str(tmp_path / "copy.db")
    for target in (bucket, copy):
        with relaying(source, target), open_store(target) as other:
            for spot in range(3, 8):
                other.publish(book(1, 666))
                source.publish(book(2, spot))
                eventually(lambda target=target, spot=spot: (read_or_none(target) or {}).get(2) == str(spot))  # type: ignore[misc]  # a default has no type
            await_spots(target, {1: "1", 2: "7"})


def test_pairs_that_a_stream_has_not_named_are_not_retracted(source: Store, bucket: str, tmp_path: Path):
    with open_store(bucket) as before:
        before.publish(*(book(number, number) for number in range(1, 5)))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    lines = [wire.order_book_to_json(book(number, 9)) + b"\n" for number in (1, 2, 3)]
    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, lines[0])
    with relaying(str(pipe), bucket) as relay:
        await_spots(bucket, {1: "9", 2: "2", 3: "3", 4: "4"})
        os.write(writer, b"".join(lines[1:]))
        await_spots(bucket, {1: "9", 2: "9", 3: "9", 4: "4"})
        os.close(writer)
        eventually(lambda: relay.feed.problem == "has ended")
        await_spots(bucket, {1: "9", 2: "9", 3: "9", 4: "4"})


def test_the_relay_continues_after_an_unexpected_error(source: Store, bucket: str, logged: pytest.LogCaptureFixture):
    source.publish(book(1, 1))
    stores: list[Store] = []
    raising = [
        StoreError("not yet"),
        StoreError("not there"),
        ZeroDivisionError("unexpected"),
        OSError(24, "Too many open files"),
    ]

    def opened() -> Store:
        if stores and raising:
            raise raising.pop()
        stores.append(open_store(bucket, wait=DEADLINE_SECONDS))
        return stores[-1]

    with open_feed(source.target) as feed:
        relay = Relay(feed, opened, check_seconds=0.05)
        relay.start()
        running = Thread(target=relay.run)
        running.start()
        stores[0].close()
        source.publish(book(1, 2))
        await_spots(bucket, {1: "2"})
        assert logged.text.count("unexpected error") == 2
        # Logged when it starts to fail, and not at every retry.
        assert logged.text.count("; retrying") == 1
        relay.close()
        running.join(DEADLINE_SECONDS)
        assert not running.is_alive()


def test_closing_does_not_wait_for_an_answer_of_the_servers(source: Store, tmp_path: Path):
    source.publish(book(1, 1))
    with (
        nats.served(tmp_path / "own") as server,
        relaying(source, f"{server.url}/books", wait=2 * DEADLINE_SECONDS) as relay,
    ):
        server.stop()
        source.publish(book(1, 2))
        eventually(lambda: relay.live.current.order_book(pair(1)).spot == 2)
        relay.close()
        # Before the servers answer, and long before the timeout of the relay.
        eventually(lambda: relay._store is None)
        server.send(signal.SIGCONT)


def test_a_feed_without_a_book_retracts_nothing(source: Store, bucket: str, logged: pytest.LogCaptureFixture):
    with open_store(bucket) as before:
        before.publish(book(1, 1))
    with relaying(source, bucket) as relay:
        assert read(bucket) == {1: "1"}
        assert f"{bucket}: 1 pairs are kept until {source.target} names all pairs" in logged.text
        source.publish(book(2, 2))
        await_spots(bucket, {1: "1", 2: "2"})
        source.retract(pair(2))
        await_spots(bucket, {1: "1"})
        assert relay.feed.problem is None


def test_pairs_that_a_store_does_not_name_are_kept_until_it_is_replaced(source: Store, target: str):
    """Until then, their books may be older than the as_of of the store."""
    with open_store(target) as before:
        before.replace([book(1, 7), book(8, 8)], as_of="slot 7")
    source.update([book(1, 1)], as_of="slot 1")
    with relaying(source, target):
        assert (read(target), as_of(target)) == ({1: "1", 8: "8"}, None)
        source.update([book(1, 2)], as_of="slot 2")
        await_spots(target, {1: "2", 8: "8"})
        assert as_of(target) is None
        source.replace([book(1, 2), book(3, 3)], as_of="slot 3")
        eventually(lambda: (read_or_none(target), as_of(target)) == ({1: "2", 3: "3"}, "slot 3"))


def test_an_unnamed_pair_is_kept_while_a_record_is_invalid_and_an_explicit_retraction_is_relayed(
    source: Store, target: str
):
    source.replace([book(1, 1), book(2, 2), book(3, 3), book(9, 1)])
    with open_store(target) as before:
        before.publish(book(2, 7), book(8, 8), book(9, 9))
    File(source.target).spoil(pair(2), b"nonsense")
    File(source.target).spoil(pair(9), b"nonsense")
    with relaying(source, target) as relay:
        assert read(target) == {1: "1", 2: "7", 3: "3", 8: "8", 9: "9"}
        assert relay.feed.current_rejections == 2
        source.retract(pair(3))
        await_spots(target, {1: "1", 2: "7", 8: "8", 9: "9"})
        with open_store(target) as other:
            other.publish(book(3, 6))
        await_spots(target, {1: "1", 2: "7", 8: "8", 9: "9"})
        source.publish(book(1, 4), book(2, 5))
        await_spots(target, {1: "4", 2: "5", 8: "8", 9: "9"})
        source.retract(pair(9))
        await_spots(target, {1: "4", 2: "5"})


def test_pairs_that_an_unreadable_line_may_name_are_not_retracted(source: Store, bucket: str):
    source.publish(book(1, 1), book(2, 2), book(3, 3))
    with relaying(source, bucket):
        await_spots(bucket, {1: "1", 2: "2", 3: "3"})
    lines = [wire.order_book_to_json(book(number, number)) for number in (2, 3)]
    feed = Path(source.target).with_name("books.ndjson")
    feed.write_bytes(b"\n".join([b"nonsense", *lines, b""]))
    with relaying(str(feed), bucket) as relay:
        assert read(bucket) == {1: "1", 2: "2", 3: "3"}
        assert relay.feed.rejected == 1
        with open_store(bucket) as other:
            other.publish(book(2, 7))
        await_spots(bucket, {1: "1", 2: "2", 3: "3"})


class TestWiped:
    """A bucket whose server lost its data: readers keep every pair until the relay has replaced the bucket."""

    books = tuple(book(number, 1) for number in range(20))

    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[nats.Server]:
        with nats.served(tmp_path / "own") as server:
            yield server

    def test_a_replica_loses_no_pair_until_the_relay_has_replaced_the_target(
        self, source: Store, server: nats.Server, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        target, released = server.bucket("books"), Event()
        put = BucketFreshness._put

        async def holding(freshness: BucketFreshness, *arguments: Any) -> int:
            await asyncio.to_thread(released.wait, DEADLINE_SECONDS)
            return await put(freshness, *arguments)

        source.replace(self.books, as_of="slot 1")
        with relaying(source, target) as relay, open_feed(target) as replica:
            replica.start(live)
            server.kill()
            source.retract(pair(0))
            eventually(lambda: pair(0) not in relay.live.current)
            monkeypatch.setattr(BucketFreshness, "_put", holding)
            server.empty()
            server.start()
            try:
                eventually(lambda: replica.problem == f"lacks live pairs, and {INCOMPLETE}")
                assert (live.current, live.current.as_of) == (MarketIndex(self.books), None)
            finally:
                released.set()
            eventually(lambda: (replica.problem, live.current) == (None, MarketIndex(self.books[1:])))
            eventually(lambda: live.current.as_of == "slot 1")

    def test_a_relay_loses_no_pair_until_its_source_is_replaced(self, server: nats.Server, tmp_path: Path):
        copy = str(tmp_path / "copy.db")
        with open_store(server.bucket("books")) as first:
            first.replace(self.books, as_of="slot 1")
            with relaying(first, copy) as relay:
                server.kill()
                server.empty()
                server.start()
                with open_store(first.target) as again:
                    eventually(lambda: relay.feed.problem == NO_ORDER_BOOK)
                    again.update([book(1, 2), book(99, 2)], as_of="slot 2")
                    expected: dict[int, str | None] = {**dict.fromkeys(range(20), "1"), 1: "2", 99: "2"}
                    await_spots(copy, expected)
                    assert relay.feed.problem == f"lacks live pairs, and {INCOMPLETE}"
                    assert as_of(copy) is None
                    with open_store(copy) as other:
                        other.retract(pair(5))
                    await_spots(copy, expected)
                    again.replace([book(1, 2), book(99, 3)], as_of="slot 3")
                    eventually(lambda: (read_or_none(copy), as_of(copy)) == ({1: "2", 99: "3"}, "slot 3"))


def test_a_book_that_is_too_large_does_not_stop_others(source: Store, tmp_path: Path, logged: pytest.LogCaptureFixture):
    with nats.served(tmp_path / "small", "max_payload: 16384") as server:
        target = f"{server.url}/books"
        large = nats.noise(1)
        source.publish(large, book(1, 1))
        with open_store(target) as before:
            before.publish(book(8, 8))
        with relaying(source, target):
            assert read(target) == {1: "1", 8: "8"}
            source.publish(large, book(1, 2), book(2, 2))
            await_spots(target, {1: "2", 2: "2", 8: "8"})
            source.replace([large, book(1, 2), book(2, 2)])
            await_spots(target, {1: "2", 2: "2"})
            assert not is_complete(target), "readers of an earlier bucket keep the pair"
            assert logged.text.count("does not accept the book of") == 1
            source.publish(OrderBook(large.pair, spot="3"))
            await_spots(target, {1: "2", 2: "2", 1001: "3"})
            eventually(lambda: is_complete(target))


def test_a_book_that_the_servers_reject_does_not_stop_others(
    source: Store, bucket: str, nats_server: nats.Server, logged: pytest.LogCaptureFixture
):
    """The bucket has no room for the book until its limit is raised."""
    name = nats.name_of(bucket)
    nats.request(nats_server, f"STREAM.CREATE.KV_{name}", configuration(name, 1) | {"max_bytes": 40_000})
    large = nats.noise(1)
    source.replace([large, book(1, 1), book(2, 2)])
    with relaying(source, bucket) as relay:
        assert relay.target == bucket
        await_spots(bucket, {1: "1", 2: "2"})
        assert not is_complete(bucket), "readers of an earlier bucket keep the pair"
        source.publish(book(1, 9), book(3, 3))
        source.retract(pair(2))
        await_spots(bucket, {1: "9", 3: "3"})
        assert logged.text.count(f"rejected {large.pair}: maximum bytes exceeded") == 1
        nats.request(nats_server, f"STREAM.UPDATE.KV_{name}", configuration(name, 1) | {"max_bytes": 400_000})
        eventually(lambda: f"{bucket}: accepted 1 pairs that were too large or rejected before" in logged.text)
        assert set(read(bucket)) == {1, 3, 1001}
        assert "retrying" not in logged.text
        eventually(lambda: is_complete(bucket))


def test_a_removal_that_the_servers_reject_is_made_once_they_accept_it(
    source: Store, bucket: str, nats_server: nats.Server, logged: pytest.LogCaptureFixture
):
    name = nats.name_of(bucket)
    source.publish(book(1, 1), book(2, 2))
    with relaying(source, bucket):
        nats.request(nats_server, f"STREAM.UPDATE.KV_{name}", configuration(name, 1) | {"max_msg_size": 20})
        source.retract(pair(1))
        eventually(lambda: f"rejected {pair(1)}: message size exceeds maximum allowed" in logged.text)
        nats.request(nats_server, f"STREAM.UPDATE.KV_{name}", configuration(name, 1))
        await_spots(bucket, {2: "2"})
        source.publish(book(2, 3))
        await_spots(bucket, {2: "3"})
        assert "retrying" not in logged.text


def test_a_signal_handler_may_close_it_at_any_moment(source: Store, tmp_path: Path):
    for moment in range(1, 30):
        with open_feed(source.target) as feed:
            relay = Relay(feed, lambda: open_store(tmp_path / "copy.db", synchronous="normal"))
            relay.start()
            run_and_close(relay, moment)
            assert relay.is_closing


def run_and_close(relay: Relay, moment: int) -> None:
    """Run a relay, and close it before a line of its code.

    Like a signal handler, the trace function interrupts the thread of the relay between two lines.
    """
    lines = 0

    def interrupt(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        if lines == moment and event == "line":
            relay.close()
        return interrupt

    def run() -> None:
        sys.settrace(interrupt)
        try:
            relay.run()
        finally:
            sys.settrace(None)

    running = Thread(target=run, daemon=True)
    running.start()
    running.join(DEADLINE_SECONDS)
    assert not running.is_alive(), f"closed at line {moment}, it did not end"


def test_a_store_that_cannot_be_opened_at_the_start_is_an_error(source: Store, tmp_path: Path):
    with open_feed(source.target) as feed:
        relay = Relay(feed, lambda: open_store(tmp_path))
        with pytest.raises(StoreError, match="cannot be opened"):
            relay.start()


def test_a_file_can_be_the_target(source: Store, tmp_path: Path):
    target = File(str(tmp_path / "copy.db"))
    source.publish(*(book(number, 1) for number in range(100)))
    with relaying(source, target.target):
        for spot in range(2, 12):
            source.publish(*(book(number, spot) for number in range(100)))
        await_spots(target.target, dict.fromkeys(range(100), "11"))
    assert open_feed(target.target).read() == MarketIndex(book(number, 11) for number in range(100))
