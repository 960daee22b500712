"""Decoding: what a text becomes, by an independent grammar, and why others are rejected."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import (
    InvalidAssetId,
    InvalidFreshness,
    InvalidOrderBook,
    InvalidPairList,
    InvalidPrice,
    MarketIndexError,
    OrderBook,
    PairInfo,
    PriceOutOfRange,
    wire,
)
from market_index.errors import safe_repr
from market_index.levels import by_price
from market_index.strategies import level_changes, order_books, prices
from tests.conftest import RECORDED
from tests.market_index.wire.texts import BOOK, LIST, PAIR, TOKEN, encoded
from tests.oracles import grammar
from tests.oracles.comparison import asset_fields, book_fields, compared, spot_text

SNIPPETS = [
    *'{}[]:,"\\0179.-+eE \n\t\x00\ufeff\u0661',
    *("true", "null", "NaN", "1.0", "0.10", "1e2", "18446744073709551616", "[]", "{}", '""', "\\u0031"),
    *('"price":', '"price":"1",', '"pric\\u0065":"5",', '"accumulated_liquidity":7,', '"x":"",', '"x":[{}],'),
    *('"bids":[],', '"spot":null,', '"spot":"7",', '"base":"ADA",', '{"price":"3","accumulated_liquidity":1},'),
]


@given(
    data=st.data(),
    book=order_books(max_levels=3),
    order=st.permutations(["base", "quote", "spot", "bids", "asks"]),
    absent=st.sets(st.sampled_from(["spot", "bids", "asks"])),
    indent=st.sampled_from([None, 0, 2]),
    ignore_unknown=st.booleans(),
)
def test_a_text_is_the_book_of_the_independent_grammar(
    data: st.DataObject, book: OrderBook, order: list[str], absent: set[str], indent: int | None, ignore_unknown: bool
):
    value = json.loads(wire.order_book_to_json(book))
    value["bids"] = [dict(reversed(level.items())) for level in value["bids"]]
    text = json.dumps({key: value[key] for key in order if key not in absent}, indent=indent)
    for _ in range(data.draw(st.integers(0, 3))):
        start = data.draw(st.integers(0, len(text)) | st.sampled_from([at.end() for at in re.finditer("[{,]", text)]))
        end = data.draw(st.just(start) | st.integers(start, min(start + 12, len(text))))
        snippet = data.draw(st.one_of(st.sampled_from(SNIPPETS), st.just(text[start:end] * 2), st.just("")))
        text = text[:start] + snippet + text[end:]
    compared(
        partial(wire.order_book_from_json, ignore_unknown=ignore_unknown),
        partial(grammar.order_book, ignore_unknown=ignore_unknown),
        book_fields,
        text.encode(),
        MarketIndexError,
    )


def test_recorded_books_are_those_of_the_grammar():
    lines = gzip.decompress((RECORDED / "order-books.ndjson.gz").read_bytes()).splitlines()
    for line in lines[::40]:
        compared(wire.order_book_from_json, grammar.order_book, book_fields, line, MarketIndexError)


@given(
    st.lists(
        st.tuples(
            *[st.sampled_from(["ADA", TOKEN, TOKEN.upper(), "ada", 7])] * 2, st.sampled_from([None, "0.50", "0", 1])
        ),
        max_size=3,
    ),
    st.data(),
)
def test_a_text_is_the_pair_list_of_the_independent_grammar(infos: list[tuple[object, ...]], data: st.DataObject):
    keys = ("base", "quote", "last_spot")
    text = json.dumps({"pairs": [dict(zip(keys, info, strict=True)) for info in infos]})
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + data.draw(st.sampled_from(["", *SNIPPETS])) + text[at:]

    def fields(found: tuple[PairInfo, ...]) -> list[grammar.Info]:
        return [(asset_fields(one.base), asset_fields(one.quote), spot_text(one.last_spot)) for one in found]

    compared(wire.pair_list_from_json, grammar.pair_list, fields, text.encode(), MarketIndexError)


@pytest.mark.parametrize("places", [4, 9])
@pytest.mark.parametrize("spelling", ["{}", "{}0", "0{}", "{}e0"])
def test_the_spelling_of_prices_does_not_change_the_chunks(places: int, spelling: str):
    # With nine places most prices are below 10^-6, whose keys have an exponent. The ETag depends on the chunks.
    texts = [f"{number / 10**places:.{places}f}".rstrip("0") for number in range(1, 1_000) if number % 10]
    levels = [{"price": spelling.format(text), "accumulated_liquidity": 1} for text in texts]
    book = wire.order_book_from_json(encoded(BOOK | {"bids": levels[::-1], "asks": levels}))
    wanted = OrderBook.from_levels(PAIR, [(text, 1) for text in texts], [(text, 1) for text in texts])
    for found, side in ((book.bids, wanted.bids), (book.asks, wanted.asks)):
        assert [chunk.keys for chunk in by_price(found).chunks] == [chunk.keys for chunk in by_price(side).chunks]
        assert len(by_price(found).chunks) > 5


def test_the_last_of_repeated_keys_wins():
    text = encoded(BOOK).replace(b'"spot"', b'"spot": [NaN], "spot"').replace(b'"price"', b'"price": "0", "price"')
    assert wire.order_book_from_json(text) == wire.order_book_from_json(encoded(BOOK))
    assert wire.object_from_json(b'{"block": "1", "block": "2"}') == {"block": "2"}


@pytest.mark.parametrize(
    "view", [bytes, bytearray, memoryview, lambda text: memoryview(b"".join(bytes([one, 0]) for one in text))[::2]]
)
def test_any_view_of_bytes_is_read(view):
    book = wire.order_book_from_json(encoded(BOOK))
    assert wire.order_book_from_json(view(encoded(BOOK))) == book


# Faults, with their place


def without(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: one for name, one in value.items() if name != key}


def with_level(**changes: object) -> dict[str, Any]:
    return BOOK | {"bids": [BOOK["bids"][0], {**BOOK["bids"][1], **changes}]}


CHANGES: dict[str, Any] = BOOK | {"bids": [BOOK["bids"][1], BOOK["bids"][0] | {"accumulated_liquidity": 0}]}
"""The levels of changes may have any order, and 0 removes a level."""


def with_change(**changed: object) -> dict[str, Any]:
    return CHANGES | {"bids": [CHANGES["bids"][0], CHANGES["bids"][1] | changed]}


AMOUNT = "bids[1].accumulated_liquidity: must be a whole number from 1 to 2^64-1, got"
CHANGED_AMOUNT = AMOUNT.replace("from 1", "from 0")
NOT_DIGITS = "a price must be ASCII digits with an optional point and an optional exponent, got"
NO_COLON = "an asset identifier must be ADA or policy:name in hex, got"
NOT_BELOW = "bids[1].price must be below bids[0].price, which is 0.0041, got"
SAME_ASSET = "base and quote must be different assets, got 'ADA' twice"
UTF_16 = json.dumps(BOOK).encode("utf-16")
NESTED = '{"base":' * 100_000
FIRST: dict[str, Any] = LIST["pairs"][0]
RETRACTION = {"retract": True, "base": TOKEN, "quote": "ADA"}
AS_OF_RULE = "as_of must be 1 to 200 printable ASCII characters with no space at either end"
TIME_RULE = "a time must be in RFC 3339, such as 2026-11-22T04:17:03.123Z"

Fault: TypeAlias = tuple[object, type[MarketIndexError], str]
# The faults of each kind of text, by its reader.
FAULTS: dict[Callable[[bytes], object], list[Fault]] = {
    wire.order_book_from_json: [
        # keys
        (without(BOOK, "base"), InvalidOrderBook, "base: missing"),
        (without(BOOK, "quote"), InvalidOrderBook, "quote: missing"),
        (BOOK | {"last_spot": None}, InvalidOrderBook, "unknown key 'last_spot'"),
        (BOOK | {"a\n\ud800": 1}, InvalidOrderBook, r"unknown key 'a\n\ud800'"),
        (with_level(size=1), InvalidOrderBook, "bids[1]: unknown key 'size'"),
        (BOOK | {"asks": [BOOK["asks"][0] | {"size": 1}]}, InvalidOrderBook, "asks[0]: unknown key 'size'"),
        (BOOK | {"asks": [{"price": "1"}]}, InvalidOrderBook, "asks[0].accumulated_liquidity: missing"),
        (BOOK | {"asks": [{"accumulated_liquidity": 1, "x": 1}]}, InvalidOrderBook, "asks[0].price: missing"),
        # types
        ([], InvalidOrderBook, "must be an object, got an array: []"),
        ("ADA", InvalidOrderBook, "must be an object, got a string: 'ADA'"),
        (None, InvalidOrderBook, "must be an object, got null: None"),
        (True, InvalidOrderBook, "must be an object, got a boolean: True"),
        (b"-0.5e3", InvalidOrderBook, "must be an object, got a number: -0.5e3"),
        (BOOK | {"base": None}, InvalidOrderBook, "base: must be a string, got null: None"),
        (BOOK | {"quote": 1}, InvalidOrderBook, "quote: must be a string, got a number: 1"),
        (BOOK | {"spot": 0.5}, InvalidOrderBook, "spot: must be a string, got a number: 0.5"),
        (BOOK | {"bids": None}, InvalidOrderBook, "bids: must be an array, got null: None"),
        (BOOK | {"bids": {}}, InvalidOrderBook, "bids: must be an array, got an object: {}"),
        (BOOK | {"bids": "", "asks": ""}, InvalidOrderBook, "bids: must be an array, got a string: ''"),
        (BOOK | {"asks": [[]]}, InvalidOrderBook, "asks[0]: must be an object, got an array: []"),
        (BOOK | {"asks": [None]}, InvalidOrderBook, "asks[0]: must be an object, got null: None"),
        (with_level(price=0.004), InvalidOrderBook, "bids[1].price: must be a string, got a number: 0.004"),
        (with_level(price=None), InvalidOrderBook, "bids[1].price: must be a string, got null: None"),
        (with_level(accumulated_liquidity=True), InvalidOrderBook, f"{AMOUNT} a boolean: True"),
        (with_level(accumulated_liquidity=1.0), InvalidOrderBook, f"{AMOUNT} a number: 1.0"),
        (with_level(accumulated_liquidity="1"), InvalidOrderBook, f"{AMOUNT} a string: '1'"),
        (with_level(accumulated_liquidity=float("nan")), InvalidOrderBook, f"{AMOUNT} a number: NaN"),
        # ranges
        (with_level(accumulated_liquidity=0), InvalidOrderBook, f"{AMOUNT} a number: 0"),
        (with_level(accumulated_liquidity=-1), InvalidOrderBook, f"{AMOUNT} a number: -1"),
        (with_level(accumulated_liquidity=2**64), InvalidOrderBook, f"{AMOUNT} a number: {2**64}"),
        (
            encoded(with_level(accumulated_liquidity=7)).replace(b": 7}", b": " + b"9" * 5_000 + b"}"),
            InvalidOrderBook,
            f"{AMOUNT} a number: {'9' * 79}…",
        ),
        (with_level(price="0"), PriceOutOfRange, "bids[1].price: a price must be above 0, got '0'"),
        (with_level(price="-1"), InvalidPrice, f"bids[1].price: {NOT_DIGITS} '-1'"),
        (with_level(price="1e1000000"), PriceOutOfRange, "bids[1].price: a price must be below 2^96, got '1e1000000'"),
        (with_level(price="\ud800"), InvalidPrice, rf"bids[1].price: {NOT_DIGITS} '\ud800'"),
        (BOOK | {"spot": "NaN"}, InvalidPrice, f"spot: {NOT_DIGITS} 'NaN'"),
        (BOOK | {"base": "ada"}, InvalidAssetId, f"base: {NO_COLON} 'ada'"),
        # order and identity
        (with_level(price="0.0042"), InvalidOrderBook, f"{NOT_BELOW} 0.0042"),
        (with_level(price="0.00410"), InvalidOrderBook, f"{NOT_BELOW} 0.0041"),
        (
            BOOK | {"asks": BOOK["asks"] * 2},
            InvalidOrderBook,
            "asks[1].price must be above asks[0].price, which is 0.0043, got 0.0043",
        ),
        (BOOK | {"base": "ADA"}, InvalidOrderBook, "base and quote must be different assets, got 'ADA' twice"),
        # text
        (UTF_16, InvalidOrderBook, f"must be UTF-8, but is not at byte 0: {safe_repr(UTF_16)}"),
        (b'{"base":"\xed\xa0\x80"}', InvalidOrderBook, "must be UTF-8, but is not at byte 9: b'\\xed\\xa0\\x80\"}'"),
        (b"[" * 100_000, InvalidOrderBook, f"nested too deeply: '{'[' * 78}…"),
        (NESTED.encode(), InvalidOrderBook, f"nested too deeply: {safe_repr(NESTED)}"),
    ],
    wire.pair_list_from_json: [
        ({}, InvalidPairList, "pairs: missing"),
        ({"pairs": [], "next": 1}, InvalidPairList, "unknown key 'next'"),
        ({"pairs": [FIRST, without(FIRST, "last_spot")]}, InvalidPairList, "pairs[1].last_spot: missing"),
        ({"pairs": [FIRST | {"quote": "ADA"}]}, InvalidPairList, f"pairs[0]: {SAME_ASSET}"),
        ({"pairs": [FIRST] * 2}, InvalidPairList, f"pairs[1]: a pair must occur once, got ADA/{TOKEN} again"),
    ],
    wire.order_book_changes_from_json: [
        *((without(CHANGES, key), InvalidOrderBook, f"{key}: missing") for key in CHANGES),
        (CHANGES | {"sequence": 7}, InvalidOrderBook, "unknown key 'sequence'"),
        (with_change(size=1), InvalidOrderBook, "bids[1]: unknown key 'size'"),
        (with_change(accumulated_liquidity=False), InvalidOrderBook, f"{CHANGED_AMOUNT} a boolean: False"),
        (with_change(accumulated_liquidity=-1), InvalidOrderBook, f"{CHANGED_AMOUNT} a number: -1"),
        (with_change(price="0"), PriceOutOfRange, "bids[1].price: a price must be above 0, got '0'"),
        (CHANGES | {"base": "ADA"}, InvalidOrderBook, SAME_ASSET),
        (with_change(price="0.0040"), InvalidOrderBook, "bids[1].price: a price must occur once, got 0.004 again"),
        (
            CHANGES | {"asks": CHANGES["asks"] * 2},
            InvalidOrderBook,
            "asks[1].price: a price must occur once, got 0.0043 again",
        ),
    ],
    wire.freshness_from_json: [
        ({}, InvalidFreshness, "as_of: missing"),
        ({"as_of": None, "recorded_at": "today"}, InvalidFreshness, f"recorded_at: {TIME_RULE}, got 'today'"),
        ({"as_of": None, "recorded_at": 7}, InvalidFreshness, "recorded_at: must be a string, got a number: 7"),
        ({"as_of": None, "x": 7}, InvalidFreshness, "unknown key 'x'"),
        ({"as_of": " "}, InvalidFreshness, f"{AS_OF_RULE}, got ' '"),
    ],
    wire.object_from_json: [
        ([], InvalidOrderBook, "must be an object, got an array: []"),
        (7, InvalidOrderBook, "must be an object, got a number: 7"),
    ],
}


@pytest.mark.parametrize(
    ("read", "value", "error", "message"), [(read, *fault) for read, faults in FAULTS.items() for fault in faults]
)
def test_an_invalid_text_is_rejected_with_place_and_value(
    read: Callable[[bytes], object], value: object, error: type[MarketIndexError], message: str
):
    with pytest.raises(MarketIndexError) as raised:
        read(value if isinstance(value, bytes) else encoded(value))
    assert (type(raised.value), str(raised.value)) == (error, message)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "",
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
    readers: dict[Any, type[MarketIndexError]] = {
        wire.order_book_from_json: InvalidOrderBook,
        wire.pair_list_from_json: InvalidPairList,
        wire.freshness_from_json: InvalidFreshness,
        wire.object_from_json: InvalidOrderBook,
    }
    for read, error in readers.items():
        with pytest.raises(error) as raised:
            read(text.encode())
        assert str(raised.value) == message


@pytest.mark.parametrize("text", [None, "{}", 5, [b"{}"]])
def test_a_value_that_is_not_bytes_is_rejected(text: object):
    with pytest.raises(InvalidOrderBook) as raised:
        wire.order_book_from_json(text)  # type: ignore[arg-type]  # a caller without types
    assert str(raised.value) == f"must be bytes, got {type(text).__name__}: {text!r}"


MORE: dict[str, Any] = {"sequence": 7, "venue": {"name": "x"}}
BOOK_WITH_MORE = BOOK | {side: [level | MORE for level in BOOK[side]] for side in ("bids", "asks")}
LIST_WITH_MORE = {"pairs": [info | MORE for info in LIST["pairs"]]}


@pytest.mark.decision(24)
@pytest.mark.parametrize(
    ("read", "value", "with_more"),
    [
        *((wire.order_book_from_json, BOOK, more) for more in (BOOK | MORE, BOOK_WITH_MORE, BOOK_WITH_MORE | MORE)),
        *((wire.pair_list_from_json, LIST, more) for more in (LIST | MORE, LIST_WITH_MORE, LIST_WITH_MORE | MORE)),
        *((wire.order_book_changes_from_json, CHANGES, more) for more in (CHANGES | MORE, with_change(sequence=7))),
        (wire.freshness_from_json, {"as_of": "slot 1"}, {"as_of": "slot 1"} | MORE),
    ],
)
def test_unknown_keys_are_an_error_unless_they_are_to_be_ignored(read: Any, value: object, with_more: object):
    with pytest.raises(MarketIndexError, match=r"^((bids|pairs)\[[01]\]: )?unknown key 'sequence'$"):
        read(encoded(with_more))
    assert read(encoded(with_more), ignore_unknown=True) == read(encoded(value))


def test_other_faults_keep_their_place_if_unknown_keys_are_ignored():
    levels = [level | MORE for level in with_level(accumulated_liquidity=0)["bids"]]
    with pytest.raises(InvalidOrderBook, match=rf"^{re.escape(AMOUNT)} a number: 0$"):
        wire.order_book_from_json(encoded(BOOK | {"bids": levels}), ignore_unknown=True)
    with pytest.raises(InvalidOrderBook, match=r"^spot: missing$"):
        wire.order_book_changes_from_json(encoded(without(CHANGES, "spot") | MORE), ignore_unknown=True)


# The changes of a book


@given(data=st.data(), book=order_books(max_levels=4), spot=st.none() | prices(), ignore_unknown=st.booleans())
def test_the_changes_of_a_book_round_trip(
    data: st.DataObject, book: OrderBook, spot: Decimal | None, ignore_unknown: bool
):
    later = book.apply(data.draw(level_changes(book)), data.draw(level_changes(book)), spot)
    text = wire.order_book_changes_to_json(later, book)
    found = wire.order_book_changes_from_json(text, ignore_unknown=ignore_unknown)
    assert found == (book.pair, *later.changes_since(book), spot)


@pytest.mark.parametrize("count", [10_000, pytest.param(200_000, marks=pytest.mark.thorough)])
def test_changes_at_prices_with_equal_hashes_are_read_in_linear_time(count: int):
    # Numbers that are equal modulo 2^61-1 have equal hashes. Filling a dict with 200,000 of them takes 20 minutes.
    levels = [{"price": str(7 + number * (2**61 - 1)), "accumulated_liquidity": 1} for number in range(count)]
    assert len(wire.order_book_changes_from_json(encoded(CHANGES | {"bids": levels}))[1]) == count


@pytest.mark.parametrize(
    "text", [b"", b"nonsense", b"[]", b"{}", b'{"base":"ADA"}', b'{"base":"ADA","quote":"ada"}', b'{"base":1}']
)
def test_a_text_without_a_valid_pair_names_none(text: bytes):
    assert wire.pair_named_in(text) is None
    assert wire.pair_named_in(encoded(BOOK | {"bids": 7})) == PAIR


def test_numbers_that_are_not_integers_or_too_long_keep_their_text():
    values = wire.object_from_json(b'{"a": 1.50, "b": NaN, "c": 1e9, "d": %s}' % (b"7" * 5_000))
    assert list(map(repr, values.values())) == ["1.50", "NaN", "1e9", "7" * 5_000]
    assert not any(isinstance(value, (int, float)) for value in values.values())
