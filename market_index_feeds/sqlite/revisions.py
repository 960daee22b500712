"""The revisions of a store: the digests of rows, runs of revisions, and positions in runs.

A book is one row: its pair, the revision of the change that wrote it, its JSON, and a digest. A retracted pair keeps
its row, without JSON, so that followers see the change. SQLite has no checksums. A row that does not match its digest
was damaged, or written by another program, and is rejected. Each change also stores the sum of all digests, which
detects missing rows and rows of another file: SQLite finds the log by its name, so it may combine a file with the log
of the previous file at its path.

Revision numbers alone do not distinguish a file from another file, or from a restored older copy of itself. So each
unbroken run of revisions by one writer has a random token. A follower remembers the run of the last revision that it
read. If the file does not contain that run up to that revision, it is another file or was rolled back.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Final

from attrs import frozen

from market_index import Freshness, InvalidFreshness
from market_index.freshness import UNKNOWN, format_time, parse_time
from market_index_feeds.sqlite.file import SCHEMA_VERSION, Unusable, connect, log_header_of, transaction

MAX_RUNS: Final = 1000
"""How many runs a file keeps. A follower of an older run reads the whole file again."""

_PAIRS_PER_BATCH: Final = 128
"""How many pairs one query names, and how many rows are then written: so few that they stay in the processor's cache.

