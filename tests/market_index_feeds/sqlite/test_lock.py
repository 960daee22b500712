"""The lock of publishers: its file, its mode, waits and forks."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from market_index_feeds import Store, StoreBusy, StoreError, open_feed, open_store
from market_index_feeds.sqlite import lock
from market_index_feeds.sqlite import store as store_module
from market_index_feeds.sqlite.lock import Busy, WriterLock
from tests.market_index_feeds.made_up import book, spots
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread, raised_in_thread


def is_held(probe: WriterLock) -> bool:
    """Whether another store holds the lock of the file."""
    try:
        with probe.held(0):
            return False
    except Busy:
        return True


class TestLock:
    """The lock file, and waits for it."""

    def test_closing_twice_does_no_harm(self, store: Store, path: Path):
        lock = WriterLock(path)
        lock.close()
        lock.close()
        assert store.publish(book(1, 1)).revision == 1

    def test_an_interrupted_wait_for_the_lock_leaves_nothing_behind(
        self, store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def interrupt(_: float) -> None:
            raise KeyboardInterrupt

        with closing(WriterLock(path)) as other, other.held(0), monkeypatch.context() as waiting:
            waiting.setattr(lock, "sleep", interrupt)
            with pytest.raises(KeyboardInterrupt):
                store.publish(book(1, 1))
        with open_store(path) as other_store:
            assert other_store.publish(book(1, 2)).revision == 1
        assert raised_in_thread(lambda: store.publish(book(1, 3))) == ""

    @pytest.mark.parametrize(("mode", "of_lock"), [(0o644, 0o600), (0o664, 0o660), (0o600, 0o600)])
    def test_only_users_who_may_write_the_store_can_hold_the_lock(
        self, store: Store, path: Path, mode: int, of_lock: int
    ):
        store.close()
        lock_path = Path(f"{path}-lock")
        path.chmod(mode)
        for of_former in (None, 0o666):
            lock_path.unlink() if of_former is None else lock_path.chmod(of_former)
            open_store(path).close()
            assert stat.S_IMODE(lock_path.stat().st_mode) == of_lock

    def test_the_mode_of_a_file_with_several_names_is_not_changed(self, store: Store, path: Path, tmp_path: Path):
        store.close()
        other = tmp_path / "other"
        other.touch(0o644)
        Path(f"{path}-lock").unlink()
        Path(f"{path}-lock").hardlink_to(other)
        open_store(path).close()
        assert stat.S_IMODE(other.stat().st_mode) == 0o644

    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (
                lambda lock: lock.symlink_to(lock.with_name("other")),
                "market.db-lock must be a regular file, got a link",
            ),
            (os.mkfifo, "the lock file must be a regular file"),
            (Path.mkdir, "Is a directory"),
        ],
    )
    def test_the_lock_must_be_a_regular_file(
        self, store: Store, path: Path, make: Callable[[Path], object], reason: str
    ):
        store.close()
        lock_path = Path(f"{path}-lock")
        lock_path.unlink()
        make(lock_path)
        with pytest.raises(StoreError, match=reason):
            open_store(path)
        assert not path.with_name("other").exists()

    def test_all_waits_of_a_change_have_one_deadline(self, path: Path, monkeypatch: pytest.MonkeyPatch):
        """The clock advances only while a change waits for the lock of publishers."""
        now = [0.0]
        for module in (lock, store_module):
            monkeypatch.setattr(module, "monotonic", lambda: now[0])
        waits: list[float] = []
        set_timeout = store_module._set_timeout

        def noting(connection: sqlite3.Connection, seconds: float) -> None:
            waits.append(seconds)
            set_timeout(connection, 0)

        monkeypatch.setattr(store_module, "_set_timeout", noting)
        with open_store(path, wait=10) as store, closing(sqlite3.connect(path, isolation_level=None)) as writing:
            writing.execute("BEGIN IMMEDIATE")
            with ExitStack() as holding:
                other = holding.enter_context(closing(WriterLock(path)))
                holding.enter_context(other.held(0))

                def sleep(_: float) -> None:
                    now[0] = 4.0
                    holding.close()

                monkeypatch.setattr(lock, "sleep", sleep)
                with pytest.raises(StoreBusy):
                    store.publish(book(1))
            writing.execute("COMMIT")
        assert waits == [6, 0.1]

    def test_a_forked_process_does_not_hold_the_lock_of_its_killed_parent(self, store: Store, path: Path):
        script = (
            "import os, signal, sys\n"
            "from market_index import Freshness\n"
            "from market_index_feeds import open_store\n"
            "store = open_store(sys.argv[1])\n"
            "with store._change(Freshness()):\n"
            "    if os.fork() == 0:\n"
            "        print('forked', flush=True)\n"
            "        sys.stdin.read()\n"
            "        print('ended', flush=True)\n"
            "        os._exit(0)\n"
            "    signal.pause()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as parent:
            assert parent.stdin
            assert parent.stdout
            assert parent.stdout.readline() == "forked\n"
            parent.kill()
            parent.wait(DEADLINE_SECONDS)
            assert store.publish(book(1, 1)).revision == 1
            parent.stdin.close()
            assert parent.stdout.readline() == "ended\n", "the forked process had ended before"

    @pytest.mark.parametrize("begins", [False, True])
    def test_an_interrupted_wait_for_a_transaction_leaves_nothing_behind(
        self, store: Store, path: Path, monkeypatch: pytest.MonkeyPatch, begins: bool
    ):
        """A signal handler runs when the call of SQLite returns: with an error, or with the transaction begun."""

        class Interrupted(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                try:
                    return super().execute(sql, parameters)
                finally:
                    if sql == "BEGIN IMMEDIATE":
                        raise KeyboardInterrupt

        connect = sqlite3.connect
        monkeypatch.setattr(sqlite3, "connect", partial(connect, factory=Interrupted))
        with open_store(path, wait=0.01) as interrupted, closing(connect(path, isolation_level=None)) as other:
            if not begins:
                other.execute("BEGIN IMMEDIATE")
            with pytest.raises(KeyboardInterrupt):
                interrupted.publish(book(1, 1))
            if not begins:
                other.execute("COMMIT")
            assert store.publish(book(1, 2)).revision == 1
            assert raised_in_thread(lambda: interrupted.revision) == ""

    def test_the_timeout_can_be_infinite(self, path: Path):
        with (
            open_store(path, wait=float("inf")) as store,
            closing(WriterLock(path)) as probe,
            closing(sqlite3.connect(path, isolation_level=None)) as other,
        ):
            other.execute("BEGIN IMMEDIATE")
            publishing = in_thread(lambda: store.publish(book(1, 1)))
            eventually(lambda: is_held(probe))
            assert publishing.is_alive()
            other.execute("COMMIT")
            publishing.join(DEADLINE_SECONDS)
            assert spots(open_feed(path).read()) == {1: "1"}

    def test_threads_of_one_store_wait_no_longer_than_the_timeout(self, store: Store):
        with store._lock:  # type: ignore[attr-defined]  # as a thread that publishes has it
            assert "StoreBusy" in raised_in_thread(lambda: store.publish(book(1)))
