"""The web page: from a publish until a browser has the new number in the page, and until it has drawn it.

A visible tab of Chromium has one book open. Both clocks are the wall clock of this machine.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks.books import book
from benchmarks.measure import Group, Row, alone
from market_index import LiveIndex
from market_index.display import Tokens
from market_index_cli.page.routes import page_routes
from market_index_http import create_app
from market_index_http.stream import Stream
from tests.service import served

LEVELS: Final = 500
ARGUMENTS: Final = ("--headless", "--no-sandbox", "--disable-gpu")

RECORD: Final = """() => {
  globalThis.seen = {};
  const spot = document.querySelector(".facts dd");
  const now = () => performance.timeOrigin + performance.now();
  new MutationObserver(() => {
    const [text, at] = [spot.textContent, now()];
    // The frame after the next one: then this one was drawn.
    requestAnimationFrame(() => requestAnimationFrame(() => (seen[text] = [at, now()])));
  }).observe(spot, { childList: true, characterData: true, subtree: true });
}"""


def groups(*, quick: bool) -> dict[str, Group]:
    return {"changes": partial(changes, 20 if quick else 100)}


def changes(count: int) -> Iterator[Row]:
    """Measure the milliseconds from each publish until the page has it, and until it is drawn."""
    from playwright.sync_api import sync_playwright  # here: the other parts run without it

    one = book(random.Random(12), LEVELS)
    live = LiveIndex([one])
    app = create_app(live, routes=[Stream(live).route(), *page_routes(live, Tokens())])
    with served(app) as service, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=list(ARGUMENTS))
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{service.port}/#base={one.pair.base}&quote={one.pair.quote}")
        page.wait_for_selector(".ladder")
        page.evaluate(RECORD)
        sent = {}
        for number in range(1, count + 1):
            level = one.bids[number % 10]
            sent[f"{number}"] = time.time() * 1000
            live.publish(one.apply(bids=[(level.price, level.accumulated_liquidity + number)], spot=str(number)))
            page.wait_for_function("(number) => seen[number]", arg=str(number))
        seen = page.evaluate("seen")
        browser.close()
    yield alone(
        f"publish to the page, a book of {LEVELS} a side", "ms", [seen[one][0] - at for one, at in sent.items()]
    )
    yield alone("publish until the page has drawn it", "ms", [seen[one][1] - at for one, at in sent.items()])
