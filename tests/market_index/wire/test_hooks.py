"""Values of the library as fields of the classes of a user, structured by the converters of cattrs."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
from attrs import frozen
from cattrs import ClassValidationError, Converter, transform_error
from cattrs.preconf import json as json_converter
from hypothesis import given, settings

from market_index import AssetId, Freshness, MarketIndex, Order, OrderBook, Pair, PairInfo, PriceLevel, wire


@frozen
class Snapshot:
    """A class of a user."""

    asset: AssetId
    pair: Pair
    info: PairInfo | None
    level: PriceLevel
    books: list[OrderBook]
    order: Order
    freshness: Freshness
    index: MarketIndex
    names: dict[AssetId, str]


def configured(make: Callable[..., Any], **rules: bool) -> Any:
    converter = make(**rules)
    wire.configure_converter(converter)
    return converter


MAKERS = [Converter, json_converter.make_converter]
for name in ("orjson", "msgspec"):
    with suppress(ModuleNotFoundError):
        MAKERS.append(import_module(f"cattrs.preconf.{name}").make_converter)
CONVERTERS = [configured(make, forbid_extra_keys=strict) for make in MAKERS for strict in (False, True)]


@settings(max_examples=20)
@given(...)
def test_a_class_of_a_user_round_trips(snapshot: Snapshot):
    for converter in CONVERTERS:
        dumps, loads = getattr(converter, "dumps", json.dumps), getattr(converter, "loads", None)
        text = dumps(converter.unstructure(snapshot)) if loads is None else dumps(snapshot)
        again = converter.structure(json.loads(text), Snapshot) if loads is None else loads(text, Snapshot)
        assert again == snapshot
        assert again.index.freshness == snapshot.index.freshness


@given(book=..., info=..., freshness=...)
def test_it_is_the_json_of_the_contract(book: OrderBook, info: PairInfo, freshness: Freshness):
    for converter in CONVERTERS:
        assert converter.unstructure(book) == json.loads(wire.order_book_to_json(book))
        assert {"pairs": [converter.unstructure(info)]} == json.loads(wire.pair_list_to_json([info]))
        assert converter.unstructure(freshness) == json.loads(wire.freshness_to_json(freshness))


@frozen
class Watched:
    """A class of a user."""

    books: list[OrderBook]


LEVELS = [{"price": "0.5", "accumulated_liquidity": 5}, {"price": "0.4", "accumulated_liquidity": 5}]
BOOK: dict[str, Any] = {"base": f"{'00' * 28}:", "quote": "ADA", "bids": LEVELS}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"base": "lovelace"}, "$.books[1].base"),
        ({"bids": [LEVELS[0], LEVELS[1] | {"price": "x"}]}, "$.books[1].bids[1].price"),
        ({"bids": [LEVELS[0], LEVELS[1] | {"accumulated_liquidity": 0.5}]}, "$.books[1].bids[1].accumulated_liquidity"),
        ({"asks": {}}, "$.books[1].asks"),
        ({"bids": LEVELS[::-1]}, "$.books[1]"),
        ({"size": 1}, "$.books[1]"),
        ({"bids": [{"price": "1"}]}, "$.books[1].bids[0].accumulated_liquidity"),
    ],
)
@pytest.mark.parametrize("converter", CONVERTERS[1::2])
def test_an_error_keeps_its_place(converter: Any, change: dict[str, Any], place: str):
    with pytest.raises(ClassValidationError) as raised:
        converter.structure({"books": [BOOK, BOOK | change]}, Watched)
    (message,) = transform_error(raised.value)
    assert message.endswith(f"@ {place}")


def test_unknown_keys_are_as_the_converter_has_them():
    assert CONVERTERS[0].structure(BOOK | {"size": 1}, OrderBook) == CONVERTERS[1].structure(BOOK, OrderBook)
