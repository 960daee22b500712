"""Records a feed: writes its content into a file of lines, then each change of it.

Theory of operation
    A recording grows by whole changes: the lines of a change and its commit line are one write. A recorder that is
    killed leaves an unfinished change at most, which readers ignore, and which the next recorder cuts off.

    A new file appears at its path with its first change. An existing one is continued with the whole content of the
    feed, and a retract line for each recorded pair that the feed is known to lack (docs/coverage.md).

    The file itself is locked: another recorder gets an error.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from io import FileIO
from operator import attrgetter
from os import PathLike, fspath
from pathlib import Path
from typing import Final

from market_index import Freshness, LiveIndex, MarketIndex, OrderBook, Pair, wire
from market_index.wire import commit_to_json, retraction_to_json
from market_index_feeds.errors import reason_of
from market_index_feeds.feed import Feed
from market_index_feeds.file_lock import try_lock
from market_index_feeds.medium import Progress
from market_index_feeds.ndjson.recording import NotRecorded, changes_of
from market_index_feeds.opened import Closeable, shown_name
from market_index_feeds.publications import utc_now
from market_index_feeds.regular_files import move_unless_exists, open_without_waiting, require_regular
from market_index_feeds.store import StoreError

CLOSE_SECONDS: Final = 0.1
"""The maximum delay until `close` is noticed. A change is recorded without delay."""

_OPEN_FLAGS: Final = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)


class RecordingFile(Closeable):
    """A recording that is open for writing. `pairs` are those that it contains.

    Raises `StoreError` if the file is not a recording, another recorder has it open, or it cannot be opened. It is then
    unchanged.
    """

    def __init__(self, path: str, progress: Progress | None = None) -> None:
        self.name: str = shown_name(path)
        self.pairs: set[Pair] = set()
        self._path = Path(path)
        # The bytes up to the end of the last change.
        self._size = 0
        self._file: FileIO | None = None
        try:
            try:
                self._file = FileIO(open_without_waiting(path, _OPEN_FLAGS), "r+")
            except FileNotFoundError:
                self._path.parent.stat()  # the error of a missing folder
                return
            self._continue(self._file, progress)
        except (OSError, ValueError) as error:
            self.close()
            raise StoreError(f"{self.name} cannot be recorded into: {_reason(error)}") from None
        except BaseException:
            self.close()
            raise

    def append(self, lines: bytes) -> None:
        """Append a change; the first one creates a missing file. Atomic: on `StoreError`, nothing is written."""
        try:
            if self._file is None:
                self._create(lines)
            else:
                self._require_unchanged(self._file)
                _write(self._file, lines, self._size)
        except OSError as error:
            raise StoreError(
                f"{self.name} cannot be written: {_reason(error)} (it contains all changes before this one)"
            ) from None
        self._size += len(lines)

    def close(self) -> None:
        """Close the file, which also unlocks it. Closing twice does no harm."""
        if self._file is not None:
            self._file.close()

    def _continue(self, file: FileIO, progress: Progress | None) -> None:
        require_regular("it", os.fstat(file.fileno()))
        self._lock(file)
        try:
            for one in changes_of(file, progress):
                self.pairs.difference_update(one.changes.removed)
                self.pairs.update(one.changes.books)
                self._size = one.offset
        except NotRecorded as error:
            raise StoreError(f"{self.name} must be a recording, or a new file: {error}") from None
        file.truncate(self._size)

    def _create(self, lines: bytes) -> None:
        new = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}.new")
        file = FileIO(os.open(new, _OPEN_FLAGS | os.O_CREAT | os.O_EXCL, 0o666), "r+")
        try:
            self._lock(file)
            _write(file, lines, 0)
            os.fsync(file.fileno())
            if not move_unless_exists(new, self._path):
                raise StoreError(f"{self.name} cannot be recorded into: another program has just created it")
            self._file = file
        finally:
            if self._file is None:
                file.close()
            new.unlink(missing_ok=True)

    def _require_unchanged(self, file: FileIO) -> None:
        """Raise `StoreError` if another program has removed, replaced, shortened or extended the file."""
        ours = os.fstat(file.fileno())
        try:
            is_same = os.path.samestat(ours, self._path.stat()) and ours.st_size == self._size
        except FileNotFoundError:
            is_same = False
        if not is_same:
            raise StoreError(f"{self.name} was removed, replaced or changed by another program while it was recorded")

    def _lock(self, file: FileIO) -> None:
        if not try_lock(file.fileno()):
            raise StoreError(f"{self.name} cannot be recorded into: another recorder has it open")


class Recorder:
    """Follows a feed, and records its content and all changes into a file of lines.

    Changes that follow each other before one of them is written become one change, as for every other follower of the
    feed. What is recorded is what is live: a pair that the feed keeps stays, and an as_of that is not known is null.
    """

    def __init__(self, feed: Feed, recording: str | PathLike[str], *, clock: Callable[[], datetime] = utc_now) -> None:
        self.feed: Feed = feed
        self.live: LiveIndex = LiveIndex()
        self._path = fspath(recording)
        self._clock = clock
        self._file: RecordingFile | None = None
        self._recorded = MarketIndex()
        # The pairs of an earlier recording that the feed neither names nor has retracted.
        self._kept: set[Pair] = set()
        # A flag, because a signal handler may set it: it must not end a wait whose locks the handler interrupted.
        self._is_closing = False

    def start(self, progress: Progress | None = None) -> None:
        """Open the file, load the feed, and record its content. Then call `run`.

        Raises `StoreError` if the file cannot be opened or written, or is not a recording, and `FeedError` if the feed
        cannot be read. An existing file then contains what it contained before.
        """
        self._file = file = RecordingFile(self._path, progress)
        try:
            self.feed.start(self.live, progress)
            self._recorded = index = self.live.current
            self._kept = file.pairs.difference(index)
            gone = self._gone()
            file.append(_lines(index.values(), gone, commit_to_json(self._freshness(index), self._clock())))
        except BaseException:
            file.close()
            raise

    def run(self) -> None:
        """Record each change until `close`. Call it once, after `start`.

        Raises `StoreError` if a change cannot be written. The file then contains all changes before it.
        """
        file = self._file
        if file is None:
            raise RuntimeError("a recorder is started before it runs")
        with file:
            while not self._is_closing:
                self._record(file, self.live.wait(self._recorded, CLOSE_SECONDS))

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called."""
        return self._is_closing

    def close(self) -> None:
        """End `run`, after the change that is being written. Closing twice does no harm.

        Any thread and any signal handler may call it.
        """
        self._is_closing = True

    def _record(self, file: RecordingFile, index: MarketIndex) -> None:
        self._kept.difference_update(index)
        gone = self._gone()
        lines = change_lines(self._recorded, index, self._clock(), gone, self._freshness(index))
        if lines:
            file.append(lines)
        self._recorded = index

    def _gone(self) -> list[Pair]:
        """Return the pairs of an earlier recording to retract now: as a relay, those that the feed is known to lack."""
        coverage = self.feed.content.coverage
        gone = set(self._kept) if coverage.names_all_pairs else self._kept.intersection(coverage.retracted)
        self._kept -= gone
        return sorted(gone, key=attrgetter("ledger_order"))

    def _freshness(self, index: MarketIndex) -> Freshness:
        """Return the freshness to record. While pairs of an earlier recording are kept, the as_of is not known."""
        return index.freshness.without_as_of() if self._kept else index.freshness


def change_lines(
    before: MarketIndex,
    after: MarketIndex,
    recorded_at: datetime,
    also_gone: Iterable[Pair] = (),
    freshness: Freshness | None = None,
) -> bytes:
    """Return the lines of a change, with its commit line; empty if no book, pair or freshness differs.

    `also_gone` are pairs to retract that neither index has. `freshness` is written instead of that of `after`.
    """
    changed, removed = after.changes_since(before)
    books, gone = [book for book in changed if before.get(book.pair) != book], [*removed, *also_gone]
    if not books and not gone and after.freshness == before.freshness:
        return b""
    return _lines(books, gone, commit_to_json(freshness or after.freshness, recorded_at))


def _lines(books: Iterable[OrderBook], gone: Iterable[Pair], commit: bytes) -> bytes:
    lines = [*map(retraction_to_json, gone), *map(wire.order_book_to_json, books), commit, b""]
    return b"\n".join(lines)


def _write(file: FileIO, lines: bytes, size: int) -> None:
    """Write all of the lines after `size` bytes, or nothing."""
    rest = memoryview(lines)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        with suppress(OSError):
            file.truncate(size)
        raise


def _reason(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return f"{error.strerror} (this user must be able to read and write it, and to write its folder)"
    return reason_of(error)
