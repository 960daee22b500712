"""Requests to services that are slow, endless, unreachable or not found, and what ends them."""

from __future__ import annotations

import gzip
import re
import socket
import ssl
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import version
from itertools import count
from pathlib import Path
from threading import Barrier, Event
from typing import TypeAlias
from urllib.parse import unquote

import pytest

from market_index import ADA, AssetId, LiveIndex, MarketIndex, OrderBook, Pair, wire
from market_index_feeds import FeedError, open_feed
from market_index_feeds.http import client
from market_index_feeds.http.client import MAX_IN_FLIGHT, BaseUrl
from market_index_feeds.http.limits import PollingLimits
from market_index_feeds.http.source import open_http_source
from market_index_http import create_app
from tests.faults import upstreams
from tests.market_index_feeds.http.services import LIST, answering_in_bytes, polled
from tests.market_index_feeds.made_up import book, pair, spots
from tests.service import served
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread, raised_in_thread

Wrapper: TypeAlias = Callable[[upstreams.Answer], upstreams.Answer]

TOO_LATE = r"no response to .* within 0\.1 seconds"


def request_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("requests to ")]


def closed_while_loading(url: str, is_loading: Event) -> str:
    """Close a feed while another thread loads it, and return the error of that thread."""
    feed = open_feed(url)
    raised: list[str] = []
    loading = in_thread(lambda: raised.append(raised_in_thread(lambda: feed.start(LiveIndex()))))
    assert is_loading.wait(DEADLINE_SECONDS)
    feed.close()
    loading.join(DEADLINE_SECONDS)
    assert not loading.is_alive()
    return raised[0]


@pytest.fixture
def look_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Event, Event]]:
    """Look-ups of hosts set the first event, and return the address of 127.0.0.1 once the second one is set."""
    asked, found, getaddrinfo = Event(), Event(), socket.getaddrinfo

    def slow(host: str, *arguments: object, **named: object) -> object:
        if host != "service.example":
            return getaddrinfo(host, *arguments, **named)  # type: ignore[arg-type]  # passed on as they are
        asked.set()
        found.wait()
        return getaddrinfo("127.0.0.1", *arguments, **named)  # type: ignore[arg-type]  # passed on as they are

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    yield asked, found
    found.set()


def compressed(body: bytes) -> bytes:
    """Return the bytes of a compressed response."""
    return upstreams.answered(gzip.compress(body), more=b"Content-Encoding: gzip\r\n")


def compressed_in_chunks(body: bytes) -> bytes:
    """Return the bytes of a compressed response in two chunks."""
    content = gzip.compress(body)
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (content[:20], content[20:], b""))
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n" + chunks


def read_service(content: bytes, coding: bytes) -> MarketIndex:
    """Read a service with one book, whose pair list has this content in this coding."""

    def answer(connection: socket.socket, request: bytes, _: Event) -> None:
        listed = upstreams.answered(content, more=b"Content-Encoding: %b\r\n" % coding)
        connection.sendall(listed if b"pair-list" in request else upstreams.answered(upstreams.BOOK))

    with upstreams.upstream(answer) as url:
        return open_feed(url).read()


