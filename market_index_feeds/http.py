"""The HTTP client of sources: requests below one base URL, each bounded in time and size.

It follows no redirect, so the headers of a request, which may be credentials, reach no other host. It has no cookies,
ignores the proxies of the environment, and asks for uncompressed bodies. A body that is cut is an error, never a
shorter body. A response of any status is returned: the source decides what the status means.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from importlib.metadata import version
from typing import Final, final

import httpx
from attrs import field, frozen

from market_index_feeds.errors import FeedError, InvalidResponse, NothingReceived, reason_of
from market_index_feeds.names import shown_name

CONNECT_SECONDS: Final = 5.0
"""Timeout of a connection, with its TLS handshake."""

EXCHANGE_SECONDS: Final = 20.0
"""Timeout of a whole request to a service and its response."""

MAX_RECEIVED_BYTES: Final = 1024 * 1024
"""About how many bytes of a stream are received until its caller asks for them."""

_is_token: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z").match
"""RFC 9110, section 5.6.2."""

_is_value: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?\Z").match

_OWN_HEADERS: Final = {"Accept-Encoding": "identity"}


@final
class Address:
    """Where a service is: its base URL, such as `http://127.0.0.1:8000`, and the headers of all requests to it.

    A user and a password in the URL are sent as basic authentication (RFC 7617). `name` is the URL without them, after
    the prefix of its kind. No error, log or `repr` contains them or the headers.

    Args:
        url: The base URL. In a user and a password, write `/ ? # @ :` percent-encoded.
        headers: Headers such as `X-API-Key`, by name.
        prefix: How names of its kind begin, before the URL.

    Raises:
        FeedError: `url` is not such a URL, or a header is not one.
    """

    def __init__(self, url: str, headers: Mapping[str, str], prefix: str = "") -> None:
        self.name: str = prefix + shown_name(url)
        self.headers: httpx.Headers = httpx.Headers({"User-Agent": f"market-index/{version('market-index')}"})
        parsed = self._parsed(url)
        self.base_url: str = str(parsed.copy_with(userinfo=b"")).rstrip("/")
        for name, value in headers.items():
            if type(name) is not str or not _is_token(name):
                raise self._wrong("the name of a header must be a token, such as X-API-Key")
            if type(value) is not str or not _is_value(value):
                raise self._wrong(f"the value of the header {name} must be printable ASCII, without spaces at its ends")
            self.headers[name] = value
        if parsed.userinfo:
            if "Authorization" in self.headers:
                raise self._wrong("it must have a password or a header Authorization, got both")
            credentials = f"{parsed.username}:{parsed.password}".encode()
            self.headers["Authorization"] = f"Basic {b64encode(credentials).decode()}"

    def __repr__(self) -> str:
        return f"<Address {self.name}>"

    def _parsed(self, url: str) -> httpx.URL:
        with suppress(httpx.InvalidURL, ValueError):
            parsed = httpx.URL(url)
            is_base = parsed.scheme in {"http", "https"} and parsed.host and parsed.port != 0
            if is_base and not (parsed.query or parsed.fragment or url.endswith(("?", "#"))):
                return parsed
        raise self._wrong(
            "its URL must have http:// or https://, a host, a valid port, and no query or fragment "
            "(in a password, / ? # must be percent-encoded)"
        )

    def _wrong(self, reason: str) -> FeedError:
        return FeedError(f"{self.name} cannot be opened: {reason}")


@frozen
class Response:
    """A whole response. The names of its headers are case-insensitive."""

    status: int
    headers: httpx.Headers = field(repr=False)
    body: bytes = field(repr=False)


@final
class Client:
    """Sends requests to an address, in one event loop. Connections stay open for later requests until `aclose`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        # Not `AsyncClient`: that takes twice as long, and has cookies, redirects and the proxies of the environment.
        self._transport = httpx.AsyncHTTPTransport(
            verify=ssl.create_default_context() if address.base_url.startswith("https") else False
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def get(
        self,
        target: str,
        headers: Mapping[str, str],
        *,
        seconds: float,
        max_bytes: int,
        method: str = "GET",
        content: bytes = b"",
    ) -> Response:
        """Return the whole response to a request, whatever its status is.

        Args:
            target: The path and the query after the base URL.
            headers: The headers of this request, besides those of the address.
            seconds: The timeout of the whole exchange, from the look-up of the host to the end of the body.
            max_bytes: The maximum size of the body.
            method: The method, such as HEAD.
            content: The body of the request, such as the arguments of a POST.

        Raises:
            FeedError: There is no whole response within `seconds`.
            InvalidResponse: The body has more than `max_bytes`.
        """
        body = bytearray()
        async with _failures(target, seconds):
            response = await self._send(target, headers, method, content)
            # Read to the end, even if it is too large: leaving the loop would leave generators of httpx open.
            async for piece in response.aiter_raw():
                if len(body) <= max_bytes:
                    body += piece
        if len(body) > max_bytes:
            raise InvalidResponse(f"response to {target} must have at most {max_bytes} bytes, got more")
        return Response(response.status_code, response.headers, bytes(body))

    @asynccontextmanager
    async def stream(self, target: str, headers: Mapping[str, str], *, seconds: float) -> AsyncIterator[Stream]:
        """Send a request whose response does not end. It is received in a task until the end of the block.

        Raises:
            FeedError: There is no response within `seconds`.
        """
        async with _failures(target, seconds):
            response = await self._send(target, headers)
        async with aclosing(response):
            stream = Stream(response)
            receiving = asyncio.create_task(stream.receive(response))
            try:
                yield stream
            finally:
                receiving.cancel()
                await asyncio.wait({receiving})

    async def _send(
        self, target: str, headers: Mapping[str, str], method: str = "GET", content: bytes = b""
    ) -> httpx.Response:
        """Send a request, and return the response, whose body is to be read."""
        merged = self._address.headers.copy()
        merged.update({**headers, **_OWN_HEADERS})
        connect = {"timeout": {"connect": CONNECT_SECONDS}}
        url = f"{self._address.base_url}{target}"
        return await self._transport.handle_async_request(
            httpx.Request(method, url, headers=merged, content=content, extensions=connect)
        )


@final
class Stream:
    """A response that is received while its caller waits for it, and some of it before."""

    def __init__(self, response: httpx.Response) -> None:
        self.status: int = response.status_code
        self.headers: httpx.Headers = response.headers
        self._received, self._has_received, self._was_read = bytearray(), asyncio.Event(), asyncio.Event()
        self._end: Exception | None = None

    async def receive(self, response: httpx.Response) -> None:
        """Receive what arrives, until the stream ends, or the task is cancelled.

        Leaving the loop before would leave generators of httpx open.
        """
        end: Exception = FeedError("the stream has ended")
        try:
            async for piece in response.aiter_raw():
                self._received += piece
                self._has_received.set()
                if len(self._received) > MAX_RECEIVED_BYTES:
                    self._was_read.clear()
                    await self._was_read.wait()
        except httpx.HTTPError as error:
            end = FeedError(reason_of(error))
        except Exception as error:  # noqa: BLE001  # raised by `read`: otherwise it looks like a silent stream
            end = error
        self._end = end
        self._has_received.set()

    async def read(self, seconds: float) -> bytes:
        """Return all that has arrived since the last call; wait for it up to `seconds`, then return nothing.

        Raises:
            FeedError: The stream has ended, and all of it was returned.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._has_received.wait()
        received, self._received = bytes(self._received), bytearray()
        self._was_read.set()
        if self._end is None:
            self._has_received.clear()
        elif not received:
            raise self._end
        return received


@asynccontextmanager
async def _failures(target: str, seconds: float) -> AsyncIterator[None]:
    """Turn the failures of an exchange, or one that takes longer, into a `FeedError`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise NothingReceived(f"no response to {target} within {seconds:g} seconds") from None
    except (httpx.HTTPError, OSError) as error:
        raise FeedError(reason_of(error)) from None
