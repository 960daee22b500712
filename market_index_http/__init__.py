"""A thin adapter that serves a `LiveIndex` as an ASGI app: `create_app`, with optional routes for operators."""

try:
    from market_index_http.app import create_app
    from market_index_http.health import Health
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(
        f"market_index_http needs {_missing.name}, which comes with its extra: pip install '.[http]'",
        name=_missing.name,
    ) from None

__all__ = ["Health", "create_app"]
