"""The limits of an exchange with peers that are slow, endless, unreachable, or not found."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from market_index import LiveIndex
from market_index_feeds import FeedError, open_feed
from market_index_feeds.http import channel, connections, source
from tests.faults import upstreams
from tests.market_index_feeds.made_up import spots
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread, raised_in_thread

LIST = "/trading-view/pair-list"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the timeout of an exchange to a tenth of a second."""
    monkeypatch.setattr(connections, "RESPONSE_SECONDS", 0.1)


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


@pytest.mark.usefixtures("short")
class TestDeadline:
    @pytest.mark.parametrize("answer", [upstreams.continues, upstreams.drips_head, upstreams.lists_and_stalls])
    def test_the_deadline_covers_the_whole_exchange(self, answer: upstreams.Answer):
        with (
            upstreams.upstream(answer) as url,
            pytest.raises(FeedError, match=r"no response to .* within 0\.1 seconds"),
        ):
            open_feed(url).start(LiveIndex())

    def test_the_deadline_covers_the_connection(self):
        with upstreams.unconnectable() as url, pytest.raises(FeedError, match=r"no response to .* within 0\.1 seconds"):
            open_feed(url).start(LiveIndex())

    def test_the_deadline_covers_the_look_up_of_the_host(self, monkeypatch: pytest.MonkeyPatch):
        found = Event()
        monkeypatch.setattr(channel, "getaddrinfo", lambda *_, **__: found.wait())
        with pytest.raises(FeedError, match=r"no response to .* within 0\.1 seconds"):
            open_feed("http://service.example").start(LiveIndex())
        found.set()


class TestBytes:
    def test_an_endless_head_is_cut_off(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(source, "MAX_LIST_BYTES", 100_000)
        with (
            upstreams.upstream(upstreams.floods) as url,
            pytest.raises(FeedError, match="must have at most 100000 bytes, got more"),
        ):
            open_feed(url).start(LiveIndex())

    @pytest.mark.thorough
    def test_a_million_pairs_are_too_many_bytes(self):
        with (
            upstreams.upstream(upstreams.lists_a_million) as url,
            pytest.raises(FeedError, match=f"response to {LIST} must have at most {source.MAX_LIST_BYTES} bytes"),
        ):
            open_feed(url).start(LiveIndex())

    def test_an_announced_length_takes_no_memory(self):
        def promises(connection: socket.socket, _: bytes, __: Event) -> None:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n{}" % 10**15)

        with upstreams.upstream(promises) as url, pytest.raises(FeedError, match="was cut off"):
            open_feed(url).start(LiveIndex())


class TestClosing:
    def test_closing_interrupts_a_response(self):
        asked = Event()
        with upstreams.upstream(upstreams.continues, asked) as url:
            assert "FeedError" in closed_while_loading(url, asked)

    def test_closing_interrupts_a_connection(self, monkeypatch: pytest.MonkeyPatch):
        connecting, connect = Event(), channel._connect

        def noting(*arguments: Any) -> None:
            connecting.set()
            connect(*arguments)

        monkeypatch.setattr(channel, "_connect", noting)
        with upstreams.unconnectable() as url:
            assert "FeedError" in closed_while_loading(url, connecting)

    def test_closing_abandons_the_look_up_of_a_host(self, monkeypatch: pytest.MonkeyPatch):
        asked, found = Event(), Event()

        def never(*_: Any, **__: Any) -> None:
            asked.set()
            found.wait()

        monkeypatch.setattr(channel, "getaddrinfo", never)
        assert "FeedError" in closed_while_loading("http://service.example", asked)
        found.set()

    def test_an_exception_of_progress_ends_the_loading(self):
        class EndedError(Exception):
            pass

        def end(_: int, __: int) -> None:
            if asked.is_set():
                raise EndedError

        asked = Event()
        with upstreams.upstream(upstreams.continues, asked) as url, pytest.raises(EndedError):
            open_feed(url).start(LiveIndex(), end)


class TestAddresses:
    def test_an_address_that_does_not_accept_is_abandoned(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(channel, "CONNECT_SECONDS", 0.1)
        with upstreams.unconnectable() as url, pytest.raises(FeedError, match=r"no connection within 0\.1 seconds"):
            open_feed(url).start(LiveIndex())

    def test_another_address_of_the_host_is_tried(self, monkeypatch: pytest.MonkeyPatch):
        with socket.create_server(("127.0.0.1", 0)) as free:
            refusing = free.getsockname()
        with upstreams.upstream(upstreams.lists_one) as url:
            good = ("127.0.0.1", int(url.rpartition(":")[2]))
            found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in (refusing, good)]
            monkeypatch.setattr(channel, "getaddrinfo", lambda *_, **__: found)
            assert spots(open_feed("http://service.example").read()) == {1: "1"}


class TestTls:
    @pytest.fixture
    def port(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
        """The port of a service with TLS, whose authority is trusted."""
        import trustme  # here: the other tests do not need it

        authority = trustme.CA()
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)

        def speaks_tls(connection: socket.socket, _: bytes, done: Event) -> None:
            with suppress(ssl.SSLError), context.wrap_socket(connection, server_side=True) as secured:
                upstreams.lists_one(secured, secured.recv(4096), done)

        with upstreams.upstream(speaks_tls, reads=False) as url:
            yield int(url.rpartition(":")[2])

    def test_books_are_read(self, port: int):
        assert spots(open_feed(f"https://localhost:{port}").read()) == {1: "1"}

    def test_the_certificate_is_verified(self, port: int):
        with pytest.raises(FeedError, match="certificate verify failed"):
            open_feed(f"https://127.0.0.1:{port}").read()


def test_the_text_of_a_peer_is_escaped(logged: pytest.LogCaptureFixture):
    with (
        upstreams.upstream(upstreams.speaks_to_terminals) as url,
        pytest.raises(FeedError, match="not valid HTTP") as raised,
    ):
        open_feed(url).start(LiveIndex())
    assert str(raised.value).isprintable()


def test_an_invalid_entity_tag_is_not_sent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(source, "POLL_SECONDS", 0.01)
    asked: list[bytes] = []

    def tags(connection: socket.socket, request: bytes, _: Event) -> None:
        while request:
            asked.append(request)
            body = upstreams.LIST if b"pair-list" in request else upstreams.BOOK
            connection.sendall(upstreams.answered(body, more=b'ETag: "a\r\n b\x1b"\r\n'))
            request = connection.recv(4096)

    with upstreams.upstream(tags) as url, open_feed(url) as feed:
        feed.start(live := LiveIndex())
        eventually(lambda: feed.books > 2)
        assert spots(live) == {1: "1"}
    assert b"If-None-Match" not in b"".join(asked)
