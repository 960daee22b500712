"""Names and numbers as people read them: those of a token registry, or identifiers and smallest units."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from decimal import ROUND_DOWN, ROUND_HALF_UP, ROUND_UP, Context, Decimal
from pathlib import Path
from typing import Final
from unicodedata import bidirectional

import click
from attrs import frozen

from market_index import ADA, AssetId, Pair, Side
from market_index.contract import Request
from market_index.display import Token, Tokens
from market_index.errors import MarketIndexError
from market_index_cli.console import counted
from market_index_cli.options import headers_of
from market_index_feeds.http import Address
from market_index_feeds.recording import SAMPLE, sample_tokens
from market_index_feeds.service_requests import sender

NO_VALUE: Final = "-"
SMALLEST: Final = "*"
"""Follows the name of an asset that counts in smallest units, beside assets in whole units."""

_SERVICES: Final = ("http://", "https://")
_TOKENS_SECONDS: Final = 20.0
_DIGITS: Final = 6
_ROUNDING: Final = {Side.BID: ROUND_DOWN, Side.ASK: ROUND_UP, None: ROUND_HALF_UP}
_MAX_LENGTH: Final = 16
"""A longer number is shown with a power of ten, if that is shorter."""

_RAISED: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_NAME_DIGITS: Final = 8
"""How many digits of a long asset name are shown in an identifier."""


def tokens_of(source: str, path: Path | None, headers: Path | None = None) -> Tokens | None:
    """Return the tokens of a file or folder; without one, those of `sample:` or of a service, else None.

    It says on standard error how many entries were left out.

    Raises:
        click.BadParameter: The file or folder cannot be read, or has no entries.
    """
    if path is None and source.startswith(_SERVICES):
        return _tokens_of_service(source, headers_of(headers))
    if path is None:
        return sample_tokens() if source == SAMPLE else None
    try:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        names = [file.name for file in files] if path.is_dir() else [""]
        tokens = Tokens.from_json(*[file.read_bytes() for file in files], names=names)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise click.BadParameter(f"{path} cannot be read: {reason}", param_hint="'--tokens'") from None
    if not files:
        raise click.BadParameter(f"{path} must contain files of entries (*.json), got none", param_hint="'--tokens'")
    if tokens.rejected:
        count = counted(len(tokens.rejected), "token")
        click.echo(f"{path}: {count} left out; {tokens.rejected[0]}", err=True)
    return tokens


def _tokens_of_service(url: str, headers: Mapping[str, str]) -> Tokens | None:
    """Return the tokens that `serve` has at `/tokens`; None if it has no registry, or is another service."""
    with (
        suppress(MarketIndexError, ValueError, LookupError, TypeError),
        sender(Address(url, headers), seconds=_TOKENS_SECONDS) as send,
    ):
        content = json.loads(send(Request("/tokens")).body)
        rows = [one for one in content["tokens"] if one["id"] != str(ADA)]
        if content["has_registry"]:
            return Tokens([Token(AssetId.parse(one["id"]), one["name"], decimals=one["decimals"]) for one in rows])
    return None


@frozen
class Display:
    """How assets and numbers are shown: by a token registry, if there is one.

    For people, numbers have six significant digits, and commas. The web page writes the same prices. Programs get every
    digit.
    """

    tokens: Tokens | None = None
    is_exact: bool = True
    in_whole_units: bool = True
    """Whether numbers are in the units of the tokens. Otherwise these only name the assets."""

    def units(self, pair: Pair) -> str:
        """Return in which units the prices and amounts of a pair are shown."""
        if self.tokens is None or not self.in_whole_units:
            return "in the smallest units of both"
        return self.tokens.units(pair.base, pair.quote)

    def name(self, asset: AssetId) -> str:
        """Return the label of the registry; without a registry, the asset name, which does not identify an asset."""
        return ticker(asset) if self.tokens is None else self.tokens.label(asset)

    def names(self, asset: AssetId) -> set[str]:
        """Return the texts that mean an asset where a name is accepted, in lower case."""
        others = (self.tokens or Tokens()).names(asset)
        return {one.casefold() for one in (str(asset), asset.unit, self.name(asset), *others)}

    def pair_name(self, pair: Pair) -> str:
        """Return the names of both assets of a pair, such as `SNEK/ADA`."""
        return "/".join(map(self._shown_name, (pair.base, pair.quote)))

    def _shown_name(self, asset: AssetId) -> str:
        """Return a name for a terminal: isolated if its letters run from right to left, marked without whole units."""
        name = self.name(asset)
        if self.is_exact:
            return name
        if any(bidirectional(one) in {"R", "AL"} for one in name):
            name = f"\u2068{name}\u2069"
        is_smallest = self.tokens is not None and self.tokens.decimals(asset) is None
        return f"{name}{SMALLEST if is_smallest else ''}"

    def price(self, pair: Pair, price: Decimal | None, side: Side | None = None, digits: int = _DIGITS) -> str:
        """Return the text of a price; a dash if there is none. That of a bid is rounded down, that of an ask up."""
        if price is None:
            return NO_VALUE
        tokens = self.tokens if self.in_whole_units else None
        return self._number(price if tokens is None else tokens.human_price(pair, price), digits, _ROUNDING[side])

    def amount(self, asset: AssetId, amount: int) -> str:
        """Return the text of an amount in smallest units."""
        tokens = self.tokens if self.in_whole_units else None
        return self._number(Decimal(amount) if tokens is None else tokens.human_amount(asset, amount))

    def _number(self, number: Decimal, digits: int = _DIGITS, rounding: str = ROUND_HALF_UP) -> str:
        if self.is_exact:
            return format(number, "f")
        rounded = Context(digits, rounding).normalize(number)
        plain, power = format(rounded, ",f"), rounded.adjusted()
        if len(plain) <= _MAX_LENGTH:
            return plain
        raised = str(power).translate(_RAISED)
        return min(plain, f"{rounded.scaleb(-power):f}\N{MULTIPLICATION SIGN}10{raised}", key=len)


def display_of(source: str, tokens: Path | None, headers: Path | None, *, is_exact: bool) -> Display:
    """Return how a command shows a feed.

    For programs, the tokens of a service are names alone: its operator could change the units of their numbers.
    """
    is_service = tokens is None and source.startswith(_SERVICES)
    return Display(tokens_of(source, tokens, headers), is_exact, in_whole_units=not (is_service and is_exact))


def ticker(asset: AssetId) -> str:
    r"""Return the name of an asset, with its label, if it is printable text; otherwise its shortened identifier.

    A name does not identify an asset: the minter can choose any name.

    >>> ticker(AssetId(bytes(28), b"SNEK")), ticker(AssetId(bytes(28), b"\x00\x0d\xe1\x40NFT"))
    ('SNEK', '(222)NFT')
    >>> ticker(AssetId(bytes(28), b"\xff\xfe")), ticker(AssetId(bytes(28), b" SNEK"))
    ('00000000…:fffe', '00000000…:20534e4…')
    """
    if asset == ADA:
        return "ADA"
    text, label = asset.asset_name_text, asset.asset_name_label
    if text and text.strip() == text:
        return text if label is None else f"({label}){text}"
    policy_id, _, name = str(asset).partition(":")
    return f"{policy_id[:8]}…:{name if len(name) <= _NAME_DIGITS else name[: _NAME_DIGITS - 1] + '…'}"
