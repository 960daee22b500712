"""Recordings: files of lines in which each change ends with a commit line that has the time of its recording.

What follows the last commit line is an unfinished change: its recorder is about to commit it, or was killed. Readers
ignore it, and the next recorder cuts it off.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from io import BufferedIOBase, FileIO
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final, final

from attrs import frozen

from market_index import Freshness, MarketIndex
from market_index_feeds.book_lines import Change, Invalid, read_line
from market_index_feeds.errors import FeedError, StoreError, reason_of
from market_index_feeds.file_lock import try_lock
from market_index_feeds.line_json import CommitLine, commit_to_json, retraction_to_json
from market_index_feeds.lines import CHUNK_BYTES, LineCutter
from market_index_feeds.names import shown_name
from market_index_feeds.regular_files import open_regular, open_without_waiting, require_regular
from market_index_feeds.source import NoVersion, Position, Progress, Source, Version, utc_now
from market_index_feeds.store import CheckedChange, Receipt, Store

if TYPE_CHECKING:
    from market_index.display import Tokens

LACKS_COMMITS: Final = "it must contain a commit line with recorded_at, got none (market-index record writes them)"
"""Why a file is not a recording."""

COMPRESSED: Final = ".gz"
"""The suffix of a compressed recording. It can be read, but not be continued."""

CHECK_SECONDS: Final = 1.0
"""Interval between two versions of a replay that is not due."""

LOOP_SECONDS: Final = 1.0
"""The time from the last change of a replay to the first one of the next round, divided by the speed."""


@frozen
class RecordedChange:
    """A change of a recording: its lines, its freshness and the time of its recording.

    The lines of the first change are the whole content. `end` is where the change ends in the file, in bytes.
    """

    lines: Change
    freshness: Freshness
    recorded_at: datetime
    end: int


def recorded(file: BufferedIOBase | FileIO) -> Iterator[RecordedChange]:
    """Yield the changes of an open recording.

    Raises `OSError`, and `FeedError` if there is no change, or at an invalid line before a commit line: the changes
    after it would contain the old price of its pair. Invalid lines after the last commit line are a part of the
    unfinished change: a power cut may leave any bytes.
    """
    cutter, lines, fault = LineCutter(), Change(is_whole=True), None
    while chunk := file.read(CHUNK_BYTES):
        for line in cutter.cut(chunk):
            content = read_line(line)
            if isinstance(content, Invalid):
                fault = fault or FeedError(f"line {line.number} rejected: {content.reason}")
            elif not isinstance(content, CommitLine):
                if content is not None:
                    lines.add_line(content)
            elif fault is not None:
                raise fault
            elif content.recorded_at is None:
                raise FeedError(f"line {line.number} rejected: recorded_at: missing")
            else:
                yield RecordedChange(lines, content.freshness, content.recorded_at, cutter.size)
                lines = Change()
    if lines.is_whole:
        raise fault or FeedError(LACKS_COMMITS)


@contextmanager
def opened_recording(path: Path) -> Iterator[BufferedIOBase | FileIO]:
    """Open a recording for reading; it is compressed if its name ends in `.gz`.

    Raises `OSError`, and `FeedError` in the block if the compressed file is damaged.
    """
    with open_regular(path) as file:
        if path.suffix != COMPRESSED:
            yield file
            return
        try:
            with gzip.open(file) as text:
                yield text
        except (EOFError, zlib.error) as error:
            raise FeedError(f"it cannot be inflated: {reason_of(error)}") from None


SAMPLE: Final = "sample:"
"""The name of the recording in this package."""

_SAMPLE: Final = Path(__file__).parent / "sample"


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
        FeedError: The file cannot be read, is not a recording, or contains an invalid line. A backtest must not skip a
            line: the indexes after it would contain the old price of its pair.
    """
    source = Replay(recording)
    try:
        with opened_recording(path_of(recording)) as file:
            for change in recorded(file):
                source.after(change, change.freshness)
                yield change.recorded_at, source.content.index
    except (FeedError, OSError, ValueError) as error:  # a path with a null byte
        raise FeedError(f"{source.name} cannot be replayed: {reason_of(error)}") from None


def sample_tokens() -> Tokens:
    """Return the entries of the token registry for the assets of `sample:`.

    >>> sample_tokens()
    <Tokens: 10 entries>
    """
    from market_index.display import Tokens  # noqa: PLC0415  # few programs show labels

    return Tokens.from_json((_SAMPLE / "tokens.json").read_bytes())


