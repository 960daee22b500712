"""A connection to a store, which notices that a file of the store is no longer the one that this process opened.

SQLite finds the log (`-wal`) and the index of the log (`-shm`) by their names. It opens the index once per process, and
later connections share it, even if it was deleted. A process with a deleted index does not see what others write into
the log, and overwrites it. So the identities of the three files are recorded when a store is opened. SQLite does not
report which files it has opened, so opening is repeated until they are the same before and after it. Each connection
compares them with those of the files on disk: a publisher before and after each change, a feed that follows the store
after each read.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import RLock
from typing import Final, Literal, TypeAlias

from attrs import evolve, frozen

from market_index_feeds.sqlite.file import Unusable, require_schema

Identity: TypeAlias = tuple[int, int]
"""The device and inode of a file. No other file has them while it is open or exists."""


@frozen
class Files:
    """The identities of a store, its log and its index; None for a file that does not exist."""

    store: Identity | None
    log: Identity | None
    index: Identity | None


def _identity(path: Path) -> Identity | None:
    try:
        status = path.stat()
    except OSError:  # also if the folder is gone, or is no folder any more
        return None
    return status.st_dev, status.st_ino


class StoreConnection:
    """An open store, for one thread at a time. `sqlite` is in autocommit mode, and returns texts as bytes.

    `wait` is the timeout of SQLite for locks, in seconds. Raises `Unusable`, `OSError` and `sqlite3.Error`.
    """

    def __init__(self, path: Path, mode: Literal["ro", "rw"], wait: float) -> None:
        # Not resolved, so that a changed link is noticed. Absolute, because the process may change its directory.
        self._path = path.absolute()
        resolved = os.path.realpath(path)
        self._log, self._index = Path(f"{resolved}-wal"), Path(f"{resolved}-shm")
        self._process = os.getpid()
        self._opening = _OPENING.setdefault(resolved, RLock())
        with self._opening:
            store = _identity(self._path)
            shared = next((one.files for one in list(_OPEN) if one.files.store == store), None)
            attempts = _ATTEMPTS if shared is None else 1
            if not any(self._opens_same_files(mode, wait, shared) for _ in range(attempts)):
                raise Unusable(
                    f"it, its log ({path.name}-wal) or its index (-shm) was deleted or replaced while this process "
                    "has it open: close everything that has it open"
                )
            _OPEN.add(self)

    def _opens_same_files(self, mode: Literal["ro", "rw"], wait: float, shared: Files | None) -> bool:
        """Connect, and record the files. Return whether SQLite has certainly opened these; otherwise disconnect.

        It may have opened others if a file was created, deleted or replaced meanwhile. `shared` are the files of the
        other connections of this process.
        """
        before = self._files_on_disk()
        self.sqlite: sqlite3.Connection = _connect(self._path, mode, wait)
        with ExitStack() as stack:
            stack.callback(self._close_without_checkpoint)
            self.sqlite.text_factory = bytes
            # Checked again: the log may contain a later schema than the file.
            require_schema(self.sqlite.execute(_FIRST_READ).fetchone()[0])
            # A copy of a store may have another journal. After a conversion, the next read opens the log and the index.
            (journal,) = self.sqlite.execute(f"PRAGMA journal_mode {'= WAL' if mode == 'rw' else ''}").fetchone()
            self.sqlite.execute(_FIRST_READ).fetchone()
            self.files: Files = self._files_on_disk()
            has_index = self.files.index is not None or journal != b"wal"
            is_sure = has_index and self.files == (shared or before)
            if is_sure:
                stack.pop_all()
        return is_sure

    @property
    def is_in_place(self) -> bool:
        """Whether the store, its log and its index are those that this process opened."""
        return self._files_on_disk() == self.files

    def discard_other_index(self) -> None:
        """Delete an index that another process has created during a change. The caller holds the lock of publishers.

        It may refer to parts of the log that were overwritten since. Changes that are published with it would be lost.
        The next index is created from the whole log.
        """
        on_disk = self._files_on_disk()
        if evolve(on_disk, index=self.files.index) == self.files != on_disk:
            with suppress(OSError):  # it may be gone, or this user may not delete it
                self._index.unlink()

    def close(self, *, checkpoint: bool = True) -> None:
        """Close the connection. Closing twice does no harm. In a forked process it does nothing.

        If it is the last one, SQLite copies the log into the file, unless the connection is read-only. With another
        index or log, that may overwrite changes of others, so then it is prevented.
        """
        if os.getpid() != self._process:
            return
        with self._opening:
            if checkpoint and self.is_in_place:
                self.sqlite.close()
            else:
                self._close_without_checkpoint()
            _OPEN.discard(self)

    def _files_on_disk(self) -> Files:
        return Files(_identity(self._path), _identity(self._log), _identity(self._index))

    def _close_without_checkpoint(self) -> None:
        """Close the connection while a read-only one is open, so that it is not the last one."""
        with closing(self.sqlite), suppress(sqlite3.Error):
            # SQLite itself copies nothing into a file that was deleted or replaced.
            if self._path.is_file():
                with closing(_connect(self._path, "ro", 0)) as last:
                    with suppress(sqlite3.Error):  # it locks the file even if the log cannot be read
                        last.execute(_FIRST_READ).fetchone()
                    self.sqlite.close()


_ATTEMPTS: Final = 10
"""The maximum number of attempts to open a store. A second one is usual if the first one creates its log and index."""

_FIRST_READ: Final = "PRAGMA user_version"
"""Opens the log and the index."""

_OPENING: Final[dict[str, RLock]] = {}
"""Locks by path, held while a connection is opened or closed: SQLite opens the index with the first connection.

Reentrant, because the garbage collector may close a connection while this thread opens another one.
"""

_OPEN: Final[set[StoreConnection]] = set()
"""The open connections of this process."""


def _connect(path: Path, mode: Literal["ro", "rw"], wait: float) -> sqlite3.Connection:
    uri = f"{path.as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None, check_same_thread=False)
