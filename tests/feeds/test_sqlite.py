"""The store in a SQLite file: what other media do not have. The laws of all stores are in `contract`."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from market_index import Freshness, LiveIndex, wire
from market_index.errors import safe_repr
from market_index_feeds import FeedError, Store, StoreBusy, StoreError, file_watch, open_feed, open_store
from market_index_feeds.sqlite import SqliteStore, Synchronous, file, is_sqlite, log, publishing, rows
from tests.feeds.contract.medium import Reader
from tests.feeds.made_up import book, pair, spots
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread

ONE, TWO, THREE = pair(1), pair(2), pair(3)
CONTENT = {1: "1", 2: "2", 3: "3"}
VALUES = (None, -1, 1 << 62, 0.5, "late", b"\xff\0", str(TWO), str(pair(9)))
BOOK_COLUMNS = "pair", "revision", "digest", "body"
BOOKS = 300
"""So many fill several pages, so that a change writes only some of them."""
CHANGE_COLUMNS = "follows", "revision", "token", "as_of", "published_at", "books", "digest"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "market.db"


@pytest.fixture
def filled(path: Path) -> Path:
    """A store of three books in two changes, without a log."""
    with open_store(path, synchronous="normal") as store:
        store.publish(book(1, 7), book(2, 2))
        store.update([book(1, 1), book(3, 3)], freshness=Freshness("slot 1"))
    return path


def plain(path: Path, statement: str, *parameters: object) -> list[tuple[object, ...]]:
    """Run a statement with the plain sqlite3 module, and return its rows."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, parameters).fetchall()


def forge(path: Path, name: str, body: str | None) -> None:
    """Write a row as a store does, with a valid digest."""
    ((revision,),) = plain(path, "SELECT max(revision) FROM changes")
    assert isinstance(revision, int)
    text = None if body is None else body.encode()
    row = name, revision, rows.digest_of(name.encode(), revision, text), body
    plain(path, "INSERT OR REPLACE INTO books (pair, revision, digest, body) VALUES (?, ?, ?, ?)", *row)


def read(path: Path) -> dict[int, str | None]:
    return spots(open_feed(path).read())