class TestDeadline:
    @pytest.mark.parametrize(
        "answer",
        [
            upstreams.continues,
            upstreams.floods,
            upstreams.drips_head,
            upstreams.drips_body,
            upstreams.names_without_end,
            upstreams.lists_and_stalls,
        ],
    )
    def test_the_deadline_covers_the_whole_exchange_and_its_thread_ends(self, answer: upstreams.Answer):
        with upstreams.upstream(answer) as url:
            with pytest.raises(FeedError, match=TOO_LATE):
                polled(url, exchange_seconds=0.1).start(LiveIndex())
            eventually(lambda: not request_threads())

    def test_the_deadline_covers_the_connection(self):
        with upstreams.unconnectable() as url, pytest.raises(FeedError, match=TOO_LATE):
            polled(url, exchange_seconds=0.1).start(LiveIndex())

    @pytest.mark.usefixtures("look_up")
    def test_the_deadline_covers_the_look_up_of_the_host(self):
        with pytest.raises(FeedError, match=TOO_LATE):
            polled("http://service.example", exchange_seconds=0.1).start(LiveIndex())

    def test_a_stalled_request_affects_no_other_one(self, live: LiveIndex):
        listed = wire.pair_list_to_json(MarketIndex([book(1), book(2)]).pair_list())
        is_stalling, spot = Event(), count(1)

        def stalls(connection: socket.socket, request: bytes, done: Event) -> None:
            while request:
                if b"pair-list" in request:
                    body = listed
                elif str(pair(2).base).replace(":", "%3A").encode() in request:
                    body = wire.order_book_to_json(book(2, next(spot)))
                else:
                    while is_stalling.is_set() and not done.wait(0.01):
                        pass
                    body = upstreams.BOOK
                connection.sendall(upstreams.answered(body))
                request = connection.recv(4096)

        with upstreams.upstream(stalls) as url, polled(url, exchange_seconds=0.2) as feed:
            # On a busy machine, a response may take longer.
            eventually(lambda: not raised_in_thread(lambda: feed.start(live)))
            is_stalling.set()
            eventually(lambda: "no response to /trading-view/order-book" in str(feed.problem))
            before = next(spot)
            eventually(lambda: int(spots(live)[2] or 0) > before + 3)
            assert spots(live)[1] == "1"
            is_stalling.clear()
            eventually(lambda: feed.problem is None)


class TestSize:
    @pytest.mark.thorough
    def test_a_million_pairs_are_too_many_bytes(self):
        limit = PollingLimits().list_bytes
        with (
            upstreams.upstream(upstreams.lists_a_million) as url,
            pytest.raises(FeedError, match=f"response to {LIST} must have at most {limit} bytes"),
        ):
            open_feed(url).start(LiveIndex())

    @pytest.mark.parametrize(
        ("framing", "body", "reason"),
        [
            (b"Content-Length: %d" % 10**15, b"{}", "was cut off"),
            (b"Transfer-Encoding: chunked", b"2\r\n  \r\n" * 100_000 + b"0\r\n\r\n", "invalid pair list"),
        ],
        ids=["announced length", "tiny chunks"],
    )
    def test_a_response_takes_as_much_memory_as_its_body(self, framing: bytes, body: bytes, reason: str):
        def answer(connection: socket.socket, _: bytes, __: Event) -> None:
            connection.sendall(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (framing, body))

        with upstreams.upstream(answer) as url:
            feed = open_feed(url)
            tracemalloc.start()
            try:
                with pytest.raises(FeedError, match=reason):
                    feed.start(LiveIndex())
                assert tracemalloc.get_traced_memory()[1] < 3_000_000
            finally:
                tracemalloc.stop()


