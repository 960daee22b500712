"""The routes of the web page: one for each static file, `/summary` and `/tokens`.

The page reads these, the order-book endpoint, the stream of changes and `/healthz`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from market_index import LiveIndex
from market_index.display import Tokens
from market_index_cli.page.overview import Overview
from market_index_http.responses import Body, Fields
from market_index_http.routes import exact_route

_CONTENT_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".ts": b"text/plain; charset=utf-8",
}

# Only files of this server, and no inline script or style: the name of an asset is untrusted input.
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_HEADERS: Final = (
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
)


def page_routes(live: LiveIndex, tokens: Tokens) -> list[Route]:
    """Return the route `/`, one for each file that the page loads, `/summary` and `/tokens`.

    The page uses only relative addresses, so it works below any path of a proxy.

    >>> [route.path for route in page_routes(LiveIndex(), Tokens())][:3]
    ['/', '/assets.js', '/book.js']
    """
    contents = {file.name: file.read_bytes() for file in (files("market_index_cli.page") / "static").iterdir()}
    paths = {"/" if name == "index.html" else f"/{name}": name for name in contents}
    return [
        *(_file_route(path, contents[name], _headers(name)) for path, name in sorted(paths.items())),
        *summary_routes(live, tokens),
    ]


def summary_routes(live: LiveIndex, tokens: Tokens) -> list[Route]:
    """Return the routes `/summary` and `/tokens`, which the page, the JavaScript client and the terminal read."""
    overview = Overview(live, tokens)
    return [
        exact_route("/summary", _responder(overview.summary)),
        exact_route("/tokens", _responder(overview.tokens)),
    ]


def _file_route(path: str, content: bytes, fields: Fields) -> Route:
    body = Body.constant(content, fields)

    async def respond(request: Request) -> Response:
        return body.response(request.scope)

    return exact_route(path, respond)


def _responder(body: Callable[[], Body]) -> Callable[[Request], Response]:
    # No coroutine: Starlette calls it in a thread.
    def respond(request: Request) -> Response:
        return body().response(request.scope, _HEADERS)

    return respond


def _headers(name: str) -> Fields:
    return (*_HEADERS, (b"content-type", _CONTENT_TYPES[name[name.rindex(".") :]]))
