"""Decoding the lines of events; all other lines are rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import InvalidOrderBook, InvalidPrice, MarketIndexError, Order, Side
from market_index.errors import safe_repr
from market_index_feeds.orders import (
    Block,
    Event,
    Place,
    Remove,
    Reset,
    Rollback,
    Spot,
    Untrack,
    read_event,
)
from tests.feeds.event_lines import RESET, block, event, named, place, remove, rollback, spot, untrack
from tests.feeds.made_up import pair

SPECIAL = ' \\" ' + "x" * 196
EACH_KIND = [place("a#0"), remove("a#0"), spot(1, "2"), untrack(1), block("7"), rollback("7"), RESET]
ASK = Order(pair(1), Side.ASK, "2", 10)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (place("a#0"), Place("a#0", ASK)),
        (place("a#0", amount="10"), Place("a#0", ASK)),
        (place("a#0", price="6/3"), Place("a#0", ASK)),
        (place("a#0", price="0.2e1", amount="0010"), Place("a#0", ASK)),
        (place("a#0", price="2/3", offered="quote"), Place("a#0", Order(pair(1), Side.BID, Fraction(3, 2), 6))),
        (place("a#0", amount=10**40 - 1), Place("a#0", Order(pair(1), Side.ASK, "2", 2**64 - 1))),
        (place("a#0", amount=0), Place("a#0", Order(pair(1), Side.ASK, "2", 0))),
        (place(SPECIAL), Place(SPECIAL, ASK)),
        (remove("a#0"), Remove("a#0")),
        (spot(1, "0.50"), Spot(pair(1), Decimal("0.5"))),
        (spot(1, "1/3"), Spot(pair(1), Decimal("0.3333333333333333333333333334"))),
        (spot(1, None), Spot(pair(1), None)),
        (untrack(1), Untrack(pair(1))),
        (block("slot 7"), Block("slot 7")),
        (rollback("slot 7"), Rollback("slot 7")),
        (RESET, Reset()),
    ],
)
def test_an_event_is_decoded(line: bytes, expected: Event):
    assert read_event(line) == expected


IDENTIFIERS = named(1)
PLACE: dict[str, Any] = {"place": "a#0", **IDENTIFIERS, "offered": "base", "amount": 10, "price": "2"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "must have one of the keys place, remove, spot, untrack, block, rollback, reset, got []"),
        ({"add": 1}, "must have one of the keys place, remove, spot, untrack, block, rollback, reset, got ['add']"),
        ({"place": "a#0"}, "place: missing amount, base, offered, price, quote"),
        (PLACE | {"more": 1}, "place: unknown key 'more'"),
        (PLACE | {"remove": "a#0"}, "place: unknown key 'remove'"),
        (PLACE | {"place": 7}, "place must be a string, got 7"),
        (PLACE | {"place": ""}, "place must be 1 to 200 printable ASCII characters, got ''"),
        (PLACE | {"place": "\n"}, "place must be 1 to 200 printable ASCII characters, got '\\n'"),
        (PLACE | {"place": "é"}, "place must be 1 to 200 printable ASCII characters, got 'é'"),
        (PLACE | {"base": None}, "base must be a string, got None"),
        (PLACE | {"base": "lovelace"}, "base: an asset identifier must be ADA or policy:name in hex, got 'lovelace'"),
        (
            PLACE | {"base": "ADA", "quote": "ADA", "price": "x"},
            "price: a ratio must be ASCII digits with an optional point or one slash, got 'x'",
        ),
        ({"spot": None, "base": "ADA", "quote": "ADA"}, "base and quote must be different assets, got 'ADA' twice"),
        (PLACE | {"offered": "ADA"}, "offered must be 'base' or 'quote', got 'ADA'"),
        (PLACE | {"offered": []}, "offered must be 'base' or 'quote', got []"),
        (PLACE | {"price": 2}, "price must be a string, got 2"),
        (
            PLACE | {"price": "two"},
            "price: a ratio must be ASCII digits with an optional point or one slash, got 'two'",
        ),
        ({"remove": None}, "remove must be a string, got None"),
        ({"spot": 2, **IDENTIFIERS}, "spot must be a string, got 2"),
        (
            {"spot": "", **IDENTIFIERS},
            "spot: a ratio must be ASCII digits with an optional point or one slash, got ''",
        ),
        ({"spot": None}, "spot: missing base, quote"),
        ({"untrack": 1, **IDENTIFIERS}, "untrack must be true, got 1"),
        ({"block": " 7"}, "block must have no space at either end, got ' 7'"),
        ({"block": 7}, "block must be a string, got 7"),
        ({"rollback": "x" * 201}, f"rollback must be 1 to 200 printable ASCII characters, got '{'x' * 78}…"),
        ({"reset": False}, "reset must be true, got False"),
    ],
)
def test_a_malformed_event_is_rejected_with_the_key_and_the_value(values: dict[str, object], message: str):
    with pytest.raises(MarketIndexError) as raised:
        read_event(json.dumps(values).encode())
    assert str(raised.value) == message


@pytest.mark.parametrize("amount", ["", "-", "+1", "--1", "1-", "1e3", "٣", " 1", "1\n", True, 1.5, None, [1]])
def test_an_amount_is_a_whole_number_or_its_digits(amount: object):
    with pytest.raises(InvalidOrderBook, match=r"^amount must be a whole number, or a string of its digits, got "):
        read_event(place("a#0", amount=amount))


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b'{"block":"7"} {"block":"8"}'])
def test_what_is_not_one_object_is_rejected(text: bytes):
    with pytest.raises(InvalidOrderBook):
        read_event(text)


def test_a_line_of_many_values_is_rejected_before_it_is_decoded():
    with pytest.raises(
        InvalidOrderBook, match=r"^an event must have at most 205 commas, got 206: b'{\"place\": \"a#0\","
    ):
        read_event(event(**PLACE | {"amount": [0] * 202}))


def test_an_id_may_consist_of_commas():
    assert read_event(place("," * 200)) == Place("," * 200, ASK)


@pytest.mark.parametrize("amount", [-1, "-1", f"-{'0' * 60}1", f"-{'9' * 5_000}"])
def test_an_order_whose_amount_is_negative_has_no_liquidity(amount: object):
    read = read_event(place("a#0", amount=amount))
    assert isinstance(read, Place)
    assert read.order == Order(pair(1), Side.ASK, "1", 0)
    assert read.fault == f"amount must be 0 or more, got {safe_repr(amount)}"


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
    read = read_event(place("a#0", amount=written, price=price, offered=offered))
    assert isinstance(read, Place)
    assert read.order is not None
    exact = amount if offered == "base" else amount * Fraction(price) // 1
    assert (read.order.amount, read.fault) == (min(exact, 2**64 - 1), None)


@pytest.mark.parametrize("amount", ["-0", f"-{'0' * 60}", "0" * 60, -0])
def test_an_amount_of_zero_may_have_a_sign(amount: object):
    assert read_event(place("a#0", amount=amount)) == Place("a#0", Order(pair(1), Side.ASK, "2", 0))


@pytest.mark.parametrize("digits", [41, 5_000])
@pytest.mark.parametrize("more", ["", r',"\u0070rice":"2"'])
def test_an_amount_of_very_many_digits_counts_as_the_maximum_of_a_level(digits: int, more: str):
    expected = Place("a#0", Order(pair(1), Side.ASK, "2", 2**64 - 1))
    assert read_event(place("a#0", amount="9" * digits)) == expected
    line = json.dumps({key: value for key, value in PLACE.items() if key not in {"amount", "price" if more else ""}})
    assert read_event(f'{line[:-1]},"amount":{"9" * digits}{more}}}'.encode()) == expected


HOSTILE: list[Callable[[str], str]] = [
    lambda fill: fill,
    lambda fill: f"{fill}x",
    lambda fill: f"{fill}/29000",
    lambda fill: f"{fill}/{fill}",
    lambda fill: f"{fill}.{fill}x",
    lambda fill: f"{fill}.{fill}e{fill}x",
    lambda fill: f"1.{fill}e-{fill}",
    lambda fill: f"-{fill}",
    lambda fill: f"{fill}:{fill}x",
]
HOSTILE_CHARACTERS = 32_768


@pytest.mark.parametrize("values", [json.loads(line) for line in EACH_KIND], ids=lambda values: next(iter(values)))
def test_the_time_of_any_line_is_linear_in_its_length(values: dict[str, object]):
    """A regular expression that backtracks takes some 20 s for one of these lines, the present ones below 1 ms."""
    for key in values:
        for fill in ("1", "0", "ab", ".", "/", "\\"):
            for write in HOSTILE:
                line = event(**values | {key: write(fill * (HOSTILE_CHARACTERS // len(fill)))})
                start = thread_time()
                with suppress(MarketIndexError):
                    read_event(line)
                assert thread_time() - start < 1, (key, line[:100])


@pytest.mark.parametrize(
    ("base", "quote"),
    [("ADA", "ADA"), (f"{'AB' * 28}:", f"{'ab' * 28}:"), (f"{'00' * 27}:", "ADA"), (f"{'00' * 28}:{'00' * 33}", "ADA")],
)
def test_an_order_of_assets_that_cannot_be_a_pair_is_kept_without_one(base: str, quote: str):
    read = read_event(event(**PLACE | {"base": base, "quote": quote}))
    assert isinstance(read, Place)
    assert (read.order_id, read.order) == ("a#0", None)
    assert read.fault


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
    read = read_event(place("a#0", price=price, offered=offered))
    assert isinstance(read, Place)
    assert read.order is not None
    assert (read.order_id, read.order.pair, read.order.amount) == ("a#0", pair(1), 0)
    assert read.order.side is (Side.ASK if offered == "base" else Side.BID)
    assert read.fault
    following = read_event(spot(1, price))
    assert isinstance(following, Spot)
    assert (following.price, following.fault is None) == (None, False)


DIGITS = st.text("0123456789", min_size=1, max_size=40)
SIGNS = st.sampled_from(["", "", "", "-"])
RATIOS = st.builds("{}{}/{}".format, SIGNS, DIGITS, DIGITS)
DECIMALS = st.builds("{}{}.{}e{}{}".format, SIGNS, DIGITS, DIGITS, SIGNS, st.text("0123456789", min_size=1, max_size=3))


@given(st.one_of(RATIOS, DECIMALS), st.integers(0, 10**40 - 1), st.booleans())
def test_the_order_of_an_event_is_the_order_of_its_offer(price: str, amount: int, is_ask: bool):
    """The domain computes it; `tests/market_index/test_orders.py` compares that with plain fractions."""
    read = read_event(place("a#0", price=price, amount=amount, offered="base" if is_ask else "quote"))
    assert isinstance(read, Place)
    try:
        offered = pair(1).base if is_ask else pair(1).quote
        expected = Order.from_offer(pair(1), offered=offered, amount=amount, price=price)
    except InvalidPrice:
        assert read.fault is not None
    else:
        assert (read.order, read.fault) == (expected, None)


@given(st.text("0123456789.eE+-/", max_size=8))
def test_a_price_is_a_decimal_or_a_ratio(text: str):
    """Compared with conversions of Python, which accept more in general, but nothing else of these characters."""
    unsigned = text.removeprefix("-")
    is_well_formed = unsigned[:1] not in {"+", "-"} and _is_number(unsigned)
    try:
        read_event(place("a#0", price=text))
    except MarketIndexError:
        assert not is_well_formed
    else:
        assert is_well_formed


def _is_number(text: str) -> bool:
    numerator, slash, denominator = text.partition("/")
    if slash:
        return numerator.isdigit() and denominator.isdigit()
    try:
        float(text)
    except ValueError:
        return False
    return True
