"""The store in a SQLite file, and the source that follows it.

Theory of operation
===================

- `books` has one row per pair. A retracted pair keeps its row, without a body, so that readers see the change.
- `changes` has one row per change, with a random token. The last 100,000 are kept. A change is one transaction.
- A reader stops at a change. If the row of that change still exists, the reader continues with the rows of later
  revisions. Otherwise the file was restored from a copy, or the reader is far behind, and it reads all rows. It also
  does so if another file is at the path.
- SQLite has no checksums, so each row has a digest of its columns. A row that does not match it, of whatever types its
  columns are, is an invalid record until it is overwritten. If the row of the last change is invalid, the freshness is
  not known until the next change.
- Another file may be renamed over the store. SQLite finds the log (`-wal`) by its name, and would combine the new file
  with the log of the old one. So each change writes the identity of its file into the header (`user_version`), which
  is in the first page. Every log with a change contains that page. If there is a log, and the header that is read with
  it names another file, the log belongs to that one. A row of the last change alone cannot show this: it may be in a
  page that the log does not contain.
- Before SQLite 3.51.3, a checkpoint that runs while another connection commits may damage the file. So a store moves
  its log into the file with a second connection, while the first one is in a write transaction, so that no process can
  commit.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from threading import Event, RLock
from typing import Any, Final, Literal, TypeAlias, cast, final

from attrs import frozen

from market_index import (
    AssetId,
    Freshness,
    InvalidFreshness,
    InvalidOrderBook,
    MarketIndexError,
    OrderBook,
    Pair,
    wire,
)
from market_index.errors import safe_repr
from market_index.wire import format_time, parse_time
from market_index_feeds.errors import FeedError, reason_of
from market_index_feeds.opened import shown_name
from market_index_feeds.regular_files import move_unless_exists
from market_index_feeds.source import UNKNOWN, NoVersion, Position, Progress, Source, Version
from market_index_feeds.store import (
    BookTooLarge,
    Conflict,
    Receipt,
    Store,
    StoreBusy,
    StoreError,
    books_by_pair,
    checked_pairs,
    published_now,
)

POLL_SECONDS: Final = 0.006
"""Interval between two polls for a change."""

POLLS_PER_CHECK: Final = 20
"""How many polls that find no change there are for each version that is yielded again."""

READ_WAIT_SECONDS: Final = 1.0
"""Timeout of a reader for the recovery of the log of a killed writer, which is all that blocks a reader."""

WAIT_SECONDS: Final = 5.0
"""The default timeout of a writer that waits for others."""

MAX_CHANGES: Final = 100_000
"""How many changes a file keeps, in some 10 MB. A reader of an older one reads all rows again.

With 1,000, a reader that needs 9 s for all rows never catches up with 900 changes per second.
"""

LOG_BYTES: Final = 8 * 1024 * 1024
"""About how many bytes of changes a store writes before it moves the log into the file."""

DIGEST_BYTES: Final = 16

SUFFIXES: Final = {".db", ".sqlite", ".sqlite3"}
"""A file with one of these suffixes is a store, regardless of its content."""

APPLICATION_ID: Final = int.from_bytes(b"mki\x04")
"""The application id in the header of the file. Its last byte is the version of the schema."""

Synchronous: TypeAlias = Literal["full", "normal"]
"""SQLite's `PRAGMA synchronous`: acknowledged changes survive a power cut (full), or only a crash of programs."""

Identity: TypeAlias = tuple[int, int]
"""The device and inode of a file. No other file has them while it is open or exists."""

_TEXT_SUFFIXES: Final = {".csv", ".json", ".jsonl", ".ndjson"}
_CLOSE_WAIT_SECONDS: Final = 0.1
_MAX_WAIT_SECONDS: Final = 1_000_000.0  # SQLite counts milliseconds in 32 bits

# A book of 50 levels a side fits a page of 8 KiB.
_SCHEMA: Final = f"""
PRAGMA page_size = 8192;
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE books (pair TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL, digest BLOB NOT NULL, body TEXT);
CREATE INDEX books_by_revision ON books (revision);
CREATE TABLE changes (
    revision INTEGER PRIMARY KEY, token TEXT NOT NULL, as_of TEXT, published_at TEXT, digest BLOB NOT NULL
);
PRAGMA application_id = {APPLICATION_ID};
"""

