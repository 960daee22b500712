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
    InvalidFreshness,
    InvalidOrderBook,
    InvalidPairList,
    MarketIndexError,
    OrderBook,
    wire,
)
from market_index.errors import safe_repr
from market_index.levels import by_price
from market_index.strategies import level_changes, order_books, prices
from tests.conftest import RECORDED
from tests.market_index.wire.texts import BOOK, LIST, PAIR, TOKEN, encoded, replaced
from tests.oracles import grammar
from tests.oracles.comparison import book_fields, changes_fields, compared, info_fields

SNIPPETS = [
    *'{}[]:,"\\0179.-+eE \n\t\x00\ufeff\u0661',
    *("true", "null", "NaN", "1.0", "0.10", "1e2", "18446744073709551616", "[]", "{}", '""', "\\u0031"),
    *('"price":', '"price":"1",', '"pric\\u0065":"5",', '"accumulated_liquidity":7,', '"x":"",', '"x":[{}],'),
    *('"bids":[],', '"spot":null,', '"spot":"7",', '"base":"ADA",', '{"price":"3","accumulated_liquidity":1},'),
]

Read: TypeAlias = Callable[..., Any]
READERS: dict[str, tuple[Read, Read, Read, type[MarketIndexError]]] = {
    "book": (wire.order_book_from_json, grammar.order_book, book_fields, InvalidOrderBook),
    "changes": (wire.order_book_changes_from_json, grammar.changes, changes_fields, InvalidOrderBook),
    "pairs": (wire.pair_list_from_json, grammar.pair_list, info_fields, InvalidPairList),
}
"""The reader of the library and that of the grammar, the fields of the value, and the error of another shape."""


def compare(kind: str, text: bytes, **options: bool) -> None:
    read, read_by_grammar, fields, shape = READERS[kind]
    compared(partial(read, **options), partial(read_by_grammar, **options), fields, text, shape)


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """Draw a text with up to three changes."""
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)) | st.sampled_from([at.end() for at in re.finditer("[{,]", text)] or [0]))
        end = draw(st.just(start) | st.integers(start, min(start + 12, len(text))))
        text = text[:start] + draw(st.sampled_from([*SNIPPETS, text[start:end] * 2, ""])) + text[end:]
    return text


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
    value = book.to_dict()
    value["bids"] = [dict(reversed(level.items())) for level in value["bids"]]
    value = {key: value[key] for key in order if key not in absent}
    if data.draw(st.booleans()):
        value = replaced(data, value)
    text = data.draw(damaged(json.dumps(value, indent=indent))).encode("utf-8", "surrogatepass")
    compare("book", text, ignore_unknown=ignore_unknown)
    compare("changes", text, ignore_unknown=ignore_unknown)


def test_recorded_books_are_those_of_the_grammar():
    for line in gzip.decompress((RECORDED / "order-books.ndjson.gz").read_bytes()).splitlines()[::40]:
        compare("book", line)


SOME_IDS = st.sampled_from(["ADA", TOKEN, TOKEN.upper(), "ada", 7])


@given(st.lists(st.tuples(SOME_IDS, SOME_IDS, st.sampled_from([None, "0.50", "0", 1])), max_size=3), st.data())
def test_a_text_is_the_pair_list_of_the_independent_grammar(infos: list[tuple[object, ...]], data: st.DataObject):
    keys = ("base", "quote", "last_spot")
    value: Any = {"pairs": [dict(zip(keys, info, strict=True)) for info in infos]}
    if data.draw(st.booleans()):
        value = replaced(data, value)
    text = data.draw(damaged(json.dumps(value))).encode("utf-8", "surrogatepass")
    compare("pairs", text, ignore_unknown=data.draw(st.booleans()))


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


@pytest.mark.parametrize(
    "view", [bytes, bytearray, memoryview, lambda text: memoryview(b"".join(bytes([one, 0]) for one in text))[::2]]
)
def test_any_view_of_bytes_is_read(view):
    book = wire.order_book_from_json(encoded(BOOK))
    assert wire.order_book_from_json(view(encoded(BOOK))) == book


# Faults


def without(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: one for name, one in value.items() if name != key}


def with_level(**changes: object) -> dict[str, Any]:
    return BOOK | {"bids": [BOOK["bids"][0], BOOK["bids"][1] | changes]}


FIRST: dict[str, Any] = LIST["pairs"][0]
CHANGES: dict[str, Any] = BOOK | {"bids": [BOOK["bids"][1], BOOK["bids"][0] | {"accumulated_liquidity": 0}]}
"""The levels of changes may have any order, and 0 removes a level."""

