"""Recordings: files of lines in which each change ends with a commit line that has the time of its recording.

What follows the last commit line is an unfinished change: its recorder is about to commit it, or was killed. Readers
ignore it, and the next recorder cuts it off.
"""

from __future__ import annotations

import gzip
import os
import secrets
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from io import BufferedIOBase, FileIO
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final, final

from attrs import frozen

from market_index import Freshness, MarketIndex, OrderBook, Pair, wire
from market_index.wire import CommitLine, freshness_to_json, retraction_to_json
from market_index_feeds.book_lines import Change, Invalid, read_line
from market_index_feeds.errors import FeedError, reason_of
from market_index_feeds.feed import utc_now
from market_index_feeds.file_lock import try_lock
from market_index_feeds.lines import CHUNK_BYTES, LineCutter
from market_index_feeds.opened import shown_name
from market_index_feeds.regular_files import move_unless_exists, open_regular, open_without_waiting, require_regular
from market_index_feeds.source import NoVersion, Position, Progress, Source, Version
from market_index_feeds.store import Conflict, Receipt, StoreError, Target, books_by_pair, checked_pairs, published_now

LACKS_COMMITS: Final = "it must contain a commit line with recorded_at, got none (market-index record writes them)"
"""Why a file is not a recording."""

CHECK_SECONDS: Final = 1.0
"""Interval between two versions of a replay that is not due."""

LOOP_SECONDS: Final = 1.0
"""The time from the last change of a replay to the first one of the next round, divided by the speed."""

_OPEN_FLAGS: Final = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)


@frozen
class RecordedChange:
    """A change of a recording, with the time of its recording. `end` is the number of bytes up to its end."""

    change: Change
    recorded_at: datetime
    end: int


def recorded(file: BufferedIOBase | FileIO) -> Iterator[RecordedChange]:
    """Yield the changes of an open recording.

    Raises `OSError`, and `FeedError` at a line that is not valid, because what follows would have prices that are no
    longer valid, and if there is no change.
    """
    cutter, change, is_recorded = LineCutter(), Change(), False
    while chunk := file.read(CHUNK_BYTES):
        for line in cutter.cut(chunk):
            content = read_line(line)
            if isinstance(content, Invalid):
                raise FeedError(f"line {line.number} rejected: {content.reason}")
            if not isinstance(content, CommitLine):
                if content is not None:
                    change.add_line(content)
            elif content.recorded_at is None:
                raise FeedError(f"line {line.number} rejected: recorded_at: missing")
            else:
                change.freshness, is_recorded = content.freshness, True
                yield RecordedChange(change, content.recorded_at, cutter.size)
                change = Change()
    if not is_recorded:
        raise FeedError(LACKS_COMMITS)


@contextmanager
def opened_recording(path: Path) -> Iterator[BufferedIOBase | FileIO]:
    """Open a recording for reading; it is compressed if its name ends in `.gz`. Raises `OSError`."""
    with open_regular(path) as file:
        if path.suffix != ".gz":
            yield file
        else:
            with gzip.open(file) as text:
                yield text


SAMPLE: Final = "sample:"
"""The name of the recording in this package."""

_SAMPLE_FILE: Final = Path(__file__).parent / "sample" / "recording.ndjson.gz"


def replay(recording: str | os.PathLike[str]) -> Iterator[tuple[datetime, MarketIndex]]:
    r"""Yield the index after each change of a recording, with the time of its recording, as fast as they are read.

    The times are wall-clock time of the recorder, in UTC. The freshness of an index is the recorded one. Indexes share
    what has not changed, so all of them can be kept. A recording whose name ends in `.gz` is inflated. `sample:` is the
    recording in this package.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> lines = (
    ...     '{"base": "ADA", "quote": "%s:", "spot": "0.5"}\n' % ("00" * 28)
    ...     + '{"as_of": "slot 7", "recorded_at": "2026-11-22T04:17:03Z"}\n'
    ... )
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "recording.ndjson")
    ...     _ = path.write_text(lines)
    ...     [(time.hour, index, index.as_of) for time, index in replay(path)]
    [(4, <MarketIndex: 1 pairs>, 'slot 7')]

    Raises:
        FeedError: The file cannot be read, is not a recording, or contains a line that is rejected. A backtest must not
            skip a line: the indexes after it would have a price that is no longer valid.
    """
    path, index = path_of(recording), MarketIndex()
    try:
        with opened_recording(path) as file:
            for one in recorded(file):
                index = _after(index, one.change)
                yield one.recorded_at, index
    except (FeedError, OSError, EOFError, ValueError) as error:
        raise FeedError(f"{shown_name(os.fspath(recording))} cannot be replayed: {reason_of(error)}") from None


def path_of(recording: str | os.PathLike[str]) -> Path:
    """Return the path of a recording, also of `sample:`."""
    return _SAMPLE_FILE if recording == SAMPLE else Path(recording)


def _after(index: MarketIndex, change: Change) -> MarketIndex:
    index = index.with_books(*change.published).without(*change.retracted)
    return index if change.freshness is None else index.with_freshness(change.freshness)


