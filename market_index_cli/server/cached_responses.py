"""Responses that are sent without a task and ASGI messages, which takes a third less time.

uvicorn has no interface for this, so private names of it are used. A server checks at its start that they exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from time import monotonic
from typing import Any, Final, TypeAlias, final

from starlette.responses import Response
from starlette.types import Scope
from uvicorn.protocols.http import httptools_impl

from market_index_cli.server.limits import Clients, Limits, encoded_head

Respond: TypeAlias = Callable[[Scope], Response | None]
"""Returns the response to a request; None: the app must be called."""

BAD_REQUEST: Final = 400
"""The comparison with `HTTPStatus.BAD_REQUEST` takes a twentieth of the time of a response."""

_USED: Final[Mapping[str, set[str]]] = {
    "HttpToolsProtocol.__init__": {"flow", "server_state"},
    "HttpToolsProtocol.on_headers_complete": {"_start_asgi_task", "on_response_complete"},
    "RequestResponseCycle.__init__": {"scope", "keep_alive", "response_complete"},
    "FlowControl.__init__": {"write_paused"},
    "ServerState.__init__": {"default_headers"},
}
"""The functions of uvicorn that must exist, with the names that each must use."""


def missing_names() -> list[str]:
    """Return the names that uvicorn lacks, without which `CachedResponses` cannot work."""
    missing = []
    for function, names in _USED.items():
        try:
            found = attrgetter(function)(httptools_impl).__code__.co_names
        except AttributeError:
            missing.append(function)
        else:
            missing += sorted(names.difference(found))
    return missing


@final
class CachedResponses(Limits):
    """uvicorn's protocol with limits, and with responses that it sends itself."""

    __slots__ = ("_respond",)

    def __init__(self, *args: Any, clients: Clients, respond: Respond, **options: Any) -> None:
        super().__init__(*args, clients=clients, **options)
        self._respond = respond

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        # After the event loop has read the requests of other connections: a write between two reads takes longer. This
        # also limits the recursion for pipelined requests.
        self.loop.call_soon(self._send, cycle, app)

    def _send(self, cycle: Any, app: Any) -> None:
        """Send the response, or start the task of the app."""
        if self.channel.is_closing():
            return
        response = None
        # uvicorn waits until the client reads, and closes the connection.
        if cycle.keep_alive and not self.flow.write_paused and not self.may_have_large_head:
            try:
                response = self._respond(cycle.scope)
            except Exception:  # noqa: BLE001  # the app raises it too; Starlette responds to it and logs it
                response = None
        # uvicorn closes the connection after the 400 of an excessive target.
        if response is None or response.status_code == BAD_REQUEST:
            super()._start_asgi_task(cycle, app)
            return
        content = response.body if cycle.scope["method"] != "HEAD" else b""
        counts = self._clients.responses[cycle.scope["path"]]
        counts.add(response.status_code, monotonic() - self.received, len(content))
        fields = (*self.server_state.default_headers, *response.raw_headers)
        self.channel.write(encoded_head(response.status_code, fields) + content)
        cycle.response_complete = True
        self.end_response()
        self.on_response_complete()
