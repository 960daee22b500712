"""The source that follows a SQLite file."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Final, final

from market_index_feeds.errors import FeedError, reason_of
from market_index_feeds.file_watch import FileWatch
from market_index_feeds.names import shown_name
from market_index_feeds.source import NoVersion, Position, Progress, Source, Version
from market_index_feeds.sqlite.file import Identity, StoreFile, errors, require_file
from market_index_feeds.sqlite.rows import ROWS, Rows, is_in_history, last_change

READ_WAIT_SECONDS: Final = 1.0
"""How long a reader waits while another process recovers the log of a killed writer. Nothing else blocks a reader."""


@final
class SqliteSource(Source):
    """The file of a store. Only rows that changed are read, unless something is damaged.

    Raises:
        FeedError: The file is missing, or is not a store.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(shown_name(os.fspath(path)))
        # Where the last read stopped: the file, and the position of its last change. None: all rows are to be read.
        self._file: Identity | None = None
        self._position: Position | None = None
        try:
            self._path = Path(path).absolute()  # the process may change its working directory
            with errors(self._path):
                require_file(self._path)
            with self._open() as connection, connection.transaction("BEGIN"):
                connection.require_store()
        except (FeedError, ValueError) as error:  # a path with a null byte
            raise FeedError(f"{self.name} cannot be opened: {reason_of(error)}") from None

    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        """Poll the file; if another one is renamed over it, follow that."""
        while not stop.is_set():
            with self._open() as connection, closing(FileWatch(self._path)) as watch:
                found: Version | NoVersion | None = None
                seen = None
                while connection.is_in_place and not stop.is_set():
                    now = connection.sqlite.execute("PRAGMA data_version").fetchone()
                    if now != seen:
                        found = self.read_from(connection, stop, progress)
                        seen, progress = now, None
                    if found is not None:
                        yield found
                    watch.wait(stop)

    def read_from(
        self, connection: StoreFile, stop: Event, progress: Progress | None = None
    ) -> Version | NoVersion | None:
        """Read what changed since the last call, and return the version; None if `stop` is set meanwhile."""
        with connection.transaction("BEGIN"):
            connection.require_store()
            return self.read_within(connection, stop, progress)

    def read_within(
        self, connection: StoreFile, stop: Event, progress: Progress | None = None
    ) -> Version | NoVersion | None:
        """Read as `read_from`, within a transaction."""
        sqlite = connection.sqlite
        change = last_change(sqlite)
        found = Rows(change)
        known = self._position if self._file == connection.file else None
        if known is not None and is_in_history(sqlite, known):
            is_whole, rows = False, sqlite.execute(f"{ROWS} WHERE revision > ?", (known.number,))
        else:
            is_whole, rows = True, sqlite.execute(ROWS)
        for row in rows:
            if stop.is_set():
                return None
            if progress is not None:
                progress(0, 0)
            found.add(*row)
        found.end(is_whole=is_whole)
        self.reject_new({record: error for record, _, error in found.invalid.values()})
        version = self.derive(
            [book for book in found.content.values() if book is not None],
            [pair for pair, book in found.content.items() if book is None],
            invalid={pair for _, pair, _ in found.invalid.values()},
            is_whole=is_whole,
            freshness=change.freshness,
            position=change.position,
        )
        # Last, so that a read that is interrupted is repeated. While anything is damaged, all rows are read each time.
        self._file, self._position = connection.file, None if found.invalid else change.position
        return version

    @contextmanager
    def _open(self) -> Iterator[StoreFile]:
        with errors(self._path), closing(StoreFile(self._path, "ro", READ_WAIT_SECONDS)) as connection:
            yield connection
