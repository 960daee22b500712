r"""Reads Plutus data by a layout: a shape with a name for each field.

A datum is written by a stranger. It may have any form, any size, and integers without bounds. `read` returns the named
parts of a datum that has exactly the layout, and rejects every other one. `Exchange` has the notation of layouts.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from cbor2 import CBORTag, loads

from market_index import AssetId, InvalidAssetId

_ANY_CONSTRUCTOR: Final = 102
"""The tag of the general form of a constructor: a list of its number and its fields."""


class Skipped(Exception):
    """An output, or a part of it, is no readable order. `reason` is one of a few fixed texts.

    `field` is the field of the datum that is wrong, such as `price.denominator`.
    """

    def __init__(self, reason: str, field: str = "") -> None:
        super().__init__(reason)
        self.reason: str = reason
        self.field: str = field


def constructor(number: int, fields: Any) -> CBORTag:
    """Return the layout of a constructor of Plutus data: its number, and the layout of its fields."""
    return CBORTag(121 + number if number < 7 else 1273 + number, fields)


def read(part: Any, layout: Any) -> Any:
    r"""Return a part of a datum, with names instead of positions.

    Lists may have a definite or an indefinite length: one contract accepts both. Of alternatives, the result has the
    number of the constructor.

    >>> read(CBORTag(121, [b"\x01\x02", 7]), constructor(0, {"id": frozenset({2}), "amount": range(10)}))
    {'id': b'\x01\x02', 'amount': 7}
    >>> read(CBORTag(122, []), (constructor(0, {}), constructor(1, {})))
    {'constructor': 1}

    Raises:
        Skipped: It has another layout.
    """
    if isinstance(layout, tuple):
        number, fields = _constructor(part)
        for alternative in layout:
            if _constructor(alternative)[0] == number:
                return {"constructor": number, **read(fields, alternative.value)}
    elif isinstance(layout, CBORTag):
        number, fields = _constructor(part)
        if number == _constructor(layout)[0]:
            return read(fields, layout.value)
    # cbor2 6 returns tuples.
    elif isinstance(layout, list) and isinstance(part, (list, tuple)):
        return [read(one, layout[0]) for one in part]
    elif isinstance(layout, dict):
        return _read_fields(part, layout)
    elif layout is None or _is_scalar(part, layout):
        return part
    raise Skipped("unknown datum")


def _read_fields(part: Any, layout: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(part, (list, tuple)) or len(part) != len(layout):
        raise Skipped("unknown datum")
    fields = {}
    for name, one in zip(layout, part, strict=True):
        try:
            fields[name] = read(one, layout[name])
        except Skipped as wrong:
            raise Skipped(wrong.reason, f"{name}.{wrong.field}" if wrong.field else name) from None
    return fields


def _is_scalar(part: Any, layout: Any) -> bool:
    """Whether an integer is in a range, or bytes are those or have one of those lengths."""
    if isinstance(layout, range):
        return type(part) is int and part in layout
    return type(part) is bytes and (len(part) in layout if isinstance(layout, frozenset) else part == layout)


def _constructor(part: Any) -> tuple[int, Any]:
    """Return the number of a constructor and its fields. Raises `Skipped` if the part is none."""
    match part:
        case CBORTag(tag=tag) if 121 <= tag <= 127:
            return tag - 121, part.value
        case CBORTag(tag=tag) if 1280 <= tag <= 1400:
            return tag - 1273, part.value
        case CBORTag(tag=tag, value=(number, fields)) if tag == _ANY_CONSTRUCTOR and type(number) is int:
            return number, fields
    raise Skipped("unknown datum")


def constructor_of(text: str | None) -> tuple[int, list[Any]] | None:
    """Return the number and the fields of a redeemer in hex; None if it is not a constructor.

    >>> constructor_of("d8799f1a002dc6c00000ff")
    (0, [3000000, 0, 0])
    """
    with suppress(Exception):  # cbor2 raises errors of many kinds
        number, fields = _constructor(loads(bytes.fromhex(text or "")))
        return number, list(fields)
    return None


def decoded(text: str | None, datum_hash: str | None) -> Any:
    """Return the Plutus data of a datum in hex.

    Raises:
        Skipped: There is none, it is not hex, it does not have the hash, or it is not CBOR that is nested at most 400
            levels deep.
    """
    if text is None:
        raise Skipped("missing datum")
    with suppress(Exception):  # cbor2 raises errors of many kinds
        octets = bytes.fromhex(text)
        if blake2b(octets, digest_size=32).hexdigest() == datum_hash:
            return loads(octets)
    raise Skipped("broken datum")


def asset_of(policy: bytes, name: bytes) -> AssetId:
    """Return an asset; ADA has neither a policy nor a name."""
    try:
        return AssetId(policy, name)
    except InvalidAssetId:
        raise Skipped("unknown datum") from None
