"""The store in a SQLite file, and the source that follows it.

Theory of operation
===================

- `books` has one row per pair. A retracted pair keeps its row, without a body, so that readers see the change.
- `last` has one row: the last change, with the freshness, the number of rows of `books`, and the number of the change
  that it follows. `changes` has one row per change, with a random token. The last 100,000 are kept. A change is one
  transaction.
- A reader stops at a change. If the row of that change still exists, the reader continues with the rows of later
  revisions. Otherwise the file was restored from a copy, or the reader is far behind, and it reads all rows. It also
  does so if another file is at the path, and while anything is damaged.
- SQLite has no checksums, so each row has a digest of its columns. A row that does not match it, of whatever types its
  columns are, is an invalid record. If there are fewer rows than the last change says, the lost one may be of any pair.
- SQLite finds the log (`-wal`) by its name, and would combine the log of a killed publisher with any file that is put
  in place of the store. So it must belong to the content of the file (`log`). This is checked once, when a file is
  opened: no program can exchange the log of an open file.
- SQLite does nothing after a commit that the system could report to readers. So a store touches the file, which wakes
  them (`file_watch`). What other programs write is noticed a little later.
- Before SQLite 3.51.3, a checkpoint that runs while another connection commits may damage the file. So a store moves
  its log into the file with a second connection, while the first one is in a write transaction, so that no process can
  commit. `close` also empties the log: a checkpoint that waits for the lock of writers.
- SQLite begins the log anew only at a change that finds all of it moved, and no reader in it.
"""

from market_index_feeds.sqlite.file import Synchronous, is_sqlite
from market_index_feeds.sqlite.publishing import SqliteStore
from market_index_feeds.sqlite.reading import SqliteSource

__all__ = ["SqliteSource", "SqliteStore", "Synchronous", "is_sqlite"]
