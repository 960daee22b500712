"""The books of the page: its JavaScript modules book.js, chart.js, order.js, grouping.js and link.js, run by node."""

from __future__ import annotations

import random
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any, Literal

import pytest

from market_index import OrderBook, PriceLevel, Side, format_price
from market_index_cli.tokens import Display
from tests.market_index_cli.page import node
from tests.page import SNEK, SNEK_ADA, sample

NODE = """
import { Tokens, Units } from "./assets.mjs";
import { summarize } from "./book.mjs";
import { visibleLevels } from "./chart.mjs";
import { shifted, withChange } from "./client.mjs";
import { decimal, price, text, whole } from "./exact.mjs";
import { grouped, steps } from "./grouping.mjs";
import { readLink } from "./link.mjs";
import { averagePrice, resultOf, trade } from "./order.mjs";
const { books, fills, orders, groupings, links, changes, shifts, tokens } = given;
const level = (entry) => Array.isArray(entry) ? entry : [entry, "1"];
const levels = (entries) => entries.map(level).map(([price, amount]) => (
  { price, value: decimal(price), amount: BigInt(amount) }));
const parsed = ([bids, asks]) => ({ spot: null, bids: levels(bids), asks: levels(asks) });
const units = new Units({ base: "ADA", quote: "ADA" }, new Tokens());
const printed = (side) => side.map((one) => [text(one.value), String(one.amount)]);
const asSent = ([bids, asks]) => {
  const side = (entries) => entries.map(([price, amount]) => ({ price, accumulated_liquidity: BigInt(amount) }));
  return { spot: null, bids: side(bids), asks: side(asks) };
};
const chart = ([bids, asks]) => {
  const shown = summarize(parsed([bids, asks]), units, "");
  const { low, high, ...sides } = visibleLevels(shown);
  return [text(low), text(high), ...[sides.bids, sides.asks].map((side) => side.map((one) => text(one.total)))];
};
console.log(JSON.stringify({
  states: books.map(parsed).map((book) => summarize(book, units, "")).map(({ facts, state, sentence, middle }) =>
    [state, sentence, middle, ...facts.slice(3)]),
  fills: fills.map(([book, isPurchase, amount, isQuote]) => {
    const taken = parsed(book)[isPurchase ? "asks" : "bids"];
    const fill = trade(taken, BigInt(amount), isPurchase, isQuote);
    const average = fill.filled && averagePrice(fill.paid, whole(fill.filled), isPurchase);
    return [String(fill.filled), text(fill.paid), fill.complete, average === 0n ? null : text(average)];
  }),
  orders: orders.map(([pair, book, isPurchase, entered, isQuote]) => {
    const shown = new Units(pair, new Tokens(tokens));
    return resultOf(parsed(book), shown, { isPurchase, text: entered, isQuote });
  }),
  groupings: groupings.map(([book, step]) => {
    const { bids, asks } = grouped(parsed(book), step);
    const shown = summarize(parsed(book), units, step);
    const texts = [...shown.bids, ...shown.asks].map((one) => price(one.shown, 9, one.isAsk));
    return [printed(bids), printed(asks), steps(parsed(book)), [...texts, ...shown.facts.slice(1)]];
  }),
  links: links.map((hash) => readLink(hash)),
  changes: changes.map(([before, change]) => {
    const { bids, asks } = withChange(asSent(before), asSent(change));
    return [bids, asks].map((side) => side.map((one) => [one.price, String(one.accumulated_liquidity)]));
  }),
  shifts: shifts.map(([number, places]) => shifted(number, places)),
  chart: chart(given.charted),
}));
"""

EXPLAINED = (
    "Both orders could trade with each other. On an order-book exchange they stay until a transaction fills them, "
    "whose costs may be higher than the gain. The book is shown as published."
)

CROSSED = f"The best bid, 6, is above the best ask, 5. {EXPLAINED}"
LOCKED = f"The best bid and the best ask have the same price, 5. {EXPLAINED}"

