"""The page to look at a book: files of this package, beside the two endpoints, which are all that it asks."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from market_index_http.app import ExactRoute, file_route
from market_index_http.bodies import Fields

_CONTENT_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
}

# Nothing but what this server sends, and no script or style within the page: names of assets are anybody's to choose.
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_HEADERS: Final = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


def page_routes() -> list[ExactRoute]:
    """Return the routes of the page: `/`, and the files that it names, each beside it.

    All addresses in it are relative, so it works below any path that a proxy puts it under.

    >>> [route.path for route in page_routes()][:3]
    ['/', '/book.js', '/chart.js']
    """
    contents = {file.name: file.read_bytes() for file in (files("market_index_http") / "page").iterdir()}
    paths = {"/" if name == "index.html" else f"/{name}": name for name in contents}
    return [file_route(path, contents[name], _fields(name)) for path, name in sorted(paths.items())]


def _fields(name: str) -> Fields:
    return (*_HEADERS, (b"content-type", _CONTENT_TYPES[name[name.rindex(".") :]]))
