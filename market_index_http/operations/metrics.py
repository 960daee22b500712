"""The route `/metrics`: the numbers of all processes that share a table, in the Prometheus text format 0.0.4."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from math import inf, isnan
from time import monotonic
from typing import Final, TypeAlias

from anyio import to_thread
from starlette.requests import Request

from market_index_http.counters import BODY_BYTES, COMPUTED, REQUESTS, REUSED, Counters
from market_index_http.operations.observation import open_files, resident_bytes
from market_index_http.paths import METRICS_PATH
from market_index_http.routes import ExactRoute, TextResponse

_VERSION: Final = f'version="{version("market-index")}"'

Samples: TypeAlias = Iterable[tuple[str, float]]
"""The labels and the value of each sample of one metric."""

_NUMBERS: Final = {
    "market_index_pairs": ("pairs", "Pairs that are tracked."),
    "market_index_crossed_pairs": ("crossed_pairs", "Pairs whose best bid is above the best ask."),
    "market_index_ready": ("ready", "Whether /readyz answers 200: 1 or 0."),
    "market_index_workers": ("workers", "Processes that the server keeps running."),
    "market_index_feed_revision": ("feed_revision", "Revision of the store that is live."),
    "market_index_feed_rejected_records_total": ("feed_rejected_records", "Records of the feed that were rejected."),
    "market_index_feed_current_rejections": ("feed_current_rejections", "Records that are rejected now."),
    "market_index_feed_retries_total": ("feed_retries", "How often the feed could not be read and was tried again."),
    "market_index_waiting_requests": ("waiting_requests", "Requests that wait for a change."),
    "market_index_open_connections": ("open_connections", "Open connections of clients."),
    "market_index_max_connections": ("max_connections", "Limit of open connections."),
    "process_cpu_seconds_total": ("process_cpu_seconds", "User and system processor time in seconds."),
    "process_start_time_seconds": ("process_start_time_seconds", "Start of the process in seconds of Unix time."),
}
"""The metrics that have one sample for each process: the name of its cell, and its description."""

_AGES: Final = {
    "market_index_feed_age_seconds": ("feed_checked", "Seconds since the feed was last healthy."),
    "market_index_feed_quiet_seconds": ("feed_published", "Seconds since the last message of the publisher."),
    "market_index_feed_unchanged_seconds": ("feed_changed", "Seconds since a book or a pair last changed."),
}
"""The same for ages. Their cells contain the monotonic time when they were 0."""


def metrics_route(counters: Counters, observe: Callable[[], object]) -> ExactRoute:
    """Return the route `/metrics`. It calls `observe` first, in a thread, which updates the numbers of this process."""

    async def metrics(_: Request) -> TextResponse:
        await to_thread.run_sync(observe)
        return TextResponse(metrics_text(counters), headers={"Cache-Control": "no-store"})

    return ExactRoute(METRICS_PATH, metrics)


def metrics_text(counters: Counters) -> str:
    """Return the metrics of all processes."""
    now, processes = monotonic(), counters.by_row("process_id")
    metrics: list[tuple[str, str, Samples]] = [
        (name, text, _by_worker(counters.by_row(cell))) for name, (cell, text) in _NUMBERS.items()
    ]
    metrics += [
        (name, text, _by_worker([now - moment for moment in counters.by_row(cell)]))
        for name, (cell, text) in _AGES.items()
    ]
    metrics += [
        ("market_index_build_info", "The version of the server.", [(_VERSION, 1)]),
        ("process_resident_memory_bytes", "Resident memory in bytes.", _by_worker(map(resident_bytes, processes))),
        ("process_open_fds", "Open file descriptors.", _by_worker(map(open_files, processes))),
        ("market_index_requests_total", "Responses, by the path of the request and the status.", [
            (f'endpoint="{path}",status="{status}"', counters.sum(cell))
            for path, cells in REQUESTS.items() for status, cell in cells.items()
        ]),
        ("market_index_response_body_bytes_total", "Bytes of response bodies, as compressed.", [
            (f'endpoint="{path}"', counters.sum(cell)) for path, cell in BODY_BYTES.items()
        ]),
        ("market_index_encodings_total", "Bodies of books and pair lists that were encoded, or cached.", [
            ('result="computed"', counters.sum(COMPUTED)), ('result="reused"', counters.sum(REUSED)),
        ]),
    ]  # fmt: skip
    return "".join(_lines(metrics))


def _lines(metrics: Iterable[tuple[str, str, Samples]]) -> Iterator[str]:
    for name, text, samples in metrics:
        kind = "counter" if name.endswith("_total") else "gauge"
        yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
        for labels, value in samples:
            if not isnan(value):
                yield f"{name}{{{labels}}} {'+Inf' if value == inf else f'{value:.15g}'}\n"


def _by_worker(values: Iterable[float]) -> Samples:
    return [(f'worker="{row}"', value) for row, value in enumerate(values)]
