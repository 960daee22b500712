"""Credentials and TLS."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import pytest

from market_index import LiveIndex
from market_index_feeds import (
    FeedError,
    StoreError,
    open_feed,
    open_store,
)
from market_index_feeds.nats import open_nats_store
from market_index_feeds.nats.address import Address
from market_index_feeds.nats.connection import BucketConnection
from tests import links, nats, nats_security
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.nats.conftest import SHORT, feed_with_short_timeouts
from tests.waiting import eventually

USERS = """
    authorization { users: [
        { user: publisher, password: "s3cret" }
        { user: reader, password: "s3cret", permissions: {
            publish: ["$JS.API.STREAM.INFO.KV_books", "$JS.API.STREAM.MSG.GET.KV_books",
                      "$JS.API.CONSUMER.CREATE.KV_books.>", "$JS.FC.KV_books.>"]
            subscribe: ["_INBOX.>"] } }
    ] }
"""
"""A publisher, and a reader that may not write."""


class TestCredentials:
    def test_rejected_credentials_are_not_retried_and_never_shown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
    ):
        def next_backoff(_: float) -> float:
            raise AssertionError("it is retried")

        logged.set_level(logging.DEBUG)
        monkeypatch.setattr("market_index_feeds.nats.connection.next_backoff", next_backoff)
        with nats.served(tmp_path / "closed", USERS) as server:
            address = server.url.removeprefix("nats://")
            for url in (f"{server.url}/books", f"nats://publisher:wrong-s3cret@{address}/books"):
                for work in (open_store, lambda url: open_feed(url).read()):
                    with pytest.raises((StoreError, FeedError), match="rejects the credentials") as raised:
                        work(url)
                    assert "s3cret" not in str(raised.value) + logged.text
                    assert "127.0.0.1" in str(raised.value)

    def test_accepted_credentials_are_never_shown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture, live: LiveIndex
    ):
        logged.set_level(logging.DEBUG)
        with nats.served(tmp_path / "closed", USERS) as server:
            address = server.url.removeprefix("nats://")
            reader = f"nats://reader:s3cret@{address}/books"
            with open_store(f"nats://publisher:s3cret@{address}/books") as store, open_feed(reader) as feed:
                store.publish(book(1, 1))
                feed.start(live)
                store.publish(book(1, 2), book(2, 2))
                eventually(lambda: spots(live) == {1: "2", 2: "2"})
                assert open_feed(reader).read_order_book(pair(1)) == book(1, 2)
                monkeypatch.setenv("NATS_USER", "reader")
                monkeypatch.setenv("NATS_PASSWORD", "s3cret")
                with open_store(f"{server.url}/books", wait=1) as reading, pytest.raises(StoreError) as forbidden:
                    reading.publish(book(1, 3))
                violation = 'not written to: .*permissions violation for publish to "\\$kv.books'
                assert re.search(violation, str(forbidden.value).lower())
                with pytest.raises(StoreError, match=r"(?i)permissions violation") as raised:
                    open_store(f"nats://reader:s3cret@{address}/others")
                server.kill()
                eventually(lambda: "keeping its" in logged.text)
                messages = [repr(store), repr(feed), str(forbidden.value), str(raised.value), logged.text]
                assert "s3cret" not in "".join(messages)

    def test_revoked_and_restored_credentials(self, tmp_path: Path, live: LiveIndex, logged: pytest.LogCaptureFixture):
        users = 'authorization { user: me, password: "s3cret" }'
        with nats.served(tmp_path / "closed", users) as server:
            url = f"nats://me:s3cret@127.0.0.1:{server.port}/books"
            with open_store(url) as store, open_feed(url) as feed:
                store.publish(book(1, 1))
                feed.start(live)
                server.reload(users.replace("s3cret", "other"))
                eventually(lambda: "rejects the credentials; keeping its 1 pairs" in logged.text)
                with pytest.raises(StoreError, match="rejects the credentials"):
                    store.publish(book(1, 2))
                eventually(lambda: server.log.count("authentication error") >= 4)
                assert spots(live) == {1: "1"}
                server.reload(users)
                store.publish(book(1, 3))
                eventually(lambda: spots(live) == {1: "3"})
                assert logged.text.count("rejects the credentials; keeping its 1 pairs") == 1

    def test_a_reported_ip_address_is_verified_by_the_name_of_the_given_server(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """Servers of a cluster report addresses, for which their certificates have no name."""
        monkeypatch.setenv("NATS_CA", str(tmp_path / "ca.pem"))

        async def discovered(given: nats.Server) -> dict[str, str | None]:
            url = f"tls://localhost:{given.port}"
            address = Address.parse(f"{url}/books")
            connection = await BucketConnection.open(address, url, address.tls(), None)
            try:
                return connection.discovered
            finally:
                await connection.close()

        with nats.cluster(tmp_path / "two", nats_security.certified(tmp_path), size=2, jetstream=False) as (
            by_ip,
            by_name,
        ):
            expected = {f"tls://127.0.0.1:{by_ip.port}": "localhost", f"tls://localhost:{by_name.port}": None}
            # Once they are connected with each other.
            eventually(lambda: asyncio.run(discovered(by_ip)) == expected)

    def test_a_token_is_accepted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        with nats.served(tmp_path / "token", 'authorization { token: "s3cret" }') as server:
            open_store(f"nats://s3cret@127.0.0.1:{server.port}/books").close()
            monkeypatch.setenv("NATS_TOKEN", "s3cret")
            assert len(open_feed(f"{server.url}/books").read()) == 0

    def test_a_file_of_credentials_is_accepted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        configuration, creds = nats_security.accounts(tmp_path)
        with nats.served(tmp_path / "jwt", configuration) as server:
            with pytest.raises(StoreError, match="rejects the credentials"):
                open_store(f"{server.url}/books")
            open_store(f"{server.url}/books?creds={creds}").close()
            monkeypatch.setenv("NATS_CREDS", str(creds))
            assert len(open_feed(f"{server.url}/books").read()) == 0
            monkeypatch.setenv("NATS_CREDS", str(tmp_path / "nowhere.creds"))
            with pytest.raises(FeedError, match=r"cannot be read: .*No such file or directory"):
                feed_with_short_timeouts(f"{server.url}/books").read()

    def test_tls(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nats_server: nats.Server):
        with nats.served(tmp_path / "tls", nats_security.certified(tmp_path, "verify: true")) as server:
            url = f"tls://localhost:{server.port}/books"
            with pytest.raises(StoreError, match="certificate verify failed"):
                open_nats_store(url, wait=5, opening=SHORT)
            monkeypatch.setenv("NATS_CA", str(tmp_path / "ca.pem"))
            with pytest.raises(StoreError, match="cannot be opened"):
                open_nats_store(url, wait=5, opening=SHORT)
            monkeypatch.setenv("NATS_CERT", str(tmp_path / "client.pem"))
            with open_store(url) as store:
                store.publish(book(1, 1))
            assert spots(open_feed(url).read()) == {1: "1"}
            with pytest.raises(FeedError, match=r"certificate verify failed|match"):
                feed_with_short_timeouts(f"tls://127.0.0.1:{server.port}/books").read()
        monkeypatch.setenv("NATS_CA", str(tmp_path / "nowhere.pem"))
        with pytest.raises(FeedError, match="cannot be read: No such file or directory"):
            feed_with_short_timeouts(url).read()

    def test_nothing_is_sent_in_plain_text_to_a_server_without_tls(self):
        heard: list[bytes] = []
        info = b'INFO {"server_id":"x","version":"2.12.0","proto":1,"headers":true,"max_payload":1048576}\r\n'
        with (
            links.listening(info, heard) as port,
            pytest.raises(FeedError, match="server does not require TLS; no credentials were sent"),
        ):
            feed_with_short_timeouts(f"tls://me:s3cret@127.0.0.1:{port}/books").read()
        assert b"".join(heard) == b""