STATES: dict[str, Any] = {
    "apart": ([["4", "3"], ["5"]], ["", "", "mid 4.5 · spread 22.2 %", "1 (22.2 %)", "4.5"]),
    "crossed": (
        [["6", "4"], ["5", "7"]],
        ["crossed", CROSSED, "mid 5.5 · spread -18.2 %", "-1 (-18.2 %)", "5.5"],
    ),
    "locked": (
        [["5"], ["5"]],
        ["locked", LOCKED, "mid 5 · spread 0 %", "0 (0 %)", "5"],
    ),
    "bids": ([["4"], []], ["no asks", "This order book has bids only.", "no spread", None, None]),
    "asks": ([[], ["5"]], ["no bids", "This order book has asks only.", "no spread", None, None]),
    "empty": ([[], []], ["empty", "This order book is empty.", "no spread", None, None]),
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

ODD = [[["4000.3", "10"], ["3000", "20"]], [["5000.7", "30"]]]
"""A book of SNEK, without decimals, in lovelace."""
WHOLE = [[["0.0000022", "3000000"]], [["0.0000023", "3000000"]]]
"""A book of lovelace in SNEK."""
NAMES = ("\u2068SNEK\u2069", "\u2068ADA\u2069")
ORDERS = """
SNEK/ADA | buy | 3 | base | = 3 {0} | Buying 3 {0} costs 0.015003 {1} {fees}: 0.0050007 on average, 0 % {worse} |
SNEK/ADA | sell | 15 | base | = 15 {0} | Selling 15 {0} brings 0.055003 {1} {fees}: {less} |
SNEK/ADA | buy | 31 | base | = 31 {0} | The book has only 30 {0} of 31. {all} |
SNEK/ADA | buy | 1 | quote | = 1 {1} | The book has only 0.150021 {1} of 1. {all} |
SNEK/ADA | buy | 0.02 | quote | = 0.02 {1} | Buying 3 {0} costs 0.015003 {1} {fees}: 0.0050007 on average, 0 % {worse} |
SNEK/ADA | sell | .1 | quote | = 0.1 {1} | Selling 30 {0} brings 0.100003 {1} {fees}: {least} |
SNEK/ADA | buy | 0.000001 | quote | = 0.000001 {1} | This is too little for the smallest amount of {0}. |
SNEK/ADA | buy | 1.5 | base | = 1.5 {0} | | An amount of {0} must be a multiple of 1.
SNEK/ADA | buy | 0.0000001 | quote | = 0.0000001 {1} | | An amount of {1} must be a multiple of 0.000001.
SNEK/ADA | buy | 0 | base | = 0 {0} | | The amount must be above 0.
SNEK/ADA | buy | 1,500 | base | | | 1,500 has two meanings: type 1500 or 1.500.
SNEK/ADA | buy | | base | | |
ADA/SNEK | sell | 2 | base | = 2 {1} | Selling 2 {1} brings 4 {0} {fees}: 2.2 on average, 0 % {worse} |
ADA/SNEK | buy | 2 | base | = 2 {1} | Buying 2 {1} costs 5 {0} {fees}: 2.3 on average, 0 % {worse} |
EMPTY | buy | 1 | base | = 1 {0} | There is no order to trade with. |
"""
"""The pair, what was entered, what is understood, the result, and the problem."""
SENTENCES = {
    "fees": "before venue fees",
    "worse": "worse than the best price.",
    "less": "0.00366686666 on average, 8.34 % worse than the best price.",
    "least": "0.00333343333 on average, 16.7 % worse than the best price.",
    "all": "Buying 30 {0} costs 0.150021 {1} before venue fees: 0.0050007 on average, 0 % worse than the best price.",
}
PAIRS = {
    "SNEK/ADA": ({"base": str(SNEK), "quote": "ADA"}, ODD),
    "ADA/SNEK": ({"base": "ADA", "quote": str(SNEK)}, WHOLE),
    "EMPTY": ({"base": str(SNEK), "quote": "ADA"}, [[], []]),
}


def orders() -> list[list[str]]:
    return [[field.strip() for field in line.split("|")] for line in ORDERS.strip().splitlines()]


SHIFTS = {
    ("1500000", -6): "1.5",
    ("0.0000044", 6): "4.4",
    ("4123.5", -6): "0.0041235",
    ("5", 0): "5",
    ("18446744073709551615", -19): "1.8446744073709551615",
    ("-0.001", 6): "-1000",
    ("0.5", 3): "500",
    ("0", -6): "0",
    ("100", -2): "1",
}
LINKS = {
    "": (None, ""),
    "#": (None, ""),
    "#base=ADA&quote=ADA": ("ADA/ADA", ""),
    f"#base={str(SNEK).upper()}&quote=ADA&step=0.01": (f"{SNEK}/ADA", "0.01"),
    "#base=ADA&quote=ada": ("", ""),
    "#step=20": ("", "20"),
    **{f"#base=ADA&quote=ADA&step={step}": ("ADA/ADA", "") for step in ("3", "11", "1e5", "-1", "0", "1.2.", "<b>")},
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
        *((book, step) for book in random_books() for step in ("", "0.01", "50")),
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
        "links": list(LINKS),
        "shifts": list(SHIFTS),
        "charted": (CHART_BIDS, CHART_ASKS),
        "changes": [
            (entries(one), (changed(one.bids, other.bids), changed(one.asks, other.asks)))
            for one, other in pairwise(random_books())
        ],
        "books": [book for book, _ in STATES.values()],
        "fills": [
            (entries(book), side is Side.ASK, str(amount), unit == "quote") for book, side, amount, unit in fills()
        ],
        "orders": [
            (*PAIRS[pair], order == "buy", entered, asset == "quote") for pair, order, entered, asset, *_ in orders()
        ],
        "tokens": {
            "has_registry": True,
            "tokens": [{"id": str(SNEK), "name": "SNEK", "policy": "", "decimals": 0, "names": [], "fingerprint": ""}],
        },
    }
    [found] = node.run(tmp_path_factory.mktemp("modules"), NODE, given)
    return found


def test_each_state_of_a_book_is_named_and_explained(computed: Any):
    assert dict(zip(STATES, computed["states"], strict=True)) == {name: state for name, (_, state) in STATES.items()}


def fills() -> list[tuple[OrderBook, Side, int, Literal["base", "quote"]]]:
    """Return market orders: amounts below, at and above what a side has, of the base and of the quote."""
    drawn = random.Random(6)
    made: list[tuple[OrderBook, Side, int, Literal["base", "quote"]]] = []
    for book in random_books():
        for side, levels in ((Side.BID, book.bids), (Side.ASK, book.asks)):
            total = sum(level.accumulated_liquidity for level in levels)
            amounts = (0, 1, levels[0].accumulated_liquidity, drawn.randrange(total), total, total + 1)
            made += [(book, side, amount, "base") for amount in amounts]
            worth = int(sum(level.price * level.accumulated_liquidity for level in levels))
            made += [(book, side, amount, "quote") for amount in (0, 1, drawn.randrange(worth + 1), worth, worth + 2)]
    return made


def test_a_market_order_is_computed_as_exactly_as_by_the_library(computed: Any):
    for (book, side, amount, unit), result in zip(fills(), computed["fills"], strict=True):
        filled, paid, complete, average = result
        expected = (book.buy if side is Side.ASK else book.sell)(amount, unit)
        assert (int(filled), Decimal(paid), complete) == (expected.filled, expected.paid, expected.complete)
        assert (average is None) == (expected.average_price is None)
        if average is not None:
            exact = Fraction(expected.paid) / expected.filled
            assert abs(Fraction(average) - exact) < Fraction(1, 10**40)
            assert Fraction(average) >= exact if side is Side.ASK else Fraction(average) <= exact, "never too good"


@pytest.mark.decision(41)
def test_an_order_is_understood_and_its_cost_is_rounded_up_and_its_proceeds_down(computed: Any):
    for (*_, understood, sentence, problem), result in zip(orders(), computed["orders"], strict=True):
        texts = (text.format(*NAMES, **SENTENCES).format(*NAMES) for text in (understood, sentence, problem))
        assert list(result.values()) == list(texts)


def test_an_amount_and_a_price_are_moved_to_whole_units_exactly(computed: Any):
    assert dict(zip(SHIFTS, computed["shifts"], strict=True)) == SHIFTS


def test_the_page_groups_a_book_by_the_rules_of_the_library_and_writes_prices_as_the_terminal(computed: Any):
    display = Display(is_exact=False)
    for (book, choice), (bids, asks, steps, texts) in zip(groupings(), computed["groupings"], strict=True):
        default = max(Decimal(1).scaleb((book.bids or book.asks)[0].price.adjusted() - 5), Decimal("1e-28"))
        expected = book if book is TOO_LARGE else book.grouped(choice or default)
        assert (bids, asks) == tuple([list(entry) for entry in side] for side in entries(expected))
        sides = [(Side.BID, one) for one in expected.bids] + [(Side.ASK, one) for one in expected.asks]
        *levels, bid, ask, spread, mid = texts
        assert levels == [display.price(SNEK_ADA, one.price, side, 9) for side, one in sides]
        assert choice or max(map(len, levels)) <= MAX_LINE, "a price fits in one line"
        # Key figures are never grouped.
        best = [
            display.price(SNEK_ADA, one and one.price, side)
            for one, side in ((book.best_bid, Side.BID), (book.best_ask, Side.ASK))
        ]
        assert [bid, ask] == best
        assert spread.partition(" (")[0] == display.price(SNEK_ADA, book.spread)
        assert mid == display.price(SNEK_ADA, book.mid)
        # Each step that is offered changes a price; a step that divides all prices does not.
        highest = Fraction((book.bids or book.asks)[0].price)
        units = [default.scaleb(power) for power in range(60) if Fraction(default.scaleb(power)) <= highest]
        offered = [unit * factor for unit in units for factor in (1, 2, 5)][1:]
        prices = [one.price for one in (*book.bids, *book.asks)]
        assert [Decimal(step) for step in steps] == [
            step for step in offered if any(Fraction(price) % Fraction(step) for price in prices)
        ][:10]


def test_a_link_names_a_pair_and_a_round_step(computed: Any):
    found = [(link["pair"] and (link["pair"]["key"] or ""), link["step"]) for link in computed["links"]]
    assert dict(zip(LINKS, found, strict=True)) == LINKS


def test_changes_of_the_stream_make_the_next_book(computed: Any):
    for found, expected in zip(computed["changes"], random_books()[1:], strict=True):
        assert found == [[list(entry) for entry in side] for side in entries(expected)]


CHART_BIDS = [["0.0000001", "1000000000000"], *([f"0.9{digit}", "100"] for digit in range(10))][::-1]
CHART_ASKS = [*([f"1.0{digit}", "100"] for digit in range(10)), ["50", "100"]]


def test_the_chart_shows_the_totals_of_the_ladder_around_the_middle(computed: Any):
    low, high, *sides = computed["chart"]
    for found, levels in zip(sides, (CHART_BIDS, CHART_ASKS), strict=True):
        assert list(map(Decimal, found)) == list(accumulate(100 * Decimal(price) for price, _ in levels[:10]))
    assert (Decimal(low), Decimal(high)) == (Decimal("0.8905"), Decimal("1.0995"))
