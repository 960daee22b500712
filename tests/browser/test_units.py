"""Labels of a token registry and whole units, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair, Token, Tokens
from tests.browser.visit import visited, visiting
from tests.page import SNEK, SNEK_ADA, app_with_page, token
from tests.service import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.thorough

TOKENS = Tokens(
    [
        Token(SNEK, "SNEK", "Snek", 0),
        Token(token(b"MANY", 7), "MANY", decimals=19),
        Token(token(b"UNKNOWN", 8), "UNKNOWN"),
        # Two tokens of one policy with the same ticker.
        Token(token(b"a", 9), "TWIN", decimals=6),
        Token(token(b"b", 9), "TWIN", decimals=2),
    ]
)


def book(base: AssetId, quote: AssetId = ADA, spot: str | None = "4123.5") -> OrderBook:
    return OrderBook.from_levels(
        Pair(base, quote), bids=[("4123", 1_500_000), ("4122", 250_000)], asks=[("4124.5", 7)], spot=spot
    )


def test_prices_and_amounts_are_in_whole_units(browser: Browser):
    with visited(browser, LiveIndex([book(SNEK)]), tokens=TOKENS) as visit:
        visit.open_live(SNEK_ADA)
        visit.shows("h2", "SNEK 279c909f/ADA")
        visit.becomes(
            visit.facts,
            {
                "Spot": "0.0041235",
                "Best bid": "0.004123",
                "Best ask": "0.0041245",
                "Spread": "0.0000015",
                "Mid": "0.00412375",
            },
        )
        visit.becomes(
            visit.ladder,
            [
                ("ask", "0.0041245", "7", "7"),
                ("bid", "0.004123", "1,500,000", "1,500,000"),
                ("bid", "0.004122", "250,000", "1,750,000"),
            ],
        )
        visit.shows(".units", "Prices: ADA for one SNEK 279c909f. Amounts: SNEK 279c909f.")
        visit.shows("#list .spot", "0.0041235")
        visit.shows("#list .policies", "279c909f")
        visit.becomes(visit.page.title, "SNEK 279c909f/ADA 0.0041235 – Order books")
        visit.has_attribute(
            ".chart",
            "aria-label",
            "Depth chart: bids from 0.004123 to 0.004122, 1,750,000 in all; "
            "asks from 0.0041245 to 0.0041245, 7 in all.",
        )


def test_amounts_of_ada_have_six_decimals_in_the_ladder_and_the_chart(browser: Browser):
    pair = Pair(ADA, SNEK)
    with visited(browser, LiveIndex([book(ADA, SNEK)]), tokens=TOKENS) as visit:
        visit.open_live(pair)
        visit.becomes(
            visit.ladder,
            [
                ("ask", "4124500000", "0.000007", "0.000007"),
                ("bid", "4123000000", "1.5", "1.5"),
                ("bid", "4122000000", "0.25", "1.75"),
            ],
        )
        ticks = visit.page.locator(".chart .tick")
        visit.becomes(lambda: {"0", "0.5", "1", "1.5"} - set(ticks.all_text_contents()), set())
        drawn = "document.querySelector('.chart path.line.bids').getBBox()"
        top, height = visit.page.evaluate(f"(() => {{ const box = {drawn}; return [box.y, box.height]; }})()")
        grid = visit.page.evaluate(
            "[...document.querySelectorAll('.chart .grid')].map((line) => Number(line.getAttribute('y1')))"
        )
        # The line of 1 is at four sevenths of the height of 1.75.
        floor = top + height
        assert any(abs(floor - at - height * 4 / 7) < 1 for at in grid)


def test_the_choice_of_smallest_units_is_remembered(browser: Browser):
    with visited(browser, LiveIndex([book(SNEK)]), tokens=TOKENS) as visit:
        page = visit.open_live(SNEK_ADA)
        switch = page.get_by_role("checkbox", name="Smallest units")
        switch.check()
        visit.becomes(lambda: visit.facts().get("Spot"), "4123.5")
        visit.shows("#list .spot", "4123.5")
        visit.shows(
            ".units",
            "Prices: lovelace for one smallest unit of SNEK 279c909f. Amounts: smallest units of SNEK 279c909f.",
        )
        visit.has(".ladder tr.changed", 0)
        page.reload()
        visit.becomes(lambda: visit.facts().get("Spot"), "4123.5")
        switch.uncheck()
        visit.becomes(lambda: visit.facts().get("Spot"), "0.0041235")
        page.reload()
        visit.becomes(lambda: visit.facts().get("Spot"), "0.0041235")


def test_without_a_registry_there_is_no_switch(browser: Browser):
    with visited(browser, LiveIndex([book(SNEK)])) as visit:
        visit.open_live(SNEK_ADA)
        visit.is_visible(".ladder")
        visit.is_visible("#smallest", expected=False)
        visit.becomes(lambda: visit.facts().get("Spot"), "4123.5")


def test_equal_tickers_and_unknown_decimals_are_visible(browser: Browser):
    books = [book(one.asset) for one in TOKENS.entries] + [book(token(b"TWIN", 10)), book(token(b"ADA", 11))]
    with visited(browser, LiveIndex(books), tokens=TOKENS, width=1920) as visit:
        page = visit.open_live()
        assert len(set(page.locator("#list a").all_text_contents())) == len(books)
        visit.open(Pair(token(b"b", 9), ADA))
        visit.shows("h2", f"TWIN {token(b'b', 9)}/ADA")
        visit.open(Pair(token(b"UNKNOWN", 8), ADA))
        visit.shows(
            ".units",
            "Prices: ADA for one smallest unit of UNKNOWN 00000000 (whose decimals are not known). "
            "Amounts: smallest units of UNKNOWN 00000000 (whose decimals are not known).",
        )
        visit.open(Pair(token(b"MANY", 7), ADA))
        visit.becomes(lambda: visit.facts().get("Spot"), "41235000000000000")
        visit.fits()


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_whole_units_fit(browser: Browser, width: int):
    many = token(b"MANY", 7)
    wide = OrderBook.from_levels(
        Pair(many, ADA), bids=[("1e-28", 2**64 - 1)], asks=[("0.5", 123_456_789), (str(2**96 - 1), 2**64 - 1)]
    )
    with visited(browser, LiveIndex([wide]), tokens=TOKENS, width=width) as visit:
        visit.open_live(wide.pair)
        visit.has(".chart path.line", 2)
        visit.contains(".ladder", "1.8446744073709551615")
        visit.fits()


def test_tokens_without_an_entry_are_told_apart_as_without_a_registry(browser: Browser):
    copy = AssetId(SNEK.policy_id[:4] + bytes(24), b"SNEK")
    assets = [token(b"\xf1" * 32, 5), token(b"\xf2" * 32, 5), token(bytes.fromhex("000de140") + b"NFT", 6), copy]
    assets.append(token(bytes.fromhex("000643b0") + b"NFT", 6))
    live = LiveIndex([book(SNEK), *map(book, assets)])
    with visited(browser, live) as plain:
        plain.open_live()
        expected = plain.page.locator("#list a .name").all_text_contents()
    with visited(browser, live, tokens=TOKENS) as visit:
        page = visit.open_live()
        assert page.locator("#list a .name").all_text_contents() == expected
        rows = page.locator("#list a").evaluate_all("all => all.map((one) => one.innerText)")
        assert len(set(rows)) == len(rows)
        visit.open(Pair(copy, ADA))
        visit.shows("h2", f"SNEK {copy}/ADA")
        visit.fits()


def test_another_registry_is_shown_after_a_restart_of_the_service(browser: Browser):
    live = LiveIndex([book(SNEK)])
    app = app_with_page(live, tokens=Tokens([Token(SNEK, "SNEK", decimals=0)]))
    with served(app) as service, visiting(browser, service.port, expected="Failed to load resource") as visit:
        visit.open_live(SNEK_ADA)
        visit.becomes(lambda: visit.facts().get("Spot"), "0.0041235")
        other = app_with_page(live, tokens=Tokens([Token(SNEK, "SNEK", decimals=6)]))
        app.router.routes[:] = other.router.routes
        # The page requests everything again when it is shown again, as after a failure.
        visit.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        visit.becomes(lambda: visit.facts().get("Spot"), "4123.5")


def test_books_are_shown_in_smallest_units_if_there_are_no_labels(browser: Browser):
    with visited(browser, LiveIndex([book(SNEK)]), tokens=TOKENS, expected="Failed to load resource") as visit:
        visit.page.route("**/tokens.json", lambda route: route.abort())
        visit.open_live(SNEK_ADA)
        visit.becomes(lambda: visit.facts().get("Spot"), "4123.5")
        visit.is_visible("#smallest", expected=False)