class TestCompression:
    @pytest.mark.parametrize(
        "content",
        [
            gzip.compress(upstreams.LIST),
            gzip.compress(upstreams.LIST[:9]) + gzip.compress(upstreams.LIST[9:]),
        ],
        ids=["one member", "two members"],
    )
    @pytest.mark.parametrize("coding", [b"gzip", b"GZIP"])
    def test_a_compressed_body_is_decompressed(self, content: bytes, coding: bytes):
        assert spots(read_service(content, coding)) == {1: "1"}

    def test_a_body_may_state_that_it_is_not_compressed(self):
        assert spots(read_service(upstreams.LIST, b"identity")) == {1: "1"}

    def test_a_compressed_error_is_shown(self):
        text = upstreams.answered(gzip.compress(b"not now"), b"500 No", b"Content-Encoding: gzip\r\n")
        with answering_in_bytes(text) as url, pytest.raises(FeedError, match="has status 500: 'not now'"):
            open_feed(url).read()

    @pytest.mark.parametrize(
        ("content", "coding", "reason"),
        [
            (b"{}", b"gzip", r"is not valid gzip: Not a gzipped file \(b'{}'\)"),
            (gzip.compress(upstreams.LIST)[:-9], b"gzip", "is not valid gzip: Compressed file ended before"),
            (gzip.compress(b"")[:10] + b"\xff" * 9, b"gzip", "is not valid gzip: Error -3"),
            (gzip.compress(upstreams.LIST) + b"more", b"gzip", "is not valid gzip: Not a gzipped file"),
            (b"{}", b"br", "must be compressed with gzip or not at all, got 'br'"),
            (b"{}", b"gzip, gzip", "must be compressed with gzip or not at all, got 'gzip, gzip'"),
        ],
        ids=["no gzip", "cut off", "no deflate", "more", "another coding", "two codings"],
    )
    def test_an_invalid_compression_is_one_clear_error(self, content: bytes, coding: bytes, reason: str):
        with pytest.raises(FeedError, match=f"response to {LIST} {reason}"):
            read_service(content, coding)

    def test_a_small_body_that_expands_beyond_the_limit_takes_no_more_memory_than_the_limit(self):
        bomb = gzip.compress(b" " * 100_000_000)
        limit = 1_000_000
        assert len(bomb) < limit
        text = upstreams.answered(bomb, more=b"Content-Encoding: gzip\r\n")
        with upstreams.upstream(lambda connection, _, __: connection.sendall(text)) as url:
            feed = polled(url, list_bytes=limit)
            tracemalloc.start()
            try:
                with pytest.raises(FeedError, match=f"must have at most {limit} bytes, got more"):
                    feed.start(LiveIndex())
                assert tracemalloc.get_traced_memory()[1] < 3 * limit
            finally:
                tracemalloc.stop()


class TestRequests:
    def test_a_request_names_the_program_and_the_compression_that_it_accepts(self):
        asked: list[bytes] = []

        def lists_none(connection: socket.socket, request: bytes, _: Event) -> None:
            asked.append(request)
            connection.sendall(upstreams.answered(b'{"pairs":[]}'))

        with upstreams.upstream(lists_none) as url:
            open_feed(url).read()
        (request,) = asked
        assert request.count(b"\r\nUser-Agent: market-index/%b\r\n" % version("market-index").encode()) == 1
        assert re.findall(rb"\r\nAccept-Encoding: (.*)\r\n", request) == [b"gzip"]


class TestClosing:
    @pytest.mark.parametrize("answer", [upstreams.continues, upstreams.drips_body])
    def test_closing_ends_a_response_and_its_thread(self, answer: upstreams.Answer):
        asked = Event()
        with upstreams.upstream(answer, asked) as url:
            assert "the feed is closed" in closed_while_loading(url, asked)
            eventually(lambda: not request_threads())

    def test_closing_abandons_a_connection(self):
        connecting = Event()
        raised: list[str] = []
        with upstreams.unconnectable() as url, open_feed(url) as feed:

            def start() -> None:
                feed.start(LiveIndex(), lambda *_: connecting.set())

            loading = in_thread(lambda: raised.append(raised_in_thread(start)))
            assert connecting.wait(DEADLINE_SECONDS)
            feed.close()
            loading.join(DEADLINE_SECONDS)
        assert "FeedError" in raised[0]

    def test_closing_abandons_a_look_up_and_nothing_is_sent_after_it(self, look_up: tuple[Event, Event]):
        asked, found = look_up
        received: list[bytes] = []
        with upstreams.upstream(lambda _, request, __: received.append(request)) as url:
            port = url.rpartition(":")[2]
            assert "the feed is closed" in closed_while_loading(f"http://service.example:{port}", asked)
            found.set()
            eventually(lambda: received)
            assert received == [b""]

    def test_an_ended_request_is_not_sent_again(self):
        asked, connections = Event(), []

        def stalls(connection: socket.socket, request: bytes, done: Event) -> None:
            connections.append(connection)
            connection.sendall(upstreams.answered(upstreams.LIST))
            connection.recv(4096)
            asked.set()
            done.wait()

        with upstreams.upstream(stalls) as url:
            assert "closed" in closed_while_loading(url, asked)
            eventually(lambda: not request_threads())
            assert len(connections) == 1

    def test_an_exception_of_progress_ends_the_loading_and_its_thread(self):
        class EndedError(Exception):
            pass

        def end(_: int, __: int) -> None:
            if asked.is_set():
                raise EndedError

        asked = Event()
        with upstreams.upstream(upstreams.continues, asked) as url:
            with pytest.raises(EndedError):
                open_feed(url).start(LiveIndex(), end)
            eventually(lambda: not request_threads())

    def test_a_round_that_is_interrupted_is_not_published(self, upstream: LiveIndex):
        stop = Event()
        with served(create_app(upstream)) as one:
            updates = open_http_source(f"http://127.0.0.1:{one.port}").updates(stop, lambda *_: stop.set())
            assert list(updates) == []

    def test_a_feed_that_was_not_started_can_be_closed(self):
        feed = open_feed("http://127.0.0.1:1")
        feed.close()
        with pytest.raises(RuntimeError, match="started once"):
            feed.read()


