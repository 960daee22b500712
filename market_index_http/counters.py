"""The numbers of `/metrics`, in a table that several processes may share.

Theory of operation
    The table has a row for each process, and a row has a cell for each number. A process writes only its own row,
    without a lock, and any process reads all rows. Reading and writing one cell is atomic, because it is an aligned
    number of eight bytes.

    A process counts in a list, and `flush` copies the list into its row. To count in the row itself would take
    more of the time of the fast path. A process that is killed loses what it has counted since the last flush.

    The counters of a row outlive its process: the next process of the row adds to them. So a counter never decreases,
    also if a process is killed. The gauges of a row are cleared when its process ends, and when its next one starts.

    Threads of one process do not lose increments: CPython switches threads only at calls and jumps, and there is none
    between reading an element of the list and writing it.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping
from itertools import count
from math import nan
from typing import Any, Final, final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from market_index_http.paths import (
    HEALTH_PATH,
    LIVE_PATH,
    METRICS_PATH,
    OPENAPI_PATH,
    ORDER_BOOK_PATH,
    PAIR_LIST_PATH,
    READY_PATH,
)

OTHER: Final = "other"
"""The label of all other paths, and of all other statuses."""

ENDPOINTS: Final = (
    PAIR_LIST_PATH, ORDER_BOOK_PATH, HEALTH_PATH, LIVE_PATH, READY_PATH, METRICS_PATH, OPENAPI_PATH, OTHER,
)  # fmt: skip
STATUSES: Final = (200, 204, 304, 400, 404, 405, 431, 500, 503, OTHER)

TOTALS: Final = ("feed_rejected_records", "feed_retries", "process_cpu_seconds")
"""The counters of a process that it counts elsewhere."""

GAUGES: Final = (
    "process_id", "process_start_time_seconds", "pairs", "crossed_pairs", "ready", "feed_revision", "feed_checked",
    "feed_published", "feed_changed", "feed_current_rejections", "waiting_requests",
    "open_connections", "max_connections", "workers",
)  # fmt: skip

_CELLS: Final = count()
REQUESTS: Final[Mapping[str, Mapping[int | str, int]]] = {
    endpoint: {status: next(_CELLS) for status in STATUSES} for endpoint in ENDPOINTS
}
"""The cells of the requests, by endpoint and status."""

BODY_BYTES: Final[Mapping[str, int]] = {endpoint: next(_CELLS) for endpoint in ENDPOINTS}
COMPUTED: Final = next(_CELLS)
REUSED: Final = next(_CELLS)
_TOTALS: Final = {name: next(_CELLS) for name in TOTALS}
_COUNTED_CELLS: Final = next(_CELLS)
_GAUGES: Final = {name: next(_CELLS) for name in GAUGES}
_NAMED: Final = {**_TOTALS, **_GAUGES}
_ROW_CELLS: Final = next(_CELLS)

_ENDPOINT: Final = {path: (REQUESTS[path], REQUESTS[path][OTHER], BODY_BYTES[path]) for path in ENDPOINTS}
_OTHER: Final = _ENDPOINT[OTHER]


@final
class Counters:
    """The counters and gauges of one process, and those of the processes that share its table.

    A program with one process needs no argument. With several, each process of the program has its own `row`.

    >>> from multiprocessing import get_context
    >>> shared = get_context("spawn").RawArray("d", Counters.table_cells(rows=2))
    >>> one, other = Counters(shared, 0), Counters(shared, 1)
    >>> one.count("/healthz", 200, 17)
    >>> one.flush()
    >>> other.requests("/healthz", 200)
    1.0

    Args:
        table: A buffer of `table_cells(rows)` zeros of the type double, in memory that the processes share.
        row: The row of this process, from 0.
    """

    def __init__(self, table: Any = None, row: int = 0) -> None:
        whole = memoryview(array("d", bytes(8 * _ROW_CELLS)) if table is None else table).cast("B").cast("d")
        self._rows = [whole[start : start + _ROW_CELLS] for start in range(0, len(whole), _ROW_CELLS)]
        self._row = self._rows[row]
        # What ended processes of this row have counted.
        self._before = self._row[:_COUNTED_CELLS].tolist()
        self.cells: Final[list[float]] = [0] * _COUNTED_CELLS
        """What this process has counted, without the responses of `book_sizes` and `list_sizes`."""
        # One increment per response: more would take several percent of the fast path.
        self.book_sizes: Final[defaultdict[int, int]] = defaultdict(int)
        """How many books the fast path has sent with status 200, by the bytes of the body. All of them were cached."""
        self.list_sizes: Final[defaultdict[int, int]] = defaultdict(int)
        """The same for the pair list; `Bodies` counts whether it was cached."""
        self.clear(row)

    @staticmethod
    def table_cells(rows: int) -> int:
        """Return how many cells a table has."""
        return rows * _ROW_CELLS

    def count(self, path: str, status: int, body_bytes: int = 0) -> None:
        """Count a response by its status and by the path of its request, which is relative to the path of the mount.

        Further bytes of the body are counted by `count_bytes`.
        """
        requests, other, byte_cell = _ENDPOINT.get(path, _OTHER)
        cells, cell = self.cells, requests.get(status, other)
        cells[cell] += 1
        cells[byte_cell] += body_bytes

    def count_bytes(self, path: str, body_bytes: int) -> None:
        """Count bytes of a response body."""
        cells, cell = self.cells, BODY_BYTES.get(path, BODY_BYTES[OTHER])
        cells[cell] += body_bytes

    def flush(self) -> None:
        """Copy what this process has counted into the table."""
        cells = self.cells.copy()
        for path, sizes in ((ORDER_BOOK_PATH, self.book_sizes), (PAIR_LIST_PATH, self.list_sizes)):
            sent = list(sizes.items())
            cells[REQUESTS[path][200]] += sum([responses for _, responses in sent])
            cells[BODY_BYTES[path]] += sum([size * responses for size, responses in sent])
        cells[REUSED] += sum(list(self.book_sizes.values()))
        for cell, (before, counted) in enumerate(zip(self._before, cells, strict=True)):
            self._row[cell] = before + counted

    def clear(self, row: int) -> None:
        """Clear the gauges of a row: its process has ended, or has just started."""
        for cell in _GAUGES.values():
            self._rows[row][cell] = nan

    def set_total(self, name: str, value: float) -> None:
        """Set a counter of `TOTALS`, to what this process has counted."""
        self.cells[_TOTALS[name]] = value

    def set_gauge(self, name: str, value: float | None) -> None:
        """Set a gauge of `GAUGES`; None: it is not known."""
        self._row[_GAUGES[name]] = nan if value is None else value

    def sum(self, cell: int) -> float:
        """Return the sum of a cell of all rows."""
        return sum(row[cell] for row in self._rows)

    def requests(self, path: str, status: int) -> float:
        """Return how many requests all processes have counted and flushed."""
        return self.sum(REQUESTS[path][status])

    def by_row(self, name: str) -> list[float]:
        """Return the value of a counter of `TOTALS` or a gauge of each row; NaN: it is not known."""
        # A row that no process has used yet contains only zeros.
        return [row[_NAMED[name]] if row[_GAUGES["process_id"]] else nan for row in self._rows]


def counted(app: ASGIApp, counters: Counters) -> ASGIApp:
    """Return an app that counts the responses of another one."""

    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        path = path_of(scope)

        async def send_counted(message: Message) -> None:
            # Before it is sent, so that a client that has a response finds it counted.
            if message["type"] == "http.response.start":
                counters.count(path, message["status"])
            else:
                counters.count_bytes(path, len(message.get("body", b"")))
            await send(message)

        await app(scope, receive, send_counted)

    return counting


def path_of(scope: Scope) -> str:
    """Return the path of a request, relative to the path of the mount."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path") or "")
