"""The command `market-index record`, which writes the changes of a feed into a file."""

from __future__ import annotations

from pathlib import Path

import click

from market_index_cli import options
from market_index_cli.errors import feed_errors
from market_index_cli.relay import mirror_logged, opened_until_signal
from market_index_feeds import Recorder
from market_index_feeds.sources import LINES, kind_of


@click.command(context_settings=options.VARIABLES)
@options.FEED
@click.argument("recording", metavar="FILE")
@options.HEADERS
@options.LOG_FORMAT
@options.LOG_LEVEL
def record(source: str, recording: str, *, headers: Path | None, log_format: str, log_level: str) -> None:
    """Record the changes of FEED into FILE.

    The content of FEED is written, and then each change, until a signal or the end of FEED. FILE is a file of lines.
    Each change ends with a commit line, which has the time of its recording. So FILE is a FEED at every moment: serve
    FILE shows its last state, and serve replay:FILE shows all of them, one after the other. A recording that exists is
    continued: what follows its last commit line is cut off, and then it gets what has changed since. Any other file
    that exists is an error.

    \b
    Examples:
      market-index record market.db recording.ndjson
      market-index serve "replay:recording.ndjson?speed=10"
    """
    with feed_errors():
        is_file = kind_of(recording) is LINES and recording != "-"
    if not is_file:
        raise click.UsageError("FILE must be a file of lines such as recording.ndjson, got the name of another FEED")
    with opened_until_signal(source, headers, log_format, log_level) as feed:
        mirror_logged("recording %s into %s: %d pairs, %d bytes", feed, lambda: Recorder(recording))
