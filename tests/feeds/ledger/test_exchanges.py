"""The orders of recorded outputs of five exchanges, and what a stranger can put on the ledger."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest
from cbor2 import CBORTag
from hypothesis import given, settings
from hypothesis import strategies as st

from market_index import ADA as ADA_ID
from market_index import AssetId, Order, Pair
from market_index.strategies import asset_ids
from market_index_feeds.ledger.datum import Skipped, constructor
from market_index_feeds.ledger.datum import read as read_part
from market_index_feeds.ledger.exchange import Exchange, Fill, Offer
from market_index_feeds.ledger.exchanges import EXCHANGES
from market_index_feeds.ledger.exchanges.shadowbook import SHADOWBOOK as LAYOUT
from market_index_feeds.ledger.exchanges.shadowbook import offers as shadowbook_offers
from market_index_feeds.ledger.exchanges.splash import EXECUTORS, splash
from market_index_feeds.ledger.market import Market, Selection, State
from market_index_feeds.ledger.outputs import output_of
from market_index_feeds.venue_orders import Fee, VenueOrder
from tests.conftest import RECORDED as FILES
from tests.feeds.ledger import datums
from tests.feeds.ledger.datums import (
    ADA,
    FIELDS,
    GENIUSYIELD,
    KEY,
    NFT,
    NFT_POLICY,
    SATURNSWAP,
    SHADOWBOOK,
    SPLASH,
    TOKEN,
    Constructor,
    Raw,
    datum,
    id_of,
    output,
)

SNEK = f"{TOKEN[0].hex()}:{TOKEN[1].hex()}"
NOW = datetime.fromtimestamp(1_800_000_000, UTC)
"""The moment for which the expected values of the newer files were worked out."""

BID = (SNEK, "ADA", "bid", Fraction(5000), 1000)
"""The order of each output of `datums`: 5 ADA for 1,000 SNEK."""

NAMES = {script: fields.__name__ for script, fields in FIELDS.items()}
every_exchange = pytest.mark.parametrize("script", NAMES, ids=NAMES.get)
with_amount_and_price = pytest.mark.parametrize("script", [SPLASH, SHADOWBOOK, GENIUSYIELD], ids=NAMES.get)
"""The exchanges whose datums contain what is offered, and at which price."""


def market_of(*matches: Any, slot: int = 10**9, pairs: Any = (), **options: Any) -> Market:
    """Return a market of their network with the matches of one response; with pairs, only these."""
    network = "preprod" if any(str(one["address"]).startswith("addr_test") for one in matches) else "mainnet"
    market = Market(Selection(pairs=pairs, only=bool(pairs), network=network, **options))
    market.read(map(output_of, matches), slot, since=-1)
    return market


def state_of(*matches: Any, **options: Any) -> State:
    """Return what they show, however small executions are."""
    return market_of(*matches, **{"least_execution": 0} | options).at(NOW)


def read(*matches: Any, pairs: Any = ()) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the orders of a response by id, and the number of skipped outputs by reason."""
    state = state_of(*matches, pairs=pairs)
    reasons = [one.reason for one in state.skipped.values()]
    assert not any(" in a function of " in one for one in reasons), "a function of an exchange has failed"
    return {key: one.order for key, one in state.orders.items()}, dict(Counter(reasons))


def shown(order: Order) -> tuple[str, str, str, Fraction, int]:
    return str(order.pair.base), str(order.pair.quote), order.side.value, Fraction(order.price), order.amount


def orders_of(*matches: Any, pairs: Any = ()) -> list[Any]:
    """Return the orders, of which none is skipped."""
    orders, skipped = read(*matches, pairs=pairs)
    assert not skipped
    return [shown(one) for one in orders.values()]


def reason(match: Any, pairs: Any = ()) -> str:
    """Return why an output is skipped."""
    orders, skipped = read(match, pairs=pairs)
    assert not orders
    (only,) = skipped
    return only


def order(script: str, **changed: Any) -> dict[str, Any]:
    return output(script, datum(FIELDS[script](**changed)))


def nested(script: str, *fields: Any) -> Any:
    """Return an asset or a price in the form that the datum of an exchange has."""
    return list(fields) if script == SHADOWBOOK else Constructor(0, fields)


def sell(script: str, amount: int) -> dict[str, Any]:
    """Return an order that offers SNEK for 5 lovelace each."""
    parts = {"offered": TOKEN, "asked": ADA, "price": (5, 1)}
    changed = {name: nested(script, *part) for name, part in parts.items()}
    steps = {"step output": 5 * amount} if script == SPLASH else {}
    return order(script, amount=amount, **changed, **steps)


# Recorded outputs

BOBA = "abb15dbbcc5c7c80cebea450f4f2131ec1f5b27ca38b66418e4c9a51:424f4241"
CHAD = "97075bf380e65f3c63fb733267adbb7d42eec574428a754d2abca55b:436861726c6573207468652043686164"
GPOSNEK = "fb4f75d1ad4eb5c21efd5a32a90c076e63a79daccf25afe4ccd4f714:24504f50534e454b"
SPLASH_TOKEN = "ececc92aeaaac1f5b665f567b01baec8bc2771804b4c21716a87a4e3:53504c415348"
NIGHT = "0691b2fecca1ac4f53cb6dfb00b7013e561d1f34403b957cbb5af1fa:4e49474854"
TGENS = "c6e65ba7878b2f8ea0ad39287d3e2fd256dc5c4160fc19bdf4c4d87e:7447454e53"
GENS = "dda5fdb1002f7389b33e036b6afee82a8189becb6cba852e8b79b4fb:0014df1047454e53"
IAG = "5d16cc1a177b5d9ba9cfa9793b07e60f1fb70fea1f8aef064415d114:494147"
MADE_UP = "e" * 56

