"""Decoding: which texts are accepted, by an independent model, and what they become."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import (
    Freshness,
    InvalidAssetId,
    InvalidFreshness,
    InvalidOrderBook,
    MarketIndexError,
    OrderBook,
    Pair,
    wire,
)
from market_index.freshness import format_time, parse_time
from market_index.strategies import order_books, pairs
from market_index.wire import decode, internal, json_value
from market_index.wire.internal import CommitLine
from tests.market_index.wire.texts import BOOK, PAIR, TOKEN, encoded


def test_spot_bids_and_asks_may_be_absent():
    assert wire.order_book_from_json(encoded({"base": TOKEN, "quote": "ADA"})) == OrderBook(PAIR)


def test_every_recorded_book_equals_the_result_of_plain_json_and_decimal(recorded_order_books: Path):
    pairs = set()
    for line in recorded_order_books.read_bytes().splitlines():
        book, plain = wire.order_book_from_json(line), json.loads(line)
        pairs.add(book.pair)
        assert str(book.pair) == f"{plain['base']}/{plain['quote']}"
        assert book.spot == (None if plain["spot"] is None else Decimal(plain["spot"]))
        for levels, side in ((book.bids, "bids"), (book.asks, "asks")):
            assert [(one.price, one.accumulated_liquidity) for one in levels] == [
                (Decimal(one["price"]), one["accumulated_liquidity"]) for one in plain[side]
            ]
    assert len(pairs) == 756


class Repeated(Exception):
    """A key repeats in an object."""


def object_without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise Repeated
    return dict(pairs)


def is_price(value: Any) -> bool:
    if not isinstance(value, str) or not re.fullmatch(r"(?=\.?[0-9])[0-9]*\.?[0-9]*([eE][+-]?[0-9]{1,4})?", value):
        return False
    number = Fraction(value.replace(".e", "e").replace(".E", "E").rstrip(".") if "." in value else value)
    scaled = [number * 10**places for places in range(29) if (number * 10**places).denominator == 1]
    return number > 0 and bool(scaled) and scaled[0] < 2**96


def is_asset(value: Any) -> bool:
    return isinstance(value, str) and (
        value == "ADA" or bool(re.fullmatch(r"[0-9a-fA-F]{56}:(?:[0-9a-fA-F]{2}){0,32}", value))
    )


def is_side(value: Any, sign: int) -> bool:
    """Whether a value is a side of a book: `sign` is 1 for asks, whose prices rise, and -1 for bids."""
    if not isinstance(value, list):
        return False
    for level in value:
        if not isinstance(level, dict) or level.keys() != {"price", "accumulated_liquidity"}:
            return False
        amount = level["accumulated_liquidity"]
        if not is_price(level["price"]) or type(amount) is not int or not 0 < amount < 2**64:
            return False
    prices = [sign * Fraction(level["price"]) for level in value]
    return all(one < other for one, other in pairwise(prices))


def is_order_book(text: bytes) -> bool:
    """Whether a text contains an order book: an independent model of the contract and the decisions."""
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=object_without_repeated_keys)
    except (ValueError, Repeated, RecursionError):
        return False
    return (
        isinstance(value, dict)
        and {"base", "quote"} <= value.keys() <= {"base", "quote", "spot", "bids", "asks"}
        and is_asset(value["base"])
        and is_asset(value["quote"])
        and value["base"].lower() != value["quote"].lower()
        and (value.get("spot") is None or is_price(value["spot"]))
        and is_side(value.get("bids", []), -1)
        and is_side(value.get("asks", []), 1)
    )


def is_accepted(text: bytes) -> bool:
    try:
        wire.order_book_from_json(text)
    except MarketIndexError:
        return False
    return True


@given(
    book=order_books(),
    order=st.permutations(["base", "quote", "spot", "bids", "asks"]),
    indent=st.sampled_from([None, 0, 2]),
)
def test_a_book_is_decoded_with_its_keys_in_any_order(book: OrderBook, order: list[str], indent: int | None):
    value = json.loads(wire.order_book_to_json(book))
    turned = [dict(reversed(level.items())) for level in value["bids"]]
    text = json.dumps({key: (value | {"bids": turned})[key] for key in order}, indent=indent).encode()
    assert wire.order_book_from_json(text) == book


@pytest.mark.parametrize(("bids", "asks", "spot"), [(0, 0, None), (1, 0, "1"), (0, 1, None), (200, 3, "1")])
def test_a_valid_book_is_decoded_once(monkeypatch: pytest.MonkeyPatch, bids: int, asks: int, spot: str | None):
    levels = [(str(price), price) for price in range(1, 201)]
    book = OrderBook.from_levels(PAIR, levels[:bids], levels[:asks], spot)
    text = wire.order_book_to_json(book)
    monkeypatch.setattr(decode, "parse_with_repeated_keys", pytest.fail)
    monkeypatch.setattr(json_value, "parse_with_repeated_keys", pytest.fail)
    assert wire.order_book_from_json(text) == book
    assert wire.order_book_from_json(text.replace(b"price", b"pri\\u0063e")) == book


SNIPPETS = [
    *'{}[]:,"\\0179.-+eE \n\t\x00\ufeff\u0661',
    "true",
    "null",
    "NaN",
    "1.0",
    "0.10",
    "1e2",
    "18446744073709551616",
]
SNIPPETS += [
    '"price":',
    '"price":"1",',
    '"accumulated_liquidity":7,',
    '{"price":"3","accumulated_liquidity":1},',
    '"x":"",',
]
SNIPPETS += [
    '"bids":[],',
    '"spot":null,',
    '"spot":"7",',
    '"pric\\u0065":"5",',
    "\\u0031",
    '"base":"ADA",',
    "[]",
    "{}",
    '""',
]


@given(data=st.data(), book=order_books(max_levels=3))
def test_a_text_is_accepted_if_an_independent_model_accepts_it(data: st.DataObject, book: OrderBook):
    text = wire.order_book_to_json(book).decode()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(start + 12, len(text))))
        snippet = data.draw(st.one_of(st.sampled_from(SNIPPETS), st.just(text[start:end] * 2), st.just("")))
        text = text[:start] + snippet + text[end:]
    assert is_accepted(text.encode()) == is_order_book(text.encode())


def test_escapes_are_decoded():
    text = encoded(BOOK).replace(b'"base"', b'"b\\u0061se"').replace(b'"0.0042"', b'"0.004\\u0032"')
    assert b"\\u0061" in text
    assert wire.order_book_from_json(text) == wire.order_book_from_json(encoded(BOOK))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"asks":', '"asks":[{"price":"9","accumulated_liquidity":1}],"asks":'),
        ('"quote":', '"x":1,"quote":'),
        ('"spot":', '"sp\\u006ft":"1","spot":'),
        ('"price":"0.5",', '"price":"0.6","price":"0.5",'),
        ('"price":"0.5",', '"price":"0.5","note":[],'),
        ('"price":"0.5",', '"price":"0.5 0.4",'),
        ('"price":"0.5",', '"price":0.5,'),
        (":7}", ":true}"),
        (":7}", ":7.0}"),
        (":7}", ":0}"),
        (":7}", ":-7}"),
        (":7}", ":18446744073709551616}"),
        (":7}", ':7,"accumulated_liquidity":8}'),
        (":7}", ':7,"":8}'),
        ('[{"price":"0.5","accumulated_liquidity":7}]', "{}"),
        ('[{"price":"0.5","accumulated_liquidity":7}]', '""'),
        ('[{"price":"0.5","accumulated_liquidity":7}]', "[[]]"),
        ('"asks":[]', '"asks":[{"price":"2","accumulated_liquidity":1},{"price":"1","accumulated_liquidity":1}]'),
    ],
)
def test_one_fault_in_a_valid_book_is_found(old: str, new: str):
    text = wire.order_book_to_json(OrderBook.from_levels(PAIR, bids=[("0.5", 7)], spot="1")).decode()
    assert is_accepted(text.encode())
    assert old in text
    with pytest.raises(MarketIndexError):
        wire.order_book_from_json(text.replace(old, new).encode())


@pytest.mark.parametrize(
    "view", [bytes, bytearray, memoryview, lambda text: memoryview(b"".join(bytes([one, 0]) for one in text))[::2]]
)
def test_any_view_of_bytes_is_read(view):
    book = wire.order_book_from_json(encoded(BOOK))
    assert wire.order_book_from_json(view(encoded(BOOK))) == book


@pytest.mark.parametrize(
    "text", [b"", b"nonsense", b"[]", b"{}", b'{"base":"ADA"}', b'{"base":"ADA","quote":"ada"}', b'{"base":1,"base":1}']
)
def test_a_text_without_a_valid_pair_names_none(text: bytes):
    assert wire.pair_named_in(text) is None
    assert wire.pair_named_in(encoded(BOOK | {"bids": 7})) == PAIR


json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from([TOKEN, "ADA", "1"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["base", "quote", "spot", "bids", "asks", "price", "accumulated_liquidity", "pairs", "x"]),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=12,
)


@given(st.one_of(st.binary(max_size=40), json_values.map(encoded)))
def test_any_text_is_rejected_by_an_error_of_the_library_or_round_trips(text: bytes):
    ways: list[tuple[Any, Any]] = [
        (wire.order_book_from_json, wire.order_book_to_json),
        (wire.pair_list_from_json, wire.pair_list_to_json),
    ]
    for read, write in ways:
        try:
            value = read(text)
        except MarketIndexError:
            continue
        assert read(write(value)) == value


@given(st.data())
def test_a_damaged_book_is_rejected_or_decoded_as_its_new_content(data):
    text = bytearray(encoded(BOOK))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(text) - 1))
        text[position : position + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    try:
        book = wire.order_book_from_json(bytes(text))
    except MarketIndexError as error:
        assert str(error)  # noqa: PT017  # both outcomes are legal here
    else:
        plain = json.loads(text)
        assert [Decimal(one["price"]) for one in plain["bids"]] == [one.price for one in book.bids]
        assert [one["accumulated_liquidity"] for one in plain["asks"]] == [
            one.accumulated_liquidity for one in book.asks
        ]


@pytest.mark.parametrize(
    ("text", "is_commit"),
    [
        (b'{"as_of": null}', True),
        (b' {"as_of": [7], "as": "of"} ', True),
        (internal.freshness_to_json(Freshness("slot 1")), True),
        (encoded(BOOK), False),
        (b'{"as_of": "slot 1", "base": null}', False),
        (b'{"as_of": "slot 1", "quote": "ADA"}', False),
        (b'{"base": "ADA", "quo{"as_of": "slot 1"}', False),
        (b'["as_of"]', False),
        (b'{"of": {"as_of": "slot 1"}}', False),
    ],
)
def test_a_line_is_a_commit_line_if_it_has_an_as_of_and_names_no_asset(text: bytes, is_commit: bool):
    assert internal.is_commit(text) == is_commit


@pytest.mark.parametrize(
    ("text", "is_retraction"),
    [
        (b'{"retract": null}', True),
        (b' {"base": 7, "retract": [true]} ', True),
        (internal.retraction_to_json(PAIR), True),
        (encoded(BOOK), False),
        (b'{"base": "retract"}', False),
        (b'{"retract": true, "retract": true}', False),
        (b'["retract"]', False),
        (b'{"retract"', False),
    ],
)
def test_a_line_is_a_retract_line_if_it_has_that_key(text: bytes, is_retraction: bool):
    assert internal.is_retraction(text) == is_retraction


@given(pairs())
def test_a_retract_line_round_trips(pair: Pair):
    assert internal.retraction_from_json(internal.retraction_to_json(pair)) == pair


RETRACTION = {"retract": True, "base": str(PAIR.base), "quote": str(PAIR.quote)}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (RETRACTION | {"retract": False}, "retract: must be true, got False"),
        (RETRACTION | {"retract": 1}, "retract: must be true, got a number: 1"),
        (RETRACTION | {"retract": "true"}, "retract: must be true, got a string: 'true'"),
        (RETRACTION | {"spot": None}, "unknown key 'spot'"),
        (RETRACTION | {"bids": []}, "unknown key 'bids'"),
        ({"retract": True, "base": "ADA"}, "quote: missing"),
        (RETRACTION | {"quote": None}, "quote: must be a string, got null: None"),
        ([], "must be an object, got an array: []"),
    ],
)
def test_a_retract_line_has_three_keys_and_is_true(value: object, message: str):
    with pytest.raises(InvalidOrderBook, match=re.escape(message)):
        internal.retraction_from_json(json.dumps(value).encode())


def test_a_retract_line_has_valid_identifiers():
    with pytest.raises(InvalidAssetId, match=r"^base: "):
        internal.retraction_from_json(json.dumps(RETRACTION | {"base": "lovelace"}).encode())


TIMES = st.datetimes(timezones=st.just(UTC))


@given(TIMES, TIMES)
def test_a_commit_line_round_trips(published_at: datetime, recorded_at: datetime):
    line = internal.commit_to_json(Freshness("slot 1", published_at), recorded_at)
    assert internal.commit_from_json(line) == CommitLine(
        Freshness("slot 1", published_at), parse_time(format_time(recorded_at))
    )


def test_a_freshness_has_no_recorded_at():
    text = b'{"as_of": null, "recorded_at": "2026-11-22T04:17:03Z"}'
    assert internal.commit_from_json(text).freshness == Freshness()
    with pytest.raises(InvalidFreshness, match="unknown key 'recorded_at'"):
        internal.freshness_from_json(text)


@pytest.mark.parametrize(("value", "message"), [("today", "a time must be in RFC 3339"), (7, "must be a string, got")])
def test_a_recorded_at_is_a_time(value: object, message: str):
    with pytest.raises(InvalidFreshness, match=f"^recorded_at: {message}"):
        internal.commit_from_json(json.dumps({"as_of": None, "recorded_at": value}).encode())


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.lists(st.text()), st.dictionaries(st.text(), st.text())
)


@given(st.dictionaries(st.text(), VALUES), st.booleans())
def test_an_object_equals_the_result_of_plain_json(value: dict[str, object], ensure_ascii: bool):
    assert internal.object_from_json(json.dumps(value, ensure_ascii=ensure_ascii).encode()) == value


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers()), min_size=1), st.data())
def test_an_object_in_which_a_key_repeats_is_rejected(value: dict[str, object], data: st.DataObject):
    again = data.draw(st.sampled_from(sorted(value)))
    text = f"{json.dumps(value)[:-1]}, {json.dumps(again)}: {json.dumps(data.draw(st.text()))}}}"
    with pytest.raises(InvalidOrderBook, match=r"^the key .* must not repeat$"):
        internal.object_from_json(text.encode())


def test_numbers_that_are_not_integers_or_too_long_keep_their_text():
    values = internal.object_from_json(b'{"a": 1.50, "b": NaN, "c": 1e9, "d": %s}' % (b"7" * 5_000))
    assert list(map(repr, values.values())) == ["1.50", "NaN", "1e9", "7" * 5_000]
    assert not any(isinstance(value, (int, float)) for value in values.values())