@final
class Replay(Source):
    """A recording whose changes follow each other after the time between their recordings, divided by the speed.

    They are published now. A difference below 0, of a clock that was set, counts as 0. Times are added up from the
    first change, so a change that is delivered late does not delay the others. In a loop, the first change of a round
    is the whole content.
    """

    is_stream = True

    def __init__(
        self,
        recording: str | os.PathLike[str],
        *,
        speed: float = 1.0,
        loop: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Open a recording by its path, or by `sample:`. `clock` returns seconds."""
        super().__init__(SAMPLE if recording == SAMPLE else shown_name(os.fspath(recording)))
        self.is_endless = loop
        self._path, self._speed, self._clock = path_of(recording).absolute(), speed, clock

    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        """Yield each version when it is due, and the last one again each second."""
        del progress
        due = self._clock()
        while not stop.is_set():
            before: datetime | None = None
            with opened_recording(self._path) as file:
                for one in recorded(file):
                    if before is not None:
                        due += max((one.recorded_at - before).total_seconds(), 0) / self._speed
                    while (seconds := due - self._clock()) > 0 and not stop.wait(min(seconds, CHECK_SECONDS)):
                        if self.last is not None:
                            yield self.last
                    if stop.is_set():
                        return
                    change = one.change
                    as_of = None if change.freshness is None else change.freshness.as_of
                    freshness, is_first = published_now(as_of), before is None
                    yield self.derive(change.published, change.retracted, is_whole=is_first, freshness=freshness)
                    before = one.recorded_at
            if not self.is_endless:
                return
            due += LOOP_SECONDS / self._speed


@final
class Recorder(Target):
    """A recording that is open for appending; `mirror` writes the versions of a feed into it.

    A new file appears at its path with its first change. An existing recording is continued. The file is locked, so
    another recorder gets an error. Changes are written without `fsync`: a power cut may lose the last ones.

    Raises:
        StoreError: The file cannot be opened, or another recorder has it open.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], datetime] = utc_now) -> None:
        super().__init__(shown_name(os.fspath(path)))
        self._path, self._clock = Path(path), clock
        # The bytes up to the end of the last change.
        self._size = 0
        self._file: FileIO | None = None
        try:
            self._file = FileIO(open_without_waiting(os.fspath(path), _OPEN_FLAGS), "r+")
            require_regular("it", os.fstat(self._file.fileno()))
            self._lock(self._file)
        except FileNotFoundError:
            if not self._path.parent.is_dir():
                raise StoreError(f"{self.name} cannot be recorded into: its folder must exist") from None
        except (OSError, ValueError) as error:
            self.close()
            raise StoreError(f"{self.name} cannot be recorded into: {_reason(error)}") from None
        except StoreError:
            self.close()
            raise

    @property
    def position(self) -> Position:
        """The size of the file. Raises `StoreError` if another file is at its path."""
        if self._file is None:
            return Position("", 0)
        ours = os.fstat(self._file.fileno())
        try:
            is_same = os.path.samestat(ours, self._path.stat())
        except OSError:
            is_same = False
        if not is_same:
            raise StoreError(f"{self.name} was removed or replaced while it was recorded")
        return Position("", ours.st_size)

    def read(self) -> Version:
        """Return the content, and cut off an unfinished change. Raises `StoreError` if the file is not a recording."""
        index, self._size = MarketIndex(), 0
        if self._file is not None:
            self._file.seek(0)
            try:
                for one in recorded(self._file):
                    index, self._size = _after(index, one.change), one.end
                self._file.truncate(self._size)
            except (FeedError, OSError) as error:
                raise StoreError(f"{self.name} must be a recording, or a new file: {reason_of(error)}") from None
        return Version(index, position=Position("", self._size))

    def update(
        self,
        books: Iterable[OrderBook],
        retract: Iterable[Pair] = (),
        freshness: Freshness | None = None,
        *,
        after: Position | None = None,
    ) -> Receipt:
        """Append a change with its commit line; see `Target.update`."""
        by_pair = books_by_pair(books)
        gone = checked_pairs(retract).difference(by_pair)
        position = self.position
        if position.number != self._size or after not in {None, position}:
            raise Conflict(f"{self.name} was changed by another program")
        commit = freshness_to_json(freshness or Freshness(), self._clock())
        retractions = sorted(map(retraction_to_json, gone))
        lines = b"\n".join([*retractions, *map(wire.order_book_to_json, by_pair.values()), commit, b""])
        try:
            if self._file is None:
                self._file = self._created(lines)
            else:
                _write(self._file, lines, self._size)
        except OSError as error:
            raise StoreError(
                f"{self.name} cannot be written: {_reason(error)} (it contains all changes before this one)"
            ) from None
        self._size += len(lines)
        return Receipt(self._size, len(by_pair), len(gone), Position("", self._size))

    def close(self) -> None:
        """Close the file, which also unlocks it. Closing twice does no harm."""
        if self._file is not None:
            self._file.close()

    def _created(self, lines: bytes) -> FileIO:
        """Return a new file with its first change, which appears at the path as a whole."""
        new = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}.new")
        file = FileIO(os.open(new, _OPEN_FLAGS | os.O_CREAT | os.O_EXCL, 0o666), "r+")
        try:
            self._lock(file)
            _write(file, lines, 0)
            os.fsync(file.fileno())
            is_created = move_unless_exists(new, self._path)
        except BaseException:
            file.close()
            raise
        finally:
            new.unlink(missing_ok=True)
        if not is_created:
            file.close()
            raise StoreError(f"{self.name} cannot be recorded into: another program has just created it")
        return file

    def _lock(self, file: FileIO) -> None:
        if not try_lock(file.fileno()):
            raise StoreError(f"{self.name} cannot be recorded into: another recorder has it open")


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
