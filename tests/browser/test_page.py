"""The page in a real browser: what modules do together. `tests/market_index_cli/page` has their states in tables."""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from market_index import ADA, Freshness, LiveIndex, OrderBook, Pair, Side
from market_index.display import Token, Tokens
from market_index_cli.tokens import Display, ticker
from market_index_http.operating import Health
from tests.browser.visit import axe, ladder_rows, visited, visiting
from tests.feed_state import FeedState
from tests.page import HOSTILE_NAMES, SNEK, SNEK_ADA, app_with_page, sample, token, widest
from tests.service import Restartable, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BOOK = OrderBook.from_levels(SNEK_ADA, bids=[("4", 10), ("3", 20)], asks=[("5", 30)], spot="4.5")
CROSSED = OrderBook.from_levels(Pair(ADA, token(b"CROSSED")), bids=[("6", 10)], asks=[("5", 30)], spot="6")
OTHER = OrderBook.from_levels(Pair(token(b"OTHER"), ADA), bids=[("1", 1)])


def test_the_first_readable_book_is_shown_and_each_change_of_it(browser: Browser):
    live = LiveIndex([CROSSED, BOOK])
    with visited(browser, live, expected="net::ERR_") as visit:
        page = visit.open_live()
        visit.becomes(visit.pairs, ["ADA/CROSSED", "SNEK/ADA"])
        visit.shows("#title", "SNEK/ADA")
        visit.becomes(visit.ladder, ladder_rows(BOOK))
        assert page.url.endswith(f"#base={SNEK}&quote=ADA")
        page.evaluate("document.querySelector('.bids tr:last-child').isKept = true")
        # The list, too, has the price of the stream.
        page.route("**/summary", lambda route: route.abort())
        following = BOOK.apply(bids=[("4", 0), ("3.5", 12)], asks=[("5", 31)], spot="5")
        live.publish(following)
        # Two rows are marked: the new level, and the one whose amount grew.
        visit.becomes(visit.marked, ["5", "3.5"])
        visit.becomes(visit.ladder, ladder_rows(following))
        visit.shows(".changed-at", re.compile("^changed "))
        visit.becomes(lambda: visit.facts().get("Spot"), "5")
        visit.is_visible('.facts [data-move="up"]')
        visit.becomes(page.locator("#list .spot").all_text_contents, ["6", "5"])
        visit.becomes(page.locator("#list .spread").all_text_contents, ["crossed", "35.3 %"])
        page.unroute("**/summary")
        visit.becomes(lambda: page.evaluate("document.querySelector('.bids tr:last-child').isKept"), True)
        # Another first pair does not replace what the visitor reads.
        live.publish(CROSSED.apply(bids=[("6", 0), ("4", 1)]), OTHER)
        visit.poll()
        visit.becomes(lambda: len(visit.pairs()), 3)
        visit.shows("#title", "SNEK/ADA")


def test_a_level_changes_on_the_page_and_again_after_a_restart_without_a_reload(browser: Browser):
    live = LiveIndex([BOOK])
    server = Restartable(app_with_page(live))
    try:
        # The browser itself reports each failed connection.
        with visiting(browser, server.port, expected="net::ERR_") as visit:
            visit.open_live(SNEK_ADA)
            live.publish(BOOK.apply(bids=[("4", 11)]))
            visit.becomes(visit.marked, ["4"])
            live.publish(BOOK)
            visit.becomes(visit.ladder, ladder_rows(BOOK))
            server.stop()
            visit.poll()
            visit.contains("#alert", "The service cannot be reached: Failed to fetch. No response since ")
            visit.shows("#connection", "No answer")
            visit.becomes(visit.ladder, ladder_rows(BOOK))
            visit.is_visible("article.old")
            # A screen that is turned keeps the book.
            for width in (390, 1280):
                visit.page.set_viewport_size({"width": width, "height": 800})
                visit.is_visible(".ladder")
            following = BOOK.apply(bids=[("4", 12)])
            live.publish(following)
            server.start()
            visit.poll()
            visit.becomes(visit.ladder, ladder_rows(following))
            visit.shows("#alert", "")
            visit.is_live()
    finally:
        server.stop()


