"""The freshness on the page, in a real browser: each state, with the real command as the service."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from market_index import Freshness, LiveIndex, wire
from market_index_feeds import open_store
from tests.browser.visit import Visit, ladder_rows, visited, visiting
from tests.command import LINES, line, running
from tests.feed_state import FeedState
from tests.page import SNEK_ADA, sample
from tests.service import Service
from tests.waiting import DEADLINE_SECONDS, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.thorough

BAD_STATUS = "Failed to load resource"
"""The message of the browser for each error response, here 503 from /healthz."""

HEARTBEATS = """
import sys
from market_index import Freshness
from market_index_feeds import open_store
with open_store(sys.argv[1]) as store:
    for slot, _ in enumerate(sys.stdin, 145_000_000):
        store.update((), freshness=Freshness(f"slot {slot}"))
        print(slot, flush=True)
"""
"""A publisher in a quiet market: for each line of its input it publishes a heartbeat, but no book."""

RECORD_LABELS = """() => {
  document.labels = new Set(["Live"]);
  const note = () => document.labels.add(document.getElementById("connection").textContent);
  new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
"""Records every connection label that the page shows from now on, in `document.labels`."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with the sample books."""
    path = tmp_path / "market.db"
    with open_store(path) as opened:
        opened.update(sample(), freshness=Freshness("slot 144999999"))
    return path


class Publisher:
    """A process that publishes heartbeats into a store on request."""

    def __init__(self, store: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HEARTBEATS, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def publish_heartbeat(self) -> None:
        """Publish a heartbeat, and return when it is stored."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=DEADLINE_SECONDS)


@contextmanager
def publisher_of(store: Path) -> Iterator[Publisher]:
    publisher = Publisher(store)
    try:
        yield publisher
    finally:
        publisher.kill()


def becomes(visit: Visit, label: str, before_poll: Callable[[], None] = lambda: None) -> None:
    """Poll until the page has this label."""

    def is_labelled() -> bool:
        before_poll()
        visit.poll()
        return visit.page.text_content("#connection") == label

    visit.until(is_labelled)


def status_of(service: Service) -> int:
    return service.request("/healthz").status


def test_a_killed_publisher_is_quiet_until_it_restarts(browser: Browser, tmp_path: Path, store: Path):
    with (
        running(tmp_path, store, "--port", 0, "--max-quiet", 3, "--max-wait", 1) as command,
        visiting(browser, command.service.port, expected=BAD_STATUS) as visit,
    ):
        with publisher_of(store) as publisher:
            visit.open(SNEK_ADA)
            becomes(visit, "Live", publisher.publish_heartbeat)
            visit.shows("#as-of", re.compile(r"^as of slot 14500\d{4}$"))
            publisher.kill()
        eventually(lambda: status_of(command.service) == 503)
        becomes(visit, "Quiet")
        visit.shows("#age", re.compile(r"^no publication for \d+ s$"))
        visit.contains("#alert", "The publisher is not publishing. The data shown may be out of date.")
        [book] = [one for one in sample() if one.pair == SNEK_ADA]
        visit.becomes(visit.ladder, ladder_rows(book))
        visit.has_style(".facts", "border-top-style", "dashed")
        with publisher_of(store) as publisher:
            becomes(visit, "Live", publisher.publish_heartbeat)
            visit.shows("#alert", "")


def test_a_publisher_that_is_alive_is_live_throughout_a_quiet_market(browser: Browser, tmp_path: Path, store: Path):
    with (
        publisher_of(store) as publisher,
        running(tmp_path, store, "--port", 0) as command,
        visiting(browser, command.service.port) as visit,
    ):
        page = visit.open_live(SNEK_ADA)
        page.evaluate(RECORD_LABELS)
        # Two minutes by the clock of the page: twice the limit.
        for _ in range(60):
            publisher.publish_heartbeat()
            with page.expect_response("**/healthz"):
                visit.poll()
        assert page.evaluate("[...document.labels]") == ["Live"]
        visit.shows(".changed-at", "")


def test_a_feed_that_cannot_be_read_is_stale(browser: Browser, tmp_path: Path, store: Path):
    with (
        running(tmp_path, store, "--port", 0, "--max-stale", 1) as command,
        visiting(browser, command.service.port, expected=BAD_STATUS) as visit,
    ):
        visit.open(SNEK_ADA)
        becomes(visit, "Live")
        hidden = store.rename(store.with_name("hidden.db"))
        eventually(lambda: status_of(command.service) == 503)
        becomes(visit, "Stale")
        reasons = r"^(the feed was last healthy \d+\.\d seconds ago|for \d+ s: cannot be read: .*)$"
        visit.shows("#age", re.compile(reasons))
        visit.contains("#alert", "The service cannot follow its feed. The data shown may be out of date.")
        visit.has_style(".content", "filter", "grayscale(1)")
        visit.shows("#as-of", "as of slot 144999999")
        hidden.rename(store)
        becomes(visit, "Live")
        visit.has_style(".content", "filter", "none")


def test_a_feed_that_is_unreachable_is_stale_without_any_limit(browser: Browser):
    feed = FeedState(age=300)
    with visited(browser, LiveIndex(sample()), feed) as visit:
        visit.open()
        visit.shows("#connection", "Stale")
        visit.shows("#age", "for 5 min: unreachable")


def test_a_store_that_was_never_published_into_is_not_live(browser: Browser, tmp_path: Path):
    with (
        open_store(tmp_path / "market.db") as store,
        running(tmp_path, store.name, "--port", 0) as command,
        visiting(browser, command.service.port, expected=BAD_STATUS) as visit,
    ):
        visit.open()
        visit.shows("#connection", "Quiet")
        visit.shows("#age", "nothing was published yet")
        store.update(sample())
        becomes(visit, "Live")


def test_a_file_of_lines_is_live_once_a_line_arrives(browser: Browser, tmp_path: Path):
    lines = tmp_path / "books.ndjson"
    lines.write_text("".join(LINES))
    with (
        running(tmp_path, lines, "--port", 0) as command,
        visiting(browser, command.service.port) as visit,
    ):
        visit.open()
        visit.shows("#connection", "Freshness not known")
        visit.shows("#age", "")
        visit.is_visible("#as-of", expected=False)
        with lines.open("a") as file:
            file.write(line(1))
        eventually(lambda: len(command.service.pair_list().json["pairs"]) == 14)
        becomes(visit, "Live")
        visit.shows("#age", re.compile(r"^last publication \d+ s ago$"))


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, '{"error":"Not Found"}'), (200, "<html>proxy</html>"), (502, ""), (200, '{"pairs":13,"age_seconds":0.1}')],
    ids=["404", "HTML", "502", "from an older service"],
)
def test_without_a_valid_health_status_freshness_is_unknown(browser: Browser, status: int, body: str):
    live = LiveIndex(sample())
    live.update((), freshness=Freshness("slot 7"))
    with visited(browser, live, expected=BAD_STATUS) as visit:
        page = visit.open_live(SNEK_ADA)
        page.route("**/healthz", lambda route: route.fulfill(status=status, body=body))
        visit.poll()
        visit.shows("#connection", "Freshness not known")
        visit.shows("#age", "")
        visit.shows("#as-of", "as of slot 7")
        visit.shows("#alert", "")
        page.unroute("**/healthz")
        visit.poll()
        visit.is_live()


def test_the_age_rises_between_two_responses(browser: Browser):
    feed = FeedState(quiet_age=30)
    with visited(browser, LiveIndex(sample()), feed) as visit:
        page = visit.open_live()
        page.route("**/healthz", lambda _: None)  # there is no response
        visit.poll()
        # Less than the timeout of a request, to which real time adds.
        page.clock.run_for(4000)
        visit.shows("#age", re.compile(r"^last publication (3[6-9]|[45]\d) s ago$"))


@pytest.mark.parametrize("jump", [timedelta(days=1), timedelta(days=-1)], ids=["ahead", "back"])
def test_a_jump_of_the_visitors_clock_changes_nothing(browser: Browser, jump: timedelta):
    with visited(browser, LiveIndex(sample()), FeedState(quiet_age=30)) as visit:
        page = visit.open_live()
        page.evaluate(RECORD_LABELS)
        page.clock.set_system_time(datetime.now(UTC) + jump)
        for _ in range(2):
            with page.expect_response("**/healthz"):
                visit.poll()
        visit.shows("#age", re.compile(r"^last publication 3\d s ago$"))
        assert page.evaluate("[...document.labels]") == ["Live"]


def test_the_as_of_belongs_to_the_content_that_is_shown(browser: Browser):
    live = LiveIndex(sample())
    live.update((), freshness=Freshness("slot 2"))
    with visited(browser, live) as visit:
        page = visit.page
        body, headers = wire.order_book_to_json(live.current[SNEK_ADA]), {"Market-Index-As-Of": "slot 1"}
        page.route("**/order-book?*", lambda route: route.fulfill(body=body, headers=headers))
        visit.open_live(SNEK_ADA)
        visit.shows("#as-of", "as of slot 1")
        page.evaluate("location.hash = ''")
        visit.shows("#as-of", "as of slot 2")


@pytest.mark.parametrize("width", [360, 1280], ids=["phone", "desktop"])
@pytest.mark.parametrize("as_of", ["f" * 200, "<img src=x onerror=alert(1)> " * 6 + "x"], ids=["long", "hostile"])
def test_any_as_of_is_text_that_fits(browser: Browser, width: int, as_of: str):
    live = LiveIndex(sample())
    live.update((), freshness=Freshness(as_of))
    with visited(browser, live, FeedState(quiet_age=100_000), width=width) as visit:
        for pair in (None, SNEK_ADA):
            visit.open(pair)
            visit.shows("#connection", "Quiet")
            visit.shows("#as-of", f"as of {as_of}")
            visit.fits()
        visit.is_visible(".facts")
        visit.has("img", 0)
