"""The expected result of each input, written from the API document and the decisions, without the library.

The document does not define how strict a JSON parser must be. The decoder and this grammar have these rules: an object
has only keys of the contract; the last of repeated keys wins; `spot`, `bids` and `asks` may be absent; an integer is
written without a fraction and an exponent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any, Final, Self, TypeAlias

from tests.oracles.json_reader import NotJson, Number, read_json

DIGITS: Final = "0123456789"
HEX_DIGITS: Final = "0123456789abcdefABCDEF"
MAX_LIQUIDITY: Final = 2**64 - 1

NOT_DECIMAL: Final = "be ASCII digits with an optional point and an optional exponent"
NOT_POSITIVE: Final = "be above 0"
TOO_LARGE: Final = "be below 2^96"
TOO_FINE: Final = "have at most 28 decimal places"
TOO_LONG: Final = "have a coefficient below 2^96"
NOT_RATIO: Final = "be ASCII digits with an optional point or one slash"
MANY_DIGITS: Final = "have at most 600 digits in each number"

Asset: TypeAlias = tuple[bytes, bytes]
"""Policy id and asset name; both are empty for ADA."""

ADA: Final[Asset] = (b"", b"")

Level: TypeAlias = tuple[str, int]
"""The canonical text of a price, and its liquidity."""

Book: TypeAlias = tuple[Asset, Asset, str | None, list[Level], list[Level]]
"""Base, quote, spot, bids and asks."""

Info: TypeAlias = tuple[Asset, Asset, str | None]
"""Base, quote and last spot."""

Reader: TypeAlias = Callable[[Any], Any]
"""Returns what a JSON value means. Raises `Rejected`."""

JSON_TYPES: Final[dict[type, str]] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    Number: "a number",
    type(None): "null",
}


class Rejected(Exception):
    """The input must be rejected. As text, it is how the message of the library begins, up to the rejected value.

    Args:
        rule: The rule that the input breaks. The first one, if it breaks several: fields are read in the order of the
            contract, then comes an unknown key, then what concerns several fields.
        error: The name of the error. Empty for a fault in the shape of a message, whose error depends on the message.
    """

    def __init__(self, rule: str, error: str = "") -> None:
        super().__init__()
        self.rule, self.error, self.place = rule, error, ""

    def __str__(self) -> str:
        return f"{self.place}: {self.rule}" if self.place else self.rule

    def at(self, step: str) -> Self:
        """Put a key or the position of an item before the place."""
        self.place = f"{step}.{self.place}".replace(".[", "[").rstrip(".")
        return self


# Assets: decisions 6, 7 and 8


def asset(text: str) -> Asset:
    """Read `ADA` or `<policy id>:<asset name>`."""
    if text == "ADA":
        return ADA
    if ":" not in text:
        raise not_an_asset("an asset identifier must be ADA or policy:name in hex")
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
        raise not_an_asset(f"the policy id must have 56 digits, got {len(policy_id)}:")
    if len(name) > 64:
        raise not_an_asset(f"the asset name must have at most 64 digits, got {len(name)}:")
    if len(name) % 2:
        raise not_an_asset(f"the asset name must have an even number of digits, got {len(name)}:")
    if set(policy_id + name) - set(HEX_DIGITS):
        raise not_an_asset("policy id and asset name must be hexadecimal")
    return octets(policy_id), octets(name)


def not_an_asset(rule: str) -> Rejected:
    return Rejected(rule, "InvalidAssetId")


def octets(digits: str) -> bytes:
    return bytes(int(digits[at : at + 2], 16) for at in range(0, len(digits), 2))


def asset_text(value: Asset) -> str:
    """Return the canonical text (decision 7)."""
    policy_id, name = value
    return f"{policy_id.hex()}:{name.hex()}" if policy_id else "ADA"


def other_texts(value: Asset) -> tuple[str, str]:
    """Return the unit and the dotted text."""
    policy_id, name = (part.hex() for part in value)
    return (f"{policy_id}{name}", f"{policy_id}.{name}".rstrip(".")) if policy_id else ("lovelace", "lovelace")


# Prices: decisions 3, 4 and 5


def price(text: str) -> str:
    """Read a price, and return its canonical text."""
    mantissa, exponent = split_exponent(text)
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    if not digits or set(digits) - set(DIGITS):
        raise not_a_price(NOT_DECIMAL)
    if not digits.strip("0"):
        raise not_a_price(NOT_POSITIVE)
    # With such an exponent no text is a price, and the power would take long to compute.
    if abs(exponent) > len(text) + 100:
        raise not_a_price(TOO_LARGE if exponent > 0 else TOO_FINE)
    value = Fraction(int(digits)) * Fraction(10) ** (exponent - len(fraction))
    if value >= 2**96:
        raise not_a_price(TOO_LARGE)
    for places in range(29):
        coefficient = value * 10**places
        if coefficient.denominator == 1:
            if coefficient >= 2**96:
                raise not_a_price(TOO_LONG)
            return fixed_point(int(coefficient), places)
    raise not_a_price(TOO_FINE)


def not_a_price(rule: str, name: str = "a price") -> Rejected:
    return Rejected(f"{name} must {rule}", "InvalidPrice" if rule in {NOT_DECIMAL, NOT_RATIO} else "PriceOutOfRange")


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
        raise not_a_price(NOT_DECIMAL)
    exponent = int(digits.lstrip("0")[:9] or "0")
    return text[:at], -exponent if is_negative else exponent


def fixed_point(coefficient: int, places: int) -> str:
    """Return the text of a number with `places` decimal places."""
    digits = str(coefficient).rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}" if places else digits


# Ratios: decision 22


def ratio(text: str) -> Fraction:
    """Read a decimal, or two whole numbers with a slash; written as a fraction, each number has at most 600 digits."""
    unsigned = text.removeprefix("-")
    numbers = unsigned.split("/") if "/" in unsigned else decimal_as_fraction(unsigned)
    if len(numbers) != 2 or not all(numbers) or set("".join(numbers)) - set(DIGITS):
        raise not_a_price(NOT_RATIO, "a ratio")
    if unsigned != text:
        raise not_a_price(NOT_POSITIVE, "a ratio")
    numerator, denominator = [digits.lstrip("0") for digits in numbers]
    if max(len(numerator), len(denominator)) > 600:
        raise not_a_price(MANY_DIGITS, "a ratio")
    if not denominator or not numerator:
        raise not_a_price(NOT_POSITIVE if denominator else "have a denominator above 0", "a ratio")
    return Fraction(int(numerator), int(denominator))


def decimal_as_fraction(text: str) -> list[str]:
    """Return the digits of numerator and denominator, neither with more zeros at its end than necessary."""
    try:
        mantissa, exponent = split_exponent(text)
    except Rejected:
        raise not_a_price(NOT_RATIO, "a ratio") from None
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).rstrip("0")
    if not digits:
        return [whole + fraction, "1"]
    # Beyond 1,000 zeros, their number makes no difference.
    zeros = min(max(exponent + len(whole) - len(digits), -1_000), 1_000)
    return [digits + "0" * zeros, "1" + "0" * -zeros]


# Messages: section 2 of the document, and decisions 1, 3, 9, 11, 13 and 28


def order_book(text: bytes, *, ignore_unknown: bool = False) -> Book:
    """Read an order book."""
    book = read_book(text, 1, ["spot", "bids", "asks"], ignore_unknown=ignore_unknown)
    base, quote, _, bids, asks = book
    for side, levels, rule, sign in (("bids", bids, "below", -1), ("asks", asks, "above", 1)):
        for position, ((before, _), (price, _)) in enumerate(pairwise(levels)):
            if sign * Fraction(price) <= sign * Fraction(before):
                place = f"{side}[{position + 1}].price"
                raise Rejected(f"{place} must be {rule} {side}[{position}].price, which is {before}, got {price}")
    require_two_assets(base, quote)
    return book


def changes(text: bytes, *, ignore_unknown: bool = False) -> Book:
    """Read the changes of an order book: levels in any order, where 0 removes a level."""
    book = read_book(text, 0, [], ignore_unknown=ignore_unknown)
    base, quote, _, bids, asks = book
    require_two_assets(base, quote)
    for side, levels in (("bids", bids), ("asks", asks)):
        require_once(f"{side}[{{}}].price: a price", [price for price, _ in levels])
    return book


def read_book(text: bytes, least: int, optional: Collection[str], *, ignore_unknown: bool) -> Book:
    level_fields: dict[str, Reader] = {"price": price_of_json, "accumulated_liquidity": partial(liquidity, least)}
    levels = partial(array, partial(fields_of, level_fields, ignore_unknown=ignore_unknown))
    readers: dict[str, Reader] = {"base": asset_of_json, "quote": asset_of_json, "spot": optional_price}
    readers |= {"bids": levels, "asks": levels}
    found = fields_of(readers, message(text), optional, ignore_unknown=ignore_unknown)
    sides = [[(one["price"], one["accumulated_liquidity"]) for one in found.get(side, [])] for side in ("bids", "asks")]
    return found["base"], found["quote"], found.get("spot"), *sides


def pair_list(text: bytes, *, ignore_unknown: bool = False) -> list[Info]:
    """Read a pair list."""
    readers = {"pairs": partial(array, partial(info, ignore_unknown))}
    infos: list[Info] = fields_of(readers, message(text), ignore_unknown=ignore_unknown)["pairs"]
    require_once("pairs[{}]: a pair", [(base, quote) for base, quote, _ in infos])
    return infos


def info(ignore_unknown: bool, value: Any) -> Info:
    readers: dict[str, Reader] = {"base": asset_of_json, "quote": asset_of_json, "last_spot": optional_price}
    found = fields_of(readers, value, ignore_unknown=ignore_unknown)
    require_two_assets(found["base"], found["quote"])
    return found["base"], found["quote"], found["last_spot"]


def require_two_assets(base: Asset, quote: Asset) -> None:
    if base == quote:
        raise Rejected(f"base and quote must be different assets, got '{asset_text(base)}")


def require_once(what: str, values: list[Any]) -> None:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise Rejected(f"{what.format(position)} must occur once")


def message(text: bytes) -> Any:
    try:
        return read_json(text)
    except NotJson:
        raise Rejected("must be ") from None


def fields_of(
    readers: Mapping[str, Reader], value: Any, optional: Collection[str] = (), *, ignore_unknown: bool = False
) -> dict[str, Any]:
    """Return the fields of an object, which must have these keys, and others only with `ignore_unknown`."""
    require_type(value, dict)
    found = {}
    for key, read in readers.items():
        if key in value:
            found[key] = placed(key, read, value[key])
        elif key not in optional:
            raise Rejected("missing").at(key)
    if not ignore_unknown and value.keys() - readers.keys():
        raise Rejected("unknown key ")
    return found


def array(read: Reader, value: Any) -> list[Any]:
    require_type(value, list)
    return [placed(f"[{position}]", read, one) for position, one in enumerate(value)]


def placed(step: str, read: Reader, value: Any) -> Any:
    try:
        return read(value)
    except Rejected as rejected:
        raise rejected.at(step) from None


def asset_of_json(value: Any) -> Asset:
    require_type(value, str)
    return asset(value)


def price_of_json(value: Any) -> str:
    require_type(value, str)
    return price(value)


def optional_price(value: Any) -> str | None:
    return None if value is None else price_of_json(value)


def liquidity(least: int, value: Any) -> int:
    """Read a whole number of at most 2^64-1 (decision 1)."""
    digits = value.text if isinstance(value, Number) else "none"
    # A minus sign before zeros is a number of JSON.
    if set(digits.removeprefix("-")) - set(DIGITS) or len(digits) > 20 or not least <= int(digits) <= MAX_LIQUIDITY:
        raise Rejected(f"must be a whole number from {least} to 2^64-1, got {JSON_TYPES[type(value)]}: ")
    return int(digits)


def require_type(value: Any, wanted: type) -> None:
    if type(value) is not wanted:
        raise Rejected(f"must be {JSON_TYPES[wanted]}, got {JSON_TYPES[type(value)]}: ")
