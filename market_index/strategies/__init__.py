"""Hypothesis strategies for books, indexes, orders and their parts, for the test suites of users of the library.

Each strategy mixes generated values with edge cases: the empty and the longest asset name, the smallest and the largest
price, amounts above 2^53, books of one level, locked and crossed books. Values shrink towards short, readable ones. The
extra `hypothesis` also registers the strategies by type, for `st.from_type(OrderBook)` and `@given(book=...)`.

>>> from hypothesis import given
>>> from market_index import Side
>>> @given(order_books(min_levels=1, crossed=False))
... def test_a_fill_is_never_better_than_the_best_price(book):
...     assert book.simulate_fill(Side.ASK, 1).average_price >= book.best_ask.price
>>> test_a_fill_is_never_better_than_the_best_price()

A part of a value, such as the pair in `order_books(pair=...)`, is given as a value or a strategy. Arguments that no
value can have raise `ValueError` when the strategy is created. Values that a given strategy draws are not checked: they
must have the right type, and there must be enough different ones for the levels or pairs.
"""

try:
    from market_index.strategies.assets import asset_ids, asset_names, invalid_asset_id_texts, pairs, policy_ids
    from market_index.strategies.indexes import freshness, market_indexes, pair_infos
    from market_index.strategies.numbers import amounts, invalid_price_texts, prices, ratios
    from market_index.strategies.order_books import level_changes, levels, order_books, price_levels
    from market_index.strategies.orders import order_ids, orders, resting_orders
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(
        f"market_index.strategies needs {_missing.name}, which comes with its extra: "
        "pip install '.[hypothesis]'",
        name=_missing.name,
    ) from None

__all__ = [
    "amounts",
    "asset_ids",
    "asset_names",
    "freshness",
    "invalid_asset_id_texts",
    "invalid_price_texts",
    "level_changes",
    "levels",
    "market_indexes",
    "order_books",
    "order_ids",
    "orders",
    "pair_infos",
    "pairs",
    "policy_ids",
    "price_levels",
    "prices",
    "ratios",
    "resting_orders",
]
