"""The metrics of all worker processes, read from their table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.routing import Route

from market_index import LiveIndex
from market_index_cli.server.counters import GAUGES, PROCESS_ID, Counters
from market_index_http.operating import Health
from market_index_http.operating.metrics import GAUGES as APP_GAUGES
from market_index_http.operating.metrics import families, metrics_route, numbers_of, responses_family, skipped_family
from market_index_http.stream import Stream


@final
class WorkerMetrics(Collector):
    """The metrics of the workers that share a table: gauges with the label `worker`, and the sum of the responses."""

    def __init__(self, live: LiveIndex, counters: Counters, streams: Stream, health: Health | None) -> None:
        self._numbers, self._health = partial(numbers_of, live, health, streams), health
        self._counters = counters

    def observe(self) -> None:
        """Update the gauges of this process. `collect` does so itself; each worker calls it about once per second."""
        numbers = self._numbers()
        for name in APP_GAUGES:
            self._counters.set_gauge(name, numbers.get(name))
        self._counters.set_gauge(PROCESS_ID, os.getpid())

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. The gauges of this process are current, those of others are from their last `observe`."""
        self.observe()
        workers = {str(row): gauges for row, gauges in enumerate(self._counters.gauges())}
        yield from families("worker", workers, GAUGES)
        # All workers count the same outputs: the numbers are a function of the ledger.
        yield skipped_family({(): self._health})
        responses = responses_family()
        for path, status, number in self._counters.requests():
            responses.add_metric([path, str(status)], number)
        yield responses
        # `ProcessCollector` of prometheus-client yields metrics on Linux only, and none of a process that has ended.
        processes: dict[str, Metric] = {}
        for worker, gauges in workers.items():
            if PROCESS_ID in gauges:
                for found in ProcessCollector(pid=partial(int, gauges[PROCESS_ID]), registry=None).collect():
                    family = processes.setdefault(found.name, Metric(found.name, found.documentation, found.type))
                    for sample in found.samples:
                        family.add_sample(sample.name, {"worker": worker}, sample.value)
        yield from processes.values()

    def route(self) -> Route:
        """Return the route `/metrics`."""
        registry = CollectorRegistry()
        registry.register(self)
        return metrics_route(registry)
