"""Swaps of Cardano-Swaps, which anyone can fill."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeAlias

from cbor2 import CBORTag

from market_index import ADA, AssetId
from market_index_feeds.ledger.datum import Skipped, constructor_of
from market_index_feeds.ledger.exchange import (
    HASH,
    MOMENT,
    NAME,
    NONE,
    POLICY,
    PRICE,
    REFERENCE,
    WRAPPED_REFERENCE,
    Candidate,
    Datum,
    Exchange,
    Fill,
    Offer,
    asset_of,
    only,
    ratio_of,
    rise,
)
from market_index_feeds.ledger.outputs import Output, Spend

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
    first, second = [asset_of(datum[f"{role} policy"], datum[f"{role} name"]) for role in roles]
    names, octets = named(first, second, is_two_way=is_two_way), bytes.fromhex(policy)
    stated = datum["pair beacon"], *(datum[f"{role} beacon"] for role in roles)
    held = {asset.asset_name: amount for asset, amount in output.holds.items() if asset.policy_id == octets}
    is_valid = datum["beacon policy"] == octets and stated == names and held == dict.fromkeys(names, 1)
    if not is_valid or not output.has_stake_part:
        raise Skipped("no valid beacons")
    # An unset reference has 3 bytes; one of the previous output has 43, or 47 with the id in a constructor.
    growth = 0 if datum["previous"] else 44 if named is first_beacons else 40
    for number, (offered, asked) in enumerate([(first, second), (second, first)][: 1 + is_two_way], 1):
        price = ratio_of(datum["price" if number == 1 else "inverse price"])
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
    successor = only(one for one in created if one.datum == expected and one.output.address == spent.output.address)
    if successor is None:
        return None
    terms = spent.offers[redeemer[0] - 2]
    gave = -rise(terms.offered, spent.output, successor.output)
    received = rise(terms.asked, spent.output, successor.output)
    return Fill((terms.offered, gave), (terms.asked, received), successor.output.place)


def _cardanoswaps(version: str, script: str, policy: str, layout: CBORTag, named: Callable[..., Names]) -> Exchange:
    offers = partial(cardanoswaps, policy, named)
    return Exchange(f"Cardano-Swaps {version}", script, layout, offers, cardanoswaps_fill, policy)


V1_ONE_WAY: Final = (_swap_layout(ONE_WAY, WRAPPED_REFERENCE, has_end=False), first_beacons)
V1_TWO_WAY: Final = (_swap_layout(TWO_WAY, WRAPPED_REFERENCE, has_end=False), first_beacons)
PRE_RELEASE: Final = (_swap_layout(ONE_WAY, WRAPPED_REFERENCE), first_beacons)
V2_ONE_WAY: Final = (_swap_layout(ONE_WAY, REFERENCE), beacons)
V2_TWO_WAY: Final = (_swap_layout(TWO_WAY, REFERENCE), beacons)


EXCHANGES: Final = (
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
