"""Encoding: the JSON of the contract, its parts and its digest."""

from __future__ import annotations

import json
from decimal import Context, Decimal, Inexact, localcontext
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import ADA, AssetId, MarketIndex, OrderBook, Pair, PairInfo, wire
from market_index.levels import by_price
from market_index.strategies import market_indexes, order_books, pair_infos
from tests.market_index.wire.texts import BOOK, LIST, PAIR, TOKEN, encoded


def test_the_identifiers_can_be_echoed_as_requested():
    book = wire.order_book_from_json(encoded(BOOK))
    text = wire.order_book_to_json(book)
    for asked in ({"base": TOKEN.upper(), "quote": "ADA"}, {"base": "", "quote": '"'}):
        assert json.loads(wire.with_identifiers(text, book.pair, **asked)) == BOOK | asked


def test_a_pair_list_is_in_the_shape_of_the_contract():
    infos = wire.pair_list_from_json(encoded(LIST))
    assert infos == (PairInfo(ADA, PAIR.base), PairInfo(PAIR.base, ADA, Decimal("0.0042")))
    assert json.loads(wire.pair_list_to_json(iter(infos))) == LIST
    assert wire.pair_list_to_json(()) == b'{"pairs":[]}'
    assert wire.pair_list_from_json(b'{"pairs":[]}') == ()


@given(order_books())
def test_an_order_book_is_one_line_in_the_shape_of_the_contract_and_round_trips(book: OrderBook):
    text = wire.order_book_to_json(book)
    assert b"\n" not in text
    assert wire.order_book_from_json(text) == book
    # An independent model of the contract, with the standard library alone.
    value = json.loads(text, parse_float=pytest.fail)
    assert list(value) == ["base", "quote", "spot", "bids", "asks"]
    assert (value["base"], value["quote"]) == (str(book.pair.base), str(book.pair.quote))
    assert value["spot"] == (None if book.spot is None else format(book.spot, "f"))
    for side, levels in (("bids", book.bids), ("asks", book.asks)):
        assert value[side] == [
            {"price": format(one.price, "f"), "accumulated_liquidity": one.accumulated_liquidity} for one in levels
        ]
        numbers = [Decimal(one["price"]) for one in value[side]]
        assert numbers == sorted(numbers, reverse=side == "bids")


@given(st.lists(pair_infos(), max_size=8, unique_by=lambda info: info.pair))
def test_a_pair_list_round_trips_through_json(infos: list[PairInfo]):
    assert wire.pair_list_from_json(wire.pair_list_to_json(infos)) == tuple(infos)


@pytest.mark.parametrize("message", ["Not Found", 'a "quote", \u00e9, \U0001f600 and a\nline'])
def test_an_error_is_one_line_of_ascii_in_the_shape_of_the_contract(message: str):
    text = wire.error_to_json(message)
    assert json.loads(text) == {"error": message}
    assert text.isascii()
    assert len(text.splitlines()) == 1


def test_sides_of_several_chunks_are_in_the_shape_of_the_contract():
    counts = set()
    for first in range(1, 400, 20):
        prices = range(first, first + 70)
        book = OrderBook.from_levels(PAIR, asks=[(str(price), price) for price in prices])
        expected = [{"price": str(price), "accumulated_liquidity": price} for price in prices]
        assert json.loads(wire.order_book_to_json(book))["asks"] == expected
        counts.add(len(by_price(book.asks).chunks))
    assert {1, 2, 3} <= counts


@given(order_books())
def test_an_order_book_has_one_text_in_every_decimal_context(book: OrderBook):
    with localcontext(Context(prec=1, capitals=0, traps=[Inexact])):
        text = wire.order_book_to_json(book)
    assert text == wire.order_book_to_json(wire.order_book_from_json(text))


class TestParts:
    """The encoded parts of a body, and its digest."""

    @given(order_books(), order_books())
    def test_books_have_equal_digests_exactly_if_their_texts_are_equal(self, one: OrderBook, other: OrderBook):
        parts, others = wire.encoded_order_book(one), wire.encoded_order_book(other)
        equal = wire.text_of(parts) == wire.text_of(others)
        assert (wire.digest_of(parts) == wire.digest_of(others)) == equal
        again = wire.encoded_order_book(wire.order_book_from_json(wire.text_of(parts)))
        assert wire.digest_of(again) == wire.digest_of(parts)

    @given(market_indexes())
    def test_the_parts_of_a_pair_list_are_the_body(self, index: MarketIndex):
        assert wire.text_of(wire.encoded_pair_list(index)) == wire.pair_list_to_json(index.pair_list())

    @given(st.lists(st.binary(max_size=8), max_size=8))
    def test_the_digest_of_parts_is_that_of_their_digests(self, texts: list[bytes]):
        def digest(text: bytes) -> bytes:
            return blake2b(text, digest_size=16).digest()

        parts = list(map(wire.EncodedPart, texts))
        assert wire.text_of(parts) == b"".join(texts)
        assert [part.digest for part in parts] == list(map(digest, texts))
        assert wire.digest_of(parts) == digest(b"".join(map(digest, texts)))

    @pytest.mark.parametrize("count", [0, 1, 64])
    def test_a_book_of_one_chunk_a_side_is_one_part(self, count: int):
        levels = [(str(price), price) for price in range(1, count + 1)]
        book = OrderBook.from_levels(PAIR, bids=levels, asks=levels)
        (part,) = wire.encoded_order_book(book)
        assert part.text == wire.order_book_to_json(book)
        assert wire.order_book_from_json(part.text) == book

    def test_one_publish_encodes_one_chunk_of_the_pair_list(self):
        books = [OrderBook(Pair(AssetId(number.to_bytes(28), b""), ADA), spot="1") for number in range(1, 1_001)]
        index = MarketIndex(books)
        before = wire.encoded_pair_list(index)
        after = wire.encoded_pair_list(index.with_books(books[500].apply(spot="2")))
        assert sum(one is not other for one, other in zip(before, after, strict=True)) == 1
        # Other levels with the same spot price do not change the list.
        same = wire.encoded_pair_list(index.with_books(books[500].apply(bids=[("1", 1)])))
        assert all(one is other for one, other in zip(before, same, strict=True))
