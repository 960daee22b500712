"""A thin adapter that serves a `LiveIndex` as an ASGI app: `create_app`, with optional routes for operators."""

try:
    from market_index_http.app import MarketIndexApp, create_app
    from market_index_http.counters import Counters
    from market_index_http.operations.health import FeedStatus, Health
    from market_index_http.operations.openapi import openapi_document
    from market_index_http.routes import ExactRoute, file_route
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(
        f"market_index_http needs {_missing.name}, which comes with its extra: pip install '.[http]'",
        name=_missing.name,
    ) from None

__all__ = [
    "Counters",
    "ExactRoute",
    "FeedStatus",
    "Health",
    "MarketIndexApp",
    "create_app",
    "file_route",
    "openapi_document",
]
