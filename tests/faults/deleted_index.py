"""Publishers of one file whose shared-memory index (`-shm`) is deleted repeatedly.

`python -m tests.faults.deleted_index [RUNS]` prints how many changes were acknowledged, how many of them were lost, and
how many are not visible to a follower. It runs against any build.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from attrs import define

from market_index import LiveIndex
from market_index_feeds import FeedError, StoreError, open_feed, open_store
from tests.market_index_feeds.made_up import book, spots
from tests.waiting import eventually

PUBLISHERS = 3
DELETIONS = 400
_CHANGES_PER_OPENING = 5
_BASE = 100_000


@define
class Outcome:
    """The result of one run: acknowledged changes, their revisions, stored books, and books that a follower shows."""

    acknowledged: set[int]
    revisions: list[int]
    stored: set[int]
    shown: set[int]
    problem: str | None
    """Why the stored books could not be read, None if they could."""

    @property
    def repeated(self) -> int:
        """The number of revisions that were issued more than once."""
        return len(self.revisions) - len(set(self.revisions))

    def __str__(self) -> str:
        lost, hidden = len(self.acknowledged - self.stored), len(self.stored - self.shown)
        return (
            f"{len(self.acknowledged)} acknowledged, {lost} of them lost, {self.repeated} revisions issued again, "
            f"{hidden} stored books not visible to a follower, problem: {self.problem}"
        )


def publish(path: str, first: int) -> None:
    """Publish one pair per change, and print its number and revision. Reopen the store after a few, or an error."""
    number = first
    while True:
        with suppress(StoreError), open_store(path, synchronous="normal") as store:
            for _ in range(_CHANGES_PER_OPENING):
                print(number, store.publish(book(number, 1)).revision, flush=True)
                number += 1


def run(folder: Path) -> Outcome:
    """Start publishers while the index is deleted, kill them, and return the result."""
    path = folder / "market.db"
    with open_store(path) as store:
        store.publish(book(0, 1))
    index = Path(f"{path}-shm")
    live = LiveIndex()
    printed = []
    with ExitStack() as stack:
        feed = stack.enter_context(open_feed(path))
        feed.start(live)
        processes: list[subprocess.Popen[str]] = []
        for number in range(DELETIONS):
            if number % (DELETIONS // PUBLISHERS) == 0 and len(processes) < PUBLISHERS:
                first = _BASE * (len(processes) + 1)
                processes.append(_publisher(path, first))
                # A busy machine may take seconds to start it.
                eventually(partial(_is_shown, live, first))
            time.sleep(0.005)  # publishers write in the meantime
            index.unlink(missing_ok=True)
        for process in processes:
            process.kill()
            printed += [line.split() for line in process.communicate()[0].splitlines(keepends=True) if line[-1] == "\n"]
        stored, problem = _read(path)
        with suppress(AssertionError):
            eventually(lambda: set(spots(live)) == stored, seconds=20)
        shown = set(spots(live))
    return Outcome({int(number) for number, _ in printed}, [int(one) for _, one in printed], stored, shown, problem)


def _read(path: Path) -> tuple[set[int], str | None]:
    """Return the stored books, and why they cannot be read, None if they can."""
    stored: set[int] = set()
    problem: str | None = None

    def is_readable() -> bool:
        nonlocal problem
        try:
            stored.update(spots(open_feed(path).read()))
            problem = None
        except FeedError as error:
            # A reader may open an index that was just deleted. The feed rejects it, so read again.
            problem = str(error)
        return bool(stored)

    with suppress(AssertionError):  # the file is damaged
        eventually(is_readable, seconds=20)
    return stored, problem


def _is_shown(live: LiveIndex, number: int) -> bool:
    return number in spots(live)


def _publisher(path: Path, first: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.faults.deleted_index", "publish", str(path), str(first)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def main() -> None:
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        with tempfile.TemporaryDirectory() as folder:
            print(run(Path(folder)), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["publish"]:
        publish(sys.argv[2], int(sys.argv[3]))
    else:
        main()
