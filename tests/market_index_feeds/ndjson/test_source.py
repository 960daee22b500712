"""Following a file of order books: books that go live, rejected lines, and pairs that are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from market_index import LiveIndex, OrderBook, PairNotFound, wire
from market_index_feeds import Feed, open_feed
from market_index_feeds.feed import LACKS_PAIRS
from market_index_feeds.medium import Unnamed
from tests.market_index_feeds.checks import await_check
from tests.market_index_feeds.made_up import pair, spots
from tests.market_index_feeds.ndjson.lines import commit, line, rename_over
from tests.waiting import WITHOUT_SHRINKING, eventually


@pytest.fixture
def feed(path: Path, live: LiveIndex) -> Iterator[Feed]:
    """A feed of three pairs, which is being followed."""
    path.write_bytes(line(1, "1") + line(2, "2") + line(3, "3"))
    with open_feed(path) as feed:
        feed.start(live)
        yield feed


class TestFollowing:
    """Changes of a file go live, and no other book is lost."""

    def test_appended_lines_go_live(self, feed: Feed, path: Path, live: LiveIndex):
        with path.open("ab") as file:
            file.write(line(4, "4") + b"nonsense\n" + line(1, "9"))
        eventually(lambda: spots(live) == {1: "9", 2: "2", 3: "3", 4: "4"})
        assert (feed.books, feed.rejected) == (5, 1)
        assert repr(feed) == f"<Feed of {path}: 5 books, 1 rejected>"

    def test_an_unfinished_last_line_waits_for_its_newline(self, feed: Feed, path: Path, live: LiveIndex):
        whole = line(1, "7")
        with path.open("ab", buffering=0) as file:
            file.write(line(4) + whole[:-20])
            eventually(lambda: 4 in spots(live))
            assert spots(live)[1] == "1"
            file.write(whole[-20:-1])
            file.write(b"")
            await_check(feed)
            assert spots(live)[1] == "1"
            file.write(b"\n")
            eventually(lambda: spots(live)[1] == "7")
        assert feed.rejected == 0

    def test_a_replaced_file_is_read_again_and_pairs_that_it_does_not_name_are_dropped(
        self, feed: Feed, path: Path, live: LiveIndex
    ):
        rename_over(path, line(2, "8") + line(5, "5"))
        eventually(lambda: spots(live) == {2: "8", 5: "5"})
        with path.open("ab") as file:
            file.write(line(6))
        eventually(lambda: 6 in spots(live))

    def test_a_replaced_file_goes_live_atomically(self, feed: Feed, path: Path, live: LiveIndex):
        seen: set[tuple[int, ...]] = set()
        rename_over(path, line(4, "4") + line(5, "5"))
        while not seen or max(seen) == (1, 2, 3):
            seen.add(tuple(spots(live)))
        assert seen <= {(1, 2, 3), (4, 5)}

    def test_no_pair_is_retracted_until_a_rejected_line_is_corrected(
        self, feed: Feed, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        rename_over(path, line(1, "1").replace(b'"1"', b"1") + line(5))
        eventually(lambda: spots(live) == {1: "1", 2: "2", 3: "3", 5: None})
        assert "keeping 3 pairs while a record is invalid" in caplog.text
        assert (feed.problem, feed.current_rejections) == (None, 1)
        with path.open("ab") as file:
            file.write(line(1, "9"))
        eventually(lambda: spots(live) == {1: "9", 5: None})
        assert "dropped 2 pairs that it does not name" in caplog.text

    @pytest.mark.parametrize("bad", [b"nonsense\n", b'{"base":"ADA"}\n', b'{"base":1,"quote":2}\n', b"{", b"[]\n"])
    def test_a_rejected_line_that_names_no_pair_is_invalid_until_the_file_is_replaced(
        self, feed: Feed, path: Path, live: LiveIndex, bad: bytes
    ):
        rename_over(path, line(5) + bad)
        eventually(lambda: spots(live) == {1: "1", 2: "2", 3: "3", 5: None})
        with path.open("ab") as file:
            file.write(b"\n" + line(6))
        eventually(lambda: 6 in spots(live))
        assert len(live.current) == 5
        rename_over(path, line(5))
        eventually(lambda: spots(live) == {5: None})

    def test_an_unfinished_last_line_is_invalid(
        self, feed: Feed, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        rename_over(path, line(5) + line(3, "9")[:-1])
        eventually(lambda: spots(live) == {1: "1", 2: "2", 3: "3", 5: None})
        assert ": line 2 waits for its newline" in caplog.text
        assert feed.current_rejections == 1

    @pytest.mark.parametrize(
        "replacement", [b"", b"\n", b" \r\n\t\n", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), b"nonsense"]
    )
    def test_a_file_that_becomes_invalid_keeps_the_last_valid_index(
        self, feed: Feed, path: Path, live: LiveIndex, replacement: bytes, caplog: pytest.LogCaptureFixture
    ):
        before = len(caplog.records)
        rename_over(path, replacement)
        eventually(lambda: len(caplog.records) > before)
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        rename_over(path, line(7))
        eventually(lambda: 7 in spots(live))

    @pytest.mark.parametrize("content", [b"", line(1).replace(b"[]", b"0"), b"nonsense\n", line(1)[:-1]])
    def test_a_file_without_a_valid_line_retracts_nothing(
        self, feed: Feed, path: Path, live: LiveIndex, content: bytes
    ):
        rename_over(path, content)
        eventually(lambda: feed.is_unknown)
        with path.open("ab") as file:
            file.write(b"\nnonsense\n")
        eventually(lambda: Unnamed.UNREADABLE in feed.content.coverage.invalid)
        if content != line(1)[:-1]:
            eventually(lambda: (feed.problem, feed.is_unknown) == ("contains no order book", True))
            assert set(spots(live)) == {1, 2, 3}
        with path.open("ab") as file:
            file.write(line(9))
        eventually(lambda: 9 in spots(live))
        eventually(lambda: (feed.problem, feed.is_unknown) == (None, False))
        path.unlink()
        eventually(lambda: feed.problem == "cannot be read: No such file or directory")
        assert not feed.is_unknown

    def test_a_blank_file_that_is_removed_is_still_unknown(self, feed: Feed, path: Path, live: LiveIndex):
        rename_over(path, b"")
        eventually(lambda: feed.is_unknown)
        path.unlink()
        eventually(lambda: feed.problem == "cannot be read: No such file or directory")
        assert feed.is_unknown

    def test_a_missing_file_keeps_the_last_valid_index_and_is_logged_once(
        self, feed: Feed, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        away = path.with_suffix(".away")
        path.rename(away)
        message = "cannot be read: No such file or directory; keeping its 3 pairs"
        eventually(lambda: message in caplog.text)
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        away.rename(path)
        eventually(lambda: "recovered after" in caplog.text)
        assert caplog.text.count(message) == 1
        path.unlink()
        path.mkdir()
        eventually(lambda: "cannot be read: it must be a regular file" in caplog.text)
        path.rmdir()
        rename_over(path, line(9))
        eventually(lambda: spots(live) == {9: None})

    def test_a_touched_file_is_not_read_again(
        self, feed: Feed, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        before = len(caplog.records)
        os.utime(path)
        with path.open("ab") as file:
            file.write(line(4))
        eventually(lambda: 4 in spots(live))
        os.utime(path)
        await_check(feed)
        assert len(caplog.records) == before
        assert feed.books == 4

    def test_a_file_that_is_replaced_repeatedly_is_followed(self, feed: Feed, path: Path, live: LiveIndex):
        seen: set[str | None] = set()
        spot = 100
        while len(seen) <= 10:
            rename_over(path, line(1, str(spot)))
            seen.add(spots(live)[1])
            spot += 1

    def test_a_file_that_was_rewritten_in_place_is_read_again_and_retracts_nothing(
        self, feed: Feed, path: Path, live: LiveIndex
    ):
        """Its writer may not have finished yet."""
        path.write_bytes(line(1, "9"))
        eventually(lambda: spots(live) == {1: "9", 2: "2", 3: "3"})
        eventually(lambda: feed.problem == "lacks live pairs, and is not complete: it must be replaced as a whole")
        assert feed.is_unknown
        with path.open("ab") as file:
            file.write(line(2, "9") + line(3, "9") + line(4))
        eventually(lambda: spots(live) == {1: "9", 2: "9", 3: "9", 4: None})
        eventually(lambda: feed.problem is None)
        path.write_bytes(line(1, "8"))
        eventually(lambda: feed.is_unknown)
        rename_over(path, line(1, "7"))
        eventually(lambda: spots(live) == {1: "7"})
        eventually(lambda: feed.problem is None)

    def test_a_pipe_at_the_path_does_not_block(
        self, feed: Feed, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        path.unlink()
        os.mkfifo(path)
        eventually(lambda: "cannot be read: it must be a regular file; keeping its 3 pairs" in caplog.text)
        rename_over(path, line(7))
        eventually(lambda: spots(live) == {7: None})

    def test_a_file_that_is_rewritten_in_place_is_not_complete_after_an_error_either(
        self, feed: Feed, path: Path, live: LiveIndex
    ):
        path.write_bytes(line(1, "9"))
        eventually(lambda: feed.is_unknown)
        away = path.with_suffix(".away")
        path.rename(away)
        path.mkdir()
        eventually(lambda: "it must be a regular file" in (feed.problem or ""))
        path.rmdir()
        away.rename(path)
        eventually(lambda: feed.problem == LACKS_PAIRS)
        assert len(live.current) == 3

    def test_a_file_is_complete_if_it_was_rewritten_in_place_before_another_one_is_renamed_over_it(
        self, feed: Feed, path: Path, live: LiveIndex
    ):
        """Both within one check."""
        with path.open("r+b") as old:
            old.write(line(9) * 5)
            rename_over(path, line(1, "7"))
        eventually(lambda: spots(live) == {1: "7"})
        eventually(lambda: feed.problem is None)

    def test_a_file_whose_last_lines_wait_is_not_complete(self, feed: Feed, path: Path, live: LiveIndex):
        for waiting in (line(2, "9"), line(2).replace(b"[]", b"0"), line(2)[:40]):
            rename_over(path, line(1, "8") + commit("slot 1") + waiting)
            eventually(lambda: feed.problem == LACKS_PAIRS)
            assert set(spots(live)) == {1, 2, 3}
            rename_over(path, line(1, "1") + line(2, "2") + line(3, "3"))
            eventually(lambda: feed.problem is None)

    def test_the_pairs_that_a_file_lacks_are_dropped_once_its_last_line_is_finished(
        self, feed: Feed, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        whole = line(2, "7")
        rename_over(path, line(5) + whole[:40])
        eventually(lambda: spots(live) == {1: "1", 2: "2", 3: "3", 5: None})
        with path.open("ab") as file:
            file.write(whole[40:])
        eventually(lambda: spots(live) == {2: "7", 5: None})
        eventually(lambda: "dropped 2 pairs that it does not name" in caplog.text)

    def test_what_was_appended_before_the_file_was_renamed_away_is_read(self, feed: Feed, path: Path, live: LiveIndex):
        with path.open("ab") as file:
            path.rename(path.with_suffix(".1"))
            file.write(line(1, "6"))
        eventually(lambda: spots(live)[1] == "6")
        path.write_bytes(b"")
        assert len(spots(live)) == 3

    def test_closing_does_not_wait_for_the_end_of_a_read(
        self, feed: Feed, path: Path, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        read: list[bytes] = []
        real = wire.order_book_from_json

        def noting(text: bytes) -> OrderBook:
            read.append(text)
            return real(text)

        monkeypatch.setattr(wire, "order_book_from_json", noting)
        rename_over(path, line(4) * 200_000)
        eventually(lambda: len(read) > 1_000)
        feed.close()
        assert len(read) < 200_000
        assert spots(live) == {1: "1", 2: "2", 3: "3"}

    def test_an_unreadable_file_keeps_the_last_valid_index(
        self, feed: Feed, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        path.unlink()
        path.symlink_to("/proc/self/mem")
        eventually(lambda: "cannot be read: Input/output error; keeping its 3 pairs" in caplog.text)
        assert spots(live) == {1: "1", 2: "2", 3: "3"}

    def test_a_feed_drops_only_pairs_that_it_named(self, feed: Feed, path: Path, live: LiveIndex):
        live.publish(OrderBook(pair(50)))
        rename_over(path, line(1, "4"))
        eventually(lambda: spots(live) == {1: "4", 50: None})

    def test_an_unexpected_error_is_logged_and_following_continues(
        self,
        feed: Feed,
        path: Path,
        live: LiveIndex,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ):
        def fail(_: object) -> OrderBook:
            raise RuntimeError("a defect")

        with monkeypatch.context() as broken:
            broken.setattr(wire, "order_book_from_json", fail)
            rename_over(path, line(9))
            eventually(lambda: "RuntimeError: a defect" in caplog.text)
        eventually(lambda: spots(live) == {9: None})
        with monkeypatch.context() as broken:
            broken.setattr(wire, "order_book_from_json", fail)
            with path.open("ab") as file:
                file.write(line(7) + line(8))
            eventually(lambda: caplog.text.count("RuntimeError: a defect") > 1)
        eventually(lambda: spots(live) == {7: None, 8: None, 9: None})


changes = st.lists(
    st.tuples(
        st.sampled_from(["append", "replace"]),
        st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9), st.booleans()), min_size=1, max_size=6),
    ),
    max_size=6,
)


@settings(max_examples=30, phases=WITHOUT_SHRINKING)
@given(changes)
def test_the_index_follows_any_sequence_of_changes(tmp_path_factory: Any, changes: list[Any]):
    path = tmp_path_factory.mktemp("feed") / "books.ndjson"
    path.write_bytes(line(1, "1"))
    live, model = LiveIndex(), dict[int, str | None]({1: "1"})
    invalid, absent = set[int](), set[int]()
    with open_feed(path) as feed:
        feed.start(live)
        for number, (kind, entries) in enumerate(changes, 100):
            # An invalid line also names its pair. The last line of each change marks the change.
            content = b"".join(
                line(one, str(spot)) if good else line(one).replace(b"[]", b"0") for one, spot, good in entries
            ) + line(number)
            if kind == "append":
                with path.open("ab") as file:
                    file.write(content)
            else:
                rename_over(path, content)
                invalid, absent = set(), set(model)
            for one, spot, good in entries:
                if good:
                    model[one] = str(spot)
                    absent.discard(one)
                (invalid.discard if good else invalid.add)(one)
            model[number] = None
            if not invalid:
                model, absent = {one: spot for one, spot in model.items() if one not in absent}, set()
            eventually(lambda: spots(live) == model)  # noqa: B023  # called before the next turn


class TestReadingOnce:
    """A file that is read once, not followed."""

    def test_reading_returns_the_content_of_the_file(self, path: Path):
        path.write_bytes(line(1, "1") + line(2, "2") + line(1, "3"))
        reported: list[tuple[int, int]] = []
        assert spots(open_feed(path).read(lambda done, total: reported.append((done, total)))) == {1: "3", 2: "2"}
        assert reported == [(path.stat().st_size,) * 2]
        assert open_feed(path).read_order_book(pair(1)).spot == Decimal(3)
        with pytest.raises(PairNotFound):
            open_feed(path).read_order_book(pair(9))

    def test_a_feed_is_either_read_once_or_followed(self, path: Path, live: LiveIndex):
        path.write_bytes(line(1))
        feed = open_feed(path)
        feed.read()
        for work in (feed.read, lambda: feed.start(live)):
            with pytest.raises(RuntimeError, match="a feed is started once, or read once"):
                work()

    def test_the_age_counts_from_the_last_healthy_check(self, path: Path, live: LiveIndex):
        path.write_bytes(line(1))
        with open_feed(path) as feed:
            assert feed.age == float("inf")
            feed.start(live)
            assert feed.age >= 0
            assert feed.revision is None
            path.unlink()
            eventually(lambda: feed.age > 0.3)
            path.write_bytes(line(1))
            eventually(lambda: feed.age < 0.2)
