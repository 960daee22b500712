"""Order books as lines of JSON, each in the shape that the order-book endpoint answers: a file, or a stream.

A later line replaces an earlier one of the same pair. A commit line, `{"as_of": …}`, makes the lines before it visible
at once. A line that contains neither is rejected, with its number and the reason. Blank lines, CRLF and a byte-order
mark at the start are allowed.
"""

from market_index_feeds.ndjson.source import open_ndjson_source, open_ndjson_stream

__all__ = ["open_ndjson_source", "open_ndjson_stream"]
