"""What every value of the library has in common: equality, hash, immutability, pickle and copy."""

from __future__ import annotations

import copy
import pickle

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import MarketIndex, RestingOrders, wire
from market_index.strategies import (
    asset_ids,
    cumulative_levels,
    liquidities,
    market_indexes,
    order_books,
    orders,
    pair_infos,
    pairs,
    price_levels,
    resting_orders,
    simulated_fills,
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
    simulated_fills(),
    liquidities(),
    cumulative_levels(),
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
        assert one != other
    assert (one == other) == (other == one)
    if one == other:
        assert hash(one) == hash(other)
    foreigners = [None, 0, "ADA", b"", (), [], Foreign(), object()]
    for foreign in foreigners if isinstance(one, MarketIndex | RestingOrders) else [*foreigners, {}]:
        assert not one == foreign  # noqa: SIM201  # the subject is ==
        assert one != foreign


@given(values)
def test_a_value_cannot_be_changed(value):
    for field in attrs.fields(type(value)):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(value, field.name, None)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            delattr(value, field.name)
    with pytest.raises((attrs.exceptions.FrozenInstanceError, AttributeError)):
        value.another = 1
    assert not hasattr(value, "__dict__")


@given(st.one_of(asset_ids(), pairs()))
def test_a_value_is_ordered_only_against_values_of_its_class(value):
    with pytest.raises(TypeError):
        _ = value < "ADA"
