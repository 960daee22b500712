"""The embedded store: order books in one SQLite file, which one process publishes into and any number follow.

A change of any number of books is one transaction and one revision. The file is in WAL mode: readers and the writer do
not wait for one another. Readers open it read-only, and no transaction of theirs is open for longer than its rows take
to be fetched.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count, islice
from pathlib import Path
from threading import RLock
from time import sleep
from typing import Final, Literal, TypeAlias

from market_index import AssetId, InvalidOrderBook, LiveIndex, MarketIndexError, OrderBook, Pair, PairNotFound, wire
from market_index.errors import safe_repr
from market_index_feeds.feed import LOG, Feed, FeedError, Progress
from market_index_feeds.opened import shown_name
from market_index_feeds.sqlite_file import (
    DIGESTS,
    MAGIC,
    NEVER_PUBLISHED,
    Busy,
    Change,
    Position,
    Unusable,
    WriterLock,
    connect,
    create,
    digest_of,
    header_of,
    identity_of,
    is_busy,
    last_position,
    last_total,
    log_header_of,
    log_inode_of,
    reaches,
    reason_of,
    require_store,
    require_whole,
    require_whole_file,
    sum_of,
    transaction,
)
from market_index_feeds.store import Receipt, Store, StoreBusy, StoreError, require_book

SUFFIXES: Final = {".db", ".sqlite", ".sqlite3"}
"""A file of such a name is a store, and nothing else, whatever it holds."""

POLL_SECONDS: Final = 0.006
"""How often a followed store is asked whether it has changed."""

LOOKS: Final = 20
"""How many times that is asked before it is seen to that the file at the path is still the same."""

TROUBLE_SECONDS: Final = 0.1
"""How long to wait after a store could not be read."""

WAIT_SECONDS: Final = 5.0
"""How long a writer waits for another, unless it is told otherwise."""

Synchronous: TypeAlias = Literal["full", "normal"]
"""SQLite's `PRAGMA synchronous`: what was acknowledged survives a power cut, or no more than a crash of programs."""

_READ_WAIT_SECONDS: Final = 1.0
"""How long a reader waits for the log of a crashed writer to be recovered: the one thing that keeps it out."""

_PARTING_SECONDS: Final = 0.05
"""What others that follow a file are given to let go of it, once another took its place."""

_SPOOLED_AT_ONCE: Final = 256

_MOST_SECONDS: Final = 1_000_000.0
"""SQLite and the system count milliseconds in 32 bits, and go wrong above."""

_VERSION: Final = "PRAGMA data_version"
_SPOOL: Final = """
CREATE TEMP TABLE IF NOT EXISTS spool (number INTEGER, pair TEXT, body TEXT, PRIMARY KEY (number, pair))
"""
_LAY_ASIDE: Final = "INSERT OR REPLACE INTO temp.spool VALUES (?, ?, ?)"
_NOT_LAID_ASIDE: Final = """
SELECT rowid, CAST(pair AS TEXT) FROM books
WHERE body IS NOT NULL AND pair NOT IN (SELECT pair FROM temp.spool WHERE number = ?)
"""
_RETRACT_ROW: Final = "UPDATE books SET revision = ?, digest = ?, body = NULL WHERE rowid = ?"
_PUBLISH_LAID_ASIDE: Final = """
INSERT INTO books (pair, revision, digest, body)
SELECT pair, :revision, digest_of(:revision, body), body FROM temp.spool WHERE number = :number
ON CONFLICT (pair) DO UPDATE SET revision = excluded.revision, digest = excluded.digest, body = excluded.body
WHERE books.body IS NOT excluded.body OR books.digest IS NOT digest_of(books.revision, books.body)
"""
_CLEAR_AWAY: Final = "DELETE FROM temp.spool WHERE number = ?"

# Cast, because whoever else writes to the file may store what he likes.
_ALL: Final = "SELECT CAST(pair AS TEXT), revision, CAST(body AS TEXT), CAST(digest AS BLOB) FROM books"
_CHANGED: Final = f"{_ALL} WHERE revision > ?"
_ONE: Final = "SELECT revision, CAST(body AS TEXT), CAST(digest AS BLOB) FROM books WHERE pair = ? AND body IS NOT NULL"

