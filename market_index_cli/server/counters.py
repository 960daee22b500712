"""The numbers of `/metrics`, in a table that the worker processes share.

Theory of operation
    The table has a row for each process, and a row has a cell for each number. A process writes only its own row,
    without a lock, and any process reads all rows. Reading and writing one cell is atomic, because it is an aligned
    number of eight bytes.

    The counts of requests outlive their process: the next process of the row adds to them. So they never decrease,
    even if a process is killed. The gauges of a row are cleared when its process ends, and when the next one starts.

    Only the event loop of a process counts, so no increment is lost.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from itertools import product
from math import isnan, nan
from typing import Any, Final, final

from market_index_http.operating.metrics import GAUGES as APP_GAUGES

OTHER: Final = "other"
"""The label of each path and each status that has no label of its own."""

ENDPOINTS: Final = (
    "/trading-view/pair-list", "/trading-view/order-book", "/stream",
    "/healthz", "/livez", "/readyz", "/metrics", "/openapi.json", OTHER,
)  # fmt: skip
STATUSES: Final[tuple[int | str, ...]] = (200, 204, 304, 400, 404, 405, 431, 500, 503, OTHER)

GAUGES: Final[Mapping[str, str]] = {
    **APP_GAUGES,
    "workers": "Processes that the server keeps running.",
    "open_connections": "Open connections of clients.",
    "max_connections": "Limit of open connections.",
}
"""The numbers that each process sets, and their descriptions."""

PROCESS_ID: Final = "process_id"

_GAUGES: Final = {name: cell for cell, name in enumerate((PROCESS_ID, *GAUGES))}
_REQUESTS: Final[Mapping[tuple[str, int | str], int]] = {
    key: cell for cell, key in enumerate(product(ENDPOINTS, STATUSES), len(_GAUGES))
}
_ROW_CELLS: Final = len(_GAUGES) + len(_REQUESTS)


@final
class Counters:
    """The counters and gauges of one process, and those of the processes that share its table.

    A program with one process needs no argument. With several, each process of the program has its own `row`.

    >>> from multiprocessing import get_context
    >>> shared = get_context("spawn").RawArray("d", Counters.table_cells(workers=2))
    >>> one, other = Counters(shared, 0), Counters(shared, 1)
    >>> one.count("/healthz", 200)
    >>> {(path, status): number for path, status, number in other.requests() if number}
    {('/healthz', 200): 1.0}

    Args:
        table: A buffer of `table_cells(workers)` zeros of the type double, in memory that the processes share.
        row: The row of this process, from 0.
    """

    def __init__(self, table: Any = None, row: int = 0) -> None:
        whole = memoryview(array("d", bytes(8 * _ROW_CELLS)) if table is None else table).cast("B").cast("d")
        self._rows = [whole[start : start + _ROW_CELLS] for start in range(0, len(whole), _ROW_CELLS)]
        self._row = self._rows[row]
        self.clear(row)

    @staticmethod
    def table_cells(workers: int) -> int:
        """Return how many cells a table has."""
        return workers * _ROW_CELLS

    def count(self, path: str, status: int) -> None:
        """Count a response by its status and by the path of its route."""
        cell = _REQUESTS.get((path, status))
        if cell is None:
            cell = _REQUESTS[path if path in ENDPOINTS else OTHER, status if status in STATUSES else OTHER]
        self._row[cell] += 1

    def clear(self, row: int) -> None:
        """Clear the gauges of a row: its process has ended, or has just started."""
        for cell in _GAUGES.values():
            self._rows[row][cell] = nan

    def set_gauge(self, name: str, value: float | None) -> None:
        """Set one of `GAUGES`, or the id of this process; None: it is not known."""
        self._row[_GAUGES[name]] = nan if value is None else value

    def requests(self) -> Iterator[tuple[str, int | str, float]]:
        """Yield each path and status with the number of responses of all processes."""
        for (path, status), cell in _REQUESTS.items():
            yield path, status, sum(row[cell] for row in self._rows)

    def gauges(self) -> list[dict[str, float]]:
        """Return the gauges of each row that are known, with the id of its process."""
        # A row that no process has used yet contains only zeros.
        return [
            {name: row[cell] for name, cell in _GAUGES.items() if row[_GAUGES[PROCESS_ID]] and not isnan(row[cell])}
            for row in self._rows
        ]
