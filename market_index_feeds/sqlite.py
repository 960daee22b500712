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
from hashlib import blake2b
from itertools import count, islice
from pathlib import Path
from threading import Lock
from time import sleep
from typing import Final, Literal, TypeAlias

from market_index import AssetId, InvalidOrderBook, LiveIndex, MarketIndexError, OrderBook, Pair, PairNotFound, wire
from market_index.errors import shown
from market_index_feeds.feed import LOG, Feed, FeedError, Progress
from market_index_feeds.sqlite_file import (
    MAGIC,
    NEVER_PUBLISHED,
    Busy,
    Position,
    Unusable,
    WriterLock,
    connect,
    create,
    header_of,
    identity_of,
    is_busy,
    last_position,
    log_header_of,
    next_position,
    reaches,
    reason_of,
    require_store,
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

_PUBLISH: Final = """
INSERT INTO books (pair, revision, body, digest) VALUES (?, ?, ?, ?)
ON CONFLICT (pair) DO UPDATE SET revision = excluded.revision, body = excluded.body, digest = excluded.digest
"""
_VERSION: Final = "PRAGMA data_version"
_RETRACT: Final = "UPDATE books SET revision = ?, body = NULL, digest = NULL WHERE pair = ? AND body IS NOT NULL"
_SPOOL: Final = """
CREATE TEMP TABLE IF NOT EXISTS spool (
    number INTEGER, pair TEXT, body TEXT, digest BLOB, PRIMARY KEY (number, pair)
)
"""
_LAY_ASIDE: Final = "INSERT OR REPLACE INTO temp.spool VALUES (?, ?, ?, ?)"
_NOT_LAID_ASIDE: Final = """
SELECT CAST(pair AS TEXT) FROM books
WHERE body IS NOT NULL AND pair NOT IN (SELECT pair FROM temp.spool WHERE number = ?)
"""
_PUBLISH_LAID_ASIDE: Final = """
INSERT INTO books (pair, revision, body, digest) SELECT pair, ?, body, digest FROM temp.spool WHERE number = ?
ON CONFLICT (pair) DO UPDATE SET revision = excluded.revision, body = excluded.body, digest = excluded.digest
WHERE body IS NOT excluded.body OR digest IS NOT excluded.digest
"""
_CLEAR_AWAY: Final = "DELETE FROM temp.spool WHERE number = ?"

# Cast, because whoever else writes to the file may store what he likes.
_CHANGED: Final = "SELECT CAST(pair AS TEXT), CAST(body AS TEXT), digest FROM books WHERE revision > ?"
_ONE: Final = "SELECT CAST(body AS TEXT), digest FROM books WHERE pair = ? AND body IS NOT NULL"

_Row: TypeAlias = tuple[bytes, bytes | None, object]
"""A pair, its book in JSON or None where it was retracted, and the digest of that."""


class SqliteStore(Store):
    """The file, opened for publishing.

    Processes take turns to write, so that any number may have it open; one that has to wait longer than `wait` seconds
    raises `StoreBusy`. A file that is replaced or deleted while it is open is noticed: no publish goes astray.
    """

    def __init__(self, target: str, path: Path, wait: float, synchronous: Synchronous) -> None:
        super().__init__(target)
        self._path = path
        self._wait = wait
        self._turn = Lock()
        self._spools = count()
        # How far this store's last change went.
        self._own: Position | None = None
        self._connection: sqlite3.Connection | None = None
        with ExitStack() as stack:
            self._identity = identity_of(path)
            self._writing = WriterLock(path)
            stack.callback(self._writing.close)
            connection = connect(path, "rw", wait)
            stack.callback(connection.close)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute(_SPOOL)
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
                    connection.executemany(_LAY_ASIDE, ((number, *row) for row in some))
            with self._change() as (connection, revision):
                others = connection.execute(_NOT_LAID_ASIDE, (number,)).fetchall()
                gone = [text for (text,) in others if (pair := _pair(text)) is None or not keep(pair)]
                connection.executemany(_RETRACT, ((revision, text.decode()) for text in gone))
                published = connection.execute(_PUBLISH_LAID_ASIDE, (revision, number)).rowcount
            return Receipt(revision, published, len(gone))
        finally:
            with suppress(StoreError), self._connected() as connection:
                connection.execute(_CLEAR_AWAY, (number,))

    def close(self) -> None:
        """Put what stands in the log into the file, and let go of it. Closing twice does no harm."""
        with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                # Not needed for what is stored to stay: the next to open the file would find it in the log.
                with suppress(Busy, sqlite3.Error), self._writing.held(self._wait):
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                connection.close()
                self._writing.close()

    def _publish(self, books: list[OrderBook]) -> Receipt:
        rows = [_row(book) for book in {book.pair: book for book in books}.values()]
        if not rows:
            return Receipt(self.revision)
        with self._change() as (connection, revision):
            connection.executemany(_PUBLISH, ((pair, revision, body, digest) for pair, body, digest in rows))
        return Receipt(revision, published=len(rows))

    def _retract(self, pairs: tuple[Pair, ...]) -> Receipt:
        with self._connected() as connection:
            stored = [text for text in set(map(str, pairs)) if connection.execute(_ONE, (text,)).fetchone()]
        if not stored:
            return Receipt(self.revision)
        with self._change() as (connection, revision):
            retracted = connection.executemany(_RETRACT, ((revision, text) for text in stored)).rowcount
        return Receipt(revision, retracted=retracted)

    @contextmanager
    def _change(self) -> Iterator[tuple[sqlite3.Connection, int]]:
        """Make one change, under the revision that is given: for good at the end, or not at all."""
        with self._connected() as connection, self._writing.held(self._wait):
            with transaction(connection, "BEGIN IMMEDIATE"):
                position = next_position(connection, self._own)
                yield connection, position.revision
            self._own = position

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Give the connection to this thread alone, and turn what it raises into what a store raises."""
        try:
            with self._turn:
                if self._connection is None:
                    raise StoreError(f"{self.target} is closed")
                if not self._is_in_place():
                    raise StoreError(f"{self.target} was deleted or replaced since it was opened: nothing was written")
                yield self._connection
        except (OSError, sqlite3.Error, Busy) as error:
            if isinstance(error, Busy) or (isinstance(error, sqlite3.Error) and is_busy(error)):
                raise StoreBusy(
                    f"{self.target} was not written to: others have been writing for {self._wait:g} seconds"
                ) from error
            raise StoreError(f"{self.target} was not written to: {reason_of(error)}") from error

    def _is_in_place(self) -> bool:
        try:
            return identity_of(self._path) == self._identity
        except FileNotFoundError:
            return False


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
        # Of the file that is open, or was last: which one it is, what its log began with when it was last read, the
        # count that SQLite keeps of the changes by others, and how far it was read.
        self._identity: tuple[int, int] | None = None
        self._log_header = b""
        self._version: tuple[int] | None = None
        self._position = NEVER_PUBLISHED
        self._pairs: set[Pair] = set()
        self._unreadable: set[bytes] = set()

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
        if identity_of(self._path) != self._identity:
            self._disconnect()
        self._catch_up(self._connected(), live, None)
        if self._position == NEVER_PUBLISHED and self._pairs:
            self._tell(f"was never published into; the {len(self._pairs)} pairs of before stay until it is")
        else:
            self._tell(None)

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
            raise Unusable(f"it took the place of another, whose log is still there: remove {name}-wal and {name}-shm")
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
            if position != before:
                rows = connection.execute(_CHANGED, (before.revision if goes_on else 0,)).fetchall()
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
        done, total = 0, sum(len(body) for _, body, _ in rows if body is not None)
        books: list[OrderBook] = []
        doubted: set[Pair | None] = set()
        self._unreadable.intersection_update(text for text, _, _ in rows)
        for number, (text, body, digest) in enumerate(rows):
            if body is None:
                continue
            book = self._read(text, body, digest)
            if book is None:
                doubted.add(_pair(text))
            else:
                books.append(book)
            done += len(body)
            if progress is not None and number % 256 == 0:
                progress(done, total)
        named = {book.pair for book in books}
        stay = self._pairs & doubted
        live.update(books, self._pairs - named - stay)
        self._pairs = named | stay

    def _publish_changes(self, live: LiveIndex, rows: list[_Row]) -> None:
        books: list[OrderBook] = []
        gone: list[Pair] = []
        for text, body, digest in rows:
            if body is not None:
                book = self._read(text, body, digest)
                if book is not None:
                    books.append(book)
            else:
                gone.extend(pair for pair in (_pair(text),) if pair is not None)
        live.update(books, gone)
        self._pairs.difference_update(gone)
        self._pairs.update(book.pair for book in books)

    def _read(self, text: bytes, body: bytes, digest: object) -> OrderBook | None:
        """Return the book of a row, or None where it holds none: counted and logged, once until it holds one again."""
        try:
            book = _book(text, body, digest)
        except MarketIndexError as error:
            if text not in self._unreadable:
                self._unreadable.add(text)
                self.refused += 1
                LOG.warning("%s row %s refused: %s", self.source, shown(text), error)
            return None
        self._unreadable.discard(text)
        self.books += 1
        return book


def open_sqlite_store(target: str, *, wait: float, synchronous: Synchronous, make: bool) -> SqliteStore:
    """Open a file for publishing; one that is not there is made where that is wanted.

    Raises `StoreError` when the file is something else, or cannot be made or written.
    """
    if synchronous not in {"full", "normal"}:
        raise ValueError(f"synchronous must be 'full' or 'normal', not {shown(synchronous)}")
    name = target if target.isprintable() else shown(target)
    try:
        path = Path(os.path.realpath(target))
        if make and not path.exists():
            create(path)
        require_store(path)
        return SqliteStore(name, path, wait, synchronous)
    except (OSError, ValueError, sqlite3.Error, Unusable) as error:
        raise StoreError(f"{name} cannot be opened: {reason_of(error)}") from None


def open_sqlite_feed(source: str) -> SqliteFeed:
    """Open a file for following. It is read when the feed is started.

    Raises `FeedError` when it is not there, or is no store.
    """
    name = source if source.isprintable() else shown(source)
    try:
        path = Path(source)
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


def _row(book: OrderBook) -> tuple[str, str, bytes]:
    body = wire.order_book_to_json(book)
    return str(book.pair), body.decode("ascii"), _digest(body)


def _book(text: bytes, body: bytes, digest: object) -> OrderBook:
    """Return the book of a row, which is as a store has written it; raise `InvalidOrderBook` where it is not."""
    if digest != _digest(body):
        raise InvalidOrderBook(f"its digest does not fit, so that it was damaged or is not a store's: {shown(body)}")
    book = wire.order_book_as_written(body)
    if str(book.pair).encode("ascii") != text:
        raise InvalidOrderBook(f"it holds the book of another pair: {book.pair}")
    return book


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


def _pair(text: bytes) -> Pair | None:
    """Return the pair that a row stands under, or None where that names none."""
    try:
        base, _, quote = text.decode("ascii").partition("/")
        return Pair(AssetId.parse(base), AssetId.parse(quote))
    except (UnicodeDecodeError, MarketIndexError):
        return None
