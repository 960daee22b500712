"""The embedded store: a SQLite file with order books, which any number of processes can follow.

Publishers take turns to write. A change of any number of books is one transaction and one revision. The file is in WAL
mode, so that readers and the writer do not block each other. Readers open the file read-only, and their transactions
last only while they read rows.
"""

from market_index_feeds.sqlite.source import is_sqlite, open_sqlite_source
from market_index_feeds.sqlite.store import WAIT_SECONDS, Synchronous, open_sqlite_store

__all__ = ["WAIT_SECONDS", "Synchronous", "is_sqlite", "open_sqlite_source", "open_sqlite_store"]
