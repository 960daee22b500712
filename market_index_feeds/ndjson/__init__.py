"""A file or stream of order books, one per line, in the JSON of the order-book endpoint.

A later line replaces an earlier line of the same pair. A retract line, `{"retract": true, "base": …, "quote": …}`,
retracts its pair. A commit line, `{"as_of": …}`, makes the lines before it visible atomically. Any other line is
rejected, with its number and the reason. Blank lines, CRLF and an initial byte-order mark are allowed.

A recording is such a file in which every commit line has the time of its recording. It can also be replayed.
"""

from market_index_feeds.ndjson.recorder import Recorder
from market_index_feeds.ndjson.recording import SAMPLE, replay
from market_index_feeds.ndjson.source import open_ndjson_source, open_replay_source

__all__ = ["SAMPLE", "Recorder", "open_ndjson_source", "open_replay_source", "replay"]