_Row: TypeAlias = tuple[bytes, int, bytes | None, bytes]
"""A pair, its revision, its book in JSON or None where it was retracted, and the digest."""


class SqliteStore(Store):
    """The file, opened for publishing.

    Processes take turns to write, so that any number may have it open; one that has to wait longer than `wait` seconds
    raises `StoreBusy`. A file that is replaced or deleted while it is open is noticed: no publish goes astray.
    """

    def __init__(self, target: str, given: Path, wait: float, synchronous: Synchronous) -> None:
        super().__init__(target)
        path = Path(os.path.realpath(given))
        # As it was given, so that a link that is switched over is noticed too; but not by what is the current folder.
        self._given = given.absolute()
        self._log = Path(f"{path}-wal")
        self._wait = wait
        self._process = os.getpid()
        # Whoever is interrupted in a change, and makes another, is told; with a plain lock it would wait for itself.
        self._turn = RLock()
        self._spools = count()
        # How far this store's last change went.
        self._own: Position | None = None
        # What stood there when it was last replaced, and changed by this store alone; None once others did as well.
        self._left: Position | None = None
        self._connection: sqlite3.Connection | None = None
        with ExitStack() as stack:
            identity = identity_of(path)
            self._writing = WriterLock(path)
            stack.callback(self._writing.close)
            require_whole_file(path)
            connection = connect(path, "rw", min(wait, _MOST_SECONDS))
            stack.callback(connection.close)
            connection.create_function("digest_of", 2, _digest_of_text, deterministic=True)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute(_SPOOL)
            last_position(connection)
            self._identities = identity, identity_of(self._log)
            stack.pop_all()
        self._connection = connection

    @property
    def revision(self) -> int:
        """The revision of the last change, whoever made it; 0 before the first."""
        with self._connected() as connection:
            return last_position(connection).revision

    def replace(self, books: Iterable[OrderBook], keep: Callable[[Pair], bool] = lambda _: False) -> Receipt:
        """Make these books the whole of the store; see `Store.replace`.

        They are laid aside on disk while they are read, and others wait only for as long as it takes to copy them from
        there.
        """
        number = next(self._spools)
        rows = map(_row, map(require_book, books))
        try:
            while some := list(islice(rows, _SPOOLED_AT_ONCE)):
                with self._connected() as connection, transaction(connection, "BEGIN"):
                    connection.executemany(_LAY_ASIDE, ((number, pair, str(body, "ascii")) for pair, body in some))
            with self._change() as change:
                gone: list[tuple[int, bytes]] = []
                for row, text in change.connection.execute(_NOT_LAID_ASIDE, (number,)).fetchall():
                    pair = _pair(text)
                    if pair is None or not _asked(keep, pair):
                        gone.append((row, text))
                revision = change.revision
                retracted = ((revision, digest_of(revision, text), row) for row, text in gone)
                change.connection.executemany(_RETRACT_ROW, retracted)
                published = change.connection.execute(
                    _PUBLISH_LAID_ASIDE, {"revision": revision, "number": number}
                ).rowcount
                # So that it is whole from here on, whatever was wrong with it before.
                rows_now = change.connection.execute(DIGESTS).fetchall()
                before, change.total = change.total, sum_of(digest for (digest,) in rows_now)
                if not (published or gone) and change.total == before:
                    change.connection.execute("ROLLBACK")
                    revision -= 1
                    self._left = last_position(change.connection)
            if self._left is None or self._left.revision != revision:
                self._left = self._own
            return Receipt(revision, published, len(gone))
        except _Theirs as theirs:
            raise theirs.error from None
        finally:
            with suppress(StoreError), self._connected() as connection:
                connection.execute(_CLEAR_AWAY, (number,))

    def is_as_left(self) -> bool:
        """Whether nobody else has changed it since this store last replaced all of it; see `Store.is_as_left`."""
        with self._connected() as connection:
            return last_position(connection) == self._left

    def close(self) -> None:
        """Put what stands in the log into the file, and let go of it. Closing twice does no harm."""
        if os.getpid() != self._process:
            # It belongs to the process that this one was forked from.
            return
        with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                # Not needed for what is stored to stay: the next to open the file would find it in the log.
                with suppress(Busy, OSError, sqlite3.Error), self._writing.held(self._wait):
                    if self._is_in_place():
                        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                connection.close()
                self._writing.close()

    def _publish(self, books: list[OrderBook]) -> Receipt:
        rows = dict(map(_row, books))
        if not rows:
            return Receipt(self.revision)
        with self._change() as change:
            for pair, body in rows.items():
                change.put(pair, body)
        return Receipt(change.revision, published=len(rows))

    def _retract(self, pairs: tuple[Pair, ...]) -> Receipt:
        with self._connected() as connection:
            stored = [text for text in set(map(str, pairs)) if connection.execute(_ONE, (text,)).fetchone()]
        if not stored:
            return Receipt(self.revision)
        with self._change() as change:
            for pair in stored:
                change.put(pair, None)
        return Receipt(change.revision, retracted=len(stored))

    @contextmanager
    def _change(self) -> Iterator[Change]:
        """Make one change: for good at the end, or not at all."""
        with self._connected() as connection, self._writing.held(self._wait):
            with transaction(connection, "BEGIN IMMEDIATE"):
                # Once more: it may have been waited for long.
                self._require_in_place()
                change = Change(connection, self._own)
                yield change
                # Unless it was undone, because there was nothing to change.
                if made := connection.in_transaction:
                    change.finish()
                    self._require_in_place()
            if made:
                goes_on = self._left is not None and self._left.revision == change.revision - 1
                self._own = change.position
                self._left = self._own if goes_on else None

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Give the connection to this thread alone, and turn what it raises into what a store raises."""
        if os.getpid() != self._process:
            raise StoreError(f"{self.target} was opened before a fork: open it in the process that publishes")
        if not self._turn.acquire(timeout=min(self._wait, _MOST_SECONDS)):
            raise self._busy()
        try:
            if self._connection is None:
                raise StoreError(f"{self.target} is closed")
            if self._connection.in_transaction:
                raise StoreError(f"{self.target}: this thread is in the middle of another change")
            self._require_in_place()
            yield self._connection
        except (OSError, sqlite3.Error, Busy) as error:
            if isinstance(error, Busy) or (isinstance(error, sqlite3.Error) and is_busy(error)):
                raise self._busy() from error
            raise StoreError(f"{self.target} was not written to: {reason_of(error)}") from error
        finally:
            self._turn.release()

    def _busy(self) -> StoreBusy:
        return StoreBusy(f"{self.target} was not written to: others have been writing for {self._wait:g} seconds")

    def _require_in_place(self) -> None:
        if not self._is_in_place():
            raise StoreError(
                f"{self.target} was deleted or replaced since it was opened, or its log (-wal) was: nothing was written"
            )

    def _is_in_place(self) -> bool:
        try:
            return (identity_of(self._given), identity_of(self._log)) == self._identities
        except FileNotFoundError:
            return False


class _Theirs(Exception):
    """What was raised by whoever was asked."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def _asked(keep: Callable[[Pair], bool], pair: Pair) -> bool:
    try:
        return keep(pair)
    except Exception as error:
        raise _Theirs(error) from error