ORDERS: dict[str, list[tuple[str, str, int, str]]] = {
    "geniusyield-fill-1-placed": [(GENS, "base", 7_555_427_522, "557629977282288757/1801439850948198400")],
    "geniusyield-fill-2-filled": [(GENS, "base", 7_552_196_993, "557629977282288757/1801439850948198400")],
    "geniusyield-placed": [(TGENS, "quote", 100_000_000, "1/1")],
    "shadowbook-docs-market": [],
    "shadowbook-synthetic-limit": [
        (NIGHT, "base", 250_000_000, "62500001/250000000"),
        (NIGHT, "quote", 50_000_000, "209790827/50000000"),
    ],
    "shadowbook-synthetic-market": [],
    "splash-cancel-1-placed": [(IAG, "base", 1_000_000_000, "2601048090477303/10000000000000000")],
    "splash-cancel-2-cancelled": [],
    "splash-chain-1-placed": [(BOBA, "quote", 5_000_000, "3889466/1000000000")],
    "splash-chain-2-filled": [],
    "splash-chain-3-placed": [(BOBA, "base", 3_888_762, "12628853347157785/10000000000000000")],
    "splash-chain-4-filled": [],
    "splash-chain-with-spent": [],
    "splash-half-filled": [(CHAD, "quote", 318_992_042, "152648/2832390295")],
    "splash-sdk": [
        (GPOSNEK, "base", 998_457, "1000/1"),
        (SPLASH_TOKEN, "quote", 1_000_000, "1/1"),
    ],
    "synthetic-broken-cbor": [],
    "synthetic-missing-datum": [],
    "synthetic-unknown-datum": [],
}
"""The orders of the older files: base, what is offered of base and quote, how much, and asked per offered."""

SKIPPED = {
    "shadowbook-docs-market": {"market order": 1},
    "shadowbook-synthetic-market": {"market order": 1},
    "synthetic-broken-cbor": {"broken datum": 1},
    "synthetic-missing-datum": {"missing datum": 2},
    "synthetic-unknown-datum": {"unknown datum": 1},
}

EXPECTED = json.loads((FILES / "ledger/expected-saturnswap-cardanoswaps.json").read_text())["files"]
"""What an independent decoder found in the newer files, at `NOW`."""


def recorded(name: str) -> list[Any]:
    matches: list[Any] = json.loads((FILES / f"ledger/{name}.json").read_text())
    return matches


@pytest.mark.decision(30)
@pytest.mark.parametrize("name", ORDERS)
def test_a_recorded_response_of_the_older_exchanges_has_these_orders(name: str):
    orders, skipped = read(*recorded(name))
    expected = []
    for base, offered, amount, price in ORDERS[name]:
        pair = Pair(AssetId.parse(base), ADA_ID)
        expected.append(Order.from_offer(pair, offered=getattr(pair, offered), amount=amount, price=price))
    assert list(orders.values()) == expected
    assert skipped == SKIPPED.get(name, {})


def expected_of(of_output: Mapping[str, Any]) -> list[Any]:
    """Return the orders of an output, or why they are skipped, as the independent decoder says."""
    if "skipped" in of_output:
        return [] if of_output["skipped"] == "spent" else [of_output["skipped"]]
    return [
        one["skipped"]
        if "skipped" in one
        else (one["base"], one["quote"], one["side"], Fraction(one["price"]), one["level_amount"])
        for one in of_output["orders"]
    ]


@pytest.mark.decision(30)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_recorded_response_of_the_newer_exchanges_has_these_orders(name: str):
    state = state_of(*recorded(name.removesuffix(".json")))
    for output_id, of_output in EXPECTED[name]["outputs"].items():
        expected = expected_of(of_output)
        ids = [output_id] if len(expected) < 2 else [f"{output_id}/1", f"{output_id}/2"]
        reasons = {key: one.reason for key, one in state.skipped.items()}
        found = [shown(state.orders[key].order) if key in state.orders else reasons.get(key) for key in ids]
        # Without a token of its policy, an output is no matter of an exchange.
        assert found == (expected or [None]) or (found, expected) == ([None], ["no valid beacons"])
        for key in ids:
            assert key not in state.orders or state.orders[key].venue == of_output["exchange"]


@pytest.mark.decision(32)
@pytest.mark.parametrize("name", [name for name, of_file in EXPECTED.items() if "executions" in of_file])
def test_the_executions_that_a_recorded_response_proves(name: str):
    """Each spent output by itself, with what the spending transaction created."""
    matches = recorded(name.removesuffix(".json"))
    expected = {one["order"]: one for one in EXPECTED[name]["executions"] if one["kind"] == "execution"}
    for match in [one for one in matches if one["spent_at"] is not None]:
        by = match["spent_at"].get("transaction_id")
        created = [one | {"spent_at": None} for one in matches if one["transaction_id"] == by]
        spots = state_of(match, *created, slot=900_004_000).spots
        if (one := expected.pop(id_of(match), None)) is None:
            assert set(spots.values()) <= {None}
        else:
            spot = spots[Pair(AssetId.parse(one["base"]), AssetId.parse(one["quote"]))]
            assert spot is not None
            assert abs(Fraction(spot) - Fraction(one["price"])) <= Fraction(1, 2 * 10**28), "the nearest price"
    assert not expected


@pytest.mark.decision(32)
def test_a_partial_fill_of_geniusyield_has_a_spot_and_complete_ones_of_splash_have_none():
    """The price is what the datums say that was paid: the ceiling of price times amount, not the limit."""
    (pair,) = (spots := state_of(*recorded("geniusyield-fill-2-filled"), slot=900_010_000).spots)
    assert spots[pair] is not None
    assert set(state_of(*recorded("splash-chain-with-spent"), slot=900_010_000).spots.values()) == {None}


# Executions

FILLER = "f" * 64


def spent(match: dict[str, Any], redeemer: str | None, *, index: int = 0) -> dict[str, Any]:
    """Return an output that the transaction `FILLER` spent."""
    how = {"slot_no": 120, "transaction_id": FILLER, "input_index": index, "redeemer": redeemer}
    return match | {"spent_at": how}


def successor(match: dict[str, Any], *, index: int = 0) -> dict[str, Any]:
    """Return an output that the transaction `FILLER` created."""
    return match | {"transaction_id": FILLER, "output_index": index, "created_at": {"slot_no": 120}}


def spot_after(*matches: dict[str, Any]) -> Any:
    """Return the spot price of the only pair."""
    (spot,) = state_of(*matches, slot=120).spots.values()
    return spot


def splash_of(coins: int, tokens: int, **fields: Any) -> dict[str, Any]:
    """Return an order of Splash: lovelace for 1 SNEK per 1,000, in one step that costs 600,000."""
    fields = {"price": Constructor(0, (1, 1000)), "step output": 100_000, "step cost": 600_000} | fields
    return order(SPLASH, **fields) | {"value": {"coins": coins, "assets": {datums.asset_key(TOKEN): tokens}}}


