"""The metrics of the apps of a process for Prometheus: one collector for a registry, and the route `/metrics`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from itertools import accumulate
from math import inf, isfinite
from time import monotonic, time
from typing import TYPE_CHECKING, Final, TypeAlias, final

from attrs import define, field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from market_index import LiveIndex
from market_index.errors import missing_extra, safe_repr
from market_index_http.operating.probes import Health
from market_index_http.routes import exact_route
from market_index_http.snapshots import require_live

if TYPE_CHECKING:
    from market_index_http.stream import Stream

try:
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector
    from prometheus_client.utils import floatToGoString
except ModuleNotFoundError as _missing:
    raise missing_extra("Metrics", "metrics", _missing) from None

# The names and labels are those of 0.0.4, which every Prometheus reads.
_FIELDS: Final = {"Cache-Control": "no-store", "Content-Type": "text/plain; version=0.0.4; charset=utf-8"}

OTHER: Final = "other"
"""The label of each path that is not that of a route."""

GAUGES: Final[Mapping[str, str]] = {
    "pairs": "Pairs that are tracked.",
    "ready": "Whether /readyz answers 200: 1 or 0.",
    "feed_revision": "Revision of the store that is live.",
    "feed_healthy_timestamp_seconds": "Unix time when the feed was last healthy; 0: never.",
    "feed_published_timestamp_seconds": "Unix time when the last message of the publisher arrived; 0: never.",
    "published_timestamp_seconds": "Unix time of the last publication by the clock of the publisher, or of the block.",
    "feed_changed_timestamp_seconds": "Unix time when a book or a pair last changed; 0: never.",
    "feed_rejected_records": "Records of the feed that were rejected.",
    "feed_current_rejections": "Pairs with an invalid record now.",
    "feed_saturated_levels": "Levels that show 2^64-1, because there are orders for as much or more.",
    "feed_retries": "How often the feed could not be read and was tried again.",
    "streams": "Open streams of changes.",
    "stream_failures": "How often an unexpected error has ended all streams.",
    "workers": "Processes that the server keeps running.",
    "open_connections": "Open connections of clients.",
    "max_connections": "Limit of open connections.",
    "closed_connections": "Connections that were closed because of a limit.",
    "cached_responses": "Whether responses are sent without a call of the app: 1 or 0.",
    "relay_keeping": "Whether a relay keeps its store: 1, or 0 while it waits.",
    "relay_written_timestamp_seconds": "Unix time when a relay last wrote into its store.",
}
"""The numbers of an app, and their descriptions. The last ones are those of a server or a relay."""

_ONLY_INCREASED: Final = {"feed_rejected_records", "feed_retries", "stream_failures", "closed_connections"}
"""The numbers that are counters."""

Numbers: TypeAlias = Callable[[], Mapping[str, float]]
"""Returns numbers by their names in `GAUGES`. Any thread may call it."""

BUCKETS: Final = (0.001, 0.005, 0.02, 0.1, 1.0, inf)
"""The upper bounds of the histogram of response times, in seconds."""


@define
class _Times:
    """The responses of a path: how many are in each of `BUCKETS`, and the sums of their seconds and bytes."""

    counts: list[int] = field(factory=lambda: [0] * len(BUCKETS))
    seconds: float = 0.0
    length: int = 0


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
        # The numbers of each app, its health, how many responses had a path and a status, and their times.
        self._apps: dict[str, tuple[Numbers, Health | None, dict[tuple[str, int], int], dict[str, _Times]]] = {}

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
            TypeError: `live` is not a `LiveIndex`, or `name` is not a text.
            ValueError: There is an app with this name.
        """
        require_live(live)
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, got {safe_repr(name)}")
        if name in self._apps:
            raise ValueError(f"name must differ from the names of the other apps, got {safe_repr(name)}")
        paths = {OTHER, *[route.path for route in app.routes if isinstance(route, Route)]}
        # From 0, because Prometheus does not see the first increase of a series that begins with it.
        responses = {(path, status): 0 for path in sorted(paths) for status in (500, 503)}
        times = {path: _Times() for path in sorted(paths)}
        self._apps[name] = partial(_numbers_of, live, health, streams, server), health, responses, times

        def count(path: str, status: int, seconds: float = 0.0, length: int = 0) -> None:
            # Only the event loop of the app counts, so no increment is lost.
            known = path if path in paths else OTHER
            responses[known, status] = responses.get((known, status), 0) + 1
            found = times[known]
            found.counts[bisect_left(BUCKETS, seconds)] += 1
            found.seconds += seconds
            found.length += length

        def add_bytes(path: str, length: int) -> None:
            times[path if path in paths else OTHER].length += length

        return CountResponses(app, count, add_bytes)

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics. A registry reads only their names, to reject duplicates."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        build = GaugeMetricFamily("market_index_build_info", "The version of the server.", labels=["version"])
        build.add_metric([version("market-index")], 1)
        yield build
        apps = self._apps.copy()
        numbers = {name: numbers() for name, (numbers, *_) in apps.items()}
        for gauge, description in GAUGES.items():
            kind = CounterMetricFamily if gauge in _ONLY_INCREASED else GaugeMetricFamily
            family = kind(f"market_index_{gauge}", description, labels=[self._label])
            for name, found in numbers.items():
                if gauge in found:
                    family.add_metric([name], found[gauge])
            yield family
        text = "Outputs of the ledger that are no orders now."
        skipped = GaugeMetricFamily("market_index_feed_skipped_outputs", text, labels=[self._label, "reason"])
        text = "Responses, by the path of the request and the status."
        responses = CounterMetricFamily("market_index_requests", text, labels=[self._label, "endpoint", "status"])
        text = "Seconds from a request to the head of its response."
        seconds = HistogramMetricFamily("market_index_response_seconds", text, labels=[self._label, "endpoint"])
        text = "Bytes of the bodies of responses."
        sent = CounterMetricFamily("market_index_response_bytes", text, labels=[self._label, "endpoint"])
        for name, (_, health, counts, times) in apps.items():
            feed = None if health is None else health.feed
            for reason, number in () if feed is None else feed.skipped_by_reason.items():
                skipped.add_metric([name, reason], number)
            for (path, status), number in counts.copy().items():
                responses.add_metric([name, path, str(status)], number)
            for path, timed in times.items():
                buckets = zip(map(floatToGoString, BUCKETS), accumulate(timed.counts), strict=True)
                seconds.add_metric([name, path], [*buckets], timed.seconds)
                sent.add_metric([name, path], timed.length)
        yield from (skipped, responses, seconds, sent)

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


