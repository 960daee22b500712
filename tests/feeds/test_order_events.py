"""Decoding the lines of events; all other lines are rejected, by the reader and by the schema."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from market_index import Order, Side
from market_index.errors import safe_repr
from market_index_feeds.lines import Line
from market_index_feeds.orders import Blocks, Phase
from tests.feeds.event_lines import RESET, block, named, place, spot
from tests.feeds.made_up import pair

SPECIAL = ' \\" ' + "x" * 196
MOST = 2**64 - 1


def read(*lines: bytes) -> tuple[Blocks, list[str]]:
    """Return the state after a reset and some lines, and why lines were rejected."""
    reasons: list[str] = []
    blocks = Blocks(0, lambda _, reason: reasons.append(str(reason)))
    for number, line in enumerate((RESET, *lines)):
        blocks.read(Line(number, line))
    return blocks, reasons


def placed(line: bytes) -> tuple[Order, str | None]:
    """Return the order that a line places, and why it has no liquidity."""
    blocks, reasons = read(line, block("1"))
    ((order_id, order),) = blocks.visible.items()
    prefix = f"order {safe_repr(order_id)} has no liquidity: "
    return order, reasons[0].removeprefix(prefix) if reasons else None


@pytest.mark.parametrize(
    ("line", "price", "amount"),
    [
        (place("a#0", amount="10"), "2", 10),
        (place("a#0", price="6/3"), "2", 10),
        (place("a#0", price="0.2e1", amount="0010"), "2", 10),
        (place("a#0", amount=10**40 - 1), "2", MOST),
        (place("a#0", amount="9" * 5_000), "2", MOST),
        (place("a#0").replace(b"10", b"9" * 5_000), "2", MOST),
        (place("a#0", amount=0), "2", 0),
        (place("a#0", amount=f"-{'0' * 60}"), "2", 0),
        (place(SPECIAL), "2", 10),
    ],
)
def test_an_order_is_decoded(line: bytes, price: str, amount: int):
    assert placed(line) == (Order(pair(1), Side.ASK, price, amount), None)


def test_a_bid_has_the_inverse_price():
    line = place("a#0", price="2/3", offered="quote")
    assert placed(line) == (Order(pair(1), Side.BID, Fraction(3, 2), 6), None)


@pytest.mark.parametrize(
    ("price", "expected"), [("0.50", "0.5"), ("1/3", "0.3333333333333333333333333334"), (None, None)]
)
def test_a_spot_price_is_decoded(price: str | None, expected: str | None):
    blocks, reasons = read(spot(1, price), block("1"))
    assert (blocks.visible.index[pair(1)].spot, reasons) == (expected and Decimal(expected), [])


IDENTIFIERS = named(1)
PLACE: dict[str, Any] = {"place": "a#0", **IDENTIFIERS, "offered": "base", "amount": 10, "price": "2"}
KINDS = "place, remove, spot, untrack, block, rollback, reset"
RATIO = "a ratio must be ASCII digits with an optional point or one slash"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, f"must have one of the keys {KINDS}, got []"),
        (PLACE | {"more": 1}, "place: unknown key 'more'"),
        (PLACE | {"remove": "a#0"}, "place: unknown key 'remove'"),
        (PLACE | {"place": 7}, "place must be a string, got 7"),
        (PLACE | {"place": "é"}, "place must be 1 to 200 printable ASCII characters, got 'é'"),
        (PLACE | {"base": "lovelace"}, "base: an asset identifier must be ADA or policy:name in hex, got 'lovelace'"),
        (PLACE | {"base": "ADA", "quote": "ADA", "price": "x"}, f"price: {RATIO}, got 'x'"),
        ({"spot": None, "base": "ADA", "quote": "ADA"}, "base and quote must be different assets, got 'ADA' twice"),
        (PLACE | {"offered": "ADA"}, "offered must be 'base' or 'quote', got 'ADA'"),
        (PLACE | {"price": 2}, "price must be a string, got 2"),
        ({"spot": None}, "spot: missing base, quote"),
        ({"untrack": 1, **IDENTIFIERS}, "untrack must be true, got 1"),
        ({"block": " 7"}, "block must have no space at either end, got ' 7'"),
        ({"rollback": "x" * 201}, f"rollback must be 1 to 200 printable ASCII characters, got '{'x' * 78}…"),
        ({"reset": False}, "reset must be true, got False"),
        *[
            (PLACE | {"amount": amount}, f"amount must be a whole number, or a string of its digits, got {amount!r}")
            for amount in ["", "-", "+1", "--1", "1-", "1e3", "٣", " 1", "1\n", True, None, [1]]
        ],
    ],
)
def test_a_malformed_event_is_rejected_with_the_key_and_the_value(values: dict[str, object], message: str):
    blocks, reasons = read(json.dumps(values).encode())
    assert (blocks.phase, reasons) == (Phase.UNKNOWN, [message])


@pytest.mark.parametrize("text", [b"[]", b"{", b"\xff", b'{"block":"7"} {"block":"8"}'])
def test_what_is_not_one_object_is_rejected(text: bytes):
    assert read(text)[0].phase is Phase.UNKNOWN


@pytest.mark.parametrize("amount", [-1, "-1", f"-{'0' * 60}1", f"-{'9' * 5_000}"])
def test_an_order_whose_amount_is_negative_has_no_liquidity(amount: object):
    fault = f"amount must be 0 or more, got {safe_repr(amount)}"
    assert placed(place("a#0", amount=amount)) == (Order(pair(1), Side.ASK, "1", 0), fault)


@pytest.mark.parametrize("as_text", [False, True])
@given(
    st.integers(0, 10**60 - 1) | st.integers(0, 2**65),
    st.sampled_from(["1e-28", "1e-20", "1", "7/29000", "1e28"]),
    st.sampled_from(["base", "quote"]),
    st.integers(0, 5_000),
)
def test_the_value_of_an_amount_counts_whatever_its_number_of_digits(
    as_text: bool, amount: int, price: str, offered: str, zeros: int
):
    written = f"{'0' * zeros}{amount}" if as_text else amount
    order, fault = placed(place("a#0", amount=written, price=price, offered=offered))
    exact = amount if offered == "base" else amount * Fraction(price) // 1
    assert (order.amount, fault) == (min(exact, MOST), None)


@pytest.mark.parametrize(
    "price",
    [
        "0", "-1", "-7/5", "0/1", "1/0", "0/0", "-0.5e-3", "1e-29", "1e29", "1e-999999999",
        "79228162514264337593543950336",
        "9" * 5_000, "0." + "3" * 5_000, f"1/{'9' * 5_000}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("offered", ["base", "quote"])
def test_an_order_whose_price_is_out_of_range_has_no_liquidity(price: str, offered: str):
    order, fault = placed(place("a#0", price=price, offered=offered))
    assert fault
    assert (order.pair, order.amount, order.side) == (pair(1), 0, Side.ASK if offered == "base" else Side.BID)
    blocks, reasons = read(spot(1, price), block("1"))
    assert (blocks.visible.index[pair(1)].spot, len(reasons)) == (None, 1)


# The schema, docs/order-events.schema.json, accepts what the reader accepts, and nothing else.

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "order-events.schema.json").read_text())
IS_VALID = jsonschema_rs.validator_for(SCHEMA).is_valid
POLICY = "0123456789abcdef" * 3 + "01234567"

ids = st.from_regex(r"[ -~]{1,200}", fullmatch=True)
points = ids.map(lambda text: text.strip(" ")).filter(bool)
assets = st.just("ADA") | st.builds(
    lambda policy, name, is_upper: f"{policy}:{name.hex()}".upper() if is_upper else f"{policy}:{name.hex()}",
    st.binary(min_size=28, max_size=28).map(bytes.hex),
    st.binary(max_size=32),
    st.booleans(),
)
# An order on the ledger can name what is no asset.
bytes_in_hex = assets | st.builds(lambda policy, name: f"{policy.hex()}:{name.hex()}", st.binary(), st.binary())
amounts = st.integers() | st.integers(-(10**60), 10**60) | st.from_regex(r"-?0*[0-9]+\Z", fullmatch=True)
prices = st.from_regex(SCHEMA["$defs"]["price"]["pattern"].replace("$", r"\Z"), fullmatch=True)
pairs: dict[str, st.SearchStrategy[object]] = {"base": assets, "quote": assets}

valid_events: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries(
        {
            "place": ids,
            "base": bytes_in_hex,
            "quote": bytes_in_hex,
            "offered": st.sampled_from(["base", "quote"]),
            "amount": amounts,
            "price": prices,
        }
    ),
    st.fixed_dictionaries({"remove": ids}),
    st.fixed_dictionaries({"spot": st.none() | prices, **pairs}),
    st.fixed_dictionaries({"untrack": st.just(True), **pairs}),
    st.fixed_dictionaries({"block": points}),
    st.fixed_dictionaries({"rollback": points}),
    st.fixed_dictionaries({"reset": st.just(True)}),
)

near_misses: st.SearchStrategy[object] = st.one_of(
    st.sampled_from(["", " ", " a", "a ", "a\n", "\x7f", "é", "a" * 200, "a" * 201, "base", "quote", "BASE"]),
    st.sampled_from(["ADA", "ada", "lovelace", POLICY, f"{POLICY}:", f"{POLICY}:0", f"{POLICY}:{'0' * 66}", ":"]),
    st.sampled_from([0, -1, 1, 1.5, 2.0, 10**40, "-1", "--1", "+1", "1e3", "٣", "0" * 41, None, True, False, [], {}]),
    st.text("0123456789.eE+-/ \n", max_size=8),
    st.text(max_size=3),
)
KEYS = [*SCHEMA["oneOf"][0]["properties"], "remove", "spot", "untrack", "block", "rollback", "reset", "Price"]
keys = st.sampled_from(KEYS)


@st.composite
def altered_events(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid event of which some keys are missing, have another value, or were added."""
    values = draw(valid_events)
    for key in draw(st.lists(st.sampled_from(sorted(values)), max_size=2)):
        if draw(st.booleans()):
            values[key] = draw(near_misses)
        else:
            values.pop(key, None)
    for key in draw(st.lists(keys, max_size=1)):
        values[key] = draw(near_misses)
    return values