class TestConnections:
    @pytest.mark.parametrize("framed", [upstreams.answered, compressed, compressed_in_chunks])
    def test_a_connection_is_used_for_many_requests(self, framed: Callable[[bytes], bytes], live: LiveIndex):
        connections: list[socket.socket] = []

        def answers(connection: socket.socket, request: bytes, _: Event) -> None:
            connections.append(connection)
            while request:
                connection.sendall(framed(upstreams.LIST if b"pair-list" in request else upstreams.BOOK))
                request = connection.recv(4096)

        with upstreams.upstream(answers) as url, polled(url) as feed:
            feed.start(live)
            eventually(lambda: feed.books > 3)
            assert len(connections) == 1

    def test_several_requests_are_in_flight(self):
        all_asked = Barrier(MAX_IN_FLIGHT)
        listed = MarketIndex(map(book, range(2 * MAX_IN_FLIGHT)))

        def waits(connection: socket.socket, request: bytes, _: Event) -> None:
            while request:
                if b"pair-list" in request:
                    body = wire.pair_list_to_json(listed.pair_list())
                else:
                    all_asked.wait(DEADLINE_SECONDS)
                    base = unquote(re.search(rb"base=(.*)&", request)[1].decode())  # type: ignore[index]  # it matches
                    body = wire.order_book_to_json(OrderBook(Pair(AssetId.parse(base), ADA)))
                connection.sendall(upstreams.answered(body))
                request = connection.recv(4096)

        with upstreams.upstream(waits) as url:
            assert open_feed(url).read() == listed

    def test_the_rest_of_a_response_that_is_too_large_is_not_read_as_the_next_one(self, live: LiveIndex):
        after: list[bytes] = []

        def sends_two(connection: socket.socket, request: bytes, _: Event) -> None:
            while b"pair-list" in request:
                connection.sendall(upstreams.answered(upstreams.LIST))
                request = connection.recv(4096)
            connection.sendall(upstreams.answered(b" " * 200))
            after.append(connection.recv(4096))

        with upstreams.upstream(sends_two) as url, polled(url, book_bytes=100) as feed:
            feed.start(live)
            eventually(lambda: len(after) > 2)
        assert set(after) == {b""}

    def test_a_used_connection_that_fails_is_replaced(self, live: LiveIndex):
        def fails(connection: socket.socket, request: bytes, _: Event) -> None:
            connection.sendall(upstreams.answered(upstreams.LIST if b"pair-list" in request else upstreams.BOOK))
            connection.recv(4096)
            connection.sendall(b"not HTTP\r\n")

        with upstreams.upstream(fails) as url, polled(url) as feed:
            feed.start(live)
            eventually(lambda: feed.books > 2)
            assert feed.problem is None

    def test_a_connection_closed_by_the_service_is_replaced(self, live: LiveIndex):
        """The service sends each response on a connection of its own, and closes it without notice."""
        bodies = [upstreams.LIST, upstreams.BOOK] * 2
        answers = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies]
        with answering_in_bytes(*answers) as url, polled(url) as feed:
            feed.start(live)
            assert spots(live) == {1: "1"}
            eventually(lambda: feed.books == 2)

    def test_a_response_may_take_longer_than_a_connection(self):
        slices, late = count(1), Event()

        def progress(_: int, __: int) -> None:
            if next(slices) > 3:
                late.set()

        def answers_late(connection: socket.socket, request: bytes, done: Event) -> None:
            late.wait()
            upstreams.lists_one(connection, request, done)

        with upstreams.upstream(answers_late) as url:
            assert spots(polled(url, connect_seconds=0.05).read(progress)) == {1: "1"}

    def test_an_address_that_does_not_accept_is_abandoned(self):
        with upstreams.unconnectable() as url, pytest.raises(FeedError, match="cannot be read: timed out"):
            polled(url, connect_seconds=0.1).start(LiveIndex())

    def test_another_address_of_the_host_is_tried(self, monkeypatch: pytest.MonkeyPatch):
        with socket.create_server(("127.0.0.1", 0)) as free:
            refusing = free.getsockname()
        with upstreams.upstream(upstreams.lists_one) as url:
            good = ("127.0.0.1", int(url.rpartition(":")[2]))
            found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in (refusing, good)]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
            assert spots(open_feed("http://service.example").read()) == {1: "1"}


