"""Sends one request to an app without a server, and returns its response."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from attrs import evolve, frozen

import market_index_http


@frozen
class Response:
    """A response: status, headers, and the whole body."""

    status: int
    headers: dict[str, str]
    body: bytes


def request(app: Any, target: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Response:
    """Return the response of the app. The exception of a 500, which a server would log, is ignored."""
    return response_of_call(app, scope_of(target, method, headers))


def response_of_call(app: Any, scope: Any) -> Response:
    """Return the response of the app to a scope."""
    messages: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        messages.append(message)

    try:
        asyncio.run(app(scope, receive, send))
    except Exception:
        if not messages or messages[0]["status"] != 500:
            raise
    found = response_of(messages)
    # A server sends no body in response to HEAD.
    return evolve(found, body=b"") if scope["method"] == "HEAD" else found


def request_cached(
    app: Any, target: str, method: str = "GET", headers: Mapping[str, str] | None = None
) -> Response | None:
    """Return the response that is known without a call of the app; None if there is none."""
    response = market_index_http.find_response(app, scope_of(target, method, headers))
    if response is None:
        return None
    fields = {name.decode(): value.decode() for name, value in response.raw_headers}
    return Response(response.status_code, fields, bytes(response.body) if method != "HEAD" else b"")


def scope_of(target: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the scope of a request."""
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
    }


def response_of(messages: Iterable[Any]) -> Response:
    """Return the response of ASGI messages."""
    start, *bodies = messages
    assert start["type"] == "http.response.start"
    assert {message["type"] for message in bodies} == {"http.response.body"}
    fields = {name.decode(): value.decode() for name, value in start["headers"]}
    return Response(start["status"], fields, b"".join(message.get("body", b"") for message in bodies))
