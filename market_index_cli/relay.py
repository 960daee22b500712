"""The command `market-index relay`, which keeps a store the same as a feed."""

from __future__ import annotations

import click

from market_index_cli.errors import EXIT_FEED, feed_errors
from market_index_cli.loading import loading
from market_index_cli.logs import LOG, errors_logged, log_with_times
from market_index_cli.options import FEED, LOGGED_AS, LOGGED_FROM, STORE, WAIT
from market_index_cli.signals import ended_by_signals
from market_index_feeds import Relay, open_feed, open_store


@click.command(
    short_help="Keep STORE the same as FEED.",
    epilog=f"""\b
Example:
  market-index relay market.db nats://127.0.0.1:4222/books

\b
Exit codes: 0 ended by a signal, 2 wrong usage, {EXIT_FEED} FEED or STORE cannot be opened.""",
)
@FEED
@STORE
@WAIT
@LOGGED_AS
@LOGGED_FROM
def relay(source: str, target: str, *, wait: float, log_format: str, log_level: str) -> None:
    """Follow FEED and publish its books into STORE, until a signal ends the relay.

    At the start and after every interruption, the whole of STORE is made the same as FEED: a pair that FEED does not
    name is retracted, unless FEED is not complete or contains an invalid record. No other program may publish into
    STORE. While the servers of STORE do not answer, the relay retries.
    """
    log_with_times(log_format, log_level)
    with errors_logged(instead_of_printed=log_format == "json"), feed_errors(), open_feed(source) as feed:
        relaying = Relay(feed, lambda: open_store(target, wait=wait))
        with ended_by_signals(relaying.close):
            with loading(feed.source, lambda: relaying.is_closing) as progress:
                receipt = relaying.start(progress)
            state = f"{len(relaying.live.current)} pairs, revision {receipt.revision}"
            LOG.info("relaying %s into %s: %s", feed.source, relaying.target, state)
            relaying.run()
