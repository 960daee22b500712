"""Strict JSON: decodes bytes to a value, and reports where a value is invalid.

The decoder of the standard library keeps the last value of a repeated key and does not report the others.
`has_no_repeated_key` excludes such keys by counting quotes. If it cannot, the text is decoded again with a hook, which
finds repeated keys but is slower.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

from attrs import frozen

from market_index.errors import MarketIndexError, safe_repr

_MAX_INTEGER_DIGITS: Final = 40
"""More digits than any valid integer has. Python converts integers of up to 4,300 digits."""


class Fault(Exception):
    """An error in a JSON value, and the place of that value in the whole, such as `bids[3].price`."""

    def __init__(self, fault: MarketIndexError | str, place: str = "") -> None:
        self.fault = fault
        self.place = place

    def under(self, place: str) -> Fault:
        """Return the fault with a place that starts one level higher."""
        joint = "." if self.place and not self.place.startswith("[") else ""
        return Fault(self.fault, f"{place}{joint}{self.place}")

    def error(self, kind: type[MarketIndexError]) -> MarketIndexError:
        """Return the error of the library for this fault, of class `kind` if it has none of its own."""
        error = kind(self.fault) if isinstance(self.fault, str) else self.fault
        return error.at(self.place) if self.place else error


@frozen(repr=False)
class Number:
    """The text of a JSON number that is not an integer, or has too many digits to convert.

    >>> Number("0.10")
    0.10
    """

    text: str

    def __repr__(self) -> str:
        return self.text


@frozen
class RepeatedKey:
    """A JSON object in which a key repeats."""

    key: str


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | RepeatedKey:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    counts = Counter(key for key, _ in pairs)
    return RepeatedKey(next(key for key, count in counts.items() if count > 1))


def _integer(text: str) -> int | Number:
    return int(text) if len(text) <= _MAX_INTEGER_DIGITS else Number(text)


_DECODER: Final = json.JSONDecoder(parse_float=Number, parse_constant=Number)
_CAREFUL_DECODER: Final = json.JSONDecoder(
    parse_float=Number, parse_constant=Number, parse_int=_integer, object_pairs_hook=_object
)


def utf8_text(text: object) -> str:
    """Return the text of bytes in UTF-8. Raises `Fault` for other values."""
    if not isinstance(text, (bytes, bytearray, memoryview)):
        raise Fault(f"must be bytes, got {type(text).__name__}: {safe_repr(text)}")
    try:
        return str(bytes(text), "utf-8")
    except UnicodeDecodeError as error:
        rest = error.object[error.start :]
        raise Fault(f"must be UTF-8, but is not at byte {error.start}: {safe_repr(rest)}") from None
    except (ValueError, BufferError) as error:
        raise Fault(f"cannot be read: {error}") from None


def parse(characters: str) -> Any:
    """Return the decoded value, in which a repeated key has its last value. Raises `Fault` if it is not JSON."""
    try:
        return _DECODER.decode(characters)
    except (ValueError, RecursionError):
        # It is not JSON, or an integer has more digits than Python converts.
        return parse_with_repeated_keys(characters)


def parse_with_repeated_keys(characters: str) -> Any:
    """Return the decoded value, with a `RepeatedKey` in place of each object in which a key repeats.

    Raises `Fault` if it is not JSON.
    """
    try:
        return _CAREFUL_DECODER.decode(characters)
    except json.JSONDecodeError as error:
        rest = characters[error.pos :]
        raise Fault(f"must be JSON, but is not at character {error.pos}: {error.msg}: {safe_repr(rest)}") from None
    except RecursionError:
        raise Fault(f"nested too deeply: {safe_repr(characters)}") from None


def has_no_repeated_key(characters: str, value: dict[str, Any], strings: int) -> bool:
    """Whether the text of an object certainly has no repeated key, and no unknown key in a level.

    `strings` is the minimum number of strings within the levels. Proof: two quotes delimit each string, so the text has
    at most half as many strings as quotes. The decoded object accounts for its keys, its string values, and `strings`
    more. If the text has no other strings, then no key was lost in decoding, and no level has an unknown key.

    False means unknown: escaped quotes also change the count.
    """
    strings += len(value) + sum(type(one) is str for one in value.values())
    return characters.count('"') == 2 * strings


JSON_TYPES: Final[dict[type, str]] = {
    dict: "an object",
    RepeatedKey: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    Number: "a number",
    type(None): "null",
}


def require_type(value: object, json_type: type) -> None:
    """Raise `Fault` unless the value has this type."""
    if type(value) is json_type:
        return
    if isinstance(value, RepeatedKey) and json_type is dict:
        raise Fault(f"the key {safe_repr(value.key)} must not repeat")
    raise Fault(f"must be {JSON_TYPES[json_type]}, got {JSON_TYPES[type(value)]}: {safe_repr(value)}")
