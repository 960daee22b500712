"""Values of the library in the classes of a user, structured by the converters of cattrs."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import cattrs.preconf.json
import cattrs.preconf.msgspec
import cattrs.preconf.orjson
import pytest
from attrs import frozen
from cattrs import ClassValidationError, Converter, transform_error
from cattrs.strategies import configure_tagged_union
from hypothesis import given, settings
from hypothesis import strategies as st

from market_index import (
    AssetId,
    Freshness,
    InvalidOrderBook,
    Levels,
    MarketIndex,
    MarketIndexError,
    Order,
    OrderBook,
    Pair,
    PairInfo,
    PriceLevel,
    wire,
)
from market_index.strategies import order_books
from tests.market_index.wire.texts import BOOK, LIST, TOKEN, replaced
from tests.oracles.comparison import outcome


@frozen
class Seen:
    pair: Pair


@frozen
class Placed:
    order: Order


@frozen
class Snapshot:
    """A class of a user, with all values of the library."""

    asset: AssetId
    info: PairInfo | None
    last: Seen | Placed
    levels: tuple[PriceLevel, ...]
    side: Levels
    books: list[OrderBook]
    index: MarketIndex
    by_name: dict[str, OrderBook]
    names: dict[AssetId, str]
    freshness: Freshness | None = None
    is_paid: bool = False


PRECONFIGURED: list[tuple[type[Converter], Callable[..., None] | None]] = [
    (Converter, None),
    (cattrs.preconf.json.JsonConverter, cattrs.preconf.json.configure_converter),
    (cattrs.preconf.orjson.OrjsonConverter, cattrs.preconf.orjson.configure_converter),
    (cattrs.preconf.msgspec.MsgspecJsonConverter, cattrs.preconf.msgspec.configure_converter),
]


def configured(make: type[Converter], configure: Callable[..., None] | None, *, first: bool, **rules: Any) -> Any:
    """Return a converter of a user, with our hooks before its own configuration, or after it."""
    converter = make(**rules)
    steps = [configure or (lambda _: None), wire.configure_converter]
    for step in steps[::-1] if first else steps:
        step(converter)
    return converter


CONVERTERS = [configured(*made, first=first) for made in PRECONFIGURED for first in (False, True)]
RULES: list[dict[str, Any]] = [
    {"forbid_extra_keys": True},
    {"detailed_validation": False},
    {"prefer_attrib_converters": True},
    {"omit_if_default": True},
    {"use_alias": True},
]
CONVERTERS += [configured(*made, first=False, **rules) for made in PRECONFIGURED for rules in RULES]
CONVERTERS += [converter.copy() for converter in CONVERTERS[::3]]
PLAIN = configured(Converter, None, first=False)
STRICT = configured(Converter, None, first=False, forbid_extra_keys=True)
BRIEF = configured(Converter, None, first=False, forbid_extra_keys=True, detailed_validation=False)


def round_trip(converter: Any, value: Any, of_type: Any) -> Any:
    if hasattr(converter, "dumps"):
        return converter.loads(converter.dumps(value, unstructure_as=of_type), of_type)
    return converter.structure(json.loads(json.dumps(converter.unstructure(value, unstructure_as=of_type))), of_type)


@settings(max_examples=8)
@given(...)
def test_a_class_of_a_user_round_trips_through_every_converter(snapshot: Snapshot):
    for converter in CONVERTERS:
        again = round_trip(converter, snapshot, Snapshot)
        assert again == snapshot
        # It is excluded from the equality of indexes.
        assert again.index.freshness == snapshot.index.freshness


@given(book=..., info=..., freshness=..., level=...)
def test_a_value_is_the_json_of_the_contract(book: OrderBook, info: PairInfo, freshness: Freshness, level: PriceLevel):
    for converter in CONVERTERS:
        assert converter.unstructure(book) == json.loads(wire.order_book_to_json(book))
        assert converter.unstructure(book.pair) == {"base": str(book.pair.base), "quote": str(book.pair.quote)}
        assert {"pairs": [converter.unstructure(info)]} == json.loads(wire.pair_list_to_json([info]))
        assert converter.unstructure(freshness) == json.loads(wire.freshness_to_json(freshness))
        one = OrderBook(book.pair, bids=[level])
        assert converter.unstructure(one)["bids"] == [converter.unstructure(level)]


def test_a_value_that_the_contract_lacks_has_the_names_of_its_arguments():
    pair = {"base": TOKEN, "quote": "ADA"}
    for price in ("0.25", "1/3"):
        order = {"pair": pair, "side": "ask", "price": price, "amount": 0}
        value = PLAIN.structure(order, Order)
        assert value.price == Fraction(price)
        assert PLAIN.unstructure(value) == order
    index: dict[str, Any] = {
        "books": [pair | {"spot": None, "bids": [], "asks": []}],
        "as_of": "slot 1",
        "published_at": None,
    }
    assert PLAIN.unstructure(PLAIN.structure(index, MarketIndex)) == index
    side = {"side": "bid", "levels": BOOK["bids"]}
    assert PLAIN.structure(side, Levels) == PLAIN.structure(BOOK, OrderBook).bids
    assert PLAIN.unstructure(PLAIN.structure(side, Levels)) == side
    with pytest.raises(InvalidOrderBook, match=r"^asks\[1\]\.price must be above"):
        PLAIN.structure(side | {"side": "ask"}, Levels)


def test_a_union_of_values_needs_a_tag():
    either = OrderBook | Pair
    converter = Converter(forbid_extra_keys=True)
    wire.configure_converter(converter)
    configure_tagged_union(either, converter)
    book = PLAIN.structure(BOOK, OrderBook)
    for one in (book, book.pair):
        assert round_trip(converter, one, either) == one


# Faults


def structured(converter: Any, of_type: Any) -> Callable[[Any], Any]:
    return lambda value: converter.structure(value, of_type)


READERS: dict[Any, tuple[Callable[[bytes], Any], Callable[[OrderBook], Any]]] = {
    OrderBook: (wire.order_book_from_json, PLAIN.unstructure),
    PairInfo: (
        lambda text: wire.pair_list_from_json(b'{"pairs":[%s]}' % text)[0],
        lambda book: PLAIN.unstructure(PairInfo(book.pair.base, book.pair.quote, book.spot)),
    ),
    Freshness: (wire.freshness_from_json, lambda _: {"as_of": "slot 1", "published_at": "2026-11-22T04:17:03Z"}),
}


@settings(max_examples=150)
@given(data=st.data(), book=order_books(max_levels=2), of_type=st.sampled_from(list(READERS)))
def test_a_hostile_value_is_read_as_by_the_decoder(data: st.DataObject, book: OrderBook, of_type: Any):
    decode, example = READERS[of_type]
    text = json.dumps(replaced(data, example(book)))
    wanted = outcome(decode, text.encode(), MarketIndexError)
    # A user may decode the numbers of JSON in another way.
    for number in (float, Decimal):
        value = json.loads(text, parse_float=number, parse_constant=number)
        for converter in (STRICT, BRIEF):
            found = outcome(structured(converter, of_type), value, MarketIndexError)
            if isinstance(wanted, Exception):
                # The texts of numbers differ.
                assert str(found).split("got")[0] == str(wanted).split("got")[0].removeprefix("pairs[0]").lstrip(".: ")
            else:
                assert found == wanted


@frozen
class Watched:
    books: list[OrderBook]


def message(error: BaseException, of_type: type | None) -> str:
    """Format an error as the page on other libraries shows."""
    return str(error) if isinstance(error, MarketIndexError) else cattrs.v.format_exception(error, of_type)


LEVELS: list[dict[str, Any]] = BOOK["bids"]
ORDER = {"pair": {"base": TOKEN, "quote": "ADA"}, "side": "ask", "price": "1", "amount": 1}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"bids": [LEVELS[0], LEVELS[1] | {"price": "x"}]}, "bids[1].price: a price must be ASCII digits with "),
        ({"spot": Decimal("0.5")}, "spot: must be a string, got Decimal: Decimal('0.5')"),
        ({"asks": (1,)}, "asks: must be an array, got tuple: (1,)"),
        ({"bids": LEVELS[::-1]}, "bids[1].price must be below bids[0].price, which is 0.004, got 0.0041"),
        ({1: 2, "x": 3}, "unknown key 1"),
        ({"bids": [{"price": "1"}] * 1_000}, "bids[0].accumulated_liquidity: missing"),
    ],
)
@pytest.mark.parametrize("made", PRECONFIGURED)
def test_the_first_fault_of_a_value_has_its_place_and_message(made: Any, change: dict[Any, Any], wanted: str):
    converter = configured(*made, first=False, forbid_extra_keys=True)
    with pytest.raises(ClassValidationError) as raised:
        converter.structure({"books": [BOOK, BOOK | change]}, Watched)
    (found,) = transform_error(raised.value, format_exception=message)
    assert found.startswith(wanted)
    assert found.endswith(" @ $.books[1]")
    with pytest.raises(MarketIndexError, match=f"^{re.escape(wanted)}"):
        BRIEF.structure({"books": [BOOK | change]}, Watched)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"side": "buy"}, "side: must be bid or ask, got 'buy'"),
        ({"price": "1/0"}, "price: a ratio must have a denominator above 0, got '1/0'"),
        ({"amount": True}, "amount: must be a whole number from 0 to 2^64-1, got a boolean: True"),
    ],
)
def test_an_order_is_read_strictly(change: dict[str, Any], wanted: str):
    with pytest.raises(MarketIndexError, match=f"^{re.escape(wanted)}$"):
        PLAIN.structure(ORDER | change, Order)


def test_unknown_keys_are_ignored_unless_the_converter_forbids_them():
    more = BOOK | {"size": 1, "bids": [level | {"size": 1} for level in LEVELS]}
    assert PLAIN.structure(more, OrderBook) == STRICT.structure(BOOK, OrderBook)
    info = LIST["pairs"][0]
    assert PLAIN.structure(info | {"size": 1}, PairInfo) == STRICT.structure(info, PairInfo)
    again = PLAIN.copy(forbid_extra_keys=True)
    wire.configure_converter(again)
    with pytest.raises(MarketIndexError):
        again.structure(more, OrderBook)


class Color(enum.Enum):
    RED = "red"


@frozen
class Own:
    amounts: tuple[Decimal, ...] = (Decimal("1.50"),)
    count: int = 1


@pytest.mark.parametrize("made", PRECONFIGURED)
def test_no_other_type_of_the_converter_changes(made: Any):
    make, configure = made
    own = make()
    (configure or (lambda _: None))(own)
    ours = configured(*made, first=False)
    times = datetime(2026, 11, 22, tzinfo=UTC), date(2026, 11, 22)
    values: list[Any] = [1, True, "1", 1.5, None, b"a", Decimal("1.50"), Color.RED, Own(), [1], {"a": 1}, *times]
    for value in values:
        assert ours.unstructure(value) == own.unstructure(value)
    texts: list[tuple[Any, Any]] = [
        (int, " 7 "), (str, 1), (bool, "x"), (float, "1"), (Decimal, " 1_0 "), (Decimal, 1.5), (Color, "red"),
        (Own, {"count": "2", "amounts": (1, "x")}), (list[int], "12"), (tuple[int, ...], ["1"]), (int | None, "1"),
        (Fraction, "1/3"), (datetime, "2026-11-22T04:17:03.1234"), (dict[str, Decimal], {1: 2}),
    ]  # fmt: skip
    for of_type, value in texts:
        wanted = repr(outcome(structured(own, of_type), value, Exception))
        assert repr(outcome(structured(ours, of_type), value, Exception)) == wanted
