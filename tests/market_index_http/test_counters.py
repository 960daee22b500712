"""The table of counters: rows of several processes, threads of one process, and what survives a process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import isnan

import pytest

from market_index_http.counters import (
    BODY_BYTES,
    ENDPOINTS,
    GAUGES,
    OTHER,
    REQUESTS,
    STATUSES,
    TOTALS,
    Counters,
    path_of,
)


@pytest.fixture
def switching_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("status", STATUSES[:-1])
def test_a_response_is_counted_once_with_its_bytes(endpoint: str, status: int):
    counters = Counters()
    counters.count(endpoint, status, 7)
    assert {cell: counted for cell, counted in enumerate(counters.cells) if counted} == {
        REQUESTS[endpoint][status]: 1,
        BODY_BYTES[endpoint]: 7,
    }


@pytest.mark.parametrize("path", ["", "/", "/healthz/", "/nowhere", "other"])
def test_all_other_paths_and_statuses_have_one_label(path: str):
    counters = Counters()
    for status in (418, 599):
        counters.count(path, status, 1)
    counters.count_bytes(path, 5)
    counters.flush()
    assert counters.sum(REQUESTS[OTHER][OTHER]) == 2
    assert counters.sum(BODY_BYTES[OTHER]) == 7


def test_rows_are_summed_and_each_process_writes_its_own():
    table = bytearray(8 * Counters.table_cells(3))
    one, other = Counters(table, 0), Counters(table, 2)
    for counters in (one, other, other):
        counters.count("/livez", 200)
    assert one.requests("/livez", 200) == 0
    one.flush()
    other.flush()
    assert one.requests("/livez", 200) == other.requests("/livez", 200) == 3
    assert [one.cells[REQUESTS["/livez"][200]], other.cells[REQUESTS["/livez"][200]]] == [1, 2]


def test_a_row_that_no_process_has_used_reports_nothing():
    table = bytearray(8 * Counters.table_cells(3))
    Counters(table, 1).set_total("feed_retries", 0)
    values = Counters(table, 1).by_row("feed_retries")
    assert [isnan(value) for value in values] == [True, False, True]


def test_a_process_adds_to_the_counters_of_the_process_before_it():
    table = bytearray(8 * Counters.table_cells(1))
    ended = Counters(table)
    ended.count("/livez", 200)
    for name in TOTALS:
        ended.set_total(name, 5)
    ended.flush()
    following = Counters(table)
    assert [following.by_row(name) for name in TOTALS] == [[5]] * len(TOTALS)
    following.count("/livez", 200)
    for value in (2, 3):
        for name in TOTALS:
            following.set_total(name, value)
    following.flush()
    assert [following.by_row(name) for name in TOTALS] == [[8]] * len(TOTALS)
    assert following.requests("/livez", 200) == 2


def test_a_process_starts_without_the_gauges_of_the_process_before_it():
    table = bytearray(8 * Counters.table_cells(2))
    for row in (0, 1):
        for name in GAUGES:
            Counters(table, row).set_gauge(name, 5)
    counters = Counters(table, 1)
    for name in GAUGES:
        counters.set_gauge(name, 6)
    counters.clear(0)
    assert all(isnan(counters.by_row(name)[0]) for name in GAUGES)
    assert all(counters.by_row(name)[1] == 6 for name in GAUGES)
    counters.set_gauge("pairs", None)
    assert isnan(counters.by_row("pairs")[1])


def test_threads_lose_no_count(switching_threads: None):
    counters = Counters()

    def work(_: int) -> None:
        for _ in range(50_000):
            counters.count("/livez", 200, 3)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    counters.flush()
    assert counters.requests("/livez", 200) == 200_000
    assert counters.sum(BODY_BYTES["/livez"]) == 600_000


@pytest.mark.parametrize(
    ("path", "root", "expected"), [("/livez", "", "/livez"), ("/a/livez", "/a", "/livez"), ("/livez", None, "/livez")]
)
def test_a_path_is_relative_to_the_mount(path: str, root: str | None, expected: str):
    assert path_of({"path": path, "root_path": root}) == expected
