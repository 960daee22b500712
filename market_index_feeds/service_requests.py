"""Sends the requests of `market_index.contract` to a service, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Final

from market_index.contract import LimitReached, NoResponse, Report, Request, Response, check
from market_index_feeds.errors import FeedError
from market_index_feeds.http import EXCHANGE_SECONDS, Address, Client

MAX_BODY_BYTES: Final = 128 * 1024 * 1024
"""The maximum size of a body: a pair list of 400,000 pairs."""

PAUSE_SECONDS: Final = 0.5
"""How long a check waits before it asks for a difference again: a pair list may lag behind its books."""


def check_service(address: Address, *, seconds: float) -> Report:
    """Check a service against all rules of the contract. After so many seconds, the report says that it is not whole.

    Raises:
        FeedError: It cannot be read.
    """
    with sender(address, seconds=seconds) as send:
        return check(send, pause=lambda: sleep(PAUSE_SECONDS))


@contextmanager
def sender(address: Address, *, seconds: float) -> Iterator[Callable[[Request], Response]]:
    """Yield a function that sends a request. After so many seconds it raises `LimitReached` instead.

    Raises:
        FeedError: The block ended with `LimitReached` or `NoResponse`.
    """
    end = monotonic() + seconds
    with asyncio.Runner() as runner:
        client = Client(address)

        def send(request: Request) -> Response:
            if monotonic() > end:
                raise LimitReached(f"the limit of {seconds:g} seconds was reached")
            exchange = client.get(
                request.target,
                request.headers,
                seconds=EXCHANGE_SECONDS,
                max_bytes=MAX_BODY_BYTES,
                method=request.method,
            )
            try:
                response = runner.run(exchange)
            except FeedError as error:
                raise NoResponse(str(error)) from None
            return Response(response.status, dict(response.headers), response.body)

        try:
            yield send
        except (LimitReached, NoResponse) as error:
            raise FeedError(f"{address.name}: {error}") from None
        finally:
            runner.run(client.aclose())
