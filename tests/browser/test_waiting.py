"""Requests of the page that wait for a change, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from market_index import LiveIndex, OrderBook, Pair
from market_index_feeds import open_store
from tests.browser.test_polling import TIMEOUTS_BY_FAKE_CLOCK, set_hidden
from tests.browser.visit import Visit, ladder_rows, visited, visiting
from tests.command import running
from tests.page import SNEK_ADA, app_with_page, sample, token
from tests.service import served
from tests.waiting import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Request, Route

BOOK = OrderBook.from_levels(SNEK_ADA, bids=[("4", 10)], asks=[("5", 30)], spot="4")
OTHER = OrderBook.from_levels(Pair(token(b"OTHER"), SNEK_ADA.quote), bids=[("1", 1)])

SPOT_BECOMES = """(text) => new Promise((resolve) => {
  const spot = document.querySelector(".facts dd");
  const check = () => { if (spot.textContent === text) { observer.disconnect(); resolve(); } };
  const observer = new MutationObserver(check);
  observer.observe(spot, { childList: true, characterData: true, subtree: true });
  globalThis.isObserving = true;
  check();
})"""
"""Resolves when the page shows a spot price."""


class Waiting:
    """An app with the page, and the number of requests that wait in it, by path."""

    def __init__(self, live: LiveIndex) -> None:
        self._app = app_with_page(live)
        self.end_waits = self._app.end_waits
        self.requests: list[str] = []
        self.open: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not any(name == b"prefer" for name, _ in scope["headers"]):
            return await self._app(scope, receive, send)
        target = f"{scope['path']}?{scope['query_string'].decode()}"
        self.requests.append(target)
        self.open.append(target)
        try:
            await self._app(scope, receive, send)
        finally:
            self.open.remove(target)
        return None

    def waits_for(self, *pairs: Pair) -> bool:
        """Whether exactly one request waits for the list, and one for the book of each pair."""
        books = [f"/trading-view/order-book?base={pair.base}&quote={pair.quote}" for pair in pairs]
        return sorted(self.open) == sorted(["/trading-view/pair-list?", *books])


@contextmanager
def waiting_page(browser: Browser, live: LiveIndex, pair: Pair | None) -> Iterator[tuple[Visit, Waiting]]:
    app = Waiting(live)
    with served(app) as service, visiting(browser, service.port) as visit:
        visit.open_live(pair)
        eventually(lambda: app.waits_for(*([pair] if pair else [])))
        yield visit, app


def test_a_price_is_shown_much_earlier_than_by_polling(browser: Browser, tmp_path: Path):
    """From the return of `update` of a store, through the feed of a real command, to the text in the browser."""
    with (
        open_store(tmp_path / "market.db") as store,
        running(tmp_path, store.name, "--port", 0) as command,
        visiting(browser, command.service.port, expected="Failed to load resource") as visit,
    ):
        store.update([BOOK])
        page = visit.open(SNEK_ADA)
        visit.is_live()
        seconds: list[float] = []
        for amount in range(1, 12):
            # A burst within the shortest interval of two requests would be shown together.
            page.wait_for_timeout(400)
            expected = f"4.{amount}1"
            with page.expect_event("console") as shown:
                page.evaluate(f"void ({SPOT_BECOMES})({expected!r}).then(() => console.debug('shown'))")
                store.update([BOOK.apply(spot=expected)])
                published = monotonic()
            assert shown.value.text == "shown"
            seconds.append(monotonic() - published)
            visit.messages.remove("shown")
        # 0.01 seconds on an idle machine, 0.2 on one with six programs per core. With polls it would be 1 second.
        assert median(seconds) < 0.5, seconds


def test_another_pair_ends_the_wait_for_the_former_one(browser: Browser):
    with waiting_page(browser, LiveIndex([BOOK, OTHER]), SNEK_ADA) as (visit, app):
        for pair in (OTHER.pair, SNEK_ADA, OTHER.pair):
            visit.page.evaluate(f"location.hash = 'base={pair.base}&quote={pair.quote}'")
            eventually(lambda pair=pair: app.waits_for(pair))  # type: ignore[misc]  # a default has no type
        visit.page.evaluate("location.hash = ''")  # a wide page then selects the first pair
        eventually(lambda: app.waits_for(SNEK_ADA))


@pytest.mark.thorough
def test_a_hidden_page_holds_no_request_and_is_current_once_it_is_shown(browser: Browser):
    live = LiveIndex([BOOK])
    with waiting_page(browser, live, SNEK_ADA) as (visit, app):
        set_hidden(visit.page, hidden=True)
        eventually(lambda: not app.open)
        before = len(visit.requested)
        visit.page.clock.run_for(60_000)
        following = BOOK.apply(bids=[("4", 11)])
        live.publish(following)
        set_hidden(visit.page, hidden=False)
        visit.becomes(visit.ladder, ladder_rows(following))
        visit.is_live()
        eventually(lambda: app.waits_for(SNEK_ADA))
        # The health, the list and the book without a wait; then the list and the book.
        assert len(visit.requested) <= before + 6


@pytest.mark.thorough
def test_a_page_that_is_opened_in_the_background_is_loaded_and_waits_for_nothing(browser: Browser):
    app = Waiting(LiveIndex([BOOK]))
    with served(app) as service, visiting(browser, service.port) as visit:
        visit.page.add_init_script("Object.defineProperty(document, 'hidden', { value: true, configurable: true });")
        visit.open_live(SNEK_ADA)
        visit.becomes(visit.ladder, ladder_rows(BOOK))
        visit.page.clock.run_for(60_000)
        assert app.requests == []
        set_hidden(visit.page, hidden=False)
        eventually(lambda: app.waits_for(SNEK_ADA))


@pytest.mark.thorough
def test_an_idle_page_sends_at_most_12_requests_a_minute(browser: Browser):
    with visited(browser, LiveIndex(sample())) as visit:
        page = visit.page
        held: list[tuple[int, Route]] = []
        requested: list[str] = []
        second = 0

        def hold(route: Route) -> None:
            if "prefer" in route.request.headers:
                held.append((second, route))
            else:
                route.fallback()

        page.route("**/trading-view/*", hold)
        visit.open_live(SNEK_ADA)
        visit.until(lambda: len(held) == 2)
        page.clock.pause_at(page.evaluate("Date.now()") + 1000)
        page.on("request", lambda request: requested.append(request.url.rpartition("/")[2][:9]))
        while second < 180:  # three minutes by the clock of the page
            second += 1
            page.clock.run_for(1000)
            while held and held[0][0] + 30 <= second:  # the service answers after 30 seconds
                held.pop(0)[1].fulfill(status=304, headers={"Preference-Applied": "wait=30"})
            page.wait_for_timeout(5)
            visit.until(lambda: page.text_content("#connection") == "Live")
        assert 3 * 8 <= len(requested) <= 3 * 12, requested
        assert {requested.count(name) // 3 for name in ("pair-list", "order-boo")} <= {1, 2}


@pytest.mark.thorough
def test_a_book_that_changes_all_the_time_is_requested_five_times_per_second(browser: Browser):
    live = LiveIndex([BOOK])
    with waiting_page(browser, live, SNEK_ADA) as (visit, app):
        started, amount = monotonic(), 10
        while monotonic() < started + 2:
            amount += 1
            live.publish(BOOK.apply(bids=[("4", amount)]))
            visit.page.wait_for_timeout(5)
        elapsed = monotonic() - started
        books = sum("order-book" in target for target in app.requests)
        assert 3 <= books <= elapsed / 0.2 + 2
        visit.becomes(visit.ladder, ladder_rows(BOOK.apply(bids=[("4", amount)])))


@pytest.mark.thorough
def test_requests_that_wait_are_confirmed_when_the_service_does_not_report_its_health(browser: Browser):
    """A service that has disappeared without closing its connections does not answer these requests."""
    with visited(browser, LiveIndex([BOOK]), expected="Failed to load resource") as visit:
        page = visit.open_live(SNEK_ADA)
        page.route("**/healthz", lambda route: route.abort())
        before = sum("pair-list" in url for url in visit.requested)
        visit.poll()
        visit.until(lambda: sum("pair-list" in url for url in visit.requested) >= before + 2)
        visit.shows("#connection", "Freshness not known")
        visit.shows("#alert", "")
        page.route("**/pair-list", lambda route: route.abort())
        visit.poll()
        visit.contains("#alert", "The service cannot be reached.")


@pytest.mark.thorough
def test_a_page_whose_requests_get_no_connection_polls(browser: Browser):
    """A browser opens six connections to a host: three windows whose requests wait use all."""
    with visited(browser, LiveIndex([BOOK]), expected="Failed to load resource") as visit:
        visit.page.add_init_script(TIMEOUTS_BY_FAKE_CLOCK)
        page = visit.open_live(SNEK_ADA)
        waiting: list[str] = []

        def note(request: Request) -> None:
            if "prefer" in request.headers:
                waiting.append(request.url)

        page.on("request", note)
        late: list[Route] = []
        page.route("**/healthz", lambda route: late.append(route))  # noqa: PLW0108  # Playwright inspects the signature, which a built-in does not have
        visit.poll()
        visit.until(lambda: bool(late))
        before = len(visit.requested)
        page.clock.run_for(10_000)
        page.unroute("**/healthz")
        visit.until(lambda: len(visit.requested) > before + 3)
        visit.poll()
        visit.is_live()
        visit.shows("#alert", "")
        assert waiting == []