PLACED = splash_of(102_600_000, 0, amount=100_000_000, fee=500_000)
LEFT = splash_of(31_650_000, 70_000, amount=30_000_000, fee=150_000)


@pytest.mark.decision(32)
def test_a_partial_fill_of_splash_has_the_price_of_what_was_paid():
    """70,000,000 lovelace for 70,000 units. The successor cannot pay another step, so it is no order any more."""
    assert spot_after(spent(PLACED, "d87a80"), successor(LEFT)) == 1000
    assert reason(LEFT) == "budget exhausted"


@pytest.mark.decision(32)
@pytest.mark.parametrize(
    "after",
    [
        [successor(LEFT, index=1)],
        [successor(LEFT | {"address": datums.address(SPLASH, stake=bytes(28))})],
        [successor(splash_of(31_650_000, 70_000, amount=30_000_000, fee=150_000, **{"step cost": 1}))],
        [successor(splash_of(31_650_000, 0, amount=30_000_000, fee=150_000))],
        [successor(splash_of(102_600_000, 1, amount=100_000_000, fee=500_000))],
        [successor(splash_of(32_600_001, 70_000, amount=30_000_000, fee=150_000))],
        [],
    ],
    ids=[
        *("at another position", "of another owner", "of another order", "received nothing", "gave nothing"),
        *("gave less than its datum says", "missing"),
    ],
)
def test_a_copied_datum_of_splash_makes_no_price(after: list[dict[str, Any]]):
    """Anybody can create such an output beside a fill, or beside a cancellation."""
    assert spot_after(spent(PLACED, "d87a80"), *after) is None
    assert spot_after(spent(PLACED, "d87980"), successor(LEFT)) is None


@pytest.mark.decision(32)
def test_the_payment_of_saturnswap_must_be_that_of_the_datums():
    """Its contract accepts any first field that is not less: a lower bound, which is no price."""

    def redeemer(*fields: Any) -> str:
        return datums.encoded(Constructor(0, fields)).hex()

    placed = order(SATURNSWAP)
    named = Constructor(0, (bytes.fromhex(placed["transaction_id"]), 0))
    left = order(SATURNSWAP, amount=3_000_000, previous=named, **{"asked amount": 600})
    assert spot_after(spent(placed, redeemer(400)), successor(left)) == 5000
    assert spot_after(spent(placed, redeemer(1000))) == 5000
    for wrong in redeemer(399), redeemer(401), redeemer(), redeemer(b"\x01"), redeemer(1000), "d87980", "ff", None:
        assert spot_after(spent(placed, wrong), successor(left)) is None
    for wrong in redeemer(999), redeemer(1001), None:
        assert spot_after(spent(placed, wrong)) is None
    twice = successor(left), successor(left, index=1)
    assert spot_after(spent(placed, redeemer(400)), *twice) is None, "one of them is a decoy"


# Which outputs are orders


@with_amount_and_price
@pytest.mark.parametrize("stake", [None, bytes(28), KEY])
def test_an_offer_is_an_order(script: str, stake: bytes | None):
    """The stake part of the address belongs to the owner, and Kupo may return quantities as texts."""
    match = order(script) | {"address": datums.address(script, stake=stake)}
    assert orders_of(match) == [BID]
    value = match["value"]
    texts = {key: str(quantity) for key, quantity in value["assets"].items()}
    assert orders_of(match | {"value": {"coins": str(value["coins"]), "assets": texts}}) == [BID]


@every_exchange
def test_an_address_of_another_credential_has_no_orders(script: str):
    byron = "DdzFFzCqrhsrcTVhLygT24QwTnNqQqQ8mZrq5jykUzMveU26sxaH529kMpo7VhPrt5pwW3dXeB2k3EEvKcNBRmzCfcQ7dTkyGzTs658C"
    reward = "stake1u9f9v0z5zzlldgx58n8tklphu8mf7h4jvp2j2gddluemnssjfnkzz"
    others = [datums.address(script, key=True), datums.address("00" * 28), byron, reward]
    texts = [*others, "addr1", "addr1qqqqqqqqqqqqqqqqqqqqqqqqqqqqq", "", "1" * 500, "é"]
    assert all(read(order(script) | {"address": text}) == ({}, {}) for text in texts)


@every_exchange
def test_an_output_must_be_unspent_with_its_whole_datum(script: str):
    match = order(script)
    assert read(match | {"spent_at": {"slot_no": 5}}) == ({}, {})
    assert reason(match | {"datum": None}) == "missing datum"
    assert reason({key: value for key, value in match.items() if key != "datum"}) == "missing datum"
    assert reason(match | {"datum": match["datum"][:-2]}) == "broken datum"
    assert reason(match | {"datum_hash": None}) == "broken datum"


@pytest.mark.decision(30)
@with_amount_and_price
def test_an_output_must_hold_what_it_offers(script: str):
    match = order(script, amount=4_000_000)
    assert orders_of(match)
    match["value"]["coins"] = 3_999_999
    # A rule of the exchange comes first.
    rules = {SPLASH: "budget exhausted", SHADOWBOOK: "carries too little lovelace"}
    assert reason(match) == rules.get(script, "holds less than it offers")
    assert orders_of(sell(script, 10_000)) == [(SNEK, "ADA", "ask", 5, 10_000)]
    assert reason(sell(script, 10_001)) == "holds less than it offers"


def test_a_token_with_an_empty_name_is_its_policy_alone():
    match = order(SHADOWBOOK, offered=[TOKEN[0], b""], asked=list(ADA), amount=7, price=[3, 1])
    assert reason(match) == "holds less than it offers"
    match["value"]["assets"][TOKEN[0].hex()] = 7
    assert [base for base, *_ in orders_of(match)] == [f"{TOKEN[0].hex()}:"]


# The rules of the exchanges


@pytest.mark.decision(30)
@pytest.mark.parametrize("changed", [{"beacon": b"\x01" + bytes(19)}, {"price": [1, 5_000_000]}])
def test_a_market_order_of_shadowbook_is_skipped(changed: dict[str, Any]):
    assert reason(order(SHADOWBOOK, **changed)) == "market order"