LEVEL_FAULTS: list[dict[str, Any]] = [
    *({"accumulated_liquidity": amount} for amount in (0, -1, 2**64, True, 1.0, "1", float("nan"), None)),
    *({"price": price} for price in ("0", "-1", "1e1000000", "\ud800", "0.00410", "0.0042", 0.004, None)),
    {"size": 1},
]
FAULTS: dict[str, list[object]] = {
    "book": [
        *(without(BOOK, key) for key in BOOK),
        *(with_level(**fault) for fault in LEVEL_FAULTS),
        *(BOOK | {"asks": [ask]} for ask in ({"price": "1"}, {"accumulated_liquidity": 1, "x": 1}, 7, None)),
        *(BOOK | {"asks": BOOK["asks"] * 2}, BOOK | {"asks": [BOOK["asks"][0] | {"size": 1}]}),
        *([], "ADA", None, True, -500.5, BOOK | {"last_spot": None}, BOOK | {"a\n\ud800": 1}),
        *(BOOK | {"base": None}, BOOK | {"quote": 1}, BOOK | {"base": "ada"}, BOOK | {"base": "ADA"}),
        *(BOOK | {"spot": 0.5}, BOOK | {"spot": "NaN"}, BOOK | {"bids": None}, BOOK | {"bids": "", "asks": ""}),
        BOOK | {"bids": BOOK["bids"][::-1], "last_spot": None},
    ],
    "pairs": [
        *({}, {"pairs": [], "next": 1}, {"pairs": [FIRST, without(FIRST, "last_spot")]}, {"pairs": [FIRST] * 2}),
        {"pairs": [FIRST | {"quote": "ADA"}]},
    ],
    "changes": [
        *(CHANGES, *(without(CHANGES, key) for key in CHANGES), CHANGES | {"sequence": 7}, CHANGES | {"base": "ADA"}),
        *(CHANGES | {"bids": [CHANGES["bids"][0], CHANGES["bids"][1] | fault]} for fault in LEVEL_FAULTS),
        *(CHANGES | {side: CHANGES[side] * 2} for side in ("bids", "asks")),
    ],
}


@pytest.mark.decision(24)
@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in FAULTS.items() for value in values])
def test_a_fault_is_rejected_by_the_rule_of_the_grammar_with_its_place(kind: str, value: object):
    for ignore_unknown in (False, True):
        compare(kind, encoded(value), ignore_unknown=ignore_unknown)


AMOUNT = "bids[1].accumulated_liquidity: must be a whole number from 1 to 2^64-1, got"
UTF_16 = json.dumps(BOOK).encode("utf-16")
NESTED = '{"base":' * 100_000
AS_OF_RULE = "as_of must be 1 to 200 printable ASCII characters with no space at either end"
TIME_RULE = "a time must be in RFC 3339, such as 2026-11-22T04:17:03.123Z"
MANY_DIGITS = encoded(with_level(accumulated_liquidity=7)).replace(b": 7}", b": " + b"9" * 5_000 + b"}")


@pytest.mark.parametrize(
    ("read", "value", "message"),
    [
        (wire.order_book_from_json, with_level(accumulated_liquidity=float("nan")), f"{AMOUNT} a number: NaN"),
        (wire.order_book_from_json, with_level(accumulated_liquidity="1"), f"{AMOUNT} a string: '1'"),
        (wire.order_book_from_json, MANY_DIGITS, f"{AMOUNT} a number: {'9' * 79}…"),
        (wire.order_book_from_json, b"-0.5e3", "must be an object, got a number: -0.5e3"),
        (wire.order_book_from_json, BOOK | {"bids": None}, "bids: must be an array, got null: None"),
        (wire.order_book_from_json, BOOK | {"a\n\ud800": 1}, r"unknown key 'a\n\ud800'"),
        (wire.order_book_from_json, UTF_16, f"must be UTF-8, but is not at byte 0: {safe_repr(UTF_16)}"),
        (wire.order_book_from_json, b"[" * 100_000, f"nested too deeply: '{'[' * 78}…"),
        (wire.order_book_from_json, NESTED.encode(), f"nested too deeply: {safe_repr(NESTED)}"),
        (wire.freshness_from_json, {}, "as_of: missing"),
        (wire.freshness_from_json, {"as_of": None, "recorded_at": "today"}, f"recorded_at: {TIME_RULE}, got 'today'"),
        (wire.freshness_from_json, {"as_of": None, "x": 7}, "unknown key 'x'"),
        (partial(wire.freshness_from_json, ignore_unknown=True), {"as_of": " ", "x": 7}, f"{AS_OF_RULE}, got ' '"),
        (wire.object_from_json, [], "must be an object, got an array: []"),
    ],
)
def test_a_message_shows_the_rejected_value(read: Read, value: object, message: str):
    with pytest.raises((InvalidOrderBook, InvalidFreshness)) as raised:
        read(value if isinstance(value, bytes) else encoded(value))
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "text",
    [
        *("", "nope", json.dumps(BOOK)[:-1], json.dumps(BOOK) + "{}", "\ufeff" + json.dumps(BOOK), "9" * 5_000 + "x"),
        *(json.dumps(BOOK).replace(": 5}", part) for part in (": 5,}", ": 05}", ": '5'}")),
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


# The changes of a book


@given(data=st.data(), book=order_books(max_levels=4), spot=st.none() | prices(), ignore_unknown=st.booleans())
def test_the_changes_of_a_book_round_trip(
    data: st.DataObject, book: OrderBook, spot: Decimal | None, ignore_unknown: bool
):
    later = book.apply(data.draw(level_changes(book)), data.draw(level_changes(book)), spot)
    text = wire.order_book_changes_to_json(later, book)
    found = wire.order_book_changes_from_json(text, ignore_unknown=ignore_unknown)
    assert found == (book.pair, *later.changes_since(book), spot)


@pytest.mark.thorough
def test_changes_at_prices_with_equal_hashes_are_read_in_linear_time():
    # Numbers that are equal modulo 2^61-1 have equal hashes. Filling a dict with 200,000 of them takes 20 minutes.
    levels = [{"price": str(7 + number * (2**61 - 1)), "accumulated_liquidity": 1} for number in range(200_000)]
    assert len(wire.order_book_changes_from_json(encoded(CHANGES | {"bids": levels}))[1]) == 200_000


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
