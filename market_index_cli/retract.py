"""The command `market-index retract`, which removes a pair from a store."""

from __future__ import annotations

import click

from market_index_cli import options
from market_index_cli.errors import EXIT_ABSENT, Failed, feed_errors
from market_index_cli.logs import log_plainly
from market_index_cli.names import exact_pair, pair_of
from market_index_cli.tokens import Display
from market_index_feeds import open_store


@click.command
@options.STORE
@options.BASE
@options.QUOTE
@options.WAIT
def retract(target: str, base: str, quote: str, *, wait: float) -> None:
    """Retract a pair from STORE.

    Then the pair is no longer tracked. BASE and QUOTE are identifiers, or names that only one pair of STORE has.
    """
    log_plainly()
    with feed_errors(), open_store(target, wait=wait, create=False) as store:
        version = store.read()
        pair = exact_pair(base, quote) or pair_of(base, quote, version.index, Display())
        # A change without a pair would be a heartbeat, as if the publisher were alive.
        if pair not in version.index and pair not in version.invalid:
            raise Failed(EXIT_ABSENT, f"Pair {pair} not found")
        receipt = store.retract(pair)
    click.echo(f"{store.name}: {pair} retracted, revision {receipt.position.number}")
