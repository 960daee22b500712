"""A thin adapter: serves a `LiveIndex` as the two endpoints of the read API, an app of Starlette.

Two sub-packages have optional routes. They are loaded only if you import them:

- `market_index_http.stream`: server-sent events.
- `market_index_http.operating`: probes, metrics, and the description of the API.
"""

try:
    from market_index_http.app import create_app
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(
        f"market_index_http needs {_missing.name}, which comes with its extra: pip install '.[http]'",
        name=_missing.name,
    ) from None

__all__ = ["create_app"]
