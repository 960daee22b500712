"""The market index, compared with a plain dict, and the chunks that versions share."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import ADA, AssetId, InvalidOrderBook, MarketIndex, OrderBook, Pair, PairInfo, PairNotFound, wire
from market_index.strategies import order_books


@cache
def ledger_key(pair: Pair) -> tuple[tuple[bool, str], ...]:
    return tuple((str(asset) != "ADA", str(asset)) for asset in (pair.base, pair.quote))


def agree(index: MarketIndex, model: dict[Pair, OrderBook]) -> None:
    in_order = sorted(model, key=ledger_key)
    assert list(index) == in_order
    assert len(index) == len(model)
    assert list(index.values()) == [model[pair] for pair in in_order]
    assert list(index.items()) == [(pair, index.order_book(pair)) for pair in in_order]
    assert index.pair_list() == tuple(PairInfo(pair.base, pair.quote, model[pair].spot) for pair in in_order)


def numbered_pair(number: int) -> Pair:
    return Pair(AssetId(number.to_bytes(28, "big"), b"x"), ADA)


# A few pairs with different books, and runs of pairs that are several chunks.
FEW = st.sampled_from([Pair(ADA, numbered_pair(1).base), *map(numbered_pair, (1, 2, 150))])
numbers = st.builds(range, st.integers(1, 200), st.integers(1, 400), st.integers(1, 3))
changes = st.tuples(
    st.lists(order_books(pair=FEW, max_levels=1), max_size=4)
    | numbers.map(lambda some: [OrderBook(numbered_pair(number)) for number in some]),
    st.lists(FEW, max_size=3) | numbers.map(lambda some: list(map(numbered_pair, some))),
)


@given(st.lists(changes, max_size=5))
def test_an_index_and_its_changes_equal_those_of_a_dict(steps: list[tuple[list[OrderBook], list[Pair]]]):
    index, model = MarketIndex(), dict[Pair, OrderBook]()
    for books, gone in steps:
        earlier, before = index, dict(model)
        index = index.with_books(*books).without(*gone)
        model |= {book.pair: book for book in books}
        model = {pair: book for pair, book in model.items() if pair not in gone}
        agree(index, model)
        agree(earlier, before)
        rebuilt = MarketIndex(model.values())
        assert (rebuilt, hash(rebuilt)) == (index, hash(index))
        published, retracted = index.changes_since(earlier)
        assert {book.pair: book for book in published} == {
            pair: book for pair, book in model.items() if before.get(pair) != book
        }
        assert all(earlier.get(book.pair) is not book for book in published)
        assert sorted(retracted) == sorted(before.keys() - model.keys())
        assert len(published) == len({book.pair for book in published})


def test_if_a_pair_repeats_the_last_book_wins():
    books = [OrderBook(numbered_pair(number), spot=spot) for spot in ("1", "2") for number in (2, 1, 2)]
    agree(MarketIndex(books), {book.pair: book for book in books})


def test_a_pair_that_is_not_tracked_is_named():
    there, inverted = numbered_pair(1), Pair(ADA, numbered_pair(1).base)
    index = MarketIndex([OrderBook(there)])
    for missing in (inverted, Pair(ADA, ADA)):
        with pytest.raises(PairNotFound) as not_found:
            index.order_book(missing)
        assert str(not_found.value) == f"Pair {missing} not found"
        assert not_found.value.pair == missing
        assert isinstance(not_found.value, LookupError)


def test_foreign_keys_are_not_tracked():
    index = MarketIndex([OrderBook(numbered_pair(1))])
    assert "ADA" not in index  # type: ignore[comparison-overlap]  # a caller without types
    assert index.get("ADA") is None  # type: ignore[call-overload]  # a caller without types
    assert MarketIndex().get(numbered_pair(1)) is None
    with pytest.raises(KeyError, match="the key of an index must be a Pair, got str: 'ADA'"):
        index.order_book("ADA")  # type: ignore[arg-type]  # a caller without types
    with pytest.raises(InvalidOrderBook, match="pair must be a Pair, got str: 'ADA'"):
        index.without("ADA")  # type: ignore[arg-type]  # a caller without types


def test_an_index_is_made_of_books_of_a_mapping_or_of_another_index():
    books = [OrderBook(numbered_pair(number)) for number in (2, 1)]
    index = MarketIndex(books)
    assert list(MarketIndex({book.pair: book for book in books}).values()) == list(MarketIndex(index).values())
    assert MarketIndex(index) == index


def test_a_value_that_is_not_a_book_is_rejected_and_changes_nothing():
    book = OrderBook(numbered_pair(1))
    index = MarketIndex([book])
    with pytest.raises(InvalidOrderBook, match="a value of an index must be an OrderBook, got str: 'book'"):
        index.with_books(OrderBook(numbered_pair(2)), "book")  # type: ignore[arg-type]  # a caller without types
    with pytest.raises(InvalidOrderBook, match="a value of an index must be an OrderBook, got NoneType"):
        MarketIndex([None])  # type: ignore[list-item]  # a caller without types
    assert list(index.values()) == [book]


def test_an_index_without_a_change_is_the_same_object():
    for index in (MarketIndex(), MarketIndex([OrderBook(numbered_pair(1))])):
        assert index.with_books() is index
        assert index.without() is index
        assert index.without(numbered_pair(2)) is index
        assert index.with_books(*index.values()) is index


def test_an_index_equals_every_mapping_of_the_same_pairs_to_the_same_books():
    books = [OrderBook(numbered_pair(number), spot=str(number)) for number in range(1, 200)]
    index = MarketIndex(books)
    assert index == dict(index)
    assert dict(index) == index
    assert index == MappingProxyType(dict(index))
    assert index != dict(index) | {books[0].pair: books[0].apply(spot="7")}
    assert index != {books[0].pair: books[0]}
    assert MarketIndex() == {}
    assert index != books
    indexes = [MarketIndex(books[:size]) for size in range(10)]
    assert len(set(map(hash, indexes))) == len(indexes)


@pytest.mark.parametrize("value", [MarketIndex(), OrderBook(numbered_pair(1)), OrderBook(numbered_pair(1)).bids])
def test_changes_are_since_a_value_of_the_same_class(value: Any):
    with pytest.raises(TypeError, match=rf"^earlier must be a {type(value).__name__}, got dict: {{}}$"):
        value.changes_since({})


@given(order_books(max_levels=3))
def test_an_equal_book_changes_nothing_and_the_stored_object_stays(book: OrderBook):
    equal = wire.order_book_from_json(wire.order_book_to_json(book))
    index = MarketIndex([book])
    assert equal is not book
    assert index.with_books(equal) is index
    other = OrderBook(numbered_pair(7))
    assert index.with_books(equal, other)[book.pair] is book
    # Indexes that were made independently of each other are compared by value.
    assert MarketIndex([equal]).changes_since(index) == ((), ())
    assert MarketIndex([equal, other]).changes_since(index) == ((other,), ())