# A name of another type would be a second row of its pair.
_ROWS: Final = "SELECT rowid, CASE typeof(pair) WHEN 'text' THEN pair END, revision, digest, body FROM books"
_PUT: Final = """
INSERT INTO books (pair, revision, digest, body) VALUES (?, ?, ?, ?)
ON CONFLICT (pair) DO UPDATE SET revision = excluded.revision, digest = excluded.digest, body = excluded.body
"""
_CHANGES: Final = "SELECT revision, token, as_of, published_at, digest FROM changes ORDER BY revision DESC"


class Connection:
    """An open file, for one thread at a time. `file` is its identity. Texts are read as bytes.

    It reads nothing yet. Raises `OSError`, `sqlite3.Error`, and `FeedError` if it is not a regular file.
    """

    def __init__(self, path: Path, mode: Literal["ro", "rw"], wait: float) -> None:
        # Not resolved, so that a changed link is noticed.
        self.path: Path = path
        self._log = f"{os.path.realpath(path)}-wal"
        while True:
            before = _identity(path)  # SQLite does not report that a file is missing, and waits for a pipe
            self.sqlite: sqlite3.Connection = sqlite3.connect(
                f"{path.as_uri()}?mode={mode}", uri=True, timeout=wait, isolation_level=None, check_same_thread=False
            )
            try:
                self.file: Identity = _identity(path)
            except BaseException:
                self.sqlite.close()
                raise
            if self.file == before:
                break
            # Another file was renamed over it meanwhile.
            self.sqlite.close()
        self.sqlite.text_factory = bytes

    @property
    def is_in_place(self) -> bool:
        """Whether the path still names this file."""
        try:
            return _identity(self.path) == self.file
        except (OSError, FeedError):
            return False

    @property
    def has_log(self) -> bool:
        """Whether there is a log that is not empty."""
        try:
            return os.stat(self._log).st_size > 0  # noqa: PTH116  # `Path.stat` takes twice as long
        except FileNotFoundError:
            return False

    def require_store(self) -> None:
        """Raise `FeedError` if the file is not a store, or if its log belongs to another file."""
        has_log = self.has_log
        (application,) = self.sqlite.execute("PRAGMA application_id").fetchone()
        (writer,) = self.sqlite.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID:
            raise FeedError(f"it must be a store of this version, got a file of the application {application:#x}")
        if has_log and writer != self.signature:
            raise FeedError(
                f"its log ({self.path.name}-wal) belongs to another file: end all programs that have it open; then,"
                " if it was renamed over another store, remove the log; if it was restored, or copied with its log,"
                f" move the log into it (sqlite3 {self.path.name} 'PRAGMA wal_checkpoint(TRUNCATE)')"
            )

    @property
    def signature(self) -> int:
        """What the header says about which file the last change was written into: 31 bits of its inode."""
        return _signature(self.file)

    @contextmanager
    def transaction(self, begin: Literal["BEGIN", "BEGIN IMMEDIATE"]) -> Iterator[sqlite3.Connection]:
        """Run the body in one transaction. It is atomic: the body reads one state, and on error nothing is written."""
        try:
            # Inside `try`, because an interrupt may be raised when this returns.
            self.sqlite.execute(begin)
            yield self.sqlite
            self.sqlite.execute("COMMIT")
        finally:
            if self.sqlite.in_transaction:
                self.sqlite.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file. Closing twice does no harm."""
        self.sqlite.close()


def _identity(path: Path) -> Identity:
    """Return the identity of a file. Raises `OSError`, and `FeedError` if it is not a regular file."""
    status = os.stat(path)  # noqa: PTH116  # `Path.stat` takes twice as long, at each poll
    if not stat.S_ISREG(status.st_mode):
        raise FeedError("it must be a regular file")
    return status.st_dev, status.st_ino


def _signature(file: Identity) -> int:
    return file[1] & 0x7FFF_FFFF


@frozen
class _Change:
    """A row of `changes`: where the store is, and the freshness of all books."""

    position: Position
    freshness: Freshness

    def row(self) -> tuple[object, ...]:
        time = self.freshness.published_at
        published_at = None if time is None else format_time(time)
        row = self.position.number, self.position.run, self.freshness.as_of, published_at
        return *row, _digest_of_change(row)


def _digest_of_change(row: tuple[object, ...]) -> bytes:
    as_read = tuple(value.encode() if type(value) is str else value for value in row)
    return blake2b(repr(as_read).encode(), digest_size=DIGEST_BYTES).digest()


def _change_of(row: tuple[Any, ...]) -> _Change | None:
    """Return the change of a row; None if the row is damaged."""
    revision, token, as_of, published_at, digest = row
    if digest != _digest_of_change(row[:-1]):
        return None
    try:
        time = None if published_at is None else parse_time(str(published_at, "ascii"))
        freshness = Freshness(None if as_of is None else str(as_of, "ascii"), time)
        return _Change(Position(str(token, "ascii"), revision), freshness)
    except (InvalidFreshness, TypeError, ValueError):  # another program wrote it
        return None


def _last_change(sqlite: sqlite3.Connection) -> tuple[_Change, bool]:
    """Return the last change whose row is valid, and whether the row of a later one is damaged."""
    is_damaged = False
    for row in sqlite.execute(_CHANGES):
        if (change := _change_of(row)) is not None:
            return change, is_damaged
        is_damaged = True
    return _Change(Position("", 0), UNKNOWN), is_damaged


def _is_in_history(sqlite: sqlite3.Connection, position: Position) -> bool:
    """Whether the content derives from that at a position, so that only rows of later revisions differ."""
    found = sqlite.execute("SELECT 1 FROM changes WHERE revision = ? AND token = ?", (position.number, position.run))
    return found.fetchone() is not None


def _digest(pair: bytes, revision: int, body: bytes | None) -> bytes:
    return blake2b(b"%d %b %b" % (revision, pair, body or b""), digest_size=DIGEST_BYTES).digest()


def _is_valid(pair: object, revision: object, digest: object, body: object) -> bool:
    """Whether a row matches its digest. Damage and other programs may leave values of any type."""
    if type(pair) is not bytes or type(revision) is not int or not (body is None or type(body) is bytes):
        return False
    return digest == _digest(pair, revision, body)


def _content_of(pair: Any, revision: object, digest: object, body: Any) -> OrderBook | Pair:
    """Return the book of a row, or the pair that it retracts. Raises `MarketIndexError` if the row is not valid."""
    if not _is_valid(pair, revision, digest, body):
        raise InvalidOrderBook("must match its digest (it is damaged, or another program wrote it)")
    if body is None:
        retracted = _pair_of(pair)
        if retracted is None:
            raise InvalidOrderBook("its name must be a pair")
        return retracted
    if len(body) > wire.MAX_ORDER_BOOK_BYTES:
        raise InvalidOrderBook(f"must have at most {wire.MAX_ORDER_BOOK_BYTES} bytes of JSON, got {len(body)}")
    book = wire.order_book_from_json(body)
    if str(book.pair).encode() != pair:
        raise InvalidOrderBook(f"must be the book of the pair of its row, got that of {book.pair}")
    return book


def _pair_of(name: object) -> Pair | None:
    """Return the pair of a row by its name; None if it is not exactly the text that a store writes for a pair."""
    try:
        base, _, quote = str(name, "ascii").partition("/")  # type: ignore[call-overload]  # any type raises TypeError
        pair = Pair(AssetId.parse(base), AssetId.parse(quote))
    except (MarketIndexError, TypeError, ValueError):
        return None
    return pair if str(pair).encode() == name else None


class _Rows:
    """What rows contain: books, retracted pairs, and the invalid rows.

    `invalid` has the pair of each invalid row by its rowid; None if its name and its body do not agree on one.
    `rejected` are those that were added, with the reason. `hides_removal` is whether a row names no pair, so that it
    may retract any, or whether a row that was invalid is of another pair than it seemed to be.
    """

    def __init__(self, invalid: Mapping[int, Pair | None]) -> None:
        self.books: list[OrderBook] = []
        self.retracted: list[Pair] = []
        self.invalid: dict[int, Pair | None] = dict(invalid)
        self.rejected: dict[int, tuple[str, MarketIndexError]] = {}
        self.hides_removal: bool = False

    def add(self, rowid: int, *row: Any) -> None:
        """Add a row."""
        was_invalid, seemed = rowid in self.invalid, self.invalid.pop(rowid, None)
        try:
            found = _content_of(*row)
        except MarketIndexError as error:
            self._reject(rowid, row[0], row[-1], error)
            return
        if isinstance(found, OrderBook):
            self.books.append(found)
        else:
            self.retracted.append(found)
        pair = found.pair if isinstance(found, OrderBook) else found
        self.hides_removal = self.hides_removal or (was_invalid and pair != seemed)

    def _reject(self, rowid: int, name: object, body: object, error: MarketIndexError) -> None:
        named = _pair_of(name)
        in_body = wire.pair_named_in(body) if type(body) is bytes and len(body) <= wire.MAX_ORDER_BOOK_BYTES else None
        self.rejected[rowid] = f"row {named or safe_repr(name)}", error
        if named or in_body:
            self.invalid[rowid] = None if named and in_body and named != in_body else named or in_body
        else:
            self.hides_removal = True  # otherwise it is only counted (decision 24)


@final
class SqliteSource(Source):
    """The file of a store. Only rows that changed are read.

    Raises:
        FeedError: The file is missing, or is not a store.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(shown_name(os.fspath(path)))
        # Where the last read stopped: the file, the position of its last change, and the invalid rows.
        self._file: Identity | None = None
        self._position: Position | None = None
        self._invalid: dict[int, Pair | None] = {}
        try:
            self._path = Path(path).absolute()  # the process may change its working directory
            with self._open() as connection:
                connection.require_store()
        except (FeedError, ValueError) as error:  # a path with a null byte
            raise FeedError(f"{self.name} cannot be opened: {reason_of(error)}") from None

    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        """Poll the file; if another one is renamed over it, follow that."""
        while not stop.is_set():
            with self._open() as connection:
                found: Version | NoVersion | None = None
                seen, polls = None, 0
                while connection.is_in_place and not stop.is_set():
                    now = connection.sqlite.execute("PRAGMA data_version").fetchone()
                    if now != seen:
                        found = self.read_from(connection, stop, progress)
                        seen, progress, polls = now, None, 0
                    if found is not None and polls % POLLS_PER_CHECK == 0:
                        yield found
                    polls += 1
                    stop.wait(POLL_SECONDS)

    def read_from(
        self, connection: Connection, stop: Event, progress: Progress | None = None, *, is_target: bool = False
    ) -> Version | NoVersion | None:
        """Read what changed since the last call, and return the version; None if `stop` is set meanwhile.

        With `is_target`, a store into which nothing was published is an empty version.
        """
        with connection.transaction("BEGIN") as sqlite:
            connection.require_store()
            change, is_damaged = _last_change(sqlite)
            known = self._position if self._file == connection.file else None
            resumes = known is not None and _is_in_history(sqlite, known)
            found = _Rows(self._invalid if resumes else {})
            later = ("WHERE revision > ?", (known.number,)) if known is not None and resumes else ("", ())
            for row in sqlite.execute(f"{_ROWS} {later[0]}", later[1]):
                if stop.is_set():
                    return None
                if progress is not None:
                    progress(0, 0)
                found.add(*row)
        if resumes and found.hides_removal:
            self._position = None
            return self.read_from(connection, stop, progress, is_target=is_target)
        for rowid, rejected in found.rejected.items():
            if self._file != connection.file or rowid not in self._invalid:
                self.reject(*rejected)
        self._file, self._position, self._invalid = connection.file, change.position, found.invalid
        invalid = set(found.invalid.values())
        if is_damaged:
            # The position may be that of an earlier change, so all rows are read again after the next one.
            self._position = None
            self.reject("row of the last change", "must match its digest (it is damaged, or another program wrote it)")
            invalid.add(None)
        if not (resumes or is_target or found.books or found.retracted):
            self._position = None
            return NoVersion("contains no valid order book") if found.rejected else NoVersion()
        return self.derive(
            found.books,
            found.retracted,
            invalid=invalid,
            is_whole=not resumes,
            freshness=UNKNOWN if is_damaged else change.freshness,
            position=change.position,
        )

    @contextmanager
    def _open(self) -> Iterator[Connection]:
        with _errors(self._path), closing(Connection(self._path, "ro", READ_WAIT_SECONDS)) as connection:
            yield connection


