"""Whether the log (`-wal`) beside a SQLite file belongs to it, by their content (decision 33).

Each change writes its number, which is random, into the header of the file (`user_version`), and the number that it
follows into the row of `last`. These are in the first two pages, which every log with a change contains. So the log
itself shows on which state of a file it began, and through which states it leads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from io import FileIO
from pathlib import Path
from typing import TypeAlias

FileState: TypeAlias = tuple[int, int]
"""The version of the schema, which SQLite counts, and the number of the last change. Both are in the first page."""


def state_of(sqlite: sqlite3.Connection) -> FileState:
    """Return the state that a connection reads."""
    (schema,), (number,) = (sqlite.execute(f"PRAGMA {name}_version").fetchone() for name in ("schema", "user"))
    return schema, number


def state_of_file(path: Path) -> FileState:
    """Return the state of a file without its log.

    SQLite reads the content. If this process opened and closed the file by itself, it would release the locks of its
    other connections: POSIX locks belong to a process, and end when any descriptor of the file is closed.
    """
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.execute("PRAGMA writable_schema = ON")  # otherwise it rejects a file without its last pages
        return state_of(connection)


def belongs_to(log: Path, file: FileState, read: FileState) -> bool:
    """Whether a log belongs to a file, given the states of the file alone and of both together.

    It does in three cases:

    - Its first change follows the last one of the file.
    - It leads through the state of the file, because a part of it was moved into the file.
    - It has all pages, as after a restore with SQLite's own means. Then nothing of the file is read.
    """
    pages, states, has_all = dict[int, bytes](), list[FileState](), False
    with log.open("rb", buffering=0) as opened:
        header = opened.read(32)
        for new, size in _transactions(opened, header):
            pages.update({page: content for page, content in new.items() if page not in pages})
            if 1 in new:
                states.append((int.from_bytes(new[1][40:44]), int.from_bytes(new[1][60:64])))
            # Only up to the state that SQLite reads: it ignores all that follows a damaged frame.
            if states and states[-1] == read:
                has_all = pages.keys() >= set(range(1, size + 1))
        opened.seek(0)
        is_begun_anew = opened.read(32) != header  # meanwhile, by a program that has the file open
    if is_begun_anew or not states or has_all or file in states:
        return True
    schema, number = states[0]
    return file[0] <= schema and file[1] == (_followed_by(pages) if 2 in pages else number)


def _transactions(log: FileIO, header: bytes) -> Iterator[tuple[dict[int, bytes], int]]:
    """Yield the new pages of each transaction of a log, and the number of all pages. Only the first two have content.

    https://www.sqlite.org/fileformat2.html#the_write_ahead_log
    """
    page_bytes = min(int.from_bytes(header[8:12]), 65_536)
    # SQLite locks this page, and never writes it.
    new = {(1 << 30) // page_bytes + 1: b""} if page_bytes else {}
    while len(frame := log.read(24)) == 24 and frame[8:16] == header[16:24]:
        page, content = int.from_bytes(frame[:4]), log.read(page_bytes)
        new[page] = content if page <= 2 else b""
        if size := int.from_bytes(frame[4:8]):  # the last page of a transaction
            yield new, size
            new = {}


def _followed_by(pages: Mapping[int, bytes]) -> object:
    """Return the number of the change that is followed by the one of these pages; anything else if they are damaged."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(pages[1][:18] + b"\1\1" + pages[1][20:] + pages[2])  # as a file without a log
        connection.execute("PRAGMA writable_schema = ON")  # otherwise it rejects a file without its last pages
        (follows,) = connection.execute("SELECT follows FROM last").fetchone() or (None,)
        return follows
