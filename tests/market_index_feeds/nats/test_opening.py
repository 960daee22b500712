"""Opening a bucket: unreachable servers, other servers, missing features."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from threading import Event

import pytest

from market_index import LiveIndex
from market_index.errors import safe_repr
from market_index_feeds import (
    FeedError,
    StoreError,
    open_feed,
    open_store,
)
from market_index_feeds.nats import open_nats_store
from market_index_feeds.nats.bucket import configuration
from market_index_feeds.nats.errors import RequestRejected, error_of
from tests import links, nats
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.nats.conftest import SHORT, feed_with_short_timeouts
from tests.waiting import DEADLINE_SECONDS, in_thread


class TestOpening:
    def test_the_first_connection_has_a_deadline(self, live: LiveIndex):
        url = f"nats://127.0.0.1:{nats.spare_port()}/books"
        with pytest.raises(FeedError, match=r"/books cannot be read: nats://127\.0\.0\.1:\d+: connection refused"):
            feed_with_short_timeouts(url).start(live)
        with pytest.raises(StoreError, match=r"/books cannot be opened: nats://127\.0\.0\.1:\d+: connection refused"):
            open_nats_store(url, wait=5, opening=SHORT)
        with pytest.raises(FeedError, match="cannot be read"):
            feed_with_short_timeouts(url).read_order_book(pair(1))

    def test_opening_is_retried_until_the_server_is_up(self, tmp_path: Path, live: LiveIndex, retried: Event):
        server = nats.Server(tmp_path / "late")

        def start() -> None:
            assert retried.wait(DEADLINE_SECONDS)
            server.start()

        starting = in_thread(start)
        try:
            with open_store(server.bucket("books")) as store:
                store.publish(book(1, 1))
            with open_feed(f"nats://127.0.0.1:1,{server.address}/books") as feed:
                feed.start(live)
                assert spots(live) == {1: "1"}
        finally:
            starting.join()
            server.kill()

    @pytest.mark.parametrize(
        ("settings", "given", "remedy", "repaired"),
        [
            ({"max_bytes": 5000, "discard": "old"}, "max_bytes 5000", "--discard=new", {"discard": "new"}),
            ({"max_msgs": 20, "discard": "old"}, "max_msgs 20", "--discard=new", {"discard": "new"}),
            ({"max_msgs_per_subject": 5}, "max_msgs_per_subject 5", "--max-msgs-per-subject=1", {}),
            ({"max_msgs_per_subject": -1}, "max_msgs_per_subject -1", "--max-msgs-per-subject=1", {}),
            ({"max_age": 3_600_000_000_000}, "max_age 3600 s", "--max-age=0s", {"max_age": 0}),
            ({"retention": "interest"}, "retention interest", "--retention=limits", {}),
            (
                {"max_age": 500_000_000, "max_msgs_per_subject": 3, "duplicate_window": 500_000_000},
                "max_msgs_per_subject 3, max_age 0.5 s",
                "--max-msgs-per-subject=1 --max-age=0s",
                {"max_age": 0},
            ),
        ],
    )
    def test_a_bucket_is_rejected_until_it_stores_exactly_the_last_book_of_each_pair(
        self,
        bucket: str,
        nats_server: nats.Server,
        settings: dict[str, object],
        given: str,
        remedy: str,
        repaired: dict[str, object],
    ):
        """The servers would acknowledge books and delete them later, or show an older book once the last is deleted."""
        name = nats.name_of(bucket)
        nats.request(nats_server, f"STREAM.CREATE.KV_{name}", configuration(name, 1) | settings)
        reason = re.escape(
            f"the bucket must store the last value of each key, and nothing else, got {given}; "
            f"run: nats stream edit KV_{name} {remedy}"
        )
        with pytest.raises(StoreError, match=f"cannot be opened: {reason}$"):
            open_store(bucket)
        with pytest.raises(FeedError, match=f"cannot be read: {reason}$"):
            open_feed(bucket).read()
        with pytest.raises(FeedError, match=f"cannot be read: {reason}$"):
            open_feed(bucket).read_order_book(pair(1))
        nats.request(nats_server, f"STREAM.UPDATE.KV_{name}", configuration(name, 1) | repaired)
        with open_store(bucket) as store:
            store.publish(book(1, 1))
        assert spots(open_feed(bucket).read()) == {1: "1"}

    @pytest.mark.parametrize("text", ["\x1b]0;owned\x07", "x" * 1000])
    def test_the_text_of_a_server_is_escaped_and_cut(self, text: str):
        with links.listening(f"-ERR '{text}'\r\n".encode()) as port, pytest.raises(FeedError) as raised:
            feed_with_short_timeouts(f"nats://127.0.0.1:{port}/books").read()
        assert str(raised.value).isprintable()
        assert len(str(raised.value)) < 300
        assert str(error_of({"description": text})) == str(RequestRejected(0, safe_repr(text)))

    def test_without_jetstream_there_is_no_bucket(self, tmp_path: Path):
        with (
            nats.served(tmp_path / "core", jetstream=False) as server,
            pytest.raises(StoreError, match="cannot be opened: JetStream is not available"),
        ):
            open_nats_store(f"{server.url}/books", wait=5, opening=SHORT)

    def test_a_server_that_is_not_nats(self):
        with (
            links.listening(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port,
            pytest.raises(FeedError, match="cannot be read"),
        ):
            feed_with_short_timeouts(f"nats://127.0.0.1:{port}/books").read()

    def test_more_replicas_than_servers_are_an_error(self, bucket: str):
        with pytest.raises(StoreError, match="replicas > 1 not supported in non-clustered mode"):
            open_store(f"{bucket}?replicas=3")
        open_store(f"{bucket}?replicas=1").close()

    def test_a_missing_extra_is_named(self, monkeypatch: pytest.MonkeyPatch):
        for name in [
            name for name in sys.modules if name.partition(".")[0] == "nats" or "market_index_feeds.nats" in name
        ]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "nats", None)
        for work, kind in ((open_feed, FeedError), (open_store, StoreError)):
            with pytest.raises(kind, match=r"the extra nats must be installed \(pip install '\.\[nats\]'\)"):
                work("nats://me:s3cret@127.0.0.1/books")
        monkeypatch.setitem(sys.modules, "market_index_feeds.nats", None)
        with pytest.raises(ModuleNotFoundError):
            open_feed("nats://127.0.0.1/books")
