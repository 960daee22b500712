"""Optional routes for operators: probes, metrics for Prometheus, and the description of the API.

`Metrics` requires the extra `metrics`, so its module is loaded when the name is first used.
"""

from typing import TYPE_CHECKING, Any

from market_index_http.operating.description import description, description_route
from market_index_http.operating.probes import FeedStatus, Health, probe_routes

if TYPE_CHECKING:
    from market_index_http.operating.metrics import Metrics

__all__ = ["FeedStatus", "Health", "Metrics", "description", "description_route", "probe_routes"]


def __getattr__(name: str) -> Any:
    if name != "Metrics":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from market_index_http.operating.metrics import Metrics  # noqa: PLC0415  # not every host has the extra

    return Metrics
