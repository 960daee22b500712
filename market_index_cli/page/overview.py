"""What the page shows of all pairs beside the open book: best prices and liquidity, and the names of the assets."""

from __future__ import annotations

import json
from threading import Lock
from typing import Any, Final, final

from market_index import AssetId, LiveIndex, MarketIndex, OrderBook, Pair, Side, format_price
from market_index.display import Tokens
from market_index_cli.tokens import ticker
from market_index_http.responses import Body

LIQUIDITY_RATIO: Final = "0.02"
"""How far from the midpoint a level may be to count as liquidity."""

_POLICY_DIGITS: Final = 8


@final
class Overview:
    """The bodies of `pairs.json` and `tokens.json`, for the current index.

    The row of a pair is computed once for each of its books, and the names of an asset once: a new version costs what
    changed. The first one takes a second for some thousand pairs, so the methods run in threads, one at a time.
    """

    def __init__(self, live: LiveIndex, tokens: Tokens) -> None:
        self._live = live
        self._tokens = tokens
        self._registered = frozenset(token.asset for token in tokens.entries)
        self._others = {token.asset: [*filter(None, (token.ticker, token.name))] for token in tokens.entries}
        self._index = MarketIndex()
        self._rows: dict[Pair, str] = {}
        self._assets: dict[AssetId, list[Any]] = {}
        self._pairs = _body("[]")
        self._lock = Lock()

    def pairs(self) -> Body:
        """Return a JSON array with a row for each pair, in ledger order.

        A row has base, quote, spot, best bid, best ask, and liquidity (see `liquidity`), each null if it is missing.
        """
        with self._lock:
            index = self._live.current
            changed, removed = index.changes_since(self._index)
            self._index = index
            for pair in removed:
                del self._rows[pair]
            self._rows |= {book.pair: _row(book) for book in changed}
            if changed or removed:
                self._pairs = _body(f"[{','.join([self._rows[pair] for pair in index])}]")
            return self._pairs

    def tokens(self) -> Body:
        """Return a JSON object with the assets of the tracked pairs, and whether there is a token registry.

        Each asset has its name, the digits to show beside it, its decimals or null, and the other texts to find it by.
        """
        with self._lock:
            assets = sorted({asset for pair in self._live.current for asset in (pair.base, pair.quote)})
            self._assets = {asset: self._assets.get(asset) or self._asset(asset) for asset in assets}
            rows = {str(asset): row for asset, row in self._assets.items()}
        return _body(json.dumps({"hasRegistry": bool(self._registered), "assets": rows}, separators=(",", ":")))

    def _asset(self, asset: AssetId) -> list[Any]:
        label = self._tokens.label(asset)
        if asset in self._registered:
            name, _, beside = label.rpartition(" ")
            name, beside = (name, beside) if name else (beside, "")
        elif asset.is_ada:
            name, beside = label, ""
        else:
            # The minter can choose both. What would look like an entry has the whole identifier beside it.
            imitates = label.endswith(str(asset))
            name, beside = ticker(asset), str(asset) if imitates else f"{str(asset)[:_POLICY_DIGITS]}…"
        return [name, beside, self._tokens.decimals(asset), self._others.get(asset, [])]


def liquidity(book: OrderBook) -> int | None:
    """Return the lovelace of both sides within 2 % of the midpoint; None for a pair without ADA, or without a midpoint.

    Amounts of ADA can be compared between pairs.

    >>> from market_index import ADA
    >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
    >>> liquidity(OrderBook.from_levels(pair, bids=[("0.99", 100), ("0.5", 1)], asks=[("1.01", 100)]))
    200
    """
    if not (book.pair.base.is_ada or book.pair.quote.is_ada):
        return None
    found = [book.liquidity_within(side, LIQUIDITY_RATIO) for side in (Side.BID, Side.ASK)]
    return sum(int(one.base if book.pair.base.is_ada else one.quote) for one in found if one) if all(found) else None


def _row(book: OrderBook) -> str:
    best = (level and level.price for level in (book.best_bid, book.best_ask))
    prices = [price and format_price(price) for price in (book.spot, *best)]
    total = liquidity(book)
    row = [str(book.pair.base), str(book.pair.quote), *prices, None if total is None else str(total)]
    return json.dumps(row, separators=(",", ":"))


def _body(text: str) -> Body:
    return Body.constant(text.encode())
