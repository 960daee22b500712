"""Pairs and books by number, for tests in which the content of books does not matter."""

from __future__ import annotations

from market_index import ADA, AssetId, LiveIndex, MarketIndex, OrderBook, Pair


def pair(number: int) -> Pair:
    return Pair(AssetId(number.to_bytes(28, "big"), b"z"), ADA)


def book(number: int, spot: object = None) -> OrderBook:
    return OrderBook(pair(number), spot=None if spot is None else str(spot))


def spots(index: LiveIndex | MarketIndex) -> dict[int, str | None]:
    """Return the tracked pairs by number, with their spot prices."""
    index = index.current if isinstance(index, LiveIndex) else index
    return {
        int.from_bytes(one.base.policy_id): None if one.last_spot is None else str(one.last_spot)
        for one in index.pair_list()
    }
