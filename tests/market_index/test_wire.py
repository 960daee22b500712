"""The JSON of the contract, both ways: what is written, what is read back, and how everything else is refused."""

from __future__ import annotations

import copy
import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import (
    ADA,
    AssetId,
    InvalidAssetId,
    InvalidOrderBook,
    InvalidPairList,
    InvalidPrice,
    MarketIndexError,
    OrderBook,
    Pair,
    PairInfo,
    wire,
)
from market_index.strategies import level_changes, order_books, pair_infos, prices

TOKEN = "279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f:534e454b"
PAIR = Pair(AssetId.parse(TOKEN), ADA)
BOOK: dict[str, Any] = {
    "base": TOKEN,
    "quote": "ADA",
    "spot": "0.0042",
    "bids": [
        {"price": "0.0041", "accumulated_liquidity": 5},
        {"price": "0.004", "accumulated_liquidity": 18446744073709551615},
    ],
    "asks": [{"price": "0.0043", "accumulated_liquidity": 1}],
}
LIST: dict[str, Any] = {
    "pairs": [
        {"base": "ADA", "quote": TOKEN, "last_spot": None},
        {"base": TOKEN, "quote": "ADA", "last_spot": "0.0042"},
    ]
}


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def test_an_order_book_is_one_line_in_the_shape_of_the_contract():
    book = wire.order_book_from_json(encoded(BOOK))
    text = wire.order_book_to_json(book)
    assert json.loads(text) == BOOK
    assert b"\n" not in text
    assert text.startswith(b'{"base":"279c')


def test_the_identifiers_can_be_echoed_as_they_were_asked():
    book = wire.order_book_from_json(encoded(BOOK))
    assert json.loads(wire.order_book_to_json(book, base=TOKEN.upper())) == BOOK | {"base": TOKEN.upper()}
    assert json.loads(wire.order_book_to_json(book, quote='"')) == BOOK | {"quote": '"'}


def test_spot_bids_and_asks_may_be_absent():
    assert wire.order_book_from_json(encoded({"base": TOKEN, "quote": "ADA"})) == OrderBook(PAIR)


def test_a_pair_list_is_in_the_shape_of_the_contract():
    infos = wire.pair_list_from_json(encoded(LIST))
    assert infos == (PairInfo(ADA, PAIR.base), PairInfo(PAIR.base, ADA, Decimal("0.0042")))
    assert json.loads(wire.pair_list_to_json(iter(infos))) == LIST
    assert wire.pair_list_to_json(()) == b'{"pairs":[]}'
    assert wire.pair_list_from_json(b'{"pairs":[]}') == ()


@given(order_books())
def test_an_order_book_comes_back_from_its_json(book: OrderBook):
    text = wire.order_book_to_json(book)
    assert wire.order_book_from_json(text) == book
    # The contract's own words, with nothing but the standard library.
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
def test_a_pair_list_comes_back_from_its_json(infos: list[PairInfo]):
    assert wire.pair_list_from_json(wire.pair_list_to_json(infos)) == tuple(infos)


def test_every_recorded_book_is_what_plain_json_and_decimal_read(recorded_order_books: Path):
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


def one_by_one(text: bytes) -> OrderBook:
    """Read a book without the columns: the converter alone, level by level."""
    message = wire._read(text, wire._OrderBookMessage, InvalidOrderBook)
    return OrderBook(Pair(message.base, message.quote), message.bids, message.asks, message.spot)


@given(
    book=order_books(),
    order=st.permutations(["base", "quote", "spot", "bids", "asks"]),
    indent=st.sampled_from([None, 0, 2]),
)
def test_books_are_read_in_columns_however_they_are_laid_out(book: OrderBook, order: list[str], indent: int | None):
    value = json.loads(wire.order_book_to_json(book))
    turned = [dict(reversed(level.items())) for level in value["bids"]]
    text = json.dumps({key: (value | {"bids": turned})[key] for key in order}, indent=indent).encode()
    assert wire._read_in_columns(text) == book == one_by_one(text)


