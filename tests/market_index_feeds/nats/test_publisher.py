"""Writes: acknowledged ones are stored, and a late one never overwrites a newer one."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from market_index import Freshness
from market_index_feeds import (
    Receipt,
    Store,
    StoreError,
    Unacknowledged,
    open_feed,
    open_store,
)
from market_index_feeds.nats import records as nats_records
from market_index_feeds.nats.bucket import configuration
from market_index_feeds.nats.connection import BucketConnection
from market_index_feeds.nats.errors import Unreachable
from market_index_feeds.nats.publisher import MAX_IN_FLIGHT
from market_index_feeds.nats.records import key_of
from market_index_feeds.nats.writes import Write
from tests import links, nats
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.nats.conftest import is_in_flight, succeeds
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread

FRESH = Freshness("slot 1", datetime(2026, 11, 22, tzinfo=UTC))


@pytest.fixture
def traced_server(tmp_path: Path) -> Iterator[nats.Server]:
    """A server that logs every message that it receives."""
    with nats.served(tmp_path / "traced", "trace: true") as server:
        yield server


def has_processed(server: nats.Server, number: int, times: int) -> None:
    """Wait until the server has processed this number of writes of a pair in the bucket `books`, stored or not."""
    received = f"[HPUB $KV.books.{key_of(pair(number))} "
    eventually(lambda: server.log.count(received) >= times)
    # A stream processes messages in their order.
    nats.put(server, "books", "foreign", b"")


class TestOutcomes:
    def test_a_contested_write_is_written_with_the_last_sequence_of_its_key(self, store: Store):
        """Also if the other publisher has written the same book."""
        store.publish(book(1, 1))
        with open_store(store.target) as other:
            assert other.publish(book(1, 2)) == Receipt(4, published=1)
            assert store.publish(book(1, 2)) == Receipt(6, published=1)

    def test_a_bucket_without_a_stream_for_its_keys(self, own_server: nats.Server):
        """As while its leader changes: the writes are not stored, and published again."""
        with open_store(own_server.bucket("books"), wait=0.3) as store:
            edited = configuration("books", 1) | {"subjects": ["other"]}
            nats.request(own_server, "STREAM.UPDATE.KV_books", edited)
            with pytest.raises(StoreError, match=r"no stream stores .*; 1 of 1 changes were not made") as raised:
                store.publish(book(1, 1))
            assert type(raised.value) is StoreError
            nats.request(own_server, "STREAM.UPDATE.KV_books", configuration("books", 1))
            assert store.publish(book(1, 1)).published == 1


class TestLateWrites:
    def test_a_message_from_before_a_write_is_not_taken_for_it(self, store: Store):
        """Otherwise an earlier write of the key, which is still in flight, could be stored after it."""
        store.publish(book(1, 1))
        publisher = store._publisher  # type: ignore[attr-defined]  # as if an earlier write of the key was interrupted
        publisher.unacknowledged.add(key_of(pair(1)))
        del publisher.sequences[key_of(pair(1))]
        assert store.publish(book(1, 1)) == Receipt(4, published=1)
        assert not publisher.unacknowledged

    def test_a_late_write_overwrites_nothing_newer(self, traced_server: nats.Server):
        url = f"{traced_server.url}/books"
        with open_store(url, wait=0.3) as store, open_store(url) as other:
            store.publish(book(1, 1))
            store.retract(pair(2))  # it reads that there is none
            other.publish(book(3, 3))
            traced_server.stop()
            with pytest.raises(Unacknowledged, match=r"did not acknowledge 2 of 2 changes in 0\.3 seconds") as raised:
                store.publish(book(1, 2), book(2, 2))
            assert set(raised.value.pairs) == {pair(1), pair(2)}
            assert isinstance(raised.value, StoreError)
            traced_server.send(signal.SIGCONT)
            assert other.publish(book(1, 9)).published == 1
            has_processed(traced_server, 1, times=3)
            assert spots(open_feed(url).read())[1] == "9"
            # A new write of the same store replaces it.
            assert store.publish(book(1, 10)).published == 1
            assert spots(open_feed(url).read())[1] == "10"

    def test_delayed_writes_are_not_stored(self, traced_server: nats.Server):
        """After a newer book, after a retract, and after a replace by what was stored before."""
        url = f"{traced_server.url}/books"
        with links.held_link(traced_server.port) as (port, gate):
            gate.set()
            with open_store(f"nats://127.0.0.1:{port}/books", wait=0.3) as late:
                late.publish(book(1, 1), book(2, 2), book(3, 3))
                late.retract(pair(4), pair(5))  # it reads that there is none
                gate.clear()
                with pytest.raises(Unacknowledged):
                    late.publish(*(book(number, 8) for number in (1, 3, 4, 5)))
                # Another connection to the server, while messages on the first one are delayed.
                late._publisher._servers._servers = {traced_server.url: None}  # type: ignore[attr-defined]  # as if reported
                assert late.publish(book(1, 9)).published == 1
                assert late.retract(pair(5)).retracted == 0
                late.replace([book(1, 9), book(2, 2), book(3, 3)], [pair(4)])
                before = late.revision
                gate.set()
                has_processed(traced_server, 5, times=2)
                assert late.revision == before + 1, "that of the foreign key"
        assert spots(open_feed(url).read()) == {1: "9", 2: "2", 3: "3"}

    def test_a_late_write_does_not_undo_a_retract(self, traced_server: nats.Server):
        url = f"{traced_server.url}/books"
        with open_store(url, wait=0.3) as store:
            store.publish(book(1, 1))
            store.retract(pair(2))  # it reads that there is none
            traced_server.stop()
            with pytest.raises(Unacknowledged):
                store.publish(book(2, 2))
            traced_server.send(signal.SIGCONT)
            eventually(lambda: succeeds(lambda: store.retract(pair(2))))
            has_processed(traced_server, 2, times=2)
            assert spots(open_feed(url).read()) == {1: "1"}
            assert store.publish(book(2, 3)).published == 1
            assert spots(open_feed(url).read()) == {1: "1", 2: "3"}

    def test_an_interrupted_write_does_not_undo_a_retract(
        self, traced_server: nats.Server, sent: list[Write], monkeypatch: pytest.MonkeyPatch
    ):
        url = f"{traced_server.url}/books"

        def interrupt(_: Future[object]) -> None:
            eventually(lambda: is_in_flight(sent))
            raise KeyboardInterrupt

        with open_store(url, wait=DEADLINE_SECONDS) as store:
            store.publish(book(1, 1))
            store.retract(pair(2))  # it reads that there is none
            traced_server.stop()
            with monkeypatch.context() as waiting:
                waiting.setattr(Future, "result", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    store.publish(book(2, 2))
            traced_server.send(signal.SIGCONT)
            store.retract(pair(2))
            has_processed(traced_server, 2, times=2)
            assert spots(open_feed(url).read()) == {1: "1"}
            assert store.publish(book(2, 3)).published == 1

    def test_replacing_writes_keys_with_an_unacknowledged_write_again(self, store: Store, bucket: str):
        """Also of a book that is stored already, and of a pair that is not: the late write could change either."""
        store.replace([book(1, 1), book(3, 3)], freshness=FRESH)
        store.update((), [pair(3)], freshness=FRESH)
        keys = [nats_records.key_of(pair(number)) for number in (1, 2, 3)]
        store._publisher.unacknowledged.update(keys)  # type: ignore[attr-defined]  # as if none were answered
        receipt = store.replace([book(1, 1)], freshness=FRESH)
        assert (receipt.published, receipt.retracted, receipt.revision) == (1, 0, 8)
        assert spots(open_feed(bucket).read()) == {1: "1"}
        store._publisher.unacknowledged.add(nats_records.FRESHNESS_KEY)  # type: ignore[attr-defined]  # like them
        assert store.replace([book(1, 1)], freshness=FRESH) == Receipt(9)
        assert store.replace([book(1, 1)], freshness=FRESH) == Receipt(9)


class TestAcknowledgements:
    def test_a_stored_write_without_an_acknowledgement_is_not_written_twice(self, own_server: nats.Server):
        url = f"{own_server.url}/books"
        with open_store(url, wait=DEADLINE_SECONDS) as store:
            store.publish(book(1, 1))
            own_server.stop()

            def resume() -> None:
                eventually(lambda: store._publisher.unacknowledged)  # type: ignore[attr-defined]  # after an attempt
                own_server.send(signal.SIGCONT)

            resuming = in_thread(resume)
            receipt = store.publish(book(1, 2))
            resuming.join()
            assert receipt.revision == store.revision == 4
            assert spots(open_feed(url).read()) == {1: "2"}

    def test_a_write_with_a_reply_is_not_written_again_if_the_connection_ends(
        self, store: Store, sent: list[Write], monkeypatch: pytest.MonkeyPatch
    ):
        wait_for = BucketConnection.wait_for
        failures = [Unreachable("the connection was closed")]

        async def failing(self: BucketConnection, future: asyncio.Future[Any], seconds: float) -> None:
            are_writes = len(self._replies) > 1
            await wait_for(self, future, seconds)
            if failures and are_writes:
                raise failures.pop()

        store.replace([book(1), book(2)])
        sent.clear()
        monkeypatch.setattr(BucketConnection, "wait_for", failing)
        assert store.publish(book(1, 1), book(2, 1)).published == 2
        assert not failures
        assert [write.key for write in sent].count(key_of(pair(1))) == 1

    def test_a_write_that_was_never_sent_is_not_unacknowledged(self, own_server: nats.Server):
        with open_store(f"{own_server.url}/books", wait=0.5) as store:
            store.publish(book(1, 1))
            own_server.kill()
            eventually(store._publisher._servers._connection.ended.done)  # type: ignore[attr-defined]  # else it is sent
            with pytest.raises(StoreError, match=r"connection refused; 2 of 2 changes were not made") as raised:
                store.publish(book(1, 1), book(2, 2))
            assert type(raised.value) is StoreError

    def test_a_server_that_dies_before_it_acknowledges(self, own_server: nats.Server, sent: list[Write]):
        def kill() -> None:
            eventually(lambda: is_in_flight(sent))
            own_server.kill()

        with open_store(f"{own_server.url}/books", wait=1) as store:
            store.publish(book(1, 3))
            own_server.stop()
            killing = in_thread(kill)
            with pytest.raises(Unacknowledged, match="did not acknowledge 1 of 1 changes in 1 seconds"):
                store.publish(book(1, 1))
            killing.join()

    def test_acknowledged_writes_of_an_interrupted_change_are_stored(
        self, own_server: nats.Server, own_store: Store, monkeypatch: pytest.MonkeyPatch
    ):
        url = own_store.target
        acknowledged = 0
        store_write = Write.store

        def count_and_kill(write: Write, sequence: int) -> None:
            nonlocal acknowledged
            store_write(write, sequence)
            acknowledged += 1
            if acknowledged == 300:
                own_server.kill()

        monkeypatch.setattr(Write, "store", count_and_kill)
        with open_store(url, wait=0.5) as store, pytest.raises(StoreError) as raised:
            store.publish(*(book(number, 2) for number in range(2_000)))
        own_server.start()
        own_server.wait()
        stored = spots(open_feed(url).read())
        left = re.search(r"(\d+) of 2000 changes", str(raised.value))
        assert left
        assert int(left[1]) == 2_000 - acknowledged
        assert len(stored) >= acknowledged >= 300
        # None if every write that was sent had been acknowledged.
        unacknowledged = raised.value.pairs if isinstance(raised.value, Unacknowledged) else ()
        assert len(unacknowledged) <= MAX_IN_FLIGHT
