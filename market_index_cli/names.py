"""Pairs by the names of their assets: what a person types instead of identifiers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NoReturn

import click

from market_index import AssetId, InvalidAssetId, MarketIndex, Pair
from market_index_cli.errors import PairAbsent
from market_index_cli.tokens import Display

_LIKE_IDENTIFIER: Final = re.compile(r"[0-9A-Fa-f]{40,}:")


def exact_pair(base: str, quote: str) -> Pair | None:
    """Return the pair of two identifiers; None if one of the texts is not an identifier."""
    with suppress(InvalidAssetId):
        return Pair(AssetId.parse(base), AssetId.parse(quote))
    return None


def pair_of(base: str, quote: str, index: MarketIndex, display: Display) -> Pair:
    """Return the only pair of an index whose assets have these names or identifiers.

    Raises:
        PairAbsent: No pair has them.
        click.UsageError: Several pairs have them, or a text is an identifier in another spelling, or not a valid one.
    """
    for text in (base, quote):
        _require_valid(text)
    found = list(_named(base, quote, index, display))
    if len(found) == 1:
        return found[0]
    if not found:
        reject_absent(base, quote, index, display)
    candidates = "".join(
        f"\n  {display.name(pair.base)}/{display.name(pair.quote)}: {pair.base} {pair.quote}" for pair in found
    )
    raise click.UsageError(f"{len(found)} pairs are named {base}/{quote}; use the identifiers of one:{candidates}")


def reject_absent(base: str, quote: str, index: MarketIndex, display: Display) -> NoReturn:
    """Raise the error for a pair that is not tracked. It names the reversed pair if that is."""
    for pair in _named(quote, base, index, display):
        raise PairAbsent(f"Pair {base}/{quote} not found; the source has {pair}")
    raise PairAbsent(f"Pair {base}/{quote} not found")


def containing(text: str, index: MarketIndex, display: Display) -> MarketIndex:
    """Return the pairs with an asset whose identifier or name contains a text, in upper or lower case."""
    wanted = text.casefold()
    return index.without(
        *[pair for pair in index if not any(wanted in one.casefold() for one in _texts(pair, display))]
    )


def _texts(pair: Pair, display: Display) -> Iterable[str]:
    for asset in (pair.base, pair.quote):
        yield from (str(asset), display.name(asset), *display.names(asset))


def _named(base: str, quote: str, pairs: Iterable[Pair], display: Display) -> Iterable[Pair]:
    return (pair for pair in pairs if _is(pair.base, base, display) and _is(pair.quote, quote, display))


def _is(asset: AssetId, text: str, display: Display) -> bool:
    with suppress(InvalidAssetId):
        return asset == AssetId.parse(text)
    return text == display.name(asset) or text.casefold() in map(str.casefold, display.names(asset))


def _require_valid(text: str) -> None:
    """Raise `click.UsageError` for an identifier that is not valid, or is in the spelling of another program."""
    for read in (AssetId.from_unit, AssetId.from_dotted):
        with suppress(InvalidAssetId):
            raise click.UsageError(f"{text} is written {read(text)} here")
    # No name of a token has a policy id before a colon.
    if _LIKE_IDENTIFIER.match(text):
        try:
            AssetId.parse(text)
        except InvalidAssetId as error:
            raise click.UsageError(str(error)) from None
