"""The metrics of all worker processes, read from their table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sized
from functools import partial
from math import isnan
from typing import final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from market_index import LiveIndex
from market_index_cli.server.counters import GAUGES, PROCESS_ID, Counters
from market_index_http.operating.metrics import GAUGES as APP_GAUGES
from market_index_http.operating.metrics import Observed, families, metrics_route, responses_family
from market_index_http.operating.probes import Health
from market_index_http.routes import ExactRoute


@final
class WorkerMetrics(Collector):
    """The metrics of the workers that share a table: gauges with the label `worker`, and the sum of the responses."""

    def __init__(self, live: LiveIndex, counters: Counters, streams: Sized, health: Health | None) -> None:
        self._observed = Observed(live, health, streams)
        self._counters = counters

    def observe(self) -> None:
        """Update the gauges of this process. `collect` does so itself; each worker calls it about once per second."""
        numbers = self._observed.numbers()
        for name in APP_GAUGES:
            self._counters.set_gauge(name, numbers.get(name))
        self._counters.set_gauge(PROCESS_ID, os.getpid())

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. Those of this process are up to date, those of others as of their last `observe`."""
        self.observe()
        rows = {name: self._counters.by_row(name) for name in GAUGES}
        workers = range(len(self._counters.by_row(PROCESS_ID)))
        numbers = {
            str(row): {name: values[row] for name, values in rows.items() if not isnan(values[row])} for row in workers
        }
        yield from families("worker", numbers, GAUGES)
        responses = responses_family()
        for path, status, number in self._counters.requests():
            responses.add_metric([path, str(status)], number)
        yield responses
        yield from self._of_processes()

    def _of_processes(self) -> Iterator[Metric]:
        """Yield the metrics of prometheus-client's `ProcessCollector` for each worker; on Linux."""
        found: dict[str, Metric] = {}
        for row, process in enumerate(self._counters.by_row(PROCESS_ID)):
            if isnan(process):
                continue
            # A process that has ended has no metrics.
            for one in ProcessCollector(pid=partial(int, process), registry=None).collect():
                family = found.setdefault(one.name, Metric(one.name, one.documentation, one.type))
                for sample in one.samples:
                    family.add_sample(sample.name, {"worker": str(row)}, sample.value)
        yield from found.values()

    def route(self) -> ExactRoute:
        """Return the route `/metrics`."""
        registry = CollectorRegistry()
        registry.register(self)
        return metrics_route(registry)
