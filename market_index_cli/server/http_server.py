"""uvicorn with limits on what clients may hold, and with cached responses. Only this package imports uvicorn."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import Any, Final, cast

import uvicorn
from starlette.types import ASGIApp

from market_index_cli.errors import EXIT_USAGE, Failed
from market_index_cli.logs import LOG, log_request
from market_index_cli.server.cached_responses import CachedResponses, Respond, missing_names
from market_index_cli.server.limits import FIELDS, Clients, Limits, WithLimits
from market_index_http.operating.counting import Responses

GRACE_SECONDS: Final = 10
"""How long a shutdown waits for responses."""

_RESERVED_DESCRIPTORS: Final = 64
"""File descriptors reserved for feeds, stores, logs and the event loop."""

MIN_OPEN_FILES: Final = 2 * _RESERVED_DESCRIPTORS


def connections_allowed() -> int:
    """Return how many connections the limit of open files (`ulimit -n`) allows.

    Raises `Failed` if it is below `MIN_OPEN_FILES`.
    """
    open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if open_files < MIN_OPEN_FILES:
        raise Failed(
            EXIT_USAGE, f"the limit of open files (ulimit -n) must be at least {MIN_OPEN_FILES}, got {open_files}"
        )
    return open_files - _RESERVED_DESCRIPTORS


class Server(uvicorn.Server):
    """Serves one app. In another thread than the main one, it installs no signal handlers: see `running`.

    Args:
        app: The app.
        respond: Returns a response that is sent without a call of the app, or None. Not used with `access_log`.
        access_log: Whether each response is logged.
        proxies: The addresses whose `X-Forwarded-For` is trusted; `*` is any address.
        responses: Where all responses are counted.
        on_second: Called about once per second, in a thread.
        on_shutdown: Called before the shutdown waits for responses.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        respond: Respond | None = None,
        access_log: bool = False,
        proxies: Sequence[str] = (),
        responses: Responses | None = None,
        on_second: Callable[[], object] = lambda: None,
        on_shutdown: Callable[[], object] = lambda: None,
    ) -> None:
        self.clients: Final = Clients(connections_allowed(), responses or Responses())
        self._on_second = on_second
        self._has_failed = False
        self._on_shutdown = on_shutdown
        missing = missing_names()
        if missing:
            LOG.warning("uvicorn %s has no %s: responses are sent more slowly", uvicorn.__version__, ", ".join(missing))
        if respond is None or access_log or missing:
            protocol: Any = partial(Limits, clients=self.clients)
        else:
            protocol = partial(CachedResponses, clients=self.clients, respond=respond)
        self.has_cached_responses: Final = protocol.func is CachedResponses
        super().__init__(
            uvicorn.Config(
                WithLimits(app, self.clients, *[log_request] if access_log else []),
                # uvicorn calls it like a class.
                http=cast("type[asyncio.Protocol]", protocol),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                # By default uvicorn trusts all programs of this machine.
                proxy_headers=bool(proxies),
                forwarded_allow_ips="*" if "*" in proxies else list(proxies),
                server_header=False,
                headers=[*FIELDS],
                timeout_notify=1,
                callback_notify=self.each_second,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )

    def numbers(self) -> dict[str, float]:
        """Return the numbers of this server for `Metrics.watch`."""
        return {
            "open_connections": len(self.clients.connections),
            "max_connections": self.clients.max_connections,
            "closed_connections": self.clients.closed,
            "cached_responses": self.has_cached_responses,
        }

    async def each_second(self) -> None:
        """Close overdue connections, and call `on_second`. Its first failure is logged; the server continues."""
        self.clients.close_overdue()
        try:
            await asyncio.to_thread(self._on_second)
        except Exception:  # noqa: BLE001  # of any metric; it would end the server
            if not self._has_failed:
                LOG.exception("the metrics of this process cannot be updated")
            self._has_failed = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `on_shutdown`, then accept no connection, close those without a request, and wait for responses."""
        self._on_shutdown()
        await super().shutdown(sockets)


@contextmanager
def running(server: Server, listener: socket.socket) -> Iterator[None]:
    """Run a server in a thread within the context, and wait for its end.

    >>> from starlette.responses import Response
    >>> with socket.create_server(("127.0.0.1", 0)) as listener, running(Server(Response("")), listener):
    ...     pass
    """
    thread = Thread(target=server.run, args=([listener],), name="server")
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()