@pytest.mark.decision(30)
@with_amount_and_price
def test_a_price_that_no_book_shows_is_skipped(script: str):
    for price in (0, 1), (2**127, 3), (2, 2**127):  # the second one is a bid of 1.8e-38 lovelace
        expected = {"any price, or out of range"} | ({"budget exhausted"} if script == SPLASH else set())
        assert reason(order(script, price=nested(script, *price))) in expected
    for price in (5, 0), (-5, 1), (5, -1), (2**128, 1):
        assert reason(order(script, price=nested(script, *price))) == "unknown datum"


def test_a_splash_order_needs_the_lovelace_for_all_steps():
    """5 ADA, 0.5 ADA fee and 1.5 ADA deposit leave 1.6 ADA: two steps of 0.6 ADA."""
    assert orders_of(order(SPLASH, **{"step output": 500}))
    assert reason(order(SPLASH, **{"step output": 333})) == "budget exhausted"
    # An order that asks ADA needs no deposit.
    for exact, coins in ((order(SPLASH), 7_600_000), (sell(SPLASH, 10), 1_100_000)):
        exact["value"]["coins"] = coins
        assert orders_of(exact)
        exact["value"]["coins"] -= 1
        assert reason(exact) == "budget exhausted"
    sells = {"offered": Constructor(0, TOKEN), "asked": Constructor(0, ADA), "amount": 10_000}
    huge = sells | {"price": Constructor(0, (2**60, 1)), "step output": 2**64 - 1}
    for changed in ({"step output": 0}, {"amount": 4999}, huge):
        assert reason(order(SPLASH, **changed)) == "budget exhausted"


@pytest.mark.decision(30)
def test_a_geniusyield_order_needs_its_own_nft():
    """An NFT of one version of the contract does not prove an order of another version."""
    key = f"{NFT_POLICY}.{NFT.hex()}"
    match = order(GENIUSYIELD)
    for assets in ({}, {f"{'00' * 28}.{NFT.hex()}": 1}):
        assert read(match | {"value": match["value"] | {"assets": assets}}) == ({}, {}), "it is not indexed"
    for assets in ({key: 2}, {key: 0}, {f"{NFT_POLICY}.{bytes(32).hex()}": 1}):
        assert reason(match | {"value": match["value"] | {"assets": assets}}) == "no valid NFT"
    assert reason(order(GENIUSYIELD, **{"original amount": 4_999_999})) == "no valid NFT"
    other_version = "a8d7ff5cf4c117270288372f9ac8e1ce5b758ae15a7851c41661a48c"
    assert read(match | {"address": datums.address(other_version)}) == ({}, {})


@pytest.mark.decision(30)
def test_an_order_is_shown_from_its_start_to_its_end():
    block = Market(Selection()).time_of(100).timestamp()
    start, end = (Constructor(0, (int(1000 * block) + later,)) for later in (1000, 2500))
    outputs = market_of(order(GENIUSYIELD, start=start, end=end), hours=1)
    for seconds, reason in (0.999, "not active yet"), (1, ""), (2.5, ""), (2.501, "expired"), (3603, "expired"):
        state = outputs.at(datetime.fromtimestamp(block + seconds, UTC))
        assert [one.reason for one in state.skipped.values()] == [reason] * bool(reason)
        assert bool(state.orders) is not bool(reason)
        assert bool(state.spots) is (1 <= seconds <= 3602.5), "the pair had an order in the window"


def test_a_moment_beyond_the_year_9999_is_its_end():
    moments = {"start": Constructor(0, (-(10**40),)), "end": Constructor(0, (10**40,))}
    assert orders_of(order(GENIUSYIELD, **moments)) == [BID]
    assert reason(order(GENIUSYIELD, start=Constructor(0, (10**40,)))) == "not active yet"
    assert reason(order(GENIUSYIELD, end=Constructor(0, (-(10**40),)))) == "expired"


# Base and quote


@given(asset_ids(), asset_ids())
def test_ada_is_the_quote_and_otherwise_the_ledger_order_decides(first: AssetId, second: AssetId):
    parts = [(one.policy_id, one.asset_name) for one in (first, second)]
    match = order(SHADOWBOOK, offered=list(parts[0]), asked=list(parts[1]), amount=10, price=[2, 3])
    match["value"]["assets"] |= {datums.asset_key(one): 10 for one in parts if one[0]}
    if first == second:
        assert reason(match) == "nothing offered"
        return
    ((*names, side, _, _),) = orders_of(match)
    base, quote = sorted((first, second))
    if str(base) == "ADA":
        base, quote = quote, base
    assert names == [str(base), str(quote)]
    assert side == ("ask" if first == base else "bid")


def test_only_listed_pairs_are_shown_with_their_own_base_and_quote():
    match = order(SHADOWBOOK)
    snek, boba = AssetId.parse(SNEK), AssetId.parse(BOBA)
    assert orders_of(match, pairs=[Pair(ADA_ID, snek)]) == [("ADA", SNEK, "ask", Fraction(1, 5000), 5_000_000)]
    assert reason(match, pairs=[Pair(ADA_ID, boba)]) == "pair not listed"
    assert list(state_of(match, pairs=[Pair(ADA_ID, boba)]).spots) == [Pair(ADA_ID, boba)], "it is always listed"


# Hostile datums


@with_amount_and_price
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
    changed = {"amount": amount, "price": nested(script, asks, amount)}
    changed |= {"step output": asks} if script == SPLASH else {}
    fields = {name: with_forms(part) for name, part in FIELDS[script](**changed).items()}
    match = output(script, datum(fields, lambda: data.draw(st.booleans())))
    pair = Pair(AssetId.parse(SNEK), ADA_ID)
    assert orders_of(match) == [shown(Order.from_offer(pair, offered=ADA_ID, amount=amount, price=f"{asks}/{amount}"))]


@with_amount_and_price
def test_an_address_can_have_any_stake_part(script: str):
    credential = Constructor(1, (KEY,))
    by_credential = Constructor(0, (Constructor(0, (credential,)),))
    by_pointer = Constructor(0, (Constructor(1, (2**64 - 1, 0, 0)),))
    for stake in Constructor(1), by_credential, by_pointer:
        assert orders_of(order(script, owner=Constructor(0, (credential, stake)))) == [BID]


DEEP = tuple(
    start * 6000 + end
    for start, end in (
        (b"\x81", b"\x00"),
        (b"\x9f", b"\xff" * 6000),  # lists without a length
        (b"\xd8\x79\x81", b"\x00"),  # constructors
        (b"\xd8\x66\x82\x00", b"\x80"),  # constructors by tag 102
        (b"\xa1", b"\x00" * 6001),  # keys of maps
    )
)
"""Datums that are nested 6,000 levels deep."""

