r"""Reads Plutus data by a layout: a shape with a name for each field.

A datum is written by a stranger. It may have any form, any size, and integers without bounds. `read` returns the named
parts of a datum that has exactly the layout, and rejects every other one. `Exchange` has the notation of layouts.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from cbor2 import CBORTag, loads

from market_index.errors import safe_repr

_ANY_CONSTRUCTOR: Final = 102
"""The tag of the general form of a constructor: a list of its number and its fields."""


class Skipped(Exception):
    """An output, or a part of it, is no readable order. The text is one of a few fixed reasons."""


def read(part: Any, layout: Any) -> Any:
    r"""Return a part of a datum, with names instead of positions.

    Lists may have a definite or an indefinite length: one contract accepts both.

    >>> read(CBORTag(121, [b"\x01\x02", 7]), CBORTag(121, {"id": frozenset({2}), "amount": range(10)}))
    {'id': b'\x01\x02', 'amount': 7}

    Raises:
        Skipped: It has another layout.
    """
    if isinstance(layout, tuple):
        for alternative in layout:
            with suppress(Skipped):
                return read(part, alternative)
    elif isinstance(layout, CBORTag):
        number, fields = _constructor(part)
        if number == layout.tag - 121:
            return read(fields, layout.value)
    elif isinstance(layout, (dict, list)):
        return _read_list(part, layout)
    elif layout is None or _is_scalar(part, layout):
        return part
    raise Skipped("unknown datum")


def _read_list(part: Any, layout: dict[str, Any] | list[Any]) -> dict[str, Any] | list[Any]:
    # cbor2 6 returns tuples.
    if isinstance(part, (list, tuple)):
        if isinstance(layout, list):
            return [read(one, layout[0]) for one in part]
        if len(part) == len(layout):
            return {name: read(one, layout[name]) for name, one in zip(layout, part, strict=True)}
    raise Skipped("unknown datum")


def _is_scalar(part: Any, layout: Any) -> bool:
    """Whether an integer is in a range, or bytes are those or have one of those lengths."""
    if isinstance(layout, range):
        return type(part) is int and part in layout
    if not isinstance(layout, (bytes, frozenset)):
        raise TypeError(f"a layout must be one of those that `Exchange` lists, got {safe_repr(layout)}")
    return type(part) is bytes and (len(part) in layout if isinstance(layout, frozenset) else part == layout)


def _constructor(part: Any) -> tuple[int, Any]:
    """Return the number of a constructor and its fields. Raises `Skipped` if the part is none."""
    if not isinstance(part, CBORTag):
        raise Skipped("unknown datum")
    if part.tag == _ANY_CONSTRUCTOR:
        number, fields = read(part.value, {"number": range(7), "fields": None}).values()
        return number, fields
    return part.tag - 121, part.value


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
