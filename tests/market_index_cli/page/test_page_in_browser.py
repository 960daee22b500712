"""The page to look at a book, as a person sees it in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair
from market_index.prices import format_price
from market_index_cli.terminal import ticker
from tests.browser import chromium, visited, visiting
from tests.command import SAMPLE, running
from tests.page import HOSTILE_NAMES, app_with_page, fixed, sample, token
from tests.service import Restartable, Service, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

SNEK = AssetId.parse("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f:534e454b")
SNEK_ADA = Pair(SNEK, ADA)

HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture(scope="module")
def sent() -> Iterator[Service]:
    with served(app_with_page(LiveIndex(sample()))) as service:
        yield service


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def as_laddered(book: OrderBook) -> list[tuple[str, str, str, str]]:
    """The rows that the ladder of a book has: asks above, the lowest nearest to the bids."""
    rows: dict[str, list[tuple[str, str, str, str]]] = {"ask": [], "bid": []}
    for side, levels in (("ask", book.asks), ("bid", book.bids)):
        total = 0
        for level in levels:
            total += level.accumulated_liquidity
            rows[side].append((side, format_price(level.price), f"{level.accumulated_liquidity:,}", f"{total:,}"))
    return [*reversed(rows["ask"]), *rows["bid"]]


def test_a_pair_is_found_by_name_and_by_identifier_and_its_ladder_read(browser: Browser, tmp_path: Path):
    with (
        running(tmp_path, SAMPLE, "--port", 0) as command,
        visiting(browser, command.service.port) as visit,
    ):
        page = visit.open()
        page.wait_for_selector("#list a")
        visit.becomes(
            visit.pairs,
            [f"{ticker(book.pair.base)}/{ticker(book.pair.quote)}" for book in LiveIndex(sample()).current.values()],
        )
        page.fill("#search", "snek")
        visit.becomes(visit.pairs, ["SNEK/ADA", "MIN/SNEK"])
        visit.shows("#count", "2 of 13 pairs")
        page.fill("#search", "min/snek")
        visit.becomes(visit.pairs, ["MIN/SNEK"])
        page.fill("#search", "279C909F348e")
        visit.becomes(visit.pairs, ["SNEK/ADA", "MIN/SNEK"])
        page.fill("#search", "nothing like that")
        visit.becomes(visit.pairs, [])
        visit.shows("#count", "No pair matches.")
        page.fill("#search", str(SNEK))
        page.get_by_role("link", name="SNEK/ADA").click()
        page.wait_for_selector(".ladder tr[data-price]")
        book = next(book for book in sample() if book.pair == SNEK_ADA)
        visit.becomes(visit.ladder, as_laddered(book))
        visit.becomes(
            visit.facts,
            {
                "Spot": "4123.5",
                "Best bid": "4123",
                "Best ask": "4124",
                "Spread": "1",
                "Mid": "4123.5",
            },
        )
        assert page.url.endswith(f"#base={SNEK}&quote=ADA")
        visit.becomes(page.title, "SNEK/ADA 4123.5 – Order books")
        visit.shows("#list a[aria-current] .name", "SNEK/ADA")
        # The identifier is a click away.
        visit.is_visible("code", expected=False)
        page.get_by_text("Identifiers").click()
        visit.becomes(page.locator("code").all_text_contents, [str(SNEK), "ADA"])
        visit.is_visible("code")


def test_every_book_of_the_sample_is_shown_as_it_is(browser: Browser, sent: Service):
    def shown(value: Decimal | None) -> str:
        return "none" if value is None else fixed(Fraction(value))

    with visiting(browser, sent.port) as visit:
        for book in sample():
            page = visit.open(book.pair)
            visit.waits_for("h2", f"{ticker(book.pair.base)}/{ticker(book.pair.quote)}")
            page.wait_for_selector(".facts")
            visit.becomes(visit.ladder, as_laddered(book))
            bid, ask = book.best_bid, book.best_ask
            visit.becomes(
                visit.facts,
                {
                    "Spot": "none yet" if book.spot is None else format_price(book.spot),
                    "Best bid": shown(bid and bid.price),
                    "Best ask": shown(ask and ask.price),
                    "Spread": shown(book.spread),
                    "Mid": shown(book.mid),
                },
            )
            one_sided = "" if bid and ask else "no bids" if ask else "no asks" if bid else "empty"
            visit.shows(".badge", ("crossed" if book.is_crossed else "locked" if book.is_locked else one_sided))
            visit.is_visible(".chart", expected=bool(bid or ask))


def test_what_no_float_could_hold_is_shown_to_the_last_digit(browser: Browser):
    most = str(2**96 - 1)
    book = OrderBook.from_levels(
        Pair(token(b"HUGE"), ADA),
        bids=[("1e-28", 2**53 + 1), ("2e-28", 2**64 - 1)],
        asks=[(most, 2**64 - 1), ("3e-28", 2**53 + 1)],
        spot=most,
    )
    with visited(browser, LiveIndex([book])) as visit:
        visit.open(book.pair).wait_for_selector(".ladder tr[data-price]")
        visit.becomes(
            visit.ladder,
            [
                ("ask", most, "18,446,744,073,709,551,615", "18,455,751,272,964,292,608"),
                ("ask", "0.0000000000000000000000000003", "9,007,199,254,740,993", "9,007,199,254,740,993"),
                ("bid", "0.0000000000000000000000000002", "18,446,744,073,709,551,615", "18,446,744,073,709,551,615"),
                ("bid", "0.0000000000000000000000000001", "9,007,199,254,740,993", "18,455,751,272,964,292,608"),
            ],
        )
        visit.becomes(lambda: visit.facts().get("Spot"), most)
        visit.becomes(lambda: visit.facts().get("Mid"), "0.00000000000000000000000000025")
        visit.becomes(lambda: visit.facts().get("Spread"), "0.0000000000000000000000000001")


def test_a_published_change_arrives_and_only_what_changed_is_written(browser: Browser):
    book = OrderBook.from_levels(SNEK_ADA, bids=[("4", 10), ("3", 20)], asks=[("5", 30)], spot="4.5")
    live = LiveIndex([book])
    with visited(browser, live) as visit:
        page = visit.open(SNEK_ADA)
        page.wait_for_selector(".ladder tr[data-price]")
        visit.shows(".changed-at", "")  # nothing has changed since the page was opened
        visit.shows(".units", "Prices: lovelace for one smallest unit of SNEK. Amounts: smallest units of SNEK.")
        page.evaluate("document.querySelector('[data-price=\"3\"]').marked = true")
        following = book.apply(bids=[("4", 0), ("3.5", 2**53 + 1)], asks=[("5", 31)], spot="5")
        live.publish(following)
        visit.waits_for(".facts", "3.5")
        visit.becomes(visit.ladder, as_laddered(following))
        visit.shows(".changed-at", re.compile("^changed "))
        visit.becomes(lambda: visit.facts().get("Spot"), "5")
        visit.waits_for("#list .spot", "5")
        assert page.evaluate("document.querySelector('[data-price=\"3\"]').marked")
        # Two rows light up: the level that is new, and the one that rests more now.
        visit.becomes(page.locator("tr.changed .price").all_text_contents, ["5", "3.5"])
        other = OrderBook.from_levels(Pair(token(b"NEW"), ADA), bids=[("1", 1)])
        live.publish(other)
        visit.waits_for("#list .name", "NEW")


def test_what_has_not_changed_is_not_sent_again(browser: Browser, sent: Service):
    with visiting(browser, sent.port) as visit:
        statuses: list[tuple[str, int]] = []
        visit.page.on("response", lambda answer: statuses.append((answer.url.rpartition("/")[2][:9], answer.status)))
        visit.open(SNEK_ADA).wait_for_selector(".ladder tr[data-price]")
        visit.until(lambda: statuses.count(("order-boo", 304)) >= 2)
        assert statuses.count(("order-boo", 200)) == 1
        assert statuses.count(("pair-list", 200)) == 1


def test_nothing_is_asked_while_nobody_looks(browser: Browser, sent: Service):
    with visiting(browser, sent.port) as visit:
        visit.page.clock.install()
        page = visit.open(SNEK_ADA)
        visit.shows("#connection", "Live")
        page.evaluate(HIDE, True)
        before = len(visit.asked)
        page.clock.run_for(60_000)
        assert len(visit.asked) == before
        page.evaluate(HIDE, False)
        visit.until(lambda: len(visit.asked) > before)
        visit.shows("#connection", "Live")


def test_what_nobody_looked_at_for_a_while_counts_as_old_until_it_is_confirmed(browser: Browser, sent: Service):
    with visiting(browser, sent.port) as visit:
        page = visit.open(SNEK_ADA)
        page.wait_for_selector(".ladder tr[data-price]")
        page.evaluate(HIDE, True)
        held: list[Route] = []
        page.route("**/trading-view/*", lambda route: held.append(route))  # noqa: PLW0108  # no built-in is taken
        page.evaluate("window.now = Date.now; Date.now = () => now() + 60000")
        page.evaluate(HIDE, False)
        visit.shows("#connection", "Connecting…")
        visit.shows(".changed-at", re.compile("^as it was at "))
        page.evaluate("Date.now = now")
        page.unroute("**/trading-view/*")
        for route in held:
            route.fallback()
        visit.waits_for("#connection", "Live")
        visit.shows(".changed-at", "")


def test_a_service_that_hangs_is_given_up_after_a_while(browser: Browser, sent: Service):
    with visiting(browser, sent.port, expected="Failed to load resource") as visit:
        visit.page.route("**/trading-view/pair-list", lambda _: None)
        visit.open()
        visit.waits_for("#trouble", "The service does not answer.")


def test_crossed_and_locked_books_are_marked_and_explained(browser: Browser):
    crossed = OrderBook.from_levels(
        Pair(token(b"CROSSED"), ADA), bids=[("6", 10), ("4", 1)], asks=[("5", 30), ("7", 1)]
    )
    locked = OrderBook.from_levels(Pair(token(b"LOCKED"), ADA), bids=[("5", 10)], asks=[("5", 30)])
    live = LiveIndex([crossed, locked])
    with visited(browser, live) as visit:
        visit.open(crossed.pair).wait_for_selector(".ladder tr[data-price]")
        visit.shows(".badge", "crossed")
        visit.waits_for("article", "The best bid, 6, is above the best ask, 5.")
        visit.becomes(lambda: visit.facts().get("Spread"), "-1")
        visit.becomes(visit.page.locator(".chart .spread.crossed").count, 1)
        visit.page.get_by_role("link", name="LOCKED").click()
        visit.waits_for(".badge", "locked")
        visit.waits_for("article", "the same price, 5")
        visit.becomes(lambda: visit.facts().get("Spread"), "0")
        live.publish(locked.apply(bids=[("5", 0), ("4", 1)]))
        visit.waits_for(".facts", "4.5")
        visit.shows(".badge", "")
        visit.is_visible("article .notice", expected=False)


def test_hostile_names_are_text_and_harmless(browser: Browser):
    live = LiveIndex(
        OrderBook.from_levels(Pair(token(name, number), token(name, 500)), bids=[("1", 1)])
        for number, name in enumerate(HOSTILE_NAMES, 1)
    )
    with visited(browser, live) as visit:
        page = visit.open()
        page.wait_for_selector("#list a")
        called = [ticker(token(name, number)) for number, name in enumerate(HOSTILE_NAMES, 1)]
        quotes = [ticker(token(name, 500)) for name in HOSTILE_NAMES]
        visit.becomes(visit.pairs, [f"{one}/{other}" for one, other in zip(called, quotes, strict=True)])
        for number, name in enumerate(HOSTILE_NAMES, 1):
            page.locator("#list a").nth(number - 1).click()
            visit.waits_for("h2", called[number - 1])
            visit.shows("h2", f"{called[number - 1]}/{quotes[number - 1]}")
            visit.becomes(page.locator("code").all_text_contents, [str(token(name, number)), str(token(name, 500))])
        assert page.evaluate("document.x") is None
        assert page.locator("img, main script, nav script, #list svg").count() == 0
        # Each of the two stands by itself, so that none is shown in the other's direction.
        assert page.locator("h2 > bdi").count() == 2


def test_a_pair_that_vanishes_is_told_of_and_comes_back(browser: Browser):
    book = OrderBook.from_levels(SNEK_ADA, bids=[("4", 10)], asks=[("5", 30)])
    other = OrderBook.from_levels(Pair(token(b"STAYS"), ADA), bids=[("1", 1)])
    live = LiveIndex([book, other])
    with visited(browser, live) as visit:
        visit.open(SNEK_ADA).wait_for_selector(".ladder tr[data-price]")
        live.retract(SNEK_ADA)
        visit.waits_for("#state", "This pair is no longer tracked. Its last order book is shown.")
        visit.becomes(visit.ladder, as_laddered(book))
        visit.shows(".changed-at", re.compile("^as it was at "))
        visit.becomes(visit.pairs, ["STAYS/ADA"])
        following = book.apply(bids=[("4", 11)])
        live.publish(following)
        visit.waits_for(".ladder", "11")
        visit.shows("#state", "")
        visit.becomes(visit.ladder, as_laddered(following))


def test_links_to_what_is_not_there_say_so(browser: Browser):
    live = LiveIndex([OrderBook.from_levels(Pair(token(b"STAYS"), ADA), bids=[("1", 1)])])
    with visited(browser, live) as visit:
        page = visit.open(SNEK_ADA)
        visit.waits_for("#state", "This pair is not tracked.")
        visit.shows("h2", "SNEK/ADA")
        visit.is_visible(".ladder", expected=False)
        page.goto(f"http://127.0.0.1:{visit.port}/#base=lovelace&quote=<script>")
        visit.waits_for("#state", "The address of this page names no pair.")
        live.publish(OrderBook.from_levels(SNEK_ADA, bids=[("4", 10)]))
        # Either case is read, as by the API.
        page.goto(f"http://127.0.0.1:{visit.port}/#base={str(SNEK).upper()}&quote=ADA")
        visit.waits_for(".ladder", "10")
        page.go_back()
        visit.waits_for("#state", "The address of this page names no pair.")


def test_empty_books_and_an_empty_index_say_that_they_are(browser: Browser):
    live = LiveIndex()
    with visited(browser, live) as visit:
        page = visit.open()
        visit.waits_for("#count", "No pair is tracked yet.")
        visit.waits_for("#state", "The first that is published will be shown here.")
        book = OrderBook.from_levels(SNEK_ADA)
        live.publish(book)
        visit.waits_for("#count", "1 pair")
        page.get_by_role("link", name="SNEK/ADA").click()
        visit.waits_for("article .notice", "Nothing rests on either side of this book.")
        visit.is_visible(".ladder", expected=False)
        visit.becomes(
            visit.facts,
            {
                "Spot": "none yet",
                "Best bid": "none",
                "Best ask": "none",
                "Spread": "none",
                "Mid": "none",
            },
        )
        live.publish(book.apply(asks=[("5", 1)]))
        visit.waits_for("article .notice", "Nobody bids")
        visit.becomes(visit.ladder, [("ask", "5", "1", "1")])
        visit.becomes(page.locator(".chart path.line").count, 1)


def test_a_service_that_goes_is_told_of_and_what_was_good_stays_until_it_is_back(browser: Browser):
    book = OrderBook.from_levels(SNEK_ADA, bids=[("4", 10)], asks=[("5", 30)])
    live = LiveIndex([book])
    server = Restartable(app_with_page(live))
    try:
        # The browser itself notes each refused connection.
        with visiting(browser, server.port, expected="net::ERR_") as visit:
            visit.open(SNEK_ADA).wait_for_selector(".ladder tr[data-price]")
            visit.shows("#connection", "Live")
            server.stop()
            visit.waits_for("#trouble", "The service cannot be reached. No answer since ")
            visit.shows("#connection", "No answer")
            visit.becomes(visit.ladder, as_laddered(book))
            visit.shows(".changed-at", re.compile("^as it was at "))
            following = book.apply(bids=[("4", 12)])
            live.publish(following)
            server.start()
            visit.waits_for(".ladder", "12")
            visit.shows("#trouble", "")
            visit.shows("#connection", "Live")
            visit.becomes(visit.ladder, as_laddered(following))
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (503, "busy", "The service answers with an error (503)."),
        (404, "{}", "There is no service at this address."),
        (200, "<html>proxy</html>", "The service answers with what is no answer of the API."),
        (
            200,
            '{"pairs":[{"base":"ADA","quote":"x","last_spot":1.5}]}',
            "The service answers with what is no answer of the API.",
        ),
    ],
)
def test_answers_that_are_none_are_told_of(browser: Browser, sent: Service, status: int, body: str, said: str):
    with visiting(browser, sent.port, expected="Failed to load resource") as visit:
        visit.page.route("**/trading-view/pair-list", lambda route: route.fulfill(status=status, body=body))
        visit.open()
        visit.waits_for("#trouble", said)
        visit.shows("#connection", "No answer")


def test_a_book_that_does_not_come_leaves_the_one_before_marked_as_old(browser: Browser):
    live = LiveIndex([OrderBook.from_levels(SNEK_ADA, bids=[("4", 10)])])
    with visited(browser, live) as visit:
        page = visit.open(SNEK_ADA)
        page.wait_for_selector(".ladder tr[data-price]")
        rounded = '{"base":"x","quote":"ADA","spot":null,"bids":[{"price":"4","accumulated_liquidity":1e20}],"asks":[]}'
        page.route("**/order-book?*", lambda route: route.fulfill(status=200, body=rounded))
        visit.waits_for("#trouble", "what is no answer of the API. No answer since ")
        visit.becomes(visit.ladder, [("bid", "4", "10", "10")])
        page.unroute("**/order-book?*")
        page.locator("#trouble:empty").wait_for(state="attached")


def test_the_keyboard_is_enough(browser: Browser, sent: Service):
    with visiting(browser, sent.port) as visit:
        page = visit.open()
        page.wait_for_selector("#list a")

        def focused() -> str:
            return str(
                page.evaluate("document.activeElement.id || document.activeElement.querySelector('.name')?.textContent")
            )

        first = visit.pairs()[0]
        page.keyboard.press("ArrowDown")
        visit.becomes(focused, first)
        page.keyboard.press("/")
        visit.becomes(focused, "search")
        page.keyboard.type("ada/")
        visit.shows("#search + kbd", "/")
        page.keyboard.press("Escape")
        visit.becomes(lambda: (page.input_value("#search"), focused()), ("", first))
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        visit.becomes(focused, visit.pairs()[2])
        page.keyboard.press("End")
        visit.becomes(focused, visit.pairs()[-1])
        page.keyboard.press("ArrowDown")
        visit.becomes(focused, visit.pairs()[-1])
        page.keyboard.press("PageUp")
        visit.becomes(focused, visit.pairs()[2])
        page.keyboard.press("Home")
        page.keyboard.press("Enter")
        page.wait_for_selector(".ladder tr[data-price]")
        visit.shows("h2", visit.pairs()[0])
        # The focus stays where it was, so that one may go on.
        visit.becomes(focused, visit.pairs()[0])
        page.keyboard.press("ArrowUp")
        visit.becomes(focused, "search")
        page.keyboard.type("min/sn")
        page.keyboard.press("Enter")
        visit.waits_for("h2", "MIN/SNEK")
        page.keyboard.press("ArrowDown")
        visit.becomes(focused, "MIN/SNEK")
        # One stop for the whole list, then what belongs to the book.
        page.keyboard.press("Tab")
        visit.becomes(lambda: page.evaluate("document.activeElement.tagName"), "SUMMARY")
        page.keyboard.press("Enter")
        visit.is_visible("code")
        page.keyboard.press("Shift+Tab")
        visit.becomes(focused, "MIN/SNEK")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"


def test_the_list_stays_where_it_is_while_pairs_come_and_go(browser: Browser):
    live = LiveIndex(OrderBook.from_levels(Pair(token(b"T", number), ADA)) for number in range(100, 200))
    with visited(browser, live) as visit:
        page = visit.open()
        page.wait_for_selector("#list a")

        def focused() -> str:
            return str(page.evaluate("document.activeElement.dataset.key"))

        page.locator("#list a").nth(50).focus()
        visit.becomes(focused, str(Pair(token(b"T", 150), ADA)))
        before = page.evaluate("document.getElementById('list').scrollTop")
        assert before > 0
        live.publish(OrderBook.from_levels(Pair(token(b"T", 199), token(b"T", 99))), OrderBook.from_levels(SNEK_ADA))
        visit.waits_for("#count", "102 pairs")
        visit.becomes(focused, str(Pair(token(b"T", 150), ADA)))
        assert page.evaluate("document.getElementById('list').scrollTop") == before
        live.retract(Pair(token(b"T", 150), ADA))
        visit.waits_for("#count", "101 pairs")
        visit.becomes(focused, str(Pair(token(b"T", 100), ADA)))


def test_an_identifier_is_copied(browser: Browser, sent: Service):
    with visiting(browser, sent.port, permissions=["clipboard-read", "clipboard-write"]) as visit:
        page = visit.open(SNEK_ADA)
        page.get_by_text("Identifiers").click()
        page.get_by_role("button", name="Copy the identifier of the base asset").click()
        visit.waits_for(".identifiers button", "Copied")
        assert page.evaluate("navigator.clipboard.readText()") == str(SNEK)
    with visiting(browser, sent.port) as visit:
        page = visit.open(SNEK_ADA)
        page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        page.get_by_text("Identifiers").click()
        page.get_by_role("button", name="Copy the identifier of the base asset").click()
        visit.waits_for(".identifiers button", "Selected")
        assert page.evaluate("String(getSelection())") == str(SNEK)


def test_ten_thousand_pairs_can_be_looked_through(browser: Browser):
    live = LiveIndex(
        OrderBook.from_levels(
            Pair(token(f"T{number:05}".encode(), number), ADA), bids=[("1", number)], spot=str(number)
        )
        for number in range(1, 10_001)
    )
    with visited(browser, live) as visit:
        page = visit.open()
        page.wait_for_selector("#list a")
        visit.shows("#count", "10,000 pairs")
        visit.becomes(visit.page.locator("#list .name").count, 200)
        visit.shows("#more", re.compile(r"^9,800 more: narrow the search\."))
        page.get_by_role("button", name="Show more").click()
        visit.becomes(visit.page.locator("#list .name").count, 400)
        assert page.evaluate("document.activeElement.dataset.key").startswith(str(token(b"T00201", 201)))
        for text in ("T0", "T09", "T0999", "T09999"):
            page.fill("#search", text)
        visit.becomes(visit.pairs, ["T09999/ADA"])
        page.get_by_role("link", name="T09999/ADA").click()
        visit.waits_for(".ladder", "9,999")
        # A change of another pair, in a list of as many.
        live.publish(OrderBook.from_levels(Pair(token(b"T09999", 9999), ADA), bids=[("1", 5)], spot="0.5"))
        visit.waits_for("#list .spot", "0.5")


def test_a_deep_book_is_shown_from_the_middle_and_more_where_asked_for(browser: Browser):
    book = OrderBook.from_levels(
        SNEK_ADA,
        bids=[(str(5000 - number), number) for number in range(1, 4001)],
        asks=[(str(5000 + number), number) for number in range(1, 4001)],
    )
    with visited(browser, LiveIndex([book])) as visit:
        page = visit.open(SNEK_ADA)
        page.wait_for_selector(".ladder tr[data-price]")
        visit.becomes(visit.ladder, as_laddered(book.depth(15)))
        page.get_by_role("button", name="3,985 more bids below: show 100").click()
        visit.becomes(visit.ladder, [*as_laddered(book.depth(15))[:15], *as_laddered(book.depth(115))[115:]])
        page.get_by_role("button", name="3,985 more asks above: show 100").click()
        visit.becomes(visit.ladder, as_laddered(book.depth(115)))


def test_the_totals_of_a_crossed_book_count_the_best_levels_that_the_chart_does_not_reach(browser: Browser):
    bids = [("100", 7), *((f"54.{number}", 1_000) for number in range(90, 100))]
    asks = [("10", 5), *((f"55.{number:02}", 1_000) for number in range(1, 11))]
    with visited(browser, LiveIndex([OrderBook.from_levels(SNEK_ADA, bids, asks)])) as visit:
        page = visit.open(SNEK_ADA)
        page.wait_for_selector(".chart path.line")
        assert page.locator(".chart").get_attribute("aria-label") == (
            "Depth chart: bids from 54.99 to 54.9, 10,007 in all; asks from 55.01 to 55.1, 10,005 in all."
        )
        across = page.locator(".chart rect.crossed").get_attribute("width")
        assert float(across or 0) > 100  # from one end to the other


def test_a_chart_with_room_for_one_round_price_is_drawn_on_a_phone(browser: Browser):
    book = OrderBook.from_levels(
        SNEK_ADA,
        bids=[("0.0000000001", 10**7), ("0.000000021", 10**7)],
        asks=[("0.000000022", 10**7), ("0.000000043", 10**7)],
    )
    live = LiveIndex([book])
    with visited(browser, live) as visit:
        for width in (320, 360, 390):
            visit.page.set_viewport_size({"width": width, "height": 800})
            page = visit.open(SNEK_ADA)
            page.wait_for_selector(".chart path.line")
        live.publish(book.apply(bids=[("0.000000021", 777)]))
        visit.waits_for(".ladder", "777")


def test_a_chart_that_fails_takes_nothing_else_with_it(browser: Browser):
    book = OrderBook.from_levels(SNEK_ADA, bids=[("1", 5)], asks=[("2", 6)])
    live = LiveIndex([book])
    with visited(browser, live, expected="no drawing today") as visit:
        page = visit.open(SNEK_ADA)
        page.wait_for_selector(".chart path.line")
        page.evaluate("void (SVGElement.prototype.setAttribute = () => { throw new Error('no drawing today') })")
        live.publish(book.apply(bids=[("1", 777)]))
        visit.waits_for(".ladder", "777")
        live.publish(book.apply(bids=[("1", 778)]))
        visit.waits_for(".ladder", "778")


def test_the_chart_tells_of_both_sides_and_of_the_level_that_is_pointed_at(browser: Browser):
    book = OrderBook.from_levels(
        SNEK_ADA, bids=[("4", 2**53 + 1), ("3", 20)], asks=[("5", 30), ("6", 2**64 - 1), ("1000", 1)], spot="4.6"
    )
    with visited(browser, LiveIndex([book])) as visit:
        page = visit.open(SNEK_ADA)
        page.wait_for_selector(".chart path.line")
        assert page.locator(".chart").get_attribute("aria-label") == (
            "Depth chart: bids from 4 to 3, 9,007,199,254,741,013 in all; "
            "asks from 5 to 6, 18,446,744,073,709,551,645 in all."
        )
        visit.becomes(page.locator(".chart text.mark").all_text_contents, ["mid 4.5", "spot 4.6"])
        visit.shows(".depth-panel .remark", "1 level lies farther from the middle than the chart reaches.")
        box = page.locator(".chart").bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 100)
        visit.shows(".reading", "Asks to 6: 18,446,744,073,709,551,645")
        page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 100)
        visit.shows(".reading", "Bids to 4: 9,007,199,254,740,993")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_it_fits_a_phone_a_tablet_and_a_desk(browser: Browser, width: int, scheme: str):
    wide = OrderBook.from_levels(
        Pair(token(b"W" * 32), token(b"M" * 32, 2)),
        bids=[("1e-28", 2**64 - 1), ("2e-28", 2**64 - 1)],
        asks=[(str(2**96 - 1), 2**64 - 1)],
        spot=str(2**96 - 1),
    )
    settings: dict[str, Any] = {"width": width, "color_scheme": scheme, "reduced_motion": "reduce"}
    with visited(browser, LiveIndex([*sample(), wide]), **settings) as visit:
        page = visit.open()
        page.wait_for_selector("#list a")

        def fits() -> bool:
            return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))

        assert fits()
        for pair in (wide.pair, SNEK_ADA):
            page.locator(f"#list a[data-key='{pair}']").click()
            page.wait_for_selector(".ladder tr[data-price]")
            assert fits()
            clipped = page.locator(".panel, .ladder td, .facts, .facts dd").evaluate_all(
                "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent)"
            )
            assert clipped == []
            # Beside the book on a wide screen; on a narrow one, one after the other.
            visit.is_visible("#list", expected=(width > 700))
            if width < 700:
                page.keyboard.press("/")
                page.keyboard.type("w")
                assert page.input_value("#search") == "w"
                page.fill("#search", "")
                page.go_back()
                page.wait_for_selector(".ladder tr[data-price]")
                page.get_by_role("link", name="All pairs").click()
                visit.is_visible("#list")
                visit.is_visible("article", expected=False)


def test_it_works_below_a_path_of_a_proxy(browser: Browser):
    live = LiveIndex(sample())
    app = Starlette(routes=[Mount("/market/books", app_with_page(live))])
    with served(app) as service, visiting(browser, service.port) as visit:
        visit.open(SNEK_ADA, "/market/books/").wait_for_selector(".ladder tr[data-price]")
        visit.becomes(lambda: visit.facts().get("Spot"), "4123.5")
