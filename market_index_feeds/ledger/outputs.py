"""Outputs of the ledger, as Kupo returns them in its matches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from attrs import frozen

from market_index import ADA, AssetId

_BECH32: Final = {character: digit for digit, character in enumerate("qpzry9x8gf2tvdw0s3jn54khce6mua7l")}

_is_hash: Final = re.compile(r"[0-9a-f]{64}\Z").match

MAX_CACHED: Final = 65_536

_asset: Final = lru_cache(MAX_CACHED)(AssetId.from_dotted)


@frozen
class Spend:
    """How an output was spent. What Kupo stored before its version 2.10 has only the slot."""

    slot: int
    transaction_id: str | None
    input_index: int | None
    redeemer: str | None


@frozen
class Output:
    """An output of a transaction, which never changes.

    `holds` has its amounts by asset, lovelace too. `datum` is in hex, None if Kupo does not know it. `place` orders
    outputs as the ledger does: by slot, transaction and index.
    """

    transaction_id: str
    index: int
    place: tuple[int, int, int]
    address: bytes
    holds: Mapping[AssetId, int]
    datum: str | None
    datum_hash: str | None

    @property
    def id(self) -> str:
        """Its id, which is that of its order: `<transaction id>#<index>`."""
        return f"{self.transaction_id}#{self.index}"

    @property
    def script(self) -> str:
        """The hash of the script that locks it, in hex; empty if there is none."""
        # CIP-19: types 0 to 7 begin with a payment part, which is a script if bit 4 of the header is set.
        is_script = len(self.address) >= 29 and self.address[0] & 0x90 == 0x10
        return self.address[1:29].hex() if is_script else ""

    @property
    def has_stake_part(self) -> bool:
        """Whether its address, which a script locks, has a stake part: types 6 and 7 have none."""
        return self.address[0] >> 4 < 6


def id_of(match: Mapping[str, Any]) -> str:
    """Return the id of the output of a match. Raises `ValueError`, `KeyError` or `TypeError` if it has none."""
    transaction_id, index = match["transaction_id"], match["output_index"]
    if not _is_hash(transaction_id) or type(index) is not int or not 0 <= index < 2**16:
        raise ValueError(f"a match must have the id of an output, got {transaction_id!r} and {index!r}")
    return f"{transaction_id}#{index}"


def output_of(match: Mapping[str, Any]) -> Output:
    """Return the output of a match. Raises `ValueError`, `KeyError` or `TypeError` if it is not a match of Kupo."""
    created, value = match["created_at"], match["value"]
    holds = {_asset(name): int(str(amount)) for name, amount in value["assets"].items()}
    place = int(created["slot_no"]), int(match["transaction_index"]), int(match["output_index"])
    return Output(
        transaction_id=match["transaction_id"],
        index=match["output_index"],
        place=place,
        address=_octets_of(match["address"]),
        holds=holds | {ADA: int(str(value["coins"]))},
        datum=match.get("datum"),
        datum_hash=match["datum_hash"],
    )


def spend_of(match: Mapping[str, Any]) -> Spend | None:
    """Return how the output of a match was spent, None if it is unspent. Raises as `output_of`."""
    spent = match["spent_at"]
    if spent is None:
        return None
    return Spend(int(spent["slot_no"]), spent.get("transaction_id"), spent.get("input_index"), spent.get("redeemer"))


@lru_cache(MAX_CACHED)
def _octets_of(address: str) -> bytes:
    """Return the bytes of an address in Bech32; none of another one. The checksum of the ledger is not verified."""
    digits = [_BECH32.get(character, -1) for character in address.rpartition("1")[2][:-6]]
    if min(digits, default=-1) < 0:
        return b""
    number = 0
    for digit in digits:
        number = number << 5 | digit
    return (number >> len(digits) * 5 % 8).to_bytes(len(digits) * 5 // 8)
