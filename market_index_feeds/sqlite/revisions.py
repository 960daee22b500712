"""The revisions of a store: the digests of rows, runs of revisions, and positions in runs.

A book is one row: its pair, the revision of the change that wrote it, its JSON, and a digest. A retracted pair keeps
its row, without JSON, so that followers see the change. SQLite has no checksums. A row that does not match its digest
was damaged, or written by another program, and is rejected. Each change also stores the sum of all digests, which
detects missing rows and rows of another file: SQLite finds the log by its name, so it may combine a file with the log
of the previous file at its path.

The last revision of the file, its freshness and its mark `complete` are in the row of the last run, which has a digest
as well. If it does not match, the row is an invalid record: the freshness is unknown, and the next change repairs it.

Revision numbers alone do not distinguish a file from another file, or from a restored older copy of itself. So each
unbroken run of revisions by one writer has a random token. A follower remembers the run of the last revision that it
read. If the file does not contain that run up to that revision, it is another file or was rolled back.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

from attrs import field, frozen

from market_index import Freshness, InvalidFreshness, Pair
from market_index.wire import format_time, parse_time
from market_index_feeds.sqlite.file import Unusable
from market_index_feeds.sqlite.rows import DIGEST_BYTES, digest_if_valid, digest_of, pair_of
from market_index_feeds.store import published_now

MAX_RUNS: Final = 1000
"""How many runs a file keeps. A follower of an older run reads the whole file again."""

_PAIRS_PER_BATCH: Final = 128
"""How many pairs one query names, and how many rows are then written: so few that they stay in the processor's cache.

SQLite before 3.32 allows 999 parameters.
"""

_MAX_REVISION: Final = 2**62
"""Higher revisions were written by another program: SQLite could not store the following ones."""

_LAST_REVISION: Final = (
    "SELECT max(revision) FROM books WHERE typeof(revision) = 'integer' AND revision BETWEEN 1 AND ?"
)

_MODULUS: Final = 256**DIGEST_BYTES

_PUT: Final = """
INSERT INTO books (pair, revision, digest, body) VALUES (?, ?, ?, ?)
ON CONFLICT (pair) DO UPDATE SET revision = excluded.revision, digest = excluded.digest, body = excluded.body
"""

# CAST: another program may have stored a value of any type.
_ROWS: Final = "SELECT pair, revision, CAST(digest AS BLOB), CAST(body AS BLOB) FROM books"
DIGESTS: Final = "SELECT CAST(digest AS BLOB) FROM books"

_PUT_RUN: Final = "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)"

_IS_NOT_RETRACTED: Final = "(body IS NOT NULL OR digest IS NOT digest_of(revision, CAST(pair AS BLOB)))"
"""Whether a row is anything but a valid retraction. The connection must have the function `digest_of`."""

_NOT_RETRACTED: Final = f"SELECT rowid, CAST(pair AS TEXT) FROM books WHERE {_IS_NOT_RETRACTED}"  # noqa: S608  # only constants
_RETRACT_ROW: Final = "UPDATE books SET revision = ?, digest = ?, body = NULL WHERE rowid = ?"
_IS_STORED: Final = f"SELECT 1 FROM books WHERE pair = ? AND {_IS_NOT_RETRACTED}"  # noqa: S608  # only constants


@frozen
class Position:
    """The last revision that was written or read, and the token of its run."""

    token: bytes
    revision: int


NEVER_PUBLISHED: Final = Position(b"", 0)


@frozen
class Run:
    """The last run of a file: its position, and what its row says of all books.

    `total` is the sum of the digests of all rows, None if the row of the run is damaged.
    """

    position: Position = NEVER_PUBLISHED
    first: int = 1
    total: int | None = 0
    freshness: Freshness = field(factory=Freshness)
    is_complete: bool = False


class Change:
    """A change in a transaction: its revision, and the sum of all digests after it.

    `own_position` is the position of the writer's last change. If it is still the last one of the file, the change
    continues its run. `freshness` is that of the file after the change; without one, the stored as_of is kept.
    """

    def __init__(
        self, connection: sqlite3.Connection, own_position: Position | None, freshness: Freshness | None
    ) -> None:
        run = last_run(connection)
        last = run.position
        continues = last == own_position and run.total is not None
        self.connection = connection
        self.position: Position = Position(last.token if continues else secrets.token_bytes(16), last.revision + 1)
        self.total: int = sum_of_rows(connection) if run.total is None else run.total
        self.run_before: Run = run
        self.freshness: Freshness = freshness or published_now(run.freshness.as_of)
        self.is_complete: bool = run.is_complete
        self._first = run.first if continues else self.revision

    @property
    def revision(self) -> int:
        """The revision of the change."""
        return self.position.revision

    @property
    def differs(self) -> bool:
        """Whether the row of the run differs from the one before in more than its revision."""
        before = self.run_before
        after = self.total, self.freshness, self.is_complete
        return after != (before.total, before.freshness, before.is_complete)

    def stored_among(self, pairs: Iterable[Pair]) -> set[Pair]:
        """Return the pairs that have a book, or a damaged row."""
        return {pair for pair in pairs if self.connection.execute(_IS_STORED, (str(pair),)).fetchone()}

    def put(self, bodies: Mapping[str, bytes | None]) -> None:
        """Store the JSON of books under their pairs; None retracts the pair."""
        revision = self.revision
        for some in _batches(bodies):
            before = self.connection.execute(f"{DIGESTS} WHERE {_is_one_of(some)}", some)
            self.total -= sum_of(digest for (digest,) in before)
            rows = [_row(pair, revision, bodies[pair]) for pair in some]
            self.total += sum_of(digest for _, _, digest, _ in rows)
            self.connection.executemany(_PUT, rows)

    def differing(self, bodies: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return those bodies that are not stored under their pairs in a valid row."""
        found = dict(bodies)
        for some in _batches(bodies):
            for text, revision, digest, body in self.connection.execute(f"{_ROWS} WHERE {_is_one_of(some)}", some):
                pair = str(text, "ascii")
                if body == bodies[pair] and digest == digest_if_valid(revision, body):
                    del found[pair]
        return found

    def drop_others(self, named: Container[Pair], retract: Container[Pair] | None) -> tuple[frozenset[Pair], int]:
        """Retract the pairs that are not `named`: all, or those to `retract`. Return the others, and how many were."""
        kept, dropped = set[Pair](), list[tuple[int, bytes, int]]()
        for row, text in self.connection.execute(_NOT_RETRACTED).fetchall():
            pair = pair_of(text)
            if pair in named:
                continue
            if pair is None or retract is None or pair in retract:
                dropped.append((self.revision, digest_of(self.revision, text), row))
            else:
                kept.add(pair)
        self.connection.executemany(_RETRACT_ROW, dropped)
        return frozenset(kept), len(dropped)

    def finish(self) -> None:
        """Store the row of the run, which ends with this change."""
        if self.run_before.total is None:
            # The revisions after the last book are lost. Followers of them must not resume there.
            self.connection.execute("DELETE FROM runs")
        total = (self.total % _MODULUS).to_bytes(DIGEST_BYTES)
        time, as_of = self.freshness.published_at, self.freshness.as_of
        texts = (as_of, None if time is None else format_time(time))
        as_bytes = (None if text is None else text.encode("ascii") for text in texts)
        row = self._first, self.revision, self.position.token, total, *as_bytes, int(self.is_complete)
        self.connection.execute(_PUT_RUN, (*row[:4], *texts, row[6], _digest_of_run(row)))
        if self._first == self.revision:
            self.connection.execute(
                "DELETE FROM runs WHERE first <= (SELECT first FROM runs ORDER BY first DESC LIMIT 1 OFFSET ?)",
                (MAX_RUNS,),
            )


