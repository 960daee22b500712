"""Strategies for market indexes, entries of the pair list, and freshness."""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal
from operator import attrgetter
from typing import Final

from hypothesis import strategies as st

from market_index.freshness import Freshness
from market_index.index import MarketIndex
from market_index.order_book import OrderBook
from market_index.pairs import Pair, PairInfo
from market_index.strategies.assets import pairs
from market_index.strategies.drawing import build, part_strategy, require_range
from market_index.strategies.numbers import spot_strategy
from market_index.strategies.order_books import order_books

AS_OFS: Final = st.from_regex(r"[!-~]([ -~]{0,198}[!-~])?", fullmatch=True)


def pair_infos(
    *,
    pair: Pair | st.SearchStrategy[Pair] | None = None,
    last_spot: Decimal | str | st.SearchStrategy[Decimal | None] | None = None,
) -> st.SearchStrategy[PairInfo]:
    """Draw entries of a pair list. Unless `last_spot` is given, it is None or any price."""
    return build(
        lambda pair, last_spot: PairInfo(pair.base, pair.quote, last_spot),
        part_strategy(pair, pairs),
        spot_strategy(last_spot),
    )


def freshness() -> st.SearchStrategy[Freshness]:
    """Draw freshness; `as_of` and `published_at` may each be unknown."""
    return st.builds(Freshness, st.none() | AS_OFS, st.none() | st.datetimes(timezones=st.just(UTC)))


def market_indexes(
    *, book: OrderBook | st.SearchStrategy[OrderBook] | None = None, min_pairs: int = 0, max_pairs: int = 6
) -> st.SearchStrategy[MarketIndex]:
    """Draw indexes of `min_pairs` to `max_pairs` pairs, with small books unless `book` is given."""
    require_range("the pairs of an index", min_pairs, max_pairs)
    drawn_books = part_strategy(book, lambda: order_books(max_levels=3))
    books = st.lists(drawn_books, min_size=min_pairs, max_size=max_pairs, unique_by=attrgetter("pair"))
    return st.builds(MarketIndex.with_freshness, books.map(MarketIndex), freshness())
