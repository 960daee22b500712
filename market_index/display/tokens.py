"""Labels and decimals of tokens, for display: the token registry of Cardano (CIP-26, decision 29).

The entries of the registry are claims of those who made a token. They have no effect on identity, prices, amounts or
JSON: these are always of identifiers and smallest units.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, final
from unicodedata import category

from attrs import field, frozen

from market_index.assets import ADA, AssetId
from market_index.cip67 import is_shown
from market_index.errors import InvalidAssetId, InvalidOrderBook, InvalidPrice, InvalidTokens, safe_repr
from market_index.pairs import Pair
from market_index.prices import to_price_or_ratio, to_ratio
from market_index.printing import repr_pretty
from market_index.value import Value, slot_setters

MAX_DECIMALS: Final = 19
"""The most decimals of an entry, as CIP-26 allows."""

MAX_NAME_LENGTH: Final = 50
"""The most characters of a name that are shown, as CIP-26 allows."""

POLICY_DIGITS: Final = 8
"""How many digits of the policy id a label has, unless another entry would have the same label."""

REPR_ENTRIES: Final = 3
"""The number of entries in the `repr` of tokens."""

_DECODER: Final = json.JSONDecoder(parse_float=str, parse_constant=str)


@final
@frozen(getstate_setstate=False)
class Token(Value):
    """An entry of the registry. Each value is None if the entry does not have it.

    `decimals` is the number of decimals of an amount: with 6, 1,500,000 smallest units are shown as 1.5.

    Raises:
        InvalidTokens: `asset` is not an `AssetId`, a name is not a text, or `decimals` is not an int from 0 to 19.
    """

    asset: AssetId
    ticker: str | None = None
    name: str | None = None
    decimals: int | None = None

    def __attrs_post_init__(self) -> None:
        if type(self.asset) is not AssetId:
            raise InvalidTokens(f"asset must be an AssetId, got {safe_repr(self.asset)}")
        for name, text in (("ticker", self.ticker), ("name", self.name)):
            if text is not None and type(text) is not str:
                raise InvalidTokens(f"{name} must be a text, got {safe_repr(text)}")
        decimals = self.decimals
        if decimals is not None and (type(decimals) is not int or not 0 <= decimals <= MAX_DECIMALS):
            raise InvalidTokens(f"decimals must be an integer from 0 to {MAX_DECIMALS}, got {safe_repr(decimals)}")


_ADA: Final = Token(ADA, "ADA", decimals=6)


def _add(found: dict[AssetId, Token], token: Token) -> None:
    """Add an entry. Raises `InvalidTokens` if its asset is ADA, or has an entry already."""
    if type(token) is not Token or token.asset.is_ada:
        raise InvalidTokens(f"an entry must be a Token of another asset than ADA, got {safe_repr(token)}")
    if found.setdefault(token.asset, token) is not token:
        raise InvalidTokens(f"an asset must have one entry, got another one of {token.asset}")


class _Lookups(Value):
    """The entries by asset, and their number by label. Both are derived from the entries, so they are no fields."""

    __slots__ = ("_by_asset", "_labels")
    _by_asset: Mapping[AssetId, Token]
    _labels: Mapping[str, int]


_SET_BY_ASSET, _SET_LABELS = slot_setters(_Lookups, "_by_asset", "_labels")


@final
@frozen(repr=False, getstate_setstate=False)
class Tokens(_Lookups):
    """Entries of the token registry by asset: labels, and numbers in human units.

    Without entries, it knows only ADA, which has 6 decimals.

    >>> tokens = Tokens.from_json(b'''{
    ...     "subject": "279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f534e454b",
    ...     "ticker": {"value": "SNEK"}, "name": {"value": "Snek"}, "decimals": {"value": 0}}''')
    >>> (snek,) = tokens.find("SNEK")
    >>> tokens.label(snek), tokens.label(ADA)
    ('SNEK 279c909f', 'ADA')
    >>> tokens.human_price(Pair(snek, ADA), Decimal("4123.5"))
    Decimal('0.0041235')
    >>> tokens.human_amount(ADA, 1_500_000)
    Decimal('1.5')

    Raises:
        InvalidTokens: An entry is not a `Token`, or is of ADA, or two have the same asset.
    """

    entries: tuple[Token, ...] = field(default=(), converter=tuple[Token, ...])
    """The entries in ledger order of their assets."""

    rejected: tuple[str, ...] = field(default=(), converter=tuple[str, ...], eq=False)
    """Why `from_json` left out entries: the place of each, the rule, and the rejected value; excluded from equality."""

    def __attrs_post_init__(self) -> None:
        found: dict[AssetId, Token] = {}
        for token in self.entries:
            _add(found, token)
        _SET_ENTRIES(self, tuple([found[asset] for asset in sorted(found)]))
        by_asset = {ADA: _ADA, **found}
        _SET_BY_ASSET(self, by_asset)
        # How many entries have each short label.
        _SET_LABELS(self, Counter(map(_short_label, by_asset.values())))

    @classmethod
    def from_json(cls, *texts: bytes | str, names: Sequence[str] = ()) -> Tokens:
        """Read entries in the JSON of the registry.

        A text is one entry, an array of them, or a response of the registry's API, in version 1 or 2: `{"subjects":
        […]}`, or `{"subject": {…}}`. To read the folder `mappings` of the registry, pass the content of each file.

        Anybody can add an entry to the registry. So an entry that is not valid, or whose asset has an entry already, is
        left out, and `rejected` says why. The same is true of a text that is nested too deeply, or has no entries.

        Args:
            texts: The JSON; bytes are UTF-8.
            names: How messages name the texts, such as names of files; by default `text 1` and so on.

        Raises:
            InvalidTokens: None of the texts contains entries. The error is the one of the first text.
        """
        places = names or [f"text {number}" if len(texts) > 1 else "" for number, _ in enumerate(texts, 1)]
        found: dict[AssetId, Token] = {}
        rejected: list[str] = []
        has_entries = not texts
        for place, text in zip(places, texts, strict=True):
            try:
                entries = _entries(text)
            except InvalidTokens as error:
                rejected.append(str(error.at(place) if place else error))
                continue
            has_entries = True
            for position, entry in entries.items():
                try:
                    _add(found, _token(entry))
                except (InvalidTokens, InvalidAssetId) as error:
                    rejected.append(str(error.at(f"{place} {position}".strip() or "the entry")))
        if not has_entries:
            raise InvalidTokens(rejected[0])
        return cls(found.values(), rejected)

    def __repr__(self) -> str:
        if len(self.entries) > REPR_ENTRIES:
            return f"<Tokens: {len(self.entries)} entries>"
        return f"Tokens({[*self.entries]})"

    _repr_pretty_ = repr_pretty

    def _arguments(self) -> tuple[Any, ...]:
        return ([*self.entries], self.rejected) if self.rejected else ([*self.entries],)

    def label(self, asset: AssetId) -> str:
        """Return a text for people: the ticker, else the name, else the asset name, and digits of the policy id.

        No two entries have the same label, and only ADA has the label `ADA`. It has no character that is not printable.
        A token without an entry may have the label of another token without an entry, but not of one with an entry.
        """
        token = self._token(asset)
        label = _short_label(token)
        # Eight digits of a policy can be chosen: a label that another entry would have has the whole identifier.
        is_unique = self._labels.get(label, 0) == (asset in self._by_asset)
        return label if is_unique else f"{_shown_name(token)} {asset}".lstrip()

    def names(self, asset: AssetId) -> frozenset[str]:
        """Return the texts by which `find` finds an asset: its ticker, its name, and its asset name."""
        token = self._token(asset)
        return frozenset({text for text in (token.ticker, token.name, asset.asset_name_text) if text})

    def find(self, text: str) -> tuple[AssetId, ...]:
        """Return the assets with an entry, and ADA, that have this ticker, name or asset name, in ledger order.

        Upper and lower case are the same. Different tokens may have the same ticker.
        """
        wanted = text.casefold()
        return tuple(sorted(one for one in self._by_asset if wanted in map(str.casefold, self.names(one))))

    def decimals(self, asset: AssetId) -> int | None:
        """Return the number of decimals of an asset; None if it is not known."""
        return self._token(asset).decimals

    def units(self, *assets: AssetId) -> str:
        """Return in which units the amounts of these assets, and the prices of their pairs, are shown.

        >>> Tokens().units(ADA, AssetId(bytes(28), b"SNEK"))
        'in whole units, but in smallest units of SNEK 00000000, whose decimals are not known'
        """
        unknown = [self.label(asset) for asset in dict.fromkeys(assets) if self.decimals(asset) is None]
        if not unknown:
            return "in whole units"
        return f"in whole units, but in smallest units of {' and of '.join(unknown)}, whose decimals are not known"

    def human_price(self, pair: Pair, price: Decimal) -> Decimal:
        """Return a price in whole units of the quote per whole unit of the base: exact, and not bounded.

        `price` is in smallest units; it may also be a difference of prices or a midpoint. An asset whose decimals are
        not known counts in smallest units.

        Raises:
            InvalidPrice: The value is not a finite Decimal.
        """
        if not isinstance(price, Decimal) or not price.is_finite():
            raise InvalidPrice(f"a price must be a finite Decimal, got {type(price).__name__}: {safe_repr(price)}")
        return _shifted(price, self._price_shift(pair))

    def price_from_human(self, pair: Pair, price: Decimal | str) -> Decimal:
        """Return the price in smallest units: the inverse of `human_price`.

        Raises:
            InvalidPrice: The value is not a number above 0, or not a price in smallest units.
        """
        found = to_price_or_ratio(to_ratio(price, "the price") / Fraction(10) ** self._price_shift(pair))
        if isinstance(found, Fraction):
            raise InvalidPrice(
                f"a price of {self.label(pair.base)} in {self.label(pair.quote)} must be a price in smallest units, "
                f"got {safe_repr(price)}"
            )
        return found

    def human_amount(self, asset: AssetId, amount: int | Decimal) -> Decimal:
        """Return an amount in whole units; in smallest units if the decimals are not known.

        `amount` is in smallest units. It may be a total, which has no bound, or the value of levels in the quote asset,
        which may have decimals.

        Raises:
            TypeError: The value is neither an int nor a finite Decimal.
        """
        if type(amount) is not int and not (isinstance(amount, Decimal) and amount.is_finite()):
            raise TypeError(
                f"amount must be an int or a finite Decimal, got {type(amount).__name__}: {safe_repr(amount)}"
            )
        return _shifted(Decimal(amount), -(self.decimals(asset) or 0))

    def amount_from_human(self, asset: AssetId, amount: Decimal | str | int) -> int:
        """Return the amount in smallest units: the inverse of `human_amount`, for amounts of 0 or more.

        Raises:
            InvalidPrice: The value is not a number of 0 or more.
            InvalidOrderBook: The value has more decimals than the asset.
        """
        decimals = self.decimals(asset) or 0
        number: Any = Fraction(amount) if type(amount) is int else amount
        scaled = to_ratio(number, "the amount", or_zero=True) * Fraction(10) ** decimals
        if scaled.denominator != 1:
            raise InvalidOrderBook(
                f"an amount of {self.label(asset)} must have at most {decimals} decimals, got {safe_repr(amount)}"
            )
        return scaled.numerator

    def _token(self, asset: AssetId) -> Token:
        return self._by_asset.get(asset) or Token(asset)

    def _price_shift(self, pair: Pair) -> int:
        return (self.decimals(pair.base) or 0) - (self.decimals(pair.quote) or 0)


(_SET_ENTRIES,) = slot_setters(Tokens, "entries")


def _shifted(number: Decimal, places: int) -> Decimal:
    """Return the number times a power of ten, without trailing zeros and without a positive exponent."""
    sign, digits, exponent = number.as_tuple()
    text = format(Decimal((sign, digits, int(exponent) + places)), "f")
    text = text.rstrip("0").removesuffix(".") if "." in text else text
    # A zero may be negative, and have many digits.
    return Decimal(text) or Decimal(0)


def _short_label(token: Token) -> str:
    return f"{_shown_name(token)} {token.asset.policy_id.hex()[:POLICY_DIGITS]}".strip()


def _shown_name(token: Token) -> str:
    """Return the first name that has a visible character, as one line of characters that are shown."""
    for name in (token.ticker, token.name, token.asset.asset_name_text):
        shown = " ".join("".join(one if is_shown(one) else " " for one in name or "").split())
        if any(not one.isspace() and not category(one).startswith("M") for one in shown):
            return shown if len(shown) <= MAX_NAME_LENGTH else shown[: MAX_NAME_LENGTH - 1] + "…"
    return ""


def _entries(text: bytes | str) -> dict[str, Any]:
    """Return the entries of a text by their position; the position of a single one is empty. Raises `InvalidTokens`."""
    try:
        value = _DECODER.decode(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except ValueError as error:
        raise InvalidTokens(f"token metadata must be JSON, but is not: {error}") from None
    except RecursionError:
        raise InvalidTokens("token metadata must be JSON, but is not: nested too deeply") from None
    if isinstance(value, dict) and "subject" in value:
        # Version 2 of the API has an object with one entry.
        return {"": value["subject"] if isinstance(value["subject"], dict) else value}
    entries = value.get("subjects") if isinstance(value, dict) else value
    if isinstance(entries, list):
        return {f"entry {position}": entry for position, entry in enumerate(entries)}
    shapes = 'an entry with a subject, an array of entries, or {"subjects": […]}'
    raise InvalidTokens(f"token metadata must be {shapes}, got {safe_repr(value)}")


def _token(entry: Any) -> Token:
    """Return an entry. Raises `InvalidTokens` and `InvalidAssetId`."""
    subject = entry.get("subject") if isinstance(entry, dict) else None
    if not isinstance(subject, str):
        raise InvalidTokens(f"an entry must have a subject, got {safe_repr(entry)}")
    properties = entry.get("metadata", entry)  # version 2 of the API has them one level deeper
    if not isinstance(properties, dict):
        raise InvalidTokens(f"metadata must be an object, got {safe_repr(properties)}")
    token = Token(AssetId.from_unit(subject), *[_value(properties, name) for name in ("ticker", "name", "decimals")])
    if token == Token(token.asset):
        raise InvalidTokens(f"an entry must have a ticker, a name or decimals, got {safe_repr(entry)}")
    return token


def _value(properties: dict[str, Any], name: str) -> Any:
    """Return the `value` of a property; None if the entry does not have it."""
    found = properties.get(name)
    if found is None:
        return None
    if not isinstance(found, dict) or "value" not in found:
        raise InvalidTokens(f"{name} must be an object with a value, got {safe_repr(found)}")
    return found["value"]
