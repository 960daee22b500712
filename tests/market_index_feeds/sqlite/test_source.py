"""Following a file that is changed, replaced, restored or damaged."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from itertools import count
from math import inf
from pathlib import Path

import pytest

from market_index import Freshness, LiveIndex, PairNotFound
from market_index_feeds import Feed, FeedError, Receipt, Store, open_feed, open_store
from market_index_feeds.sqlite import file
from market_index_feeds.sqlite.source import SqliteSource
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.sqlite.files import damage, elsewhere, plain
from tests.waiting import eventually, in_thread


class TestFollowing:
    """A reader follows the file through changes, replacements and damage."""

    def test_a_reader_never_prevents_copying_the_log_into_the_file(self, store: Store, feed: Feed, live: LiveIndex):
        for spot in range(2, 40):
            store.publish(*(book(number, spot) for number in range(100)))
        eventually(lambda: spots(live)[99] == "39")
        log = Path(f"{feed.source}-wal")
        assert log.stat().st_size > 100_000
        store.close()
        # Empty or missing: SQLite removes it if the reader opens the file again at that moment.
        assert not file.has_log(Path(feed.source))

    def test_a_publisher_that_always_copies_its_log_does_not_prevent_reads(
        self, store: Store, path: Path, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        store.publish(book(1, 1))
        numbers = count(1)

        written = SqliteSource._written

        def overwritten(source: SqliteSource) -> tuple[int, int]:
            os.utime(path, ns=(0, next(numbers)))
            return written(source)

        monkeypatch.setattr(SqliteSource, "_written", overwritten)
        with open_feed(path) as feed:
            starting = in_thread(lambda: feed.start(live))
            eventually(lambda: spots(live) == {1: "1"})
            starting.join()
            store.publish(book(1, 2))
            eventually(lambda: spots(live) == {1: "2"})

    def test_loading_reports_progress(self, store: Store, path: Path):
        store.publish(*map(book, range(600)))
        reported: list[tuple[int, int]] = []
        open_feed(path).read(lambda done, total: reported.append((done, total)))
        (total,) = {total for _, total in reported}
        assert total == plain(path, "SELECT sum(length(body)) FROM books")[0][0]
        assert [done for done, _ in reported] == sorted(done for done, _ in reported)
        assert len(reported) > 2

    def test_missing_rows_are_noticed_and_replace_repairs_the_file(self, store: Store, path: Path):
        store.publish(book(1, 1), book(2, 2))
        plain(path, "DELETE FROM books WHERE pair = ?", str(pair(1)))
        with pytest.raises(FeedError, match="rows are missing"):
            open_feed(path).read()
        assert store.replace([book(2, 2)]).revision == 2
        assert spots(open_feed(path).read()) == {2: "2"}

    def test_a_relative_path_is_followed_after_a_change_of_directory(
        self, store: Store, path: Path, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.chdir(path.parent)
        with open_store("market.db") as here, open_feed("market.db") as feed:
            feed.start(live)
            monkeypatch.chdir("/")
            here.publish(book(1, 1))
            eventually(lambda: spots(live) == {1: "1"})

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (
                "body = 'nonsense'",
                "must have the stored digest (it was damaged, or written by another program), got b'nonsense'",
            ),
            ("body = x'ff00'", "must have the stored digest"),
            ("body = 7", "must have the stored digest"),
            ("body = replace(body, '\"1\"', '\"2\"')", "must have the stored digest"),
            ("digest = 7", "must have the stored digest"),
            ("digest = 'text'", "must have the stored digest"),
            ("revision = 'late'", "must have the stored digest"),
            ("body = (SELECT body FROM books WHERE pair = 'PAIR3')", "must have the stored digest"),
            ("(body, digest) = (SELECT body, digest FROM books WHERE pair = 'PAIR3')", "must have the stored digest"),
            ("pair = 'ADA/ADA'", "must have the stored digest"),
            ("pair = 'ADA/ADA', digest = forged(2, body)", "must be the book of the pair of its row"),
            ("pair = x'ff', digest = forged(2, body)", "must be the book of the pair of its row"),
            ("body = 'nonsense', digest = forged(2, 'nonsense')", "must be JSON, but is not at character 0"),
        ],
    )
    @pytest.mark.parametrize("first", [False, True])
    def test_an_invalid_row_affects_no_other_row(
        self, store: Store, path: Path, change: str, reason: str, first: bool, logged: pytest.LogCaptureFixture
    ):
        store.publish(book(1, 1), book(2, 2), book(3, 3))
        live = LiveIndex()
        with open_feed(path) as feed:
            if not first:
                feed.start(live)
            change = change.replace("PAIR3", str(pair(3)))
            damage(path, f"UPDATE books SET revision = 2, {change} WHERE pair = ?", str(pair(1)))
            if first and "digest" in change:
                # Without it, missing rows cannot be detected.
                with pytest.raises(FeedError, match="rows are missing, or belong to another file"):
                    feed.start(live)
                return
            if first:
                feed.start(live)
                assert spots(live) == {2: "2", 3: "3"}
            else:
                eventually(lambda: reason in logged.text)
                assert spots(live) == {1: "1", 2: "2", 3: "3"}
            assert reason in logged.text
            damage(path, "UPDATE books SET body = 'and again', revision = 3 WHERE revision IN (2, 'late')")
            eventually(lambda: feed.revision == 3)
            assert store.replace([book(1, 1), book(2, 9), book(3, 3)]).published >= 2
            eventually(lambda: spots(live) == {1: "1", 2: "9", 3: "3"})
            assert logged.text.count("rejected:") == feed.rejected == 1
            assert (feed.current_rejections, spots(open_feed(path).read())) == (0, spots(live))

    def test_replace_removes_a_row_that_names_no_pair(self, store: Store, path: Path):
        store.publish(book(1, 1))
        plain(path, "UPDATE books SET pair = 'nobody'")
        plain(path, "INSERT INTO books VALUES (x'ff', 1, x'00', 'nonsense')")
        freshness = Freshness(None, datetime.now(UTC))
        assert store.replace([book(2, 2)], freshness=freshness) == Receipt(2, published=1, retracted=2)
        assert store.replace([book(2, 2)], freshness=freshness) == Receipt(2)
        with open_feed(path) as feed:
            assert spots(feed.read()) == {2: "2"}
            assert feed.rejected == 0

    def test_a_removed_row_that_names_no_pair_is_no_current_rejection(
        self, feed: Feed, store: Store, path: Path, live: LiveIndex
    ):
        damage(path, "UPDATE books SET pair = 'nobody', revision = 2 WHERE pair = ?", str(pair(1)))
        eventually(lambda: feed.current_rejections == 1)
        store.replace([book(2, 2), book(3, 3)])
        eventually(lambda: feed.current_rejections == 0)
        assert feed.rejected == 1

    def test_a_missing_or_unreadable_book_is_an_error(self, store: Store, path: Path):
        store.publish(book(1), book(2))
        store.retract(pair(2))
        plain(path, "UPDATE books SET body = '{}' WHERE pair = ?", str(pair(1)))
        for number in (2, 3):
            with pytest.raises(PairNotFound, match=str(pair(number))):
                open_feed(path).read_order_book(pair(number))
        with pytest.raises(FeedError, match=f"cannot be read: row {pair(1)}: must have the stored digest"):
            open_feed(path).read_order_book(pair(1))

    def test_reading_the_header_releases_no_lock(self, store: Store, path: Path):
        """Closing any descriptor of a file releases all POSIX locks of the process, so others would find it unused."""
        store.publish(book(1, 1))
        odd = path.with_name("odd name")
        odd.symlink_to(path)
        for name in (path, odd):
            with open_feed(name) as feed:
                feed.read()
        elsewhere(
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM books'); c.close()", path
        )
        assert Path(f"{path}-wal").exists(), "another process took itself for the last one that has the file open"
        store.publish(book(1, 2))
        script = (
            "import sys; from market_index_feeds import open_feed; print(*open_feed(sys.argv[1]).read().pair_list())"
        )
        assert "last_spot=Decimal('2')" in elsewhere(script, path)


def test_a_store_is_blank_until_the_first_publication(tmp_path: Path):
    with open_store(tmp_path / "market.db") as store, open_feed(store.target) as feed:
        feed.start(LiveIndex())
        assert (feed.problem, feed.is_unknown) == ("contains no order book", True)
        assert (feed.quiet_age, feed.revision) == (inf, 0)
        store.update(())
        eventually(lambda: feed.revision == 1 and feed.problem is None)
        assert (feed.is_unknown, feed.quiet_age < inf) == (False, True)


def test_the_freshness_of_a_book_is_that_of_the_store(tmp_path: Path):
    with open_store(tmp_path / "market.db") as store:
        store.update([book(1)], as_of="slot 1")
        store.update([book(2)], as_of="slot 2")
    feed = open_feed(store.target)
    assert feed.freshness == Freshness()
    feed.read_order_book(pair(1))
    assert feed.freshness.as_of == "slot 2"
    assert feed.freshness == open_feed(store.target).read().freshness
