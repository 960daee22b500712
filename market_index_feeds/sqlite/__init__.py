"""The embedded store: order books in one SQLite file, which one process publishes into and any number follow.

A change of any number of books is one transaction and one revision. The file is in WAL mode: readers and the writer do
not wait for one another. Readers open it read-only, and their transactions last only while they read rows.
"""

from market_index_feeds.sqlite.source import is_sqlite, open_sqlite_source
from market_index_feeds.sqlite.store import WAIT_SECONDS, Synchronous, open_sqlite_store

__all__ = ["WAIT_SECONDS", "Synchronous", "is_sqlite", "open_sqlite_source", "open_sqlite_store"]
