"""Objects created without the constructor equal those that the constructor returns."""

from __future__ import annotations

from decimal import Decimal

import pytest
from attrs import fields
from hypothesis import given
from hypothesis import strategies as st

from market_index import Order, OrderBook, PriceLevel
from market_index.strategies import order_books, orders, price_levels
from market_index.unchecked import unchecked_constructor, unchecked_rows


@given(price_levels(), order_books(), orders())
def test_the_fields_are_set_in_order(level: PriceLevel, book: OrderBook, order: Order):
    for value in (level, book, order):
        create = unchecked_constructor(type(value))
        assert create(*[getattr(value, field.name) for field in fields(type(value))]) == value


def test_a_created_object_cannot_be_changed():
    level = unchecked_constructor(PriceLevel)(Decimal(1), 2)
    with pytest.raises(AttributeError):
        level.price = Decimal(2)  # type: ignore[misc]  # it is frozen


@given(st.lists(price_levels()))
def test_rows_are_created_from_columns(levels: list[PriceLevel]):
    prices, amounts = [level.price for level in levels], (level.accumulated_liquidity for level in levels)
    assert unchecked_rows(PriceLevel, len(levels), prices, amounts) == levels


def test_each_field_has_a_column():
    with pytest.raises(ValueError, match="zip"):
        unchecked_rows(PriceLevel, 1, [Decimal(1)])
