"""Full disks and read-only disks."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from market_index import Freshness, LiveIndex
from market_index_feeds import FeedError, Store, StoreError, open_feed, open_store, replay
from tests import nats
from tests.command import running
from tests.faults.actors import PAIRS, books
from tests.feeds.made_up import book, spots
from tests.waiting import eventually


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("only the superuser can mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def use_up_disk(path: Path) -> None:
    """Write to the file until no block is free."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def stored_spots(path: Path) -> list[str | None]:
    """Return the stored spots by SQLite alone, ordered by pair. The file must be intact."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        spots = "SELECT json_extract(body, '$.spot') FROM books WHERE body IS NOT NULL ORDER BY pair"
        return [spot for (spot,) in connection.execute(spots)]


def publish_until_it_fails(store: Store) -> tuple[int, str]:
    """Return the last acknowledged generation, and the error of the next one."""
    for generation in range(2, 100):
        try:
            store.publish(*books(generation))
        except StoreError as error:
            return generation - 1, str(error)
    raise AssertionError("the disk must become full")


def test_a_full_disk_loses_only_the_change_that_does_not_fit(small_disk: Path):
    path = small_disk / "market.db"
    live = LiveIndex()
    with open_store(path) as store:
        store.publish(*books(1))
        with open_feed(path) as feed:
            feed.start(live)
            large = small_disk / "large"
            use_up_disk(large)
            acknowledged, error = publish_until_it_fails(store)
            assert re.search(r"was not written to: (database or disk is full|disk I/O error)", error)
            for work in (lambda: store.publish(*books(99)), lambda: store.replace(books(99))):
                with pytest.raises(StoreError):
                    work()
            assert stored_spots(path) == [str(acknowledged)] * PAIRS
            eventually(lambda: spots(live) == {number: str(acknowledged) for number in range(PAIRS)})
            assert spots(open_feed(path).read()) == spots(live)
            with pytest.raises(StoreError, match="cannot be opened"):
                open_store(small_disk / "another.db")
            large.unlink()
            revision = store.position.number
            assert store.publish(book(0, 1000)).position.number == revision + 1
            eventually(lambda: spots(live)[0] == "1000")
    assert stored_spots(path)[0] == "1000"


@pytest.mark.decision(37)
def test_a_batch_that_a_full_disk_of_a_server_cuts_is_a_change_that_was_not_finished(small_disk: Path):
    with nats.served(small_disk / "server") as server, open_store(server.bucket("books"), wait=10) as store:
        store.replace([book(number, 1) for number in range(1000, 1020)], Freshness("slot 1"))
        with (small_disk / "rest").open("wb", buffering=0) as file:
            # The server has the batch twice: as it arrives, and as it is committed.
            file.write(bytes(shutil.disk_usage(small_disk).free - 450_000))
        with pytest.raises(StoreError, match=r"only in part .* a disk or an account of its servers may be full"):
            store.update([book(number, 2) for number in range(1000)], freshness=Freshness("slot 2"))
        index = open_feed(server.bucket("books")).read()
        assert (index.as_of, set(spots(index).values())) == (None, {"1", "2"})


def test_a_recorder_on_a_full_disk_leaves_a_valid_recording(small_disk: Path, tmp_path: Path):
    recording = small_disk / "recording.ndjson"
    with open_store(tmp_path / "market.db", synchronous="normal") as store:
        store.publish(*books(1))
        with running(tmp_path, tmp_path / "market.db", recording, command="record") as recorder:
            eventually(lambda: "recording" in recorder.stderr)
            large = small_disk / "large"
            use_up_disk(large)
            for generation in range(2, 1000):
                store.publish(*books(generation))
                if "No space left on device" in recorder.stderr:
                    break
            recorder.has_logged(f"{recording} was not written to: No space left on device")
            assert recording.read_bytes().endswith(b"}\n"), "what does not fit is removed"
            large.unlink()
            recorder.has_logged(f"{recording}: equal again to ")
            assert recorder.end() == 0
    recorded = [[str(book.spot) for book in index.values()] for _, index in replay(recording)]
    assert recorded[0] == ["1"] * PAIRS
    assert all(len({*spots}) == 1 for spots in recorded)
    feed = open_feed(recording)
    assert len(feed.read()) == PAIRS
    assert feed.health.rejected == 0


def test_the_error_on_a_read_only_disk_contains_the_reason(small_disk: Path):
    """Processes share a store through a file beside it, which cannot be created on a read-only disk."""
    path = small_disk / "market.db"
    with open_store(path) as store:
        store.publish(*books(1))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StoreError, match="to write its folder"):
        open_store(path)
    with pytest.raises(FeedError, match="to write its folder"):
        open_feed(path).read()
