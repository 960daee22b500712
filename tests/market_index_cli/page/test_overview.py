"""The list of the page: what the service sends for it, and its order and search in list.js, run by node."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

from market_index import ADA, Freshness, LiveIndex, OrderBook, Pair
from market_index.display import Tokens
from market_index_cli.page.overview import Overview
from tests.market_index_cli.page import node
from tests.page import token

NODE = """
import { decimal } from "./exact.mjs";
import { firstReadable, matching, ORDERS, withPrices } from "./list.mjs";
const entry = ([base, quote, spot, bid, ask, liquidity]) => {
  const assets = [base, quote];
  const names = { names: [[base], [quote]], folded: assets.map((one) => one.toLowerCase()), identifiers: "" };
  const prices = [spot, bid, ask].map((price) => price && decimal(price));
  const total = liquidity === null ? -1n : BigInt(liquidity);
  return withPrices({ ...names, hasAda: assets.includes("ADA") }, ...prices, total);
};
const key = ({ names: [[base], [quote]] }) => `${base}/${quote}`;
const entries = given.rows.map(entry);
console.log(JSON.stringify({
  orders: Object.fromEntries(Object.entries(ORDERS).map(([name, by]) => [name, entries.toSorted(by).map(key)])),
  found: given.terms.map((terms) => matching(entries, terms).map(key)),
  first: given.choices.map((rows) => firstReadable(rows.map(entry))).map((one) => one && key(one)),
}));
"""

ROWS = [
    ("MIN", "SNEK", "1", "1", "2", None),
    ("TOK1", "MIN", "1", "1", "2", None),
    ("SNEKY", "ADA", None, "1", "1.01", "900"),
    ("ADA", "SNEK", None, "1", "1.1", "10"),
    ("TOK10", "ADA", None, None, "1", None),
    ("SNEK", "ADA", None, "2", "2.1", "500"),
    ("TOK2", "ADA", None, "3", "2.9", "7"),
]


def evaluate(folder: Path, **given: object) -> Any:
    [found] = node.run(folder, NODE, {"rows": ROWS, "terms": [], "choices": []} | given)
    return found


def test_the_list_is_sorted_by_numbers_in_names_by_liquidity_or_by_spread(tmp_path: Path):
    assert evaluate(tmp_path)["orders"] == {
        "name": ["ADA/SNEK", "MIN/SNEK", "SNEK/ADA", "SNEKY/ADA", "TOK1/MIN", "TOK2/ADA", "TOK10/ADA"],
        "liquidity": ["SNEKY/ADA", "SNEK/ADA", "ADA/SNEK", "TOK2/ADA", "MIN/SNEK", "TOK1/MIN", "TOK10/ADA"],
        "spread": ["TOK2/ADA", "SNEKY/ADA", "SNEK/ADA", "ADA/SNEK", "MIN/SNEK", "TOK1/MIN", "TOK10/ADA"],
    }


def test_the_best_match_is_exact_then_of_ada_then_liquid(tmp_path: Path):
    terms = [["snek"], ["snek", "min"], ["sneky"], ["tok"], ["zzz"], []]
    snek, both, sneky, tok, nothing, everything = evaluate(tmp_path, terms=terms)["found"]
    assert snek == ["SNEK/ADA", "ADA/SNEK", "MIN/SNEK", "SNEKY/ADA"]
    assert (both, sneky, nothing) == (["MIN/SNEK"], ["SNEKY/ADA"], [])
    assert tok == ["TOK2/ADA", "TOK10/ADA", "TOK1/MIN"]
    assert everything == [f"{base}/{quote}" for base, quote, *_ in ROWS]


def test_the_first_pair_has_both_sides_and_is_not_crossed(tmp_path: Path):
    apart, with_spot = ("A", "B", None, "1", "2", None), ("C", "D", "1", "1", "2", None)
    crossed, locked, empty = ("E", "F", "1", "2", "1", None), ("G", "H", "1", "1", "1", None), ("I", "J", *[None] * 4)
    choices = [[], [empty], [empty, crossed, locked], [crossed, locked, apart], [empty, apart, with_spot]]
    assert evaluate(tmp_path, choices=choices)["first"] == [None, "I/J", "E/F", "A/B", "C/D"]


def rows_of(overview: Overview) -> Any:
    return json.loads(overview.pairs().text)


def row(book: OrderBook) -> list[str | None]:
    """Return what the list must have for a book, by another way than the service."""
    pair, mid = book.pair, book.mid
    prices = [book.spot, book.bids[0].price if book.bids else None, book.asks[0].price if book.asks else None]
    total = None
    if ADA in (pair.base, pair.quote) and mid is not None:
        near = [one for side in (book.bids, book.asks) for one in side if abs(one.price - mid) <= mid * Decimal("0.02")]
        sides = [[one for one in near if one in side] for side in (book.bids, book.asks)]
        worth = [
            sum((1 if pair.base == ADA else one.price) * one.accumulated_liquidity for one in side) for side in sides
        ]
        total = str(sum(map(int, worth)))
    return [str(pair.base), str(pair.quote), *(one if one is None else format(one, "f") for one in prices), total]


def test_rows_follow_every_version_of_the_index():
    drawn = random.Random(3)
    pairs = [Pair(token(b"A", number), ADA) for number in range(1, 5)] + [
        Pair(ADA, token(b"B")),
        Pair(token(b"A"), token(b"B")),
    ]
    live = LiveIndex()
    overview = Overview(live, Tokens())
    assert rows_of(overview) == []
    for _ in range(60):
        pair = drawn.choice(pairs)
        if drawn.random() < 0.2:
            live.retract(pair)
        else:
            sides = [
                [(f"{base + drawn.randrange(60) / 1000:.3f}", drawn.randrange(1, 2**60)) for _ in range(3)]
                for base in (0.94, 1)
            ]
            bids, asks = (dict(side).items() if drawn.random() < 0.8 else () for side in sides)
            live.publish(OrderBook.from_levels(pair, bids=bids, asks=asks, spot=drawn.choice(["1", None])))
        assert rows_of(overview) == [row(book) for book in live.current.values()]


def test_an_unchanged_list_has_the_same_body():
    book = OrderBook.from_levels(Pair(token(b"A"), ADA), bids=[("1", 1)])
    live = LiveIndex([book])
    overview = Overview(live, Tokens())
    before = overview.pairs()
    live.update([], freshness=Freshness("slot 2"))
    assert overview.pairs() is before
    live.publish(book.apply(bids=[("1", 2)]))
    assert overview.pairs().digest == before.digest, "the best price is the same"


def test_only_assets_of_tracked_pairs_have_a_name():
    asset = token(b"SNEK")
    overview = Overview(LiveIndex([OrderBook(Pair(asset, ADA))]), Tokens())
    content = json.loads(overview.tokens().text)
    assert content == {
        "hasRegistry": False,
        "assets": {"ADA": ["ADA", "", 6, []], str(asset): ["SNEK", f"{str(asset)[:8]}…", None, []]},
    }
