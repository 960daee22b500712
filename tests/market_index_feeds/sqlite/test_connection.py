"""Connections to a store, and files that change while they are opened or closed."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from market_index_feeds import Store, open_feed, open_store
from market_index_feeds.sqlite import connection as module
from market_index_feeds.sqlite.connection import StoreConnection
from market_index_feeds.sqlite.file import Unusable
from tests.market_index_feeds.made_up import book, spots


def test_a_connection_is_closed_although_its_file_is_missing(store: Store, path: Path):
    connection = StoreConnection(path, "rw", 1.0)
    path.unlink()
    assert not connection.is_in_place
    connection.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.sqlite.execute("SELECT 1")


def test_a_file_that_is_replaced_while_it_is_opened_is_rejected(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copyfile(path, path.with_name("copy"))
    connect = module._connect

    def connect_late(*arguments: object) -> sqlite3.Connection:
        if path.with_name("copy").exists():
            path.with_name("copy").rename(path)
        return connect(*arguments)  # type: ignore[arg-type]  # those of `_connect`

    monkeypatch.setattr(module, "_connect", connect_late)
    with pytest.raises(Unusable, match="was deleted or replaced while this process has it open"):
        StoreConnection(path, "ro", 1.0)


def test_a_connection_that_was_not_closed_does_not_prevent_another_one(path: Path):
    """Such as in a notebook whose cell runs again."""
    for spot in (1, 2):
        store = open_store(path)
        store.publish(book(1, spot))
        store._open.sqlite.close()  # type: ignore[attr-defined]  # as when it is garbage-collected
        store._open = None  # type: ignore[attr-defined]
        path.with_name("market.db-shm").unlink(missing_ok=True)
    assert spots(open_feed(path).read()) == {1: "2"}


def test_a_connection_without_a_checkpoint_leaves_the_file_unchanged(store: Store, path: Path):
    store.publish(book(1, 1))
    before = path.read_bytes()
    store._open.close(checkpoint=False)  # type: ignore[attr-defined]
    assert (path.read_bytes(), path.with_name("market.db-wal").stat().st_size > 0) == (before, True)
