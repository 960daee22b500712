"""What only buckets of NATS have: URLs, credentials, settings, values, batches, and lost replies."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import (
    Freshness,
    InvalidOrderBook,
    LiveIndex,
    MarketIndexError,
    OrderBook,
    Pair,
    strategies,
    wire,
)
from market_index_feeds import (
    BookTooLarge,
    Feed,
    FeedError,
    StoreBusy,
    StoreError,
    UnknownOutcome,
    open_feed,
    open_store,
)
from market_index_feeds.errors import Unreachable
from market_index_feeds.nats import values
from market_index_feeds.nats.address import BucketAddress
from market_index_feeds.nats.bucket import Bucket
from tests import links, nats
from tests.feeds.made_up import book, pair, spots
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread

LARGE = OrderBook.from_levels(pair(1), bids=[(f"0.{number:06}", number) for number in range(1, 500)])
KEY = re.compile(r"[-/_=a-zA-Z0-9][-/_=.a-zA-Z0-9]*[-/_=a-zA-Z0-9]")


@pytest.fixture(autouse=True)
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers soon notice what no publisher announces."""
    monkeypatch.setattr("market_index_feeds.nats.reading.CHECK_SECONDS", 0.05)


@pytest.fixture
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that cannot be opened at the first attempt is an error."""
    for module in ("reading", "publishing"):
        monkeypatch.setattr(f"market_index_feeds.nats.{module}.OPENING_SECONDS", 0)


@pytest.fixture
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is tried again raises `TypeError`."""
    monkeypatch.setattr("market_index_feeds.nats.connection.next_backoff", None)


@pytest.fixture
def live() -> LiveIndex:
    return LiveIndex()


class TestUrls:
    def test_credentials_come_from_the_url_or_the_usual_variables(self, tmp_path: Path):
        url = "nats://h/b"
        creds = str(tmp_path / "x.creds")
        for given_url, environment, expected in [
            (url, {}, (None, None, None, None)),
            ("nats://me:p%40ss@h/b", {"NATS_USER": "you", "NATS_CREDS": creds}, ("me", "p@ss", None, None)),
            ("nats://s3cret@h/b", {}, (None, None, "s3cret", None)),
            ("nats://me:0ne-pass@h,me:0ne-pass@i:5/b", {}, ("me", "0ne-pass", None, None)),
            (url, {"NATS_USER": "me", "NATS_PASSWORD": "pass"}, ("me", "pass", None, None)),
            (url, {"NATS_TOKEN": "token", "NATS_USER": "me", "NATS_PASSWORD": "x"}, (None, None, "token", None)),
            (url, {"NATS_CREDS": creds}, (None, None, None, creds)),
            (f"{url}?creds={creds}", {"NATS_CREDS": "other"}, (None, None, None, creds)),
        ]:
            address = BucketAddress.parse(given_url, environment)
            assert (address.user, address.password, address.token, address.creds) == expected
            assert address.servers[0] == "nats://h:4222"
            assert not re.search("p@ss|p%40ss|s3cret|0ne-pass", repr(address) + address.shown)

    def test_several_servers(self):
        address = BucketAddress.parse("TLS://a,[::1]:4333/b_-1", {})
        assert (address.servers, address.is_secure) == (("tls://a:4222", "tls://[::1]:4333"), True)

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("nats://h", "a bucket must follow the servers"),
            ("nats://h/a.b", "got 'a.b'"),
            ("nats://h,/b", "a server must be a host such as 127.0.0.1:4222, got ''"),
            ("nats://h:0/b", "a server must be a host such as 127.0.0.1:4222, got 'h:0'"),
            ("nats://h:²/b", "a server must be a host such as 127.0.0.1:4222, got 'h:²'"),
            ("nats://[::1/b", "a server must be"),
            ("nats://h/b#c", "the URL must not have a fragment: '#c'"),
            ("nats://me:s3/cret@h/b", "%2F %3F %23 %40"),
            ("nats://me:s3?cret@h/b", "%2F %3F %23 %40"),
            ("nats://me:s3#cret@h/b", "%2F %3F %23 %40"),
            ("nats://me:s3cret@h:s3cret/b", "a server must be"),
            (" nats://me:s3cret@h/b", "nats or tls, got ' nats'"),
            ("nats://h/b?password=s3cret", "the only option is creds, got 'password'"),
        ],
    )
    def test_an_invalid_url_is_one_error_without_credentials(self, url: str, reason: str):
        for work, kind in ((open_feed, FeedError), (open_store, StoreError)):
            with pytest.raises(kind, match=re.escape(reason)) as raised:
                work(url)
            assert "me:" not in str(raised.value)
            assert reason == "a server must be" or "cret" not in str(raised.value)


