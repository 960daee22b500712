"""What programs and people need of all pairs beside the books: the bodies of `/summary` and `/tokens`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final, final

from market_index import AssetId, LiveIndex, MarketIndex, OrderBook, Pair, Side
from market_index.display import Tokens
from market_index_cli.tokens import ticker
from market_index_http.responses import Body

LIQUIDITY_RATIO: Final = "0.02"
"""How far from the midpoint a level may be to count as liquidity."""

_POLICY_DIGITS: Final = 8


@final
class Overview:
    """The bodies of `/summary` and `/tokens` for the current index, made once a version.

    The row of a pair is computed once for each of its books, and the row of an asset once: a new version costs what
    changed. The first one takes a second for some thousand pairs, so the methods run in threads, one at a time.
    """

    def __init__(self, live: LiveIndex, tokens: Tokens) -> None:
        self._live = live
        self._tokens = tokens
        self._names = {token.asset: [*filter(None, (token.ticker, token.name))] for token in tokens.entries}
        self._index = MarketIndex()
        self._pair_rows: dict[Pair, str] = {}
        self._asset_rows: dict[AssetId, dict[str, Any]] = {}
        self._pairs = self._summary_body()
        self._assets = self._tokens_body()
        self._lock = Lock()

    def summary(self) -> Body:
        """Return the JSON `{"pairs": […]}` with a row for each pair, in ledger order.

        A row has `base`, `quote`, `spot`, `best_bid`, `best_ask`, `spread`, the number of `bids` and `asks`, and
        `liquidity` (see `liquidity`). Prices are texts as in the order book, and what is missing is null.
        """
        with self._lock:
            self._update()
            return self._pairs

    def tokens(self) -> Body:
        """Return the JSON `{"has_registry": …, "tokens": […]}` with a row for each asset of the tracked pairs.

        A row has the `id`, the `name` to show, digits of the `policy` if the name alone could mean another asset, the
        `decimals` or null, all `names` of the registry, and the CIP-14 `fingerprint`.
        """
        with self._lock:
            self._update()
            return self._assets

    def _update(self) -> None:
        index = self._live.current
        changed, removed = index.changes_since(self._index)
        if not (changed or removed):
            return
        self._index = index
        has_other_pairs = bool(removed) or any(book.pair not in self._pair_rows for book in changed)
        for pair in removed:
            del self._pair_rows[pair]
        self._pair_rows |= {book.pair: _row(book) for book in changed}
        self._pairs = self._summary_body()
        if has_other_pairs:
            assets = sorted({asset for pair in index for asset in (pair.base, pair.quote)})
            self._asset_rows = {asset: self._asset_rows.get(asset) or self._asset_row(asset) for asset in assets}
            self._assets = self._tokens_body()

    def _summary_body(self) -> Body:
        return Body.constant(f'{{"pairs":[{",".join([self._pair_rows[pair] for pair in self._index])}]}}'.encode())

    def _tokens_body(self) -> Body:
        policies = _needed_policies(self._asset_rows, self._names)
        rows = [row | {"policy": policies[asset]} for asset, row in self._asset_rows.items()]
        content = {"has_registry": bool(self._names), "tokens": rows}
        return Body.constant(json.dumps(content, separators=(",", ":")).encode())

    def _asset_row(self, asset: AssetId) -> dict[str, Any]:
        # The label of an entry is its name, if it has one, and digits of its policy.
        name = self._tokens.label(asset).rpartition(" ")[0] if asset in self._names else ""
        return {
            "id": str(asset),
            "name": name or ticker(asset),
            "policy": "",
            "decimals": self._tokens.decimals(asset),
            "names": self._names.get(asset, []),
            "fingerprint": asset.fingerprint,
        }


def _needed_policies(rows: Mapping[AssetId, Mapping[str, Any]], names: Mapping[AssetId, Any]) -> dict[AssetId, str]:
    """Return the digits that each asset needs beside its name: none if no other asset has the name.

    Beside a registry, whose entries have `names`, an asset without an entry always has digits: the minter has chosen
    its name. A name with digits that another asset seems to have gets the whole identifier.
    """
    counts = Counter(["ada", *[_folded(row["name"]) for asset, row in rows.items() if not asset.is_ada]])
    policies = dict.fromkeys(rows, "")
    for asset, row in rows.items():
        if not asset.is_ada and (counts[_folded(row["name"])] > 1 or (names and asset not in names)):
            policies[asset] = f"{str(asset)[:_POLICY_DIGITS]}…"
    counts = Counter(_folded(f"{row['name']} {policies[asset]}") for asset, row in rows.items())
    for asset, row in rows.items():
        if not asset.is_ada and counts[_folded(f"{row['name']} {policies[asset]}")] > 1:
            policies[asset] = str(asset)
    return policies


def _folded(text: str) -> str:
    """Return a text as a browser shows it, which shows several spaces as one, in lower case."""
    return " ".join(text.casefold().split())


def liquidity(book: OrderBook) -> int | None:
    """Return the lovelace of both sides within 2 % of the midpoint; None for a pair without ADA or a midpoint.

    Amounts of ADA can be compared between pairs. A crossed or locked book has no price near its midpoint: None.

    >>> from market_index import ADA
    >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
    >>> liquidity(OrderBook.from_levels(pair, bids=[("0.99", 100), ("0.5", 1)], asks=[("1.01", 100)]))
    200
    """
    if not (book.pair.base.is_ada or book.pair.quote.is_ada) or book.is_crossed or book.is_locked:
        return None
    found = [book.liquidity_within(side, LIQUIDITY_RATIO) for side in (Side.BID, Side.ASK)]
    return sum(int(one.base if book.pair.base.is_ada else one.quote) for one in found if one) if all(found) else None


def _row(book: OrderBook) -> str:
    prices = {
        "spot": book.spot,
        "best_bid": book.best_bid and book.best_bid.price,
        "best_ask": book.best_ask and book.best_ask.price,
        "spread": book.spread,
    }
    total = liquidity(book)
    row = {
        "base": str(book.pair.base),
        "quote": str(book.pair.quote),
        **{name: price if price is None else format(price, "f") for name, price in prices.items()},
        "bids": len(book.bids),
        "asks": len(book.asks),
        "liquidity": None if total is None else str(total),
    }
    return json.dumps(row, separators=(",", ":"))
