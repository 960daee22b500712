"""The market index, compared with a plain dict, and the chunks that versions share."""

from __future__ import annotations

import random
from functools import cache
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from market_index import ADA, AssetId, InvalidOrderBook, MarketIndex, OrderBook, Pair, PairInfo, PairNotFound, wire
from market_index.index import by_key
from market_index.strategies import order_books, pairs


@cache
def ledger_key(pair: Pair) -> tuple[tuple[bool, str], ...]:
    return tuple((str(asset) != "ADA", str(asset)) for asset in (pair.base, pair.quote))


def agree(index: MarketIndex, model: dict[Pair, OrderBook]) -> None:
    in_order = sorted(model, key=ledger_key)
    assert list(index) == in_order
    assert len(index) == len(model)
    assert list(index.values()) == [model[pair] for pair in in_order]
    assert index.pair_list() == tuple(PairInfo(pair.base, pair.quote, model[pair].spot) for pair in in_order)


def numbered_pair(number: int) -> Pair:
    return Pair(AssetId(number.to_bytes(28, "big"), b"x"), ADA)


class IndexAgainstDict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.index = MarketIndex()
        self.model: dict[Pair, OrderBook] = {}
        self.earlier = self.index, dict(self.model)

    @rule(books=st.lists(order_books(max_levels=2), max_size=5))
    def with_books(self, books: list[OrderBook]) -> None:
        self.index = self.index.with_books(*books)
        self.model |= {book.pair: book for book in books}

    @rule(data=st.data())
    def with_another_book_of_a_pair(self, data: st.DataObject) -> None:
        if self.model:
            pair = data.draw(st.sampled_from(sorted(self.model)))
            book = data.draw(order_books(pair=st.just(pair), max_levels=2))
            self.index = self.index.with_books(book)
            self.model[pair] = book

    @rule(data=st.data())
    def without(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.one_of(pairs(), st.sampled_from(sorted(self.model) or [numbered_pair(1)]))))
        self.index = self.index.without(*gone)
        for pair in gone:
            self.model.pop(pair, None)

    @rule(start=st.integers(1, 400), count=st.integers(1, 200), step=st.integers(1, 3))
    def replace_many(self, start: int, count: int, step: int) -> None:
        books = [OrderBook(numbered_pair(number)) for number in range(start, start + count * step, step)]
        self.index = self.index.with_books(*books)
        self.model |= {book.pair: book for book in books}

    @rule(start=st.integers(1, 400), count=st.integers(1, 800), keep=st.integers(2, 400))
    def without_most(self, start: int, count: int, keep: int) -> None:
        gone = [numbered_pair(number) for number in range(start, start + count) if number % keep]
        self.index = self.index.without(*gone)
        for pair in gone:
            self.model.pop(pair, None)

    @rule(pair=pairs())
    def look_up(self, pair: Pair) -> None:
        assert (pair in self.index) == (pair in self.model)
        assert self.index.get(pair) == self.model.get(pair)

    @rule()
    def keep_for_later(self) -> None:
        self.earlier = self.index, dict(self.model)

    @invariant()
    def changes_since_equal_those_of_the_dicts(self) -> None:
        index, model = self.earlier
        published, retracted = self.index.changes_since(index)
        assert {book.pair: book for book in published} == {
            pair: book for pair, book in self.model.items() if model.get(pair) != book
        }
        # Without a pair that was removed in between, a difference by identity is the same.
        assert all(index.get(book.pair) is not book for book in published)
        assert sorted(retracted) == sorted(model.keys() - self.model.keys())
        assert len(published) == len({book.pair for book in published})
        assert MarketIndex(model.values()).without(*retracted).with_books(*published) == self.index

    @invariant()
    def agrees_with_the_dict(self) -> None:
        agree(self.index, self.model)
        for pair, book in self.model.items():
            assert self.index.order_book(pair) == book

    @invariant()
    def equals_the_same_books_in_another_order(self) -> None:
        rebuilt = MarketIndex(self.model.values())
        assert rebuilt == self.index
        assert hash(rebuilt) == hash(self.index)


TestIndexAgainstDict = IndexAgainstDict.TestCase
TestIndexAgainstDict.settings = settings(max_examples=settings().max_examples // 4, stateful_step_count=12)


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


def test_the_next_index_shares_all_but_the_changed_chunks():
    numbers = list(range(1, 5_001))
    random.Random(1).shuffle(numbers)
    index = MarketIndex(OrderBook(numbered_pair(number)) for number in numbers)
    changed = index.with_books(OrderBook(numbered_pair(2_500), spot="1")).without(numbered_pair(5))
    before = set(map(id, by_key(index).chunks))
    assert len(changed) == sum(len(chunk.keys) for chunk in by_key(changed).chunks) == len(numbers) - 1
    new = [chunk for chunk in by_key(changed).chunks if id(chunk) not in before]
    assert len(new) == 2
    assert sum(len(chunk.keys) for chunk in new) < 1_000


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


def test_values_and_items_are_views_of_the_books():
    books = [OrderBook(numbered_pair(number)) for number in range(1, 200)]
    index = MarketIndex(books)
    assert all(one is other for one, other in zip(index.values(), books, strict=True))
    assert list(index.items()) == [(book.pair, book) for book in books]
    assert (len(index.values()), len(index.items())) == (199, 199)
    assert books[7] in index.values()
    assert OrderBook(numbered_pair(7), spot="1") not in index.values()
    assert (books[7].pair, books[7]) in index.items()
