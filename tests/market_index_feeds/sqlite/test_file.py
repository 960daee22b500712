"""Opening and creating files. A file that is not a store is not changed, and the error has one line."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from attrs import frozen

from market_index import LiveIndex, wire
from market_index_feeds import Feed, FeedError, Store, StoreError, open_feed, open_store
from market_index_feeds.sqlite import file
from market_index_feeds.sqlite.connection import StoreConnection
from market_index_feeds.sqlite.file import transaction
from market_index_feeds.sqlite.revisions import MAX_RUNS, Change
from tests.market_index_feeds.made_up import book, spots
from tests.market_index_feeds.sqlite.files import elsewhere, plain
from tests.waiting import eventually


@frozen
class Case:
    content: bytes | str | None
    reading: str
    writing: str


CASES = {
    "empty": Case(b"", "(remove it, and a store is created)", "it must be a store, got an empty file"),
    "garbage": Case(b"\x00garbage" * 999, "not of SQLite", "not of SQLite"),
    "cut short": Case(b"SQLite format 3\0", "not of SQLite", "not of SQLite"),
    "foreign": Case(
        "CREATE TABLE t (x)", "a SQLite file of another application", "a SQLite file of another application"
    ),
    "foreign log": Case("PRAGMA journal_mode = WAL", "of another application", "of another application"),
    "later": Case(
        "later",
        "its schema must be 3, got 4 (a later version of market-index wrote it)",
        "its schema must be 3, got 4",
    ),
    "earlier": Case("earlier", "its schema must be 3, got 2", "its schema must be 3, got 2"),
    "folder": Case("folder", "it must be a regular file", "it must be a regular file"),
    "missing": Case(None, "No such file or directory", ""),
}


@pytest.mark.parametrize("name", ["market.db", "market"])
def test_a_store_whose_publisher_died_while_it_copied_the_log_opens_with_all_changes(tmp_path: Path, name: str):
    """SQLite copies the first page first. It then declares more pages than the file has until the others follow."""
    path = tmp_path / name
    with open_store(path) as store:
        store.publish(*(book(number, number) for number in range(1, 300)))
        before, log = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    after = path.read_bytes()
    page_bytes = int.from_bytes(after[16:18])
    assert len(after) > len(before) > page_bytes
    path.write_bytes(after[:page_bytes] + before[page_bytes:])
    Path(f"{path}-wal").write_bytes(log)
    assert len(open_feed(path).read()) == 299
    with open_store(path) as store:
        store.publish(book(300, 300))
    assert len(open_feed(path).read()) == 300


class TestOpening:
    """A file that is not a store is not changed, and the error has one line."""

    @pytest.mark.parametrize("name", CASES)
    def test_another_kind_of_file_is_one_clear_error_and_is_not_changed(self, tmp_path: Path, name: str):
        case = CASES[name]
        path = tmp_path / "market.db"
        if case.content in {"later", "earlier"}:
            open_store(path).close()
            plain(path, f"PRAGMA user_version = {4 if case.content == 'later' else 2}")
            path.with_name("market.db-lock").unlink()
        elif case.content == "folder":
            path.mkdir()
        elif isinstance(case.content, str):
            plain(path, case.content)
            plain(path, "CREATE TABLE another (x)")
        elif case.content is not None:
            path.write_bytes(case.content)
        before = {one.name: one.is_file() and one.read_bytes() for one in tmp_path.iterdir()}
        with pytest.raises(FeedError) as refused:
            open_feed(path)
        assert str(refused.value).startswith(f"{path} cannot be opened: ")
        assert case.reading in str(refused.value)
        if case.writing:
            with pytest.raises(StoreError) as refused_too:
                open_store(path)
            assert str(refused_too.value).startswith(f"{path} cannot be opened: ")
            assert case.writing in str(refused_too.value)
        assert {one.name: one.is_file() and one.read_bytes() for one in tmp_path.iterdir()} == before

    @pytest.mark.parametrize(
        ("target", "reason"),
        [
            ("nowhere/market.db", "No such file or directory|unable to open database file"),
            ("/sys/market.db", "Permission denied|unable to open database file"),
            ("nul\0.db", "embedded null"),
            (
                "amqp://me:secret@127.0.0.1/b",
                "^amqp://127.0.0.1/b cannot be opened: the scheme of a store must be nats or tls, got 'amqp'",
            ),
        ],
    )
    def test_a_store_that_cannot_be_created_is_one_clear_error(self, target: str, reason: str):
        with pytest.raises(StoreError, match=reason):
            open_store(target)

    @pytest.mark.parametrize("at_the_same_time", [False, True])
    def test_a_store_is_created_on_a_file_system_without_links(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, at_the_same_time: bool
    ):
        def refuse(new: Path, path: Path) -> None:
            if at_the_same_time:
                shutil.copyfile(new, path)
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
        open_store(path).close()
        open_store(path).close()
        assert {one.name for one in path.parent.iterdir()} == {"market.db", "market.db-lock"}

    @pytest.mark.parametrize(
        ("target", "got"), [("-", "'-'"), ("orders:market.db", "events of orders: 'orders:market.db'")]
    )
    def test_only_a_file_or_a_bucket_is_a_store(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, got: str
    ):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(StoreError, match=f"a store must be a file such as market.db, or a bucket, got {got}"):
            open_store(target)
        assert list(tmp_path.iterdir()) == []

    def test_a_later_schema_that_is_only_in_the_log_is_noticed(self, store: Store, path: Path):
        store.publish(book(1))
        plain(path, "PRAGMA user_version = 4")
        for opening in (lambda: open_feed(path).read(), lambda: open_store(path)):
            with pytest.raises((FeedError, StoreError), match="its schema must be 3, got 4"):
                opening()

    def test_a_store_is_recognized_by_its_content_if_not_by_its_name(self, store: Store, path: Path):
        store.publish(book(1, 1))
        store.close()
        other = path.rename(path.with_name("books"))
        assert spots(open_feed(other).read()) == {1: "1"}
        lines = path.with_name("lines")
        lines.write_bytes(wire.order_book_to_json(book(2, 2)) + b"\n")
        assert spots(open_feed(lines).read()) == {2: "2"}

    def test_a_file_deleted_between_open_and_start_is_an_error(self, path: Path, live: LiveIndex):
        open_store(path).close()
        feed = open_feed(path)
        path.unlink()
        with pytest.raises(FeedError, match=r"market\.db cannot be read: No such file or directory"):
            feed.start(live)

    def test_old_runs_of_writers_are_deleted(self, store: Store, path: Path):
        with closing(StoreConnection(path, "rw", 1)) as connection, transaction(connection.sqlite, "BEGIN"):
            for _ in range(MAX_RUNS + 5):
                Change(connection.sqlite, None, None).finish()
        found = plain(path, "SELECT first, last FROM runs")
        assert found == [(revision, revision) for revision in range(6, MAX_RUNS + 6)]

    def test_a_reader_whose_index_was_deleted_opens_the_next_one(
        self, store: Store, feed: Feed, path: Path, live: LiveIndex, logged: pytest.LogCaptureFixture
    ):
        """SQLite shares one index per process: a reader cannot open the new one while the store has the old one."""
        index = Path(f"{path}-shm")
        index.unlink()
        eventually(lambda: "or replaced while this process has it open: close everything" in logged.text)
        store.close()
        with open_store(path) as again:
            again.publish(book(4, 4))
            eventually(lambda: 4 in spots(live))

    def test_an_error_of_the_disk_names_the_remedy_for_a_log_that_was_removed(self, store: Store, path: Path):
        store.publish(book(1, 1))
        Path(f"{path}-wal").unlink()
        script = "import sys; from market_index_feeds import open_feed; open_feed(sys.argv[1]).read()"
        with pytest.raises(AssertionError, match=r"disk I/O error \(if its log, -wal, was removed, end all publishers"):
            elsewhere(script, path)

    def test_a_disk_error_is_not_reported_as_another_format(self):
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            file.read_header(Path("/proc/self/mem"))


def test_an_error_names_no_permission_that_the_user_has(path: Path):
    path.touch()
    assert file.reason_of(PermissionError(13, "Permission denied"), path) == "Permission denied"
    missing = path.parent / "nowhere" / path.name
    assert "write its folder" in file.reason_of(PermissionError(13, "Permission denied"), missing)
