"""Connections to a store, and files that change while they are opened or closed."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from market_index_feeds import Store, StoreError, open_feed, open_store
from market_index_feeds.sqlite import connection as module
from market_index_feeds.sqlite import open_sqlite_source
from market_index_feeds.sqlite.connection import Files, StoreConnection
from market_index_feeds.sqlite.file import Unusable
from tests.market_index_feeds.made_up import book, spots
from tests.market_index_feeds.sqlite.files import elsewhere, plain
from tests.waiting import DEADLINE_SECONDS, in_thread, raised_in_thread


def test_a_connection_is_closed_although_its_file_is_missing(store: Store, path: Path):
    connection = StoreConnection(path, "rw", 1.0)
    path.unlink()
    assert not connection.is_in_place
    connection.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.sqlite.execute("SELECT 1")


def test_a_forked_process_closes_no_connection_of_its_parent(store: Store, path: Path):
    connection = StoreConnection(path, "ro", 1.0)
    connection._process += 1  # as in another process
    connection.close()
    assert connection.sqlite.execute("SELECT 1").fetchone() == (1,)
    connection._process -= 1
    connection.close()


def test_a_file_that_is_replaced_each_time_it_is_opened_is_rejected(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
):
    connect = module._connect

    def connect_late(*arguments: object) -> sqlite3.Connection:
        shutil.copyfile(path, path.with_name("copy"))
        path.with_name("copy").rename(path)
        return connect(*arguments)  # type: ignore[arg-type]  # those of `_connect`

    monkeypatch.setattr(module, "_connect", connect_late)
    with pytest.raises(Unusable, match="was deleted or replaced while this process has it open"):
        StoreConnection(path, "ro", 1.0)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_an_index_that_is_deleted_while_it_is_opened_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
):
    script = "import os, sys; from market_index_feeds import open_store; s = open_store(sys.argv[1]); os._exit(0)"
    elsewhere(script, path)
    index, files_on_disk = path.with_name("market.db-shm"), StoreConnection._files_on_disk
    index.unlink()  # its log stays
    calls = 0

    def files_on_disk_later(connection: StoreConnection) -> Files:
        nonlocal calls
        calls += 1
        if calls == 2:  # after the first connection
            index.unlink()
            if is_replaced:
                index.touch()
        return files_on_disk(connection)

    monkeypatch.setattr(StoreConnection, "_files_on_disk", files_on_disk_later)
    connection = StoreConnection(path, "rw", 1.0)
    assert connection.files.index
    assert connection.files.index in set(map(identity_of, range(1024)))
    connection.close()


def identity_of(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def test_a_store_that_was_not_closed_is_closed_with_its_last_reference(path: Path):
    """Such as in a notebook whose cell runs again."""
    for spot in (1, 2):
        store = open_store(path)
        store.publish(book(1, spot))
        del store
        gc.collect()
        assert {one.name for one in path.parent.iterdir()} == {"market.db", "market.db-lock"}
    assert spots(open_feed(path).read()) == {1: "2"}


@pytest.mark.parametrize("ending", ["store.publish(book(1, 2))", "del store", "sys.exit()", "store.close()"])
def test_a_process_that_ends_with_a_deleted_index_undoes_no_change(store: Store, path: Path, ending: str):
    """SQLite's own destructor would copy the log by the deleted index, over the changes of others."""
    script = (
        "import sys\n"
        "from market_index_feeds import open_store\n"
        "from tests.market_index_feeds.made_up import book\n"
        "store = open_store(sys.argv[1])\n"
        "store.publish(*(book(number, 1) for number in range(20)))\n"
        "print('published', flush=True)\n"
        "sys.stdin.read()\n"
        f"{ending}\n"
    )
    store.close()
    with subprocess.Popen(
        [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as other:
        assert other.stdin
        assert other.stdout
        assert other.stdout.readline() == b"published\n"
        path.with_name("market.db-shm").unlink()
        others = "".join(f"store.publish(*(book(number, {spot}) for number in range(20)))\n" for spot in range(2, 50))
        elsewhere(script.partition("store.publish")[0] + others + "import os; os._exit(0)\n", path)
        other.stdin.close()
    assert spots(open_feed(path).read()) == dict.fromkeys(range(20), "49")
    assert plain(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_reader_that_the_garbage_collector_closes_during_another_open_does_not_block(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
):
    connect = module._connect

    def collect_and_connect(*arguments: object) -> sqlite3.Connection:
        gc.collect()
        return connect(*arguments)  # type: ignore[arg-type]  # those of `_connect`

    store.publish(book(1, 1))
    cycle: list[object] = [open_sqlite_source(str(path)).updates(Event(), None)]
    next(cycle[0])  # type: ignore[call-overload]  # the updates
    cycle.append(cycle)
    monkeypatch.setattr(module, "_connect", collect_and_connect)
    del cycle
    assert spots(open_feed(path).read()) == {1: "1"}


def test_a_store_that_is_locked_does_not_block_another_one(store: Store, path: Path, tmp_path: Path):
    store.close()
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as locking:
        locking.execute("PRAGMA locking_mode = EXCLUSIVE")
        locking.execute("BEGIN EXCLUSIVE")
        waiting = in_thread(lambda: raised_in_thread(lambda: open_store(path, wait=DEADLINE_SECONDS)))
        with open_store(other) as store:
            assert store.publish(book(1, 1)).revision == 1
        assert waiting.is_alive()
        locking.execute("COMMIT")
        locking.close()
        waiting.join(DEADLINE_SECONDS)


def test_a_store_whose_folder_is_gone_closes(store: Store, path: Path, tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir()
    store = open_store(folder / "market.db")
    store.publish(book(1, 1))
    folder.rename(tmp_path / "moved")
    folder.touch()
    with pytest.raises(StoreError, match="was deleted or replaced since it was opened"):
        store.publish(book(1, 2))
    store.close()
    store.close()


@pytest.mark.parametrize("has_index", [False, True])
def test_a_copy_with_another_journal_is_read_and_published_into(store: Store, path: Path, has_index: bool):
    """The index may be that of the former file."""
    store.publish(book(1, 1))
    store.close()
    plain(path, "PRAGMA journal_mode = DELETE")
    if has_index:
        path.with_name("market.db-shm").touch()
    assert spots(open_feed(path).read()) == {1: "1"}
    assert not path.with_name("market.db-wal").exists()
    with open_store(path) as store:
        assert store.publish(book(1, 2)).revision == 2


def test_a_connection_without_a_checkpoint_leaves_the_file_unchanged(store: Store, path: Path):
    store.publish(book(1, 1))
    before = path.read_bytes()
    store._open.close(checkpoint=False)  # type: ignore[attr-defined]
    assert (path.read_bytes(), path.with_name("market.db-wal").stat().st_size > 0) == (before, True)
