"""Reads the content of a store file with SQLite alone, without this project."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def stored_spots(path: Path) -> list[str | None]:
    """Return the stored spots, ordered by pair. The file must be intact, and no row later than the last change."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        spots = "SELECT json_extract(body, '$.spot') FROM books WHERE body IS NOT NULL ORDER BY pair"
        found = connection.execute(spots).fetchall()
        (last,) = connection.execute("SELECT coalesce(max(revision), 0) FROM changes").fetchone()
        (newest,) = connection.execute("SELECT coalesce(max(revision), 0) FROM books").fetchone()
        assert newest <= last
    return [spot for (spot,) in found]
