"""A thin adapter that serves a `LiveIndex` as an ASGI app: `create_app`, and optional routes for its router."""

try:
    from market_index_http.app import MarketIndexApp, create_app
    from market_index_http.operations.health import FeedStatus, health_route
    from market_index_http.operations.openapi import openapi_document, openapi_route
    from market_index_http.routes import ExactRoute, file_route
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(
        f"market_index_http needs {_missing.name}, which comes with its extra: pip install 'market-index[http]'",
        name=_missing.name,
    ) from None

__all__ = [
    "ExactRoute",
    "FeedStatus",
    "MarketIndexApp",
    "create_app",
    "file_route",
    "health_route",
    "openapi_document",
    "openapi_route",
]
