"""The list of pairs in a real browser: search, names, the keyboard, links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from market_index import ADA, LiveIndex, OrderBook, Pair
from market_index_cli.terminal import ticker
from tests.browser import as_laddered, visited, visiting
from tests.command import SAMPLE, running
from tests.page import HOSTILE_NAMES, SNEK, SNEK_ADA, sample, token
from tests.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser


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
