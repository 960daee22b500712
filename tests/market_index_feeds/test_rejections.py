"""The log of rejected records."""

from __future__ import annotations

import pytest

from market_index_feeds import rejections
from market_index_feeds.rejections import RejectionLog


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that advances only when its only item is changed."""
    clock = [1000.0]
    monkeypatch.setattr(rejections, "monotonic", lambda: clock[0])
    return clock


def reject(log: RejectionLog, count: int) -> None:
    for number in range(1, count + 1):
        log.add(f"line {number}", "not JSON")


def test_the_first_of_a_minute_are_logged_and_the_others_counted_once_it_ends(
    now: list[float], logged: pytest.LogCaptureFixture
):
    log = RejectionLog("books", "lines")
    reject(log, 25)
    assert logged.messages == [f"books line {number} rejected: not JSON" for number in range(1, 21)]
    now[0] += 59
    log.end_minute()
    assert len(logged.messages) == 20
    now[0] += 1
    log.end_minute()
    log.end_minute()
    assert logged.messages[20:] == ["books: 5 more lines rejected within a minute"]
    reject(log, 2)
    assert logged.messages[21:] == ["books line 1 rejected: not JSON", "books line 2 rejected: not JSON"]
    now[0] += 60
    log.end_minute()
    assert len(logged.messages) == 23


def test_a_rejection_after_the_minute_ends_it(now: list[float], logged: pytest.LogCaptureFixture):
    log = RejectionLog("books", "lines")
    reject(log, 21)
    now[0] += 60
    log.add("line 22", "not JSON")
    assert logged.messages[20:] == [
        "books: 1 more lines rejected within a minute",
        "books line 22 rejected: not JSON",
    ]


def test_closing_logs_the_count(now: list[float], logged: pytest.LogCaptureFixture):
    log = RejectionLog("books", "lines")
    reject(log, 1000)
    log.close()
    log.close()
    assert logged.messages[20:] == ["books: 980 more lines rejected within a minute"]
