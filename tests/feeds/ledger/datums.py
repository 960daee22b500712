"""Datums and outputs of orders, as a wallet puts them on the ledger and Kupo returns them.

The CBOR is written by hand: the decoder under test uses cbor2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b, sha256
from typing import Any, TypeAlias

from attrs import frozen

from market_index import Pair

SPLASH = "464eeee89f05aff787d40045af2a40a83fd96c513197d32fbc54ff02"
SHADOWBOOK = "9e130eb0323f31df50bfbb731f35f5a795a630ef727b4ba272460b55"
GENIUSYIELD = "edfff663d37fc5f9753bc4222e0da2bfe08aa48db0837d2c329adeb3"
SATURNSWAP = "6023f59dce0064f1d6d27594dbea25bc4305a9f6a10f3a064037553a"
CARDANOSWAPS = "e5a22e4c31db20bce1c8b081f8e4009683990a33157947d75030deb8"
BEACON_POLICY = bytes.fromhex("274765b4c626c28d18752176b59c0ff63db56b8305c1daa49c9879fe")
NFT_POLICY = "22f6999d4effc0ade05f6e1a70b702c65d6b3cdf0e301e4a8267f585"
NFT = sha256(b"an output that was spent").digest()

TOKEN = (bytes.fromhex("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f"), b"SNEK")
ADA = (b"", b"")
KEY = bytes(range(28))
EXECUTOR = bytes.fromhex("5cb2c968e5d1c7197a6ce7615967310a375545d9bc65063a964335b2")

Asset: TypeAlias = tuple[bytes, bytes]


@frozen
class Constructor:
    """Plutus data: constructor `number` with its fields. `general` encodes it with tag 102."""

    number: int
    fields: tuple[Any, ...] = ()
    general: bool = False


@frozen
class Raw:
    """Bytes that are copied into the encoding."""

    octets: bytes


def head(major: int, number: int) -> bytes:
    """Return the first bytes of an item of CBOR."""
    for size, code in ((1, 24), (2, 25), (4, 26), (8, 27)):
        if number < 24:
            return bytes([major << 5 | number])
        if number < 1 << 8 * size:
            return bytes([major << 5 | code]) + number.to_bytes(size)
    raise OverflowError(number)


def encoded(data: Any, is_indefinite: Callable[[], bool] = lambda: False) -> bytes:
    """Return the CBOR of Plutus data. `is_indefinite` chooses the form of each list."""
    match data:
        case Raw(octets):
            return octets
        case Constructor(number, fields, general):
            tag = 102 if general else 121 + number if number < 7 else 1273 + number
            return head(6, tag) + encoded([number, list(fields)] if general else list(fields), is_indefinite)
        case list():
            items = b"".join(encoded(one, is_indefinite) for one in data)
            return b"\x9f" + items + b"\xff" if is_indefinite() else head(4, len(data)) + items
        case bytes() if len(data) > 64:
            chunks = (data[start : start + 64] for start in range(0, len(data), 64))
            return b"\x5f" + b"".join(head(2, len(chunk)) + chunk for chunk in chunks) + b"\xff"
        case bytes():
            return head(2, len(data)) + data
        case int() if data >= 0:
            return head(0, data) if data < 2**64 else b"\xc2" + encoded(octets_of(data))
        case _:
            return head(1, -1 - data) if data >= -(2**64) else b"\xc3" + encoded(octets_of(-1 - data))


def octets_of(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8)


OWNER = Constructor(0, (Constructor(0, (KEY,)), Constructor(0, (Constructor(0, (Constructor(0, (KEY,)),)),))))
NOTHING = Constructor(1)


def splash(**changed: Any) -> dict[str, Any]:
    """Return the fields of a Splash order: 5 ADA for at least 1,000 SNEK."""
    return {
        "kind": b"\x00",
        "beacon": KEY,
        "offered": Constructor(0, ADA),
        "amount": 5_000_000,
        "step cost": 600_000,
        "step output": 1000,
        "asked": Constructor(0, TOKEN),
        "price": Constructor(0, (1000, 5_000_000)),
        "fee": 500_000,
        "owner": OWNER,
        "cancellation key": KEY,
        "executors": [EXECUTOR],
    } | changed


def shadowbook(**changed: Any) -> dict[str, Any]:
    """Return the fields of a Shadowbook order: 5 ADA for at least 1,000 SNEK."""
    return {
        "kind": b"\x09",
        "owner": OWNER,
        "offered": list(ADA),
        "amount": 5_000_000,
        "step fee": 600_000,
        "asked": list(TOKEN),
        "price": [1000, 5_000_000],
        "cancellation key": KEY,
        "beacon": bytes(20),
    } | changed


def geniusyield(**changed: Any) -> dict[str, Any]:
    """Return the fields of a GeniusYield order: 5 ADA for at least 1,000 SNEK."""
    return {
        "owner key": KEY,
        "owner": OWNER,
        "offered": Constructor(0, ADA),
        "original amount": 6_000_000,
        "amount": 5_000_000,
        "asked": Constructor(0, TOKEN),
        "price": Constructor(0, (1000, 5_000_000)),
        "NFT": NFT,
        "start": NOTHING,
        "end": NOTHING,
        "fills": 1,
        "maker fee": 1_000_000,
        "taker fee": 1_000_000,
        "contained fee": Constructor(0, (1_000_000, 0, 0)),
        "paid": 200,
    } | changed


def saturnswap(**changed: Any) -> dict[str, Any]:
    """Return the fields of a SaturnSwap V3 order: 5 ADA for 1,000 SNEK."""
    return {
        "owner": OWNER,
        "offered policy": ADA[0],
        "offered name": ADA[1],
        "amount": 5_000_000,
        "asked policy": TOKEN[0],
        "asked name": TOKEN[1],
        "asked amount": 1000,
        "end": NOTHING,
        "previous": Constructor(0, (b"\x00", 0)),
        "least fill": 0,
        "coverage": NOTHING,
    } | changed


def asset_data(number: int, asset: Asset) -> bytes:
    """Return an asset as the beacons of Cardano-Swaps v2 are computed from it."""
    return encoded(Constructor(number, asset), lambda: True)


BEACONS = {
    "pair": sha256(encoded(Constructor(2, (*ADA, *TOKEN)), lambda: True)).digest(),
    "offered": sha256(asset_data(0, ADA)).digest(),
    "asked": sha256(asset_data(1, TOKEN)).digest(),
}
"""The names of the beacons of a one-way order of Cardano-Swaps v2 that offers ADA for SNEK."""


def cardanoswaps(**changed: Any) -> dict[str, Any]:
    """Return the fields of an order of Cardano-Swaps v2: its ADA, for 1 SNEK per 5,000 lovelace."""
    return {
        "beacon policy": BEACON_POLICY,
        "pair beacon": BEACONS["pair"],
        "offered policy": ADA[0],
        "offered name": ADA[1],
        "offered beacon": BEACONS["offered"],
        "asked policy": TOKEN[0],
        "asked name": TOKEN[1],
        "asked beacon": BEACONS["asked"],
        "price": Constructor(0, (1, 5000)),
        "previous": NOTHING,
        "end": NOTHING,
    } | changed


FIELDS: Mapping[str, Callable[..., dict[str, Any]]] = {
    SPLASH: splash,
    SHADOWBOOK: shadowbook,
    GENIUSYIELD: geniusyield,
    SATURNSWAP: saturnswap,
    CARDANOSWAPS: cardanoswaps,
}


def datum(fields: Mapping[str, Any], is_indefinite: Callable[[], bool] = lambda: False) -> bytes:
    """Return the CBOR of a datum."""
    return encoded(Constructor(0, tuple(fields.values())), is_indefinite)


def address(script: str, *, stake: bytes | None = KEY, key: bool = False, network: int = 1) -> str:
    """Return the address of a script, or of a key with the same hash (CIP-19). The main network is 1."""
    kind = (0 if key else 1) if stake else (6 if key else 7)
    return bech32(
        "addr" if network else "addr_test", bytes([kind << 4 | network]) + bytes.fromhex(script) + (stake or b"")
    )


def bech32(prefix: str, octets: bytes) -> str:
    """Return bytes in Bech32 (BIP-173)."""
    bits = "".join(f"{octet:08b}" for octet in octets)
    words = [int(bits[at : at + 5].ljust(5, "0"), 2) for at in range(0, len(bits), 5)]
    checksum = 1
    for word in (*(ord(one) >> 5 for one in prefix), 0, *(ord(one) & 31 for one in prefix), *words, *[0] * 6):
        top, checksum = checksum >> 25, (checksum & 0x1FFFFFF) << 5 ^ word
        for bit, generator in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            checksum ^= generator if top >> bit & 1 else 0
    words += [(checksum ^ 1) >> 5 * (5 - at) & 31 for at in range(6)]
    return f"{prefix}1{''.join('qpzry9x8gf2tvdw0s3jn54khce6mua7l'[word] for word in words)}"


def asset_key(asset: Asset) -> str:
    """Return an asset as Kupo spells it: the policy alone if the name is empty."""
    return asset[0].hex() + (f".{asset[1].hex()}" if asset[1] else "")


def output(script: str, octets: bytes, number: int = 1, **changed: Any) -> dict[str, Any]:
    """Return a match of Kupo: 8.6 ADA, 10,000 SNEK, an NFT and three beacons, at the address of an exchange."""
    beacons = {f"{BEACON_POLICY.hex()}.{name.hex()}": 1 for name in BEACONS.values()}
    return {
        "transaction_index": 0,
        "transaction_id": f"{number:064x}",
        "output_index": 0,
        "address": address(script),
        "value": {
            "coins": 8_600_000,
            "assets": {asset_key(TOKEN): 10_000, f"{NFT_POLICY}.{NFT.hex()}": 1, **beacons},
        },
        "datum_hash": blake2b(octets, digest_size=32).hexdigest(),
        "datum": octets.hex(),
        "datum_type": "inline",
        "script_hash": None,
        "script": None,
        "created_at": {"slot_no": 100, "header_hash": "ab" * 32},
        "spent_at": None,
    } | changed


def id_of(match: Mapping[str, Any]) -> str:
    """Return the id of the output of a match."""
    return f"{match['transaction_id']}#{match['output_index']}"


def filled(pair: Pair, lovelace: int, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an order of SaturnSwap that offers 10^7 units of a base for lovelace each, and how it is filled."""
    base = pair.base.policy_id, pair.base.asset_name
    parts = {"offered policy": base[0], "offered name": base[1], "asked policy": ADA[0], "asked name": ADA[1]}
    order = output(SATURNSWAP, datum(saturnswap(amount=10**7, **parts, **{"asked amount": lovelace * 10**7})), number)
    order["value"]["assets"][asset_key(base)] = 10**7
    redeemer = encoded(Constructor(0, (lovelace * 10**7,))).hex()
    return order, {"transaction_id": f"{number:063x}f", "input_index": 0, "redeemer": redeemer}