@pytest.mark.thorough
def test_every_book_is_shown_as_on_the_terminal(browser: Browser):
    books, display = [*sample(), widest()], Display(is_exact=False)
    with visited(browser, LiveIndex(books)) as visit:
        for book in books:
            page = visit.open(book.pair)
            visit.shows("#title", f"{ticker(book.pair.base)}/{ticker(book.pair.quote)}")
            grouped = book
            if book.bids or book.asks:
                step = Decimal(1).scaleb((book.bids or book.asks)[0].price.adjusted() - 5)
                grouped = book.grouped(max(step, Decimal("1e-28")))
            sides = [*((Side.ASK, one) for one in reversed(grouped.asks)), *((Side.BID, one) for one in grouped.bids)]
            prices = [display.price(book.pair, one.price, side, 9) for side, one in sides]
            visit.becomes(lambda: [row[0] for row in visit.ladder()], prices)
            bests = [(book.best_bid, Side.BID), (book.best_ask, Side.ASK)]
            facts = [(book.spot, None), *((one and one.price, side) for one, side in bests)]
            texts = [display.price(book.pair, price, side) for price, side in facts]
            found = [visit.facts().get(name) for name in ("Spot", "Best bid", "Best ask")]
            assert found == [one if one != "-" else "none" for one in texts]
            # The list has the same prices.
            row = page.locator("#list li", has=page.locator(f"[data-key='{book.pair}']"))
            listed = [row.locator(f".{name}").text_content() for name in ("spot", "bid", "ask")]
            assert listed == [
                one if one != "-" else f"no {name}" for one, name in zip(texts, ("spot", "bid", "ask"), strict=True)
            ]
            visit.is_visible(".chart", expected=bool(book.bids or book.asks))


VISIBLE_ROWS = """() => {
  const { top, bottom } = document.querySelector(".levels").getBoundingClientRect();
  const isVisible = (row) => row.getBoundingClientRect().top >= top && row.getBoundingClientRect().bottom <= bottom;
  return ["asks", "bids"].map((side) => [...document.querySelectorAll(`.${side} tr[style]`)].filter(isVisible).length);
}"""


@pytest.mark.thorough
def test_both_sides_are_visible_around_the_middle_until_the_visitor_scrolls_away(browser: Browser):
    bids, asks = (
        [(str(base + step * number), 10 + number) for number in range(40)] for base, step in ((900, -1), (1000, 1))
    )
    book = OrderBook.from_levels(SNEK_ADA, bids=bids, asks=asks)
    live = LiveIndex([book])
    with visited(browser, live) as visit:
        page = visit.open_live(SNEK_ADA)
        visit.has(".ladder tr[style]", 80)
        shown_asks, shown_bids = page.evaluate(VISIBLE_ROWS)
        assert min(shown_asks, shown_bids) >= 5
        assert abs(shown_asks - shown_bids) <= 2, "the header may cover one"
        # Rows above the middle do not move it.
        live.publish(book := book.apply(asks=[(f"1000.{number}", 1) for number in range(1, 9)]))
        visit.has(".ladder tr[style]", 88)
        assert page.evaluate(VISIBLE_ROWS) == [shown_asks, shown_bids]
        page.evaluate("document.querySelector('.levels').scrollTop = 0")
        live.publish(book.apply(bids=[("900", 11)]))
        visit.becomes(lambda: "900" in visit.marked(), True)
        assert page.evaluate("document.querySelector('.levels').scrollTop") == 0


@pytest.mark.thorough
def test_an_order_is_understood_as_it_is_typed_and_a_level_fills_it_in(browser: Browser):
    live = LiveIndex([BOOK, OTHER])
    with visited(browser, live) as visit:
        page, unit = visit.open_live(SNEK_ADA), "smallest units of \u2068SNEK\u2069"
        amount = page.get_by_role("textbox", name="Amount")
        before = page.locator(".ladder-panel").bounding_box()
        amount.fill("12")
        visit.shows(".understood", f"= 12 {unit}")
        visit.contains(".result", f"Buying 12 {unit} costs 60 lovelace")
        assert page.locator(".ladder-panel").bounding_box() == before, "the levels do not move"
        # Nothing is announced or wrong before the visitor leaves the field.
        amount.fill("1,500")
        visit.shows(".result", "")
        visit.shows(".announced", "")
        amount.blur()
        for selector in (".result", ".announced"):
            visit.shows(selector, "1,500 has two meanings: type 1500 or 1.500.")
        visit.becomes(lambda: amount.get_attribute("aria-invalid"), "true")
        page.get_by_role("combobox", name="Order").select_option("Sell")
        page.get_by_role("combobox", name="Asset of the amount").select_option("lovelace")
        amount.fill("40")
        amount.blur()
        visit.contains(".announced", f"= 40 lovelace Selling 10 {unit}")
        # An announcement is not repeated by each change of the book.
        live.publish(BOOK.apply(bids=[("4", 8)]))
        visit.contains(".result", "Selling 11 ")
        visit.contains(".announced", "Selling 10 ")
        page.locator(".bids tr[style]").last.click()
        visit.becomes(amount.input_value, "28")
        # It is no amount of another token.
        page.locator("#list a", has_text="OTHER").click()
        visit.shows("#title", "OTHER/ADA")
        visit.becomes(amount.input_value, "")


