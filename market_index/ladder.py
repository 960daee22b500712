"""One side of a book as a ladder of price levels, from which the next one is made at the cost of the levels near it.

A ladder is made of levels that are in order, best price first, and is never changed. It is kept apart from the book
that it is a side of, and as plain lists, because a stream makes a new one with every message.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from decimal import Decimal
from typing import Final, TypeAlias

from market_index.levels import PRICE_OF, Entry, Levels, PriceLevel, Side, read_entry, trusted_level
from market_index.sorted_chunks import Chunk, bounds_between, cut, put

_CHUNK_SIZE: Final = 32

Ladder: TypeAlias = tuple[list[Chunk[Decimal, list[PriceLevel]]], list[Decimal], list[Levels]]
"""Chunks of levels, whose keys rise: the prices of asks, the prices of bids negated; their bounds; and all levels in
one, once somebody has looked at them, for all books that share the ladder."""


def ladder_of(side: Side, levels: Levels) -> Ladder:
    """Return the ladder of the levels of a side, best price first."""
    prices = map(PRICE_OF, levels)
    # Unlike a minus sign, copy_negate never rounds.
    keys = list(map(Decimal.copy_negate, prices) if side is Side.BID else prices)
    chunks = cut(keys, list(levels), _CHUNK_SIZE)
    return chunks, bounds_between(chunks), [levels]


def laid_out(ladder: Ladder) -> Levels:
    """Return all levels, best price first."""
    chunks, _, known = ladder
    if not known:
        levels: list[PriceLevel] = []
        for _, chunk in chunks:
            levels += chunk
        known.append(tuple(levels))
    return known[0]


def best(ladder: Ladder, count: int) -> Levels:
    """Return the best `count` levels, or all where there are no more."""
    chunks = ladder[0]
    levels = chunks[0][1][:count]
    if len(levels) == count:
        return tuple(levels)
    for _, chunk in chunks[1:]:
        levels += chunk[: count - len(levels)]
        if len(levels) == count:
            break
    return tuple(levels)


def changed(side: Side, ladder: Ladder, entries: Iterable[Entry]) -> Ladder:
    """Return the ladder with each change made, one after the other: itself when there is nothing to change.

    Raises `InvalidOrderBook` and `InvalidPrice`, naming the place.
    """
    before, bounds, _ = ladder
    chunks: list[Chunk[Decimal, list[PriceLevel]]] | None = None
    falling = side is Side.BID
    for place, entry in enumerate(entries):
        price, amount = read_entry(side, place, entry)
        key = price.copy_negate() if falling else price
        at = bisect_left(bounds, key) if bounds else 0
        keys, levels = (before if chunks is None else chunks)[at]
        position = bisect_left(keys, key)
        stands = position < len(keys) and keys[position] == key
        if amount == (levels[position].accumulated_liquidity if stands else 0):
            continue
        if chunks is None:
            chunks = before.copy()
        levels = levels.copy()
        if stands and amount:
            levels[position] = trusted_level(price, amount)
            chunks[at] = keys, levels
            continue
        keys = keys.copy()
        if amount:
            keys.insert(position, key)
            levels.insert(position, trusted_level(price, amount))
        else:
            del keys[position], levels[position]
        bounds = put(chunks, bounds, at, (keys, levels), _CHUNK_SIZE)
    return ladder if chunks is None else (chunks, bounds, [])
