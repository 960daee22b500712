"""The HTTP client of sources: whole responses of any status, or an error. What services need is in `test_service`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import aclosing
from threading import Event

import pytest

from market_index import LiveIndex
from market_index_feeds.errors import FeedError, InvalidResponse, NothingReceived
from market_index_feeds.http import Address, Client, Response
from tests.feeds.services import Front, sending, served
from tests.waiting import DEADLINE_SECONDS


def get(url: str, headers: Mapping[str, str] = {}, *, seconds: float = DEADLINE_SECONDS) -> Response:
    """Return the response to one request below a base URL."""

    async def requested() -> Response:
        async with aclosing(Client(Address(url, {"X-Both": "address", "X-Address": "1"}))) as client:
            return await client.get("/matches?unspent", headers, seconds=seconds, max_bytes=100)

    return asyncio.run(requested())


def sent(text: bytes) -> Response:
    """Return what the client makes of a response."""
    with sending(lambda connection: connection.sendall(text)) as url:
        return get(url)


@pytest.mark.parametrize("status", [200, 202, 304, 400, 404, 503])
def test_a_response_of_any_status_is_returned_with_its_headers(status: int):
    front = Front(LiveIndex())
    front.everything = status, {"X-Most-Recent-Checkpoint": "7"}, b"" if status == 304 else b"[]"
    with served(front) as url:
        response = get(url, {"Accept": "application/json", "x-both": "request"})
    assert (response.status, response.headers["x-most-recent-checkpoint"]) == (status, "7")
    assert response.body == (b"" if status == 304 else b"[]")
    ((_, headers),) = front.requests
    assert (headers["accept"], headers["x-both"], headers["x-address"]) == ("application/json", "request", "1")
    assert headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("size", [99, 100, 101])
def test_a_body_has_at_most_the_size_that_the_source_allows(size: int):
    text = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (size, b"x" * size)
    if size <= 100:
        assert sent(text).body == b"x" * size
    else:
        with pytest.raises(
            InvalidResponse, match=r"response to /matches\?unspent must have at most 100 bytes, got more"
        ):
            sent(text)


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n[]",
        b"HTTP/1.1 200",
        b"",
    ],
)
def test_a_response_that_is_cut_is_an_error(text: bytes):
    with pytest.raises(FeedError) as raised:
        sent(text)
    assert type(raised.value) is FeedError


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n["])
def test_the_timeout_is_that_of_the_whole_exchange(start: bytes):
    released = Event()

    def stall(connection: socket.socket) -> None:
        connection.sendall(start)
        released.wait(DEADLINE_SECONDS)

    with sending(stall) as url:
        with pytest.raises(NothingReceived, match=r"no response to /matches\?unspent within 0.05 s"):
            get(url, seconds=0.05)
        released.set()
