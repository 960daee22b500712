"""Decoding: invalid texts are rejected with the place and the value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from market_index import (
    InvalidAssetId,
    InvalidOrderBook,
    InvalidPairList,
    InvalidPrice,
    MarketIndexError,
    PriceOutOfRange,
    wire,
)
from market_index.errors import safe_repr
from market_index.wire import internal
from tests.market_index.wire.texts import BOOK, LIST, TOKEN, encoded


def without(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: one for name, one in value.items() if name != key}


def with_level(**changes: object) -> dict[str, Any]:
    return BOOK | {"bids": [BOOK["bids"][0], {**BOOK["bids"][1], **changes}]}


AMOUNT = "accumulated_liquidity: must be a whole number from 1 to 2^64-1"
NOT_DIGITS = "a price must be ASCII digits with an optional point and an optional exponent, got"
NO_COLON = "an asset identifier must be ADA or policy:name in hex, got"
NESTED = b'{"base":' * 100_000
REPEATED = b'{"base":"%s","quote":"ADA","bids":[{"price":"2","accumulated_liquidity":1,"price":"3"}]}' % TOKEN.encode()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        # keys
        (encoded(without(BOOK, "base")), InvalidOrderBook, "base: missing"),
        (encoded(without(BOOK, "quote")), InvalidOrderBook, "quote: missing"),
        (encoded(BOOK | {"last_spot": None}), InvalidOrderBook, "unknown key 'last_spot'"),
        (encoded(BOOK | {"Bids": []}), InvalidOrderBook, "unknown key 'Bids'"),
        (encoded(BOOK | {"a\n\ud800": 1}), InvalidOrderBook, r"unknown key 'a\n\ud800'"),
        (encoded(with_level(size=1)), InvalidOrderBook, "bids[1]: unknown key 'size'"),
        (
            encoded(BOOK | {"asks": [{"price": "1"}]}),
            InvalidOrderBook,
            "asks[0].accumulated_liquidity: missing",
        ),
        (
            encoded(BOOK | {"asks": [{"accumulated_liquidity": 1}]}),
            InvalidOrderBook,
            "asks[0].price: missing",
        ),
        (REPEATED, InvalidOrderBook, "bids[0]: the key 'price' must not repeat"),
        (
            b'{"base":"ADA","quote":"%s","base":"ADA"}' % TOKEN.encode(),
            InvalidOrderBook,
            "the key 'base' must not repeat",
        ),
        # types
        (b"[]", InvalidOrderBook, "must be an object, got an array: []"),
        (b'"ADA"', InvalidOrderBook, "must be an object, got a string: 'ADA'"),
        (b"null", InvalidOrderBook, "must be an object, got null: None"),
        (b"1", InvalidOrderBook, "must be an object, got a number: 1"),
        (b"-0.5e3", InvalidOrderBook, "must be an object, got a number: -0.5e3"),
        (b"true", InvalidOrderBook, "must be an object, got a boolean: True"),
        (encoded(BOOK | {"base": None}), InvalidOrderBook, "base: must be a string, got null: None"),
        (encoded(BOOK | {"quote": 1}), InvalidOrderBook, "quote: must be a string, got a number: 1"),
        (encoded(BOOK | {"spot": 0.5}), InvalidOrderBook, "spot: must be a string, got a number: 0.5"),
        (encoded(BOOK | {"spot": [[]]}), InvalidOrderBook, "spot: must be a string, got an array: [[]]"),
        (encoded(BOOK | {"bids": None}), InvalidOrderBook, "bids: must be an array, got null: None"),
        (encoded(BOOK | {"bids": {}}), InvalidOrderBook, "bids: must be an array, got an object: {}"),
        (encoded(BOOK | {"asks": ""}), InvalidOrderBook, "asks: must be an array, got a string: ''"),
        (encoded(BOOK | {"asks": [[]]}), InvalidOrderBook, "asks[0]: must be an object, got an array: []"),
        (encoded(BOOK | {"asks": [None]}), InvalidOrderBook, "asks[0]: must be an object, got null: None"),
        (
            encoded(with_level(price=0.004)),
            InvalidOrderBook,
            "bids[1].price: must be a string, got a number: 0.004",
        ),
        (encoded(with_level(price=None)), InvalidOrderBook, "bids[1].price: must be a string, got null: None"),
        (
            encoded(with_level(accumulated_liquidity=True)),
            InvalidOrderBook,
            f"bids[1].{AMOUNT}, got a boolean: True",
        ),
        (
            encoded(with_level(accumulated_liquidity=1.0)),
            InvalidOrderBook,
            f"bids[1].{AMOUNT}, got 1.0",
        ),
        (encoded(with_level(accumulated_liquidity="1")), InvalidOrderBook, f"bids[1].{AMOUNT}, got a string: '1'"),
        (encoded(with_level(accumulated_liquidity=None)), InvalidOrderBook, f"bids[1].{AMOUNT}, got null: None"),
        (encoded(with_level(accumulated_liquidity=float("nan"))), InvalidOrderBook, f"bids[1].{AMOUNT}, got NaN"),
        (encoded(with_level(accumulated_liquidity=float("inf"))), InvalidOrderBook, f"bids[1].{AMOUNT}, got Infinity"),
        (
            encoded(BOOK | {"spot": float("-inf")}),
            InvalidOrderBook,
            "spot: must be a string, got a number: -Infinity",
        ),
        (encoded(BOOK).replace(b": 5}", b": 1e400}"), InvalidOrderBook, f"bids[0].{AMOUNT}, got 1e400"),
        # ranges
        (encoded(with_level(accumulated_liquidity=0)), InvalidOrderBook, f"bids[1].{AMOUNT}, got 0"),
        (encoded(with_level(accumulated_liquidity=-1)), InvalidOrderBook, f"bids[1].{AMOUNT}, got -1"),
        (encoded(with_level(accumulated_liquidity=2**64)), InvalidOrderBook, f"bids[1].{AMOUNT}, got {2**64}"),
        (
            encoded(BOOK).replace(b": 5}", b": " + b"9" * 5_000 + b"}"),
            InvalidOrderBook,
            f"bids[0].{AMOUNT}, got {'9' * 79}…",
        ),
        (encoded(with_level(price="0")), PriceOutOfRange, "bids[1].price: a price must be above 0, got '0'"),
        (encoded(with_level(price="-1")), InvalidPrice, f"bids[1].price: {NOT_DIGITS} '-1'"),
        (
            encoded(with_level(price="1e1000000")),
            PriceOutOfRange,
            "bids[1].price: a price must be below 2^96, got '1e1000000'",
        ),
        (encoded(with_level(price="\ud800")), InvalidPrice, rf"bids[1].price: {NOT_DIGITS} '\ud800'"),
        (encoded(BOOK | {"spot": "NaN"}), InvalidPrice, f"spot: {NOT_DIGITS} 'NaN'"),
        (encoded(BOOK | {"base": "ada"}), InvalidAssetId, f"base: {NO_COLON} 'ada'"),
        (
            encoded(BOOK | {"quote": "\ud800"}),
            InvalidAssetId,
            rf"quote: {NO_COLON} '\ud800'",
        ),
        # order and identity
        (
            encoded(with_level(price="0.0042")),
            InvalidOrderBook,
            "bids[1].price must be below bids[0].price, which is 0.0041, got 0.0042",
        ),
        (
            encoded(with_level(price="0.00410")),
            InvalidOrderBook,
            "bids[1].price must be below bids[0].price, which is 0.0041, got 0.0041",
        ),
        (encoded(BOOK | {"base": "ADA"}), InvalidOrderBook, "base and quote must be different assets, got 'ADA' twice"),
        # text
        (
            json.dumps(BOOK).encode("utf-16"),
            InvalidOrderBook,
            f"must be UTF-8, but is not at byte 0: {safe_repr(json.dumps(BOOK).encode('utf-16'))}",
        ),
        (b'{"base":"\xff"}', InvalidOrderBook, "must be UTF-8, but is not at byte 9: b'\\xff\"}'"),
        (
            b'{"base":"\xed\xa0\x80"}',
            InvalidOrderBook,
            "must be UTF-8, but is not at byte 9: b'\\xed\\xa0\\x80\"}'",
        ),
        (b"[" * 100_000, InvalidOrderBook, f"nested too deeply: '{'[' * 78}…"),
        (NESTED, InvalidOrderBook, f"nested too deeply: {safe_repr(NESTED.decode())}"),
    ],
)
def test_an_invalid_order_book_is_rejected_with_place_and_value(
    text: bytes, error: type[MarketIndexError], message: str
):
    with pytest.raises(MarketIndexError) as raised:
        wire.order_book_from_json(text)
    assert type(raised.value) is error
    assert isinstance(raised.value, ValueError)
    assert str(raised.value) == message
    assert len(str(raised.value)) < 250
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nope",
        json.dumps(BOOK)[:-1],
        json.dumps(BOOK) + "{}",
        json.dumps(BOOK).replace(": 5}", ": 5,}"),
        json.dumps(BOOK).replace(": 5}", ": 05}"),
        json.dumps(BOOK).replace('"', "'"),
        "\ufeff" + json.dumps(BOOK),
        "9" * 5_000 + "x",
    ],
)
def test_a_text_that_is_not_json_is_rejected_with_the_position_and_the_rest(text: str):
    with pytest.raises(json.JSONDecodeError) as expected:
        json.JSONDecoder(parse_int=str).decode(text)
    position, fault = expected.value.pos, expected.value.msg
    message = f"must be JSON, but is not at character {position}: {fault}: {safe_repr(text[position:])}"
    for read in (wire.order_book_from_json, wire.pair_list_from_json):
        with pytest.raises(MarketIndexError) as raised:
            read(text.encode())
        assert type(raised.value) is (InvalidOrderBook if read is wire.order_book_from_json else InvalidPairList)
        assert str(raised.value) == message


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (b"{}", InvalidPairList, "pairs: missing"),
        (b"[]", InvalidPairList, "must be an object, got an array: []"),
        (b'{"pairs":{}}', InvalidPairList, "pairs: must be an array, got an object: {}"),
        (b'{"pairs":[],"next":1}', InvalidPairList, "unknown key 'next'"),
        (b'{"pairs":["ADA"]}', InvalidPairList, "pairs[0]: must be an object, got a string: 'ADA'"),
        (b'{"pairs":[{}]}', InvalidPairList, "pairs[0].base: missing"),
        (
            encoded({"pairs": [LIST["pairs"][0], without(LIST["pairs"][1], "last_spot")]}),
            InvalidPairList,
            "pairs[1].last_spot: missing",
        ),
        (
            encoded({"pairs": [LIST["pairs"][0] | {"last_spot": 1}]}),
            InvalidPairList,
            "pairs[0].last_spot: must be a string, got a number: 1",
        ),
        (
            encoded({"pairs": [LIST["pairs"][0] | {"last_spot": "0"}]}),
            PriceOutOfRange,
            "pairs[0].last_spot: a price must be above 0, got '0'",
        ),
        (
            encoded({"pairs": [LIST["pairs"][0] | {"base": "x"}]}),
            InvalidAssetId,
            f"pairs[0].base: {NO_COLON} 'x'",
        ),
        (
            encoded({"pairs": [LIST["pairs"][0] | {"quote": "ADA"}]}),
            InvalidPairList,
            "pairs[0]: base and quote must be different assets, got 'ADA' twice",
        ),
        (
            encoded({"pairs": [LIST["pairs"][0]] * 2}),
            InvalidPairList,
            f"pairs[1]: a pair must occur once, got ADA/{TOKEN} again",
        ),
        (
            b'{"pairs":[{"base":"ADA","base":"ADA"}]}',
            InvalidPairList,
            "pairs[0]: the key 'base' must not repeat",
        ),
    ],
)
def test_an_invalid_pair_list_is_rejected_with_place_and_value(
    text: bytes, error: type[MarketIndexError], message: str
):
    with pytest.raises(MarketIndexError) as raised:
        wire.pair_list_from_json(text)
    assert type(raised.value) is error
    assert str(raised.value) == message


@pytest.mark.parametrize("text", [None, "{}", 5, [b"{}"]])
def test_a_value_that_is_not_bytes_is_rejected(text: object):
    with pytest.raises(InvalidOrderBook) as raised:
        wire.order_book_from_json(text)  # type: ignore[arg-type]  # a caller without types
    assert str(raised.value) == f"must be bytes, got {type(text).__name__}: {text!r}"
    released = memoryview(b"{}")
    released.release()
    with pytest.raises(InvalidOrderBook, match="cannot be read: "):
        wire.order_book_from_json(released)


def test_a_repeated_key_is_found_in_linear_time():
    many = ",".join(f'"{number}":0' for number in range(50_000))
    with pytest.raises(InvalidPairList, match="the key 'x' must not repeat"):
        wire.pair_list_from_json(f'{{{many},"x":1,"x":2}}'.encode())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[]", "must be an object, got an array: []"),
        (b"7", "must be an object, got a number: 7"),
        (b'{"a": 1} {}', "must be JSON, but is not at character 9: Extra data: '{}'"),
        (b"\xff", "must be UTF-8, but is not at byte 0: b'\\xff'"),
    ],
)
def test_a_text_that_is_not_an_object_is_rejected(text: bytes, message: str):
    with pytest.raises(InvalidOrderBook) as raised:
        internal.object_from_json(text)
    assert str(raised.value) == message