class SqliteFeed(Feed):
    """The file, followed: each change goes live whole, and only what was changed is read.

    A file that was replaced or rolled back is read anew. One that is not there, is no store, or cannot be read leaves
    the last good index up, and the log says so.
    """

    record = "rows"

    def __init__(self, source: str, path: Path) -> None:
        super().__init__(source)
        self._path = path
        self._connection: sqlite3.Connection | None = None
        # Of the file that is open, or was last: which one it is, when it was last written to, what its log began with
        # when it was last read, the count that SQLite keeps of the changes by others, and how far it was read.
        self._identity: tuple[int, int] | None = None
        self._state: tuple[int, ...] = ()
        self._log_header = b""
        self._version: tuple[int] | None = None
        self._position = NEVER_PUBLISHED
        self._pairs: set[Pair] = set()

    def read_order_book(self, pair: Pair) -> OrderBook:
        """Return the book of one pair as the store holds it now, without reading the others."""
        self._begin()
        text = str(pair)
        with self, self._opening() as connection:
            row = connection.execute(_ONE, (text,)).fetchone()
        if row is None:
            raise PairNotFound(pair)
        try:
            return _book(text.encode("ascii"), *row)
        except MarketIndexError as error:
            raise FeedError(f"{self.source} row {text} cannot be read: {error}") from None

    def _release(self) -> None:
        self._disconnect()

    def _load(self, live: LiveIndex, progress: Progress | None) -> None:
        with self._opening() as connection:
            self._catch_up(connection, live, progress)

    @contextmanager
    def _opening(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._connected()
        except (OSError, sqlite3.Error, Unusable) as error:
            raise FeedError(f"{self.source} cannot be opened: {reason_of(error)}") from None

    def _follow(self, live: LiveIndex) -> None:
        polls = 0
        while not self._closing.is_set():
            sleep(POLL_SECONDS)
            polls += 1
            try:
                if polls % LOOKS == 0 or self._has_changed():
                    self._look(live)
            except FileNotFoundError:
                self._wait_out("is not there")
            except (OSError, sqlite3.Error, Unusable) as error:
                self._wait_out(f"cannot be read ({reason_of(error)})")

    def _has_changed(self) -> bool:
        """Whether the file that is open has changed, or none is open: asked often, and next to free."""
        connection = self._connection
        return connection is None or connection.execute(_VERSION).fetchone() != self._version

    def _look(self, live: LiveIndex) -> None:
        """Look at the file once, and read what has changed."""
        found = self._path.stat()
        state = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, log_inode_of(self._path)
        if state != self._state:
            # It is another file, or was written to: by SQLite, when the log was put into it, or by something else,
            # which whoever has it open already may never see.
            self._disconnect()
        self._catch_up(self._connected(), live, None)
        if self._position == NEVER_PUBLISHED and self._pairs:
            self._tell(f"was never published into; the {len(self._pairs)} pairs of before stay until it is")
        else:
            self._tell(None)
        self._state = state

    def _wait_out(self, trouble: str) -> None:
        self._disconnect()
        self._tell(f"{trouble}; its {len(self._pairs)} pairs stay as they were")
        self._closing.wait(TROUBLE_SECONDS)

    def _connected(self) -> sqlite3.Connection:
        """Return the connection to the file that stands at the path."""
        if self._connection is None:
            require_store(self._path)
            identity = identity_of(self._path)
            if self._identity not in {None, identity}:
                self._part_with_the_former()
            self._connection = connect(self._path, "ro", _READ_WAIT_SECONDS)
            # Should it have been replaced between the two, then it is not found under this identity, and opened again.
            self._identity, self._version = identity, None
        return self._connection

    def _part_with_the_former(self) -> None:
        """Make sure that SQLite does not take the log of the former file for that of the one in its place.

        While another process has the former one open, SQLite may take the new one to be as long as that, and say that
        it is malformed.
        """
        if self._log_header and self._log_header == log_header_of(self._path):
            name = self._path.name
            raise Unusable(
                "it took the place of another, whose log is still there: "
                f"end whoever publishes, then remove {name}-wal and {name}-shm"
            )
        sleep(_PARTING_SECONDS)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _catch_up(self, connection: sqlite3.Connection, live: LiveIndex, progress: Progress | None) -> None:
        """Read what has changed since the file was last read, or all of it where that cannot be told."""
        version = connection.execute(_VERSION).fetchone()
        if version == self._version:
            return
        before, rows = self._position, []
        with transaction(connection, "BEGIN"):
            position = last_position(connection)
            goes_on = reaches(connection, before)
            if not goes_on:
                rows = connection.execute(_ALL).fetchall()
                require_whole(last_total(connection), (digest for _, _, _, digest in rows))
            elif position != before:
                rows = connection.execute(_CHANGED, (before.revision,)).fetchall()
        self._log_header = log_header_of(self._path)
        if goes_on:
            self._publish_changes(live, rows)
        elif position != NEVER_PUBLISHED:
            self._publish_whole(live, rows, progress)
            if before != NEVER_PUBLISHED:
                LOG.info(
                    "%s was replaced or rolled back, from revision %d to %d, and read anew",
                    self.source,
                    before.revision,
                    position.revision,
                )
        self._version, self._position, self.revision = version, position, position.revision

    def _publish_whole(self, live: LiveIndex, rows: list[_Row], progress: Progress | None) -> None:
        """Publish what the file holds, and retract in the same swap what it holds no longer."""
        done, length = 0, sum(len(body) for _, _, body, _ in rows if body is not None)
        books: list[OrderBook] = []
        doubted: set[Pair | None] = set()
        self._unreadable.intersection_update(text for text, _, _, _ in rows)
        for number, (text, revision, body, digest) in enumerate(rows):
            if body is None:
                continue
            book = self._read(text, revision, body, digest)
            if book is None:
                doubted.add(_pair(text))
            else:
                books.append(book)
            done += len(body)
            if progress is not None and number % 256 == 0:
                progress(done, length)
        named = {book.pair for book in books}
        stay = self._pairs & doubted
        live.update(books, self._pairs - named - stay)
        self._pairs = named | stay

    def _publish_changes(self, live: LiveIndex, rows: list[_Row]) -> None:
        books: list[OrderBook] = []
        gone: list[Pair] = []
        for text, revision, body, digest in rows:
            if body is not None:
                book = self._read(text, revision, body, digest)
                if book is not None:
                    books.append(book)
            else:
                gone.extend(pair for pair in (_pair(text),) if pair is not None)
        live.update(books, gone)
        self._pairs.difference_update(gone)
        self._pairs.update(book.pair for book in books)

    def _read(self, text: bytes, revision: int, body: bytes, digest: bytes) -> OrderBook | None:
        return self._taken(text, f"row {safe_repr(text)}", lambda: _book(text, revision, body, digest))


def open_sqlite_store(target: str, *, wait: float, synchronous: Synchronous, make: bool) -> SqliteStore:
    """Open a file for publishing; one that is not there is made where that is wanted.

    Raises `StoreError` when the file is something else, or cannot be made or written.
    """
    if synchronous not in {"full", "normal"}:
        raise ValueError(f"synchronous must be 'full' or 'normal', not {safe_repr(synchronous)}")
    if not wait >= 0:
        raise ValueError(f"wait must be 0 or more seconds, not {wait}")
    name = shown_name(target)
    try:
        path = Path(target)
        if make and not path.exists():
            create(Path(os.path.realpath(path)))
        require_store(path)
        return SqliteStore(name, path, wait, synchronous)
    except (OSError, ValueError, sqlite3.Error, Unusable) as error:
        raise StoreError(f"{name} cannot be opened: {reason_of(error)}") from None


def open_sqlite_feed(source: str) -> SqliteFeed:
    """Open a file for following. It is read when the feed is started.

    Raises `FeedError` when it is not there, or is no store.
    """
    name = shown_name(source)
    try:
        # However the current folder changes while it is followed.
        path = Path(source).absolute()
        require_store(path)
    except (OSError, ValueError, Unusable) as error:
        raise FeedError(f"{name} cannot be opened: {reason_of(error)}") from None
    return SqliteFeed(name, path)


def is_sqlite(source: str) -> bool:
    """Whether a path names a store: by its suffix, or else by what it holds."""
    path = Path(source)
    if path.suffix.lower() in SUFFIXES:
        return True
    try:
        return stat.S_ISREG(path.stat().st_mode) and header_of(path).startswith(MAGIC)
    except (OSError, ValueError):
        return False


def _row(book: OrderBook) -> tuple[str, bytes]:
    return str(book.pair), wire.order_book_to_json(book)


def _book(text: bytes, revision: int, body: bytes, digest: bytes) -> OrderBook:
    """Return the book of a row, which is as a store has written it; raise `InvalidOrderBook` where it is not."""
    if type(revision) is not int or digest != digest_of(revision, body):
        raise InvalidOrderBook(
            f"its digest does not fit, so that it was damaged or is not a store's: {safe_repr(body)}"
        )
    book = wire.order_book_as_written(body)
    if str(book.pair).encode("ascii") != text:
        raise InvalidOrderBook(f"it holds the book of another pair: {book.pair}")
    return book


def _digest_of_text(revision: int, text: str | None) -> bytes | None:
    return None if text is None else digest_of(revision, text.encode())


def _pair(text: bytes) -> Pair | None:
    """Return the pair that a row stands under, or None where that names none."""
    try:
        base, _, quote = text.decode("ascii").partition("/")
        return Pair(AssetId.parse(base), AssetId.parse(quote))
    except (UnicodeDecodeError, MarketIndexError):
        return None
