"""What every value of the library has in common: equality, hash, immutability, pickle and copy."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import Liquidity, MarketIndex, RestingOrders, Side, wire
from market_index.strategies import (
    amounts,
    asset_ids,
    market_indexes,
    order_books,
    orders,
    pair_infos,
    pairs,
    price_levels,
    prices,
    resting_orders,
)

books = order_books(max_levels=3)
# Books whose levels were not accessed yet: decoded, and derived from another.
read_books = books.map(lambda book: wire.order_book_from_json(wire.order_book_to_json(book)))
derived_books = books.map(lambda book: book.apply(bids=[("7", 7)], asks=[("8", 8)]))
sides = st.one_of(books, read_books, derived_books).map(lambda book: book.asks)
values = st.one_of(
    asset_ids(),
    pairs(),
    pair_infos(),
    price_levels(),
    orders(),
    books,
    read_books,
    derived_books,
    sides,
    market_indexes(),
    resting_orders(),
    books.map(lambda book: book.simulate_fill(Side.ASK, 10**12)),
    order_books(sides=Side.ASK, min_levels=1, max_levels=3).map(lambda book: book.cumulative(Side.ASK)[-1]),
    st.builds(Liquidity, base=amounts(), quote=prices()),
)


class Foreign:
    """An object of another class that does not implement comparison."""

    __hash__ = None  # type: ignore[assignment]  # it need not be hashable

    def __eq__(self, other: object) -> bool:
        return NotImplemented


@given(values)
def test_a_value_survives_pickle_and_copy(value):
    for duplicate in (
        *(pickle.loads(pickle.dumps(value, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)),
        copy.copy(value),
        copy.deepcopy(value),
    ):
        assert duplicate == value
        assert hash(duplicate) == hash(value)
        assert repr(duplicate) == repr(value)
        assert type(duplicate) is type(value)


@given(values, values)
def test_a_value_equals_only_values_of_its_class(one, other):
    if type(one) is not type(other):
        # Empty mappings equal {}, so they equal each other.
        assert one != other or one == other == {}
    assert (one == other) == (other == one)
    if one == other:
        assert hash(one) == hash(other)
    foreigners = [None, 0, "ADA", b"", (), [], Foreign(), object()]
    for foreign in foreigners if isinstance(one, MarketIndex | RestingOrders) else [*foreigners, {}]:
        assert not one == foreign  # noqa: SIM201  # the subject is ==
        assert one != foreign


@given(values)
def test_a_value_cannot_be_changed(value):
    public = [name for name in dir(value) if not name.startswith("_")]
    for name in (*public, "another"):
        with pytest.raises(AttributeError):
            setattr(value, name, None)
        with pytest.raises(AttributeError):
            delattr(value, name)
    assert not hasattr(value, "__dict__")


@given(st.one_of(asset_ids(), pairs()))
def test_a_value_is_ordered_only_against_values_of_its_class(value):
    with pytest.raises(TypeError):
        _ = value < "ADA"
