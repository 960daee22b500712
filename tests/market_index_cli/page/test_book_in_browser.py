"""The order book in a real browser: ladder, facts, identifiers."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from market_index import ADA, LiveIndex, OrderBook, Pair, format_price
from market_index_cli.terminal import ticker
from tests.browser import as_laddered, visited, visiting
from tests.page import SNEK, SNEK_ADA, fixed, sample, token
from tests.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser


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