ODD_ITEMS = """
a0 a10102 f5 f6 f7 fb3ff0000000000000 6161 c11a00000000 c482010a c5820a01 d81e820100 d81c81d81d00 d866820000 d86681
d9010281 ff e0 1c 9bffffffffffffffff 5bffffffffffffffff bb0000007fffffffff d879f6 c249010000000000000000 5f4102ff
"""
"""Maps, floats, texts, dates, fractions, references, unfinished and other items that no layout has."""

WRONG: list[Any] = [
    *(0, -1, 2**64, -(2**64) - 1, 10**5000),
    *(b"", b"\x01", bytes(27), bytes(29), bytes(200)),
    *([], [[]], [0, 0], [b"", b""]),
    *(Constructor(0), Constructor(1), Constructor(7, (1, 2)), Constructor(0, (1, 2), general=True)),
    *(Constructor(0, (b"", b"x")), Constructor(0, (bytes(28), bytes(33)))),
    *(Constructor(0, (1, 0)), Constructor(0, (2**200, 2**200))),
    *map(Raw, DEEP),
    *(Raw(bytes.fromhex(text)) for text in ODD_ITEMS.split()),
]
HIDDEN = {
    "beacon policy",
    "pair beacon",
    "offered beacon",
    "asked beacon",
    "kind",
    "beacon",
    "owner",
    "owner key",
    "cancellation key",
    "executors",
    "NFT",
    "contained fee",
}
"""The fields that no book shows. They must be valid too, because the exchange ignores the order otherwise."""


@every_exchange
def test_a_field_with_any_other_value_stops_nothing(script: str):
    """Only values that are valid for the field make an order."""
    for name in FIELDS[script]():
        for wrong in WRONG:
            orders, skipped = read(order(script, **{name: wrong}))
            assert len(orders) + sum(skipped.values()) == 1, (name, wrong)
            if name in HIDDEN and (name, wrong) != ("executors", []):  # anybody may execute it
                assert skipped.keys() <= {"unknown datum", "broken datum"}
                assert not orders


@every_exchange
def test_a_datum_must_have_exactly_the_layout_of_its_exchange(script: str):
    fields = tuple(FIELDS[script]().values())
    others = [datums.encoded(Constructor(0, changed)) for changed in (fields[:-1], (*fields, 0))]
    others += [datums.encoded(Constructor(1, fields)), datums.encoded(list(fields))]
    others += [datum(FIELDS[other]()) for other in FIELDS if other != script]
    assert {reason(output(script, octets)) for octets in others} == {"unknown datum"}
    assert {reason(output(script, octets)) for octets in DEEP} <= {"broken datum", "unknown datum"}


def test_a_datum_that_is_not_hex_is_broken():
    assert reason(order(SPLASH) | {"datum": "x"}) == "broken datum"


# An exchange of the user


def test_an_exchange_must_have_the_hash_of_a_script_and_of_a_policy():
    for script, policy in ("11" * 27, ""), ("AB" * 28, ""), ("11" * 28, "22"):
        with pytest.raises(ValueError, match="must match regex"):
            Exchange("Mine", script, None, shadowbook_offers, policy=policy)


@pytest.mark.parametrize(
    ("price", "error"),
    [
        (lambda read: read["policyy"], "KeyError"),
        (lambda _: (5.0, 1), "InvalidPrice"),
        (lambda _: (1, 2, 3), "ValueError"),
    ],
)
def test_a_defect_of_an_exchange_skips_the_output_and_names_the_exchange(price: Any, error: str):
    """Other exchanges are read: anyone can pay the output that makes a function fail."""

    def offers(read: Any, _: object) -> Any:
        yield Offer(ADA_ID, read["amount"], AssetId(*TOKEN), price(read))

    mine = Exchange("Mine", "11" * 28, LAYOUT, offers)
    broken = output(mine.script, datum(FIELDS[SHADOWBOOK]()), 2)
    state = state_of(order(SPLASH), broken, exchanges=[mine])
    assert len(state.orders) == 1
    assert {key: one.reason for key, one in state.skipped.items()} == {
        f"{broken['transaction_id']}#0": f"{error} in a function of Mine"
    }


@pytest.mark.parametrize(
    "fill",
    [
        lambda spent, *_: spent.datum["amountt"],
        lambda *_: "a fill",
        lambda *_: Fill,
        lambda *_: 5,
        lambda *_: Fill((1, 2), (ADA_ID, 1)),  # type: ignore[arg-type]  # what a user may pass
        lambda *_: Fill((ADA_ID, 5), (ADA_ID, 5)),
        lambda *_: Fill((ADA_ID, 0), (AssetId(*TOKEN), 5)),
        lambda *_: Fill((ADA_ID, 5), (AssetId(*TOKEN), 0)),
        lambda *_: Fill((ADA_ID, 10**15), (AssetId(*TOKEN), 5)),
    ],
)
def test_a_fill_of_the_user_that_is_none_proves_no_execution(fill: Any, caplog: pytest.LogCaptureFixture):
    """Such as one of an asset for itself, or of more than the output held. An exception is logged."""
    mine = Exchange("Mine", "11" * 28, LAYOUT, shadowbook_offers, fill)
    match = spent(output(mine.script, datum(FIELDS[SHADOWBOOK]())), None)
    assert list(state_of(match, exchanges=[mine], slot=120).spots.values()) == [None]
    assert set(caplog.messages) <= {f"the fill of Mine failed at output {1:064x}#0: no execution"}


# What Kupo must not return


@pytest.mark.parametrize(
    "response",
    [
        *([1], [None], [{}], [{"transaction_id": "ab", "output_index": 0}]),
        [order(SPLASH) | {"output_index": True}],
        [order(SPLASH) | {"transaction_id": "A" * 64}],
        [order(SPLASH) | {"address": None}],
        [order(SPLASH) | {"value": {"coins": 1.5, "assets": {}}}],
    ],
)
def test_a_match_that_is_not_one_of_kupo_is_a_failure(response: Any):
    """It is not an empty state, and changes nothing."""
    outputs = market_of(order(SPLASH))
    with pytest.raises((AttributeError, LookupError, TypeError, ValueError)):
        outputs.read(map(output_of, response), 100, since=-1)
    assert list(outputs.at(NOW).orders)