@pytest.mark.thorough
def test_a_book_without_a_stream_is_polled_and_names_are_requested_once(browser: Browser):
    live = LiveIndex([BOOK])
    with (
        served(app_with_page(live)) as service,
        visiting(browser, service.port, expected="net::ERR_") as visit,
    ):
        visit.page.route("**/stream?*", lambda route: route.abort())
        page = visit.open_live(SNEK_ADA)
        visit.shows("#transport", "no stream: polled")
        live.publish(BOOK.apply(bids=[("4.5", 11)]))
        visit.poll()
        visit.becomes(visit.marked, ["4.5"])
        assert sum(url.endswith("/tokens") for url in visit.requested) == 1
        live.publish(OTHER)
        visit.poll()
        visit.becomes(lambda: len(visit.pairs()), 2)
        assert sum(url.endswith("/tokens") for url in visit.requested) == 2, "an unknown asset has appeared"
        page.unroute("**/stream?*")
        visit.poll()
        visit.shows("#transport", "stream: each change as it happens")


NAMES = "all => all.map((one) => one.firstChild.textContent)"


@pytest.mark.thorough
def test_hostile_names_are_harmless_text(browser: Browser):
    pairs = [Pair(token(name, number), token(name, 500)) for number, name in enumerate(HOSTILE_NAMES, 1)]
    live = LiveIndex(OrderBook.from_levels(pair, bids=[("1", 1)]) for pair in pairs)
    names = [f"{ticker(pair.base)}/{ticker(pair.quote)}" for pair in pairs]
    with visited(browser, live) as visit:
        page = visit.open_live()
        visit.becomes(lambda: sorted(visit.pairs()), sorted(names))
        for number, pair in enumerate(pairs):
            page.locator(f"#list a[data-key='{pair}']").dispatch_event("click")
            visit.becomes(page.locator("code").all_text_contents, [str(pair.base), str(pair.quote)])
            assert "/".join(page.locator("#title bdi").evaluate_all(NAMES)) == names[number]
        assert page.evaluate("document.x") is None
        assert page.locator("img, main script, nav script, #list svg").count() == 0
        # Each name is isolated, so that neither changes the direction of the other.
        assert page.locator("#title > bdi").count() == 2


TYPE_FAST = """(search, texts) => {
  for (const text of texts) {
    search.value = text;
    search.dispatchEvent(new Event("input"));
  }
  search.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
}"""


@pytest.mark.thorough
def test_the_keyboard_searches_and_everything_has_a_name(browser: Browser):
    many = [OrderBook(Pair(token(b"T%05d" % at, at), ADA)) for at in range(1, 1001)]
    with visited(browser, LiveIndex([*sample(), *many])) as visit:
        page = visit.open_live()
        visit.shows("#count", "1,013 pairs")
        visit.has("#list .name", 500)
        visit.shows("#more", "513 more pairs are not shown: search for them.")
        page.fill("#search", "nothing like it")
        visit.shows("#count", "No pair matches.")
        page.fill("#search", "")
        page.get_by_role("combobox", name="Sort").select_option("by liquidity")
        visit.becomes(lambda: visit.pairs()[0], "HOSKY/ADA")
        # Enter opens what is found by the last letter, however fast a visitor types.
        page.locator("#search").evaluate(TYPE_FAST, ["min", "min/sn"])
        visit.shows("#title", "MIN/SNEK")
        unnamed = page.locator("button, input, select, a").evaluate_all(
            "all => all.filter((one) => !(one.ariaLabel || one.textContent.trim() || one.labels?.length)).length"
        )
        assert unnamed == 0


