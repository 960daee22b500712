"""The store: closing, limits of the servers, other publishers, threads and processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import zlib
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
from nats.aio.client import Client

from market_index import OrderBook, wire
from market_index_feeds import (
    BooksRejected,
    Receipt,
    Store,
    StoreBusy,
    StoreError,
    open_feed,
    open_store,
)
from market_index_feeds.nats import records as nats_records
from market_index_feeds.nats.bucket import configuration
from market_index_feeds.nats.event_loop import EventLoop
from market_index_feeds.nats.publisher import Publisher
from market_index_feeds.nats.writes import Write
from tests import nats
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.nats.conftest import is_in_flight
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread, raised_in_thread


class TestClosing:
    def test_closing_does_not_wait_for_the_servers(self, own_server: nats.Server, sent: list[Write]):
        store = open_store(f"{own_server.url}/books", wait=600)
        store.publish(book(1, 3))
        own_server.stop()
        raised: list[str] = []
        writing = in_thread(lambda: raised.append(raised_in_thread(lambda: store.publish(book(1, 1)))))
        eventually(lambda: is_in_flight(sent))
        closing = [Thread(target=store.close) for _ in range(3)]
        for thread in closing:
            thread.start()
        for thread in (*closing, writing):
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()
        assert "was closed during a change: unacknowledged writes may still be stored" in raised[0]
        with pytest.raises(StoreError, match="is closed"):
            store.publish(book(1, 1))

    def test_closing_cancels_work_that_another_thread_has_just_started(
        self, own_server: nats.Server, monkeypatch: pytest.MonkeyPatch
    ):
        store = open_store(f"{own_server.url}/books", wait=2)
        own_server.stop()
        start = EventLoop.start
        closing = Thread(target=store.close)

        def start_and_close(loop: EventLoop, work: Any) -> Any:
            future = start(loop, work)
            closing.start()
            eventually(lambda: loop._is_closed)
            return future

        monkeypatch.setattr(EventLoop, "start", start_and_close)
        with pytest.raises(StoreError, match="was closed during a change"):
            store.publish(book(1, 1))
        closing.join(DEADLINE_SECONDS)
        assert not closing.is_alive()

    def test_the_books_of_a_replace_may_close_the_store(self, store: Store):
        def books() -> Iterator[OrderBook]:
            store.close()
            yield book(1, 1)

        with pytest.raises(StoreError, match="is closed"):
            store.replace(books())


class TestLimits:
    def test_a_book_too_large_for_the_servers_does_not_stop_others(self, own_server: nats.Server):
        url = f"{own_server.url}/books"
        large = OrderBook.from_levels(pair(1), bids=[(f"0.{n * 7919 % 10**9:09}", n**5) for n in range(1, 6000)])
        larger = OrderBook.from_levels(pair(9), bids=[(f"0.{n * 7919 % 10**9:09}", n**5) for n in range(1, 7000)])
        with open_store(url) as store:
            with pytest.raises(
                BooksRejected, match=r"the book of .*:7a/ADA: it must have at most 65280 bytes, deflated, got \d+; "
            ) as raised:
                store.publish(book(2, 2), large, book(3, 3))
            assert raised.value.pairs == (pair(1),)
            assert (raised.value.limit, raised.value.can_retry) == ("65280 bytes, deflated", False)
            assert (raised.value.receipt.published, raised.value.receipt.revision) == (2, 3)
            assert spots(open_feed(url).read()) == {2: "2", 3: "3"}
            store.publish(book(1, 1))
            with pytest.raises(BooksRejected, match="and those of 1 others: it must have") as raised:
                store.replace([large, larger, book(2, 7)])
            assert raised.value.pairs == (pair(1), pair(9))
            assert (raised.value.receipt.published, raised.value.receipt.retracted) == (1, 1)
            assert spots(open_feed(url).read()) == {1: "1", 2: "7"}
            with pytest.raises(BooksRejected) as raised:
                store.publish(larger)
            assert raised.value.receipt.revision == store.revision

    def test_a_book_too_large_for_the_bucket_does_not_stop_others(self, bucket: str, nats_server: nats.Server):
        async def work(client: Client) -> None:
            await client.jetstream().create_key_value(bucket=nats.name_of(bucket), max_value_size=500)

        nats.plain(nats_server, work)
        large = OrderBook.from_levels(pair(1), bids=[(f"0.{n * 7919 % 10**9:09}", n**5) for n in range(1, 600)])
        with open_store(bucket) as store:
            with pytest.raises(BooksRejected) as raised:
                store.publish(book(2, 2), large)
            assert (raised.value.pairs, raised.value.receipt) == ((pair(1),), Receipt(2, published=1))
            with pytest.raises(BooksRejected) as raised:
                store.replace([book(2, 3), large], as_of="slot 1")
            assert (raised.value.pairs, raised.value.receipt) == ((pair(1),), Receipt(4, published=1))
            assert raised.value.receipt.pairs == {pair(2)}
            store.publish(book(2, 2))
            assert spots(open_feed(bucket).read()) == {2: "2"}

    def test_the_limit_of_the_bucket_is_named(self, bucket: str, nats_server: nats.Server):
        name = nats.name_of(bucket)
        nats.request(nats_server, f"STREAM.CREATE.KV_{name}", configuration(name, 1) | {"max_msg_size": 300})
        limit = "as many bytes as max_msg_size of the bucket allows"
        with (
            open_store(bucket) as store,
            pytest.raises(BooksRejected, match=f"it must have at most {limit}, got ") as raised,
        ):
            store.publish(nats.noise(1))
        assert (raised.value.limit, raised.value.can_retry) == (limit, False)

    def test_a_book_above_the_limit_of_all_media_is_named_with_that_limit(self, store: Store):
        book = OrderBook.from_levels(pair(1), bids=[(f"0.{number:028}", 2**64 - 1) for number in range(1, 230_000)])
        with pytest.raises(BooksRejected, match="it must have at most 16777216 bytes of JSON, got ") as raised:
            store.publish(book)
        assert raised.value.limit == f"{wire.MAX_ORDER_BOOK_BYTES} bytes of JSON"

    def test_books_that_the_servers_reject_do_not_stop_others(self, bucket: str, nats_server: nats.Server):
        async def work(client: Client) -> None:
            await client.jetstream().create_key_value(bucket=nats.name_of(bucket), max_bytes=2000)

        nats.plain(nats_server, work)
        large = nats.noise(1)
        with open_store(bucket) as store:
            with pytest.raises(BooksRejected, match=r"rejected .* others: maximum bytes exceeded; \d+ of 50") as raised:
                store.publish(*map(book, range(50)))
            stored = set(open_feed(bucket).read())
            assert stored == set(map(pair, range(50))) - set(raised.value.pairs)
            assert raised.value.receipt == Receipt(len(stored), published=len(stored))
            assert (raised.value.limit, raised.value.can_retry) == (None, True)
            nats.request(nats_server, f"STREAM.PURGE.KV_{nats.name_of(bucket)}", {})
            with pytest.raises(BooksRejected, match=f"rejected {large.pair}: maximum bytes exceeded; 2 of 3") as raised:
                store.replace([book(1, 1), large, book(2, 2)])
            assert (raised.value.pairs, raised.value.receipt.published) == ((large.pair,), 2)
            assert spots(open_feed(bucket).read()) == {1: "1", 2: "2"}

    def test_removals_that_the_servers_reject_do_not_stop_others(
        self, store: Store, bucket: str, nats_server: nats.Server
    ):
        name = nats.name_of(bucket)
        store.publish(book(1, 1))
        nats.request(nats_server, f"STREAM.UPDATE.KV_{name}", configuration(name, 1) | {"max_msg_size": 20})
        with pytest.raises(BooksRejected, match=r"message size exceeds maximum allowed; 0 of 1 changes") as raised:
            store.retract(pair(1))
        assert (raised.value.pairs, raised.value.receipt) == ((pair(1),), Receipt(2))
        with pytest.raises(BooksRejected, match=r"message size exceeds maximum allowed; 0 of 1 changes") as raised:
            store.replace([])
        assert (raised.value.pairs, raised.value.receipt) == ((pair(1),), Receipt(2))

    def test_books_too_large_are_named_with_those_that_are_rejected(self, bucket: str, nats_server: nats.Server):
        async def work(client: Client) -> None:
            name = nats.name_of(bucket)
            await client.jetstream().create_key_value(bucket=name, max_bytes=2000, max_value_size=1000)

        nats.plain(nats_server, work)
        with open_store(bucket) as store:
            with pytest.raises(BooksRejected, match="of 51 changes were made") as raised:
                store.publish(nats.noise(1), *map(book, range(50)))
            assert raised.value.pairs[-1] == nats.noise(1).pair
            assert len(raised.value.pairs) == 51 - raised.value.receipt.published

    def test_the_limit_of_the_servers_may_become_lower(self, own_server: nats.Server):
        url = f"{own_server.url}/books"
        some = OrderBook.from_levels(pair(1), bids=[(f"0.{n * 7919 % 10**9:09}", n**5) for n in range(1, 2000)])
        with open_store(url) as store:
            store.publish(some)
            own_server.reload("max_payload: 4096")
            with pytest.raises(BooksRejected) as raised:
                store.publish(some, book(2, 2))
            assert raised.value.pairs == (pair(1),)
            assert len(open_feed(url).read()) == 2

    def test_a_bucket_that_cannot_be_watched_leaves_no_subscription(
        self, store: Store, bucket: str, nats_server: nats.Server
    ):
        async def work(client: Client) -> None:
            manager, name = client.jetstream(), nats.name_of(bucket)
            info = await manager.stream_info(f"KV_{name}")
            await manager.update_stream(info.config, max_consumers=1)
            await manager.pull_subscribe(f"$KV.{name}.>", durable="theirs", stream=f"KV_{name}")

        nats.plain(nats_server, work)
        for _ in range(3):
            with pytest.raises(StoreError, match="maximum consumers limit reached"):
                store.replace([book(1, 1)])
        assert len(store._publisher._servers._connection._client._subs) == 1  # type: ignore[attr-defined]  # of replies


class TestOthers:
    """Other publishers, threads and processes."""

    def test_a_pair_that_others_keep_writing_raises_store_busy(
        self, store: Store, bucket: str, nats_server: nats.Server, monkeypatch: pytest.MonkeyPatch
    ):
        publish = Publisher._publish

        async def slower(self: Publisher, *arguments: Any) -> None:
            await asyncio.to_thread(nats.put, nats_server, nats.name_of(bucket), nats_records.key_of(pair(1)), b"mine")
            await publish(self, *arguments)

        monkeypatch.setattr(Publisher, "_publish", slower)
        with (
            open_store(bucket, wait=0.4) as impatient,
            pytest.raises(StoreBusy, match=r"others wrote .* 0\.4 seconds"),
        ):
            impatient.publish(book(1, 1))

    def test_books_that_another_compressor_deflated_are_not_written_again(
        self, store: Store, bucket: str, nats_server: nats.Server
    ):
        books = [OrderBook.from_levels(pair(n), bids=[(f"0.{m:04}", n) for m in range(1, 200)]) for n in range(1, 4)]
        store.replace(books)
        for one in books:
            record, value = nats_records.record_of(one), zlib.compress(wire.order_book_to_json(one), 9)
            nats.put(nats_server, nats.name_of(bucket), record.key, value, dict(record.headers))
        receipt = store.replace(books)
        assert (receipt.published, receipt.retracted) == (0, 0)
        changed = books[0].apply(spot="1")
        assert store.replace([changed, *books[1:]]).pairs == {changed.pair}
        assert open_feed(bucket).read_order_book(changed.pair) == changed

    def test_a_bucket_that_others_created_again_has_changed(self, store: Store, bucket: str, nats_server: nats.Server):
        """Also with as many keys and messages."""
        store.replace([book(1, 1), book(2, 2)])
        assert store.is_unchanged_by_others()
        nats.delete(nats_server, nats.name_of(bucket))
        with open_store(bucket) as other:
            other.publish(book(1, 1), book(3, 3))
            assert other.revision == 3
        assert not store.is_unchanged_by_others()

    def test_a_forked_process_cannot_publish_and_changes_nothing(self, bucket: str):
        script = (
            "import os, sys\n"
            "from market_index_feeds import StoreError, open_store\n"
            "from tests.market_index_feeds.made_up import book\n"
            "store = open_store(sys.argv[1])\n"
            "if child := os.fork():\n"
            "    os.waitpid(child, 0)\n"
            "    print(store.publish(book(1, 1)).revision)\n"
            "else:\n"
            "    try:\n"
            "        store.publish(book(2, 2))\n"
            "    except StoreError as error:\n"
            "        print(error, flush=True)\n"
            "    store.close()\n"
            "    os._exit(0)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, bucket], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=True
        )
        assert done.stdout.splitlines() == [
            f"{bucket} was opened before a fork: open it in the process that publishes",
            "2",
        ]

    def test_threads_of_one_store_wait_no_longer_than_the_timeout(self, own_server: nats.Server):
        with open_store(f"{own_server.url}/books", wait=0.2) as store:
            with store._locked():  # type: ignore[attr-defined]  # as another thread does while it writes
                raised = raised_in_thread(lambda: store.publish(book(1)))
            assert "others have been writing for 0.2 seconds" in raised
            assert raised.startswith("StoreBusy")

    def test_a_bucket_has_no_option_synchronous(self, bucket: str):
        with pytest.raises(StoreError, match="synchronous must be 'full' for a bucket, got"):
            open_store(bucket, synchronous="normal")
