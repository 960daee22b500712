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
        visit.becomes(lambda: focused(visit), "SUMMARY")
        page.keyboard.press("Enter")
        visit.is_visible("code")
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