def test_an_output_in_two_responses_is_shown_once_and_a_copy_of_its_datum_as_another_order():
    """An output can match two patterns; anybody can copy a beacon, which must not replace the order of another."""
    copied = output(SPLASH, datum(FIELDS[SPLASH](amount=4_999_999)), 2)
    orders, skipped = read(order(SPLASH), order(SPLASH), copied)
    assert ([one.amount for one in orders.values()], skipped) == ([1000, 999], {})


# What an order says


def venue_order(match: dict[str, Any], **options: Any) -> VenueOrder:
    """Return the only order of an output."""
    (found,) = state_of(match, **options).orders.values()
    return found


def saturnswap(script: Any = SATURNSWAP, *, sells: Any = ADA, buys: Any = TOKEN, **changed: Any) -> dict[str, Any]:
    """Return an order of SaturnSwap V3, or of V2 with its script."""
    parts = {"offered policy": sells[0], "offered name": sells[1], "asked policy": buys[0], "asked name": buys[1]}
    fields = datums.saturnswap(**parts | changed)
    if script != SATURNSWAP:
        previous = changed.get("previous", Constructor(0, (Constructor(0, (b"\x00",)), 0)))
        fields = {name: part for name, part in fields.items() if name not in {"least fill", "coverage"}}
        fields["previous"] = previous
    match = output(script, datum(fields))
    match["value"]["assets"] |= {datums.asset_key(one): 10**12 for one in (sells, buys) if one[0]}
    return match | {"value": match["value"] | {"coins": 10**12}}


V2_1, V2_4 = (one.script for one in EXCHANGES if one.venue in {"SaturnSwap 1%", "SaturnSwap 4%"})
OTHER_TOKEN = (TOKEN[0], b"OTHER")


def coverage(premium: int, vault: Any = None) -> Constructor:
    """Return a coverage of SaturnSwap V3, with a vault of a third party if none is given."""
    vault = vault or Constructor(0, (Constructor(0, (bytes(28),)), Constructor(1)))
    return Constructor(0, (Constructor(0, (vault, premium, 0)),))


