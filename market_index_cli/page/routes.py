"""The routes of the web page: one for each static file, and the labels of tokens.

The page reads the two endpoints of the API and `/healthz`.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Final

from market_index import Tokens
from market_index_http.routes import ExactRoute, file_route

_CONTENT_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".ts": b"text/plain; charset=utf-8",
    ".json": b"application/json",
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


def page_routes(labels: bytes = b"{}") -> list[ExactRoute]:
    """Return the route `/` and one for each file that the page loads. `labels` is what `labels_json` returns.

    The page uses only relative addresses, so it works below any path of a proxy.

    >>> [route.path for route in page_routes()][:3]
    ['/', '/book.js', '/chart.js']
    """
    contents = {file.name: file.read_bytes() for file in (files("market_index_cli.page") / "static").iterdir()}
    contents["tokens.json"] = labels
    paths = {"/" if name == "index.html" else f"/{name}": name for name in contents}
    return [file_route(path, contents[name], _headers(name)) for path, name in sorted(paths.items())]


def labels_json(tokens: Tokens) -> bytes:
    """Return the label, the decimals or null, and the ticker and the name of each entry, by the identifier."""
    labels = {
        str(token.asset): (tokens.label(token.asset), token.decimals, [*filter(None, (token.ticker, token.name))])
        for token in tokens.entries
    }
    return json.dumps(labels, separators=(",", ":")).encode()


def _headers(name: str) -> tuple[tuple[bytes, bytes], ...]:
    return (*_HEADERS, (b"content-type", _CONTENT_TYPES[name[name.rindex(".") :]]))
