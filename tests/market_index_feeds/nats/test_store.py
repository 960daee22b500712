"""What the servers acknowledge, and what they do not."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from nats.aio.client import Client

from market_index import LiveIndex, OrderBook
from market_index_feeds import (
    BookTooLarge,
    Receipt,
    Store,
    StoreBusy,
    StoreError,
    Unacknowledged,
    open_feed,
    open_store,
)
from market_index_feeds.nats import records as nats_records
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.cluster import Cluster
from market_index_feeds.nats.errors import Unreachable
from market_index_feeds.nats.writes import InFlight, Write, WriteState
from tests import nats
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.nats.conftest import name_of
from tests.waiting import eventually, later, raised_in_thread

KEY = re.compile(r"[-/_=a-zA-Z0-9][-/_=.a-zA-Z0-9]*[-/_=a-zA-Z0-9]")
NOTICED_SECONDS = 2
"""By when a follower has noticed whatever happened; and some more for a machine that has other things to do."""


def noticed(holds: Callable[[], object]) -> None:
    eventually(holds, 2 * NOTICED_SECONDS)


class TestWriting:
    """What is acknowledged, and what is not."""

    def test_nothing_stale_wins(self, own_server: nats.Server):
        """A book that was sent in time and arrives late does not take the place of a newer one."""
        url = f"{own_server.url}/books"
        with open_store(url, wait=0.3) as store, open_store(url) as other:
            store.publish(book(1, 1))
            other.publish(book(3, 3))
            own_server.stop()
            with pytest.raises(Unacknowledged, match=r"did not acknowledge 2 of 2 changes in 0\.3 seconds") as raised:
                store.publish(book(1, 2), book(2, 2))
            assert set(raised.value.pairs) == {pair(1), pair(2)}
            assert isinstance(raised.value, StoreError)
            own_server.send(signal.SIGCONT)
            assert other.publish(book(1, 9)).published == 1
            time.sleep(0.5)
            assert spots(open_feed(url).read())[1] == "9"
            # Whoever sent it has the last word once it says something new.
            assert store.publish(book(1, 10)).published == 1
            assert spots(open_feed(url).read())[1] == "10"

    def test_what_is_held_up_on_its_way_arrives_in_vain(self, store: Store, bucket: str, nats_server: nats.Server):
        """However late: behind a newer book, behind a retract, and behind a replace that wanted what stood there."""
        assert store.revision == 0
        with nats.held_link(nats_server.port) as (port, gate):
            gate.set()
            with open_store(f"nats://127.0.0.1:{port}/{name_of(bucket)}", wait=0.3) as late:
                late.publish(book(1, 1), book(2, 2), book(3, 3))
                gate.clear()
                with pytest.raises(Unacknowledged):
                    late.publish(*(book(number, 8) for number in (1, 3, 4, 5)))
                # It finds another way, and the first one is as it was.
                late._publisher.cluster._servers = {nats_server.url: None}  # type: ignore[attr-defined]  # as if told of it
                assert late.publish(book(1, 9)).published == 1
                assert late.retract(pair(5)).retracted == 0
                late.replace([book(1, 9), book(2, 2), book(3, 3)], lambda one: one == pair(5))
                before = late.revision
                gate.set()
                time.sleep(0.5)
                assert late.revision == before
        assert spots(open_feed(bucket).read()) == {1: "9", 2: "2", 3: "3"}

    def test_what_is_in_doubt_cannot_come_to_stand_behind_a_retract(self, own_server: nats.Server):
        url = f"{own_server.url}/books"
        with open_store(url, wait=0.3) as store:
            store.publish(book(1, 1))
            own_server.stop()
            with pytest.raises(Unacknowledged):
                store.publish(book(2, 2))
            own_server.send(signal.SIGCONT)
            eventually(lambda: succeeds(lambda: store.retract(pair(2))))
            time.sleep(0.5)
            assert spots(open_feed(url).read()) == {1: "1"}
            assert store.publish(book(2, 3)).published == 1
            assert spots(open_feed(url).read()) == {1: "1", 2: "3"}

    def test_what_was_written_after_all_is_not_written_twice(self, own_server: nats.Server):
        url = f"{own_server.url}/books"
        with open_store(url, wait=20) as store:
            store.publish(book(1, 1))
            own_server.stop()
            waking = later(4, lambda: own_server.send(signal.SIGCONT))
            receipt = store.publish(book(1, 2))
            waking.join()
            assert receipt.revision == store.revision
            assert spots(open_feed(url).read()) == {1: "2"}

    def test_what_was_never_sent_is_not_in_doubt(self, own_server: nats.Server):
        with open_store(f"{own_server.url}/books", wait=0.5) as store:
            own_server.kill()
            eventually(store._publisher.cluster.connection.ended.is_set)  # type: ignore[attr-defined]  # else it is sent, to nobody
            with pytest.raises(StoreError, match=r"connection refused; 2 of 2 changes were not made") as raised:
                store.publish(book(1, 1), book(2, 2))
            assert type(raised.value) is StoreError

    def test_replacing_leaves_nothing_to_what_is_in_doubt(self, store: Store, bucket: str):
        """A book that stands there as it is wanted, and a pair that does not, may both have a put to come."""
        store.publish(book(1, 1), book(3, 3))
        store.retract(pair(3))
        doubted = [nats_records.key_of(pair(number)) for number in (1, 2, 3)]
        store._publisher.unacknowledged.update(doubted)  # type: ignore[attr-defined]  # as if each had been sent and not acknowledged
        receipt = store.replace([book(1, 1)])
        assert (receipt.published, receipt.retracted, receipt.revision) == (1, 0, 6)
        assert spots(open_feed(bucket).read()) == {1: "1"}
        assert store.replace([book(1, 1)]).revision == 6

    def test_to_close_it_does_not_wait_for_its_servers(self, own_server: nats.Server):
        store = open_store(f"{own_server.url}/books", wait=15)
        own_server.stop()
        raised: list[str] = []
        writing = Thread(target=lambda: raised.append(raised_in_thread(lambda: store.publish(book(1, 1)))))
        writing.start()
        time.sleep(0.3)
        began = time.monotonic()
        closing = [Thread(target=store.close) for _ in range(3)]
        for thread in closing:
            thread.start()
        for thread in (*closing, writing):
            thread.join()
        assert time.monotonic() - began < 5
        assert "was closed meanwhile: what was not acknowledged may be written yet" in raised[0]
        with pytest.raises(StoreError, match="is closed"):
            store.publish(book(1, 1))

    def test_it_may_be_closed_by_who_is_asked_what_to_keep(self, store: Store):
        store.publish(book(1, 1))
        with pytest.raises(StoreError, match="is closed"):
            store.replace([], lambda _: bool(store.close()))

    def test_what_the_servers_take_may_become_less(self, own_server: nats.Server):
        url = f"{own_server.url}/books"
        some = OrderBook.from_levels(pair(1), bids=[(f"0.{n * 7919 % 10**9:09}", n**5) for n in range(1, 2000)])
        with open_store(url) as store:
            store.publish(some)
            own_server.reload("max_payload: 4096")
            time.sleep(0.3)
            with pytest.raises(BookTooLarge) as raised:
                store.publish(some, book(2, 2))
            assert raised.value.pairs == (pair(1),)
            assert len(open_feed(url).read()) == 2

    def test_what_cannot_be_watched_leaves_nothing_behind(self, store: Store, bucket: str, nats_server: nats.Server):
        async def work(client: Client) -> None:
            manager = client.jetstream()
            info = await manager.stream_info(f"KV_{name_of(bucket)}")
            await manager.update_stream(info.config, max_consumers=1)
            await manager.pull_subscribe(f"$KV.{name_of(bucket)}.>", durable="theirs", stream=f"KV_{name_of(bucket)}")

        nats.plain(nats_server, work)
        for _ in range(3):
            with pytest.raises(StoreError, match="maximum consumers limit reached"):
                store.replace([book(1, 1)])
        assert len(store._publisher.cluster.connection._client._subs) == 2  # type: ignore[attr-defined]  # of answers to writes and others

    def test_a_server_that_dies_before_it_acknowledges(self, own_server: nats.Server):
        with open_store(f"{own_server.url}/books", wait=1) as store:
            own_server.stop()
            killing = later(0.3, own_server.kill)
            with pytest.raises(Unacknowledged, match="did not acknowledge 1 of 1 changes in 1 seconds"):
                store.publish(book(1, 1))
            killing.join()

    def test_an_interrupt_leaves_what_was_sent_in_doubt(self, own_server: nats.Server):
        """Else what arrives late could come to stand behind a retract."""
        url = f"{own_server.url}/books"
        with open_store(url, wait=5) as store:
            store.publish(book(1, 1))
            own_server.stop()
            interrupting = later(0.5, lambda: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                store.publish(book(2, 2))
            interrupting.join()
            own_server.send(signal.SIGCONT)
            store.retract(pair(2))
            time.sleep(0.3)
            assert spots(open_feed(url).read()) == {1: "1"}
            assert store.publish(book(2, 3)).published == 1

    def test_a_connection_that_has_ended_is_of_no_more_use(self, store: Store, bucket: str, nats_server: nats.Server):
        async def work() -> None:
            connection = await Cluster(Address.parse(bucket)).connect()

            async def late(client: Client) -> None:
                await client.publish(f"{connection._inbox}.77", b'{"seq": 1}')

            # An answer to a question that nobody waits for any longer.
            await asyncio.to_thread(nats.plain, nats_server, late)
            assert (await connection.state()).last_sequence == 0
            await connection.close()
            with pytest.raises(Unreachable):
                await connection.state()
            write = Write("key", None)
            with pytest.raises(Unreachable):
                await InFlight(connection, 1).send([write])
            assert write.state is WriteState.UNACKNOWLEDGED

        asyncio.run(work())

    def test_what_was_acknowledged_of_a_large_change_is_there(self, own_server: nats.Server):
        url = f"{own_server.url}/books"
        with open_store(url, wait=0.5) as store:
            store.publish(book(0, 1))

            def kill() -> None:
                eventually(lambda: nats.length_of(own_server, "books") > 500)
                own_server.kill()

            killing = later(0, kill)
            with pytest.raises(StoreError) as raised:
                store.publish(*(book(number, 2) for number in range(50_000)))
            killing.join()
            own_server.start()
            own_server.wait()
            there = spots(open_feed(url).read())
            assert len(there) > 500
            left = re.search(r"(\d+) of 50000 changes", str(raised.value))
            assert left
            assert 50_000 - len(there) <= int(left[1])
            # No more than are sent at the same time; none where all that were sent had been acknowledged.
            in_doubt = raised.value.pairs if isinstance(raised.value, Unacknowledged) else ()
            assert len(in_doubt) <= 256

    def test_a_book_that_is_too_large_is_refused_loudly_and_costs_nothing_else(self, own_server: nats.Server):
        url = f"{own_server.url}/books"
        large = OrderBook.from_levels(pair(1), bids=[(f"0.{n * 7919 % 10**9:09}", n**5) for n in range(1, 6000)])
        larger = OrderBook.from_levels(pair(9), bids=[(f"0.{n * 7919 % 10**9:09}", n**5) for n in range(1, 7000)])
        with open_store(url) as store:
            with pytest.raises(
                BookTooLarge, match=r"the book of .*:78/ADA: it has \d+ bytes, deflated, and .* take 65280"
            ) as raised:
                store.publish(book(2, 2), large, book(3, 3))
            assert raised.value.pairs == (pair(1),)
            assert (raised.value.receipt.published, raised.value.receipt.revision) == (2, 2)
            assert spots(open_feed(url).read()) == {2: "2", 3: "3"}
            store.publish(book(1, 1))
            with pytest.raises(BookTooLarge, match="nor of 1 others") as raised:
                store.replace([large, larger, book(2, 7)])
            assert raised.value.pairs == (pair(1), pair(9))
            assert (raised.value.receipt.published, raised.value.receipt.retracted) == (1, 1)
            assert spots(open_feed(url).read()) == {1: "1", 2: "7"}
            with pytest.raises(BookTooLarge) as raised:
                store.publish(larger)
            assert raised.value.receipt.revision == store.revision

    def test_a_book_that_the_bucket_itself_does_not_take(self, bucket: str, nats_server: nats.Server):
        async def work(client: Client) -> None:
            await client.jetstream().create_key_value(bucket=name_of(bucket), max_value_size=500)

        nats.plain(nats_server, work)
        large = OrderBook.from_levels(pair(1), bids=[(f"0.{n * 7919 % 10**9:09}", n**5) for n in range(1, 600)])
        with open_store(bucket) as store:
            with pytest.raises(BookTooLarge) as raised:
                store.publish(book(2, 2), large)
            assert (raised.value.pairs, raised.value.receipt) == ((pair(1),), Receipt(1, published=1))
            with pytest.raises(BookTooLarge) as raised:
                store.replace([book(2, 3), large])
            assert (raised.value.pairs, raised.value.receipt) == ((pair(1),), Receipt(2, published=1))
            store.publish(book(2, 2))
            assert spots(open_feed(bucket).read()) == {2: "2"}

    def test_what_the_servers_refuse_is_told(self, bucket: str, nats_server: nats.Server):
        async def work(client: Client) -> None:
            await client.jetstream().create_key_value(bucket=name_of(bucket), max_bytes=2000)

        nats.plain(nats_server, work)
        with (
            open_store(bucket) as store,
            pytest.raises(StoreError, match=r"refused .*maximum bytes exceeded; \d+ of 50"),
        ):
            store.publish(*map(book, range(50)))

    def test_a_pair_that_others_keep_writing_is_given_up(
        self, store: Store, bucket: str, nats_server: nats.Server, monkeypatch: pytest.MonkeyPatch
    ):
        send = InFlight.send

        async def slower(self: InFlight, *arguments: Any) -> None:
            await asyncio.to_thread(nats.put, nats_server, name_of(bucket), nats_records.key_of(pair(1)), b"mine")
            await send(self, *arguments)

        monkeypatch.setattr(InFlight, "send", slower)
        with (
            open_store(bucket, wait=0.4) as impatient,
            pytest.raises(StoreBusy, match=r"others wrote .* 0\.4 seconds"),
        ):
            impatient.publish(book(1, 1))

    def test_an_existing_bucket_with_a_history_is_used_as_it_is(
        self, bucket: str, nats_server: nats.Server, live: LiveIndex
    ):
        async def work(client: Client) -> None:
            await client.jetstream().create_key_value(bucket=name_of(bucket), history=5)

        nats.plain(nats_server, work)
        with open_store(bucket) as store, open_feed(bucket) as feed:
            for spot in range(1, 4):
                store.publish(book(1, spot), book(2, spot))
            feed.start(live)
            assert spots(live) == {1: "3", 2: "3"}
            store.publish(book(1, 9))
            eventually(lambda: spots(live) == {1: "9", 2: "3"})
            time.sleep(1)
            assert feed.age < 1

    def test_a_forked_process_is_told_and_harms_nothing(self, bucket: str):
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
            [sys.executable, "-c", script, bucket], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.splitlines() == [
            f"{bucket} was opened before a fork: open it in the process that publishes",
            "1",
        ]

    def test_threads_of_one_store_wait_no_longer_than_said(self, own_server: nats.Server):
        with open_store(f"{own_server.url}/books", wait=0.2) as store:
            with store._in_turn():  # type: ignore[attr-defined]  # what another thread does, for as long as it takes
                raised = raised_in_thread(lambda: store.publish(book(1)))
            assert "others have been writing for 0.2 seconds" in raised
            assert raised.startswith("StoreBusy")

    def test_synchronous_is_not_for_a_bucket(self, bucket: str):
        with pytest.raises(StoreError, match="how safe a bucket is to be is set at its servers"):
            open_store(bucket, synchronous="normal")


def succeeds(work: Callable[[], object]) -> bool:
    try:
        work()
    except StoreError:
        return False
    return True
