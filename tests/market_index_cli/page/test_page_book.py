"""The books of the page: its JavaScript modules book.js, chart.js, order.js and grouping.js, run by node."""

from __future__ import annotations

import random
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

import pytest

from market_index import OrderBook, PriceLevel, Side, format_price
from market_index_cli.tokens import Display
from tests.market_index_cli.page import node
from tests.page import SNEK_ADA, sample

NODE = """
import { summarize } from "./book.mjs";
import { withChange } from "./client.mjs";
import { decimal, text, whole } from "./exact.mjs";
import { grouped, stepChoice, steps } from "./grouping.mjs";
import { Tokens } from "./names.mjs";
import { averagePrice, orderSentence, simulateFill } from "./order.mjs";
import { Units } from "./units.mjs";
const { books, fills, orders, groupings, stepChoices, changes } = given;
const level = (entry) => Array.isArray(entry) ? entry : [entry, "1"];
const levels = (entries) => entries.map(level).map(([price, amount]) => (
  { price, value: decimal(price), amount: BigInt(amount) }));
const parsed = ([bids, asks]) => ({ spot: null, bids: levels(bids), asks: levels(asks) });
const units = new Units({ base: "ADA", quote: "ADA" }, new Tokens(), false);
const printed = (side) => side.map((one) => [one.price, String(one.amount)]);
const asSent = ([bids, asks]) => {
  const side = (entries) => entries.map(([price, amount]) => ({ price, accumulated_liquidity: BigInt(amount) }));
  return { spot: null, bids: side(bids), asks: side(asks) };
};
console.log(JSON.stringify({
  states: books.map(parsed).map((book) => summarize(book, units, "")).map(({ facts, state, sentence, middle }) =>
    [state, sentence, middle, ...facts.slice(3).map(([shown]) => shown)]),
  fills: fills.map(([book, isPurchase, amount]) => {
    const taken = parsed(book)[isPurchase ? "asks" : "bids"];
    const fill = simulateFill(taken, BigInt(amount));
    const average = fill.filled && averagePrice(fill.paid, whole(fill.filled), isPurchase);
    return [
      String(fill.filled), text(fill.paid), fill.worst && text(fill.worst), fill.complete,
      average === 0n ? null : text(average),
    ];
  }),
  orders: orders.map(([isPurchase, entered]) => {
    const book = parsed([[["4", "10"], ["3", "20"]], [["5", "30"]]]);
    return orderSentence(book, units, isPurchase, entered, { base: "A", quote: "B" });
  }),
  groupings: groupings.map(([book, choice]) => {
    const { bids, asks } = grouped(parsed(book), choice);
    const shown = summarize(parsed(book), units, choice);
    const [spread, mid] = shown.facts.slice(3).map(([text]) => text);
    const texts = [...shown.bids, ...shown.asks].map((one) => one.text);
    return [printed(bids), printed(asks), steps(parsed(book)), [...texts, spread, mid]];
  }),
  stepChoices: stepChoices.map(stepChoice),
  changes: changes.map(([before, change]) => {
    const { bids, asks } = withChange(asSent(before), asSent(change));
    return [bids, asks].map((side) => side.map((one) => [one.price, String(one.accumulated_liquidity)]));
  }),
}));
"""

CHART = """
import { summarize } from "./book.mjs";
import { readout, visibleLevels } from "./chart.mjs";
import { decimal, text } from "./exact.mjs";
import { Tokens } from "./names.mjs";
import { Units } from "./units.mjs";
const units = new Units({ base: "ADA", quote: "ADA" }, new Tokens(), false);
const side = (entries) => entries.map(([price, amount]) => ({ value: decimal(price), amount: BigInt(amount) }));
const shown = summarize({ spot: null, bids: side(given.bids), asks: side(given.asks) }, units, "");
const { low, high, ...sides } = visibleLevels(shown);
const totals = Object.entries(sides).map(([name, levels]) => [name, levels.map((level) => text(level.total))]);
const sentences = [sides.bids[1], sides.asks[1]].map((level) => readout(level, shown));
console.log(JSON.stringify({ sentences, low: text(low), high: text(high), ...Object.fromEntries(totals) }));
"""

APART, CROSSED, LOCKED = [["4", "3"], ["5"]], [["6", "4"], ["5", "7"]], [["5"], ["5"]]
BIDS: list[list[str]] = [["4"], []]
ASKS: list[list[str]] = [[], ["5"]]
EMPTY: list[list[str]] = [[], []]
EXPLAINED = (
    "Both orders could trade with each other. On an order-book exchange they stay until a transaction fills them, "
    "whose costs may be higher than the gain. The book is shown as published."
)

