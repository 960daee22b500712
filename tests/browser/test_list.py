"""The list of pairs in a real browser: search, the keyboard, links."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from market_index import ADA, LiveIndex, OrderBook, Pair
from market_index_cli.tokens import ticker
from tests.browser.visit import Visit, visited, visiting
from tests.page import SNEK, SNEK_ADA, sample, token
from tests.service import Service

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.thorough


def test_pairs_are_listed_in_the_order_of_the_index(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port) as visit:
        visit.open()
        books = LiveIndex(sample()).current.values()
        visit.becomes(visit.pairs, [f"{ticker(book.pair.base)}/{ticker(book.pair.quote)}" for book in books])


@pytest.mark.parametrize(
    ("search", "found", "count"),
    [
        ("min/snek", ["MIN/SNEK"], "1 of 13 pairs"),
        ("279C909F348e", ["SNEK/ADA", "MIN/SNEK"], "2 of 13 pairs"),
        (str(SNEK), ["SNEK/ADA", "MIN/SNEK"], "2 of 13 pairs"),
        ("nothing like that", [], "No pair matches."),
    ],
    ids=["names", "policy", "identifier", "nothing"],
)
def test_pairs_are_found(browser: Browser, sample_service: Service, search: str, found: list[str], count: str):
    with visiting(browser, sample_service.port) as visit:
        visit.open_live().fill("#search", search)
        visit.becomes(visit.pairs, found)
        visit.shows("#count", count)


def test_a_link_to_an_untracked_pair_is_reported(browser: Browser):
    live = LiveIndex([OrderBook.from_levels(Pair(token(b"OTHER"), ADA), bids=[("1", 1)])])
    with visited(browser, live) as visit:
        visit.open_live(SNEK_ADA)
        visit.contains("#state", "This pair is not tracked.")
        visit.shows("h2", "SNEK/ADA")
        visit.is_visible(".ladder", expected=False)


def test_a_link_without_a_valid_pair_is_reported(browser: Browser, sample_service: Service):
    invalid = "The address of this page does not contain a valid pair. Select one from the list."
    with visiting(browser, sample_service.port) as visit:
        page = visit.open()
        page.goto(f"http://127.0.0.1:{visit.port}/#base=lovelace&quote=<script>")
        visit.shows("#state", invalid)
        # Both letter cases are accepted, as in the API.
        page.goto(f"http://127.0.0.1:{visit.port}/#base={str(SNEK).upper()}&quote=ADA")
        visit.becomes(lambda: visit.facts().get("Spot"), "4123.5")
        page.go_back()
        visit.shows("#state", invalid)


def focused(visit: Visit) -> str:
    """Return the name of the pair, the identifier or else the kind of the element that has the focus."""
    return str(
        visit.page.evaluate(
            """() => {
              const one = document.activeElement;
              return one.id || (one.querySelector(".name") ?? { textContent: one.tagName }).textContent;
            }"""
        )
    )


def test_the_arrow_keys_move_through_the_list(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port) as visit:
        keyboard = visit.open_live().keyboard
        pairs = visit.pairs()
        for key, position in [
            ("ArrowDown", 0),
            ("ArrowDown", 1),
            ("ArrowDown", 2),
            ("End", -1),
            ("ArrowDown", -1),
            ("PageUp", 2),
            ("Home", 0),
        ]:
            keyboard.press(key)
            visit.becomes(lambda: focused(visit), pairs[position])
        keyboard.press("ArrowUp")
        visit.becomes(lambda: focused(visit), "search")


def test_enter_opens_a_pair_and_keeps_the_focus_in_the_list(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port) as visit:
        keyboard = visit.open_live().keyboard
        keyboard.press("ArrowDown")
        keyboard.press("Enter")
        visit.shows("h2", visit.pairs()[0])
        visit.becomes(lambda: focused(visit), visit.pairs()[0])


def test_a_slash_starts_a_search_and_escape_ends_it(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port) as visit:
        page = visit.open_live()
        visit.shows("#search + kbd", "/")
        page.keyboard.press("/")
        visit.becomes(lambda: focused(visit), "search")
        page.keyboard.type("ada/")
        visit.becomes(lambda: page.input_value("#search"), "ada/")
        page.keyboard.press("Escape")
        visit.becomes(lambda: page.input_value("#search"), "")
        visit.becomes(lambda: focused(visit), visit.pairs()[0])


def test_tab_stops_once_in_the_list_and_then_in_the_book(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port) as visit:
        page = visit.open_live()
        page.keyboard.press("/")
        page.keyboard.type("min/sn")
        page.keyboard.press("Enter")
        visit.shows("h2", "MIN/SNEK")
        page.keyboard.press("ArrowDown")
        visit.becomes(lambda: focused(visit), "MIN/SNEK")
        page.keyboard.press("Tab")
        visit.becomes(lambda: page.evaluate("document.activeElement.ariaLabel"), "Copy the link to this pair")
        page.keyboard.press("Tab")
        visit.becomes(lambda: focused(visit), "SUMMARY")
        page.keyboard.press("Enter")
        visit.is_visible("code")
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Shift+Tab")
        visit.becomes(lambda: focused(visit), "MIN/SNEK")
        visit.becomes(lambda: page.evaluate("getComputedStyle(document.activeElement).outlineStyle"), "solid")


def test_the_list_keeps_its_focus_and_scroll_position_while_pairs_change(browser: Browser):
    live = LiveIndex(OrderBook.from_levels(Pair(token(b"T", number), ADA)) for number in range(100, 200))
    with visited(browser, live) as visit:
        page = visit.open_live()

        def key() -> str:
            return str(page.evaluate("document.activeElement.dataset.key"))

        page.locator("#list a").nth(50).focus()
        visit.becomes(key, str(Pair(token(b"T", 150), ADA)))
        before = page.evaluate("document.getElementById('list').scrollTop")
        assert before > 0
        live.publish(OrderBook.from_levels(Pair(token(b"T", 199), token(b"T", 99))), OrderBook.from_levels(SNEK_ADA))
        visit.poll()
        visit.shows("#count", "102 pairs")
        visit.becomes(key, str(Pair(token(b"T", 150), ADA)))
        assert page.evaluate("document.getElementById('list').scrollTop") == before
        live.retract(Pair(token(b"T", 150), ADA))
        visit.poll()
        visit.shows("#count", "101 pairs")
        visit.becomes(key, str(Pair(token(b"T", 100), ADA)))


def test_ten_thousand_pairs_can_be_searched(browser: Browser):
    live = LiveIndex(
        OrderBook.from_levels(
            Pair(token(f"T{number:05}".encode(), number), ADA), bids=[("1", number)], spot=str(number)
        )
        for number in range(1, 10_001)
    )
    with visited(browser, live) as visit:
        page = visit.open_live()
        visit.shows("#count", "10,000 pairs")
        visit.has("#list .name", 200)
        visit.shows("#more", re.compile(r"^9,800 more pairs\. Narrow the search\."))
        page.get_by_role("button", name="Show more").click()
        visit.has("#list .name", 400)
        visit.becomes(lambda: focused(visit), "T00201/ADA")
        page.fill("#search", "T09999")
        visit.becomes(visit.pairs, ["T09999/ADA"])
        page.get_by_role("link", name="T09999/ADA").click()
        visit.contains(".ladder", "9,999")
        # The number of pairs is the same, but one is another pair.
        live.publish(OrderBook.from_levels(Pair(token(b"T09999", 9999), ADA), bids=[("1", 5)], spot="0.5"))
        visit.poll()
        visit.contains("#list .spot", "0.5")


def priced(name: bytes, number: int, spot: str | None) -> OrderBook:
    return OrderBook.from_levels(Pair(token(name, number), ADA), asks=[("1", 1)], spot=spot)


def test_the_list_is_ordered_by_name_or_by_spot_price_and_remembers_it(browser: Browser):
    books = [priced(b"C", 1, "9.5"), priced(b"a", 2, None), priced(b"D", 3, "10"), priced(b"B", 4, "9.25")]
    with visited(browser, LiveIndex(books)) as visit:
        page = visit.open_live()
        visit.becomes(visit.pairs, ["C/ADA", "a/ADA", "D/ADA", "B/ADA"])
        order = page.get_by_role("combobox", name="Order")
        order.select_option("by name")
        visit.becomes(visit.pairs, ["a/ADA", "B/ADA", "C/ADA", "D/ADA"])
        order.select_option("by spot price")
        visit.becomes(visit.pairs, ["D/ADA", "C/ADA", "B/ADA", "a/ADA"])
        page.get_by_role("checkbox", name="With a spot price").check()
        visit.becomes(visit.pairs, ["D/ADA", "C/ADA", "B/ADA"])
        visit.shows("#count", "3 of 4 pairs")
        page.reload()
        visit.becomes(visit.pairs, ["D/ADA", "C/ADA", "B/ADA"])


def test_the_first_pair_with_a_spot_price_is_shown_where_there_is_room(browser: Browser):
    live = LiveIndex()
    with visited(browser, live) as visit:
        visit.open_live()
        visit.contains("#state", "No pair is tracked yet.")
        live.publish(priced(b"A", 1, None), priced(b"B", 2, "5"), priced(b"C", 3, "6"))
        visit.poll()
        visit.shows("h2", "B/ADA")
        visit.becomes(lambda: visit.facts().get("Spot"), "5")
        # Another first pair does not replace what the visitor reads.
        live.publish(priced(b"A", 1, "4"))
        visit.poll()
        visit.contains("#list .spot", "4")
        visit.shows("h2", "B/ADA")
        visit.page.set_viewport_size({"width": 390, "height": 800})
        visit.is_visible("#list")
        visit.is_visible("#book", expected=False)


def test_the_link_of_a_pair_can_be_copied(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port) as visit:
        page = visit.open_live()
        visit.is_visible(".ladder")
        page.evaluate(
            """Object.defineProperty(navigator, 'clipboard', {
                 value: { writeText: async (text) => { document.copied = text; } }
               })"""
        )
        page.get_by_role("button", name="Copy the link to this pair").click()
        selected = str(page.locator("#list a[aria-current]").get_attribute("href"))
        visit.becomes(lambda: page.evaluate("document.copied"), page.evaluate("location.href") + selected)


def test_without_a_clipboard_the_link_is_the_address(browser: Browser, sample_service: Service):
    with visiting(browser, sample_service.port) as visit:
        page = visit.open_live()
        visit.is_visible(".ladder")
        page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        page.get_by_role("button", name="Copy the link to this pair").click()
        selected = str(page.locator("#list a[aria-current]").get_attribute("href"))
        visit.becomes(lambda: page.evaluate("location.hash"), selected)
