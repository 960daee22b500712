"""Order books as lines of JSON, each in the shape that the order-book endpoint answers: a file, or a stream.

A later line replaces an earlier one of the same pair. A line that contains no order book is rejected, with its number
and the reason. Blank lines, CRLF and a byte-order mark at the start are allowed.
"""

from market_index_feeds.ndjson.book_lines import BookBatch, BookStream, RejectedLine, open_book_stream
from market_index_feeds.ndjson.source import open_ndjson_source

__all__ = ["BookBatch", "BookStream", "RejectedLine", "open_book_stream", "open_ndjson_source"]