STATES = {
    "apart": (APART, ["", "", "mid 4.5 · spread 22.2 %", "1 (22.2 %)", "4.5"]),
    "crossed": (
        CROSSED,
        [
            "crossed",
            f"The best bid, 6, is above the best ask, 5. {EXPLAINED}",
            "mid 5.5 · spread -18.2 %",
            "-1 (-18.2 %)",
            "5.5",
        ],
    ),
    "narrow": (
        [["0.00412017998"], ["0.00412726706"]],
        ["", "", "mid 0.00412372 · spread 0.172 %", "0.00000708708 (0.172 %)", "0.00412372"],
    ),
    "below a digit": (
        [["1"], ["1.000000000001"]],
        ["", "", "mid 1 · spread 0.0000000001 %", "0.000000000001 (0.0000000001 %)", "1"],
    ),
    "locked": (
        LOCKED,
        [
            "locked",
            f"The best bid and the best ask have the same price, 5. {EXPLAINED}",
            "mid 5 · spread 0 %",
            "0 (0 %)",
            "5",
        ],
    ),
    "bids": (BIDS, ["no asks", "This order book has bids only.", "no spread", "none", "none"]),
    "asks": (ASKS, ["no bids", "This order book has asks only.", "no spread", "none", "none"]),
    "empty": (EMPTY, ["empty", "This order book is empty.", "no spread", "none", "none"]),
}

LONG = OrderBook.from_levels(
    SNEK_ADA,
    bids=[("0.0000012499934917464313811661", 1), ("0.0000012499934817464313811661", 1)],
    asks=[("0.0000013", 1)],
)
TOO_LARGE = OrderBook.from_levels(SNEK_ADA, bids=[("1.2", 2**64 - 1), ("1.1", 2**64 - 1)], asks=[("5", 1)])
"""The sum of its bids is larger than an amount may be."""
MAX_LINE = 16
"""The most characters of a price that fits in one line, at any width of the page."""

ORDERS = {
    (True, "31"): "Buying 30 A costs 150 B: 5 on average, 0 % worse than the best price. The book has no more.",
    (False, " 1_5 "): "Selling 15 A brings 55 B: 3.66666666 on average, 8.33 % worse than the best price.",
    (True, "0"): "The amount must be above 0.",
    (True, "x"): "The amount must be a number, such as 1,500.5.",
    (True, " "): "",
}


def entries(book: OrderBook) -> tuple[list[tuple[str, str]], ...]:
    return tuple(
        [(format_price(one.price), str(one.accumulated_liquidity)) for one in side] for side in (book.bids, book.asks)
    )


def changed(before: Iterable[PriceLevel], after: Iterable[PriceLevel]) -> list[tuple[str, str]]:
    """Return the changes of a side as the stream sends them: levels with their amounts, 0 for a removed one."""
    amounts = dict.fromkeys((one.price for one in before), 0)
    amounts |= {one.price: one.accumulated_liquidity for one in after}
    return [(format_price(price), str(amount)) for price, amount in amounts.items()]


def random_books() -> list[OrderBook]:
    """Return books with prices of all magnitudes, always the same ones."""
    drawn = random.Random(5)
    books = [book for book in sample() if book.bids and book.asks]
    for places in range(28):
        prices = [Decimal(drawn.randrange(10**5, 10**9)).scaleb(-places) for _ in range(30)]
        levels = [(format_price(price), drawn.randrange(1, 2**50)) for price in sorted(set(prices))]
        books.append(OrderBook.from_levels(SNEK_ADA, bids=levels[:15], asks=levels[15:]))
    return books


def groupings() -> list[tuple[OrderBook, str]]:
    """Return books, and the choice of a step of each."""
    return [
        *((book, step) for book in random_books() for step in ("", "0.01", "50", "every")),
        (LONG, ""),
        (
            OrderBook.from_levels(SNEK_ADA, bids=[("0.3", 1), ("0.2", 2)], asks=[("79228162514264337593543950335", 1)]),
            "1",
        ),
        (TOO_LARGE, "1"),
    ]


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    given = {
        "groupings": [(entries(book), step) for book, step in groupings()],
        "stepChoices": ["", "every", "0.01", "20", "0.5", "3", "11", "1e5", "-1", "0", "1.2.", "<b>"],
        "changes": [
            (entries(one), (changed(one.bids, other.bids), changed(one.asks, other.asks)))
            for one, other in pairwise(random_books())
        ],
        "books": [book for book, _ in STATES.values()],
        "fills": [(entries(book), side is Side.ASK, str(amount)) for book, side, amount in fills()],
        "orders": list(ORDERS),
    }
    [found] = node.run(tmp_path_factory.mktemp("modules"), NODE, given)
    return found