def path_of(recording: str | os.PathLike[str]) -> Path:
    """Return the path of a recording, also of `sample:`."""
    return _SAMPLE / "recording.ndjson.gz" if recording == SAMPLE else Path(recording)


@final
class Replay(Source):
    """A recording whose changes follow each other after the time between their recordings, divided by the speed.

    The time of publication is now. If the clock of the recorder was set back between two changes, the second one
    follows without delay. Times are added up from the first change, so a change that is delivered late does not delay
    the others. In a loop, the first change of a round is the whole content.
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
                for change in recorded(file):
                    if before is not None:
                        due += max((change.recorded_at - before).total_seconds(), 0) / self._speed
                    while (seconds := due - self._clock()) > 0 and not stop.wait(min(seconds, CHECK_SECONDS)):
                        if self.last is not None:
                            yield self.last
                    if stop.is_set():
                        return
                    yield self.after(change, Freshness(change.freshness.as_of, utc_now()))
                    before = change.recorded_at
            if not self.is_endless:
                return
            due += LOOP_SECONDS / self._speed

    def after(
        self, change: RecordedChange, freshness: Freshness, position: Position | None = None
    ) -> Version | NoVersion:
        """Return the version after the next change."""
        lines = change.lines
        return self.derive(
            lines.published, lines.retracted, is_whole=lines.is_whole, freshness=freshness, position=position
        )


@final
class Recorder(Store):
    """A recording that is open for appending; `mirror` writes the versions of a feed into it.

    A new file is created with its first change. An existing recording is continued. The file is locked, so another
    recorder gets an error. Changes are written without `fsync`: a power cut may lose the last ones. The number of a
    position is the size of the file in bytes.

    Raises:
        StoreError: The file cannot be opened, or another recorder has it open.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], datetime] = utc_now) -> None:
        """Open the recording at a path. `clock` returns wall-clock time in UTC."""
        super().__init__(shown_name(os.fspath(path)))
        self._path, self._clock = Path(path).absolute(), clock
        self._file: FileIO | None = None
        self._content = Replay(path)
        with self._errors("cannot be recorded into"):
            if self._path.suffix == COMPRESSED:
                raise FeedError(f"its name must not end in {COMPRESSED}: it is written uncompressed")
            if not self._path.parent.is_dir():
                raise FeedError("its folder must exist")
            with suppress(FileNotFoundError):
                self._file = self._opened()

    def _position(self) -> Position:
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

    def _read(self) -> Version:
        """Return the content, and cut off an unfinished change."""
        position, content = self._position(), self._content
        if position == content.content.position:
            return content.content
        if self._file is None or position.number == 0:
            content.derive((), is_whole=True, position=position)
            return content.content
        self._file.seek(0)
        try:
            for change in recorded(self._file):
                content.after(change, change.freshness, Position("", change.end))
        except FeedError as error:
            raise StoreError(f"{self.name} must be a recording, or a new file: {error}") from None
        self._file.truncate(change.end)
        return content.content

    def _write(self, change: CheckedChange, after: Position | None) -> Receipt:
        content, position = self._read(), self._position()
        self._require_position(after, position)
        bodies, gone = change.differences(content)
        now = self._clock()
        freshness = change.freshness_after(content.index.freshness, lambda: now)
        lines = b"\n".join(
            [*sorted(map(retraction_to_json, gone)), *bodies.values(), commit_to_json(CommitLine(freshness, now)), b""]
        )
        if self._file is None:
            self._file = self._opened(os.O_CREAT | os.O_EXCL)
        _append(self._file, lines, position.number)
        position = Position("", position.number + len(lines))
        self._content.derive([change.books[pair] for pair in bodies], gone, freshness=freshness, position=position)
        return Receipt(len(bodies), len(gone), position=position, freshness=freshness)

    def _close(self) -> None:
        """Close the file, which also unlocks it."""
        if self._file is not None:
            self._file.close()

    def _opened(self, more_flags: int = 0) -> FileIO:
        """Return the file, which is locked. Raises `OSError`, and `FeedError` if another recorder has it open."""
        with ExitStack() as stack:
            flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | more_flags
            file = stack.enter_context(FileIO(open_without_waiting(str(self._path), flags), "r+"))
            require_regular(os.fstat(file.fileno()))
            if not try_lock(file.fileno()):
                raise FeedError("another recorder has it open")
            stack.pop_all()
        return file


def _append(file: FileIO, lines: bytes, size: int) -> None:
    """Write all of the lines after `size` bytes, or nothing."""
    rest = memoryview(lines)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        with suppress(OSError):
            file.truncate(size)
        raise