@pytest.mark.thorough
def test_a_link_has_the_step_and_a_reversed_pair_leads_to_the_other(browser: Browser):
    with visited(browser, LiveIndex([BOOK])) as visit:
        page = visit.open(Pair(ADA, SNEK))
        visit.contains("#state", "Its reverse is tracked: SNEK/ADA")
        visit.shows("#connection", "Not tracked")
        page.locator("#state a").click()
        visit.becomes(visit.ladder, ladder_rows(BOOK))
        # A step of 1 or less changes no price, and one of 5 would leave none.
        options = page.get_by_role("combobox", name="Price step").locator("option")
        visit.becomes(lambda: options.all_text_contents()[:2], ["finest", "2"])
        page.get_by_role("combobox", name="Price step").select_option("2")
        visit.becomes(lambda: page.url.partition("#")[2], f"base={SNEK}&quote=ADA&step=2")
        visit.becomes(lambda: [row[0] for row in visit.ladder()], ["6", "4", "2"])
        # Key figures are never grouped.
        assert [visit.facts()[name] for name in ("Best bid", "Best ask")] == ["4", "5"]


@pytest.mark.thorough
@pytest.mark.parametrize("width", [320, 768, 1440])
def test_the_page_fits_any_screen_below_the_path_of_a_proxy(browser: Browser, width: int):
    wide = widest()
    app = Starlette(routes=[Mount("/market/books", app_with_page(LiveIndex([*sample(), wide])))])
    with served(app) as service, visiting(browser, service.port, width=width, reduced_motion="reduce") as visit:
        visit.open(SNEK_ADA, "/market/books/")
        visit.is_visible(".ladder")
        # Only a ladder with numbers of the maximum length is wider than its panel.
        assert visit.page.locator(".panel").first.evaluate("one => one.scrollWidth <= one.clientWidth")
        page = visit.open(None, "/market/books/")
        visit.is_live()
        visit.fits()
        page.locator(f"#list a[data-key='{wide.pair}']").click()
        visit.shows("article code >> nth=0", str(wide.pair.base))
        visit.is_visible(".facts")  # hidden until the book arrives
        visit.has(".chart path.line", 2)
        # On a phone there is room for either the list or the book.
        visit.is_visible("#list", expected=width > 700)
        visit.fits()
        if width < 700:
            page.get_by_role("link", name="All pairs").click()
            visit.is_visible("#list")
            visit.is_visible("article", expected=False)


HEADINGS = ["Price \u2068SNEK\u2069", "Amount \u2068ADA\u2069", "Value \u2068SNEK\u2069", "Total \u2068SNEK\u2069"]


@pytest.mark.thorough
def test_whole_units_are_those_of_the_registry(browser: Browser):
    book = OrderBook.from_levels(Pair(ADA, SNEK), bids=[("4123", 1_500_000), ("4122", 250_000)], spot="4123.5")
    tokens = Tokens([Token(SNEK, "SNEK", "Snek", 0)])
    with visited(browser, LiveIndex([book]), tokens=tokens) as visit:
        page = visit.open_live(book.pair)
        visit.shows("#title", "ADA/SNEK")
        visit.becomes(
            visit.ladder,
            [("4,123,000,000", "1.50", "6.1845 B", "6.1845 B"), ("4,122,000,000", "0.25", "1.0305 B", "7.2150 B")],
        )
        visit.becomes(page.locator(".ladder thead th").all_text_contents, HEADINGS)


@pytest.mark.thorough
def test_a_retracted_pair_and_a_silent_publisher_are_reported_until_they_return(browser: Browser):
    live, feed = LiveIndex([BOOK, OTHER]), FeedState()
    health = Health(feed)
    with served(app_with_page(live, health)) as service, visiting(browser, service.port, expected="503") as visit:
        visit.open_live(SNEK_ADA)
        live.retract(SNEK_ADA)
        visit.shows("#state", "This pair is no longer tracked. Its last order book is shown.")
        visit.is_visible("article.old")
        assert visit.ladder() == ladder_rows(BOOK)
        feed.quiet_age, health.max_quiet = 300, 60
        live.update([BOOK], freshness=Freshness("slot 145000000", datetime.now(UTC)))
        visit.poll()
        visit.shows("#connection", "Stale")
        visit.contains("#age", "the publisher last published 300.0 seconds ago")
        # Everything that is old looks old, and an old price is not in the title.
        visit.is_visible("body.old #list")
        visit.becomes(visit.page.title, "SNEK/ADA (old) – Order books")
        visit.shows("#as-of", "as of slot 145000000")
        visit.shows("#state", "")
        feed.quiet_age = 0
        visit.poll()
        visit.is_live()
        visit.shows("#alert", "")
        visit.becomes(visit.page.title, "SNEK/ADA 4.5 – Order books")


