"""Pipes and devices at the path of a file that `market-index serve` follows.

`python -m tests.faults.special_files` prints their effect on the server. It runs against any build.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import urlopen

from attrs import frozen

from market_index import wire
from market_index_feeds import open_store
from tests.feeds.made_up import book
from tests.waiting import eventually

SERVE: Final = """
import sys
from market_index_cli.main import main
main(["serve", sys.argv[1], "--port", "0"])
"""

CASES: Final = {
    "a pipe instead of books.ndjson": ("books.ndjson", "", "pipe"),
    "a link to /dev/zero instead of books.ndjson": ("books.ndjson", "", "device"),
    "a pipe instead of market.db": ("market.db", "", "pipe"),
    "a link to /dev/zero instead of market.db": ("market.db", "", "device"),
    "a pipe instead of market.db-wal": ("market.db", "-wal", "pipe"),
    "a pipe instead of market.db-journal": ("market.db", "-journal", "pipe"),
}


@frozen
class Outcome:
    """The reaction of the server before the timeout."""

    logged: bool
    resumed: bool
    ended: bool


class Server:
    """A server in its own process, which follows a file with one book."""

    def __init__(self, script: str, path: Path, *arguments: Path) -> None:
        self._log = path.with_name("log")
        with self._log.open("wb") as log:
            command = [sys.executable, "-c", script, str(path), *map(str, arguments)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(lambda: "listening on" in self.log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def pairs(self) -> int:
        """The number of served pairs."""
        address = self.log.partition("listening on ")[2].split()[0]
        try:
            response = urlopen(f"{address}/healthz", timeout=5)
        except HTTPError as unhealthy:
            response = unhealthy
        with response:
            return int(json.load(response)["pairs"])

    def ends(self, seconds: float) -> bool:
        """Whether SIGTERM ends the server; otherwise kill it."""
        self._process.terminate()
        try:
            return self._process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False


def put(path: Path, number: int) -> None:
    """Replace the file at the path with one that has `number` books."""
    books = map(book, range(number))
    if path.suffix == ".db":
        with open_store(path) as store:
            store.replace(books)
    else:
        new = path.with_name("new")
        new.write_bytes(b"".join(wire.order_book_to_json(one) + b"\n" for one in books))
        new.replace(path)


def put_special(path: Path, kind: str) -> None:
    new = path.with_name("special")
    if kind == "pipe":
        os.mkfifo(new)
    else:
        new.symlink_to("/dev/zero")
    new.replace(path)


def run(folder: Path, name: str, suffix: str, kind: str, seconds: float) -> Outcome:
    """Replace a followed file with a pipe or device, restore a regular file, replace that again, and end the server."""
    path = folder / name
    special = Path(f"{path}{suffix}")
    put(path, 1)
    server = Server(SERVE, path)

    def replace() -> None:
        if not suffix:
            with suppress(FileNotFoundError):
                path.rename(folder / "original")
        put_special(special, kind)
        os.utime(path)

    def put_back() -> None:
        special.unlink()
        if not suffix:
            (folder / "original").rename(path)
        put(path, 2)

    replace()
    logged = _within(seconds, lambda: "must be a regular file; keeping its 1 pairs" in server.log)
    put_back()
    resumed = _within(seconds, lambda: server.pairs == 2)
    before = server.log
    replace()
    _within(seconds, lambda: server.log != before)
    return Outcome(logged, resumed, server.ends(seconds))


def _within(seconds: float, holds: Callable[[], object]) -> bool:
    try:
        eventually(holds, seconds)
    except AssertionError:
        return False
    return True


def main() -> None:
    for title, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            print(f"{title}: {run(Path(folder), *case, seconds=6)}", flush=True)


if __name__ == "__main__":
    main()