def test_recorded_books_are_read_in_columns(recorded_order_books: Path):
    for line in recorded_order_books.read_bytes().splitlines():
        assert wire._read_in_columns(line) == one_by_one(line)


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
def test_what_the_columns_read_reads_the_same_one_by_one(data: st.DataObject, book: OrderBook):
    text = wire.order_book_to_json(book).decode()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(start + 12, len(text))))
        snippet = data.draw(st.one_of(st.sampled_from(SNIPPETS), st.just(text[start:end] * 2), st.just("")))
        text = text[:start] + snippet + text[end:]
    quickly = wire._read_in_columns(text.encode())
    if quickly is not None:
        assert one_by_one(text.encode()) == quickly


def test_what_is_written_in_escapes_is_read_too():
    text = encoded(BOOK).replace(b'"base"', b'"b\\u0061se"').replace(b'"0.0042"', b'"0.004\\u0032"')
    assert wire._read_in_columns(text) is None
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
        ('[{"price":"0.5","accumulated_liquidity":7}]', "{}"),
        ('[{"price":"0.5","accumulated_liquidity":7}]', '""'),
        ('[{"price":"0.5","accumulated_liquidity":7}]', "[[]]"),
        ('"asks":[]', '"asks":[{"price":"2","accumulated_liquidity":1},{"price":"1","accumulated_liquidity":1}]'),
    ],
)
def test_what_the_columns_cannot_vouch_for_they_leave(old: str, new: str):
    text = wire.order_book_to_json(OrderBook.from_levels(PAIR, bids=[("0.5", 7)], spot="1")).decode()
    assert wire._read_in_columns(text.encode()) is not None
    assert old in text
    assert wire._read_in_columns(text.replace(old, new).encode()) is None
    with pytest.raises(MarketIndexError):
        wire.order_book_from_json(text.replace(old, new).encode())


@pytest.mark.parametrize(
    "view", [bytes, bytearray, memoryview, lambda text: memoryview(b"".join(bytes([one, 0]) for one in text))[::2]]
)
def test_any_view_of_bytes_is_read(view):
    book = wire.order_book_from_json(encoded(BOOK))
    assert wire.order_book_from_json(view(encoded(BOOK))) == book


def without(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: one for name, one in value.items() if name != key}


