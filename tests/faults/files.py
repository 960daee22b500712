"""Reads the content of a store file with SQLite alone, without this project."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def stored_spots(path: Path) -> list[str | None]:
    """Return the stored spots, ordered by pair. The file must be intact, and no row later than the last run.

    Rows may be earlier: a publisher that is killed before it knows that its content is stored replaces it by the same
    content after a restart, which changes only the row of the run.
    """
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = connection.execute("SELECT json_extract(body, '$.spot') FROM books ORDER BY pair").fetchall()
        (last,) = connection.execute("SELECT coalesce(max(last), 0) FROM runs").fetchone()
        (newest,) = connection.execute("SELECT coalesce(max(revision), 0) FROM books").fetchone()
        assert newest <= last
    return [spot for (spot,) in found]
