"""The distributed store, on a real server: what is only a bucket's."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from itertools import count
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from nats.aio.client import Client
from nats.aio.msg import Msg

from market_index import InvalidOrderBook, LiveIndex, MarketIndexError, OrderBook, Pair, strategies, wire
from market_index_feeds import (
    BookTooLarge,
    Feed,
    FeedError,
    Receipt,
    Store,
    StoreBusy,
    StoreError,
    Unacknowledged,
    nats_records,
    open_feed,
    open_store,
)
from market_index_feeds import nats as nats_module
from market_index_feeds.background import Background
from market_index_feeds.nats_address import Address
from market_index_feeds.nats_bucket import Cluster, Connection, State, Unreachable, Write, state_of
from tests import nats
from tests.market_index_feeds.followed import Followed
from tests.market_index_feeds.made_up import book, pair, spots
from tests.waiting import eventually, later, raised_in_thread

KEY = re.compile(r"[-/_=a-zA-Z0-9][-/_=.a-zA-Z0-9]*[-/_=a-zA-Z0-9]")
NOTICED_SECONDS = 2
"""By when a follower has noticed whatever happened; and some more for a machine that has other things to do."""


@pytest.fixture
def store(bucket: str) -> Iterator[Store]:
    with open_store(bucket) as store:
        yield store


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[nats.Server]:
    """A server to which anything may happen."""
    with nats.served(tmp_path / "own", "max_payload: 65536") as server:
        yield server


def name_of(bucket: str) -> str:
    return bucket.rpartition("/")[2]


def noticed(holds: Callable[[], object]) -> None:
    eventually(holds, 2 * NOTICED_SECONDS)


class TestRecords:
    """Keys and values."""

    @given(strategies.pairs())
    def test_a_key_is_of_the_alphabet_and_names_its_pair(self, one: Pair):
        key = nats_records.key_of(one)
        assert KEY.fullmatch(key)
        assert nats_records.pair_of(key) == one

    @given(strategies.pairs(), strategies.pairs())
    def test_two_pairs_have_two_keys(self, one: Pair, other: Pair):
        assert (nats_records.key_of(one) == nats_records.key_of(other)) == (one == other)

    @given(
        st.text(alphabet="AD.-0a/", max_size=70) | st.from_regex(r"[0-9a-fA-F]{56}-[0-9a-f]{0,4}\.ADA", fullmatch=True)
    )
    def test_a_key_that_names_a_pair_is_the_key_of_that_pair(self, key: str):
        named = nats_records.pair_of(key)
        assert named is None or nats_records.key_of(named) == key

    @pytest.mark.parametrize(
        "key", ["ADA.ada", "ADA", "", "x", f"ADA.{'0' * 56}", f"ADA.{'0' * 56}-0", f"ADA.{'A' * 56}-"]
    )
    def test_what_names_no_pair_is_told_apart(self, key: str):
        assert nats_records.pair_of(key) is None

    @given(strategies.order_books())
    def test_a_value_is_the_book_and_no_longer_than_its_text(self, one: OrderBook):
        record = nats_records.record_of(one)
        assert nats_records.book_of(record.key, record.value, {nats_records.DIGEST_HEADER: record.digest}) == one
        text = wire.order_book_to_json(one)
        assert len(record.value) <= len(text)
        # And whoever writes the shape of the contract, with no digest, deflated or not, is read as well.
        for value in (text, zlib.compress(text, 9), record.value):
            assert nats_records.book_of(record.key, value, None) == one

    def test_a_large_book_is_deflated(self):
        large = OrderBook.from_levels(pair(1), bids=[(f"0.{number:06}", number) for number in range(1, 500)])
        assert len(nats_records.record_of(large).value) < len(wire.order_book_to_json(large)) / 3

    def test_what_is_damaged_or_made_to_harm_is_refused(self, monkeypatch: pytest.MonkeyPatch):
        record = nats_records.record_of(OrderBook.from_levels(pair(1), bids=[(f"0.{n:03}", n) for n in range(1, 50)]))
        digest = {nats_records.DIGEST_HEADER: record.digest}
        other = nats_records.record_of(book(2, 1))
        monkeypatch.setattr(nats_records, "MAX_TEXT_LENGTH", 100_000)
        for value, headers, reason in [
            (zlib.compress(b"{}"), digest, "its digest does not fit"),
            (record.value[:-1], digest, "cannot be inflated"),
            (record.value + b"x", digest, "goes on behind it"),
            (b"x" + record.value[1:-9] + b"123456789", digest, "cannot be inflated"),
            (record.value[:2] + b"\xff" * 20, digest, "cannot be inflated: Error -3"),
            (zlib.compress(bytes(100_001)), None, "within 100000 bytes"),
            (other.value, {nats_records.DIGEST_HEADER: other.digest}, "the book of another pair"),
            (other.value, None, "the book of another pair"),
        ]:
            with pytest.raises(InvalidOrderBook, match=reason):
                nats_records.book_of(record.key, value, headers)
        # One that nobody would inflate is left as it is, and no server takes it.
        monkeypatch.setattr(nats_records, "MAX_TEXT_LENGTH", 100)
        assert nats_records.record_of(book(1, 1)).value == wire.order_book_to_json(book(1, 1))

    @given(st.binary(max_size=200), st.none() | st.just({nats_records.DIGEST_HEADER: "00"}))
    def test_nothing_but_an_error_of_ours_is_raised(self, value: bytes, headers: dict[str, str] | None):
        for some in (value, zlib.compress(value)):
            with pytest.raises(MarketIndexError):
                nats_records.book_of("ADA.ADA", some, headers)


class TestAddresses:
    """What a URL says, and what it does not show."""

    def test_credentials_are_taken_from_where_others_look_for_them(self, tmp_path: Path):
        url = "nats://h/b"
        creds = str(tmp_path / "x.creds")
        for given_url, environment, expected in [
            (url, {}, (None, None, None, None)),
            ("nats://me:p%40ss@h/b", {"NATS_USER": "you", "NATS_CREDS": creds}, ("me", "p@ss", None, None)),
            ("nats://s3cret@h/b", {}, (None, None, "s3cret", None)),
            ("nats://me:0ne-pass@h,me:0ne-pass@i:5/b", {}, ("me", "0ne-pass", None, None)),
            (url, {"NATS_USER": "me", "NATS_PASSWORD": "pass"}, ("me", "pass", None, None)),
            (url, {"NATS_USER": "token"}, (None, None, "token", None)),
            (url, {"NATS_TOKEN": "token", "NATS_USER": "me", "NATS_PASSWORD": "x"}, (None, None, "token", None)),
            (url, {"NATS_CREDS": creds}, (None, None, None, Path(creds))),
            (f"{url}?creds={creds}", {"NATS_CREDS": "other"}, (None, None, None, Path(creds))),
        ]:
            address = Address.parse(given_url, environment)
            assert (address.user, address.password, address.token, address.creds) == expected
            assert address.servers[0] == "nats://h:4222"
            assert not re.search("p@ss|p%40ss|s3cret|0ne-pass", repr(address) + address.shown)

    def test_replicas_and_several_servers_can_be_said(self):
        address = Address.parse("TLS://a,[::1]:4333/b_-1?replicas=5", {})
        assert (address.servers, address.is_secure, address.replicas) == (("tls://a:4222", "tls://[::1]:4333"), True, 5)

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("nats://h", "a bucket is named behind the servers"),
            ("nats://h/", "a bucket is named behind the servers"),
            ("nats://h/a/b", "not 'a/b'"),
            ("nats://h/a.b", "not 'a.b'"),
            ("nats:///b", "'' is not a server"),
            ("nats://h,/b", "'' is not a server"),
            ("nats://h:x/b", "'x' is not a port"),
            ("nats://h:0/b", "'0' is not a port"),
            ("nats://h:99999/b", "'99999' is not a port"),
            ("nats://h:²/b", "'²' is not a port"),
            ("nats://[::1/b", "it is not a URL"),
            ("nats://h/b?user=me", "'user' is not an option"),
            ("nats://h/b?replicas=6", "replicas is a number from 1 to 5, not '6'"),
            ("nats://h/b?replicas=", "replicas is a number from 1 to 5, not ''"),
            ("nats://h/b#c", "nothing is meant by #'c'"),
            ("nats://me:s3/cret@h/b", "are written %2F"),
            ("nats://me:s3?cret@h/b", "are written %2F"),
            ("nats://me:s3#cret@h/b", "are written %2F"),
            ("nats://me:s3cret@h:s3cret/b", "is not a port"),
            (" nats://me:s3cret@h/b", "' nats' is not a kind of"),
            ("\ufeffnats://me:s3cret@h/b", "is not a kind of"),
            ("nats:me:s3cret@h/b", "cannot be opened"),
            ("nats//me:s3cret@h/b", "cannot be opened"),
            ("nats://h/b?password=s3cret", "'password' is not an option"),
        ],
    )
    def test_what_is_no_address_is_one_clear_error_without_credentials(self, url: str, reason: str):
        for work, kind in ((open_feed, FeedError), (open_store, StoreError)):
            with pytest.raises(kind, match=re.escape(reason)) as raised:
                work(url)
            assert "me:" not in str(raised.value)
            assert reason == "is not a port" or "cret" not in str(raised.value)


class TestNoticing:
    """Whatever happens to the bucket, the follower notices, and shows what it holds."""

    def test_a_purge(self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server):
        nats.purge(nats_server, name_of(bucket))
        noticed(lambda: spots(live) == {})
        assert feed.revision == store.revision == 3
        store.publish(book(2, 8))
        eventually(lambda: spots(live) == {2: "8"})

    def test_a_purge_of_some(self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server):
        async def work(client: Client) -> None:
            subject = f"$KV.{name_of(bucket)}.{nats_records.key_of(pair(3))}"
            await client.jetstream().purge_stream(f"KV_{name_of(bucket)}", subject=subject)

        nats.plain(nats_server, work)
        noticed(lambda: spots(live) == {1: "1", 2: "2"})
        assert feed.books == 3, "what stands as it stood was not read again"

    def test_one_that_is_deleted_stays_up_until_it_is_made_again(
        self,
        store: Store,
        feed: Feed,
        bucket: str,
        live: LiveIndex,
        nats_server: nats.Server,
        logged: pytest.LogCaptureFixture,
    ):
        nats.delete(nats_server, name_of(bucket))
        noticed(lambda: "is not there; its 3 pairs stay as they were" in logged.text)
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        with pytest.raises(StoreError, match="there is no such bucket"):
            store.publish(book(1, 9))
        with open_store(bucket) as again:
            again.publish(book(2, 9))
            noticed(lambda: spots(live) == {2: "9"})
            assert feed.revision == 1
        eventually(lambda: "is followed again" in logged.text)
        assert feed.age < NOTICED_SECONDS

    def test_one_that_is_made_again_at_once(
        self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server
    ):
        nats.delete(nats_server, name_of(bucket))
        with open_store(bucket) as again:
            # As many keys and messages as before.
            again.publish(book(1, 5), book(2, 6), book(3, 7))
        noticed(lambda: spots(live) == {1: "5", 2: "6", 3: "7"})

    def test_a_consumer_that_is_gone(
        self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server
    ):
        async def work(client: Client) -> None:
            manager = client.jetstream()
            for consumer in await manager.consumers_info(f"KV_{name_of(bucket)}"):
                await manager.delete_consumer(f"KV_{name_of(bucket)}", consumer.name)

        nats.plain(nats_server, work)
        store.publish(book(1, 9))
        noticed(lambda: spots(live) == {1: "9", 2: "2", 3: "3"})

    def test_a_server_that_lost_its_tail(self, own_server: nats.Server, live: LiveIndex, tmp_path: Path):
        url = f"{own_server.url}/books"
        with open_store(url) as store, open_feed(url) as feed:
            store.publish(book(1, 1), book(2, 2))
            feed.start(live)
            own_server.send(signal.SIGTERM)
            assert own_server.process
            own_server.process.wait(20)
            shutil.copytree(own_server.folder / "one", tmp_path / "copy")
            own_server.start()
            own_server.wait()
            store.publish(book(1, 3), book(4, 4))
            eventually(lambda: spots(live) == {1: "3", 2: "2", 4: "4"})
            own_server.kill()
            own_server.empty()
            shutil.copytree(tmp_path / "copy", own_server.folder / "one")
            own_server.start()
            own_server.wait()
            # As many messages as before, and as many keys, so that the numbers tell nothing.
            store.publish(book(5, 5), book(2, 6))
            noticed(lambda: spots(live) == {1: "1", 2: "6", 5: "5"})

    def test_an_emptied_disk(self, own_server: nats.Server, live: LiveIndex, logged: pytest.LogCaptureFixture):
        url = f"{own_server.url}/books"
        with open_store(url) as store, open_feed(url) as feed:
            store.publish(book(1, 1), book(2, 2))
            feed.start(live)
            own_server.kill()
            own_server.empty()
            eventually(lambda: "cannot be read; its 2 pairs stay" in logged.text)
            with pytest.raises(StoreError):
                open_store(url, wait=0.2).publish(book(1, 1))
            own_server.start()
            own_server.wait()
            noticed(lambda: "is not there; its 2 pairs stay" in logged.text)
            assert spots(live) == {1: "1", 2: "2"}
            with open_store(url) as again:
                again.replace([book(2, 2), book(3, 3)])
            noticed(lambda: spots(live) == {2: "2", 3: "3"})

    def test_what_was_not_delivered(self, store: Store, feed: Feed, live: LiveIndex, logged: pytest.LogCaptureFixture):
        feed._watch._delivered -= 1  # type: ignore[attr-defined]  # as if the last one had never come
        store.publish(book(1, 9))
        noticed(lambda: spots(live) == {1: "9", 2: "2", 3: "3"})
        assert "is read anew: something was delivered twice, or not at all" in logged.text

    def test_a_bad_value_when_all_is_read_anew(
        self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server
    ):
        nats.put(nats_server, name_of(bucket), nats_records.key_of(pair(1)), b"nonsense")
        eventually(lambda: feed.rejected == 1)
        feed._watch._delivered -= 1  # type: ignore[attr-defined]  # as if the last one had never come
        store.publish(book(2, 9))
        noticed(lambda: spots(live)[2] == "9")
        assert spots(live) == {1: "1", 2: "9", 3: "3"}, "the last good book stays"

    def test_a_server_that_dies_while_it_is_read(self, own_server: nats.Server, live: LiveIndex):
        url = f"{own_server.url}/books"
        with open_store(url) as store:
            store.publish(*(book(number, 1) for number in range(8_000)))
        waking: list[Thread] = []

        def killing(done: int, _: int) -> None:
            if done and not waking:
                own_server.kill()
                waking.append(later(0.5, own_server.start))

        with open_feed(url) as feed:
            feed.start(live, killing)
            assert waking, "it was read before it could be killed"
            assert len(live.current) == 8_000
        waking[0].join()

    def test_more_than_a_server_sends_at_once(self, store: Store, feed: Feed, live: LiveIndex, bucket: str):
        """It waits to be told that what it has sent was read."""
        store.publish(*map(nats.noise, range(100)))
        eventually(lambda: len(live.current) == 103)
        assert len(open_feed(bucket).read()) == 103

    def test_a_slow_link(self, store: Store, bucket: str, nats_server: nats.Server, live: LiveIndex):
        """What the server says of the bucket is behind all that it delivers, for seconds."""
        store.publish(*map(nats.noise, range(60)))
        with (
            nats.slow_link(nats_server.port, 1_000_000) as port,
            open_feed(f"nats://127.0.0.1:{port}/{name_of(bucket)}") as feed,
        ):
            feed.start(live)
            assert len(live.current) == 60
            store.publish(book(1, 1))
            eventually(lambda: len(live.current) == 61)

    def test_a_server_that_does_not_answer(
        self,
        own_server: nats.Server,
        live: LiveIndex,
        monkeypatch: pytest.MonkeyPatch,
        logged: pytest.LogCaptureFixture,
    ):
        url = f"{own_server.url}/books"
        with open_store(url) as store, open_feed(url) as feed:
            store.publish(book(1, 1))
            feed.start(live)
            own_server.stop()
            noticed(lambda: "cannot be read; its 1 pairs stay as they were: no answer within 1 seconds" in logged.text)
            monkeypatch.setattr(nats_module, "OPEN_SECONDS", 0.3)
            with pytest.raises(FeedError, match="no answer in time"):
                open_feed(url).read()
            own_server.send(signal.SIGCONT)
            store.publish(book(1, 2))
            eventually(lambda: spots(live) == {1: "2"})

    def test_a_server_that_lost_its_tail_and_kept_its_connections(
        self, store: Store, feed: Feed, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        feed._watch.sequence += 5  # type: ignore[attr-defined]  # as if that much had been delivered once
        noticed(lambda: "is read anew: it was purged or rolled back" in logged.text)
        store.publish(book(1, 9))
        noticed(lambda: spots(live) == {1: "9", 2: "2", 3: "3"})

    def test_a_server_that_lost_all_and_has_not_found_the_others_is_not_believed(self):
        """What one with an emptied disk answered for some fifty milliseconds, and one that leads."""
        state = {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0}
        followers = [{"name": "n0", "current": True}, {"name": "n1", "current": False}]
        alone: dict[str, Any] = {"created": "then", "state": state, "cluster": {"name": "three", "replicas": followers}}
        with pytest.raises(Unreachable, match="the servers have not agreed who leads"):
            state_of(alone)
        leading = {"name": "three", "leader": "n1", "replicas": followers[:1]}
        assert state_of(alone | {"cluster": leading}) == State("then", 0, 0, 0)
        full = {"bytes": 9, "last_seq": 7, "num_subjects": 5}
        assert state_of({"created": "then", "state": full}) == State("then", 7, 5, 9)

    def test_closing_ends_the_opening(self, live: LiveIndex, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(nats_module, "OPEN_SECONDS", 1e6)
        feed = open_feed(f"nats://127.0.0.1:{nats.spare_port()}/books")
        closing = later(0.5, feed.close)
        with pytest.raises(FeedError, match="was closed while it was being opened"):
            feed.start(live)
        closing.join()

    def test_closing_ends_the_opening_though_the_client_library_swallows_the_cancellation(
        self, store: Store, bucket: str, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        """As `asyncio.wait_for` on Python 3.11 does, if the answer comes at that moment."""
        asked, swallowed, asked_again = Event(), Event(), Event()
        request = Client.request

        async def swallowing(self: Client, *arguments: Any, **options: Any) -> Msg:
            if swallowed.is_set():
                asked_again.set()
            else:
                asked.set()
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    swallowed.set()
            return await request(self, *arguments, **options)

        monkeypatch.setattr(Client, "request", swallowing)
        feed = open_feed(bucket)
        raised: list[str] = []
        starting = Thread(target=lambda: raised.append(raised_in_thread(lambda: feed.start(live))))
        starting.start()
        assert asked.wait(20)
        feed.close()
        starting.join()
        assert "was closed while it was being opened" in raised[0]
        assert swallowed.is_set()
        assert not asked_again.is_set()

    def test_closing_at_any_moment_leaves_no_thread(self, store: Store, bucket: str, live: LiveIndex):
        store.publish(*map(book, range(500)))
        for attempt in range(20):
            feed = open_feed(bucket)
            closing = later(attempt / 1000, feed.close)
            try:
                feed.start(live)
            except FeedError as error:
                assert "was closed while it was being opened" in str(error)  # noqa: PT017  # it may succeed as well
            except RuntimeError as error:
                assert "a feed is started once" in str(error)  # noqa: PT017  # it was closed before
            closing.join()
            feed.close()
        eventually(lambda: not [one for one in enumerate_threads() if one.name.startswith(("connection to", "feed"))])

    def test_closing_does_not_wait_for_a_name_that_is_looked_up(self, live: LiveIndex, monkeypatch: pytest.MonkeyPatch):
        looking_up, released = Event(), Event()

        def look_up(*_: object, **__: object) -> list[object]:
            looking_up.set()
            released.wait(60)
            return []

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        feed = open_feed("nats://nowhere.example/books")

        def close() -> None:
            assert looking_up.wait(20)
            feed.close()

        closing = later(0, close)
        try:
            with pytest.raises(FeedError, match="was closed while it was being opened"):
                feed.start(live)
            closing.join()
            assert not released.is_set()
        finally:
            released.set()

    def test_work_for_a_closed_event_loop_is_cancelled(self):
        background = Background("closed")

        async def nothing() -> None:
            pass

        background.close(nothing)
        background.close(nothing)
        with pytest.raises(CancelledError):
            background.start(nothing())

    def test_one_that_is_started_in_an_event_loop(self, store: Store, bucket: str, live: LiveIndex):
        """As in the lifespan of an app."""
        store.publish(book(1, 1))

        async def lifespan() -> None:
            with open_feed(bucket) as feed, open_store(bucket) as another:
                feed.start(live)
                another.publish(book(2, 2))
                while len(live.current) < 2:
                    await asyncio.sleep(0.01)

        asyncio.run(lifespan())
        assert spots(live) == {1: "1", 2: "2"}

    def test_one_that_is_closed_before_it_follows(self, feed: Feed, live: LiveIndex):
        feed.close()
        feed._follow(live)
        with pytest.raises(FeedError, match="was closed while it was being opened"):
            feed._load(live, None)
        assert len(live.current) == 3

    def test_where_there_is_no_thread_to_be_had(self, bucket: str, live: LiveIndex, monkeypatch: pytest.MonkeyPatch):
        def background(_: str) -> None:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(nats_module, "Background", background)
        with pytest.raises(FeedError, match="cannot be opened: Too many open files"):
            open_feed(bucket).start(live)
        with pytest.raises(StoreError, match="cannot be opened: Too many open files"):
            open_store(bucket)

    def test_a_foreign_key_costs_nothing(
        self,
        store: Store,
        feed: Feed,
        bucket: str,
        live: LiveIndex,
        nats_server: nats.Server,
        logged: pytest.LogCaptureFixture,
    ):
        for _ in range(3):
            nats.put(nats_server, name_of(bucket), "config.of.mine", b"{}")
        nats.put(nats_server, name_of(bucket), nats_records.key_of(pair(4)), wire.order_book_to_json(book(4, 4)))
        eventually(lambda: spots(live) == {1: "1", 2: "2", 3: "3", 4: "4"})
        assert feed.rejected == logged.text.count("value config.of.mine refused") == 1
        assert store.replace([book(1, 1)]).retracted == 3
        eventually(lambda: spots(live) == {1: "1"})
        with open_feed(bucket) as other:
            other.read()
            assert other.rejected == 1, "it is somebody else's, and left alone"

    def test_a_key_that_others_purge_is_retracted(
        self, store: Store, feed: Feed, bucket: str, live: LiveIndex, nats_server: nats.Server
    ):
        async def work(client: Client) -> None:
            kv = await client.jetstream().key_value(name_of(bucket))
            await kv.purge(nats_records.key_of(pair(1)))
            await kv.delete(nats_records.key_of(pair(2)))

        nats.plain(nats_server, work)
        eventually(lambda: spots(live) == {3: "3"})


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
                late._cluster._servers = {nats_server.url: None}  # type: ignore[attr-defined]  # as if told of it
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
            eventually(store._cluster.connection.ended.is_set)  # type: ignore[attr-defined]  # else it is sent, to nobody
            with pytest.raises(StoreError, match=r"connection refused; 2 of 2 changes were not made") as raised:
                store.publish(book(1, 1), book(2, 2))
            assert type(raised.value) is StoreError

    def test_replacing_leaves_nothing_to_what_is_in_doubt(self, store: Store, bucket: str):
        """A book that stands there as it is wanted, and a pair that does not, may both have a put to come."""
        store.publish(book(1, 1), book(3, 3))
        store.retract(pair(3))
        doubted = [nats_records.key_of(pair(number)) for number in (1, 2, 3)]
        store._doubted.update(doubted)  # type: ignore[attr-defined]  # as if each had been sent and not acknowledged
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
        assert len(store._cluster.connection._client._subs) == 2  # type: ignore[attr-defined]  # of answers to writes and others

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
                await client.publish(f"{connection._answers}.77", b'{"seq": 1}')

            # An answer to a question that nobody waits for any longer.
            await asyncio.to_thread(nats.plain, nats_server, late)
            assert (await connection.state()).last_sequence == 0
            await connection.close()
            with pytest.raises(Unreachable):
                await connection.state()
            with pytest.raises(Unreachable):
                await connection.write([Write("key", b"", {}, 0)], lambda *_: None, 1)

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
        write = Connection.write

        async def slower(self: Connection, *arguments: Any) -> None:
            await asyncio.to_thread(nats.put, nats_server, name_of(bucket), nats_records.key_of(pair(1)), b"mine")
            await write(self, *arguments)

        monkeypatch.setattr(Connection, "write", slower)
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


class TestOpening:
    """Who is let in, and what is said to who is not."""

    def test_the_first_connection_has_a_deadline(self, monkeypatch: pytest.MonkeyPatch, live: LiveIndex):
        monkeypatch.setattr(nats_module, "OPEN_SECONDS", 0.5)
        url = f"nats://127.0.0.1:{nats.spare_port()}/books"
        began = time.monotonic()
        with pytest.raises(FeedError, match=r"/books cannot be opened: nats://127\.0\.0\.1:\d+: connection refused"):
            open_feed(url).start(live)
        with pytest.raises(StoreError, match=r"/books cannot be opened: nats://127\.0\.0\.1:\d+: connection refused"):
            open_store(url)
        with pytest.raises(FeedError, match="cannot be opened"):
            open_feed(url).read_order_book(pair(1))
        assert time.monotonic() - began < 5

    def test_a_server_that_comes_within_the_deadline_is_waited_for(self, tmp_path: Path, live: LiveIndex):
        server = nats.Server(tmp_path / "late")
        starter = later(1, server.start)
        try:
            with open_store(f"{server.url}/books") as store:
                store.publish(book(1, 1))
            with open_feed(f"nats://127.0.0.1:1,127.0.0.1:{server.port}/books") as feed:
                feed.start(live)
                assert spots(live) == {1: "1"}
        finally:
            starter.join()
            server.kill()

    def test_without_jetstream_there_is_no_bucket(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(nats_module, "OPEN_SECONDS", 0.3)
        with (
            nats.served(tmp_path / "core", jetstream=False) as server,
            pytest.raises(StoreError, match="cannot be opened: JetStream is not there"),
        ):
            open_store(f"{server.url}/books")

    def test_what_answers_is_not_a_server_of_nats(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(nats_module, "OPEN_SECONDS", 0.3)
        with (
            nats.listening(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port,
            pytest.raises(FeedError, match="cannot be opened"),
        ):
            open_feed(f"nats://127.0.0.1:{port}/books").read()

    def test_replicas_that_there_are_not_are_an_error(self, bucket: str):
        with pytest.raises(StoreError, match="replicas > 1 not supported in non-clustered mode"):
            open_store(f"{bucket}?replicas=3")
        open_store(f"{bucket}?replicas=1").close()

    def test_credentials_are_asked_for_and_never_shown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture, live: LiveIndex
    ):
        logged.set_level(logging.DEBUG)
        users = """
            authorization { users: [
                { user: publisher, password: "s3cret" }
                { user: reader, password: "s3cret", permissions: {
                    publish: ["$JS.API.STREAM.INFO.KV_books", "$JS.API.STREAM.MSG.GET.KV_books",
                              "$JS.API.CONSUMER.CREATE.KV_books.>", "$JS.FC.KV_books.>"]
                    subscribe: ["_INBOX.>"] } }
            ] }
        """
        with nats.served(tmp_path / "closed", users) as server:
            address = server.url.removeprefix("nats://")
            said = []
            for url in (f"{server.url}/books", f"nats://publisher:wrong-s3cret@{address}/books"):
                for work in (open_store, lambda url: open_feed(url).read()):
                    began = time.monotonic()
                    with pytest.raises((StoreError, FeedError), match="refuses the credentials") as raised:
                        work(url)
                    assert time.monotonic() - began < 3, "it is not tried again"
                    said.append(str(raised.value))
            with open_store(f"nats://publisher:s3cret@{address}/books") as store:
                said.append(repr(store))
                store.publish(book(1, 1))
                with open_feed(f"nats://reader:s3cret@{address}/books") as feed:
                    feed.start(live)
                    said.append(repr(feed))
                    store.publish(book(1, 2), book(2, 2))
                    eventually(lambda: spots(live) == {1: "2", 2: "2"})
                    assert open_feed(f"nats://reader:s3cret@{address}/books").read_order_book(pair(1)) == book(1, 2)
                    monkeypatch.setenv("NATS_USER", "reader")
                    monkeypatch.setenv("NATS_PASSWORD", "s3cret")
                    with open_store(f"{server.url}/books", wait=1) as reading, pytest.raises(StoreError) as raised:
                        reading.publish(book(1, 3))
                    said.append(str(raised.value))
                    assert re.search(
                        'not written to: .*permissions violation for publish to "\\$kv.books', said[-1].lower()
                    )
                    with pytest.raises(StoreError, match=r"(?i)permissions violation") as raised:
                        open_store(f"nats://reader:s3cret@{address}/others")
                    said.append(str(raised.value))
                    server.kill()
                    eventually(lambda: "stay as they were" in logged.text)
            assert "s3cret" not in "".join(said) + logged.text
            assert "127.0.0.1" in said[0]

    def test_credentials_that_are_withdrawn_and_given_again(
        self, tmp_path: Path, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        users = 'authorization { user: me, password: "s3cret" }'
        with nats.served(tmp_path / "closed", users) as server:
            url = f"nats://me:s3cret@127.0.0.1:{server.port}/books"
            with open_store(url) as store, open_feed(url) as feed:
                store.publish(book(1, 1))
                feed.start(live)
                server.reload(users.replace("s3cret", "other"))
                eventually(lambda: "cannot be read; its 1 pairs stay as they were" in logged.text)
                with pytest.raises(StoreError, match="refuses the credentials"):
                    store.publish(book(1, 2))
                time.sleep(0.5)
                assert spots(live) == {1: "1"}
                server.reload(users)
                store.publish(book(1, 3))
                eventually(lambda: spots(live) == {1: "3"})
                assert logged.text.count("cannot be read") == 1

    def test_servers_that_are_told_of_are_known_by_the_name_of_the_first(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: LiveIndex
    ):
        monkeypatch.setenv("NATS_CA", str(tmp_path / "ca.pem"))
        with nats.cluster(tmp_path / "three", nats.certified(tmp_path)) as servers:
            first = servers[0]
            url = f"tls://localhost:{first.port}/books"
            with nats.opened(url) as store, open_feed(url) as feed:
                store.publish(book(1, 1))
                feed.start(live)
                first.kill()
                eventually(lambda: succeeds(lambda: store.publish(book(1, 2))), 60)
                eventually(lambda: spots(live) == {1: "2"}, 60)

    def test_a_token_lets_in(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        with nats.served(tmp_path / "token", 'authorization { token: "s3cret" }') as server:
            open_store(f"nats://s3cret@127.0.0.1:{server.port}/books").close()
            monkeypatch.setenv("NATS_TOKEN", "s3cret")
            assert len(open_feed(f"{server.url}/books").read()) == 0

    def test_a_file_of_credentials_lets_in(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        configuration, creds = nats.accounts(tmp_path)
        with nats.served(tmp_path / "jwt", configuration) as server:
            with pytest.raises(StoreError, match="refuses the credentials"):
                open_store(f"{server.url}/books")
            open_store(f"{server.url}/books?creds={creds}").close()
            monkeypatch.setenv("NATS_CREDS", str(creds))
            assert len(open_feed(f"{server.url}/books").read()) == 0
            monkeypatch.setenv("NATS_CREDS", str(tmp_path / "nowhere.creds"))
            monkeypatch.setattr(nats_module, "OPEN_SECONDS", 0.3)
            with pytest.raises(FeedError, match=r"cannot be opened: .*No such file or directory"):
                open_feed(f"{server.url}/books").read()

    def test_tls(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nats_server: nats.Server):
        monkeypatch.setattr(nats_module, "OPEN_SECONDS", 0.5)
        with nats.served(tmp_path / "tls", nats.certified(tmp_path, "verify: true")) as server:
            url = f"tls://localhost:{server.port}/books"
            with pytest.raises(StoreError, match="certificate verify failed"):
                open_store(url)
            monkeypatch.setenv("NATS_CA", str(tmp_path / "ca.pem"))
            with pytest.raises(StoreError, match="cannot be opened"):
                open_store(url)
            monkeypatch.setenv("NATS_CERT", str(tmp_path / "client.pem"))
            with open_store(url) as store:
                store.publish(book(1, 1))
            assert spots(open_feed(url).read()) == {1: "1"}
            with pytest.raises(FeedError, match=r"certificate verify failed|match"):
                open_feed(f"tls://127.0.0.1:{server.port}/books").read()
        monkeypatch.setenv("NATS_CA", str(tmp_path / "nowhere.pem"))
        with pytest.raises(FeedError, match="cannot be opened: No such file or directory"):
            open_feed(url).read()

    def test_nothing_is_said_in_plain_text_where_tls_was_asked_for(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(nats_module, "OPEN_SECONDS", 0.3)
        heard: list[bytes] = []
        info = b'INFO {"server_id":"x","version":"2.12.0","proto":1,"headers":true,"max_payload":1048576}\r\n'
        with (
            nats.listening(info, heard) as port,
            pytest.raises(FeedError, match="it does not ask for TLS, and was told nothing"),
        ):
            open_feed(f"tls://me:s3cret@127.0.0.1:{port}/books").read()
        assert b"".join(heard) == b""

    def test_the_extra_is_named_where_it_is_missing(self, monkeypatch: pytest.MonkeyPatch):
        for name in [
            name for name in sys.modules if name.partition(".")[0] == "nats" or "market_index_feeds.nats" in name
        ]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "nats", None)
        for work, kind in ((open_feed, FeedError), (open_store, StoreError)):
            with pytest.raises(kind, match=r"it needs the extra nats \(pip install 'market-index\[nats\]'\)"):
                work("nats://me:s3cret@127.0.0.1/books")
        monkeypatch.setitem(sys.modules, "market_index_feeds.nats", None)
        with pytest.raises(ModuleNotFoundError):
            open_feed("nats://127.0.0.1/books")


class FollowedBucket(Followed):
    """Whatever publishers do, and whatever happens to the bucket, the reader comes to show what the bucket holds."""

    per_call = False
    server: nats.Server
    numbers = count()

    @initialize()
    def begin(self) -> None:
        self.name = f"followed{next(self.numbers)}"
        self.begin_with(f"{self.server.url}/{self.name}")

    @rule()
    def purge(self) -> None:
        nats.purge(self.server, self.name)
        self.model.clear()

    @rule()
    def make_again(self) -> None:
        nats.delete(self.server, self.name)
        for store in self.stores:
            store.close()
        self.stores = [self.opened() for _ in range(2)]
        self.model.clear()
        self.revision = 0

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "name"):
            nats.delete(self.server, self.name)


def test_a_reader_shows_what_the_bucket_holds(nats_server: nats.Server):
    FollowedBucket.server = nats_server
    FollowedBucket.TestCase.settings = settings(
        max_examples=8, stateful_step_count=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
    )
    FollowedBucket.TestCase().runTest()


def succeeds(work: Callable[[], object]) -> bool:
    try:
        work()
    except StoreError:
        return False
    return True