@final
class SqliteStore(Store):
    """A file, opened for publishing. It is created if it is missing and `make` is true.

    Any number of processes may have it open; they take turns to write. A call that waits longer than `wait` seconds
    raises `StoreBusy`. With `synchronous="normal"`, acknowledged changes survive a crash of programs, but not a power
    cut. If another file is renamed over it, nothing more is published.

    Raises:
        StoreError: The file is not a store, or cannot be opened or created.
        ValueError: `wait` is negative, or `synchronous` is another value.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        wait: float = WAIT_SECONDS,
        synchronous: Synchronous = "full",
        make: bool = True,
    ) -> None:
        super().__init__(shown_name(os.fspath(path)))
        if synchronous not in {"full", "normal"}:
            raise ValueError(f"synchronous must be 'full' or 'normal', got {safe_repr(synchronous)}")
        if not wait >= 0:
            raise ValueError(f"wait must be 0 or more seconds, got {wait}")
        self._wait = min(wait, _MAX_WAIT_SECONDS)
        self._path = Path(path).absolute()
        # Reentrant: a signal handler may close the store.
        self._lock = RLock()
        self._is_open = True
        self._log_bytes = 0
        with self._errors("cannot be opened"):
            if make and not self._path.exists():
                _create(self._path)
            # It reads nothing yet. Closing a connection that has read a log copies the log into the file.
            self._connection = Connection(self._path, "rw", self._wait)
            try:
                # So another connection, which is read-only, checks whether it is the log of this file.
                with closing(Connection(self._path, "ro", self._wait)) as reader:
                    reader.require_store()
                self._require_in_place()
                self._prepare(synchronous)
                self._source = SqliteSource(self._path)
                self._checkpointer = Connection(self._path, "rw", self._wait)
                self._require_in_place()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self, synchronous: Synchronous) -> None:
        sqlite = self._connection.sqlite
        sqlite.execute("PRAGMA journal_mode = WAL").fetchone()  # a copy may have another one
        sqlite.execute("PRAGMA wal_autocheckpoint = 0")
        sqlite.execute(f"PRAGMA synchronous = {synchronous}")
        sqlite.execute("PRAGMA cache_size = -16384")  # 2 MiB would read each page twice in a call with 1,000 books

    @property
    def position(self) -> Position:
        """The position after the last change by any program; its number is 0 before the first one."""
        with self._locked("cannot be read") as sqlite:
            return _last_change(sqlite)[0].position

    def read(self) -> Version:
        """Return the content. Only what changed since the last call is read."""
        with self._locked("cannot be read"):
            found = self._source.read_from(self._connection, Event(), is_target=True)
            return cast("Version", found)  # a target has a version, and nothing stops this

    def update(
        self,
        books: Iterable[OrderBook],
        retract: Iterable[Pair] = (),
        freshness: Freshness | None = None,
        *,
        after: Position | None = None,
    ) -> Receipt:
        """Retract pairs and store books; see `Target.update`."""
        bodies = self._bodies(books)
        gone = set(map(str, checked_pairs(retract))).difference(bodies)
        with self._change(bodies, freshness, after, keeps_as_of=True) as (sqlite, position):
            sqlite.executemany(_PUT, [_row(pair, position.number, body) for pair, body in bodies.items()])
            has_body = "SELECT body IS NOT NULL FROM books WHERE pair = ?"
            stored = {pair: found for pair in gone if (found := sqlite.execute(has_body, (pair,)).fetchone())}
            sqlite.executemany(_PUT, [_row(pair, position.number, None) for pair in stored])
        return Receipt(position.number, len(bodies), sum(is_stored for (is_stored,) in stored.values()), position)

    def replace(self, books: Iterable[OrderBook], freshness: Freshness | None = None) -> Receipt:
        """Make these books the whole content; see `Store.replace`."""
        bodies = self._bodies(books)
        differing, gone, damaged = dict(bodies), list[str](), list[tuple[int]]()
        with self._change(bodies, freshness, None, keeps_as_of=False) as (sqlite, position):
            for rowid, pair, revision, digest, body in sqlite.execute(_ROWS):
                if not _is_valid(pair, revision, digest, body):
                    damaged.append((rowid,))
                elif (name := str(pair, "ascii")) not in bodies:
                    gone += [] if body is None else [name]
                elif body == bodies[name]:
                    differing.pop(name, None)
            sqlite.executemany("DELETE FROM books WHERE rowid = ?", damaged)
            if damaged:
                # Readers read all rows: a reader of changes would not know what is removed.
                sqlite.execute("DELETE FROM changes")
            sqlite.executemany(_PUT, [_row(pair, position.number, body) for pair, body in differing.items()])
            sqlite.executemany(_PUT, [_row(pair, position.number, None) for pair in gone])
        return Receipt(position.number, len(differing), len(gone), position)

    def close(self) -> None:
        """Move the log into the file, unless others keep that from it, and close it. Closing twice does no harm."""
        if self.is_forked:
            return
        with self._lock:
            self._is_open = False
            self._checkpointer.close()
            with suppress(sqlite3.Error):
                if self._connection.is_in_place:
                    # So that another file may be renamed over it while it has readers.
                    self._connection.sqlite.execute(f"PRAGMA busy_timeout = {int(_CLOSE_WAIT_SECONDS * 1000)}")
                    self._connection.sqlite.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.close()

    def _bodies(self, books: Iterable[OrderBook]) -> dict[str, bytes]:
        bodies = {pair: wire.order_book_to_json(book) for pair, book in books_by_pair(books).items()}
        limit = wire.MAX_ORDER_BOOK_BYTES
        too_large = tuple(pair for pair, body in bodies.items() if len(body) > limit)
        if too_large:
            size = len(bodies[too_large[0]])
            raise BookTooLarge(
                f"{self.name}: the book of {too_large[0]} must have at most {limit} bytes of JSON, got {size}",
                too_large,
            )
        return {str(pair): body for pair, body in bodies.items()}

    @contextmanager
    def _change(
        self, bodies: Mapping[str, bytes], freshness: Freshness | None, after: Position | None, *, keeps_as_of: bool
    ) -> Iterator[tuple[sqlite3.Connection, Position]]:
        """Make one change: the body writes rows at the position that is yielded. If it raises, nothing is written."""
        with self._locked("was not written to"):
            self._move_log(16_384 + sum(map(len, bodies.values())))
            with self._connection.transaction("BEGIN IMMEDIATE") as sqlite:
                last, is_damaged = _last_change(sqlite)
                if after is not None and after != last.position:
                    raise Conflict(
                        f"{self.name} was changed by another program: its revision is {last.position.number}"
                    )
                change = _Change(
                    Position(secrets.token_hex(8), last.position.number + 1),
                    _stamped(freshness, last.freshness.as_of if keeps_as_of and not is_damaged else None),
                )
                yield sqlite, change.position
                # Rows of later revisions are damaged.
                limits = last.position.number, change.position.number - MAX_CHANGES
                sqlite.execute("DELETE FROM changes WHERE revision > ? OR revision <= ?", limits)
                sqlite.execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?)", change.row())
                sqlite.execute(f"PRAGMA user_version = {self._connection.signature}")
                self._require_in_place()

    def _move_log(self, more_bytes: int) -> None:
        """Move the log into the file if it is large enough."""
        if self._log_bytes >= LOG_BYTES:
            # A transaction of its own: the next one begins the log anew only if all of it was moved before.
            with self._connection.transaction("BEGIN IMMEDIATE"):
                self._checkpointer.sqlite.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._log_bytes = 0
        self._log_bytes += more_bytes

    def _require_in_place(self) -> None:
        if not self._connection.is_in_place:
            raise FeedError("another file is at its path, or none: close the store and open it again")

    @contextmanager
    def _locked(self, problem: str) -> Iterator[sqlite3.Connection]:
        """Lock the connection for this thread, check that it can be used, and convert errors."""
        self.require_own_process()
        if not self._lock.acquire(timeout=self._wait):
            raise self._busy(problem)
        try:
            if not self._is_open:
                raise StoreError(f"{self.name} is closed")
            if self._connection.sqlite.in_transaction:
                raise StoreError(f"{self.name}: this thread is in the middle of another change")
            with self._errors(problem):
                self._require_in_place()
                yield self._connection.sqlite
        finally:
            self._lock.release()

    @contextmanager
    def _errors(self, problem: str) -> Iterator[None]:
        try:
            with _errors(self._path):
                yield
        except FeedError as error:
            if isinstance(error.__cause__, sqlite3.Error) and _code(error.__cause__) in _BUSY:
                raise self._busy(problem) from error
            raise StoreError(f"{self.name} {problem}: {error}") from error

    def _busy(self, problem: str) -> StoreBusy:
        return StoreBusy(f"{self.name} {problem}: others have been writing for {self._wait:g} seconds")


def _stamped(freshness: Freshness | None, as_of: str | None) -> Freshness:
    """Return a freshness, by default with this `as_of`. Without a publish time, it gets the wall clock."""
    freshness = freshness or Freshness(as_of)
    return published_now(freshness.as_of) if freshness.published_at is None else freshness


def _row(pair: str, revision: int, body: bytes | None) -> tuple[str, int, bytes, str | None]:
    return pair, revision, _digest(pair.encode(), revision, body), None if body is None else str(body, "ascii")


def _create(path: Path) -> None:
    """Create an empty store, unless another process is faster. No process sees an incomplete one."""
    if path.suffix.lower() in _TEXT_SUFFIXES:
        raise FeedError(f"a store must be a SQLite file such as {path.stem}.db, got the name of a text file")
    path = Path(os.path.realpath(path))
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        # SQLite would remove it.
        raise FeedError(f"the file is missing, but its log ({log.name}) exists: put the file back, or remove the log")
    path.parent.stat()  # SQLite does not report that the folder is missing
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        with closing(sqlite3.connect(f"{new.as_uri()}?mode=rwc", uri=True, isolation_level=None)) as connection:
            connection.executescript(f"{_SCHEMA}PRAGMA user_version = {_signature(_identity(new))}; COMMIT;")
        move_unless_exists(new, path)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Convert errors of the file and of SQLite into `FeedError`, with a remedy where there is one."""
    try:
        yield
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:  # the last one if a damaged schema is in a message
        remedy = ""
        if isinstance(error, sqlite3.Error) and _code(error) in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
            remedy = f" (this user must be able to read {path.name}, and to write its folder and {path.name}-wal, -shm)"
        raise FeedError(f"{reason_of(error)}{remedy}") from error


def _code(error: sqlite3.Error) -> int:
    # The lowest byte is the primary code. Errors of the Python module itself have no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def is_sqlite(path: str) -> bool:
    """Whether a path is that of a store: by its suffix, otherwise by its content.

    SQLite reads the content. If this process opened and closed the file by itself, it would release the locks of its
    other connections: POSIX locks belong to a process, and end when any descriptor of the file is closed.
    """
    file = Path(path)
    if file.suffix.lower() in SUFFIXES:
        return True
    try:
        # SQLite reads a file of one byte as an empty database.
        if _identity(file.absolute()) and file.stat().st_size >= 512:
            uri = f"{file.absolute().as_uri()}?mode=ro&immutable=1"  # without files beside it
            with closing(sqlite3.connect(uri, uri=True)) as connection:
                connection.execute("PRAGMA application_id")
                return True
    except sqlite3.Error as error:
        # What cannot be read is described better by what reads lines.
        return _code(error) not in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN}
    except (FeedError, OSError, ValueError):
        pass
    return False


__all__ = ["SqliteSource", "SqliteStore", "Synchronous", "is_sqlite"]