class TestDamagedRows:
    @pytest.mark.parametrize("column", BOOK_COLUMNS)
    @pytest.mark.parametrize("value", VALUES, ids=safe_repr)
    def test_a_damaged_book_is_invalid_until_it_is_replaced(self, filled: Path, column: str, value: object):
        with Reader(open_feed(filled)) as follower:
            follower.pull()
            with suppress(sqlite3.IntegrityError):
                plain(filled, f"UPDATE books SET {column} = ? WHERE pair = ?", value, str(ONE))
            is_damaged = spots(follower.index) != CONTENT or not plain(
                filled, "SELECT 1 FROM books WHERE pair = ? AND body = ?", str(ONE), wire.order_book_to_json(book(1, 1))
            )
            with Reader(open_feed(filled)) as late, open_store(filled, synchronous="normal") as store:
                version = late.pull()
                assert {1: "1"} | spots(version.index) == CONTENT
                if 1 not in spots(version.index):
                    assert version.invalid <= {ONE, None}
                    assert version.invalid
                    assert late.feed.health.rejected == 1
                assert is_damaged or version.invalid or spots(version.index) == CONTENT
                for reader in (follower, late):
                    reader.until(lambda _: True)
                receipt = store.replace([book(1, 1), book(3, 3)], Freshness("slot 2"))
                for reader in (follower, late):
                    reader.until(lambda version: version.position == receipt.position)
                    assert spots(reader.index) == {1: "1", 3: "3"}
                    assert (reader.index.as_of, reader.versions[-1].invalid) == ("slot 2", frozenset())

    @pytest.mark.parametrize("damage", ["DELETE FROM books", "UPDATE books SET body = x'00'"])
    def test_a_store_that_has_read_its_content_replaces_what_was_damaged_since(self, filled: Path, damage: str):
        with open_store(filled, synchronous="normal") as store:
            store.read()
            plain(filled, f"{damage} WHERE pair = ?", str(ONE))
            store.replace([book(1, 1), book(3, 3)], Freshness("slot 2"))
        index = open_feed(filled).read()
        assert (spots(index), index.as_of) == ({1: "1", 3: "3"}, "slot 2")

    @pytest.mark.parametrize("column", CHANGE_COLUMNS)
    @pytest.mark.parametrize("value", VALUES, ids=safe_repr)
    def test_without_a_valid_row_of_the_last_change_its_freshness_is_not_known(
        self, filled: Path, column: str, value: object
    ):
        try:
            plain(filled, f"UPDATE last SET {column} = ?", value)
        except sqlite3.IntegrityError:
            return
        with Reader(open_feed(filled)) as reader, open_store(filled, synchronous="normal") as store:
            version = reader.pull()
            assert spots(reader.index) == CONTENT
            assert (reader.index.as_of, version.invalid) == (None, frozenset({None}))
            receipt = store.update([book(2, 5)])
            reader.until(lambda version: version.position == receipt.position)
            assert (spots(reader.index), reader.index.as_of) == (CONTENT | {2: "5"}, None)
            assert (reader.versions[-1].invalid, receipt.position.number) == (frozenset(), 3)

    def test_a_valid_digest_does_not_make_a_change(self, filled: Path):
        digest = rows._digest_of_change((1, 7, 2, b"token", b"\x07", None, 3))
        plain(
            filled,
            "UPDATE last SET follows = 7, token = 'token', as_of = char(7), published_at = NULL, digest = ?",
            digest,
        )
        with Reader(open_feed(filled)) as reader:
            assert (reader.pull().invalid, reader.index.as_of) == (frozenset({None}), None)

    def test_a_damaged_tombstone_retracts_nothing(self, filled: Path):
        with Reader(open_feed(filled)) as reader, open_store(filled) as store:
            reader.pull()
            plain(filled, "UPDATE books SET body = NULL, revision = 3 WHERE pair = ?", str(ONE))
            reader.until(lambda version: ONE in version.invalid)
            assert spots(reader.index) == CONTENT
            assert store.retract(ONE).retracted == 1
            reader.until(lambda version: not version.invalid)
            assert spots(reader.index) == {2: "2", 3: "3"}

    def test_a_name_and_a_book_that_contradict_each_other_may_be_of_any_pair(self, filled: Path):
        with Reader(open_feed(filled)) as reader:
            reader.pull()
            plain(filled, "UPDATE books SET pair = ?, revision = 3 WHERE pair = ?", str(pair(9)), str(ONE))
            reader.until(lambda version: None in version.invalid)
            assert spots(reader.index) == CONTENT
            with open_store(filled) as store:
                store.publish(book(9, 9))  # into the damaged row: the row of the first pair is gone
            reader.until(lambda version: not version.invalid)
            assert spots(reader.index) == {2: "2", 3: "3", 9: "9"}

    def test_a_name_that_is_no_text_is_not_that_of_a_pair(self, filled: Path):
        """Otherwise a change of the pair would add a second valid row."""
        plain(filled, "UPDATE books SET pair = CAST(pair AS BLOB) WHERE pair = ?", str(ONE))
        with open_store(filled) as store:
            store.publish(book(1, 9))
            version = store.read()
            assert (spots(version.index), version.invalid) == (CONTENT | {1: "9"}, frozenset({ONE}))
            store.replace([book(1, 9)])
            assert (spots(store.read().index), store.read().invalid) == ({1: "9"}, frozenset())

    def test_a_row_that_names_no_pair_may_be_of_any(self, filled: Path):
        with Reader(open_feed(filled)) as reader:
            reader.pull()
            nameless = "INSERT INTO books VALUES ('nonsense', 3, x'00', '{}'), ('NONSENSE', 3, ?, NULL)"
            plain(filled, nameless, rows.digest_of(b"NONSENSE", 3, None))
            reader.until(lambda version: None in version.invalid)
            assert (spots(reader.index), reader.feed.health.rejected) == (CONTENT, 2)
            with open_store(filled) as store:
                receipt = store.replace([book(1, 1)], Freshness("slot 2"))
            reader.until(lambda version: version.position == receipt.position)
            assert (spots(reader.index), reader.index.as_of) == ({1: "1"}, "slot 2")

    @pytest.mark.decision(24)
    @pytest.mark.parametrize("damage", ["DELETE FROM books", "UPDATE books SET pair = x'00', body = zeroblob(9)"])
    @pytest.mark.parametrize("lost", [1, 3])
    def test_a_lost_row_may_be_of_any_pair_until_the_content_is_replaced(self, filled: Path, damage: str, lost: int):
        with Reader(open_feed(filled)) as follower, open_store(filled) as store:
            follower.pull()
            plain(filled, f"{damage} WHERE pair = ?", str(pair(lost)))
            store.update([book(2, 4)], freshness=Freshness("slot 2"))
            with Reader(open_feed(filled)) as late:
                late.pull()
                assert spots(late.index) == {2: "4", 4 - lost: str(4 - lost)}
                assert (late.versions[-1].invalid, late.feed.health.rejected) == (frozenset({None}), 1)
                fence = store.replace([book(2, 2)], Freshness("slot 3")).position
                for reader in (late, follower):
                    reader.until(lambda version: version.position == fence)
                    assert (spots(reader.index), reader.index.as_of) == ({2: "2"}, "slot 3")

    @pytest.mark.decision(24)
    def test_a_zeroed_sector_never_drops_a_pair_of_a_known_state(self, filled: Path, tmp_path: Path):
        copy, content, are_invalid = tmp_path / "copy.db", filled.read_bytes(), set[bool]()
        for at in range(0, len(content), 512):
            copy.write_bytes(content[:at] + bytes(512) + content[at + 512 :])
            with suppress(FeedError):
                version = next(open_feed(copy).versions())
                assert spots(version.index) == CONTENT or version.invalid, at
                are_invalid.add(bool(version.invalid))
        assert are_invalid == {False, True}

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ('{"bids": 7}', "base"),
            (wire.order_book_to_json(book(2, 2)).decode(), "the book of the pair of its row"),
            (wire.order_book_to_json(book(1, 1)).decode() + " " * 1000, "at most 500 bytes"),
        ],
    )
    def test_a_valid_digest_does_not_make_a_book(
        self, filled: Path, body: str, reason: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("market_index.wire.MAX_ORDER_BOOK_BYTES", 500)
        forge(filled, str(ONE), body)
        feed = open_feed(filled)
        assert (spots(feed.read()), feed.health.current_rejections) == ({2: "2", 3: "3"}, 1)
        assert f"row {ONE} rejected: " in caplog.text
        assert reason in caplog.text

    @pytest.mark.parametrize("flips", [150, pytest.param(1500, marks=pytest.mark.thorough)])
    def test_a_flipped_bit_never_shows_a_book_that_was_not_published(self, filled: Path, tmp_path: Path, flips: int):
        randomly, copy, outcomes = random.Random(flips), tmp_path / "copy.db", set[str]()
        content = filled.read_bytes()
        for _ in range(flips):
            at, bit = randomly.randrange(len(content)), 1 << randomly.randrange(8)
            copy.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
            try:
                feed = open_feed(copy)
                found = feed.read()
                assert spots(found).items() <= CONTENT.items() | {(1, "7")}, (at, bit)
                assert found.as_of in {"slot 1", None}
                outcomes.add("equal" if spots(found) == CONTENT else "lacks")
            except FeedError:
                outcomes.add("unreadable")
            with suppress(StoreError), open_store(copy, synchronous="normal") as store:
                store.replace([book(4, 4)], Freshness("slot 4"))
                assert spots(store.read().index) == {4: "4"}
        assert "equal" in outcomes


def backup(source: Path, target: Path) -> None:
    """Copy a store with SQLite's own means."""
    with closing(sqlite3.connect(source)) as connection, closing(sqlite3.connect(target)) as copy:
        connection.backup(copy)


def run_and_die(path: Path) -> None:
    """Publish three changes in a process that is then killed."""
    killed = get_context("fork").Process(target=publish_and_die, args=(path,))
    killed.start()
    killed.join()


def publish_and_die(path: Path) -> None:
    store = open_store(path, synchronous="normal")
    for number in range(1, 4):
        store.publish(book(number, 9))
    os.kill(os.getpid(), signal.SIGKILL)


class Logs:
    """Two stores that change at random, and copies of their files and logs, as killed publishers leave them."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.numbers = path, random.Random(seed)
        self.stores: dict[int, Store] = {}
        self.contents: list[dict[int, str | None]] = [{}, {}]
        self.states: list[dict[int, str | None]] = []
        self.copies: list[tuple[bytes, bytes, dict[int, str | None]]] = []
        self.changes = 0
        for which in (0, 1):
            self.publish(which, range(BOOKS))

    def name(self, which: int) -> Path:
        return self.path / f"{which}.db"

    def publish(self, which: int, numbers: range) -> None:
        if which not in self.stores:
            self.stores[which] = open_store(self.name(which), synchronous="normal")
        self.changes += 1
        self.stores[which].publish(*[book(number, self.changes) for number in numbers])
        self.contents[which] = self.contents[which] | dict.fromkeys(numbers, str(self.changes))
        self.states.append(self.contents[which])
        self.copy(which)

    def copy(self, which: int) -> None:
        logged = Path(f"{self.name(which)}-wal").read_bytes()
        self.copies.append((self.name(which).read_bytes(), logged, self.contents[which]))

    def step(self) -> None:
        which, first = self.numbers.randrange(2), self.numbers.randrange(BOOKS)
        match self.numbers.choice(["publish"] * 4 + ["close", "move", "restore"]):
            case "publish":
                self.publish(which, range(first, min(first + 20, BOOKS)))
            case "close" if which in self.stores:
                self.stores.pop(which).close()
            case "move" if which in self.stores:
                plain(self.name(which), "PRAGMA wal_checkpoint(PASSIVE)")
                self.copy(which)
            case "restore":
                backup(self.name(1 - which), self.name(which))
                self.contents[which] = self.contents[1 - which]

    def close(self) -> None:
        for store in self.stores.values():
            store.close()


@pytest.mark.decision(33)
@pytest.mark.parametrize("seed", [1, 2, *[pytest.param(seed, marks=pytest.mark.thorough) for seed in range(3, 40)]])
def test_any_log_beside_any_file_is_a_published_state_or_refused(tmp_path: Path, seed: int):
    """Never a mixture of two states. A log beside its own file is accepted."""
    logs, laid = Logs(tmp_path, seed), tmp_path / "laid.db"
    for _ in range(20):
        logs.step()
    for (file_bytes, own, state), (_, log_bytes, _) in product(logs.copies, logs.copies):
        for suffix, content in (("", file_bytes), ("-wal", log_bytes), ("-shm", b"")):
            Path(f"{laid}{suffix}").write_bytes(content)
        try:
            assert read(laid) in ([state] if log_bytes == own else logs.states)
        except FeedError:
            assert log_bytes != own
    logs.close()


class TestOtherFileAtThePath:
    @pytest.fixture
    def mixed(self, path: Path, tmp_path: Path) -> Path:
        """An older copy beside the log of a killed publisher. Its inode is that of the store before."""
        for spot in range(1, 3):
            with open_store(path, synchronous="normal") as store:
                store.publish(*[book(number, spot) for number in range(1, 40)])
            if spot == 1:
                shutil.copyfile(path, tmp_path / "new.db")
        run_and_die(path)
        shutil.copyfile(tmp_path / "new.db", path)
        return path

    @pytest.mark.decision(33)
    def test_a_log_of_another_content_is_refused_until_it_is_removed(self, mixed: Path, live: LiveIndex):
        log = Path(f"{mixed}-wal")
        before = mixed.read_bytes(), log.read_bytes()
        for use in (lambda: open_feed(mixed), lambda: open_store(mixed)):
            with pytest.raises(
                (FeedError, StoreError), match=r"market.db-wal\) belongs to another file.*remove the log"
            ):
                use()
        assert (mixed.read_bytes(), log.read_bytes()) == before
        log.unlink()
        Path(f"{mixed}-shm").unlink()
        assert len(set(read(mixed).values())) == 1
        assert len(read(mixed)) == 39
        with open_store(mixed) as store, open_feed(mixed) as feed:
            store.publish(book(1, 9))  # its log belongs to this file
            feed.start(live)
            assert spots(live)[1] == "9"

    @pytest.mark.parametrize("flips", [60, pytest.param(600, marks=pytest.mark.thorough)])
    def test_a_damaged_log_shows_a_published_state_or_none(self, filled: Path, tmp_path: Path, flips: int):
        run_and_die(filled)
        randomly, copy, log = random.Random(flips), tmp_path / "copy.db", Path(f"{filled}-wal").read_bytes()
        states = [CONTENT]
        for number in range(1, 4):
            states.append(states[-1] | {number: "9"})
        row = log.index(b"slot 1") - 16  # of the last change: its token is before the as_of
        places = [at for at in range(row - 20, row) for _ in range(8)]
        places += [randomly.randrange(len(log)) for _ in range(flips)]
        for number, at in enumerate(places):
            for suffix in ("", "-shm"):
                Path(f"{copy}{suffix}").unlink(missing_ok=True)
            Path(f"{copy}-wal").write_bytes(log[:at] + bytes([log[at] ^ 1 << number % 8]) + log[at + 1 :])
            shutil.copyfile(filled, copy)
            with suppress(FeedError):
                assert read(copy) in states, at

    def test_a_log_whose_restored_pages_are_damaged_belongs_to_one_file_only(self, filled: Path, tmp_path: Path):
        other, copy = tmp_path / "other.db", tmp_path / "copy.db"
        with open_store(other) as store:
            store.publish(book(4, 4))
        with open_store(filled) as store:
            store.publish(book(1, 8))
            backup(other, filled)
            log = Path(f"{filled}-wal").read_bytes()
            shutil.copyfile(filled, copy)
            for laid, damage, content in (
                (copy, 1, CONTENT | {1: "8"}),
                (other, 0, {4: "4"}),
                (other, 1, None),
            ):
                Path(f"{laid}-wal").write_bytes(log[:-1] + bytes([log[-1] ^ damage]))
                Path(f"{laid}-shm").unlink(missing_ok=True)
                if content is None:
                    with pytest.raises(FeedError, match="belongs to another file"):
                        read(laid)
                else:
                    assert read(laid) == content

    @pytest.mark.decision(33)
    def test_a_store_into_which_another_program_wrote_is_read_and_written(self, filled: Path, tmp_path: Path):
        copy = tmp_path / "copy.db"
        shutil.copyfile(filled, copy)
        with closing(sqlite3.connect(copy)) as other:  # so that the log is not moved into the file
            other.execute("CREATE TABLE _sequence (number INTEGER)")
            other.execute("ANALYZE")
            other.commit()
            assert Path(f"{copy}-wal").stat().st_size
            assert read(copy) == CONTENT
            with open_store(copy) as store:
                store.publish(book(1, 9))
                other.execute("INSERT INTO _sequence VALUES (1)")
                other.commit()
                assert read(copy) == CONTENT | {1: "9"}

    def test_a_store_is_opened_while_a_publisher_begins_the_log_anew(
        self, filled: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def publish_meanwhile(*arguments: Any) -> Iterator[object]:
            monkeypatch.undo()
            transactions = read_transactions(*arguments)
            yield next(transactions)
            store.publish(*[book(number, 9) for number in range(1, 300)])  # over the transactions that are read next
            yield from transactions

        read_transactions = log._transactions
        with open_store(filled) as store:
            for spot in range(5, 8):
                store.publish(book(1, spot))
            plain(filled, "PRAGMA wal_checkpoint(PASSIVE)")
            monkeypatch.setattr(log, "_transactions", publish_meanwhile)
            assert read(filled) == dict.fromkeys(range(1, 300), "9")

    def test_a_file_that_lacks_its_last_pages_is_that_of_the_log(self, filled: Path, tmp_path: Path):
        """A program that moved the log was killed after the first page."""
        torn, whole = tmp_path / "torn.db", tmp_path / "whole.db"
        with open_store(filled) as store:
            store.publish(*[book(number, 9) for number in range(1, 300)])
            for copy in (torn, whole):
                shutil.copyfile(filled, copy)
                shutil.copyfile(f"{filled}-wal", f"{copy}-wal")
        plain(whole, "PRAGMA wal_checkpoint(TRUNCATE)")
        assert whole.stat().st_size > torn.stat().st_size
        torn.write_bytes(whole.read_bytes()[:8192] + torn.read_bytes()[8192:])
        assert read(torn) == dict.fromkeys(range(1, 300), "9")

    @pytest.mark.decision(33)
    @pytest.mark.parametrize("has_log", [False, True])
    def test_a_copy_of_another_store_is_restored_in_place(self, filled: Path, tmp_path: Path, *, has_log: bool):
        other = tmp_path / "other.db"
        with open_store(other) as store:
            for spot in range(4, 30):
                store.publish(book(4, spot), book(5, spot))
        with open_store(filled) as store, Reader(open_feed(filled)) as reader:
            reader.pull()
            if has_log:
                store.publish(book(1, 8))
            backup(other, filled)
            reader.until(lambda version: spots(version.index) == {4: "29", 5: "29"})
            assert read(filled) == {4: "29", 5: "29"}  # before any change by a store
            shutil.copyfile(filled, tmp_path / "killed.db")
            shutil.copyfile(f"{filled}-wal", tmp_path / "killed.db-wal")
            assert read(tmp_path / "killed.db") == {4: "29", 5: "29"}
            with open_store(filled) as second:
                fence = second.publish(book(6, 6)).position
            reader.until(lambda version: version.position == fence)
            assert spots(store.read().index) == {4: "29", 5: "29", 6: "6"}

    @pytest.mark.decision(33)
    def test_a_file_with_two_names_is_refused(self, filled: Path, tmp_path: Path):
        """SQLite would have a log for each."""
        os.link(filled, tmp_path / "link.db")
        for name in (filled, tmp_path / "link.db"):
            with pytest.raises(FeedError, match="must have one name, got a file with hard links"):
                open_feed(name)
            with pytest.raises(StoreError, match="must have one name"):
                open_store(name)
        (tmp_path / "link.db").unlink()
        (tmp_path / "symbolic.db").symlink_to(filled)
        assert read(tmp_path / "symbolic.db") == CONTENT

    @pytest.mark.decision(33)
    def test_a_file_that_is_mounted_by_itself_is_refused(self, filled: Path, tmp_path: Path):
        (mounted := tmp_path / "a b.db").touch()  # a space is escaped in the list of mounts
        if sys.platform != "linux" or subprocess.run(["mount", "--bind", filled, mounted], check=False).returncode:
            pytest.skip("this user must not mount")
        try:
            with pytest.raises(FeedError, match="must have one name, got a file that is mounted: mount its folder"):
                open_feed(mounted)
            with pytest.raises(StoreError, match="mount its folder"):
                open_store(mounted)
        finally:
            subprocess.run(["umount", mounted], check=True)
        assert read(filled) == CONTENT

    @pytest.mark.decision(33)
    def test_a_reader_follows_a_file_that_is_renamed_over_it_once_its_publishers_have_ended(
        self, filled: Path, tmp_path: Path, live: LiveIndex
    ):
        with open_feed(filled) as feed:
            feed.start(live)
            for spot in range(2, 9):
                with open_store(tmp_path / "new.db") as store:
                    store.publish(book(spot, spot), book(3, 3))
                kept = live.current[THREE]
                (tmp_path / "new.db").rename(filled)
                eventually(lambda spot=spot: spots(live) == {spot: str(spot), 3: "3"})  # type: ignore[misc]  # a default
                assert live.current[THREE] is kept
                with open_store(filled) as store:
                    store.publish(book(2, "0.5"))  # its log is moved into it at the end, although there is a reader
                eventually(lambda: spots(live).get(2) == "0.5")
                assert not Path(f"{filled}-wal").stat().st_size
            assert (feed.health.retries, feed.health.rejected) == (0, 0)

    def test_a_publisher_never_writes_into_another_file_than_it_opened(self, filled: Path, tmp_path: Path):
        new = tmp_path / "new.db"
        with open_store(new) as store:
            store.publish(book(5, 5))
        before = new.read_bytes()
        with open_store(filled) as store:
            store.publish(book(1, 8))
            new.rename(filled)
            for use in (lambda: store.publish(book(1, 9)), store.read, lambda: store.position):
                with pytest.raises(StoreError, match="another file is at its path"):
                    use()
        assert filled.read_bytes() == before

    def test_a_file_that_is_renamed_over_it_while_it_is_opened_is_not_read_with_its_log(
        self, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def rename_before(path: Path) -> log.FileState:
            monkeypatch.undo()
            (tmp_path / "new.db").rename(path)
            return state_of_file(path)

        state_of_file = log.state_of_file
        run_and_die(filled)
        shutil.copyfile(filled, tmp_path / "new.db")
        monkeypatch.setattr("market_index_feeds.sqlite.file.state_of_file", rename_before)
        with pytest.raises(FeedError, match="another file was renamed over it"):
            open_feed(filled)
        assert read(filled) == CONTENT | {1: "9", 2: "9", 3: "9"}

    def test_nothing_is_written_if_it_is_renamed_within_a_change(
        self, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        with open_store(filled) as store:
            store.publish(book(1, 8))

            def rename_and_row(pair: str, revision: int, body: bytes | None) -> tuple[object, ...]:
                filled.rename(tmp_path / "away.db")
                return row(pair, revision, body)

            row = rows.row
            monkeypatch.setattr(rows, "row", rename_and_row)
            with pytest.raises(StoreError, match="another file is at its path, or none"):
                store.publish(book(1, 9))
            (tmp_path / "away.db").rename(filled)
            assert spots(store.read().index) == CONTENT | {1: "8"}

    @pytest.mark.parametrize("with_changes_after", [False, True])
    def test_a_copy_that_is_restored_in_place_is_read_as_a_whole(
        self, filled: Path, tmp_path: Path, *, with_changes_after: bool
    ):
        with open_store(filled) as store, Reader(open_feed(filled)) as reader:
            backup(filled, tmp_path / "copy.db")
            store.update([book(4, 4)], [TWO], Freshness("slot 2"))
            fence = store.publish(book(1, 5)).position
            reader.until(lambda version: version.position == fence)
            backup(tmp_path / "copy.db", filled)
            if with_changes_after:  # as many as were lost
                store.publish(book(1, 6))
                store.publish(book(3, 6))
            expected = CONTENT | ({1: "6", 3: "6"} if with_changes_after else {})
            reader.until(lambda version: spots(version.index) == expected)
            assert (reader.index.as_of, spots(store.read().index)) == ("slot 1", expected)


class TestWaiting:
    @pytest.mark.skipif(sys.platform != "linux", reason="inotify")
    def test_a_reader_is_woken_by_each_change_and_by_another_file(
        self, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(file_watch, "CHECK_SECONDS", 100 * DEADLINE_SECONDS)
        feed, found = open_feed(filled), list[dict[int, str | None]]()
        reader = in_thread(lambda: found.extend(spots(version.index) for version in feed.versions()))
        eventually(lambda: found[-1:] == [CONTENT])
        with open_store(filled) as store:
            for spot in range(20, 30):
                store.publish(book(1, spot))
                eventually(lambda spot=spot: found[-1][1] == str(spot))  # type: ignore[misc]  # a default
            store.replace([book(2, 2)])
            eventually(lambda: found[-1] == {2: "2"})
        with open_store(tmp_path / "new.db") as store:
            store.publish(book(4, 4))
        (tmp_path / "new.db").rename(filled)
        eventually(lambda: found[-1] == {4: "4"})
        feed.close()
        os.utime(filled)
        reader.join()

    @pytest.mark.parametrize("reason", ["another system", "too many watches"])
    def test_a_reader_polls_where_nothing_is_reported(self, filled: Path, reason: str, monkeypatch: pytest.MonkeyPatch):
        if reason == "another system":
            monkeypatch.setattr(file_watch, "sys", SimpleNamespace(platform="darwin"))
        else:
            failing = SimpleNamespace(inotify_init1=lambda _: -1, inotify_add_watch=lambda *_: -1)
            monkeypatch.setattr(file_watch, "ctypes", SimpleNamespace(CDLL=lambda _: failing))
        with Reader(open_feed(filled)) as reader, open_store(filled) as store:
            reader.pull()
            for number in range(1, 6):
                waits = reader.stop.waits
                fence = store.publish(book(4, number)).position
                reader.until(lambda version, fence=fence: version.position == fence)  # type: ignore[misc]  # a default
                assert reader.stop.waits > waits


class TestPublishers:
    def test_a_publisher_that_waits_too_long_raises_and_changes_nothing(self, filled: Path):
        with open_store(filled, wait=0) as store, closing(sqlite3.connect(filled, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy, match=r"was not written to: others have been writing for 0 seconds"):
                store.publish(book(1, 9))
            other.execute("ROLLBACK")
            assert spots(store.read().index) == CONTENT
            store.publish(book(1, 9))

    def test_during_a_change_other_threads_wait_and_the_same_thread_gets_an_error(
        self, filled: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """The same thread, as in a signal handler."""
        with open_store(filled, wait=0.05) as store, ThreadPoolExecutor(1) as other:

            def publish_another(pair: str, revision: int, body: bytes | None) -> tuple[object, ...]:
                monkeypatch.undo()
                with pytest.raises(StoreError, match="in the middle of another change"):
                    store.publish(book(1, 8))
                with pytest.raises(StoreBusy, match=r"cannot be read: others have been writing for 0\.05 seconds"):
                    other.submit(store.read).result(DEADLINE_SECONDS)
                return rows.row(pair, revision, body)

            monkeypatch.setattr(rows, "row", publish_another)
            store.publish(book(1, 9))
            assert spots(store.read().index) == CONTENT | {1: "9"}

    def test_many_processes_can_create_one_store(self, path: Path):
        context = get_context("fork")
        publishers = [context.Process(target=publish_once, args=(path, number)) for number in range(1, 9)]
        for publisher in publishers:
            publisher.start()
        for publisher in publishers:
            publisher.join()
        assert [publisher.exitcode for publisher in publishers] == [0] * 8
        assert read(path) == {number: str(number) for number in range(1, 9)}

    def test_a_copy_in_another_journal_mode_waits_for_a_writer(self, path: Path, monkeypatch: pytest.MonkeyPatch):
        """SQLite itself does not wait there: a new store failed sometimes if two processes created it."""
        open_store(path).close()
        plain(path, "PRAGMA journal_mode = DELETE")
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy, match="others have been writing for 0 seconds"):
                open_store(path, wait=0)
            monkeypatch.setattr(publishing, "sleep", lambda seconds: writer.execute("COMMIT"))
            open_store(path, wait=DEADLINE_SECONDS).close()

    def test_another_program_cannot_keep_a_store_from_being_created(self, path: Path):
        """Any user who can read the folder can lock it."""
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            open_store(path, wait=0).close()
        finally:
            os.close(folder)

    def test_a_creation_that_is_killed_is_repeated_by_the_next(self, path: Path):
        killed = get_context("fork").Process(target=create_and_die, args=(path,))
        killed.start()
        killed.join()
        assert killed.exitcode == -signal.SIGKILL
        with pytest.raises(FeedError, match="got an empty file: market-index publish STORE BOOKS makes a store of it"):
            open_feed(path)
        with open_store(path) as store:
            store.publish(book(1, 1))
        assert [one.name for one in path.parent.iterdir()] == ["market.db"]
        assert read(path) == {1: "1"}

    def test_a_store_that_is_closed_beside_another_writer_moves_nothing(self, filled: Path):
        """Before SQLite 3.51.3, that may damage the file."""
        with closing(sqlite3.connect(filled, isolation_level=None)) as other:
            store = open_store(filled)
            store.publish(book(1, 9))
            before = filled.read_bytes()
            other.execute("BEGIN IMMEDIATE")
            store.close()
            assert filled.read_bytes() == before
            other.execute("ROLLBACK")
            assert read(filled) == CONTENT | {1: "9"}

    def test_the_log_is_moved_into_the_file_beside_readers_and_publishers(
        self, filled: Path, tmp_path: Path, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(publishing, "LOG_BYTES", 100_000)
        with open_store(filled) as store, open_store(filled) as other, open_feed(filled) as feed:
            feed.start(live)
            spot = 10

            def is_moved() -> bool:
                """Publish more: what a reader reads at the time of a move stays in the log until the next one."""
                nonlocal spot
                for _ in range(10):
                    spot += 1
                    store.publish(book(1, spot))
                    other.publish(book(2, spot))
                shutil.copyfile(filled, tmp_path / "copy.db")  # without its log
                return int(read(tmp_path / "copy.db")[1] or 0) > 40

            eventually(is_moved)
            assert Path(f"{filled}-wal").stat().st_size < spot * 5 * 8192
            eventually(lambda: spots(live) == {1: str(spot), 2: str(spot), 3: "3"})

    def test_a_reader_that_is_far_behind_reads_all_rows(self, filled: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(rows, "MAX_CHANGES", 3)
        with open_store(filled) as store, Reader(open_feed(filled)) as reader:
            reader.pull()
            for spot in range(10, 20):
                store.update([book(4, spot)], [TWO])
            assert plain(filled, "SELECT count(*) FROM changes") == [(3,)]
            reader.until(lambda version: version.position == store.position)
            assert spots(reader.index) == {1: "1", 3: "3", 4: "19"}


def create_and_die(path: Path) -> None:
    """Create a store in a process that is killed in the middle."""

    def statements() -> Iterator[str]:
        yield from schema[:2]
        os.kill(os.getpid(), signal.SIGKILL)

    schema, vars(file)["_SCHEMA"] = file._SCHEMA, statements()
    open_store(path)


def publish_once(path: Path, number: int) -> None:
    with open_store(path, wait=DEADLINE_SECONDS) as store:
        store.publish(book(number, number))


class TestOpening:
    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (lambda path: None, "No such file or directory"),
            (lambda path: path.touch(), "must be a store, got an empty file: market-index publish STORE BOOKS makes a"),
            (lambda path: path.mkdir(), "must be a regular file"),
            (os.mkfifo, "must be a regular file"),
            (lambda path: path.write_bytes(b"\0 not a store\n" * 99), "file is not a database"),
            (
                lambda path: plain(path, "CREATE TABLE t (x)"),
                "got a SQLite database of another program \\(application 0x0\\)",
            ),
            (
                lambda path: plain(path, "PRAGMA application_id = 0x6d6b6904"),
                "got one of another version: .*market-index dump OLD.db > books.ndjson.*market-index publish NEW.db",
            ),
        ],
    )
    def test_a_file_that_is_no_store_is_refused(self, path: Path, make: Callable[[Path], object], reason: str):
        make(path)
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(FeedError, match=f"market.db cannot be opened: .*{reason}"):
            open_feed(path)
        with pytest.raises(StoreError, match=f"market.db cannot be opened: .*{reason}"):
            open_store(path, create=False)
        assert (path.read_bytes() if path.is_file() else b"") == before

    def test_a_missing_file_beside_a_log_is_refused(self, path: Path):
        Path(f"{path}-wal").write_bytes(b"a log")
        with pytest.raises(
            StoreError, match=r"the file is missing, but its log \(market.db-wal\) exists: put the file"
        ):
            open_store(path)
        assert Path(f"{path}-wal").read_bytes() == b"a log"

    @pytest.mark.parametrize("suffix", [".ndjson", ".JSON", ".csv"])
    def test_a_new_store_must_not_have_the_name_of_a_text_file(self, tmp_path: Path, suffix: str):
        with pytest.raises(StoreError, match=r"a store must be a SQLite file such as books.db"):
            open_store(tmp_path / f"books{suffix}")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"wait": -1}, "wait must be 0 or more"),
            ({"wait": float("nan")}, "wait must be 0 or more seconds, got nan"),
            ({"wait": "1"}, "wait must be 0 or more seconds, got '1'"),
            ({"synchronous": "off"}, "synchronous must be 'full' or 'normal', got 'off'"),
        ],
    )
    def test_an_invalid_option_is_refused(self, path: Path, options: dict[str, object], reason: str):
        with pytest.raises(StoreError, match=f"market.db cannot be opened: {reason}"):
            open_store(path, **options)  # type: ignore[arg-type]  # invalid on purpose
        assert not path.exists()

    def test_a_name_with_a_null_character_is_refused(self):
        with pytest.raises(StoreError, match=r"^'a\\x00b.db' cannot be opened: .*null byte"):
            open_store("a\0b.db")

    @pytest.mark.parametrize("synchronous", ["full", "normal"])
    def test_synchronous_is_that_of_sqlite(self, path: Path, synchronous: Synchronous):
        with SqliteStore(path, synchronous=synchronous, wait=float("inf")) as store:
            (level,) = store._connection.sqlite.execute("PRAGMA synchronous").fetchone()
            assert level == {"full": 2, "normal": 1}[synchronous]

    def test_a_path_with_special_characters_is_a_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(tmp_path)
        for name in ("50% off?mode=memory#x.db", "ü b.sqlite3"):
            with open_store(name) as store:
                store.publish(book(1, 1))
            assert (read(Path(name)), (tmp_path / name).is_file()) == ({1: "1"}, True)

    def test_a_copy_with_another_journal_is_read_and_written(self, filled: Path):
        plain(filled, "PRAGMA journal_mode = DELETE")
        assert read(filled) == CONTENT
        with open_store(filled) as store:
            store.publish(book(1, 2))
        assert plain(filled, "PRAGMA journal_mode") == [("wal",)]

    def test_a_store_is_known_by_its_suffix_or_its_content(self, filled: Path, tmp_path: Path):
        odd = tmp_path / "books.ndjson"
        shutil.copyfile(filled, odd)
        assert all(map(is_sqlite, (str(filled), str(odd), "nowhere.sqlite3", "nowhere.DB")))
        odd.write_text('{"base": "ADA"}\n' * 99)
        os.mkfifo(tmp_path / "pipe")
        assert not any(map(is_sqlite, (str(odd), str(tmp_path / "pipe"), str(tmp_path), "nowhere", "a\0b")))


@pytest.fixture
def live() -> LiveIndex:
    return LiveIndex()