def with_level(**changes: object) -> dict[str, Any]:
    return BOOK | {"bids": [BOOK["bids"][0], {**BOOK["bids"][1], **changes}]}


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
        (REPEATED, InvalidOrderBook, "bids[0]: the key 'price' stands twice"),
        (b'{"base":"ADA","base":"ADA"}', InvalidOrderBook, "the key 'base' stands twice"),
        # types
        (b"[]", InvalidOrderBook, "must be an object, not an array: []"),
        (b'"ADA"', InvalidOrderBook, "must be an object, not a string: 'ADA'"),
        (b"null", InvalidOrderBook, "must be an object, not null: None"),
        (b"1", InvalidOrderBook, "must be an object, not a number: 1"),
        (b"-0.5e3", InvalidOrderBook, "must be an object, not a number: -0.5e3"),
        (b"true", InvalidOrderBook, "must be an object, not a boolean: True"),
        (encoded(BOOK | {"base": None}), InvalidOrderBook, "base: must be a string, not null: None"),
        (encoded(BOOK | {"quote": 1}), InvalidOrderBook, "quote: must be a string, not a number: 1"),
        (encoded(BOOK | {"spot": 0.5}), InvalidOrderBook, "spot: must be a string, not a number: 0.5"),
        (encoded(BOOK | {"spot": [[]]}), InvalidOrderBook, "spot: must be a string, not an array: [[]]"),
        (encoded(BOOK | {"bids": None}), InvalidOrderBook, "bids: must be an array, not null: None"),
        (encoded(BOOK | {"bids": {}}), InvalidOrderBook, "bids: must be an array, not an object: {}"),
        (encoded(BOOK | {"asks": ""}), InvalidOrderBook, "asks: must be an array, not a string: ''"),
        (encoded(BOOK | {"asks": [[]]}), InvalidOrderBook, "asks[0]: must be an object, not an array: []"),
        (encoded(BOOK | {"asks": [None]}), InvalidOrderBook, "asks[0]: must be an object, not null: None"),
        (
            encoded(with_level(price=0.004)),
            InvalidOrderBook,
            "bids[1].price: must be a string, not a number: 0.004",
        ),
        (encoded(with_level(price=None)), InvalidOrderBook, "bids[1].price: must be a string, not null"),
        (
            encoded(with_level(accumulated_liquidity=True)),
            InvalidOrderBook,
            "bids[1].accumulated_liquidity: must be a whole number from 1 to 2^64-1, not a boolean: True",
        ),
        (
            encoded(with_level(accumulated_liquidity=1.0)),
            InvalidOrderBook,
            "bids[1].accumulated_liquidity: must be a whole number from 1 to 2^64-1, not 1.0",
        ),
        (encoded(with_level(accumulated_liquidity="1")), InvalidOrderBook, "not a string: '1'"),
        (encoded(with_level(accumulated_liquidity=None)), InvalidOrderBook, "not null: None"),
        (encoded(with_level(accumulated_liquidity=float("nan"))), InvalidOrderBook, "to 2^64-1, not NaN"),
        (encoded(with_level(accumulated_liquidity=float("inf"))), InvalidOrderBook, "to 2^64-1, not Infinity"),
        (
            encoded(BOOK | {"spot": float("-inf")}),
            InvalidOrderBook,
            "spot: must be a string, not a number: -Infinity",
        ),
        (encoded(BOOK).replace(b": 5}", b": 1e400}"), InvalidOrderBook, "bids[0].accumulated_liquidity"),
        # ranges
        (encoded(with_level(accumulated_liquidity=0)), InvalidOrderBook, "bids[1].accumulated_liquidity"),
        (encoded(with_level(accumulated_liquidity=-1)), InvalidOrderBook, "to 2^64-1, not -1"),
        (encoded(with_level(accumulated_liquidity=2**64)), InvalidOrderBook, "not 18446744073709551616"),
        (
            encoded(BOOK).replace(b": 5}", b": " + b"9" * 5_000 + b"}"),
            InvalidOrderBook,
            "bids[0].accumulated_liquidity: must be a whole number from 1 to 2^64-1, not 9999",
        ),
        (encoded(with_level(price="0")), InvalidPrice, "bids[1].price: '0' is not a price: it is zero"),
        (encoded(with_level(price="-1")), InvalidPrice, "bids[1].price: '-1' is not a price"),
        (encoded(with_level(price="1e1000000")), InvalidPrice, "bids[1].price: '1e1000000' is not a price"),
        (encoded(with_level(price="\ud800")), InvalidPrice, r"bids[1].price: '\ud800' is not a price"),
        (encoded(BOOK | {"spot": "NaN"}), InvalidPrice, "spot: 'NaN' is not a price"),
        (encoded(BOOK | {"base": "ada"}), InvalidAssetId, "base: 'ada' is not an asset identifier"),
        (encoded(BOOK | {"quote": "\ud800"}), InvalidAssetId, r"quote: '\ud800' is not an asset identifier"),
        # order and identity
        (
            encoded(with_level(price="0.0042")),
            InvalidOrderBook,
            "bids[1].price: 0.0042 does not stand below bids[0]",
        ),
        (
            encoded(with_level(price="0.00410")),
            InvalidOrderBook,
            "bids[1].price: 0.0041 does not stand below bids[0]",
        ),
        (encoded(BOOK | {"base": "ADA"}), InvalidOrderBook, "base and quote are the same asset: 'ADA'"),
        # not JSON, or not all of it
        (b"", InvalidOrderBook, "not JSON at character 0"),
        (b"{", InvalidOrderBook, "not JSON at character 1"),
        (encoded(BOOK)[:-1], InvalidOrderBook, "not JSON at character"),
        (encoded(BOOK) + b"{}", InvalidOrderBook, "Extra data: '{}'"),
        (encoded(BOOK).replace(b": 5}", b": 5,}"), InvalidOrderBook, "not JSON at character"),
        (encoded(BOOK).replace(b": 5}", b": 05}"), InvalidOrderBook, "not JSON at character"),
        (encoded(BOOK).replace(b'"', b"'"), InvalidOrderBook, "not JSON at character 1"),
        (
            b"\xef\xbb\xbf" + encoded(BOOK),
            InvalidOrderBook,
            r"not JSON at character 0: Expecting value: '\ufeff{",
        ),
        (json.dumps(BOOK).encode("utf-16"), InvalidOrderBook, "not UTF-8 at byte 0"),
        (b'{"base":"\xff"}', InvalidOrderBook, r"not UTF-8 at byte 9: b'\xff"),
        (b'{"base":"\xed\xa0\x80"}', InvalidOrderBook, "not UTF-8 at byte 9"),
        (b"[" * 100_000, InvalidOrderBook, "nested too deeply"),
        (b'{"base":' * 100_000, InvalidOrderBook, "nested too deeply"),
        (b"9" * 5_000 + b"x", InvalidOrderBook, "not JSON at character 5000: Extra data: 'x'"),
    ],
)
def test_what_is_not_an_order_book_is_refused_with_place_and_value(
    text: bytes, error: type[MarketIndexError], message: str
):
    with pytest.raises(MarketIndexError) as refused:
        wire.order_book_from_json(text)
    assert type(refused.value) is error
    assert isinstance(refused.value, ValueError)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 250
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (b"{}", InvalidPairList, "pairs: missing"),
        (b"[]", InvalidPairList, "must be an object, not an array"),
        (b'{"pairs":{}}', InvalidPairList, "pairs: must be an array, not an object: {}"),
        (b'{"pairs":[],"next":1}', InvalidPairList, "unknown key 'next'"),
        (b'{"pairs":["ADA"]}', InvalidPairList, "pairs[0]: must be an object, not a string: 'ADA'"),
        (b'{"pairs":[{}]}', InvalidPairList, "pairs[0].base: missing"),
        (
            encoded({"pairs": [LIST["pairs"][0], without(LIST["pairs"][1], "last_spot")]}),
            InvalidPairList,
            "pairs[1].last_spot: missing",
        ),
        (
            encoded({"pairs": [LIST["pairs"][0] | {"last_spot": 1}]}),
            InvalidPairList,
            "pairs[0].last_spot: must be a string, not a number: 1",
        ),
        (
            encoded({"pairs": [LIST["pairs"][0] | {"last_spot": "0"}]}),
            InvalidPrice,
            "pairs[0].last_spot: '0'",
        ),
        (encoded({"pairs": [LIST["pairs"][0] | {"base": "x"}]}), InvalidAssetId, "pairs[0].base: 'x'"),
        (
            encoded({"pairs": [LIST["pairs"][0] | {"quote": "ADA"}]}),
            InvalidPairList,
            "pairs[0]: base and quote are",
        ),
        (
            encoded({"pairs": [LIST["pairs"][0]] * 2}),
            InvalidPairList,
            f"the pair ADA/{TOKEN} stands in the list twice",
        ),
        (
            b'{"pairs":[{"base":"ADA","base":"ADA"}]}',
            InvalidPairList,
            "pairs[0]: the key 'base' stands twice",
        ),
        (b"nope", InvalidPairList, "not JSON at character 0"),
    ],
)
def test_what_is_not_a_pair_list_is_refused_with_place_and_value(
    text: bytes, error: type[MarketIndexError], message: str
):
    with pytest.raises(MarketIndexError) as refused:
        wire.pair_list_from_json(text)
    assert type(refused.value) is error
    assert message in str(refused.value)


