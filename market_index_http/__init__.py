"""What serves a `LiveIndex` over HTTP: `create_app`, and the command `market-index` in `market_index_http.cli`."""

try:
    from market_index_http.app import create_app
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"market_index_http needs {missing.name}, which comes with its extra: pip install 'market-index[http]'",
        name=missing.name,
    ) from None

__all__ = ["create_app"]
