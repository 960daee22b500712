"""The command `market-index record`, which writes the changes of a feed into a file."""

from __future__ import annotations

import click

from market_index_cli.errors import EXIT_FEED, feed_errors
from market_index_cli.loading import loading
from market_index_cli.logs import LOG, errors_logged, log_with_times
from market_index_cli.options import FEED, LOGGED_AS, LOGGED_FROM
from market_index_cli.signals import ended_by_signals
from market_index_feeds import Recorder, is_sqlite, open_feed
from market_index_feeds.opened import shown_name


@click.command(
    short_help="Record the changes of FEED into FILE.",
    epilog=f"""\b
Examples:
  market-index record market.db recording.ndjson
  market-index serve "replay:recording.ndjson?speed=10"

\b
Exit codes: 0 ended by a signal, 2 wrong usage, {EXIT_FEED} FEED cannot be opened,
or FILE cannot be opened or written.""",
)
@FEED
@click.argument("recording", metavar="FILE")
@LOGGED_AS
@LOGGED_FROM
def record(source: str, recording: str, *, log_format: str, log_level: str) -> None:
    """Follow FEED, and write its content and then each change into FILE, until a signal ends the recording.

    FILE is a file of lines. Each change ends with a commit line, which has the time of its recording. So FILE is a FEED
    at every moment: serve FILE shows its last state, and serve replay:FILE shows all of them, one after the other. A
    recording that exists is continued: what follows its last commit line is cut off, and the whole content of FEED is
    written again. Any other file that exists is an error.
    """
    if "://" in recording or recording.startswith(("orders:", "replay:", "sample:", "-")) or is_sqlite(recording):
        raise click.UsageError(f"FILE must be a file of lines such as recording.ndjson, got {shown_name(recording)}")
    log_with_times(log_format, log_level)
    with errors_logged(instead_of_printed=log_format == "json"), feed_errors(), open_feed(source) as feed:
        recorder = Recorder(feed, recording)
        with ended_by_signals(recorder.close):
            with loading(feed.source, lambda: recorder.is_closing) as progress:
                recorder.start(progress)
            LOG.info("recording %s into %s: %d pairs", feed.source, recording, len(recorder.live.current))
            recorder.run()
