"""Real faults: writers killed at any moment, and a disk that is full. `make test-faults` does more of each."""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from market_index import LiveIndex
from market_index_feeds import FeedError, Store, StoreError, open_feed, open_store
from tests.market_index_feeds.made_up import book, spots
from tests.market_index_feeds.writer import PAIRS, books
from tests.waiting import eventually

KILLS = int(os.environ.get("MARKET_INDEX_KILLS", "12"))


def stored(path: Path) -> list[str | None]:
    """The spots that stand in the file, read by the standard library alone, which finds nothing wrong with it."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = connection.execute("SELECT json_extract(body, '$.spot') FROM books ORDER BY pair").fetchall()
        (last,) = connection.execute("SELECT coalesce(max(last), 0) FROM runs").fetchone()
        assert connection.execute("SELECT coalesce(max(revision), 0) FROM books").fetchone() == (last,)
    return [spot for (spot,) in found]


def test_a_writer_that_is_killed_at_any_moment_loses_nothing_that_it_acknowledged(tmp_path: Path):
    numbers = random.Random(KILLS)
    path = tmp_path / "market.db"
    live = LiveIndex()
    feed = None
    acknowledged = generation = revision = 0
    half_made = 0
    try:
        for number in range(KILLS):
            with subprocess.Popen(
                [sys.executable, "-m", "tests.market_index_feeds.writer", path, str(generation + 1)],
                stdout=subprocess.PIPE,
                text=True,
            ) as writer:
                assert writer.stdout
                if number % 4:
                    acknowledged = int(writer.stdout.readline())
                    time.sleep(numbers.random() * 0.05)
                else:
                    # At its start, too: while it makes the file, or recovers what the one before it left.
                    time.sleep(0.1 + numbers.random() * 0.3)
                writer.kill()
                for line in writer.stdout:
                    if line.endswith("\n"):
                        acknowledged = int(line)
            if not path.exists():
                half_made += 1
                continue
            found = stored(path)
            if found:
                assert len(found) == PAIRS
                assert len(set(found)) == 1, "a change is there whole or not at all"
                generation = int(str(found[0]))
                assert generation in {acknowledged, acknowledged + 1}
            else:
                assert acknowledged == 0
            if feed is None:
                feed = open_feed(path)
                feed.start(live)
            expected = {pair: str(generation) for pair in range(PAIRS)} if generation else {}
            eventually(lambda expected=expected: spots(live) == expected)  # type: ignore[misc]  # a default has no type
            assert (feed.revision or 0) >= revision
            revision = feed.revision or 0
            if found:
                assert tuple(live.current.values()) == tuple(books(generation))
        assert generation > KILLS // 4, "it was killed before it had done anything, again and again"
        with open_store(path) as store:
            store.publish(*books(generation + 1))
        eventually(lambda: spots(live)[0] == str(generation + 1))
    finally:
        if feed is not None:
            feed.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("a small disk can be mounted by the superuser alone")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(path: Path) -> None:
    """Write into the file until not one more block is to be had."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def publish_until_it_fails(store: Store) -> tuple[int, str]:
    """The last generation that was acknowledged, and what was said of the next."""
    for generation in range(2, 100):
        try:
            store.publish(*books(generation))
        except StoreError as error:
            return generation - 1, str(error)
    raise AssertionError("the disk is not full")


def test_a_full_disk_costs_the_publish_that_it_is_full_for_and_nothing_else(small_disk: Path):
    path = small_disk / "market.db"
    live = LiveIndex()
    with open_store(path) as store:
        store.publish(*books(1))
        with open_feed(path) as feed:
            feed.start(live)
            filling = small_disk / "filling"
            fill(filling)
            acknowledged, error = publish_until_it_fails(store)
            assert re.search(r"was not written to: (database or disk is full|disk I/O error)", error)
            for work in (lambda: store.publish(*books(99)), lambda: store.replace(books(99))):
                with pytest.raises(StoreError):
                    work()
            assert stored(path) == [str(acknowledged)] * PAIRS
            eventually(lambda: spots(live) == {number: str(acknowledged) for number in range(PAIRS)})
            assert spots(open_feed(path).read()) == spots(live)
            with pytest.raises(StoreError, match="cannot be opened"):
                open_store(small_disk / "another.db")
            filling.unlink()
            revision = store.revision
            assert store.publish(book(0, 1000)).revision == revision + 1
            eventually(lambda: spots(live)[0] == "1000")
    assert stored(path)[0] == "1000"


@pytest.mark.skipif(not os.path.ismount("/sys"), reason="there is no folder that not even the superuser can write to")
def test_where_nothing_can_be_written_nothing_is_made():
    with pytest.raises(StoreError, match="cannot be opened"):
        open_store("/sys/market.db")


def test_a_store_on_a_disk_that_cannot_be_written_to(small_disk: Path, tmp_path: Path):
    """Those that share a file do so through another beside it: where that cannot be made, the error says so."""
    path = small_disk / "market.db"
    with open_store(path) as store:
        store.publish(*books(1))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StoreError, match="Read-only file system"):
        open_store(path)
    with pytest.raises(FeedError, match="its folder has to be writable"):
        open_feed(path).read()