@pytest.mark.parametrize("text", [None, "{}", 5, [b"{}"]])
def test_only_bytes_are_read(text: object):
    with pytest.raises(InvalidOrderBook, match="must be bytes, not "):
        wire.order_book_from_json(text)  # type: ignore[arg-type]  # a caller without types
    released = memoryview(b"{}")
    released.release()
    with pytest.raises(InvalidOrderBook, match="cannot be read: "):
        wire.order_book_from_json(released)
    every_other = memoryview(b"".join(bytes([byte, 0]) for byte in encoded(BOOK)))[::2]
    assert wire.order_book_from_json(every_other) == wire.order_book_from_json(encoded(BOOK))
    assert wire.order_book_from_json(bytearray(encoded(BOOK))) == wire.order_book_from_json(memoryview(encoded(BOOK)))


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
def test_nothing_but_the_librarys_errors_escapes_and_what_is_read_is_written_back(text: bytes):
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
def test_a_damaged_book_is_refused_or_read_as_what_it_then_says(data):
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


class TestAsWritten:
    """A book whose text somebody vouches for: read when it is looked at, and the same book in all that can be asked."""

    @given(order_books())
    def test_it_is_the_book_that_was_written(self, book: OrderBook):
        text = wire.order_book_to_json(book)
        assert wire.order_book_as_written(text) == book
        assert hash(wire.order_book_as_written(text)) == hash(book)
        assert repr(wire.order_book_as_written(text)) == repr(book)
        assert pickle.loads(pickle.dumps(wire.order_book_as_written(text))) == book
        assert copy.copy(wire.order_book_as_written(text)) == book
        for name in (
            "pair",
            "spot",
            "bids",
            "asks",
            "best_bid",
            "best_ask",
            "spread",
            "mid",
            "is_locked",
            "is_crossed",
        ):
            assert getattr(wire.order_book_as_written(text), name) == getattr(book, name), name
        for levels in range(4):
            assert wire.order_book_as_written(text).depth(levels) == book.depth(levels)

    @given(order_books())
    def test_what_is_written_again_is_the_text_itself(self, book: OrderBook):
        text = wire.order_book_to_json(book)
        written = wire.order_book_as_written(text)
        assert wire.order_book_to_json(written) is text
        assert written.bids == book.bids
        assert wire.order_book_to_json(written) is text
        assert wire.order_book_to_json(written, base="x", quote="y") == wire.order_book_to_json(
            book, base="x", quote="y"
        )

    @given(st.data(), order_books())
    def test_what_is_derived_from_it_is_written_as_it_is(self, data: st.DataObject, book: OrderBook):
        written = wire.order_book_as_written(wire.order_book_to_json(book))
        for _ in range(3):
            sides: dict[str, Any] = {}
            for side in ("bids", "asks"):
                if data.draw(st.booleans()):
                    sides[side] = data.draw(level_changes(book))
            if data.draw(st.booleans()):
                sides["spot"] = data.draw(st.one_of(st.none(), st.just(book.spot), prices()))
            book, written = book.apply(**sides), written.apply(**sides)
            if data.draw(st.booleans()):
                assert written == book
            assert wire.order_book_to_json(written) == wire.order_book_to_json(book)

    def test_another_spot_price_is_another_text(self):
        text = wire.order_book_to_json(OrderBook(Pair(ADA, AssetId(bytes(28), b"")), spot="2"))
        written = wire.order_book_as_written(text)
        assert b'"spot":"3"' in wire.order_book_to_json(written.apply(spot="3"))
        assert b'"spot":null' in wire.order_book_to_json(written.apply(spot=None))
        assert wire.order_book_to_json(written.apply()) is text

    @given(order_books())
    def test_a_text_that_does_not_begin_like_one_of_ours_is_read_at_once(self, book: OrderBook):
        spaced = json.dumps(json.loads(wire.order_book_to_json(book))).encode()
        assert wire.order_book_as_written(spaced) == book

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"nonsense",
            b'{"base":"ADA","quote":"ADA","spot":null,"bids":[],"asks":[]}',
            b'{"base":"ada","quote":"ADA","spot":null,"bids":[],"asks":[]}',
            b'{"base":"ADA","quote":"%s:","spot":"0","bids":[],"asks":[]}' % (b"00" * 28),
            b'{"base":"ADA","quote":"%s:","spot":"1.2.3","bids":[],"asks":[]}' % (b"00" * 28),
            b'{"base":"\xff","quote":"ADA","spot":null,"bids":[]',
        ],
    )
    def test_what_is_wrong_with_its_head_is_told_at_once(self, text: bytes):
        with pytest.raises(MarketIndexError):
            wire.order_book_as_written(text)

    @pytest.mark.parametrize(
        "levels",
        [b'"bids":[7],"asks":[]', b'"bids":[],"asks":[{"price":"2","accumulated_liquidity":0}]', b'"bids":['],
    )
    def test_what_is_wrong_with_its_levels_is_told_to_whoever_looks(self, levels: bytes):
        """Somebody vouched for what is not so: that must not pass for a book, nor for one without levels."""
        text = b'{"base":"ADA","quote":"%s:","spot":"1",%s}' % (b"00" * 28, levels)
        book = wire.order_book_as_written(text)
        for look in (lambda: book.bids, lambda: book.best_ask, lambda: book.depth(1), lambda: hash(book)):
            for _ in range(2):
                with pytest.raises(InvalidOrderBook):
                    look()

    def test_columns_have_no_other_attributes(self):
        book = wire.order_book_as_written(wire.order_book_to_json(OrderBook(Pair(ADA, AssetId(bytes(28), b"")))))
        with pytest.raises(AttributeError, match="columns have no attribute 'price'"):
            book._bid_source.price  # type: ignore[union-attr]  # noqa: B018  # to see that it raises
