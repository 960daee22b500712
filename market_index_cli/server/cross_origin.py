"""CORS: allows web pages of other origins to read the API."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from market_index.wire import AS_OF, PUBLISHED_AT, error_to_json
from market_index_cli.server.connection import Count


class CrossOrigin(CORSMiddleware):
    """Starlette's CORS middleware for a read API, with errors as JSON.

    It allows GET, HEAD, `If-None-Match` and `Prefer`, and exposes the ETag, `Preference-Applied` and the header fields
    of freshness. `count` is called with the path, which is not known, and the status of each response to
    a preflight request.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str], count: Count | None = None) -> None:
        self._count = count
        super().__init__(
            app,
            allow_origins=tuple(origins),
            allow_methods=("GET", "HEAD"),
            allow_headers=("If-None-Match", "Prefer"),
            expose_headers=("ETag", AS_OF, PUBLISHED_AT, "Preference-Applied"),
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Return the response to a preflight request: 204 without a body, or 400 with the error body."""
        response = super().preflight_response(request_headers)
        headers = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
        if response.status_code == 200:
            response = Response(status_code=204, headers=headers)
        else:
            body = error_to_json(bytes(response.body).decode())
            response = Response(body, response.status_code, headers, media_type="application/json")
        if self._count is not None:
            self._count("", response.status_code)
        return response
