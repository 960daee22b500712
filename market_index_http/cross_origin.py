"""Lets pages of other origins read the API: CORS, for the server that runs by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from market_index import wire
from market_index.errors import safe_repr

ANY_ORIGIN: Final = "*"

_HOST_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.:")
_USUAL_PORTS: Final = {"http": 80, "https": 443}


def read_origin(text: str) -> str:
    """Read an origin: a scheme, a host and perhaps a port, as a browser sends it, or `*` for any.

    >>> read_origin("https://example.com"), read_origin("http://127.0.0.1:3000")
    ('https://example.com', 'http://127.0.0.1:3000')
    >>> read_origin("https://example.com/")
    Traceback (most recent call last):
    ValueError: 'https://example.com/' is not an origin: say https://example.com

    Raises `ValueError`, since of any other text no browser would ever be let in.
    """
    if text == ANY_ORIGIN:
        return text
    try:
        parts = urlsplit(text)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
    if host is None or scheme not in _USUAL_PORTS or not _is_host(host):
        raise ValueError(f"{safe_repr(text)} is not an origin, such as https://example.com")
    named = f"[{host}]" if ":" in host else host
    origin = f"{scheme}://{named}{'' if port in {None, _USUAL_PORTS[scheme]} else f':{port}'}"
    if text != origin:
        raise ValueError(f"{safe_repr(text)} is not an origin: say {origin}")
    return origin


def _is_host(text: str) -> bool:
    """Whether a browser sends it: names in ASCII, those of other scripts as `xn--`, and addresses."""
    return "." * len(text) != text and set(text) <= _HOST_CHARACTERS and "" not in text.split(".")


class CrossOrigin(CORSMiddleware):
    """Starlette's own, for what a reader needs: GET, HEAD, `If-None-Match`, and the ETag shown; refusals as JSON."""

    def __init__(self, app: ASGIApp, origins: Iterable[str]) -> None:
        super().__init__(
            app,
            allow_origins=tuple(origins),
            allow_methods=("GET", "HEAD"),
            allow_headers=("If-None-Match",),
            expose_headers=("ETag",),
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer what a browser asks before a request that is not of the simplest kind."""
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return Response(status_code=204, headers=_without_body(response))
        body = wire.error_to_json(bytes(response.body).decode())
        return Response(body, response.status_code, _without_body(response), media_type="application/json")


def _without_body(response: Response) -> dict[str, str]:
    """Return the headers, but for those that tell of the body."""
    return {name: value for name, value in response.headers.items() if not name.startswith("content-")}
