"""What IPython and Hypothesis print of a value: all of it, which evaluates to the value."""

from __future__ import annotations

import datetime as dt
from copy import copy, deepcopy
from decimal import Decimal
from fractions import Fraction

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.vendor.pretty import pretty

import market_index
from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair
from market_index.strategies import levels, market_indexes, order_books, orders, resting_orders

NAMES = {"datetime": dt, "Decimal": Decimal, "Fraction": Fraction} | vars(market_index)
values = st.one_of(order_books(), levels(), market_indexes(), orders(), resting_orders())


@given(values)
def test_what_is_printed_evaluates_to_the_value(value):
    assert eval(pretty(value), dict(NAMES)) == value  # printed by the library


@given(values)
def test_a_copy_is_the_value_and_evolve_validates_it_again(value):
    assert copy(value) is deepcopy(value) is value
    if type(value) is not market_index.RestingOrders:
        assert attrs.evolve(value) == value
    for name in [*type(value).__slots__, "another"]:
        with pytest.raises(AttributeError):
            setattr(value, name, None)


def test_a_large_value_is_printed_short():
    book = OrderBook.from_levels(Pair(AssetId(bytes(28), b""), ADA), asks=[(str(at), 1) for at in range(1, 1_000)])
    assert len(pretty(book)) < 500


def test_a_live_index_is_not_copied():
    for duplicate in (copy, deepcopy):
        with pytest.raises(TypeError, match="copy its `current`"):
            duplicate(LiveIndex())
