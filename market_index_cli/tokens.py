"""Names and numbers as people read them: those of a token registry, or identifiers and smallest units."""

from __future__ import annotations

from decimal import ROUND_DOWN, Context, Decimal
from pathlib import Path
from typing import Final

import click
from attrs import frozen

from market_index import ADA, AssetId, InvalidOrderBook, InvalidPrice, OrderBook, Pair, Tokens
from market_index_cli.console import counted
from market_index_cli.options import converted

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


_SAMPLE_TOKENS: Final = Path(__file__).with_name("sample-tokens.json")


def tokens_of(source: str, tokens: Tokens | None) -> Tokens | None:
    """Return the given tokens; without, those of this package for the feed `sample:`, and None for any other."""
    return Tokens.from_json(_SAMPLE_TOKENS.read_bytes()) if tokens is None and source == "sample:" else tokens


TOKENS: Final = click.option(
    "--tokens",
    metavar="FILE",
    callback=converted(lambda path: read_tokens(Path(path))),
    help="Show names and whole units by the token registry (CIP-26): its folder of mappings, or a file of its entries. "
    "JSON stays in smallest units.",
)


_DIGITS: Final = 6
_SMALLEST_STEP: Final = Decimal("1e-28")
_EXACT: Final = Context(prec=1000)
"""A number in whole units has at most 255 more digits than one of the ledger."""


@frozen
class Display:
    """How assets and numbers are shown: by a token registry, if there is one.

    Without `every_digit`, prices are grouped by a step, and other numbers have six significant digits, but every digit
    before the point, rounded toward zero. The step is in the units that are shown; by default it is the sixth
    significant digit of the best price of a book. The web page has the same rules.
    """

    tokens: Tokens | None = None
    every_digit: bool = True
    step: Decimal | None = None

    def grouped(self, book: OrderBook) -> OrderBook:
        """Return a book with its prices as they are shown.

        Raises:
            click.UsageError: `step` is not a price in the smallest units of the pair.
        """
        if self.every_digit or not (book.bids or book.asks):
            return book
        step = self.step
        if step is None:
            best = (book.bids or book.asks)[0].price
            step = max(_unit(best.adjusted() - _DIGITS + 1), _SMALLEST_STEP)
        elif self.tokens is not None:
            step = step.scaleb(-self.tokens.human_price(book.pair, Decimal(1)).adjusted())
        try:
            return book.grouped(step)
        except InvalidPrice as error:
            raise click.UsageError(f"--step: {error}") from error
        except InvalidOrderBook:
            return book  # A sum of amounts is too large for a level.

    def units(self, pair: Pair) -> str:
        """Return in which units the prices and amounts of a pair are shown."""
        if self.tokens is None:
            return "prices and amounts in the smallest units of both"
        unknown = [self.name(asset) for asset in (pair.base, pair.quote) if self.tokens.decimals(asset) is None]
        if unknown:
            return f"in whole units, but in smallest units of {' and of '.join(unknown)}, whose decimals are not known"
        return "prices and amounts in whole units"

    def name(self, asset: AssetId) -> str:
        """Return the label of the registry; without a registry, the asset name, which does not identify an asset."""
        return ticker(asset) if self.tokens is None else self.tokens.label(asset)

    def pair_name(self, pair: Pair) -> str:
        """Return the names of both assets of a pair, such as `SNEK/ADA`."""
        return f"{self.name(pair.base)}/{self.name(pair.quote)}"

    def price(self, pair: Pair, price: Decimal | None) -> str:
        """Return the exact text of a price, or of a difference or mean of prices; a dash if there is none."""
        if price is None:
            return NO_VALUE
        return format(price if self.tokens is None else self.tokens.human_price(pair, price), "f")

    def rounded(self, pair: Pair, price: Decimal | None) -> str:
        """Return the text of a price that is not a level: rounded, unless every digit is shown."""
        if self.every_digit or price is None:
            return self.price(pair, price)
        return format(_rounded(price if self.tokens is None else self.tokens.human_price(pair, price)), "f")

    def amount(self, asset: AssetId, amount: int) -> str:
        """Return the text of an amount: rounded, unless every digit is shown."""
        if self.tokens is None:
            return f"{amount:,}"
        value = self.tokens.human_amount(asset, amount)
        return format(value if self.every_digit else _rounded(value), ",f")

    def names(self, asset: AssetId) -> frozenset[str]:
        """Return the texts that mean an asset where a name is accepted."""
        return (self.tokens or Tokens()).names(asset)


def _unit(exponent: int) -> Decimal:
    return Decimal((0, (1,), exponent))


def _rounded(number: Decimal) -> Decimal:
    """Return a number with six significant digits, but every digit before the point.

    >>> [str(_rounded(Decimal(text))) for text in ("499381.007323", "12345678.9", "-0.000123456789", "1.50")]
    ['499381', '12345678', '-0.000123456', '1.5']
    """
    last = _unit(min(number.adjusted() - _DIGITS + 1, 0))
    return number.quantize(last, ROUND_DOWN, _EXACT).normalize(_EXACT)


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
