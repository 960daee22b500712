"""Sends one request to an app without a server, and returns its response."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from attrs import frozen


@frozen
class Response:
    """A response: status, headers, and the whole body."""

    status: int
    headers: dict[str, str]
    body: bytes


def request(app: Any, target: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Response:
    """Return the response of the app. An exception after the response, which a server would log, is ignored."""
    path, _, query = target.partition("?")
    scope = {
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
    messages: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        messages.append(message)

    try:
        asyncio.run(app(scope, receive, send))
    except Exception:
        if not messages:
            raise
    start, *bodies = messages
    assert start["type"] == "http.response.start"
    assert {message["type"] for message in bodies} == {"http.response.body"}
    fields = {name.decode(): value.decode() for name, value in start["headers"]}
    return Response(start["status"], fields, b"".join(message.get("body", b"") for message in bodies))
