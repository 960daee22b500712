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
import { Tokens } from "./assets.mjs";
import { decimal } from "./exact.mjs";
import { entryOf, firstReadable, matching, ORDERS, withPrices } from "./list.mjs";
const tokens = new Tokens(given.tokens);
const entry = ([base, quote, spot, bid, ask, liquidity]) => {
  const prices = [spot, bid, ask].map((price) => price && decimal(price));
  const found = entryOf({ base, quote, key: `${base}/${quote}` }, tokens);
  return withPrices(found, ...prices, liquidity === null ? -1n : BigInt(liquidity));
};
const key = ({ names: [[base], [quote]] }) => `${base}/${quote}`;
const entries = given.rows.map(entry);
console.log(JSON.stringify({
  orders: Object.fromEntries(Object.entries(ORDERS).map(([name, by]) => [name, entries.toSorted(by).map(key)])),
  found: given.searches.map((search) => matching(entries, search).map(key)),
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
    [found] = node.run(folder, NODE, {"rows": ROWS, "searches": [], "choices": [], "tokens": {}} | given)
    return found


def test_the_list_is_sorted_by_numbers_in_names_by_liquidity_or_by_spread(tmp_path: Path):
    assert evaluate(tmp_path)["orders"] == {
        "name": ["ADA/SNEK", "MIN/SNEK", "SNEK/ADA", "SNEKY/ADA", "TOK1/MIN", "TOK2/ADA", "TOK10/ADA"],
        "liquidity": ["SNEKY/ADA", "SNEK/ADA", "ADA/SNEK", "TOK2/ADA", "MIN/SNEK", "TOK1/MIN", "TOK10/ADA"],
        "spread": ["SNEKY/ADA", "SNEK/ADA", "ADA/SNEK", "MIN/SNEK", "TOK1/MIN", "TOK10/ADA", "TOK2/ADA"],
    }


def test_the_best_match_is_exact_then_of_ada_then_liquid(tmp_path: Path):
    searches = ["SNEK", "snek min", "sneky", "tok", "zzz", " "]
    snek, both, sneky, tok, nothing, everything = evaluate(tmp_path, searches=searches)["found"]
    assert snek == ["SNEK/ADA", "ADA/SNEK", "MIN/SNEK", "SNEKY/ADA"]
    assert (both, sneky, nothing) == (["MIN/SNEK"], ["SNEKY/ADA"], [])
    assert tok == ["TOK2/ADA", "TOK10/ADA", "TOK1/MIN"]
    assert everything == [f"{base}/{quote}" for base, quote, *_ in ROWS]


def test_a_pair_is_found_in_any_spelling_of_its_names_and_identifiers(tmp_path: Path):
    asset = token(b"MIN")
    names = {"name": "MIN", "names": ["Minswap"], "policy": "", "decimals": 6}
    tokens = {"has_registry": True, "tokens": [{"id": str(asset), "fingerprint": asset.fingerprint, **names}]}
    spellings = ["MIN-ADA", "min_ada", "MINADA", "min/ada", "ada min", "minswap", str(asset), asset.dotted, asset.unit]
    searches = [*spellings, f" {asset.unit.upper()} ", str(asset.fingerprint), str(asset.fingerprint)[:12]]
    rows = [(str(asset), "ADA", "1", "1", "2", None), ("OTHER", "ADA", "1", "1", "2", None)]
    found = evaluate(tmp_path, rows=rows, tokens=tokens, searches=[*searches, "min-snek"])["found"]
    assert found == [["MIN/ADA"]] * len(searches) + [[]]


def test_the_first_pair_is_readable_known_traded_and_liquid_in_this_order(tmp_path: Path):
    tokens = {"has_registry": True, "tokens": [{"id": "K", "name": "K", "policy": "", "decimals": 6, "names": []}]}
    apart, with_spot = ("A", "B", None, "1", "2", None), ("C", "D", "1", "1", "2", None)
    crossed, locked, empty = ("E", "F", "1", "2", "1", None), ("G", "H", "1", "1", "1", None), ("I", "J", *[None] * 4)
    known, liquid = ("K", "ADA", None, "1", "2", "5"), ("ADA", "K", None, "1", "2", "7")
    choices = [[], [empty], [empty, crossed, locked], [crossed, locked, apart], [empty, apart, with_spot]]
    choices += [[with_spot, known], [known, liquid], [liquid, known]]
    expected = [None, "I/J", "E/F", "A/B", "C/D", "K/ADA", "ADA/K", "ADA/K"]
    assert evaluate(tmp_path, choices=choices, tokens=tokens)["first"] == expected


def rows_of(overview: Overview) -> Any:
    return json.loads(overview.summary().text)["pairs"]


def row(book: OrderBook) -> dict[str, object]:
    """Return what the list must have for a book, by another way than the service."""
    pair, mid = book.pair, book.mid
    bid, ask = (side[0].price if side else None for side in (book.bids, book.asks))
    prices = {"spot": book.spot, "best_bid": bid, "best_ask": ask, "spread": ask - bid if bid and ask else None}
    total = None
    if ADA in (pair.base, pair.quote) and mid is not None and book.bids[0].price < book.asks[0].price:
        near = [one for side in (book.bids, book.asks) for one in side if abs(one.price - mid) <= mid * Decimal("0.02")]
        sides = [[one for one in near if one in side] for side in (book.bids, book.asks)]
        worth = [
            sum((1 if pair.base == ADA else one.price) * one.accumulated_liquidity for one in side) for side in sides
        ]
        total = str(sum(map(int, worth)))
    texts = {name: price if price is None else format(price.normalize(), "f") for name, price in prices.items()}
    levels = {"bids": len(book.bids), "asks": len(book.asks)}
    return {"base": str(pair.base), "quote": str(pair.quote), **texts, **levels, "liquidity": total}


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


def test_a_version_has_one_body_of_each():
    """Not one for each request: that would cost 62 ms with 5,000 pairs."""
    book = OrderBook.from_levels(Pair(token(b"A"), ADA), bids=[("1", 1)])
    live = LiveIndex([book])
    overview = Overview(live, Tokens())
    before = overview.summary(), overview.tokens()
    live.update([], freshness=Freshness("slot 2"))
    assert all(body is other for body, other in zip((overview.summary(), overview.tokens()), before, strict=True))
    live.publish(book.apply(bids=[("1", 2)]))
    assert overview.summary().digest == before[0].digest, "the best price is the same"
    assert overview.tokens() is before[1]
    live.publish(OrderBook(Pair(token(b"B"), ADA)))
    assert overview.tokens() is not before[1]


def test_only_assets_of_tracked_pairs_have_a_name():
    asset = token(b"SNEK")
    overview = Overview(LiveIndex([OrderBook(Pair(asset, ADA))]), Tokens())
    common = {"policy": "", "names": []}
    assert json.loads(overview.tokens().text) == {
        "has_registry": False,
        "tokens": [
            {"id": "ADA", "name": "ADA", "decimals": 6, "fingerprint": None, **common},
            {"id": str(asset), "name": "SNEK", "decimals": None, "fingerprint": asset.fingerprint, **common},
        ],
    }
