"""The routes of the web page: one for each static file, `/summary` and `/tokens`.

The page reads these, the order-book endpoint, the stream of changes and `/healthz`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from market_index import LiveIndex
from market_index.display import Tokens
from market_index_cli.page.overview import Overview
from market_index_http.responses import Body
from market_index_http.routes import exact_route

_CONTENT_TYPES: Final = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "ts": b"text/plain; charset=utf-8",
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

    >>> {"/", "/page.css", "/tokens"} < {route.path for route in page_routes(LiveIndex(), Tokens())}
    True
    """
    static = files("market_index_cli.page") / "static"
    return [*map(_file_route, static.iterdir()), *summary_routes(live, tokens)]


def summary_routes(live: LiveIndex, tokens: Tokens) -> list[Route]:
    """Return the routes `/summary` and `/tokens`, which the page, the JavaScript client and the terminal read."""
    overview = Overview(live, tokens)
    return [
        exact_route("/summary", _responder(overview.summary)),
        exact_route("/tokens", _responder(overview.tokens)),
    ]


def _file_route(file: Traversable) -> Route:
    _, suffix = file.name.rsplit(".", 1)
    body = Body.constant(file.read_bytes(), (*_HEADERS, (b"content-type", _CONTENT_TYPES[suffix])))

    async def respond(request: Request) -> Response:
        return body.response(request.scope)

    return exact_route("/" if file.name == "index.html" else f"/{file.name}", respond)


def _responder(body: Callable[[], Body]) -> Callable[[Request], Response]:
    # No coroutine: Starlette calls it in a thread.
    def respond(request: Request) -> Response:
        return body().response(request.scope, _HEADERS)

    return respond
