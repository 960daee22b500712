"""Names and numbers as people read them: those of a token registry, or identifiers and smallest units."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_HALF_UP, ROUND_UP, Context, Decimal
from pathlib import Path
from typing import Final

import click
from attrs import frozen

from market_index import ADA, AssetId, InvalidOrderBook, OrderBook, Pair, PriceLevel, Side
from market_index.display import Tokens
from market_index_cli.console import counted
from market_index_feeds.recording import SAMPLE, sample_tokens

NO_VALUE: Final = "-"


def tokens_of(source: str, path: Path | None) -> Tokens | None:
    """Return the tokens of a file or folder; without one, those of the sample for the feed `sample:`, else None.

    It says on standard error how many entries were left out.

    Raises:
        click.BadParameter: The file or folder cannot be read, or has no entries.
    """
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
        if self.tokens is None:
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
        return f"{self.name(pair.base)}/{self.name(pair.quote)}"

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
        number = price if self.tokens is None else self.tokens.human_price(pair, price)
        return format(number, "f") if self.is_exact else _fitting(_rounded(number, digits, rounding))

    def amount(self, asset: AssetId, amount: int | Decimal) -> str:
        """Return the text of an amount, or of the value of levels in the quote asset; both in smallest units."""
        number = Decimal(amount) if self.tokens is None else self.tokens.human_amount(asset, amount)
        return format(number.normalize(EXACT), "f") if self.is_exact else _readable(number)


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