class TestValues:
    @given(strategies.pairs())
    def test_a_key_is_of_the_alphabet_and_names_its_pair(self, one: Pair):
        assert KEY.fullmatch(values.key_of(one))
        assert values.pair_of(values.key_of(one)) == one

    @given(st.text(alphabet="AD.-0a/", max_size=70))
    def test_a_key_that_names_a_pair_is_the_key_of_that_pair(self, key: str):
        named = values.pair_of(key)
        assert named is None or values.key_of(named) == key

    @given(strategies.order_books())
    def test_a_value_is_the_book_and_no_longer_than_its_text(self, one: OrderBook):
        key, value, text = values.key_of(one.pair), values.value_of(one), wire.order_book_to_json(one)
        assert len(value) <= len(text)
        # Other programs may deflate it or not.
        for some in (value, text, zlib.compress(text, 9)):
            assert values.book_of(key, some) == one

    def test_damaged_and_hostile_values_are_rejected(self):
        key, value = values.key_of(pair(1)), values.value_of(LARGE)
        assert len(value) < len(wire.order_book_to_json(LARGE)) / 3
        longest = wire.order_book_to_json(book(1, 1)).ljust(wire.MAX_ORDER_BOOK_BYTES)
        assert values.book_of(key, longest) == values.book_of(key, zlib.compress(longest)) == book(1, 1)
        for damaged, reason in [
            (value[:-1], "must end where the value ends"),
            (value + b"x", "must end where the value ends"),
            (value[:2] + b"\xff" * 20, "cannot be inflated: Error -3"),
            (values.value_of(book(2, 1)), "the book of the pair of its key"),
            (longest + b" ", "must have at most 16777216 bytes of JSON, got more"),
            (zlib.compress(longest + b" "), "must have at most 16777216 bytes of JSON, got more"),
        ]:
            with pytest.raises(InvalidOrderBook, match=reason):
                values.book_of(key, damaged)

    def test_a_small_value_that_inflates_to_much_takes_little_memory(self):
        """65 kB of deflated JSON took 1.8 GB when they were decoded."""
        value = zlib.compress(b"[" + b"[]," * (7 * 1024 * 1024) + b"[]]")
        tracemalloc.start()
        try:
            with pytest.raises(InvalidOrderBook, match="must have at most 16777216 bytes of JSON"):
                values.book_of(values.key_of(pair(1)), value)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 3 * wire.MAX_ORDER_BOOK_BYTES

    @given(st.binary(max_size=200))
    def test_only_errors_of_the_library_are_raised(self, value: bytes):
        for some in (value, zlib.compress(value)):
            with pytest.raises(MarketIndexError):
                values.book_of("ADA.ADA", some)


USERS = """
    authorization { users: [
        { user: publisher, password: "s3cret" }
        { user: reader, password: "s3cret", permissions: {
            publish: ["$JS.API.STREAM.INFO.KV_books", "$JS.API.STREAM.MSG.GET.KV_books",
                      "$JS.API.DIRECT.GET.KV_books"]
            subscribe: ["_INBOX.>", "market-index.books"] } }
    ] }
"""
"""A publisher, and a reader with the permissions of docs/deploy/nats-cluster.sh."""


