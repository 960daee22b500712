"""Swaps of Cardano-Swaps, which anyone can fill.

Sources: VERSIONS.md and OrderBookExample.md of fallen-icarus/cardano-swaps; src/cardanoSwapsMainnet.ts of
Flux-Point-Studios/saturnswap-filler names the deployment that is in use on the main network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeAlias

from cbor2 import CBORTag, dumps

from market_index import ADA, AssetId
from market_index_feeds.ledger.datum import Skipped, asset_of, constructor, constructor_of
from market_index_feeds.ledger.exchange import Candidate, Datum, Exchange, Fill, Offer, is_reference_to, only, rise
from market_index_feeds.ledger.notation import HASH, MOMENT, NAME, NONE, POLICY, PRICE, REFERENCE, V2_REFERENCE
from market_index_feeds.ledger.outputs import Spend, least_lovelace
from market_index_feeds.venue_orders import Output, address_bytes

SHA_256: Final = frozenset({32})
ONE_WAY: Final = ("offered", "asked")
TWO_WAY: Final = ("first", "second")

Names: TypeAlias = tuple[bytes, bytes, bytes]
"""The names of the beacons of a pair and of its two assets."""


def _layout(roles: tuple[str, str], reference: CBORTag) -> CBORTag:
    fields: dict[str, Any] = {"beacon policy": HASH, "pair beacon": SHA_256}
    for role in roles:
        fields |= {f"{role} policy": POLICY, f"{role} name": NAME, f"{role} beacon": SHA_256}
    fields |= {"price": PRICE} if roles == ONE_WAY else {"price": PRICE, "inverse price": PRICE}
    return constructor(0, fields | {"previous": (constructor(0, {"of": reference}), NONE), "end": MOMENT})


def joined_beacons(first: AssetId, second: AssetId, *, is_two_way: bool) -> Names:
    """Return the beacons of the unaudited v2: hashes of joined bytes."""
    names = [asset.policy_id + asset.asset_name for asset in (first, second)]
    # In a pair, the policy of ADA is one zero byte.
    pair = b"".join([b"\x00" if asset.is_ada else name for asset, name in zip((first, second), names, strict=True)])
    marks = (b"", b"") if is_two_way else (b"\x01", b"\x02")
    of_assets = [sha256(mark + name).digest() for mark, name in zip(marks, names, strict=True)]
    return sha256(pair).digest(), of_assets[0], of_assets[1]


def beacons(first: AssetId, second: AssetId, *, is_two_way: bool) -> Names:
    """Return the beacons of v2.0.0: hashes of serialised Plutus data, whose lists have no length."""

    def name(number: int, *assets: AssetId) -> bytes:
        parts = [dumps(part) for asset in assets for part in (asset.policy_id, asset.asset_name)]
        return sha256(bytes([0xD8, 121 + number, 0x9F]) + b"".join(parts) + b"\xff").digest()

    return name(1 if is_two_way else 2, first, second), name(0, first), name(0 if is_two_way else 1, second)


def offers(policy: str, named: Callable[..., Names], datum: Datum, output: Output) -> Iterable[Offer]:
    """Require a stake part, which is the owner, and exactly the three beacons of the pair in the datum.

    The offered amount is what the output holds. A two-way output is an offer of each of its assets.
    """
    roles = TWO_WAY if "inverse price" in datum else ONE_WAY
    is_two_way = roles == TWO_WAY
    first, second = [asset_of(datum[f"{role} policy"], datum[f"{role} name"]) for role in roles]
    names, octets = named(first, second, is_two_way=is_two_way), bytes.fromhex(policy)
    stated = datum["pair beacon"], *(datum[f"{role} beacon"] for role in roles)
    held = {asset.asset_name: amount for asset, amount in output.holds.items() if asset.policy_id == octets}
    is_valid = datum["beacon policy"] == octets and stated == names and held == dict.fromkeys(names, 1)
    if not is_valid or not output.has_stake_part:
        raise Skipped("no valid beacons")
    # An unset reference has 3 bytes; one of the previous output has 43, or 47 with the id in a constructor.
    growth = 0 if "of" in datum["previous"] else 44 if named is joined_beacons else 40
    for number, (offered, asked) in enumerate([(first, second), (second, first)][: 1 + is_two_way], 1):
        asks, per_offered = datum["price" if number == 1 else "inverse price"].values()
        stays = _least_lovelace(output, asked, (asks, per_offered), growth) if offered.is_ada else 0
        amount = max(output.holds.get(offered, 0) - stays, 0)
        ends_at = datum.get("end", {}).get("milliseconds")
        suffix = f"/{number}" if is_two_way else ""
        yield Offer(offered, amount, asked, (asks, per_offered), ends_at=ends_at, suffix=suffix)


def _least_lovelace(output: Output, asked: AssetId, price: tuple[int, int], growth: int) -> int:
    """Return the least lovelace of the successor after all lovelace above it are filled (decision 30).

    The successor has the same datum with a previous output, `growth` bytes longer, and holds what was asked.
    """
    (asks, per_offered), held = price, output.holds[ADA]
    others = {asset: amount for asset, amount in output.holds.items() if not asset.is_ada}
    address, datum = address_bytes(output.address), len(output.datum or "") // 2 + growth

    def least(received: int) -> int:
        return least_lovelace(address, others | {asked: others.get(asked, 0) + received}, datum)

    found = least(0)
    while (following := least(-(-max(held - found, 0) * asks // per_offered))) > found:
        found = following
    return found


def fill(spent: Candidate, spend: Spend, created: Sequence[Candidate]) -> Fill | None:
    """Return a fill, also a complete one: its successor has the same datum, and names the output as the previous one.

    The owner may name it too, but not with the redeemer of a swap: 2 takes the first asset, and 3 the second.
    """
    redeemer = constructor_of(spend.redeemer)
    if redeemer is None or not 2 <= redeemer[0] < 2 + len(spent.offers):
        return None
    successor = only(
        one
        for one in created
        if is_reference_to(spent.output, one.datum["previous"].get("of", {}))
        and {**one.datum, "previous": None} == {**spent.datum, "previous": None}
        and one.output.address == spent.output.address
    )
    if successor is None:
        return None
    terms = spent.offers[redeemer[0] - 2]
    gave = -rise(terms.offered, spent.output, successor.output)
    received = rise(terms.asked, spent.output, successor.output)
    return Fill((terms.offered, gave), (terms.asked, received))


EXCHANGES: Final = tuple(
    Exchange(
        f"Cardano-Swaps {version}",
        script,
        _layout(roles, V2_REFERENCE if is_unaudited else REFERENCE),
        partial(offers, policy, joined_beacons if is_unaudited else beacons),
        fill,
        policy,
        networks=("mainnet", "preprod", "preview"),
        source=f"cardano-swaps, VERSIONS.md{' of 2026-07' if is_unaudited else ''}; 2026-11-28",
    )
    for version, roles, is_unaudited, script, policy in (
        (
            *("v2 unaudited one-way", ONE_WAY, True),
            "1d6cff26bcab91d2061aad0bd259cbb7d76d25ced2eeaed5926a42ad",
            "c4d7d117d9ebcde6db28db40837ff2b1401e9eaaa6eecea9e070e209",
        ),
        (
            *("v2 unaudited two-way", TWO_WAY, True),
            "11928a3ac3b65edbf103ea6bb3362e39b879a36f02897df31c40917b",
            "8a199a17ef4517215945aaf3c8c5204c60fd94d34c46d341e99c8fcf",
        ),
        (
            *("v2 one-way", ONE_WAY, False),
            "e5a22e4c31db20bce1c8b081f8e4009683990a33157947d75030deb8",
            "274765b4c626c28d18752176b59c0ff63db56b8305c1daa49c9879fe",
        ),
        (
            *("v2 two-way", TWO_WAY, False),
            "569431d7c48bebb283077d46cbc72bd1f9f57f94c3b6d700aa684095",
            "ae19cf56a7631068aa754327e0472840b76e485868a324904c8b379e",
        ),
    )
)
"""The unaudited scripts are in use on the main network; those of v2.0.0 are audited."""
