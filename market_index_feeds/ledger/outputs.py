"""Outputs of the ledger, as Kupo returns them in its matches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from attrs import frozen
from cbor2 import CBORTag, dumps

from market_index import ADA, AssetId
from market_index_feeds.venue_orders import MAX_CACHED, Output

LOVELACE_PER_BYTE: Final = 4310
"""A parameter of the ledger: the least lovelace of an output, per byte of its encoding and of 160 more."""

Match: TypeAlias = Mapping[str, Any]
"""An output as Kupo returns it."""

_is_hash: Final = re.compile(r"[0-9a-f]{64}\Z").match
_asset: Final = lru_cache(MAX_CACHED)(AssetId.from_dotted)


@frozen
class Spend:
    """How an output was spent: in which slot, by which transaction, as which of its inputs, with which redeemer."""

    slot: int
    transaction_id: str | None
    input_index: int | None
    redeemer: str | None


def output_of(match: Match) -> tuple[Output, Spend | None]:
    """Return the output of a match, and how it was spent, None if it is unspent.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: It is not a match of Kupo.
    """
    transaction_id, index = match["transaction_id"], match["output_index"]
    if not _is_hash(transaction_id) or type(index) is not int or not 0 <= index < 2**16:
        raise ValueError(f"a match must have the id of an output, got {transaction_id!r} and {index!r}")
    value, place, spent = match["value"], match["transaction_index"], match["spent_at"]
    output = Output(
        transaction_id,
        index,
        slot=int(match["created_at"]["slot_no"]),
        transaction_index=None if place is None else int(place),
        address=match["address"],
        holds={_asset(name): int(str(n)) for name, n in value["assets"].items()} | {ADA: int(str(value["coins"]))},
        datum=match.get("datum"),
        datum_hash=match["datum_hash"],
        is_inline=match.get("datum_type") == "inline",
        reference_script=match.get("script_hash"),
    )
    if spent is None:
        return output, None
    how = [spent.get(name) for name in ("transaction_id", "input_index", "redeemer")]
    return output, Spend(int(spent["slot_no"]), *how)


def least_lovelace(address: bytes, holds: Mapping[AssetId, int], datum: int, per_byte: int = LOVELACE_PER_BYTE) -> int:
    """Return the least lovelace of an output with an inline datum of some bytes (CIP-55), below 2^32 lovelace.

    >>> least_lovelace(bytes(57), {}, 40)
    1180940
    """
    tokens: dict[bytes, dict[bytes, int]] = {}
    for asset, amount in holds.items():
        if not asset.is_ada:
            tokens.setdefault(asset.policy_id, {})[asset.asset_name] = amount
    value: Any = [2**31, tokens] if tokens else 2**31
    return (160 + len(dumps({0: address, 1: value, 2: [1, CBORTag(24, bytes(datum))]}))) * per_byte