@pytest.mark.thorough
def test_a_frozen_service_does_not_answer_after_five_seconds(browser: Browser):
    """Its connections stay open, and nothing arrives."""
    with served(app_with_page(LiveIndex([BOOK]))) as service, visiting(browser, service.port) as visit:
        page = visit.open_live(SNEK_ADA)
        page.route("**/healthz", lambda _: None)
        page.route("**/summary", lambda _: None)
        page.route("**/stream?*", lambda _: None)
        page.clock.run_for(2000)
        visit.is_live()
        # The stream sends a comment every two seconds of real time. This clock does not wait for them.
        page.clock.run_for(5000)
        visit.shows("#connection", "No answer")
        visit.contains("#alert", "The service is silent. No response since ")
        visit.is_visible("article.old")


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_no_violation(browser: Browser, width: int, scheme: str):
    tokens = Tokens([Token(SNEK, "SNEK", "Snek", 0)])
    settings = {"width": width, "color_scheme": scheme, "bypass_csp": True}
    with visited(browser, LiveIndex([*sample(), BOOK, CROSSED]), tokens=tokens, **settings) as visit:
        for pair in (None, SNEK_ADA, CROSSED.pair, Pair(ADA, ADA)):
            page = visit.open(pair)
            visit.becomes(page.locator("#connection").text_content, "Not tracked" if pair == Pair(ADA, ADA) else "Live")
            visit.has("#list li", 14)
            page.add_script_tag(path=axe())
            found = page.evaluate(
                "axe.run().then(({ violations }) => violations.map((one) => [one.id, one.nodes[0].html]))"
            )
            assert found == [], pair


@pytest.mark.thorough
def test_the_keyboard_reaches_the_book_and_going_back_keeps_the_place_of_the_list(browser: Browser):
    books = [OrderBook.from_levels(Pair(token(b"T%02d" % n, n), ADA), bids=[("1", 1)]) for n in range(1, 60)]
    with visited(browser, LiveIndex([BOOK, *books]), width=390, reduced_motion="reduce") as visit:
        page = visit.open_live()
        focused = "document.activeElement.id"
        page.locator("#list a", has_text="T50").click()
        visit.shows("#title", "T50/ADA")
        assert page.evaluate(focused) == "title"
        page.go_back()
        visit.is_visible("#list")
        visit.becomes(lambda: page.evaluate("scrollY > 1000"), True)
        page.locator("#list a", has_text="SNEK").click()
        # On a phone the best prices are above the fold.
        visit.is_visible(".facts")
        assert page.locator(".facts").evaluate("one => one.getBoundingClientRect().bottom") < 600
        page.set_viewport_size({"width": 1280, "height": 800})
        page.locator("#skip").press("Enter")
        assert page.evaluate(focused) == "title"


HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.mark.thorough
def test_a_hidden_page_requests_nothing_and_is_current_once_it_is_shown(browser: Browser):
    live = LiveIndex([BOOK])
    with visited(browser, live) as visit:
        page = visit.open_live(SNEK_ADA)
        page.evaluate(HIDE, True)
        before = len(visit.requested)
        page.clock.run_for(60_000)
        assert len(visit.requested) == before
        following = BOOK.apply(bids=[("4", 11)])
        live.publish(following)
        page.evaluate(HIDE, False)
        visit.becomes(visit.ladder, ladder_rows(following))
        visit.is_live()


@pytest.mark.thorough
def test_the_page_follows_behind_basic_authentication(browser: Browser):
    """`fetch` rejects an address with credentials: the browser sends them by itself."""
    live = LiveIndex([BOOK])
    app, expected = app_with_page(live), b"Basic " + b64encode(b"user:secret")

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        is_allowed = scope["type"] != "http" or (b"authorization", expected) in scope["headers"]
        await (app if is_allowed else Response(status_code=401, headers=CHALLENGE))(scope, receive, send)

    with served(guard) as service, visiting(browser, service.port, expected="401") as visit:
        visit.page.goto(f"http://user:secret@127.0.0.1:{service.port}/")
        visit.is_live()
        live.publish(following := BOOK.apply(bids=[("4", 11)]))
        visit.becomes(visit.ladder, ladder_rows(following))


CHALLENGE = {"WWW-Authenticate": 'Basic realm="books"'}