def test_each_state_of_a_book_is_named_and_explained(computed: Any):
    assert dict(zip(STATES, computed["states"], strict=True)) == {name: state for name, (_, state) in STATES.items()}


def fills() -> list[tuple[OrderBook, Side, int]]:
    """Return market orders: amounts below, at and above what a side has."""
    drawn = random.Random(6)
    made = []
    for book in random_books():
        for side, levels in ((Side.BID, book.bids), (Side.ASK, book.asks)):
            total = sum(level.accumulated_liquidity for level in levels)
            amounts = (0, 1, levels[0].accumulated_liquidity, drawn.randrange(total), total, total + 1)
            made += [(book, side, amount) for amount in amounts]
    return made


def test_a_market_order_is_computed_as_exactly_as_by_the_library(computed: Any):
    for (book, side, amount), result in zip(fills(), computed["fills"], strict=True):
        filled, paid, worst, complete, average = result
        expected = (book.buy if side is Side.ASK else book.sell)(amount)
        assert (int(filled), Decimal(paid), complete) == (expected.filled, expected.paid, expected.complete)
        assert (worst and Decimal(worst)) == expected.worst_price
        assert (average is None) == (expected.average_price is None)
        if average is not None:
            exact = Fraction(expected.paid) / expected.filled
            assert abs(Fraction(average) - exact) < Fraction(1, 10**40)
            assert Fraction(average) >= exact if side is Side.ASK else Fraction(average) <= exact, "never too good"


def test_the_cost_of_an_order_is_one_sentence(computed: Any):
    assert computed["orders"] == list(ORDERS.values())


def test_the_page_and_the_terminal_group_a_book_by_the_rules_of_the_library(computed: Any):
    for (book, choice), (bids, asks, steps, texts) in zip(groupings(), computed["groupings"], strict=True):
        default = Decimal(1).scaleb((book.bids or book.asks)[0].price.adjusted() - 5)
        step = {"": max(default, Decimal("1e-28")), "every": None}.get(choice, choice)
        expected = book if step is None or book is TOO_LARGE else book.grouped(step)
        assert (bids, asks) == tuple([list(entry) for entry in side] for side in entries(expected))
        assert Decimal(steps[0]) == max(default, Decimal("1e-28"))
        display = Display(None, choice == "every")
        assert choice not in ("", "every") or display.grouped(book) == expected
        spread, mid = (display.price(SNEK_ADA, one) for one in (book.spread, book.mid))
        assert texts[-2].partition(" ")[0].replace(",", "") == spread.replace(",", "")
        assert texts[-1].replace(",", "") == mid.replace(",", "")
        sides = [(Side.BID, one) for one in expected.bids] + [(Side.ASK, one) for one in expected.asks]
        written = [text.replace(",", "") if choice == "every" else text for text in texts]
        assert written[:-2] == [display.level_price(SNEK_ADA, one, side) for side, one in sides]
        assert choice or max(map(len, texts[:-2])) <= MAX_LINE, "a price fits in one line"


def test_only_round_steps_of_the_address_are_taken(computed: Any):
    assert computed["stepChoices"] == ["", "every", "0.01", "20", "0.5", *[""] * 7]


def test_changes_of_the_stream_make_the_next_book(computed: Any):
    for found, expected in zip(computed["changes"], random_books()[1:], strict=True):
        assert found == [[list(entry) for entry in side] for side in entries(expected)]


def test_the_chart_shows_the_totals_of_the_ladder_around_the_middle(tmp_path: Any) -> None:
    bids = [["0.0000001", "1000000000000"], *([f"0.9{digit}", "100"] for digit in range(10))][::-1]
    asks = [*([f"1.0{digit}", "100"] for digit in range(10)), ["50", "100"]]
    (found,) = node.run(tmp_path, CHART, {"bids": bids, "asks": asks})
    for name, side in (("bids", bids), ("asks", asks)):
        assert list(map(Decimal, found[name])) == list(accumulate(100 * Decimal(price) for price, _ in side[:10]))
    assert found["sentences"] == [
        "Bid 0.98: selling 200 up to here brings 197, on average 0.985.",
        "Ask 1.01: buying 200 up to here costs 201, on average 1.005.",
    ]
    assert (Decimal(found["low"]), Decimal(found["high"])) == (Decimal("0.8905"), Decimal("1.0995"))