class TestTls:
    def test_the_end_of_an_exchange_does_not_end_its_encryption(self):
        """Otherwise a request that is being sent at that moment would be sent in plain text."""
        near, far = socket.socketpair()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        with far, context.wrap_socket(near, do_handshake_on_connect=False) as encrypted:
            exchange = client.Exchange(client.ServiceRequest("/", "", 1), 1)
            exchange._socket = encrypted
            exchange.end()
            with suppress(OSError):  # not ValueError, as if it was no longer encrypted
                encrypted.read(1)

    @pytest.fixture
    def secured(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wrapper:
        """Returns an answer over TLS, whose authority is trusted."""
        import trustme  # here: the other tests do not need it

        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)

        def secured(answer: upstreams.Answer) -> upstreams.Answer:
            def speaks_tls(connection: socket.socket, _: bytes, done: Event) -> None:
                with suppress(ssl.SSLError), context.wrap_socket(connection, server_side=True) as encrypted:
                    answer(encrypted, encrypted.recv(4096), done)

            return speaks_tls

        return secured

    def test_books_are_read(self, secured: Wrapper):
        with upstreams.upstream(secured(upstreams.lists_one), reads=False) as url:
            assert spots(open_feed(url.replace("http://127.0.0.1", "https://localhost")).read()) == {1: "1"}

    def test_the_certificate_is_verified(self, secured: Wrapper):
        with (
            upstreams.upstream(secured(upstreams.lists_one), reads=False) as url,
            pytest.raises(FeedError, match="certificate verify failed"),
        ):
            open_feed(url.replace("http", "https")).read()

    def test_closing_ends_a_response_and_its_thread(self, secured: Wrapper):
        asked = Event()

        def stalls(_: socket.socket, __: bytes, done: Event) -> None:
            asked.set()
            done.wait()

        with upstreams.upstream(secured(stalls), reads=False) as url:
            closed_while_loading(url.replace("http://127.0.0.1", "https://localhost"), asked)
            eventually(lambda: not request_threads())

    def test_the_deadline_covers_the_handshake(self):
        with upstreams.upstream(lambda *_: _[2].wait(), reads=False) as url, pytest.raises(FeedError, match=TOO_LATE):
            polled(url.replace("http", "https"), exchange_seconds=0.1).start(LiveIndex())

    def test_https_is_used_for_an_https_url(self, live: LiveIndex):
        with served(create_app(live)) as one, pytest.raises(FeedError, match=r"SSL"):
            open_feed(f"https://127.0.0.1:{one.port}").start(live)


