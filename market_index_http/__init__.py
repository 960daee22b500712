"""A thin adapter: serves a `LiveIndex` as the two endpoints of the read API, an app of Starlette.

Two sub-packages have optional routes. They are loaded only if you import them:

- `market_index_http.stream`: server-sent events.
- `market_index_http.operating`: probes, metrics, and the description of the API.
"""

from market_index.errors import missing_extra

try:
    from market_index_http.app import create_app, find_response
except ModuleNotFoundError as _missing:
    raise missing_extra("market_index_http", "http", _missing) from None

__all__ = ["create_app", "find_response"]
