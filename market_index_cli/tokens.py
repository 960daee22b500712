"""Names and numbers as people read them: those of a token registry, or identifiers and smallest units."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing, suppress
from decimal import ROUND_DOWN, ROUND_HALF_UP, ROUND_UP, Context, Decimal
from pathlib import Path
from typing import Final
from unicodedata import bidirectional

import click
from attrs import frozen

from market_index import ADA, AssetId, InvalidOrderBook, OrderBook, Pair, PriceLevel, Side
from market_index.display import Token, Tokens
from market_index.errors import MarketIndexError
from market_index_cli.console import counted
from market_index_cli.options import headers_of
from market_index_feeds import FeedError
from market_index_feeds.recording import SAMPLE, sample_tokens

NO_VALUE: Final = "-"
_SERVICES: Final = ("http://", "https://")
SMALLEST: Final = "*"
"""Follows the name of an asset that counts in smallest units, beside assets in whole units."""


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
    from market_index_feeds.http import Address, Client  # noqa: PLC0415  # only a service needs httpx

    async def requested() -> bytes:
        async with aclosing(Client(Address(url, headers))) as client:
            response = await client.get("/tokens", {}, seconds=_TOKENS_SECONDS, max_bytes=_MAX_TOKENS_BYTES)
        return response.body

    with suppress(FeedError, MarketIndexError, ValueError, LookupError, TypeError):
        content = json.loads(asyncio.run(requested()))
        rows = [one for one in content["tokens"] if one["id"] != str(ADA)]
        if content["has_registry"]:
            return Tokens([Token(AssetId.parse(one["id"]), one["name"], decimals=one["decimals"]) for one in rows])
    return None


_TOKENS_SECONDS: Final = 20.0
_MAX_TOKENS_BYTES: Final = 16 * 1024 * 1024

_DIGITS: Final = 6
_LEVEL_DIGITS: Final = 9
"""The most digits of the price of a level, which is grouped and may be far from the best one."""

_ROUNDING: Final = {Side.BID: ROUND_DOWN, Side.ASK: ROUND_UP}

_MAX_LENGTH: Final = 16
"""A longer number is shown with a power of ten, if that is shorter."""

_WORDS: Final = {6: "M", 9: "B", 12: "T"}
_RAISED: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_SMALLEST_STEP: Final = Decimal("1e-28")
_NAME_DIGITS: Final = 8
"""How many digits of a long asset name are shown in an identifier."""

EXACT: Final = Context(prec=200)
"""More digits than any sum of values in whole units has."""


@frozen
class Display:
    """How assets and numbers are shown: by a token registry, if there is one.

    For people, numbers have six significant digits, and commas. Amounts and values are in words from a million on. The
    prices of levels are grouped by a step, which is the sixth significant digit of the best price of a book. The web
    page has the same rules, and the same texts. Programs get every digit.
    """

    tokens: Tokens | None = None
    is_exact: bool = True
    in_whole_units: bool = True
    """Whether numbers are in the units of the tokens. Otherwise these only name the assets."""

    def grouped(self, book: OrderBook) -> OrderBook:
        """Return a book with its prices as they are shown."""
        if self.is_exact or not (book.bids or book.asks):
            return book
        best = (book.bids or book.asks)[0].price
        try:
            return book.grouped(max(Decimal((0, (1,), best.adjusted() - _DIGITS + 1)), _SMALLEST_STEP))
        except InvalidOrderBook:
            return book  # A sum of amounts is too large for a level.

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

    def level_price(self, pair: Pair, level: PriceLevel | None, side: Side) -> str:
        """Return the text of the price of a level: bids down, asks up; a dash if there is none."""
        return self._price(pair, level and level.price, _LEVEL_DIGITS, _ROUNDING[side])

    def best_price(self, pair: Pair, level: PriceLevel | None, side: Side) -> str:
        """Return the text of a best price, as `level_price`, but at its own sixth significant digit."""
        return self._price(pair, level and level.price, _DIGITS, _ROUNDING[side])

    def price(self, pair: Pair, price: Decimal | None) -> str:
        """Return the text of a price that is not a level; a dash if there is none."""
        return self._price(pair, price, _DIGITS, ROUND_HALF_UP)

    def _price(self, pair: Pair, price: Decimal | None, digits: int, rounding: str) -> str:
        if price is None:
            return NO_VALUE
        tokens = self.tokens if self.in_whole_units else None
        number = price if tokens is None else tokens.human_price(pair, price)
        return format(number, "f") if self.is_exact else _fitting(_rounded(number, digits, rounding))

    def amount(self, asset: AssetId, amount: int | Decimal) -> str:
        """Return the text of an amount, or of the value of levels in the quote asset; both in smallest units."""
        tokens = self.tokens if self.in_whole_units else None
        number = Decimal(amount) if tokens is None else tokens.human_amount(asset, amount)
        return format(number.normalize(EXACT), "f") if self.is_exact else _readable(number)


def display_of(source: str, tokens: Path | None, headers: Path | None, *, is_exact: bool) -> Display:
    """Return how a command shows a feed.

    For programs, the tokens of a service are names alone: its operator could change the units of their numbers.
    """
    is_service = tokens is None and source.startswith(_SERVICES)
    return Display(tokens_of(source, tokens, headers), is_exact, in_whole_units=not (is_service and is_exact))


def percent(part: Decimal, whole: Decimal) -> str:
    """Return a part in percent, with at most three significant digits; as on the page.

    >>> percent(Decimal(1), Decimal(3)), percent(Decimal("-0.00002"), Decimal(1)), percent(Decimal(0), Decimal(1))
    ('33.3 %', '-0.002 %', '0 %')
    """
    return f"{_fitting(_rounded(EXACT.divide(EXACT.multiply(100, part), whole), 3))} %"


def _rounded(number: Decimal, digits: int, rounding: str = ROUND_HALF_UP) -> Decimal:
    return Context(digits, rounding).normalize(number)


def _readable(number: Decimal) -> str:
    """Return the text of a number with six significant digits, in words from a million on.

    >>> [_readable(Decimal(text)) for text in ("499381.007323", "12345678.9", "-0.000123456789", "1.50", "999999.9")]
    ['499,381', '12.3457 M', '-0.000123457', '1.5', '1 M']
    """
    rounded = _rounded(number, _DIGITS)
    power = rounded.adjusted() // 3 * 3
    return f"{rounded.scaleb(-power):f} {_WORDS[power]}" if power in _WORDS else _fitting(rounded)


def _fitting(number: Decimal) -> str:
    plain = format(number, ",f")
    if len(plain) <= _MAX_LENGTH:
        return plain
    power = number.adjusted()
    return min(plain, f"{number.scaleb(-power):f}\N{MULTIPLICATION SIGN}10{str(power).translate(_RAISED)}", key=len)


def ticker(asset: AssetId) -> str:
    r"""Return the name of an asset, with its label, if it is printable text; otherwise its shortened identifier.

    A name does not identify an asset: the minter can choose any name.

    >>> ticker(AssetId(bytes(28), b"SNEK")), ticker(AssetId(bytes(28), b"\x00\x0d\xe1\x40NFT"))
    ('SNEK', '(222)NFT')
    >>> ticker(AssetId(bytes(28), b"\xff\xfe"))
    '00000000…:fffe'
    """
    if asset == ADA:
        return "ADA"
    text, label = asset.asset_name_text, asset.asset_name_label
    if text and text.strip() == text:
        return text if label is None else f"({label}){text}"
    return shortened(asset)


def shortened(asset: AssetId) -> str:
    """Return the identifier of an asset, with the first digits of its policy and of its asset name.

    >>> shortened(AssetId(bytes(28), b"SNEK")), shortened(AssetId(bytes(28), b"SNEKS")), shortened(ADA)
    ('00000000…:534e454b', '00000000…:534e454…', 'ADA')
    """
    if asset.is_ada:
        return str(asset)
    policy_id, _, name = str(asset).partition(":")
    return f"{policy_id[:8]}…:{name if len(name) <= _NAME_DIGITS else name[: _NAME_DIGITS - 1] + '…'}"
