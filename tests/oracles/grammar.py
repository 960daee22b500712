"""The expected result of each input, written from the API document and the decisions, without the library.

The document does not define how strict a JSON parser must be. The decoder and this grammar have these rules: an object
has only keys of the contract; the last of repeated keys wins; `spot`, `bids` and `asks` may be absent; an integer is
written without a fraction and an exponent.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, TypeAlias

from tests.oracles.json_reader import NotJson, Number, read_json

DIGITS: Final = "0123456789"
HEX_DIGITS: Final = "0123456789abcdefABCDEF"
MAX_LIQUIDITY: Final = 2**64 - 1

NOT_DECIMAL: Final = "be ASCII digits with an optional point and an optional exponent"
NOT_POSITIVE: Final = "be above 0"
TOO_LARGE: Final = "be below 2^96"
TOO_FINE: Final = "have at most 28 decimal places"
TOO_LONG: Final = "have a coefficient below 2^96"

Asset: TypeAlias = tuple[bytes, bytes]
"""Policy id and asset name; both are empty for ADA."""

ADA: Final[Asset] = (b"", b"")

Level: TypeAlias = tuple[str, int]
"""The canonical text of a price, and its liquidity."""

Book: TypeAlias = tuple[Asset, Asset, str | None, list[Level], list[Level]]
"""Base, quote, spot, bids and asks."""

Info: TypeAlias = tuple[Asset, Asset, str | None]
"""Base, quote and last spot."""


class Rejected(Exception):
    """The text must be rejected. The argument is the rule that it breaks, in the words of the errors."""


# Assets: decisions 6, 7 and 8


def asset(text: str) -> Asset:
    """Read `ADA` or `<policy id>:<asset name>`."""
    if text == "ADA":
        return ADA
    if ":" not in text:
        raise Rejected("an asset identifier must be ADA or policy:name in hex")
    return token(*text.split(":", 1))


def asset_of_unit(text: str) -> Asset:
    """Read `lovelace`, or a policy id and an asset name without a separator."""
    return ADA if text == "lovelace" else token(text[:56], text[56:])


def asset_of_dotted(text: str) -> Asset:
    """Read `lovelace` or `<policy id>.<asset name>`; the dot before an empty name is optional."""
    if text == "lovelace":
        return ADA
    return token(*text.split(".", 1)) if "." in text else token(text, "")


def token(policy_id: str, name: str) -> Asset:
    if len(policy_id) != 56:
        raise Rejected(f"the policy id must have 56 digits, got {len(policy_id)}:")
    if len(name) > 64:
        raise Rejected(f"the asset name must have at most 64 digits, got {len(name)}:")
    if len(name) % 2:
        raise Rejected(f"the asset name must have an even number of digits, got {len(name)}:")
    for part, digits in (("policy id", policy_id), ("asset name", name)):
        if set(digits) - set(HEX_DIGITS):
            raise Rejected(f"the {part} must be hexadecimal")
    return octets(policy_id), octets(name)


def octets(digits: str) -> bytes:
    return bytes(int(digits[at : at + 2], 16) for at in range(0, len(digits), 2))


def asset_text(value: Asset) -> str:
    """Return the canonical text (decision 7)."""
    policy_id, name = value
    return f"{policy_id.hex()}:{name.hex()}" if policy_id else "ADA"


# Prices: decisions 3, 4 and 5


def price(text: str) -> str:
    """Read a price, and return its canonical text."""
    mantissa, exponent = split_exponent(text)
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    if not digits or set(digits) - set(DIGITS):
        raise Rejected(NOT_DECIMAL)
    if not digits.strip("0"):
        raise Rejected(NOT_POSITIVE)
    # With such an exponent no text is a price, and the power would take long to compute.
    if abs(exponent) > len(text) + 100:
        raise Rejected(TOO_LARGE if exponent > 0 else TOO_FINE)
    value = Fraction(int(digits)) * Fraction(10) ** (exponent - len(fraction))
    if value >= 2**96:
        raise Rejected(TOO_LARGE)
    for places in range(29):
        coefficient = value * 10**places
        if coefficient.denominator == 1:
            if coefficient >= 2**96:
                raise Rejected(TOO_LONG)
            return fixed_point(int(coefficient), places)
    raise Rejected(TOO_FINE)


def split_exponent(text: str) -> tuple[str, int]:
    """Return the text before the exponent, and the exponent, of which only the first nine digits are used."""
    at = max(text.find("e"), text.find("E"))
    if at < 0:
        return text, 0
    digits = text[at + 1 :]
    is_negative = digits.startswith("-")
    if digits[:1] in {"+", "-"}:
        digits = digits[1:]
    if not digits or set(digits) - set(DIGITS):
        raise Rejected(NOT_DECIMAL)
    exponent = int(digits.lstrip("0")[:9] or "0")
    return text[:at], -exponent if is_negative else exponent


def fixed_point(coefficient: int, places: int) -> str:
    """Return the text of a number with `places` decimal places."""
    digits = str(coefficient).rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}" if places else digits


# Messages: section 2 of the document, and decisions 1, 3, 9, 11 and 13


def order_book(text: bytes, *, ignore_unknown: bool = False) -> Book:
    """Read an order book."""
    fields = keys(message(text), {"base", "quote"}, {"spot", "bids", "asks"}, ignore_unknown=ignore_unknown)
    base, quote = asset(string(fields["base"])), asset(string(fields["quote"]))
    bids, asks = (
        [level(one, ignore_unknown=ignore_unknown) for one in array(fields.get(side, []))] for side in ("bids", "asks")
    )
    spot = optional_price(fields.get("spot"))
    if base == quote or not are_in_order(bids[::-1]) or not are_in_order(asks):
        raise Rejected
    return base, quote, spot, bids, asks


def pair_list(text: bytes) -> list[Info]:
    """Read a pair list."""
    pairs = keys(message(text), {"pairs"}, set())["pairs"]
    infos = [info(one) for one in array(pairs)]
    if len({(base, quote) for base, quote, _ in infos}) != len(infos):
        raise Rejected
    return infos


def info(value: Any) -> Info:
    fields = keys(value, {"base", "quote", "last_spot"}, set())
    base, quote = asset(string(fields["base"])), asset(string(fields["quote"]))
    last_spot = optional_price(fields["last_spot"])
    if base == quote:
        raise Rejected
    return base, quote, last_spot


def level(value: Any, *, ignore_unknown: bool) -> Level:
    fields = keys(value, {"price", "accumulated_liquidity"}, set(), ignore_unknown=ignore_unknown)
    return price(string(fields["price"])), liquidity(fields["accumulated_liquidity"])


def liquidity(value: Any) -> int:
    """Read a whole number from 1 to 2^64-1 (decision 1)."""
    if not isinstance(value, Number) or set(value.text) - set(DIGITS) or len(value.text) > 20:
        raise Rejected
    if not 0 < int(value.text) <= MAX_LIQUIDITY:
        raise Rejected
    return int(value.text)


def are_in_order(side: list[Level]) -> bool:
    """Whether each price is above the previous one."""
    prices = [Fraction(text) for text, _ in side]
    return all(low < high for low, high in pairwise(prices))


def optional_price(value: Any) -> str | None:
    return None if value is None else price(string(value))


def message(text: bytes) -> Any:
    try:
        return read_json(text)
    except NotJson:
        raise Rejected from None


def keys(value: Any, required: set[str], optional: set[str], *, ignore_unknown: bool = False) -> dict[str, Any]:
    """Return the fields of an object, which must have these keys, and others only with `ignore_unknown`."""
    if not isinstance(value, dict) or not required <= value.keys():
        raise Rejected
    if not ignore_unknown and value.keys() - required - optional:
        raise Rejected
    return value


def array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Rejected
    return value


def string(value: Any) -> str:
    if not isinstance(value, str):
        raise Rejected
    return value