def is_specified(values: dict[str, Any]) -> bool:
    """Return whether the schema accepts an event, and the rules in its comment, which no schema can express."""
    if not IS_VALID(values):
        return False
    has_one_asset = not values.keys().isdisjoint(("spot", "untrack")) and (
        values["base"].lower() == values["quote"].lower()
    )
    return not has_one_asset and type(values.get("amount")) is not float


def is_read(text: str) -> bool:
    """Return whether an event is well-formed, even if it contradicts the state."""
    blocks, reasons = read(text.encode())
    contradictions = ("cannot remove order", "must be retained")
    return blocks.phase is not Phase.UNKNOWN or any(one in reasons[0] for one in contradictions)


def test_the_schema_is_a_schema_of_objects():
    jsonschema_rs.meta.validate(SCHEMA)
    assert not IS_VALID([])


@given(valid_events)
def test_the_schema_and_the_reader_accept_valid_events(values: dict[str, Any]):
    assert IS_VALID(values)
    assert is_read(json.dumps(values)) == is_specified(values)


@given(altered_events())
@settings(max_examples=150)
def test_the_schema_and_the_reader_agree_on_altered_events(values: dict[str, Any]):
    assert is_read(json.dumps(values)) == is_specified(values)


def test_the_reader_rejects_what_the_comment_of_the_schema_excludes():
    place = '{"place":"a","base":"%s","quote":"%s","offered":"base","amount":%s,"price":"1"}'
    token = f"{POLICY}:0a"
    assert is_read(place % ("ADA", token, "2"))
    untrack = '{"untrack":true,"base":"%s","quote":"%s"}'
    for text in (
        untrack % ("ADA", "ADA"),
        untrack % (token, token.upper()),
        place % ("ADA", token, "2.0"),
    ):
        assert IS_VALID(json.loads(text))
        assert not is_read(text)