@final
class CountResponses:
    """An app that counts its responses. A client that has received one finds it counted.

    Args:
        app: The app.
        count: Called with the path below the mount, the status, and the seconds since the request.
        add_bytes: Called with the path and the length of each part of a body.
    """

    def __init__(
        self,
        app: Starlette,
        count: Callable[..., object],
        add_bytes: Callable[[str, int], object] = lambda *_: None,
    ) -> None:
        self._app = app
        self.count: Final = count
        self._add_bytes = add_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app."""
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))  # routing changes both
        start = monotonic()

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.count(path, message["status"], monotonic() - start)
            elif message["type"] == "http.response.body":
                self._add_bytes(path, len(message.get("body", b"")))
            await send(message)

        await self._app(scope, receive, send_counted)


def _numbers_of(live: LiveIndex, health: Health | None, streams: Stream | None, server: Numbers) -> Mapping[str, float]:
    """Return the current value of each of `GAUGES` that is known."""
    published_at = live.current.published_at
    numbers: dict[str, float | None] = {"pairs": len(live.current), **server()}
    numbers["published_timestamp_seconds"] = None if published_at is None else published_at.timestamp()
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
                "feed_saturated_levels": feed.saturated_levels,
                "feed_retries": feed.retries,
            }
    return {name: value for name, value in numbers.items() if value is not None}


def _time_before(age: float) -> float:
    """Return the Unix time so many seconds ago; 0 if the age is infinite."""
    return time() - age if isfinite(age) else 0.0
