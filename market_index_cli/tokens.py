"""Names and numbers as people read them: those of a token registry, or identifiers and smallest units."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_HALF_UP, ROUND_UP, Context, Decimal
from pathlib import Path
from typing import Final

import click
from attrs import frozen

from market_index import ADA, AssetId, InvalidOrderBook, OrderBook, Pair, Side
from market_index.display import Tokens
from market_index_cli.console import counted
from market_index_cli.options import converted
from market_index_feeds.recording import SAMPLE

NO_VALUE: Final = "-"
SHORTEST: Final = 14
"""The length of the shortest text of a shortened identifier."""


def read_tokens(path: Path) -> Tokens:
    """Read a file or folder of the token registry, and say on standard error how many entries were left out.

    Raises `click.BadParameter`.
    """
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


def tokens_of(source: str, tokens: Tokens | None) -> Tokens | None:
    """Return the given tokens; without, those of this package for the feed `sample:`, and None for any other."""
    is_sample = tokens is None and source == SAMPLE
    return Tokens.from_json(Path(__file__).with_name("sample-tokens.json").read_bytes()) if is_sample else tokens


TOKENS: Final = click.option(
    "--tokens",
    metavar="FILE",
    type=converted(lambda path: read_tokens(Path(path))),
    help="Show names and whole units by the token registry (CIP-26): its folder of mappings, or a file of its entries. "
    "JSON stays in smallest units.",
)


_DIGITS: Final = 6
_MAX_DIGITS: Final = 9
"""The most digits of a price, which is far from the best one."""

_MAX_LENGTH: Final = 16
"""A longer number is shown with a power of ten, if that is shorter."""

_WORDS: Final = {6: "M", 9: "B", 12: "T"}
_RAISED: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_SMALLEST_STEP: Final = Decimal("1e-28")
EXACT: Final = Context(prec=1000)
"""A number in whole units has at most 255 more digits than one of the ledger."""


@frozen
class Display:
    """How assets and numbers are shown: by a token registry, if there is one.

    Without `every_digit`, prices are grouped by a step, and other numbers have six significant digits. Amounts and
    values are in words from a million on. The step is the sixth significant digit of the best price of a book. The web
    page has the same rules, and the same texts.
    """

    tokens: Tokens | None = None
    every_digit: bool = True

    def grouped(self, book: OrderBook) -> OrderBook:
        """Return a book with its prices as they are shown."""
        if self.every_digit or not (book.bids or book.asks):
            return book
        best = (book.bids or book.asks)[0].price
        try:
            return book.grouped(max(_unit(_last_digit(best)), _SMALLEST_STEP))
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

    def pair_name(self, pair: Pair) -> str:
        """Return the names of both assets of a pair, such as `SNEK/ADA`."""
        return f"{self.name(pair.base)}/{self.name(pair.quote)}"

    def level_price(self, pair: Pair, price: Decimal | None, side: Side) -> str:
        """Return the text of the price of a level: bids down, asks up. Far from the best price, it has nine digits."""
        if price is None:
            return NO_VALUE
        number = self._in_units(pair, price)
        return self._text(number, number.adjusted() - _MAX_DIGITS + 1, ROUND_UP if side is Side.ASK else ROUND_DOWN)

    def price(self, pair: Pair, price: Decimal | None, like: Decimal | None = None) -> str:
        """Return the text of a price that is not a level; a dash if there is none.

        Its last digit is the sixth significant one of the price `like`, by default of itself. A number below that digit
        keeps its first digit, because it is not zero.
        """
        if price is None:
            return NO_VALUE
        number = self._in_units(pair, price)
        last = _last_digit(number if like is None else self._in_units(pair, like))
        return self._text(number, max(min(last, number.adjusted()), number.adjusted() - _MAX_DIGITS + 1))

    def amount(self, asset: AssetId, amount: int) -> str:
        """Return the text of an amount."""
        return self._in_words(Decimal(amount) if self.tokens is None else self.tokens.human_amount(asset, amount))

    def value(self, quote: AssetId, value: Decimal) -> str:
        """Return the text of a value in smallest units of the quote."""
        number = value if self.tokens is None else self.tokens.human_amount(quote, value)
        return self._in_words(number.normalize(EXACT))

    def _in_units(self, pair: Pair, price: Decimal) -> Decimal:
        return price if self.tokens is None else self.tokens.human_price(pair, price)

    def _text(self, number: Decimal, last: int, rounding: str = ROUND_HALF_UP) -> str:
        return format(number, ",f") if self.every_digit else _fitting(_rounded(number, last, rounding))

    def _in_words(self, number: Decimal) -> str:
        return format(number, ",f") if self.every_digit else _readable(number)

    def names(self, asset: AssetId) -> frozenset[str]:
        """Return the texts that mean an asset where a name is accepted."""
        return (self.tokens or Tokens()).names(asset)


def _unit(exponent: int) -> Decimal:
    return Decimal((0, (1,), exponent))


def _last_digit(number: Decimal) -> int:
    """Return the exponent of the sixth significant digit."""
    return number.adjusted() - _DIGITS + 1


def _rounded(number: Decimal, exponent: int, rounding: str = ROUND_HALF_UP) -> Decimal:
    return number.quantize(_unit(exponent), rounding, EXACT).normalize(EXACT)


def _readable(number: Decimal) -> str:
    """Return the text of a number with six significant digits, in words from a million on.

    >>> [_readable(Decimal(text)) for text in ("499381.007323", "12345678.9", "-0.000123456789", "1.50", "999999.9")]
    ['499,381', '12.3457 M', '-0.000123457', '1.5', '1 M']
    """
    rounded = _rounded(number, _last_digit(number))
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
    return shortened(asset, SHORTEST + 4)


def shortened(asset: AssetId, width: int) -> str:
    """Return the identifier of an asset, shortened to the width."""
    text = str(asset)
    if len(text) <= width:
        return text
    policy_id, _, name = text.partition(":")
    room = max(width, SHORTEST) - len("00000000…:")
    return f"{policy_id[:8]}…:{name if len(name) <= room else name[: max(room - 1, 0)] + '…'}"
