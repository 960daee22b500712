"""The exchanges: per exchange a layout of its datum, a rule for its offers, and what proves an execution.

To add an exchange, write three things and put an `Exchange` of them into a list that you pass to `open_feed`:

1. A layout, in the notation of `Exchange`. State the type of every field, also of those that you do not need: the
   contract, and so the exchange, rejects a datum with another one.
2. A function that returns the offers of an output. It raises `Skipped` with a fixed reason if the output is not valid,
   for example because it does not hold the token that proves a valid order. That the output holds what it offers, at a
   price that exists, is checked for all exchanges.
3. If the ledger proves at what price an output was filled: a function that returns the `Fill`. A limit is no price.

Anyone can pay an output with any datum to a script, copy a beacon, and offer more than the output holds. So an order is
identified by its output, and a field proves something only if the contract of the exchange enforces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeAlias

from attrs import evolve, field, frozen
from attrs.validators import matches_re
from cbor2 import CBORTag

from market_index import ADA, AssetId, InvalidAssetId
from market_index_feeds.kupo.datum import Skipped, constructor_of, decoded, read
from market_index_feeds.kupo.outputs import Output, Spend

Datum: TypeAlias = Mapping[str, Any]


@frozen
class Offer:
    """An offer of an output: an amount of one asset, for another one, before fees.

    `price` is how much is asked, per how much is offered, both in smallest units. `starts_at` and `ends_at` are the
    first and the last moment of it, in milliseconds of POSIX time. `fee` says in words what comes on top. `suffix`
    follows the id of the output, if it has several offers. `problem` is why the offer cannot be filled now, although
    the output is valid; it may still be the successor of a filled one.
    """

    offered: AssetId
    amount: int
    asked: AssetId
    price: tuple[int, int]
    starts_at: int | None = None
    ends_at: int | None = None
    fee: str = "none"
    suffix: str = ""
    problem: str = ""


@frozen
class Fill:
    """An execution that the ledger proves: how much an order gave of one asset and received of another, before fees.

    `place` is where it is in the ledger: the highest one is the last execution. It is the `place` of the output with
    the rest of the order, and `(spend.slot, -1, -1)` if there is none. Both amounts must be above 0.
    """

    gave: tuple[AssetId, int]
    received: tuple[AssetId, int]
    place: tuple[int, int, int]


@frozen
class Candidate:
    """An output at the script of an exchange, with the named fields of its datum, and its offers."""

    output: Output
    datum: Datum
    offers: tuple[Offer, ...]

    @property
    def terms(self) -> Offer:
        """Its only offer, or the first one."""
        return self.offers[0]


def _no_fill(spent: Candidate, spend: Spend, created: Sequence[Candidate]) -> Fill | None:
    """Return None: the ledger does not prove at what price the exchange fills an order."""
    del spent, spend, created
    return None


@frozen
class Exchange:
    r"""An exchange, or a version of it, that locks its orders with one script.

    `script` is the hash of the script, in hex. If each valid order holds a token of one policy, `policy` is that
    policy, and only outputs that hold such a token are read. `offers` returns the offers of an output with a datum.
    `fill` gets an output, how it was spent, and the outputs of the exchange in the transaction that spent it. If a
    function raises another exception than `Skipped`, the output is skipped, or has no fill.

    `layout` mirrors the datum, with a name for each field:

        CBORTag(121 + n, layout)   constructor n with its fields
        {"name": layout, ...}      a list with these elements, in this order
        [layout]                   a list of any length
        (layout, layout)           alternatives; the first one that fits is read
        range(2**64)               an integer in the range
        frozenset({28})            bytes of one of these lengths
        b"\x00"                     exactly these bytes
        None                       anything

    Raises:
        ValueError: `script` or `policy` is not the hex of 28 bytes, in lower case.
    """

    venue: str
    script: str = field(validator=matches_re(r"[0-9a-f]{56}"))
    layout: Any
    offers: Callable[[Datum, Output], Iterable[Offer]]
    fill: Callable[[Candidate, Spend, Sequence[Candidate]], Fill | None] = _no_fill
    policy: str = field(default="", validator=matches_re(r"([0-9a-f]{56})?"))

    @property
    def pattern(self) -> str:
        """The pattern by which Kupo finds its outputs."""
        return f"{self.policy}.*" if self.policy else f"{self.script}/*"

    def read(self, output: Output) -> Candidate:
        """Return the offers of an output. Raises `Skipped` if it is no readable order."""
        datum = read(decoded(output.datum, output.datum_hash), self.layout)
        return Candidate(output, datum, tuple(self.offers(datum, output)))


HASH: Final = frozenset({28})
U64: Final = range(2**64)
INTEGER: Final = range(-(2**512), 2**512)
NONE: Final = CBORTag(122, {})
POLICY: Final = frozenset({0, 28})
NAME: Final = frozenset(range(33))
ASSET_PARTS: Final = {"policy": POLICY, "name": NAME}
PRICE_PARTS: Final = {"numerator": range(2**128), "denominator": range(1, 2**128)}
ASSET: Final = CBORTag(121, ASSET_PARTS)
PRICE: Final = CBORTag(121, PRICE_PARTS)
CREDENTIAL: Final = (CBORTag(121, {"key": HASH}), CBORTag(122, {"script": HASH}))
STAKE: Final = (CBORTag(121, {"key": CREDENTIAL}), CBORTag(122, {"slot": U64, "transaction": U64, "certificate": U64}))
ADDRESS: Final = CBORTag(121, {"payment": CREDENTIAL, "stake": (NONE, CBORTag(121, {"of": STAKE}))})
MOMENT: Final = (CBORTag(121, {"milliseconds": INTEGER}), NONE)


def _asset(policy: bytes, name: bytes) -> AssetId:
    """Return an asset; ADA has neither a policy nor a name."""
    try:
        return AssetId(policy, name)
    except InvalidAssetId:
        raise Skipped("unknown datum") from None


def _ratio(price: Mapping[str, int]) -> tuple[int, int]:
    return price["numerator"], price["denominator"]


def _offer(datum: Datum, **details: Any) -> Offer:
    """Return the offer of a datum that contains the two assets, the amount and the price."""
    offered, asked = _asset(*datum["offered"].values()), _asset(*datum["asked"].values())
    return Offer(offered, datum["amount"], asked, _ratio(datum["price"]), **details)


def _rise(asset: AssetId, before: Output, after: Output) -> int:
    """Return how much more of an asset the later output holds."""
    return after.holds.get(asset, 0) - before.holds.get(asset, 0)


def _only(candidates: Iterable[Candidate]) -> Candidate | None:
    """Return the only candidate; None if there is none, or if there are several, because all but one are decoys."""
    found = list(candidates)
    return found[0] if len(found) == 1 else None


# Splash and Shadowbook

SPLASH: Final = CBORTag(
    121,
    {"kind": b"\x00", "beacon": HASH, "offered": ASSET, "amount": U64, "step cost": U64, "step output": U64}
    | {"asked": ASSET, "price": PRICE, "fee": U64, "owner": ADDRESS, "cancellation key": HASH, "executors": [HASH]},
)

SPLASH_RESERVE: Final = 1_500_000
"""Lovelace that an executor of Splash leaves in an output that pays out a token."""


def splash(datum: Datum, output: Output) -> Iterable[Offer]:
    """Require the lovelace that pay all steps of the execution, as the executor of Splash does.

    An executor matches orders, so a taker places an order, too. The fee of the datum shrinks with each fill. Both the
    fee and the cost of each step are lovelace of the order's own output, besides what it offers and the deposit.
    """
    fee = f"{datum['fee']} lovelace to the executor, and {datum['step cost']} for each step"
    offer = _offer(datum, fee=fee)
    asks, per_offered = offer.price
    received = offer.amount * asks // per_offered
    step = min(received, datum["step output"])
    budget = output.holds[ADA] - datum["fee"] - (0 if offer.asked.is_ada else SPLASH_RESERVE)
    budget -= offer.amount if offer.offered.is_ada else 0
    is_exhausted = not step * datum["step cost"] or budget < received // step * datum["step cost"]
    yield evolve(offer, problem="budget exhausted" if received not in U64 or is_exhausted else "")


def splash_fill(spent: Candidate, spend: Spend, created: Sequence[Candidate]) -> Fill | None:
    """Return a partial fill: a complete one pays an address of the owner, which this does not read.

    The contract compares each input of a transaction with the output at the same position.
    """
    successor = _only(one for one in created if one.output.index == spend.input_index)
    if constructor_of(spend.redeemer) != (1, []) or successor is None:
        return None
    before, after = spent.datum, successor.datum
    is_same_order = {**before, "amount": after["amount"], "fee": after["fee"]} == after
    if not is_same_order or successor.output.address != spent.output.address:
        return None
    terms = spent.terms
    received = _rise(terms.asked, spent.output, successor.output)
    if terms.asked.is_ada:
        received += before["fee"] - after["fee"] + before["step cost"]
    return Fill((terms.offered, before["amount"] - after["amount"]), (terms.asked, received), successor.output.place)


SHADOWBOOK: Final = CBORTag(
    121,
    {"kind": b"\x09", "owner": ADDRESS, "offered": ASSET_PARTS, "amount": U64, "step fee": U64, "asked": ASSET_PARTS}
    | {"price": PRICE_PARTS, "cancellation key": HASH, "beacon": frozenset({20})},
)


def shadowbook(datum: Datum, _: Output) -> Iterable[Offer]:
    """Require a limit order, whose beacon begins with 0. A numerator of 1 accepts any price.

    Its executor matches orders, as that of Splash. A limit order carries the lovelace of 3 steps, a market order of 1.
    """
    if datum["beacon"][0] != 0 or datum["price"]["numerator"] == 1:
        raise Skipped("market order")
    yield _offer(datum, fee=f"{datum['step fee']} lovelace for each step")


# GeniusYield

GENIUSYIELD: Final = CBORTag(
    121,
    {"owner key": HASH, "owner": ADDRESS, "offered": ASSET, "original amount": U64, "amount": U64, "asked": ASSET}
    | {"price": PRICE, "NFT": frozenset({32}), "start": MOMENT, "end": MOMENT, "fills": U64, "maker fee": U64}
    | {"taker fee": U64, "contained fee": CBORTag(121, {"lovelace": U64, "offered": U64, "asked": U64}), "paid": U64},
)


def geniusyield(policy: str, datum: Datum, output: Output) -> Iterable[Offer]:
    """Require the NFT, which is minted for valid orders only.

    The payment of a fill is the amount times the price, rounded up once. The taker fee is flat: if a transaction fills
    several orders, only the largest of their fees is due. The service of GeniusYield adds a percentage of the asked
    asset, which the contract does not require.
    """
    nft = AssetId(bytes.fromhex(policy), datum["NFT"])
    if output.holds.get(nft) != 1 or datum["amount"] > datum["original amount"]:
        raise Skipped("no valid NFT")
    starts_at, ends_at = datum["start"].get("milliseconds"), datum["end"].get("milliseconds")
    yield _offer(datum, starts_at=starts_at, ends_at=ends_at, fee=f"{datum['taker fee']} lovelace")


def geniusyield_fill(spent: Candidate, spend: Spend, created: Sequence[Candidate]) -> Fill | None:
    """Return a partial fill, which moves the NFT into its successor. Values contain fees, so datums are compared."""
    redeemer = constructor_of(spend.redeemer)
    successor = _only(one for one in created if one.datum["NFT"] == spent.datum["NFT"])
    if redeemer is None or redeemer[0] != 1 or successor is None:
        return None
    before, after, terms = spent.datum, successor.datum, spent.terms
    gave, received = before["amount"] - after["amount"], after["paid"] - before["paid"]
    return Fill((terms.offered, gave), (terms.asked, received), successor.output.place)


# SaturnSwap

_ORDER: Final = {"owner": ADDRESS, "offered policy": POLICY, "offered name": NAME, "amount": U64} | {
    "asked policy": POLICY,
    "asked name": NAME,
    "asked amount": U64,
    "end": MOMENT,
}
# A first order has one zero byte, or 32.
REFERENCE: Final = CBORTag(121, {"id": frozenset({1, 32}), "index": U64})
WRAPPED_REFERENCE: Final = CBORTag(121, {"id": CBORTag(121, {"octets": frozenset({1, 32})}), "index": U64})
SATURNSWAP_2: Final = CBORTag(121, _ORDER | {"previous": WRAPPED_REFERENCE})
COVERAGE: Final = (CBORTag(121, {"of": CBORTag(121, {"vault": ADDRESS, "premium": U64, "reference": None})}), NONE)
SATURNSWAP_3: Final = CBORTag(121, _ORDER | {"previous": REFERENCE, "least fill": INTEGER, "coverage": COVERAGE})


def saturnswap(rate: int, datum: Datum, _: Output) -> Iterable[Offer]:
    """Return the offer of whole amounts."""
    fee = f"{rate} % of what the taker gets" if rate else "none"
    if premium := datum.get("coverage", {}).get("of", {}).get("premium"):
        fee = f"a premium of {premium}/10000 of what the taker pays"
    yield Offer(
        _asset(datum["offered policy"], datum["offered name"]),
        datum["amount"],
        _asset(datum["asked policy"], datum["asked name"]),
        (datum["asked amount"], datum["amount"] or 1),
        ends_at=datum["end"].get("milliseconds"),
        fee=fee,
    )


def saturnswap_fill(spent: Candidate, spend: Spend, created: Sequence[Candidate]) -> Fill | None:
    """Return a fill that pays exactly what the datums say. The payment is the first field of the redeemer.

    Other payments are lower bounds, so they prove no price.
    """
    redeemer = constructor_of(spend.redeemer)
    if redeemer is None or redeemer[0] != 0 or not redeemer[1] or type(redeemer[1][0]) is not int:
        return None
    named = {"id": bytes.fromhex(spent.output.transaction_id), "index": spent.output.index}
    successors = [one for one in created if one.datum["previous"] == named]
    before, terms, received = spent.datum, spent.terms, redeemer[1][0]
    if not successors:
        place = spend.slot, -1, -1
        is_complete = received == before["asked amount"]
        return Fill((terms.offered, before["amount"]), (terms.asked, received), place) if is_complete else None
    successor = _only(successors)
    if successor is None or before["asked amount"] - successor.datum["asked amount"] != received:
        return None
    gave = before["amount"] - successor.datum["amount"]
    return Fill((terms.offered, gave), (terms.asked, received), successor.output.place)


# Cardano-Swaps

LOVELACE_PER_BYTE: Final = 4310
"""A parameter of the ledger: the least lovelace of an output, per byte of its encoding and of 160 more."""

SHA_256: Final = frozenset({32})
ONE_WAY: Final = ("offered", "asked")
TWO_WAY: Final = ("first", "second")

Names: TypeAlias = tuple[bytes, bytes, bytes]
"""The names of the beacons of a pair and of its two assets."""


def _swap_layout(roles: tuple[str, str], reference: CBORTag, *, has_end: bool = True) -> CBORTag:
    fields: dict[str, Any] = {"beacon policy": HASH, "pair beacon": SHA_256}
    for role in roles:
        fields |= {f"{role} policy": POLICY, f"{role} name": NAME, f"{role} beacon": SHA_256}
    fields |= {"price": PRICE} if roles == ONE_WAY else {"price": PRICE, "inverse price": PRICE}
    fields["previous"] = (CBORTag(121, {"of": reference}), NONE)
    return CBORTag(121, fields | ({"end": MOMENT} if has_end else {}))


def first_beacons(first: AssetId, second: AssetId, *, is_two_way: bool) -> Names:
    """Return the beacons of v1 and of the pre-release of v2: hashes of joined bytes."""
    names = [asset.policy_id + asset.asset_name for asset in (first, second)]
    # In a pair, the policy of ADA is one zero byte.
    pair = b"".join([b"\x00" if asset.is_ada else name for asset, name in zip((first, second), names, strict=True)])
    marks = (b"", b"") if is_two_way else (b"\x01", b"\x02")
    of_assets = [sha256(mark + name).digest() for mark, name in zip(marks, names, strict=True)]
    return sha256(pair).digest(), of_assets[0], of_assets[1]


def beacons(first: AssetId, second: AssetId, *, is_two_way: bool) -> Names:
    """Return the beacons of v2.0.0: hashes of serialised Plutus data."""

    def name(number: int, *assets: AssetId) -> bytes:
        parts = [part for asset in assets for part in (asset.policy_id, asset.asset_name)]
        octets = b"".join([_head(2, len(part)) + part for part in parts])
        return sha256(bytes([0xD8, 121 + number, 0x9F]) + octets + b"\xff").digest()

    return name(1 if is_two_way else 2, first, second), name(0, first), name(0 if is_two_way else 1, second)


def _head(kind: int, number: int) -> bytes:
    """Return the first bytes of an item of CBOR: its kind, and its value or length."""
    if number < 24:
        return bytes([kind << 5 | number])
    size = next(size for size in (1, 2, 4, 8) if number < 1 << 8 * size)
    return bytes([kind << 5 | 23 + size.bit_length()]) + number.to_bytes(size)


def cardanoswaps(policy: str, named: Callable[..., Names], datum: Datum, output: Output) -> Iterable[Offer]:
    """Require a stake part, which is the owner, and exactly the three beacons of the pair in the datum.

    The offered amount is what the output holds. A two-way output is an offer of each of its assets.
    """
    roles = TWO_WAY if "inverse price" in datum else ONE_WAY
    is_two_way = roles == TWO_WAY
    first, second = [_asset(datum[f"{role} policy"], datum[f"{role} name"]) for role in roles]
    names, octets = named(first, second, is_two_way=is_two_way), bytes.fromhex(policy)
    stated = datum["pair beacon"], *(datum[f"{role} beacon"] for role in roles)
    held = {asset.asset_name: amount for asset, amount in output.holds.items() if asset.policy_id == octets}
    is_valid = datum["beacon policy"] == octets and stated == names and held == dict.fromkeys(names, 1)
    if not is_valid or not output.has_stake_part:
        raise Skipped("no valid beacons")
    # An unset reference has 3 bytes; one of the previous output has 43, or 47 with the id in a constructor.
    growth = 0 if datum["previous"] else 44 if named is first_beacons else 40
    for number, (offered, asked) in enumerate([(first, second), (second, first)][: 1 + is_two_way], 1):
        price = _ratio(datum["price" if number == 1 else "inverse price"])
        stays = _least_lovelace(output, asked, price, growth) if offered.is_ada else 0
        amount = max(output.holds.get(offered, 0) - stays, 0)
        ends_at = datum.get("end", {}).get("milliseconds")
        yield Offer(offered, amount, asked, price, ends_at=ends_at, suffix=f"/{number}" if is_two_way else "")


def _least_lovelace(output: Output, asked: AssetId, price: tuple[int, int], growth: int) -> int:
    """Return the least lovelace of the successor after all lovelace above it are filled (decision 30).

    The successor has the same datum with a previous output, `growth` bytes longer, and holds what was asked.
    """
    asks, per_offered = price
    datum = len(output.datum or "") // 2 + growth
    others = {asset: amount for asset, amount in output.holds.items() if not asset.is_ada}
    policies = {asset.policy_id for asset in (*others, asked)}
    # An output is a map of its address, value and datum; the value is a list, the datum an option of tagged bytes.
    fixed = 1 + 1 + len(_head(2, len(output.address))) + len(output.address) + 1 + 1 + 1 + 2 + 2 + len(_head(2, datum))
    fixed += datum + len(_head(5, len(policies))) + sum(30 + len(_head(5, 1)) for _ in policies)
    least = 0
    while True:
        received = -(-max(output.holds[ADA] - least, 0) * asks // per_offered) if least else 0
        after = others | {asked: others.get(asked, 0) + received}
        amounts = [
            len(_head(2, len(asset.asset_name))) + len(asset.asset_name) + len(_head(0, amount))
            for asset, amount in after.items()
        ]
        following = (160 + fixed + len(_head(0, least or 2**16)) + sum(amounts)) * LOVELACE_PER_BYTE
        if following <= least:
            return least
        least = following


def cardanoswaps_fill(spent: Candidate, spend: Spend, created: Sequence[Candidate]) -> Fill | None:
    """Return a fill, also a complete one: its successor has the same datum, and names the output as the previous one.

    The owner may name it too, but not with the redeemer of a swap: 2 takes the first asset, and 3 the second.
    """
    redeemer = constructor_of(spend.redeemer)
    if redeemer is None or not 2 <= redeemer[0] < 2 + len(spent.offers):
        return None
    reference = {"id": bytes.fromhex(spent.output.transaction_id), "index": spent.output.index}
    expected = {**spent.datum, "previous": {"of": reference}}
    successor = _only(one for one in created if one.datum == expected and one.output.address == spent.output.address)
    if successor is None:
        return None
    terms = spent.offers[redeemer[0] - 2]
    gave = -_rise(terms.offered, spent.output, successor.output)
    received = _rise(terms.asked, spent.output, successor.output)
    return Fill((terms.offered, gave), (terms.asked, received), successor.output.place)


# All exchanges


def _geniusyield(script: str, policy: str) -> Exchange:
    return Exchange("GeniusYield", script, GENIUSYIELD, partial(geniusyield, policy), geniusyield_fill, policy)


def _saturnswap(version: str, script: str, layout: CBORTag, rate: int = 0) -> Exchange:
    fill = saturnswap_fill if layout is SATURNSWAP_3 else _no_fill
    return Exchange(f"SaturnSwap {version}", script, layout, partial(saturnswap, rate), fill)


def _cardanoswaps(version: str, script: str, policy: str, layout: CBORTag, named: Callable[..., Names]) -> Exchange:
    offers = partial(cardanoswaps, policy, named)
    return Exchange(f"Cardano-Swaps {version}", script, layout, offers, cardanoswaps_fill, policy)


V1_ONE_WAY: Final = (_swap_layout(ONE_WAY, WRAPPED_REFERENCE, has_end=False), first_beacons)
V1_TWO_WAY: Final = (_swap_layout(TWO_WAY, WRAPPED_REFERENCE, has_end=False), first_beacons)
PRE_RELEASE: Final = (_swap_layout(ONE_WAY, WRAPPED_REFERENCE), first_beacons)
V2_ONE_WAY: Final = (_swap_layout(ONE_WAY, REFERENCE), beacons)
V2_TWO_WAY: Final = (_swap_layout(TWO_WAY, REFERENCE), beacons)

EXCHANGES: Final = (
    Exchange("Splash", "464eeee89f05aff787d40045af2a40a83fd96c513197d32fbc54ff02", SPLASH, splash, splash_fill),
    Exchange("Shadowbook", "9e130eb0323f31df50bfbb731f35f5a795a630ef727b4ba272460b55", SHADOWBOOK, shadowbook),
    _geniusyield(
        "edfff663d37fc5f9753bc4222e0da2bfe08aa48db0837d2c329adeb3",
        "22f6999d4effc0ade05f6e1a70b702c65d6b3cdf0e301e4a8267f585",
    ),
    _geniusyield(
        "a8d7ff5cf4c117270288372f9ac8e1ce5b758ae15a7851c41661a48c",
        "642c1f7bf79ca48c0f97239fcb2f3b42b92f2548184ab394e1e1e503",
    ),
    _geniusyield(  # of a test network
        "44376a5f63342097a4f20401088c62da272639e60644a9ec1d70f444",
        "53827a77e4ed3d5c211706708c0aa9b9a3be19db901b1cbf7fa515b8",
    ),
    _saturnswap("1%", "73990b71041ceade6f867617f6ce9f187ab710ea2bf1ff8db7d0292f", SATURNSWAP_2, rate=1),
    _saturnswap("4%", "1af84a9e697e1e7b042a0a06f061e88182feb9e9ada950b36a916bd5", SATURNSWAP_2, rate=4),
    _saturnswap("V3", "6023f59dce0064f1d6d27594dbea25bc4305a9f6a10f3a064037553a", SATURNSWAP_3),
    _saturnswap("V3 preprod", "ec457591a4f5ab0d070146558e5f1729fcc5c0b230472437be337625", SATURNSWAP_3),
    _cardanoswaps(
        "v1 one-way",
        "01fa36465dfe36e26c21fdbf720e4bdafcc0b86bb5367fca46012f56",
        "47cec2a1404ed91fc31124f29db15dc1aae77e0617868bcef351b8fd",
        *V1_ONE_WAY,
    ),
    _cardanoswaps(
        "v1 two-way",
        "87381f0bf416e2dae7497d3fcd8087cf677b3cb4b2aeba36ed8f8f79",
        "84662c22dc5c0cadad7b2ebf9757ce9ea61dbd8fe64bc8c43c112a40",
        *V1_TWO_WAY,
    ),
    _cardanoswaps(
        "v2 pre-release one-way",
        "1d6cff26bcab91d2061aad0bd259cbb7d76d25ced2eeaed5926a42ad",
        "c4d7d117d9ebcde6db28db40837ff2b1401e9eaaa6eecea9e070e209",
        *PRE_RELEASE,
    ),
    _cardanoswaps(
        "v2 one-way",
        "e5a22e4c31db20bce1c8b081f8e4009683990a33157947d75030deb8",
        "274765b4c626c28d18752176b59c0ff63db56b8305c1daa49c9879fe",
        *V2_ONE_WAY,
    ),
    _cardanoswaps(
        "v2 two-way",
        "569431d7c48bebb283077d46cbc72bd1f9f57f94c3b6d700aa684095",
        "ae19cf56a7631068aa754327e0472840b76e485868a324904c8b379e",
        *V2_TWO_WAY,
    ),
)
"""The exchanges that are read; those of the main network, and of test networks."""
