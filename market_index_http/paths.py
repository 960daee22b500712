"""The paths of all routes, relative to the path of the mount."""

from __future__ import annotations

from typing import Final

PAIR_LIST_PATH: Final = "/trading-view/pair-list"
ORDER_BOOK_PATH: Final = "/trading-view/order-book"
HEALTH_PATH: Final = "/healthz"
LIVE_PATH: Final = "/livez"
READY_PATH: Final = "/readyz"
METRICS_PATH: Final = "/metrics"
OPENAPI_PATH: Final = "/openapi.json"
