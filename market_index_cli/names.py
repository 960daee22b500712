"""Pairs by the names of their assets: what a person types instead of identifiers."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

import click

from market_index import AssetId, InvalidAssetId, MarketIndex, Pair
from market_index_cli.errors import EXIT_ABSENT, Failed
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
        Failed: No pair has them. The message names the reversed pair if that is tracked.
        click.UsageError: Several pairs have them, or a text is an identifier in another spelling, or not a valid one.
    """
    _require_valid(base)
    _require_valid(quote)
    found = _named(base, quote, index, display)
    if len(found) == 1:
        return found[0]
    if not found:
        tracked = "".join(f"; the source has {pair}" for pair in _named(quote, base, index, display)[:1])
        raise Failed(EXIT_ABSENT, f"Pair {base}/{quote} not found{tracked}")
    candidates = "".join(f"\n  {display.pair_name(pair)}: {pair.base} {pair.quote}" for pair in found)
    raise click.UsageError(f"{len(found)} pairs are named {base}/{quote}; use the identifiers of one:{candidates}")


def containing(text: str, index: MarketIndex, display: Display) -> MarketIndex:
    """Return the pairs with an asset whose identifier or name contains a text, in upper or lower case."""
    wanted = text.casefold()
    return index.without(
        *[pair for pair in index if not any(wanted in one for asset in _assets(pair) for one in _texts(asset, display))]
    )


def _assets(pair: Pair) -> tuple[AssetId, AssetId]:
    return pair.base, pair.quote


def _named(base: str, quote: str, index: MarketIndex, display: Display) -> list[Pair]:
    wanted = base.casefold(), quote.casefold()
    return [
        pair
        for pair in index
        if all(text in _texts(asset, display) for text, asset in zip(wanted, _assets(pair), strict=True))
    ]


def _texts(asset: AssetId, display: Display) -> set[str]:
    """Return the texts that mean an asset, in lower case."""
    return {one.casefold() for one in (str(asset), display.name(asset), *display.names(asset))}


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
