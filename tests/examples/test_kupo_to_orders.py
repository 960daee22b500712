"""The decoder of docs/examples/kupo_to_orders.py: recorded outputs, and what a stranger can put on the ledger."""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import partial
from typing import Any

import kupo_to_orders
import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import AssetId, Order, Pair
from market_index.strategies import asset_ids
from tests.conftest import recorded
from tests.examples import datums
from tests.examples.datums import (
    ADA,
    FIELDS,
    GENIUSYIELD,
    KEY,
    NFT,
    NFT_POLICY,
    SHADOWBOOK,
    SPLASH,
    TOKEN,
    Constructor,
    Raw,
    datum,
    output,
)

SNEK = f"{TOKEN[0].hex()}:{TOKEN[1].hex()}"
NOW = 1_764_000_000
BID = {"base": SNEK, "quote": "ADA", "offered": "quote", "amount": 5_000_000, "price": "1000/5000000"}
"""The event of each order of `datums`, without its id."""

every_exchange = pytest.mark.parametrize("script", FIELDS, ids=["splash", "shadowbook", "geniusyield"])


def read(*matches: Any, pairs: Any = ()) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the orders of a response by id, and the number of skipped outputs by reason."""
    listed = {frozenset(one): one for one in pairs}
    orders, skipped = kupo_to_orders.state_of([list(matches)], listed)
    return orders, dict(skipped)


def events(*matches: Any, pairs: Any = ()) -> list[Any]:
    """Return the events of the orders, of which none is skipped."""
    orders, skipped = read(*matches, pairs=pairs)
    assert not skipped
    return [event for *_, event in orders.values()]


def reason(match: Any, pairs: Any = ()) -> str:
    """Return why an output is skipped."""
    orders, skipped = read(match, pairs=pairs)
    assert not orders
    (only,) = skipped
    return only


def pair_of(event: Any) -> Pair:
    return Pair(AssetId.parse(event["base"]), AssetId.parse(event["quote"]))


def order(script: str, **changed: Any) -> dict[str, Any]:
    return output(script, datum(FIELDS[script](**changed)))


def sell(script: str, amount: int) -> dict[str, Any]:
    """Return an order that offers SNEK for 5 lovelace each."""
    changed: dict[str, Any] = {
        "offered": Constructor(0, TOKEN),
        "asked": Constructor(0, ADA),
        "price": Constructor(0, (5, 1)),
    }
    if script == SHADOWBOOK:
        changed = {name: list(part.fields) for name, part in changed.items()}
    if script == SPLASH:
        changed["step output"] = 5 * amount
    return order(script, amount=amount, **changed)


# Recorded outputs

BOBA = "abb15dbbcc5c7c80cebea450f4f2131ec1f5b27ca38b66418e4c9a51:424f4241"
CHAD = "97075bf380e65f3c63fb733267adbb7d42eec574428a754d2abca55b:436861726c6573207468652043686164"
GPOSNEK = "fb4f75d1ad4eb5c21efd5a32a90c076e63a79daccf25afe4ccd4f714:24504f50534e454b"
SPLASH_TOKEN = "ececc92aeaaac1f5b665f567b01baec8bc2771804b4c21716a87a4e3:53504c415348"
NIGHT = "0691b2fecca1ac4f53cb6dfb00b7013e561d1f34403b957cbb5af1fa:4e49474854"
TGENS = "c6e65ba7878b2f8ea0ad39287d3e2fd256dc5c4160fc19bdf4c4d87e:7447454e53"
PLACED = "440d0bb54c9a6966393e838421251524a5c30a6611bce0a5c538d91f41bfda30#0"
SOLD = "c32020e87e6859df3d29e302ae992ee4742b21da69bf1bbb8d956146fec04a72#0"

RECORDED: dict[str, tuple[dict[str, tuple[str, str, int, str]], dict[str, int]]] = {
    "geniusyield-placed": (
        {
            "dfd37a5f16ecb4203ff240e0c426890f8c400e1ddfbdf1accaeb8cc348fa3b5c#0": (
                TGENS,
                "quote",
                100_000_000,
                "1/1",
            )
        },
        {},
    ),
    "shadowbook-docs-market": ({}, {"market order": 1}),
    "shadowbook-synthetic-limit": (
        {
            f"{'e' * 56}0000002a#1": (NIGHT, "base", 250_000_000, "62500001/250000000"),
            f"{'e' * 56}00000029#0": (NIGHT, "quote", 50_000_000, "209790827/50000000"),
        },
        {},
    ),
    "shadowbook-synthetic-market": ({}, {"market order": 1}),
    "splash-chain-1-placed": ({PLACED: (BOBA, "quote", 5_000_000, "3889466/1000000000")}, {}),
    "splash-chain-2-filled": ({}, {}),
    "splash-chain-3-placed": ({SOLD: (BOBA, "base", 3_888_762, "12628853347157785/10000000000000000")}, {}),
    "splash-chain-4-filled": ({}, {}),
    "splash-chain-with-spent": ({}, {"spent": 2}),
    "splash-half-filled": (
        {f"{'e' * 56}00000001#0": (CHAD, "quote", 318_992_042, "152648/2832390295")},
        {},
    ),
    "splash-sdk": (
        {
            f"{'e' * 56}00000003#0": (GPOSNEK, "base", 998_457, "1000/1"),
            f"{'e' * 56}00000002#0": (SPLASH_TOKEN, "quote", 1_000_000, "1/1"),
        },
        {},
    ),
    "synthetic-broken-cbor": ({}, {"broken datum": 1}),
    "synthetic-missing-datum": ({}, {"missing datum": 2}),
    "synthetic-unknown-datum": ({}, {"unknown datum": 1}),
}


@pytest.mark.decision(30)
@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_response_has_these_orders(name: str):
    matches = json.loads(recorded(f"ledger/{name}.json").read_text())
    orders, skipped = read(*matches)
    found = {
        key: (event["base"], event["offered"], event["amount"], event["price"]) for key, (*_, event) in orders.items()
    }
    assert (found, skipped) == RECORDED[name]
    assert {event["quote"] for *_, event in orders.values()} <= {"ADA"}


def test_every_recorded_response_is_tested():
    assert {path.stem for path in recorded("ledger").glob("*.json")} == RECORDED.keys()


def test_the_price_of_a_recorded_order_is_what_the_book_shows():
    (match,) = json.loads(recorded("ledger/splash-chain-3-placed.json").read_text())
    (event,) = events(match)
    pair = pair_of(event)
    placed = Order.from_offer(pair, offered=pair.base, amount=event["amount"], price=event["price"])
    assert (str(placed.level_price), placed.amount) == ("1.2628853347157785", 3_888_762)


# Which outputs are orders


@every_exchange
def test_an_order_has_its_offer_as_an_event(script: str):
    assert events(order(script)) == [BID]


@every_exchange
@pytest.mark.parametrize("stake", [None, bytes(28), KEY])
def test_the_stake_part_of_an_address_does_not_matter(script: str, stake: bytes | None):
    match = order(script)
    match["address"] = datums.address(script, stake=stake)
    assert events(match) == [BID]


@every_exchange
def test_an_address_of_another_credential_has_no_orders(script: str):
    texts = [
        datums.address(script, key=True),
        datums.address("00" * 28),
        "DdzFFzCqrhsrcTVhLygT24QwTnNqQqQ8mZrq5jykUzMveU26sxaH529kMpo7VhPrt5pwW3dXeB2k3EEvKcNBRmzCfcQ7dTkyGzTs658C",
        "stake1u9f9v0z5zzlldgx58n8tklphu8mf7h4jvp2j2gddluemnssjfnkzz",
        "addr1",
        "addr1qqqqqqqqqqqqqqqqqqqqqqqqqqqqq",
        "",
        "1" * 500,
        "é",
    ]
    assert {reason(order(script) | {"address": text}) for text in texts} == {"another address"}


@every_exchange
def test_an_output_without_its_whole_datum_is_skipped(script: str):
    match = order(script)
    assert reason(match | {"datum": None}) == "missing datum"
    assert reason({key: value for key, value in match.items() if key != "datum"}) == "missing datum"
    assert reason(match | {"datum": match["datum"][:-2]}) == "broken datum"
    assert reason(match | {"datum_hash": None}) == "broken datum"


@every_exchange
def test_a_spent_output_is_skipped(script: str):
    assert reason(order(script) | {"spent_at": {"slot_no": 5}}) == "spent"


@pytest.mark.decision(30)
@every_exchange
def test_orders_with_the_same_beacon_are_all_shown(script: str):
    """Anybody can copy a beacon: it must not replace the order of another."""
    victim = output(script, datum(FIELDS[script]()), 1)
    copied = output(script, datum(FIELDS[script](amount=4_999_999)), 2)
    amounts = [event["amount"] for event in events(victim, copied)]
    assert amounts == [5_000_000, 4_999_999]


@pytest.mark.decision(30)
@every_exchange
def test_an_output_must_hold_what_it_offers(script: str):
    match = order(script, amount=4_000_000)
    assert events(match)
    match["value"]["coins"] = 3_999_999
    assert reason(match) == "holds less than it offers"


@every_exchange
def test_the_offer_of_a_token_must_be_held(script: str):
    match = sell(script, 10_000)
    assert events(match) == [BID | {"offered": "base", "amount": 10_000, "price": "5/1"}]
    assert reason(sell(script, 10_001)) == "holds less than it offers"


def test_a_token_with_an_empty_name_is_its_policy_alone():
    nameless = (TOKEN[0], b"")
    match = order(SHADOWBOOK, offered=list(nameless), asked=list(ADA), amount=7, price=[3, 1])
    assert reason(match) == "holds less than it offers"
    match["value"]["assets"][TOKEN[0].hex()] = 7
    assert [event["base"] for event in events(match)] == [f"{TOKEN[0].hex()}:"]


@every_exchange
def test_quantities_can_be_strings(script: str):
    match = order(script)
    value = match["value"]
    value["coins"] = str(value["coins"])
    value["assets"] = {key: str(quantity) for key, quantity in value["assets"].items()}
    assert events(match) == [BID]


# The rules of the exchanges


@pytest.mark.decision(30)
@pytest.mark.parametrize(
    "changed",
    [{"beacon": b"\x01" + bytes(19)}, {"beacon": b"\x02" + bytes(19)}, {"price": [1, 5_000_000]}],
    ids=["type 01", "unknown type", "price 1/n"],
)
def test_a_market_order_of_shadowbook_is_skipped(changed: dict[str, Any]):
    assert reason(order(SHADOWBOOK, **changed)) == "market order"


@pytest.mark.decision(30)
@every_exchange
def test_a_price_that_no_book_shows_is_skipped(script: str):
    def priced(numerator: int, denominator: int) -> dict[str, Any]:
        price = [numerator, denominator] if script == SHADOWBOOK else Constructor(0, (numerator, denominator))
        return order(script, price=price)

    assert reason(priced(0, 1)) == "any price, or out of range"
    assert reason(priced(2**127, 3)) == "any price, or out of range"  # a bid of 1.8e-38 lovelace
    assert reason(priced(2, 2**127)) == "any price, or out of range"
    assert reason(priced(5, 0)) == "unknown datum"
    assert reason(priced(-5, 1)) == "unknown datum"
    assert reason(priced(5, -1)) == "unknown datum"
    assert reason(priced(2**128, 1)) == "unknown datum"


@pytest.mark.parametrize(("numerator", "denominator"), [(10**28, 1), (2**96 - 1, 1), (3, 2**96 * 3 - 3), (10**28, 2)])
@pytest.mark.parametrize("side", ["base", "quote"])
def test_a_price_within_the_range_of_a_book_is_an_order(numerator: int, denominator: int, side: str):
    """The bounds are those of `Order.from_offer`, which raises an error beyond them."""
    assets = (list(TOKEN), list(ADA)) if side == "base" else (list(ADA), list(TOKEN))
    for units, per in ((numerator, denominator), (numerator + 1, denominator), (denominator, numerator + 1)):
        match = order(SHADOWBOOK, offered=assets[0], asked=assets[1], price=[units, per], amount=10_000)
        orders, _ = read(match)
        pair = pair_of(BID)
        try:
            Order.from_offer(
                pair, offered=AssetId.parse(SNEK if side == "base" else "ADA"), amount=1, price=f"{units}/{per}"
            )
            assert orders or units == 1
        except ValueError:
            assert not orders


def test_a_splash_order_needs_the_lovelace_for_all_steps():
    """5 ADA, 0.5 ADA fee and 1.5 ADA deposit leave 1.6 ADA: two steps of 0.6 ADA."""
    assert events(order(SPLASH, **{"step output": 500}))
    assert reason(order(SPLASH, **{"step output": 333})) == "budget exhausted"
    exact = order(SPLASH)
    exact["value"]["coins"] = 7_600_000
    assert events(exact)
    exact["value"]["coins"] -= 1
    assert reason(exact) == "budget exhausted"
    sells = {"offered": Constructor(0, TOKEN), "asked": Constructor(0, ADA), "amount": 10_000}
    huge = sells | {"price": Constructor(0, (2**60, 1)), "step output": 2**64 - 1, "step cost": 1}
    for changed in ({"step cost": 0}, {"step output": 0}, {"amount": 4999}, huge):
        assert reason(order(SPLASH, **changed)) == "budget exhausted"


def test_a_splash_order_that_asks_ada_needs_no_deposit():
    match = sell(SPLASH, 10)
    match["value"]["coins"] = 1_100_000
    assert events(match)
    match["value"]["coins"] -= 1
    assert reason(match) == "budget exhausted"


@pytest.mark.decision(30)
def test_a_geniusyield_order_needs_its_own_nft():
    key = f"{NFT_POLICY}.{NFT.hex()}"
    for assets in ({}, {key: 2}, {key: 0}, {f"{NFT_POLICY}.{bytes(32).hex()}": 1}, {f"{'00' * 28}.{NFT.hex()}": 1}):
        match = order(GENIUSYIELD)
        match["value"]["assets"] = assets
        assert reason(match) == "no valid NFT"
    assert reason(order(GENIUSYIELD, **{"original amount": 4_999_999})) == "no valid NFT"


def test_the_policy_of_an_nft_belongs_to_its_script():
    """An NFT of one version does not prove an order of another version."""
    other = "a8d7ff5cf4c117270288372f9ac8e1ce5b758ae15a7851c41661a48c"
    assert reason(order(GENIUSYIELD) | {"address": datums.address(other)}) == "no valid NFT"


def test_a_geniusyield_order_has_a_start_and_an_end_in_milliseconds():
    moments = {"start": Constructor(0, (1000,)), "end": Constructor(0, (2**70,))}
    (found,) = read(order(GENIUSYIELD, **moments))[0].values()
    assert found[:2] == (1000, 2**70)


# Base and quote


def offer_between(first: datums.Asset, second: datums.Asset) -> dict[str, Any]:
    match = order(SHADOWBOOK, offered=list(first), asked=list(second), amount=10, price=[2, 3])
    match["value"]["assets"] |= {datums.asset_key(one): 10 for one in (first, second) if one[0]}
    return match


@given(asset_ids(), asset_ids())
def test_ada_is_the_quote_and_otherwise_the_ledger_order_decides(first: AssetId, second: AssetId):
    match = offer_between((first.policy_id, first.asset_name), (second.policy_id, second.asset_name))
    if first == second:
        assert reason(match) == "nothing offered"
        return
    (event,) = events(match)
    base, quote = sorted((first, second))
    if str(base) == "ADA":
        base, quote = quote, base
    assert (event["base"], event["quote"]) == (str(base), str(quote))
    assert event["offered"] == ("base" if first == base else "quote")


def test_only_listed_pairs_are_shown_with_their_own_base_and_quote():
    match = order(SHADOWBOOK)
    (event,) = events(match, pairs=[("ADA", SNEK)])
    assert event == BID | {"base": "ADA", "quote": SNEK, "offered": "base"}
    assert reason(match, pairs=[("ADA", BOBA)]) == "pair not listed"


# Hostile datums


@every_exchange
@given(st.data())
def test_the_form_of_the_encoding_does_not_matter(script: str, data: st.DataObject):
    """Lists of definite and indefinite length, and constructors by tag 102, have the same meaning."""

    def with_forms(part: Any) -> Any:
        match part:
            case Constructor(number, fields):
                return Constructor(number, tuple(map(with_forms, fields)), data.draw(st.booleans()))
            case list():
                return list(map(with_forms, part))
        return part

    amount, asks = data.draw(st.integers(1, 5_000_000)), data.draw(st.integers(2, 2**64 - 1))
    ratio = [asks, amount] if script == SHADOWBOOK else Constructor(0, (asks, amount))
    changed = {"amount": amount, "price": ratio} | ({"step output": asks} if script == SPLASH else {})
    fields = {name: with_forms(part) for name, part in FIELDS[script](**changed).items()}
    match = output(script, datum(fields, lambda: data.draw(st.booleans())))
    assert events(match) == [BID | {"amount": amount, "price": f"{asks}/{amount}"}]


@every_exchange
def test_an_address_can_have_any_stake_part(script: str):
    credential = Constructor(1, (KEY,))
    stakes = [
        Constructor(1),
        Constructor(0, (Constructor(0, (credential,)),)),
        Constructor(0, (Constructor(1, (2**64 - 1, 0, 0)),)),
    ]
    for stake in stakes:
        assert events(order(script, owner=Constructor(0, (credential, stake)))) == [BID]


DEEP = {
    "lists": b"\x81" * 6000 + b"\x00",
    "lists without a length": b"\x9f" * 6000 + b"\xff" * 6000,
    "constructors": b"\xd8\x79\x81" * 6000 + b"\x00",
    "constructors by tag 102": b"\xd8\x66\x82\x00" * 6000 + b"\x80",
    "tags": b"\xc2" * 6000 + b"\x40",
    "maps": b"\xa1\x00" * 6000 + b"\x00",
    "keys of maps": b"\xa1" * 6000 + b"\x00" * 6001,
    "unfinished lists": b"\x81" * 16_000,
}
ODD_ITEMS = """
a0 a10102 f4 f5 f6 f7 f93c00 fb3ff0000000000000 60 6161 c11a00000000 c0 c482010a c5820a01 c58219ffff01 d81e820100
d81c81d81d00 d82361 d866820000 d86681 d8668300 d8668200 d86682f580 d9010281 ff e0 1c 9bffffffffffffffff
5bffffffffffffffff 9a10000000 bb0000007fffffffff d879f6 d87901 d879a0 c249010000000000000000 5f4100ff
"""
"""Maps, floats, texts, dates, fractions, references, unfinished and other items that no layout has."""

WRONG: list[Any] = [
    0,
    -1,
    2**64,
    -(2**64) - 1,
    10**5000,
    -(10**5000),
    b"",
    bytes(27),
    bytes(29),
    bytes(200),
    [],
    [[]],
    [0, 0],
    [b"", b""],
    Constructor(0),
    Constructor(1),
    Constructor(6),
    Constructor(7, (1, 2)),
    Constructor(0, (b"", b"x")),
    Constructor(0, (b"x", b"")),
    Constructor(0, (bytes(28), bytes(33))),
    Constructor(0, (1, 0)),
    Constructor(0, (1, 2), general=True),
    Constructor(0, (2**200, 2**200)),
    *(Raw(octets) for octets in DEEP.values()),
    *(Raw(bytes.fromhex(text)) for text in ODD_ITEMS.split()),
]


@every_exchange
def test_a_field_with_any_other_value_stops_nothing(script: str):
    """Only values that are valid for the field make an order."""
    for name in FIELDS[script]():
        for wrong in WRONG:
            match = order(script, **{name: wrong})
            orders, skipped = read(match)
            assert len(orders) + sum(skipped.values()) == 1, (name, wrong)
            for *_, event in orders.values():
                assert_valid(event)


@every_exchange
def test_a_field_that_no_book_shows_must_be_valid_too(script: str):
    """The exchange ignores the order otherwise."""
    hidden = {"beacon", "owner", "owner key", "cancellation key", "executors", "NFT", "contained fee"}
    for name in hidden & FIELDS[script]().keys():
        for wrong in WRONG:
            if (name, wrong) != ("executors", []):  # anybody may execute it
                assert reason(order(script, **{name: wrong})) in {"unknown datum", "broken datum"}


def assert_valid(event: Any) -> None:
    """Assert that a feed accepts an event of an order, and that a book shows it."""
    pair = pair_of(event)
    offered = pair.base if event["offered"] == "base" else pair.quote
    placed = Order.from_offer(pair, offered=offered, amount=event["amount"], price=event["price"])
    assert 0 < event["amount"] < 2**64
    assert placed.level_price > 0


@every_exchange
@pytest.mark.parametrize("octets", DEEP.values(), ids=DEEP)
def test_a_datum_that_is_nested_6000_levels_deep_is_skipped(script: str, octets: bytes):
    assert reason(output(script, octets)) in {"broken datum", "unknown datum"}


@every_exchange
@pytest.mark.parametrize("count", [-1, 1])
def test_a_datum_must_have_exactly_its_fields(script: str, count: int):
    fields = list(FIELDS[script]().values())
    changed = fields[:count] if count < 0 else [*fields, 0]
    assert reason(output(script, datums.encoded(Constructor(0, tuple(changed))))) == "unknown datum"
    assert reason(output(script, datums.encoded(Constructor(1, tuple(fields))))) == "unknown datum"
    assert reason(output(script, datums.encoded(fields))) == "unknown datum"


@pytest.mark.parametrize("script", [SPLASH, SHADOWBOOK])
@pytest.mark.parametrize("kind", [b"", b"\x01", b"\x00\x09", 0, 9])
def test_a_datum_of_another_kind_is_skipped(script: str, kind: Any):
    assert reason(order(script, kind=kind)) == "unknown datum"


@every_exchange
def test_a_datum_of_another_exchange_is_skipped(script: str):
    others = [datum(FIELDS[other]()) for other in FIELDS if other != script]
    assert {reason(output(script, octets)) for octets in others} == {"unknown datum"}


def mutated(octets: bytes, chance: random.Random) -> bytes:
    """Return a datum with some bytes changed, removed, repeated or inserted."""
    changed = bytearray(octets)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) or 1)
        match chance.randrange(5):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << chance.randrange(8)
            case 1:
                changed[at:at] = chance.randbytes(chance.randint(1, 9))
            case 2:
                del changed[at : at + chance.randint(1, 9)]
            case 3:
                end = at + chance.randint(1, 40)
                changed[at:at] = changed[at:end]
            case _ if changed:
                changed[at % len(changed)] = chance.choice(
                    b"\x00\x40\x5f\x80\x9f\xff\xc2\xc3\xd8\xf5\x1b\x3b\x5b\x9b\xbb\xa0"
                )
    return bytes(changed)


def fields_of(octets: bytes) -> list[Any]:
    """Return the fields of a datum by an independent reader. Raises an error if it is not Plutus data."""
    part, _ = parsed(octets, 0)
    assert isinstance(part, Constructor)
    assert part.number == 0
    return list(part.fields)


def parsed(octets: bytes, at: int) -> tuple[Any, int]:
    """Return the item at a position, and the position after it."""
    major, code = octets[at] >> 5, octets[at] & 31
    size = {24: 1, 25: 2, 26: 4, 27: 8}.get(code, 0)
    assert code < 28 or (code == 31 and major in (2, 4))
    number = int.from_bytes(octets[at + 1 : at + 1 + size]) if size else code
    assert len(octets) > at + size
    at += 1 + size
    if major == 6:
        part, after = parsed(octets, at)
        if number in (2, 3):
            assert isinstance(part, bytes)
            value = int.from_bytes(part)
            return (value if number == 2 else -1 - value), after
        if number == 102:
            assert isinstance(part, list)
            constructor, fields = part
            return Constructor(constructor, tuple(fields)), after
        assert isinstance(part, list)
        return Constructor({121: 0, 122: 1}[number], tuple(part)), after
    if major == 4 or code == 31:
        items: list[Any] = []
        while (octets[at] != 0xFF) if code == 31 else len(items) < number:
            item, at = parsed(octets, at)
            items.append(item)
        at += code == 31
        return (b"".join(items) if major == 2 else items), at
    if major == 2:
        assert at + number <= len(octets)
        return octets[at : at + number], at + number
    assert major in (0, 1)
    return (number if major == 0 else -1 - number), at


def assert_read_rightly(script: str, octets: bytes) -> bool:
    """Assert that a datum is skipped, or that its order has the numbers that an independent reader finds."""
    orders, skipped = read(output(script, octets))
    assert len(orders) + sum(skipped.values()) == 1
    for *_, event in orders.values():
        assert_valid(event)
        fields = dict(zip(FIELDS[script](), fields_of(octets), strict=True))
        price, offered, asked = (
            list(fields[name].fields) if script != SHADOWBOOK else fields[name]
            for name in ("price", "offered", "asked")
        )
        assert (event["amount"], event["price"]) == (fields["amount"], f"{price[0]}/{price[1]}")
        names = ["ADA" if one == list(ADA) else f"{one[0].hex()}:{one[1].hex()}" for one in (offered, asked)]
        assert names == [
            event[side] for side in (("base", "quote") if event["offered"] == "base" else ("quote", "base"))
        ]
        assert len(fields["cancellation key" if script != GENIUSYIELD else "owner key"]) == 28
    return bool(orders)


def mutations(count: int) -> dict[str, int]:
    """Read mutated datums, and return how many of them are orders."""
    chance = random.Random(29)
    originals = [
        (script, datum(fields(), partial(bool, form))) for script, fields in FIELDS.items() for form in (False, True)
    ]
    found = {"orders": 0, "skipped": 0}
    for _ in range(count):
        script, octets = chance.choice(originals)
        found["orders" if assert_read_rightly(script, mutated(octets, chance)) else "skipped"] += 1
    return found


def test_a_mutated_datum_is_skipped_or_read_rightly():
    found = mutations(2000)
    assert min(found.values()) > 100


@pytest.mark.thorough
def test_100_000_mutated_datums_are_skipped_or_read_rightly():
    found = mutations(100_000)
    assert min(found.values()) > 5000


# What Kupo must not return


@pytest.mark.parametrize(
    "response",
    [
        {},
        {"hint": "an error"},
        None,
        1,
        "[]",
        [1],
        [None],
        [{}],
        [{"transaction_id": "ab", "output_index": 0}],
        [order(SPLASH) | {"output_index": True}],
        [order(SPLASH) | {"transaction_id": "A" * 64}],
        [order(SPLASH) | {"address": None}],
        [order(SPLASH) | {"value": None}],
        [order(SPLASH) | {"value": {"coins": 1.5, "assets": {}}}],
        [order(SPLASH) | {"datum": 5}],
        [order(SPLASH) | {"datum": "x"}],
    ],
)
def test_a_response_that_is_not_a_list_of_matches_is_a_failure(response: Any):
    """It is not an empty state."""
    with pytest.raises((AttributeError, LookupError, TypeError, ValueError)):
        kupo_to_orders.state_of([response], {})


def test_an_output_in_two_responses_is_shown_once():
    """An output can match two patterns."""
    orders, skipped = kupo_to_orders.state_of([[order(SPLASH)], [order(SPLASH), order(SPLASH)]], {})
    assert (len(orders), skipped) == (1, {})


# The texts of blocks


def test_the_texts_of_old_blocks_are_forgotten(capsys: pytest.CaptureFixture[str]):
    """A program that runs for years must not grow. A feed retains 2,160 blocks unless it is given another number."""
    writer = kupo_to_orders.Events({})
    texts = ["first", *(f"slot {slot}" for slot in range(10_000)), "first", "first"]
    for text in texts:
        writer.write(({}, Counter()), text, NOW, is_new=True)
    assert capsys.readouterr().out.splitlines()[-2:] == ['{"block": "first"}', '{"block": "first (2)"}']
