"""Wall clocks that differ between machines, or jump, tested with real processes under faketime."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from market_index.wire import parse_time
from market_index_feeds import FeedError, open_feed, open_store
from tests.command import COMMAND, Running, running
from tests.feeds.made_up import book
from tests.service import Service
from tests.waiting import DEADLINE_SECONDS, eventually

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed"),
]

HOUR: Final = timedelta(hours=1)
MAX_QUIET: Final = 1800
"""In seconds: less than the difference of the clocks, and more than any step takes on a busy machine."""

PUBLISHER: Final = """
import select, sys
from market_index import Freshness
from market_index_feeds import open_store
from tests.feeds.made_up import book
with open_store(sys.argv[1]) as store:
    while True:
        store.update([book(1, 1)], freshness=Freshness("alive"))
        select.select([], [], [], 0.1)  # time.sleep fails under faketime
"""


def with_clock(clock: str | Path) -> dict[str, str]:
    """Return the environment of a process whose wall clock has this offset, or the offset in this file."""
    variables = subprocess.run(["faketime", "-m", "-f", "+0", "env"], capture_output=True, text=True, check=True).stdout
    (library,) = re.findall(r"^LD_PRELOAD=(.*)$", variables, re.MULTILINE)
    name = "FAKETIME_TIMESTAMP_FILE" if isinstance(clock, Path) else "FAKETIME"
    return os.environ | {
        "LD_PRELOAD": library,
        name: str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Otherwise a thread may wait until the fake clock reaches the end of its timeout.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        "NO_FAKE_STAT": "1",
    }


@contextmanager
def alive_publisher(store: Path, clock: str) -> Iterator[subprocess.Popen[bytes]]:
    """Publish the same book ten times per second, with a clock that has this offset."""
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen([sys.executable, "-c", PUBLISHER, store], env=with_clock(clock), cwd=root) as process:
        try:
            eventually(lambda: is_published(store))
            yield process
        finally:
            process.kill()


def health(service: Service) -> Any:
    answer = service.request("/healthz")
    return {"status": answer.status, **answer.json}


@pytest.mark.parametrize(("clock", "ahead"), [("-1h", -HOUR), ("+1h", HOUR)])
def test_a_publisher_whose_clock_differs_is_alive(tmp_path: Path, clock: str, ahead: timedelta):
    path = tmp_path / "market.db"
    with open_store(path) as store:
        store.publish(book(1, 1))
    with running(tmp_path, path, "--port", 0, "--max-quiet", MAX_QUIET) as server:
        service = server.service
        with alive_publisher(path, clock) as publisher:
            eventually(lambda: health(service)["as_of"] == "alive")
            for _ in range(50):
                found = health(service)
                assert found["status"] == 200
                assert 0 <= found["quiet_seconds"] < MAX_QUIET
                assert found["unchanged_seconds"] >= 0
                difference = parse_time(found["published_at"]) - datetime.now(UTC)
                assert ahead - timedelta(minutes=5) < difference < ahead + timedelta(minutes=5)
            assert publisher.poll() is None


@pytest.mark.parametrize(("clock", "quiet"), [("-1h", HOUR.total_seconds()), ("+1h", 0)])
def test_the_age_of_an_earlier_publication_depends_on_the_clocks(tmp_path: Path, clock: str, quiet: float):
    path = tmp_path / "market.db"
    with alive_publisher(path, clock):
        pass
    with running(tmp_path, path, "--port", 0) as server:
        found = health(server.service)["quiet_seconds"]
        assert quiet <= found < quiet + DEADLINE_SECONDS


def is_published(path: Path) -> bool:
    """Read by a feed: a store would lock out the publisher, whose wait for the lock is a time.sleep."""
    with suppress(FeedError), open_feed(path) as feed:
        return feed.read().as_of == "alive"
    return False


@contextmanager
def server_with_a_clock_that_jumps(folder: Path, feed: Path, clock: Path) -> Iterator[Running]:
    """Serve with a clock whose offset is in the file."""
    log = folder / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [COMMAND, "serve", feed, "--port", "0", "--max-quiet", str(MAX_QUIET), "--max-stale", str(MAX_QUIET)],
            stderr=errors,
            env=with_clock(clock),
        )
    try:
        yield Running(process, log)
    finally:
        process.kill()
        process.wait(DEADLINE_SECONDS)


def test_a_jump_of_the_servers_clock_changes_no_age(tmp_path: Path):
    path, clock = tmp_path / "market.db", tmp_path / "clock"
    clock.write_text("+0")
    with (
        alive_publisher(path, "+0"),
        server_with_a_clock_that_jumps(tmp_path, path, clock) as server,
    ):
        service = server.service
        for jump in ("-3600", "+3600", "-86400", "+0"):
            new = clock.with_name("new")
            new.write_text(jump)
            new.replace(clock)
            shown = datetime.now(UTC) + timedelta(seconds=int(jump))
            eventually(lambda shown=shown: abs(_date(service) - shown) < timedelta(minutes=5))  # type: ignore[misc]  # a default has no type
            for _ in range(20):
                found = health(service)
                assert found["status"] == 200, found
                assert 0 <= found["quiet_seconds"] < MAX_QUIET
                assert 0 <= found["age_seconds"] < MAX_QUIET


def _date(service: Service) -> datetime:
    return datetime.strptime(service.request("/healthz").headers["date"], "%a, %d %b %Y %H:%M:%S GMT").replace(
        tzinfo=UTC
    )