SQLite before 3.32 allows 999 parameters.
"""

_DIGEST_BYTES: Final = 16
_MODULUS: Final = 256**_DIGEST_BYTES

_PUT: Final = """
INSERT INTO books (pair, revision, digest, body) VALUES (?, ?, ?, ?)
ON CONFLICT (pair) DO UPDATE SET revision = excluded.revision, digest = excluded.digest, body = excluded.body
"""

# CAST: another program may have stored a value of any type.
DIGESTS: Final = "SELECT CAST(digest AS BLOB) FROM books"

_IS_STORED: Final = "SELECT 1 FROM books WHERE pair = ? AND body IS NOT NULL"


@frozen
class Position:
    """The last revision that was written or read, and the token of its run."""

    token: bytes
    revision: int


NEVER_PUBLISHED: Final = Position(b"", 0)


@frozen
class Run:
    """The last run of a file: its position, the sum of the digests of all rows, and the texts of the freshness."""

    position: Position
    total: int
    as_of: bytes | None = None
    published_at: bytes | None = None

    @property
    def freshness(self) -> Freshness:
        """The freshness, parsed lazily; unknown if it is invalid, or if the file has schema 1."""
        as_of, published_at = (
            one if one is None else str(one, "ascii", "replace") for one in (self.as_of, self.published_at)
        )
        try:
            return Freshness(as_of, None if published_at is None else parse_time(published_at))
        except InvalidFreshness:
            return UNKNOWN


class Change:
    """A change in a transaction: its revision, and the sum of all digests after it.

    `own_position` is the position of the writer's last change. If it is still the last one of the file, the change
    continues its run. `freshness` is that of the file after the change; with `keeps_as_of`, the stored as_of is kept.
    """

    def __init__(
        self, connection: sqlite3.Connection, own_position: Position | None, freshness: Freshness, *, keeps_as_of: bool
    ) -> None:
        _upgrade(connection)
        run = last_run(connection)
        last = run.position
        continues = last == own_position
        self.connection = connection
        self.position: Position = Position(last.token if continues else secrets.token_bytes(16), last.revision + 1)
        self.total: int = run.total
        self.run_before: Run = run
        self.freshness: Freshness = freshness
        if keeps_as_of and run.as_of is not None:
            self.freshness = freshness.changed(as_of=run.freshness.as_of)
        if not continues:
            connection.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, NULL, NULL)", (*[self.revision] * 2, self.position.token, b"")
            )
            connection.execute(
                "DELETE FROM runs WHERE first <= (SELECT first FROM runs ORDER BY first DESC LIMIT 1 OFFSET ?)",
                (MAX_RUNS,),
            )

    @property
    def revision(self) -> int:
        """The revision of the change."""
        return self.position.revision

    def stored_among(self, pairs: Iterable[str]) -> list[str]:
        """Return the pairs that have a book."""
        return [pair for pair in pairs if self.connection.execute(_IS_STORED, (pair,)).fetchone()]

    def put(self, bodies: Mapping[str, bytes | None]) -> None:
        """Store the JSON of books under their pairs; None retracts the pair."""
        pairs = list(bodies)
        revision = self.revision
        for start in range(0, len(pairs), _PAIRS_PER_BATCH):
            some = pairs[start : start + _PAIRS_PER_BATCH]
            before = self.connection.execute(f"{DIGESTS} WHERE pair IN ({', '.join('?' * len(some))})", some)
            self.total -= sum_of(digest for (digest,) in before)
            rows = [_row(pair, revision, bodies[pair]) for pair in some]
            self.total += sum_of(digest for _, _, digest, _ in rows)
            self.connection.executemany(_PUT, rows)

    def finish(self) -> None:
        """Store the position, the sum of digests, and the freshness."""
        total = (self.total % _MODULUS).to_bytes(_DIGEST_BYTES)
        time = self.freshness.published_at
        published_at = None if time is None else format_time(time)
        run = self.position.revision, total, self.freshness.as_of, published_at, self.position.token
        self.connection.execute("UPDATE runs SET last = ?, total = ?, as_of = ?, published_at = ? WHERE token = ?", run)


def _row(pair: str, revision: int, body: bytes | None) -> tuple[str, int, bytes, str | None]:
    digest = digest_of(revision, body or pair.encode("ascii"))
    return pair, revision, digest, None if body is None else str(body, "ascii")


def digest_of(revision: int, content: bytes) -> bytes:
    """Return the digest of a row: of its JSON, or of its pair if the pair is retracted."""
    return blake2b(b"%d %b" % (revision, content), digest_size=_DIGEST_BYTES).digest()


def sum_of(digests: Iterable[bytes]) -> int:
    """Return the sum of digests. It does not depend on their order."""
    return sum(map(int.from_bytes, digests)) % _MODULUS


def last_run(connection: sqlite3.Connection) -> Run:
    """Return the last run of the file."""
    row = connection.execute("SELECT * FROM runs ORDER BY first DESC LIMIT 1").fetchone()
    if row is None:
        return Run(NEVER_PUBLISHED, 0)
    _, last, token, total, *times = row
    return Run(Position(token, last), int.from_bytes(total), *times)


def reaches(connection: sqlite3.Connection, position: Position) -> bool:
    """Whether the file contains the run of this position, up to its revision."""
    run = connection.execute("SELECT last FROM runs WHERE token = ?", (position.token,)).fetchone()
    return run is not None and run[0] >= position.revision


def require_total(total: int, stored: int) -> None:
    """Raise `Unusable` if the sum of the digests differs from the stored one."""
    if total % _MODULUS != stored:
        raise Unusable(
            "rows are missing, or belong to another file: the log (-wal) beside it may belong to the file that was "
            "there before; replace the file by a valid copy, and remove the log"
        )


def _upgrade(connection: sqlite3.Connection) -> None:
    """Add columns for freshness to a file of version 1. Older programs then report that a later version wrote it."""
    if connection.execute("PRAGMA user_version").fetchone()[0] < SCHEMA_VERSION:
        connection.execute("ALTER TABLE runs ADD COLUMN as_of TEXT")
        connection.execute("ALTER TABLE runs ADD COLUMN published_at TEXT")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def require_own_log(path: Path) -> None:
    """Raise `Unusable` if the log beside a file is that of another file, which SQLite would copy into the file."""
    if log_header_of(path):
        with closing(connect(path, "ro", 1.0)) as connection, transaction(connection, "BEGIN"):
            total = sum_of(digest for (digest,) in connection.execute(DIGESTS))
            require_total(total, last_run(connection).total)
