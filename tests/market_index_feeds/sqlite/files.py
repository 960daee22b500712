"""A store in a file, and changes by other programs and processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from market_index_feeds.sqlite.revisions import DIGESTS, digest_of, sum_of
from tests.waiting import DEADLINE_SECONDS


def plain(path: Path, statement: str, *parameters: object) -> list[tuple[object, ...]]:
    """Run a statement with the plain sqlite3 module, and return its rows; `forged` computes the digest of a row."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.create_function("forged", 2, lambda revision, body: digest_of(revision, body.encode()))
        return connection.execute(statement, parameters).fetchall()


def elsewhere(script: str, *arguments: object) -> str:
    """Run a script in another process, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def forge(path: Path, pair: str, body: str) -> None:
    """Write a row as a store does, with a valid digest, revision and sum, but with any body."""
    with closing(sqlite3.connect(path)) as connection, connection:
        (last,) = connection.execute("SELECT max(last) FROM runs").fetchone()
        row = (pair, last + 1, digest_of(last + 1, body.encode()), body)
        connection.execute("INSERT OR REPLACE INTO books (pair, revision, digest, body) VALUES (?, ?, ?, ?)", row)
        total = sum_of(digest for (digest,) in connection.execute(DIGESTS))
        connection.execute("UPDATE runs SET last = ?, total = ? WHERE last = ?", (last + 1, total.to_bytes(16), last))
