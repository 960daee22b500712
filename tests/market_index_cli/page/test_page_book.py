"""The states of a book on the page, and which pair it shows first: the JavaScript module book.js, run by node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.page import PAGE
from tests.waiting import DEADLINE_SECONDS

NODE = """
import { firstReadable, summarize } from "./book.mjs";
import { decimal, text } from "./exact.mjs";
import { readFileSync } from "node:fs";
const { books, choices } = JSON.parse(readFileSync(0, "utf8"));
const levels = (prices) => prices.map((price) => ({ price, value: decimal(price), amount: 1n }));
const parsed = ([bids, asks]) => ({ spot: null, bids: levels(bids), asks: levels(asks) });
const first = async (books) => {
  const requested = [];
  const pair = await firstReadable(books.map((_, at) => at), async (at) => {
    requested.push(at);
    return books[at] && parsed(books[at]);
  });
  return [pair, requested];
};
console.log(JSON.stringify({
  states: books.map(parsed).map(summarize).map(({ spread, mid, state, sentence, middle }) =>
    [state, sentence, middle, spread && text(spread), mid && text(mid)]),
  choices: await Promise.all(choices.map(first)),
}));
"""

APART, CROSSED, LOCKED = [["4", "3"], ["5"]], [["6", "4"], ["5", "7"]], [["5"], ["5"]]
BIDS: list[list[str]] = [["4"], []]
ASKS: list[list[str]] = [[], ["5"]]
EMPTY: list[list[str]] = [[], []]
AS_PUBLISHED = "The book is shown as published."

STATES = {
    "apart": (APART, ["", "", "spread 1 · mid 4.5", "1", "4.5"]),
    "crossed": (
        CROSSED,
        [
            "crossed",
            f"The best bid, 6, is above the best ask, 5. {AS_PUBLISHED}",
            "spread -1 · mid 5.5",
            "-1",
            "5.5",
        ],
    ),
    "locked": (
        LOCKED,
        [
            "locked",
            f"The best bid and the best ask have the same price, 5. {AS_PUBLISHED}",
            "spread 0 · mid 5",
            "0",
            "5",
        ],
    ),
    "bids": (BIDS, ["no asks", "This order book has bids only.", "no spread", None, None]),
    "asks": (ASKS, ["no bids", "This order book has asks only.", "no spread", None, None]),
    "empty": (EMPTY, ["empty", "This order book is empty.", "no spread", None, None]),
}

# The books of the pairs (None: retracted), the chosen pair, and how many books were requested.
CHOICES: list[tuple[Sequence[object], int | None, int]] = [
    ([], None, 0),
    ([APART, APART], 0, 1),
    ([CROSSED, LOCKED, BIDS, ASKS, EMPTY, None, APART, APART], 6, 7),
    ([EMPTY, CROSSED], 0, 2),
    ([CROSSED] * 10 + [APART], 0, 10),
]


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the states of a book are not tested")
    folder: Path = tmp_path_factory.mktemp("modules")
    for file in PAGE.glob("*.js"):
        (folder / f"{file.stem}.mjs").write_text(re.sub(r'"(\./\w+)\.js"', r'"\1.mjs"', file.read_text()))
    (folder / "compute.mjs").write_text(NODE)
    given = {"books": [book for book, _ in STATES.values()], "choices": [books for books, *_ in CHOICES]}
    done = subprocess.run(
        [node, folder / "compute.mjs"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_state_of_a_book_is_named_and_explained(computed: Any):
    assert dict(zip(STATES, computed["states"], strict=True)) == {name: state for name, (_, state) in STATES.items()}


def test_the_first_pair_has_both_sides_and_is_not_crossed(computed: Any):
    assert computed["choices"] == [[chosen, [*range(requested)]] for _, chosen, requested in CHOICES]