def _batches(pairs: Iterable[str]) -> Iterator[list[str]]:
    """Yield as many pairs at a time as one query names."""
    remaining = iter(pairs)
    while some := list(islice(remaining, _PAIRS_PER_BATCH)):
        yield some


def _is_one_of(pairs: Collection[str]) -> str:
    return f"pair IN ({', '.join('?' * len(pairs))})"


def _row(pair: str, revision: int, body: bytes | None) -> tuple[str, int, bytes, str | None]:
    digest = digest_of(revision, body or pair.encode("ascii"))
    return pair, revision, digest, None if body is None else str(body, "ascii")


def sum_of(digests: Iterable[bytes]) -> int:
    """Return the sum of digests. It does not depend on their order."""
    return sum(map(int.from_bytes, digests)) % _MODULUS


def sum_of_rows(connection: sqlite3.Connection) -> int:
    """Return the sum of the digests of all rows. The index may come from another file, with its log."""
    return sum_of(digest for (digest,) in connection.execute(f"{DIGESTS} NOT INDEXED"))


def sum_of_index(connection: sqlite3.Connection) -> int:
    """Return the sum of all digests in the index of rows, which is read several times as fast as the rows."""
    return sum_of(digest for (digest,) in connection.execute(DIGESTS))


def last_run(connection: sqlite3.Connection) -> Run:
    """Return the last run of the file. If its row is damaged or deleted, only the last revision of a book is known."""
    row = connection.execute("SELECT * FROM runs ORDER BY first DESC LIMIT 1").fetchone()
    if row is not None and (run := _run_of(row)) is not None:
        return run
    (revision,) = connection.execute(_LAST_REVISION, (_MAX_REVISION,)).fetchone()
    return Run() if row is None and revision is None else Run(Position(b"", revision or 1), total=None)


@lru_cache(maxsize=16)
def _run_of(row: tuple[Any, ...]) -> Run | None:
    """Return the run of a row, which readers poll; None if the row is damaged, or of another program."""
    try:
        first, last, token, total, as_of, published_at, is_complete, digest = row
        if not 1 <= first <= last <= _MAX_REVISION:
            return None
        time = None if published_at is None else parse_time(str(published_at, "ascii"))
        freshness = Freshness(None if as_of is None else str(as_of, "ascii"), time)
        run = Run(Position(token, last), first, int.from_bytes(total), freshness, bool(is_complete))
    except (InvalidFreshness, TypeError, ValueError):
        return None
    return run if digest == _digest_of_run(row[:-1]) else None


def _digest_of_run(row: tuple[object, ...]) -> bytes:
    """Return the digest of the row of a run: of its columns, as SQLite returns them with texts as bytes."""
    return blake2b(repr(row).encode("ascii"), digest_size=DIGEST_BYTES).digest()


def reaches(connection: sqlite3.Connection, position: Position) -> bool:
    """Whether the file contains the run of this position, up to its revision."""
    row = connection.execute("SELECT * FROM runs WHERE token = ?", (position.token,)).fetchone()
    run = None if row is None else _run_of(row)
    return run is not None and run.position.revision >= position.revision


def require_total(total: int, stored: int | None) -> None:
    """Raise `Unusable` if the sum of the digests differs from the stored one, if that is known."""
    if stored is not None and total % _MODULUS != stored:
        raise Unusable(
            "rows are missing, or belong to another file: the log (-wal) beside it may belong to the file that was "
            "there before; replace the file by a valid copy, and remove the log; if another program deleted rows, "
            "end all processes that have it open, move its log into it (PRAGMA wal_checkpoint(TRUNCATE)), then publish "
            "all books with --replace"
        )