class TestErrors:
    def test_a_truncated_response_is_reported_as_truncated(self, live: LiveIndex):
        cut_off = b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"pairs":[]}'
        with (
            answering_in_bytes(cut_off) as url,
            pytest.raises(FeedError, match=f"response to {LIST} was cut off 5 bytes before its end"),
        ):
            open_feed(url).start(live)

    def test_an_unreachable_service_is_one_clear_error(self, live: LiveIndex):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with pytest.raises(FeedError, match="cannot be read: Connection refused"):
            open_feed(f"http://127.0.0.1:{port}").start(live)
        with pytest.raises(FeedError, match="cannot be read: Connection refused"):
            open_feed(f"http://127.0.0.1:{port}").read_order_book(pair(1))

    def test_the_text_of_a_peer_is_escaped(self):
        with (
            upstreams.upstream(upstreams.speaks_to_terminals) as url,
            pytest.raises(FeedError, match="response is not valid HTTP: ") as raised,
        ):
            open_feed(url).start(LiveIndex())
        assert str(raised.value).isprintable()

    def test_a_defect_is_raised(self, upstream: LiveIndex, monkeypatch: pytest.MonkeyPatch):
        def fail(_: object) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(client, "freshness_in", fail)
        with served(create_app(upstream)) as one, pytest.raises(RuntimeError, match="a defect"):
            open_feed(f"http://127.0.0.1:{one.port}").read()

    def test_an_invalid_entity_tag_is_not_sent(self, live: LiveIndex):
        asked: list[bytes] = []

        def tags(connection: socket.socket, request: bytes, _: Event) -> None:
            while request:
                asked.append(request)
                body = upstreams.LIST if b"pair-list" in request else upstreams.BOOK
                connection.sendall(upstreams.answered(body, more=b'ETag: "a\r\n b\x1b"\r\n'))
                request = connection.recv(4096)

        with upstreams.upstream(tags) as url, polled(url) as feed:
            feed.start(live)
            eventually(lambda: feed.books > 2)
            assert spots(live) == {1: "1"}
        assert b"If-None-Match" not in b"".join(asked)


class TestBaseUrl:
    @pytest.mark.parametrize(
        "source",
        [
            "http://",
            "http:///path",
            "http://user:secret@host",
            "http://user:secret#word@host",
            "http://user:secret?word@host",
            "http://user:secret/word@host",
            "http://host?x=1",
            "http://host#x",
            "http://host:x",
            "http://host:0",
            "http://[::1",
            "http://exa mple:80",
        ],
    )
    def test_an_invalid_base_url_is_an_error(self, source: str):
        with pytest.raises(FeedError, match="cannot be opened: it must be the base URL of a service") as raised:
            open_feed(source)
        assert "secret" not in str(raised.value)

    @pytest.mark.parametrize("source", ["http://a..b:80/", "http://127.0.0.1:9/pä", f"http://{'x' * 70}:80"])
    def test_an_unusable_host_is_one_clear_error(self, source: str):
        with pytest.raises(FeedError, match="cannot be read"):
            open_feed(source).read()

    def test_the_scheme_may_be_in_upper_case(self):
        assert repr(open_feed("HTTP://127.0.0.1:1\n").source) == repr("'HTTP://127.0.0.1:1\\n'")

    @pytest.mark.parametrize(
        ("url", "port"), [("http://[::1]", 80), ("https://[::1]/", 443), ("HTTPS://[::1]:80/a/", 80)]
    )
    def test_the_default_port_is_that_of_the_scheme(self, url: str, port: int):
        parsed = BaseUrl.parse(url)
        assert (parsed.host, parsed.port) == ("::1", port)
