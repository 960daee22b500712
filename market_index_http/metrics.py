"""The metrics of an app, as custom collectors of prometheus-client, and the route `/metrics`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sized
from functools import partial
from importlib.metadata import version
from math import isfinite, isnan
from time import time
from typing import Final, final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request

from market_index import LiveIndex
from market_index_http.bodies import NOT_STORED, Response, text_response
from market_index_http.counters import GAUGES, Counters
from market_index_http.health import Health
from market_index_http.routes import METRICS_PATH, ExactRoute

# The names and labels are those of 0.0.4, which every Prometheus reads.
_FIELDS: Final = (*NOT_STORED, (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"))

_COUNTERS: Final = {"feed_rejected_records", "feed_retries"}
"""The gauges that a process only increases, from 0."""


@final
class MetricsCollector(Collector):
    """The metrics of an app, and of the apps that share its counters. All names start with `market_index_`."""

    def __init__(self, live: LiveIndex, counters: Counters, streams: Sized, health: Health | None) -> None:
        self._live = live
        self._counters = counters
        self._streams = streams
        self._health = health

    def observe(self) -> None:
        """Update the gauges of this process. Any thread may call it.

        `collect` does so itself. Of several processes that share `Counters`, each calls it about once per second.
        """
        gauges: dict[str, float | None] = {
            "process_id": os.getpid(),
            "pairs": len(self._live.current),
            "streams": len(self._streams),
        }
        if self._health is not None:
            gauges["ready"] = not self._health.failures()
            if (feed := self._health.feed) is not None:
                gauges |= {
                    "feed_revision": feed.revision,
                    "feed_healthy_timestamp_seconds": _time_before(feed.age),
                    "feed_published_timestamp_seconds": _time_before(feed.quiet_age),
                    "feed_changed_timestamp_seconds": _time_before(feed.change_age),
                    "feed_rejected_records": feed.rejected,
                    "feed_current_rejections": feed.current_rejections,
                    "feed_retries": feed.retries,
                }
        for name, value in gauges.items():
            self._counters.set_gauge(name, value)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. Those of this process are up to date, those of others as of their last `observe`."""
        self.observe()
        build = GaugeMetricFamily("market_index_build_info", "The version of the server.", labels=["version"])
        build.add_metric([version("market-index")], 1)
        yield build
        requests = CounterMetricFamily(
            "market_index_requests",
            "Responses, by the path of the request and the status.",
            labels=["endpoint", "status"],
        )
        for path, status, number in self._counters.requests():
            requests.add_metric([path, str(status)], number)
        yield requests
        for name, description in GAUGES.items():
            kind = CounterMetricFamily if name in _COUNTERS else GaugeMetricFamily
            family = kind(f"market_index_{name}", description, labels=["worker"])
            for row, value in enumerate(self._counters.by_row(name)):
                if not isnan(value):
                    family.add_metric([str(row)], value)
            yield family
        skipped = GaugeMetricFamily(
            "market_index_feed_skipped_outputs", "Outputs of the ledger that are no orders now.", labels=["reason"]
        )
        feed = None if self._health is None else self._health.feed
        for reason, number in () if feed is None else feed.skipped_by_reason.items():
            skipped.add_metric([reason], number)
        yield skipped

    def route(self) -> ExactRoute:
        """Return the route `/metrics`: these metrics, and those of the processes that share the counters."""
        registry = CollectorRegistry()
        registry.register(self)
        registry.register(ProcessesCollector(self._counters))

        def respond(request: Request) -> Response:  # in a thread of Starlette: it reads the state of processes
            return text_response(request.scope, 200, generate_latest(registry), _FIELDS)

        return ExactRoute(METRICS_PATH, respond)


@final
class ProcessesCollector(Collector):
    """The metrics of prometheus-client's `ProcessCollector` for each process that shares the counters; on Linux."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def collect(self) -> Iterable[Metric]:
        """Return the metrics, with the label `worker`."""
        families: dict[str, Metric] = {}
        for row, process in enumerate(self._counters.by_row("process_id")):
            if isnan(process):
                continue
            # A process that has ended has no metrics.
            for found in ProcessCollector(pid=partial(int, process), registry=None).collect():
                family = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
                for sample in found.samples:
                    family.add_sample(sample.name, {"worker": str(row)}, sample.value)
        return families.values()


def _time_before(age: float) -> float:
    """Return the Unix time so many seconds ago; 0 if the age is infinite."""
    return time() - age if isfinite(age) else 0.0
