"""The metrics of the apps of a process: one collector of prometheus-client for a registry, and the route `/metrics`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from math import isfinite
from time import time
from typing import TYPE_CHECKING, Final, final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from market_index import LiveIndex
from market_index.errors import missing_extra, safe_repr
from market_index_http.operating.counting import CountResponses
from market_index_http.operating.probes import Health
from market_index_http.routes import exact_route
from market_index_http.snapshots import require_live

if TYPE_CHECKING:
    from market_index_http.stream import Stream

try:
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as _missing:
    raise missing_extra("Metrics", "metrics", _missing) from None

# The names and labels are those of 0.0.4, which every Prometheus reads.
_FIELDS: Final = {"Cache-Control": "no-store", "Content-Type": "text/plain; version=0.0.4; charset=utf-8"}

GAUGES: Final[Mapping[str, str]] = {
    "pairs": "Pairs that are tracked.",
    "ready": "Whether /readyz answers 200: 1 or 0.",
    "feed_revision": "Revision of the store that is live.",
    "feed_healthy_timestamp_seconds": "Unix time when the feed was last healthy; 0: never.",
    "feed_published_timestamp_seconds": "Unix time of the last message of the publisher; 0: never.",
    "feed_changed_timestamp_seconds": "Unix time when a book or a pair last changed; 0: never.",
    "feed_rejected_records": "Records of the feed that were rejected.",
    "feed_current_rejections": "Pairs with an invalid record now.",
    "feed_retries": "How often the feed could not be read and was tried again.",
    "streams": "Open streams of changes.",
    "stream_failures": "How often an unexpected error has ended all streams.",
}
"""The numbers of an app, and their descriptions."""

_ONLY_INCREASED: Final = {"feed_rejected_records", "feed_retries", "stream_failures"}
"""The numbers that are counters."""


def numbers_of(live: LiveIndex, health: Health | None, streams: Stream | None) -> dict[str, float]:
    """Return the current value of each of `GAUGES` that is known. Any thread may call it."""
    numbers: dict[str, float | None] = {"pairs": len(live.current)}
    if streams is not None:
        numbers |= {"streams": len(streams), "stream_failures": streams.failures}
    if health is not None:
        numbers["ready"] = not health.failures()
        if (feed := health.feed) is not None:
            numbers |= {
                "feed_revision": feed.revision,
                "feed_healthy_timestamp_seconds": _time_before(feed.age),
                "feed_published_timestamp_seconds": _time_before(feed.quiet_age),
                "feed_changed_timestamp_seconds": _time_before(feed.change_age),
                "feed_rejected_records": feed.rejected,
                "feed_current_rejections": feed.current_rejections,
                "feed_retries": feed.retries,
            }
    return {name: value for name, value in numbers.items() if value is not None}


@final
class Metrics(Collector):
    """The metrics of the apps of this process. All names start with `market_index_`.

    A registry has one `Metrics`, for all apps: each has its own label `app`. A second one in the same registry is
    rejected by the registry, because its series could be the same.

    >>> from prometheus_client import CollectorRegistry
    >>> from market_index_http import create_app
    >>> metrics, live = Metrics(), LiveIndex()
    >>> app = metrics.watch(create_app(live), live, name="public")
    >>> registry = CollectorRegistry()
    >>> registry.register(metrics)
    >>> registry.get_sample_value("market_index_pairs", {"app": "public"})
    0
    """

    def __init__(self) -> None:
        # For each app, a function that returns its numbers, its health, and how many responses had a path and a status.
        self._apps: dict[str, tuple[Callable[[], dict[str, float]], Health | None, dict[tuple[str, int], int]]] = {}

    def watch(
        self,
        app: Starlette,
        live: LiveIndex,
        *,
        health: Health | None = None,
        streams: Stream | None = None,
        name: str = "",
    ) -> CountResponses:
        """Add an app. Return the app that counts its responses: serve or mount that one.

        Args:
            app: The app. A response is counted by the path of the request, as `other` if that is not a route's.
            live: Its index.
            health: The `Health` of its probes.
            streams: Its `Stream`.
            name: The label of the app.

        Raises:
            TypeError: `live` is not a `LiveIndex`, or `name` is not a text.
            ValueError: There is an app with this label.
        """
        require_live(live)
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, got {safe_repr(name)}")
        if name in self._apps:
            raise ValueError(f"name must differ from the labels of the other apps, got {safe_repr(name)}")
        responses: dict[tuple[str, int], int] = defaultdict(int)
        self._apps[name] = partial(numbers_of, live, health, streams), health, responses

        def count(path: str, status: int) -> None:
            # Only the event loop of the app counts, so no increment is lost.
            responses[path, status] += 1

        return CountResponses(app, count)

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics. A registry reads only their names, to reject duplicates."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        apps = self._apps.copy()
        yield from families("app", {app: numbers() for app, (numbers, *_) in apps.items()})
        yield skipped_family({(app,): health for app, (_, health, _) in apps.items()}, "app")
        family = responses_family("app")
        for app, (*_, responses) in apps.items():
            for (path, status), number in responses.copy().items():
                family.add_metric([app, path, str(status)], number)
        yield family

    def route(self) -> Route:
        """Return the route `/metrics`: these metrics, and those of the process."""
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        return metrics_route(registry)


def metrics_route(registry: CollectorRegistry) -> Route:
    """Return the route `/metrics` with the metrics of a registry."""

    def respond(_: Request) -> Response:  # in a thread of Starlette: it reads the state of processes
        return Response(generate_latest(registry), headers=_FIELDS)

    return exact_route("/metrics", respond)


def families(
    label: str, numbers: Mapping[str, Mapping[str, float]], descriptions: Mapping[str, str] = GAUGES
) -> Iterator[Metric]:
    """Yield the metrics. `numbers` has the numbers for each value of the label, by their names."""
    build = GaugeMetricFamily("market_index_build_info", "The version of the server.", labels=["version"])
    build.add_metric([version("market-index")], 1)
    yield build
    for name, description in descriptions.items():
        kind = CounterMetricFamily if name in _ONLY_INCREASED else GaugeMetricFamily
        family = kind(f"market_index_{name}", description, labels=[label])
        for value, found in numbers.items():
            if name in found:
                family.add_metric([value], found[name])
        yield family


def skipped_family(apps: Mapping[tuple[str, ...], Health | None], *labels: str) -> GaugeMetricFamily:
    """Return the metric of skipped outputs of the ledger, with the labels of each app before the reason."""
    family = GaugeMetricFamily(
        "market_index_feed_skipped_outputs", "Outputs of the ledger that are no orders now.", labels=[*labels, "reason"]
    )
    for values, health in apps.items():
        feed = None if health is None else health.feed
        for reason, number in () if feed is None else feed.skipped_by_reason.items():
            family.add_metric([*values, reason], number)
    return family


def responses_family(*labels: str) -> CounterMetricFamily:
    """Return the metric of responses, with the labels before those of the endpoint and the status."""
    return CounterMetricFamily(
        "market_index_requests",
        "Responses, by the path of the request and the status.",
        labels=[*labels, "endpoint", "status"],
    )


def _time_before(age: float) -> float:
    """Return the Unix time so many seconds ago; 0 if the age is infinite."""
    return time() - age if isfinite(age) else 0.0