@pytest.mark.parametrize(("script", "hundredths"), [(V2_1, 100), (V2_4, 400), (SATURNSWAP, 100)])
@pytest.mark.parametrize("sold", [99, 100, 199, 10_001, 123_456_789])
def test_the_fee_of_saturnswap_is_a_share_of_what_is_sold(script: str, hundredths: int, sold: int):
    """`calculateFee` in src/ratio.ts of saturnswap-filler: amount * feePercentX100 / 10000, rounded down."""
    order = venue_order(saturnswap(script, sells=TOKEN, buys=ADA, amount=10**9, **{"asked amount": 10**9}))
    share, flat = order.fees
    assert share == Fee("sold", rate=Fraction(hundredths, 10_000))
    assert (share.due(sold), flat.of) == (sold * hundredths // 10_000, "lovelace")
    assert 1_100_000 < flat.amount < 1_500_000, "the output of the fee: about 1.2 ADA (SPEC.md, section 10)"
    token = AssetId(*TOKEN)
    assert order.taker_fees(sold) == {
        one: amount for one, amount in ((token, share.due(sold)), (ADA_ID, flat.amount)) if amount
    }


def test_a_fee_in_lovelace_is_at_least_its_output():
    """SPEC.md, section 7, step 6: max(total_fee, min_utxo). The worked example sells 25 ADA, and pays about 1.2 ADA."""
    order = venue_order(saturnswap(amount=25_000_000, **{"asked amount": 125_124_999_999}))
    assert 1_100_000 < order.taker_fees(25_000_000)[ADA_ID] < 1_300_000
    assert order.fees[0].due(10**9) == 10**7
    assert str(order.fees[0]) == f"1 % of what is sold per fill, at least {order.fees[0].least}"


@pytest.mark.parametrize(("premium", "bought", "due"), [(0, 500, 1), (250, 39, 1), (250, 80, 2), (10_000, 7, 7)])
def test_a_covered_order_demands_a_premium_of_what_is_bought(premium: int, bought: int, due: int):
    """SPEC.md, section 12.4: max(1, user_sell_amount * premium_bps / 10000), out of pocket of the filler."""
    order = venue_order(saturnswap(coverage=coverage(premium)))
    fee, lovelace = order.fees[1:]
    assert (fee.of, fee.due(bought), lovelace.of) == ("bought", due, "lovelace")
    assert order.fees[0].of == "sold", "the fee of the venue remains"
    price = 5000
    assert order.taker_fees(bought * price)[AssetId(*TOKEN)] == due


def test_an_order_that_saturnswap_denies_or_its_filler_rejects_is_skipped():
    """`is_vault_distinct` and `maxPremiumBps` in src/fillV3.ts of saturnswap-filler. The key of the vault decides."""
    venue = bytes.fromhex("cd51fc17182a3b82f3b776e8a5a0d8808e6fc520fa8455015e2410df")
    others = [Constructor(0, (Constructor(0, (key,)), Constructor(1))) for key in (KEY, venue)]
    for vault in others:
        assert reason(saturnswap(coverage=coverage(1, vault))) == "vault of the owner or the venue"
    assert reason(saturnswap(coverage=coverage(10_001))) == "premium above 100 %"
    assert orders_of(saturnswap(coverage=coverage(10_000)))


@pytest.mark.parametrize(("least", "expected"), [(-5, 5000), (0, 5000), (1, 5000), (400, 2_000_000), (1000, 5_000_000)])
def test_a_partial_fill_has_a_least_amount(least: int, expected: int):
    """SPEC.md, section 12.3: min_partial_fill is in what is bought; a whole fill is always allowed."""
    order = venue_order(saturnswap(**{"least fill": least}))
    assert (order.least_fill, order.most_fill) == (expected, 5_000_000)


def test_the_payment_of_the_least_fill_reaches_the_least_payment():
    """computeFillPlanV3 in fillV3.ts of saturnswap-filler: 120 are released for 8001, but their price is 8000."""
    order = venue_order(saturnswap(sells=TOKEN, buys=ADA, amount=150, **{"asked amount": 10_000, "least fill": 8_001}))
    assert order.least_fill == 121


@pytest.mark.parametrize(("script", "dust"), [(V2_1, 99), (V2_4, 24), (SATURNSWAP, 99)])
def test_a_fill_of_saturnswap_has_a_fee_of_at_least_one_unit(script: str, dust: int):
    """fillSellAndFee in ratio.ts of saturnswap-filler."""
    parts: Any = {"sells": TOKEN, "buys": ADA, "asked amount": 10**9}
    assert reason(saturnswap(script, amount=dust, **parts)) == "too little for a fee"
    assert venue_order(saturnswap(script, amount=dust + 2, **parts)).least_fill == dust + 1


def test_no_fill_of_token_for_token_takes_all():
    """SPEC.md, section 7, step 5: the owner's output of a whole fill needs as many lovelace as it pays tokens."""
    parts: Any = {"sells": TOKEN, "buys": OTHER_TOKEN, "amount": 1000, "asked amount": 10}
    order = venue_order(saturnswap(**parts))
    assert (order.least_fill, order.most_fill) == (100, 900)
    for wrong in {"least fill": 10}, {"asked amount": 1}:
        assert reason(saturnswap(**parts | wrong)) == "only a whole fill, which is impossible"


@pytest.mark.parametrize("executor", [bytes.fromhex(key) for key in EXECUTORS])
def test_an_order_of_splash_needs_a_public_executor(executor: bytes):
    """limit.rs of splash-offchain-multiplatform: permitted_executors is empty, or has the key of the operator."""
    assert venue_order(order(SPLASH, executors=[bytes(28), executor])).filled_by == "matcher"
    assert venue_order(order(SPLASH, executors=[])).filled_by == "anyone"
    assert reason(order(SPLASH, executors=[bytes(28)])) == "private executor"


def test_an_order_of_splash_pays_the_least_cost_of_a_step():
    """minCostPerExStep of validation-rules.json.template. It is in the output of the order: no cost of the taker."""
    assert reason(order(SPLASH) | {"datum_type": "hash"}) == "datum not inline"
    cheap = order(SPLASH, **{"step cost": 599_999})
    assert reason(cheap) == "step cost too low"
    found = venue_order(order(SPLASH))
    assert found.fees == (
        Fee("lovelace", amount=500_000, is_prepaid=True),
        Fee("lovelace", amount=600_000, per="step", is_prepaid=True),
    )
    assert found.taker_fees(5_000_000) == {}
    assert len(state_of(cheap, exchanges=[splash(least_step_cost=599_999)]).orders) == 1


def test_a_step_of_splash_has_a_least_amount():
    """limit_order.ak of splash-core, valid_marginal_output: each step but the last one pays it."""
    assert venue_order(order(SPLASH, **{"step output": 500})).least_fill == 2_500_000


def test_an_order_of_shadowbook_carries_three_fees_and_two_ada():
    """limit-order.mdx of docs-shadowbook: 3 steps of 0.6 ADA; with the deposits at least 2 ADA."""
    match = order(SHADOWBOOK)
    match["value"]["coins"] = 7_000_000
    assert venue_order(match).filled_by == "matcher"
    match["value"]["coins"] = 6_999_999
    assert reason(match) == "carries too little lovelace"
    match = order(SHADOWBOOK, **{"step fee": 1_200_000})
    match["value"]["coins"] = 8_599_999
    assert reason(match) == "carries too little lovelace"


def test_the_fee_of_geniusyield_is_due_once_in_a_transaction():
    """PartialOrder.hs of dex-contracts-api: the taker fee is flat."""
    found = venue_order(order(GENIUSYIELD))
    assert (found.fee, found.filled_by) == ("1000000 lovelace per transaction", "anyone")
    assert found.taker_fees(1) == {ADA_ID: 1_000_000}
    assert venue_order(order(GENIUSYIELD, **{"taker fee": 0})).fee == "none"


def test_an_order_has_its_output_and_its_time():
    match = order(SHADOWBOOK) | {"datum_type": "hash", "script_hash": "ab" * 28}
    found = venue_order(match)
    assert (found.output.id, found.output.address, found.network) == (f"{1:064x}#0", match["address"], "mainnet")
    assert (found.output.datum, found.output.is_inline) == (match["datum"], False)
    assert found.output.reference_script == "ab" * 28
    assert found.created_at == datetime(2020, 6, 7, 21, 46, 31, tzinfo=UTC)


# Which executions count


def test_a_partial_fill_of_saturnswap_proves_its_price_in_both_versions():
    """The redeemer has the payment, and the successor names the order (SPEC.md, sections 5 and 8)."""
    for script in SATURNSWAP, V2_1, V2_4:
        placed = saturnswap(script, sells=TOKEN, buys=ADA, amount=1000, **{"asked amount": 50_000_000})
        ref: Any = bytes.fromhex(placed["transaction_id"])
        named = Constructor(0, (ref if script == SATURNSWAP else Constructor(0, (ref,)), 0))
        rest = {"amount": 600, "asked amount": 30_000_000, "previous": named}
        left = saturnswap(script, sells=TOKEN, buys=ADA, **rest)
        how = datums.encoded(Constructor(0, (20_000_000, 0, 0))).hex()
        assert spot_after(spent(placed, how), successor(left)) == 50_000


def test_a_successor_of_saturnswap_may_pay_the_buffer_to_its_owner():
    """`swapSplitAmounts` in ratio.ts: of an order that sells more than 2 ADA, 2 ADA may leave both legs."""
    placed = order(SATURNSWAP, amount=50_000_000, **{"asked amount": 1000})
    placed["value"]["coins"] = 51_000_000
    named = Constructor(0, (bytes.fromhex(placed["transaction_id"]), 0))
    how = datums.encoded(Constructor(0, (400, 0, 0))).hex()

    def left(amount: int, asked: int) -> dict[str, Any]:
        return successor(order(SATURNSWAP, amount=amount, previous=named, **{"asked amount": asked}))

    assert spot_after(spent(placed, how), left(30_000_000, 600)) == 50_000
    assert spot_after(spent(placed, how), left(28_000_000, 560)) == 50_000, "20 ADA for 400, and 2 ADA to the owner"
    for wrong in (29_000_000, 580), (28_000_000, 600), (30_000_000, 560):
        assert spot_after(spent(placed, how), left(*wrong)) is None


def test_a_fill_of_splash_that_asks_ada_has_no_price():
    """limit_order.ak of splash-core adds the whole cost of a step to what was paid, and only bounds what was taken."""
    sells = {"offered": Constructor(0, TOKEN), "asked": Constructor(0, ADA), "price": Constructor(0, (1000, 1))}
    placed = splash_of(12_000_000, 10_000, **sells, amount=10_000, fee=0, **{"step output": 10_000_000})
    left = splash_of(21_400_000, 0, **sells, amount=0, fee=0, **{"step output": 10_000_000})
    assert spot_after(spent(placed, "d87a80"), successor(left)) is None


def test_an_order_that_holds_nothing_proves_no_execution():
    """It offers 10^15 of a token that nobody holds, for 1 lovelace, and its owner spends it."""
    nobody = (bytes(28), b"NOBODY")
    match = saturnswap(sells=nobody, buys=ADA, amount=10**15, **{"asked amount": 10_000_000})
    match["value"]["assets"] = {}
    state = state_of(spent(match, datums.encoded(Constructor(0, (10_000_000, 0, 0))).hex()), slot=120)
    assert (state.spots, state.orders) == ({}, {})


def fills_of(*amounts: tuple[Any, Any, int, int]) -> list[dict[str, Any]]:
    """Return orders of SaturnSwap that were filled in one block each: what is sold, what is bought, and how much."""
    found = []
    for number, (sells, buys, amount, asked) in enumerate(amounts, 1):
        match = saturnswap(sells=sells, buys=buys, amount=amount, **{"asked amount": asked})
        how = {"slot_no": 110 + number, "transaction_id": f"{90 + number:064x}", "input_index": 0}
        redeemer = datums.encoded(Constructor(0, (asked, 0, 0))).hex()
        found.append(match | {"transaction_id": f"{50 + number:064x}", "spent_at": how | {"redeemer": redeemer}})
    return found


def spots_of(*matches: dict[str, Any], **options: Any) -> dict[str, Any]:
    spots = market_of(*matches, slot=200, **options).at(NOW).spots
    return {str(pair.base.asset_name_text): spot for pair, spot in spots.items()}


@pytest.mark.decision(32)
def test_an_execution_counts_from_a_least_value_on():
    """One unit, filled by its owner, must not set the price of a day."""
    large, small = (TOKEN, ADA, 1000, 5_000_000), (TOKEN, ADA, 1, 4_999_999)
    assert spots_of(*fills_of(large, small)) == {"SNEK": 5000}
    assert spots_of(*fills_of(small)) == {"SNEK": None}
    assert spots_of(*fills_of(large, small), least_execution=4_999_999) == {"SNEK": 4_999_999}


@pytest.mark.decision(32)
def test_between_tokens_the_value_is_that_of_their_own_spots():
    """SNEK is worth 5,000 lovelace, and OTHER 10,000. The lower value counts, and without one, none."""
    prices = (TOKEN, ADA, 1000, 5_000_000), (OTHER_TOKEN, ADA, 1000, 10_000_000)
    enough, little = (TOKEN, OTHER_TOKEN, 1000, 500), (TOKEN, OTHER_TOKEN, 1000, 499)
    pair = Pair(*sorted((AssetId(*TOKEN), AssetId(*OTHER_TOKEN))))
    for fill, expected in (enough, True), (little, False):
        spots = market_of(*fills_of(*prices, fill), slot=200).at(NOW).spots
        assert (spots[pair] is not None) is expected
    alone = market_of(*fills_of(enough), slot=200).at(NOW)
    assert (alone.spots, alone.spot_times) == ({pair: None}, {})


# Each offer, and each output, by itself


def test_an_order_that_was_cancelled_before_its_start_lists_no_pair():
    start = int(1000 * Market(Selection()).time_of(130).timestamp())
    match = order(GENIUSYIELD, start=Constructor(0, (start,)))
    for slot, listed in (120, False), (140, True):
        how = {"slot_no": slot, "transaction_id": FILLER, "input_index": 0, "redeemer": "d87980"}
        assert bool(state_of(match | {"spent_at": how}, slot=150).spots) is listed


def test_one_side_of_a_two_way_order_may_be_no_order():
    recorded_two_way = recorded("cardanoswaps-v2-two-way-synthetic")
    (match,) = [one for one in recorded_two_way if one["output_index"] == 2]
    state = state_of(match)
    assert (len(state.orders), [one.reason for one in state.skipped.values()]) == (1, ["nothing offered"])


HOSTILE = st.recursive(
    st.integers(-(2**600), 2**600) | st.binary(max_size=80) | st.sampled_from(DEEP).map(Raw),
    lambda parts: st.lists(parts, max_size=4) | st.builds(Constructor, st.integers(0, 200), st.tuples(parts, parts)),
    max_leaves=8,
)


@pytest.mark.decision(30)
@settings(max_examples=200)
@given(st.data())
def test_a_hostile_output_never_concerns_another_output(data: st.DataObject):
    """Any field with any value, at any time of the clock; also a date that ends with the calendar."""
    script = data.draw(st.sampled_from(list(FIELDS)))
    fields = FIELDS[script]()
    last = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() * 1000)
    moments = st.sampled_from([last, 10**15, -(10**15), 2**63, 0]).map(lambda one: Constructor(0, (one,)))
    for name in data.draw(st.lists(st.sampled_from(list(fields)), min_size=1, max_size=3)):
        fields[name] = data.draw(moments if name in {"start", "end"} else HOSTILE)
    hostile = output(script, datum(fields), 2)
    hostile["value"]["coins"] = data.draw(st.integers(0, 2**64 - 1))
    market = market_of(order(SHADOWBOOK), hostile, hours=data.draw(st.sampled_from([1, 100_000])))
    for now in NOW, datetime(9998, 1, 1, tzinfo=UTC), NOW:
        found = market.at(now).orders[f"{1:064x}#0"]
        assert shown(found.order) == BID
        assert all(found.fee is not None for found in market.at(now).orders.values())


def test_alternatives_without_fields_carry_their_constructor():
    """A field such as Buy or Sell; constructors from 7 on have other tags."""
    side = (constructor(0, {}), constructor(1, {}), constructor(9, {}))
    for number, tag in (0, 121), (1, 122), (9, 1282):
        assert read_part(CBORTag(tag, []), side) == {"constructor": number}
        assert read_part(CBORTag(102, [number, []]), side) == {"constructor": number}
    for wrong in CBORTag(128, []), CBORTag(123, []), 7:
        with pytest.raises(Skipped):
            read_part(wrong, side)
