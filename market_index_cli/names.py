"""Pairs by the names of their assets: what a person types instead of identifiers."""

from __future__ import annotations

from contextlib import suppress

import click

from market_index import AssetId, InvalidAssetId, MarketIndex, Pair
from market_index_cli.errors import EXIT_ABSENT, Failed
from market_index_cli.tokens import Display


def exact_pair(base: str, quote: str) -> Pair | None:
    """Return the pair of two identifiers; None if one of the texts is not an identifier."""
    with suppress(InvalidAssetId):
        return Pair(AssetId.parse(base), AssetId.parse(quote))
    return None


def pair_of(base: str, quote: str, index: MarketIndex, display: Display) -> Pair:
    """Return the only pair of an index whose assets have these names or identifiers.

    Raises:
        Failed: No pair has them. The message names the reversed pair if that is tracked.
        click.UsageError: Several pairs have them.
    """
    found = _named(base, quote, index, display)
    if len(found) == 1:
        return found[0]
    if found:
        candidates = "".join(f"\n  {display.pair_name(pair)}: {pair.base} {pair.quote}" for pair in found)
        raise click.UsageError(f"{len(found)} pairs are named {base}/{quote}; use the identifiers of one:{candidates}")
    tracked = "".join(f"; the source has {pair}" for pair in _named(quote, base, index, display)[:1])
    raise Failed(EXIT_ABSENT, f"Pair {base}/{quote} not found{tracked}")


def _named(base: str, quote: str, index: MarketIndex, display: Display) -> list[Pair]:
    base, quote = base.casefold(), quote.casefold()
    return [pair for pair in index if base in display.names(pair.base) and quote in display.names(pair.quote)]
