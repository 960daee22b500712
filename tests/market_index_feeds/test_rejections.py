"""Counting and logging rejected records."""

from __future__ import annotations

import pytest
from attrs import define

from market_index_feeds.medium import Rejected
from market_index_feeds.rejections import Rejections


@define
class Clock:
    """A clock that advances only when its attribute is changed."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


def reject(log: Rejections, count: int) -> None:
    log.add([Rejected(f"line {number}", "not JSON") for number in range(1, count + 1)])


def test_the_first_of_a_minute_are_logged_and_the_others_counted_once_it_ends(logged: pytest.LogCaptureFixture):
    clock = Clock()
    log = Rejections("books", "lines", clock)
    reject(log, 25)
    assert logged.messages == [f"books line {number} rejected: not JSON" for number in range(1, 21)]
    clock.seconds += 59
    log.end_minute()
    assert len(logged.messages) == 20
    clock.seconds += 1
    log.end_minute()
    log.end_minute()
    assert logged.messages[20:] == ["books: 5 more lines rejected within a minute"]
    reject(log, 2)
    assert logged.messages[21:] == ["books line 1 rejected: not JSON", "books line 2 rejected: not JSON"]
    clock.seconds += 60
    log.end_minute()
    assert len(logged.messages) == 23


def test_a_rejection_after_the_minute_ends_it(logged: pytest.LogCaptureFixture):
    clock = Clock()
    log = Rejections("books", "lines", clock)
    reject(log, 21)
    clock.seconds += 60
    log.add([Rejected("line 22", "not JSON")])
    assert logged.messages[20:] == [
        "books: 1 more lines rejected within a minute",
        "books line 22 rejected: not JSON",
    ]


def test_closing_logs_the_count(logged: pytest.LogCaptureFixture):
    log = Rejections("books", "lines", Clock())
    reject(log, 1000)
    log.close()
    log.close()
    assert logged.messages[20:] == ["books: 980 more lines rejected within a minute"]
