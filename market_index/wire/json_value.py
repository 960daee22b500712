"""Decodes bytes to a JSON value, and reports where a value is invalid."""

from __future__ import annotations

import json
from typing import Any, Final

from attrs import frozen

from market_index.errors import MarketIndexError, safe_repr

_MAX_INTEGER_DIGITS: Final = 40
"""More digits than any valid integer has. Python converts integers of up to 4,300 digits."""


class Fault(MarketIndexError, ValueError):
    """A text is not JSON, or a JSON value has a wrong type. The errors of cattrs around it say where the value is."""


@frozen(repr=False)
class Number:
    """The text of a JSON number that is not an integer, or has too many digits to convert.

    >>> Number("0.10")
    0.10
    """

    text: str

    def __repr__(self) -> str:
        return self.text


def _integer(text: str) -> int | Number:
    return int(text) if len(text) <= _MAX_INTEGER_DIGITS else Number(text)


# NaN and Infinity are no JSON. As a `Number`, they are rejected with their place, as any number that is no integer.
_DECODER: Final = json.JSONDecoder(parse_float=Number, parse_constant=Number)
_DECODER_OF_LONG_INTEGERS: Final = json.JSONDecoder(parse_float=Number, parse_constant=Number, parse_int=_integer)

JSON_TYPES: Final[dict[type, str]] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    Number: "a number",
    float: "a number",
    type(None): "null",
}


def parse(text: object) -> Any:
    """Return the value of JSON in UTF-8; if a key repeats in an object, the last one wins.

    Raises `Fault` if it is not bytes of JSON.
    """
    characters = _utf8(text)
    try:
        try:
            return _DECODER.decode(characters)
        except ValueError:
            # It is not JSON, or an integer has more digits than Python converts.
            return _DECODER_OF_LONG_INTEGERS.decode(characters)
    except json.JSONDecodeError as error:
        rest = characters[error.pos :]
        raise Fault(f"must be JSON, but is not at character {error.pos}: {error.msg}: {safe_repr(rest)}") from None
    except RecursionError:
        raise Fault(f"nested too deeply: {safe_repr(characters)}") from None


def require_type(value: object, json_type: type) -> None:
    """Raise `Fault` unless the value has this type."""
    if type(value) is not json_type:
        raise Fault(f"must be {JSON_TYPES[json_type]}, got {shown(value)}")


def shown(value: object) -> str:
    """Return the type and the text of a rejected value."""
    return f"{JSON_TYPES.get(type(value), type(value).__name__)}: {safe_repr(value)}"


def _utf8(text: object) -> str:
    if not isinstance(text, (bytes, bytearray, memoryview)):
        raise Fault(f"must be bytes, got {type(text).__name__}: {safe_repr(text)}")
    try:
        return str(bytes(text), "utf-8")
    except UnicodeDecodeError as error:
        rest = error.object[error.start :]
        raise Fault(f"must be UTF-8, but is not at byte {error.start}: {safe_repr(rest)}") from None
