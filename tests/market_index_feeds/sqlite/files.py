"""A store in a file, and changes by other programs and processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from market_index_feeds.sqlite.revisions import _digest_of_run, sum_of_rows
from market_index_feeds.sqlite.rows import digest_of
from tests.waiting import DEADLINE_SECONDS


def plain(path: Path, statement: str, *parameters: object) -> list[tuple[object, ...]]:
    """Run a statement with the plain sqlite3 module, and return its rows."""
    with closing(sqlite3.connect(path)) as connection, connection:
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
        extend_run(connection, sum_of_rows(connection))


def extend_run(connection: sqlite3.Connection, total: int | None = None) -> None:
    """Write the row of the last run as after one more revision, with a valid digest, and another sum if given."""
    connection.text_factory = bytes
    row = connection.execute("SELECT * FROM runs ORDER BY first DESC").fetchone()
    first, last, token, stored, *others, _ = row
    row = first, last + 1, token, stored if total is None else total.to_bytes(16), *others
    connection.execute(
        "UPDATE runs SET last = ?, total = ?, digest = ? WHERE first = ?",
        (last + 1, row[3], _digest_of_run(row), first),
    )


def damage(path: Path, change: str, *parameters: object) -> None:
    """Change rows as another program could, in a revision with a valid row of its run, and the sum of before."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.create_function("forged", 2, lambda revision, body: digest_of(revision, body.encode()))
        connection.execute(change, parameters)
        extend_run(connection)
