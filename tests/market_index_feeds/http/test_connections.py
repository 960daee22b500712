"""Requests of a feed: timeouts, truncated and invalid responses, closing, and URLs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Thread

import pytest

from market_index import LiveIndex, MarketIndex, wire
from market_index_feeds import FeedError, open_feed
from market_index_feeds.errors import Unavailable
from market_index_feeds.http import connections
from market_index_feeds.http.connections import BaseUrl, Connections
from market_index_feeds.http.source import HttpSource
from market_index_http import create_app
from tests.market_index_feeds.http.services import LIST, answering_in_bytes
from tests.market_index_feeds.made_up import book, pair, spots
from tests.service import served
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread, raised_in_thread


class TestSlow:
    """A service that responds slowly, or without end."""

    @pytest.fixture
    def asked(self) -> Event:
        """Set once the dripping service has started a response."""
        return Event()

    @pytest.fixture
    def dripping(self, asked: Event) -> Iterator[str]:
        """The base URL of a service that sends one byte at a time, without end."""
        done = Event()
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def drip(connection: socket.socket) -> None:
                with connection, suppress(OSError):
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                    asked.set()
                    while not done.wait(0.01):
                        connection.sendall(b" ")

            def accept() -> None:
                with suppress(OSError):
                    while True:
                        connection, _ = listener.accept()
                        Thread(target=drip, args=(connection,), daemon=True).start()

            Thread(target=accept, daemon=True).start()
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            done.set()
            listener.shutdown(socket.SHUT_RDWR)

    def test_a_response_has_a_timeout(self, dripping: str, live: LiveIndex, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(connections, "RESPONSE_SECONDS", 0.2)
        with pytest.raises(FeedError, match=rf"no response to {LIST} within 0\.2 seconds"):
            open_feed(dripping).start(live)

    def test_closing_interrupts_an_endless_response(self, dripping: str, asked: Event, live: LiveIndex):
        feed = open_feed(dripping)
        raised: list[str] = []
        loading = in_thread(lambda: raised.append(raised_in_thread(lambda: feed.start(live))))
        assert asked.wait(DEADLINE_SECONDS)
        feed.close()
        loading.join(DEADLINE_SECONDS)
        assert "FeedError" in raised[0]

    def test_a_round_that_is_interrupted_is_not_published(self, upstream: LiveIndex):
        stop = Event()
        with served(create_app(upstream)) as one:
            updates = HttpSource("service", BaseUrl.parse(f"http://127.0.0.1:{one.port}")).updates(
                stop, lambda *_: stop.set()
            )
            assert list(updates) == []

    def test_no_request_is_sent_after_close(self, upstream: LiveIndex):
        with served(create_app(upstream)) as one:
            closed = Connections(BaseUrl.parse(f"http://127.0.0.1:{one.port}"))
            closed.close()
            with pytest.raises(Unavailable, match="the feed is closed"):
                closed.get(LIST, "", 1000)

    def test_a_truncated_response_is_reported_as_truncated(self, live: LiveIndex):
        cut_off = b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"pairs":[]}'
        with (
            answering_in_bytes(cut_off) as url,
            pytest.raises(FeedError, match=f"response to {LIST} was cut off 5 bytes before its end"),
        ):
            open_feed(url).start(live)


def test_a_connection_closed_by_the_service_is_replaced():
    """The service sends each response on a connection of its own, and closes it without notice."""
    bodies = [wire.pair_list_to_json(MarketIndex([book(1, 1)]).pair_list()), wire.order_book_to_json(book(1, 1))] * 2
    answers = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies]
    live = LiveIndex()
    with answering_in_bytes(*answers) as url, open_feed(url) as feed:
        feed.start(live)
        assert spots(live) == {1: "1"}
        eventually(lambda: feed.books == 2)


def test_a_feed_that_was_not_started_can_be_closed():
    feed = open_feed("http://127.0.0.1:1")
    feed.close()
    with pytest.raises(RuntimeError, match="started once"):
        feed.read()


def test_an_unreachable_service_is_one_clear_error(live: LiveIndex):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for work in (lambda feed: feed.start(live), lambda feed: feed.read_order_book(pair(1))):
        with pytest.raises(FeedError, match="cannot be read: Connection refused"):
            work(open_feed(f"http://127.0.0.1:{port}"))


def test_a_response_that_is_not_http_is_one_clear_error(live: LiveIndex):
    with (
        answering_in_bytes(b"SSH-2.0-nonsense\r\n") as url,
        pytest.raises(FeedError, match=r"response is not valid HTTP: 'SSH-2\.0-nonsense"),
    ):
        open_feed(url).start(live)


@pytest.mark.parametrize(
    "source",
    ["http://", "http:///path", "http://user:secret@host", "http://host?x=1", "http://host#x", "http://host:x", "http://[::1"],
)  # fmt: skip
def test_an_invalid_base_url_is_an_error(source: str):
    with pytest.raises(FeedError, match="cannot be opened"):
        open_feed(source)


@pytest.mark.parametrize(
    "source", ["http://exa mple:80", "http://a..b:80/", "http://127.0.0.1:9/pä", f"http://{'x' * 70}:80"]
)
def test_an_unusable_host_is_one_clear_error(source: str):
    with pytest.raises(FeedError, match="cannot be read"):
        open_feed(source).read()


def test_the_scheme_of_a_url_may_be_in_upper_case():
    assert repr(open_feed("HTTP://127.0.0.1:1\n").source) == repr("'HTTP://127.0.0.1:1\\n'")


def test_https_is_used_for_an_https_url(live: LiveIndex):
    with served(create_app(live)) as one, pytest.raises(FeedError, match=r"SSL"):
        open_feed(f"https://127.0.0.1:{one.port}").start(live)
