"""The metrics of the apps of a process for Prometheus: one collector for a registry, and the route `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from itertools import accumulate
from math import isfinite
from time import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from attrs import frozen
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from market_index import LiveIndex
from market_index.errors import missing_extra, safe_repr
from market_index_http.operating.counting import BUCKETS, CountResponses, Responses
from market_index_http.operating.probes import Health
from market_index_http.routes import exact_route

if TYPE_CHECKING:
    from market_index_http.stream import Stream

try:
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.metrics_core import CounterMetricFamily as Counter
    from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
    from prometheus_client.metrics_core import HistogramMetricFamily as Histogram
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
    from prometheus_client.utils import floatToGoString
except ModuleNotFoundError as _missing:
    raise missing_extra("Metrics", "metrics", _missing) from None

# The names and labels are those of 0.0.4, which every Prometheus reads.
_FIELDS: Final = {"Cache-Control": "no-store", "Content-Type": "text/plain; version=0.0.4; charset=utf-8"}

FAMILIES: Final[Mapping[str, tuple[Any, ...]]] = {
    "pairs": (Gauge, "Pairs that are tracked."),
    "ready": (Gauge, "Whether /readyz answers 200: 1 or 0."),
    "feed_revision": (Gauge, "Revision of the store that is live."),
    "feed_healthy_timestamp_seconds": (Gauge, "Unix time when the feed was last healthy; 0: never."),
    "feed_published_timestamp_seconds": (Gauge, "Unix time when the last message of the publisher arrived; 0: never."),
    "published_timestamp_seconds": (Gauge, "Unix time of the last publication, by the publisher or of the block."),
    "feed_changed_timestamp_seconds": (Gauge, "Unix time when a book or a pair last changed; 0: never."),
    "feed_rejected_records": (Counter, "Records of the feed that were rejected."),
    "feed_current_rejections": (Gauge, "Pairs with an invalid record now."),
    "feed_saturated_levels": (Gauge, "Levels that show 2^64-1, because there are orders for as much or more."),
    "feed_retries": (Counter, "How often the feed could not be read and was tried again."),
    "streams": (Gauge, "Open streams of changes."),
    "stream_failures": (Counter, "How often an unexpected error has ended all streams."),
    "workers": (Gauge, "Processes that the server keeps running."),
    "open_connections": (Gauge, "Open connections of clients."),
    "max_connections": (Gauge, "Limit of open connections."),
    "closed_connections": (Counter, "Connections that were closed because of a limit."),
    "cached_responses": (Gauge, "Whether responses are sent without a call of the app: 1 or 0."),
    "relay_keeping": (Gauge, "Whether a relay keeps its store: 1, or 0 while it waits."),
    "relay_written_timestamp_seconds": (Gauge, "Unix time when a relay last wrote into its store."),
    "feed_skipped_outputs": (Gauge, "Outputs of the ledger that are no orders now.", "reason"),
    "feed_figure": (Gauge, "Numbers of the medium, such as the last slot of the ledger.", "figure"),
    "requests": (Counter, "Responses, by the path of the request and the status.", "endpoint", "status"),
    "response_seconds": (Histogram, "Seconds from a request to the head of its response.", "endpoint"),
    "response_bytes": (Counter, "Bytes of the bodies of responses.", "endpoint"),
}
"""The metrics of an app: their types, descriptions, and labels beside that of the app."""

Numbers: TypeAlias = Callable[[], Mapping[str, float]]
"""Returns numbers by their names in `FAMILIES`. Any thread may call it."""


@frozen
class _App:
    """An app of `Metrics`, and what its metrics are read from."""

    live: LiveIndex
    health: Health | None
    streams: Stream | None
    server: Numbers
    responses: Responses

    def numbers(self) -> Mapping[str, float]:
        """Return the current value of each metric without other labels that is known."""
        index = self.live.current
        published_at = None if index.published_at is None else index.published_at.timestamp()
        numbers = {"pairs": len(index), "published_timestamp_seconds": published_at, **self.server()}
        if self.streams is not None:
            numbers |= {"streams": len(self.streams), "stream_failures": self.streams.failures}
        if self.health is not None:
            numbers["ready"] = not self.health.failures()
            if (feed := self.health.feed) is not None:
                numbers |= {
                    "feed_revision": feed.revision,
                    "feed_healthy_timestamp_seconds": _time_before(feed.age),
                    "feed_published_timestamp_seconds": _time_before(feed.quiet_age),
                    "feed_changed_timestamp_seconds": _time_before(feed.change_age),
                    "feed_rejected_records": feed.rejected,
                    "feed_current_rejections": feed.current_rejections,
                    "feed_saturated_levels": feed.saturated_levels,
                    "feed_retries": feed.retries,
                }
        return {name: value for name, value in numbers.items() if value is not None}


def _time_before(age: float) -> float:
    """Return the Unix time so many seconds ago; 0 if the age is infinite."""
    return time() - age if isfinite(age) else 0.0


@final
class Metrics(Collector):
    """The metrics of the apps of this process. All names start with `market_index_`.

    A registry has one `Metrics`, for all apps: each has its own label. A second one in the same registry is rejected by
    the registry, because its series could be the same.

    >>> from prometheus_client import CollectorRegistry
    >>> from market_index_http import create_app
    >>> metrics, live = Metrics(), LiveIndex()
    >>> app = metrics.watch(create_app(live), live, name="public")
    >>> registry = CollectorRegistry()
    >>> registry.register(metrics)
    >>> registry.get_sample_value("market_index_pairs", {"app": "public"})
    0

    Args:
        label: The name of the label.
    """

    def __init__(self, label: str = "app") -> None:
        self._label = label
        self._apps: dict[str, _App] = {}

    def watch(
        self,
        app: Starlette,
        live: LiveIndex,
        *,
        health: Health | None = None,
        streams: Stream | None = None,
        server: Numbers = dict,
        name: str = "",
    ) -> CountResponses:
        """Add an app. Return the app that counts its responses: serve or mount that one.

        A response is counted by the path of the request, as `other` if the app had no route with this path.

        Args:
            app: The app.
            live: Its index.
            health: The `Health` of its probes.
            streams: Its `Stream`.
            server: Returns the numbers of its server.
            name: The value of the label.

        Raises:
            ValueError: There is an app with this name.
        """
        if name in self._apps:
            raise ValueError(f"name must differ from the names of the other apps, got {safe_repr(name)}")
        responses = Responses(route.path for route in app.routes if isinstance(route, Route))
        self._apps[name] = _App(live, health, streams, server, responses)
        return CountResponses(app, responses)

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics. A registry reads only their names, to reject duplicates."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        build = Gauge("market_index_build_info", "The version of the server.", labels=["version"])
        build.add_metric([version("market-index")], 1)
        yield build
        families = {
            name: family(f"market_index_{name}", description, labels=[self._label, *labels])
            for name, (family, description, *labels) in FAMILIES.items()
        }
        for name, app in self._apps.copy().items():
            for metric, value in app.numbers().items():
                families[metric].add_metric([name], value)
            feed = app.health and app.health.feed
            for reason, number in feed.skipped_by_reason.items() if feed else ():
                families["feed_skipped_outputs"].add_metric([name, reason], number)
            for figure, value in feed.figures.items() if feed else ():
                families["feed_figure"].add_metric([name, figure], value)
            for path, counts in app.responses.items():
                for status, number in counts.statuses.copy().items():
                    families["requests"].add_metric([name, path, str(status)], number)
                buckets = zip(map(floatToGoString, BUCKETS), accumulate(counts.times), strict=True)
                families["response_seconds"].add_metric([name, path], [*buckets], counts.seconds)
                families["response_bytes"].add_metric([name, path], counts.length)
        yield from families.values()

    def text(self) -> bytes:
        """Return these metrics, and those of the process, in the format of Prometheus."""
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        return generate_latest(registry)

    def route(self, text: Callable[[], bytes] | None = None) -> Route:
        """Return the route `/metrics`. `text` returns its content, by default `Metrics.text`."""

        def respond(_: Request) -> Response:  # in a thread of Starlette: it reads the state of processes
            return Response((text or self.text)(), headers=_FIELDS)

        return exact_route("/metrics", respond)