CREDS = """
-----BEGIN NATS USER JWT-----
TOKEN
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
SUAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEQ
------END USER NKEY SEED------
"""
"""A file of credentials; its key is made of zeros."""


def has_problem(feed: Feed, expected: str | None) -> bool:
    return expected in feed.health.problem if feed.health.problem and expected else feed.health.problem is expected


class TestCredentials:
    @pytest.mark.usefixtures("no_retries")
    def test_wrong_credentials_are_rejected_and_no_credentials_are_shown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        caplog.set_level(logging.DEBUG)
        with nats.served(tmp_path / "closed", USERS) as server:
            address = server.url.removeprefix("nats://")
            for url in (f"{server.url}/books", f"nats://publisher:wrong-s3cret@{address}/books"):
                for work in (open_store, lambda url: open_feed(url).read()):
                    with pytest.raises((StoreError, FeedError), match="rejects the credentials") as raised:
                        work(url)
                    assert "s3cret" not in str(raised.value)
            reader = f"nats://reader:s3cret@{address}/books"
            with open_store(f"nats://publisher:s3cret@{address}/books") as store, open_feed(reader) as feed:
                store.publish(book(1, 1))
                feed.start(live)
                store.publish(book(1, 2))
                eventually(lambda: spots(live) == {1: "2"})
                monkeypatch.setenv("NATS_USER", "reader")
                monkeypatch.setenv("NATS_PASSWORD", "s3cret")
                with pytest.raises(
                    StoreError, match="cannot be opened: permissions violation for publish"
                ) as forbidden:
                    open_store(f"{server.url}/others")
                for users in (USERS.replace('reader, password: "s3cret"', 'reader, password: "other"'), USERS):
                    server.more = users
                    server.reload()
                    expected = None if users == USERS else "rejects the credentials"
                    eventually(partial(has_problem, feed, expected))
                store.publish(book(1, 3))
                eventually(lambda: spots(live) == {1: "3"})
                assert "s3cret" not in "".join([repr(store), repr(feed), str(forbidden.value), caplog.text])

    def test_a_token(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        with nats.served(tmp_path / "token", 'authorization { token: "s3cret" }') as server:
            monkeypatch.setenv("NATS_TOKEN", "s3cret")
            open_store(f"{server.url}/books").close()

    def test_a_file_of_credentials(self, tmp_path: Path):
        creds, other = tmp_path / "user.creds", tmp_path / "other.creds"
        nats.operated(other)
        with nats.served(tmp_path / "operated", nats.operated(creds)) as server:
            with open_store(f"{server.url}/books?creds={creds}") as store:
                store.publish(book(1, 1))
            assert spots(open_feed(f"{server.url}/books?creds={creds}").read()) == {1: "1"}
            with pytest.raises(FeedError, match="rejects the credentials"):
                open_feed(f"{server.url}/books?creds={other}").read()

    @pytest.mark.usefixtures("one_attempt")
    def test_tls_with_certificates_of_both_sides(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
        with pytest.raises(FeedError, match="cannot be read: No such file or directory"):
            open_feed(url).read()

    @pytest.mark.usefixtures("one_attempt")
    @pytest.mark.parametrize("scheme", ["nats", "tls"])
    @pytest.mark.parametrize(
        ("given", "sent"), [("me:s3cret@", "s3cret"), ("s3cret@", "s3cret"), ("creds", '"jwt":"TOKEN"')]
    )
    @pytest.mark.parametrize("offer", ["", ',"tls_available":true'])
    def test_no_credentials_are_sent_without_tls(self, tmp_path: Path, scheme: str, given: str, sent: str, offer: str):
        creds = tmp_path / "user.creds"
        creds.write_text(CREDS)
        userinfo, query = (given, "") if given != "creds" else ("", f"?creds={creds}")
        heard: list[bytes] = []
        info = (
            f'INFO {{"server_id":"x","version":"2.15.0","headers":true,"nonce":"abc","auth_required":true{offer}}}\r\n'
        )
        reason = "server does not require TLS; no credentials were sent" if scheme == "tls" else "cannot be read"
        with links.listening(info.encode(), heard) as port, pytest.raises(FeedError, match=reason):
            open_feed(f"{scheme}://{userinfo}127.0.0.1:{port}/books{query}").read()
        assert (sent.encode() in b"".join(heard).replace(b" ", b"")) == (scheme == "nats")
        assert scheme == "nats" or b"".join(heard) == b""


@contextmanager
def talking(sent: bytes) -> Iterator[int]:
    """Open a port that sends this on each connection, and keeps it open."""
    connections = list[socket.socket]()

    def talk(connection: socket.socket) -> None:
        connections.append(connection)
        connection.sendall(sent)

    with links.accepting(talk) as port:
        yield port
    for connection in connections:
        connection.close()


class TestOpening:
    @pytest.mark.usefixtures("one_attempt")
    def test_servers_that_cannot_be_used(self, tmp_path: Path):
        info = b'INFO {"server_id":"x","version":"%s","headers":true,"max_payload":1048576}\r\nPONG\r\n'
        for sent, reason in [
            (info % b"2.12.1", "nats-server must have version 2.12.2 or later, got 2.12.1"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "INFO"),
            (b"-ERR '\x1b]0;owned\x07'\r\n", "INFO"),
        ]:
            with talking(sent) as port:
                for work in (open_store, lambda url: open_feed(url).read()):
                    with pytest.raises((StoreError, FeedError), match=re.escape(reason)) as raised:
                        work(f"nats://127.0.0.1:{port}/books")
                    assert str(raised.value).isprintable()
        with pytest.raises(FeedError, match=r"/books cannot be read: .*Connect call failed"):
            open_feed(f"nats://127.0.0.1:{nats.spare_port()}/books").read()
        with (
            nats.served(tmp_path / "core", jetstream=False) as server,
            pytest.raises(StoreError, match="cannot be opened: JetStream is not available"),
        ):
            open_store(f"{server.url}/books")

    def test_opening_is_retried_until_the_server_is_up(self, tmp_path: Path, live: LiveIndex):
        server = nats.Server(tmp_path / "late")
        url = f"nats://127.0.0.1:1,{server.address}/books"
        starting = in_thread(server.start)
        try:
            with open_store(url) as store:
                store.publish(book(1, 1))
            with open_feed(url) as feed:
                feed.start(live)
                assert spots(live) == {1: "1"}
        finally:
            starting.join()
            server.kill()

    @pytest.mark.parametrize(
        ("settings", "given"),
        [
            ({"max_bytes": 5000, "discard": "old"}, "discard old"),
            ({"max_msgs_per_subject": 5}, "max_msgs_per_subject 5"),
            ({"max_age": 3_600_000_000_000}, "max_age 3600.0"),
            ({"retention": "interest"}, "retention interest"),
        ],
    )
    def test_a_bucket_must_store_exactly_the_last_value_of_each_key(
        self, bucket: str, nats_server: nats.Server, settings: dict[str, object], given: str
    ):
        """The servers would acknowledge books and delete them later, or show an older book once the last is deleted."""
        name = nats.name_of(bucket)
        nats.create(nats_server, name, allow_direct=True, **settings)
        reason = f"and allow direct reads, got {given}; run: nats stream edit KV_{name} --max-msgs-per-subject=1 "
        with pytest.raises(StoreError, match=f"cannot be opened: .*{reason}"):
            open_store(bucket)
        with pytest.raises(FeedError, match=f"cannot be read: .*{reason}"):
            open_feed(bucket).read()

    def test_an_ordinary_bucket_is_made_to_accept_batches(self, bucket: str, nats_server: nats.Server):
        name, settings = nats.name_of(bucket), {"metadata": {"of": "us"}, "compression": "s2", "max_msg_size": 10_000}
        nats.create(nats_server, name, allow_direct=False, allow_msg_ttl=True, description="ours", **settings)
        before = nats.request(nats_server, f"STREAM.INFO.KV_{name}")["config"]
        with pytest.raises(FeedError, match="got allow_direct False"):
            open_feed(bucket).read()
        with open_store(bucket) as store:
            store.publish(book(1, 1), book(2, 1))
        assert spots(open_feed(bucket).read()) == {1: "1", 2: "1"}
        after = nats.request(nats_server, f"STREAM.INFO.KV_{name}")["config"]
        changed = {name for name in after if after[name] != before.get(name)}
        assert changed == {"allow_direct", "allow_atomic", "metadata"}  # the servers add their versions
        assert after["metadata"]["of"] == "us"

    def test_a_mirror_of_a_bucket_is_rejected(self, bucket: str, nats_server: nats.Server):
        """It copies changes message by message."""
        name = nats.name_of(bucket)
        with open_store(bucket) as store:
            store.publish(book(1, 1), book(2, 1))
        copy = {"name": f"KV_copy{name}", "mirror": {"name": f"KV_{name}"}, "max_msgs_per_subject": 1}
        nats.request(nats_server, f"STREAM.CREATE.KV_copy{name}", copy | {"discard": "new", "allow_direct": True})
        reason = f"the bucket must not be a mirror, which copies parts of changes: follow KV_{name}"
        with pytest.raises(FeedError, match=reason):
            open_feed(f"{nats_server.url}/copy{name}").read()
        with pytest.raises(StoreError, match=reason):
            open_store(f"{nats_server.url}/copy{name}")

    def test_an_error_has_the_cause_and_not_the_attempt_that_the_timeout_cut(self):
        async def work() -> None:
            attempts.append("the cause" if not attempts else "no answer within 0 seconds")
            if len(attempts) > 1:
                await asyncio.sleep(0.5)
            raise Unreachable(attempts[-1])

        attempts, connection = list[str](), Bucket(BucketAddress.parse("nats://127.0.0.1/b")).connection
        with pytest.raises(Unreachable, match="the cause"):
            asyncio.run(connection.retried(work, 0.4))
        assert len(attempts) > 1

    def test_a_missing_bucket(self, bucket: str):
        with pytest.raises(
            FeedError, match=r"cannot be read: there is no such bucket \(market-index publish or relay creates it\)"
        ):
            open_feed(bucket).read()
        with pytest.raises(StoreError, match="cannot be opened: there is no such bucket"):
            open_store(bucket, create=False)
        with pytest.raises(StoreError, match="wait must be 0 or more seconds, got -1"):
            open_store(bucket, wait=-1)

    def test_a_missing_extra_is_named(self, monkeypatch: pytest.MonkeyPatch):
        for name in [
            name for name in sys.modules if name.partition(".")[0] == "nats" or "market_index_feeds.nats" in name
        ]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "nats", None)
        for work, kind in ((open_feed, FeedError), (open_store, StoreError)):
            message = r"books needs the extra nats: pip install 'PATH\[nats\]' of a clone or a wheel \("
            with pytest.raises(kind, match=message):
                work("nats://me:s3cret@127.0.0.1/books")

    def test_inside_a_running_event_loop(self, bucket: str):
        """As in a notebook."""

        async def work() -> dict[int, str | None]:
            with open_store(bucket) as store:
                store.publish(book(1, 1))
            return spots(open_feed(bucket).read())

        assert asyncio.run(work()) == {1: "1"}


def shows(live: LiveIndex, spot: int) -> bool:
    return spots(live)[1] == str(spot)


class TestChanges:
    def test_each_change_wakes_the_readers(self, bucket: str, live: LiveIndex, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("market_index_feeds.nats.reading.CHECK_SECONDS", 10 * DEADLINE_SECONDS)
        with open_store(bucket) as store, open_feed(bucket) as feed:
            store.publish(book(1, 1))
            feed.start(live)
            for spot in range(2, 20):
                store.publish(*[book(number, spot) for number in range(1, spot % 3 + 2)])
                eventually(partial(shows, live, spot))

    def test_values_of_other_programs(self, bucket: str, nats_server: nats.Server, live: LiveIndex):
        """They make the as_of unknown until the bucket is replaced; a key of no pair is only counted."""
        name = nats.name_of(bucket)
        with open_store(bucket) as store, open_feed(bucket) as feed:
            store.update([book(1, 1)], freshness=Freshness("slot 1"))
            feed.start(live)
            nats.put(nats_server, name, values.key_of(pair(2)), wire.order_book_to_json(book(2, 5)))
            eventually(lambda: spots(live) == {1: "1", 2: "5"} and live.current.as_of is None)
            store.update([book(1, 2)], freshness=Freshness("slot 2"))
            eventually(lambda: spots(live)[1] == "2")
            assert live.current.as_of is None
            store.update([], freshness=Freshness("slot 2"), after=store.read().position)
            eventually(lambda: live.current.as_of == "slot 2")
            nats.put(nats_server, name, "nonsense", b"nonsense")
            nats.put(nats_server, name, values.HEARTBEAT_KEY, b"", {"Market-Index-Freshness": "nonsense"})
            eventually(lambda: feed.health.rejected == 2 and live.current.as_of is None)
            assert not feed.health.current_rejections
            store.replace([book(1, 2), book(2, 5)], Freshness("slot 3"))
            eventually(lambda: live.current.as_of == "slot 3")

    @pytest.mark.parametrize(
        "headers",
        [
            {"KV-Operation": "PURGE"},
            {"KV-Operation": "DEL"},
            {"kv-operation": "DEL"},
            {"Nats-Marker-Reason": "MaxAge"},
        ],
    )
    def test_deletions_of_other_programs(self, bucket: str, nats_server: nats.Server, headers: dict[str, str]):
        with open_store(bucket) as store, open_store(bucket) as reading:
            store.publish(book(1, 1), book(2, 1))
            assert spots(reading.read().index) == {1: "1", 2: "1"}
            nats.put(nats_server, nats.name_of(bucket), values.key_of(pair(2)), b"", headers)
            assert spots(reading.read().index) == spots(open_feed(bucket).read()) == {1: "1"}
            assert store.retract(pair(2)).retracted == 0

    def test_a_value_that_expires_is_retracted(self, bucket: str, nats_server: nats.Server, live: LiveIndex):
        """The servers write a marker, which has no `KV-Operation`."""
        name, day = nats.name_of(bucket), 86_400_000_000_000
        with open_store(bucket) as store, open_feed(bucket) as feed:
            store.update([book(1, 1)], freshness=Freshness("slot 1"))
            nats.edit(nats_server, name, allow_msg_ttl=True, subject_delete_marker_ttl=day)
            feed.start(live)
            text = wire.order_book_to_json(book(2, 5))
            nats.put(nats_server, name, values.key_of(pair(2)), text, {"Nats-TTL": "1s"})
            eventually(lambda: spots(live) == {1: "1", 2: "5"})
            eventually(lambda: spots(live) == {1: "1"})
            assert live.current.as_of is None
            assert not feed.health.current_rejections

    @pytest.mark.usefixtures("no_retries")
    def test_books_and_buckets_that_are_too_large(self, bucket: str, nats_server: nats.Server):
        nats.create(nats_server, nats.name_of(bucket), max_msg_size=6584, max_bytes=20_000, discard="new")
        with open_store(bucket) as store:
            store.publish(book(2, 1))
            large = OrderBook.from_levels(pair(1), bids=[(f"0.{n**9:028}", n) for n in range(1, 200)])
            with pytest.raises(BookTooLarge, match="must be stored in at most 2488 bytes, got") as raised:
                store.publish(book(2, 2), large)
            assert raised.value.pairs == (pair(1),)
            with pytest.raises(StoreError, match="maximum bytes exceeded") as full:
                store.publish(*[book(number, 3) for number in range(2, 500)])
            assert type(full.value) is StoreError
            assert spots(store.read().index) == {2: "1"}
            store.publish(book(2, 4))
            assert spots(open_feed(bucket).read()) == {2: "4"}

    def test_a_change_that_others_always_overtake_raises(self, bucket: str):
        with open_store(bucket, wait=0) as store, open_store(bucket) as other:
            store.publish(book(1, 1))
            other.publish(book(1, 2))
            with pytest.raises(StoreBusy, match="others have been writing for 0 seconds"):
                store.publish(book(1, 3))
            assert spots(store.read().index) == {1: "2"}
            store.publish(book(1, 3))

    def test_a_deleted_bucket_is_an_error(self, bucket: str, nats_server: nats.Server):
        with open_store(bucket) as store:
            store.publish(book(1, 1))
            nats.delete(nats_server, nats.name_of(bucket))
            with pytest.raises(StoreError, match="was not written to: there is no such bucket"):
                store.publish(book(1, 2))


@contextmanager
def lossy_link(server: nats.Server) -> Iterator[tuple[str, Event, Event]]:
    """A server behind a link that loses each answer, and the connection, while the first event is not set.

    The second event is set when an answer was lost.
    """
    is_up, has_lost = Event(), Event()
    is_up.set()

    def back(_: bytes) -> None:
        if not is_up.is_set():
            has_lost.set()
            raise OSError

    with links.linked(server.port, lambda chunk: None, back) as port:
        yield f"nats://127.0.0.1:{port}", is_up, has_lost


class TestLostReplies:
    def test_the_record_shows_that_a_change_was_stored(self, bucket: str, nats_server: nats.Server):
        self.publish_without_reply(bucket, nats_server, wait=DEADLINE_SECONDS)

    def test_a_change_of_another_publisher_makes_the_outcome_unknown(self, bucket: str, nats_server: nats.Server):
        def publish_another() -> None:
            with open_store(bucket) as other:
                other.publish(book(1, 3))

        with pytest.raises(UnknownOutcome, match="others have changed it since"):
            self.publish_without_reply(bucket, nats_server, wait=DEADLINE_SECONDS, meanwhile=publish_another)
        assert spots(open_feed(bucket).read()) == {1: "3", 2: "2"}

    def test_a_change_that_is_not_acknowledged_in_time_has_an_unknown_outcome(
        self, bucket: str, nats_server: nats.Server
    ):
        with pytest.raises(UnknownOutcome, match=r"did not acknowledge a change within 0\.1 seconds"):
            self.publish_without_reply(bucket, nats_server, wait=0.1, is_repaired=False)

    def publish_without_reply(
        self,
        bucket: str,
        server: nats.Server,
        *,
        wait: float,
        meanwhile: Callable[[], object] = lambda: None,
        is_repaired: bool = True,
    ) -> None:
        """Publish over a link that loses the reply, and is repaired once the change is stored."""
        with (
            lossy_link(server) as (url, is_up, has_lost),
            open_store(f"{url}/{nats.name_of(bucket)}", wait=wait) as store,
            pytest.MonkeyPatch.context() as patches,
        ):
            before = store.publish(book(1, 1)).position.number
            patches.setattr("market_index_feeds.nats.connection.REQUEST_SECONDS", 0.3)
            is_up.clear()

            def repair() -> None:
                assert has_lost.wait(DEADLINE_SECONDS)
                eventually(lambda: nats.length_of(server, nats.name_of(bucket)) > before)
                meanwhile()
                if is_repaired:
                    is_up.set()

            repairing = in_thread(repair)
            try:
                assert store.publish(book(1, 2), book(2, 2)).position.number == before + 2
            finally:
                repairing.join()
                is_up.set()
            assert spots(store.read().index) == {1: "2", 2: "2"}
