"""The ndjson feed, on real files and pipes: what goes live, what is refused, and what is never lost."""

from __future__ import annotations

import json
import logging
import os
import time
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from io import FileIO
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from market_index import LiveIndex, OrderBook, PairNotFound, wire
from market_index_feeds import Feed, FeedError, ndjson, open_feed
from market_index_feeds.ndjson import MAX_LINE_LENGTH, Lines
from tests.market_index_feeds.made_up import pair, spots
from tests.waiting import eventually


def line(number: int, spot: str | None = None) -> bytes:
    return wire.order_book_to_json(OrderBook(pair(number), spot=spot)) + b"\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(ndjson, "POLL_SECONDS", 0.005)
    caplog.set_level(logging.INFO, "market_index_feeds")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "books.ndjson"


@pytest.fixture
def feed(path: Path, live: LiveIndex) -> Iterator[Feed]:
    """A feed of three pairs, followed."""
    path.write_bytes(line(1, "1") + line(2, "2") + line(3, "3"))
    with open_feed(path) as feed:
        feed.start(live)
        yield feed


def load(path: Path, content: bytes) -> tuple[dict[int, str | None], Feed]:
    path.write_bytes(content)
    live = LiveIndex()
    with open_feed(path) as feed:
        feed.start(live)
    return spots(live), feed


class TestLines:
    """Cutting chunks into lines."""

    @given(st.binary(max_size=60).map(lambda data: data.replace(b"\x07", b"\n")), st.lists(st.integers(0, 60)))
    def test_chunks_cut_anywhere_give_the_same_lines(self, data: bytes, cuts: list[int]):
        lines = Lines()
        found: list[tuple[int, bytes | None]] = []
        borders = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
        for start, stop in pairwise(borders):
            found += lines.feed(data[start:stop])
        *finished, rest = data.split(b"\n")
        if finished:
            finished[0] = finished[0].removeprefix(b"\xef\xbb\xbf")
        assert found == list(enumerate(finished, 1))
        assert lines.unfinished == rest

    def test_a_line_too_long_is_none_wherever_it_is_cut(self):
        lines = Lines()
        longest, longer = b"x" * MAX_LINE_LENGTH, b"y" * (MAX_LINE_LENGTH + 1)
        assert list(lines.feed(longest)) == []
        assert list(lines.feed(b"\n" + longer + b"\nz\n" + longer)) == [(1, longest), (2, None), (3, b"z")]
        assert lines.unfinished is None
        assert list(lines.feed(longest)) == []
        assert list(lines.feed(b"\n\n")) == [(4, None), (5, b"")]


class TestLoading:
    """What a file holds."""

    def test_every_recorded_book_goes_live_as_plain_json_reads_it(self, recorded_order_books: Path):
        live = LiveIndex()
        with open_feed(str(recorded_order_books)) as feed:
            feed.start(live)
            assert (feed.books, feed.refused) == (756, 0)
        plain = {}
        for text in recorded_order_books.read_text().splitlines():
            book = json.loads(text)
            plain[f"{book['base']}/{book['quote']}"] = book
        assert len(live.current) == len(plain) == 756
        for one, book in live.current.items():
            for levels, side, falling in ((book.bids, "bids", True), (book.asks, "asks", False)):
                assert [(level.price, level.accumulated_liquidity) for level in levels] == [
                    (Decimal(level["price"]), level["accumulated_liquidity"]) for level in plain[str(one)][side]
                ]
                numbers = [level.price for level in levels]
                assert numbers == sorted(set(numbers), reverse=falling)

    def test_a_later_line_replaces_an_earlier_one_of_the_pair(self, path: Path):
        found, feed = load(path, line(1, "1") + line(2) + line(1, "5"))
        assert found == {1: "5", 2: None}
        assert (feed.books, feed.refused) == (3, 0)

    def test_blank_lines_crlf_and_a_byte_order_mark_are_fine(self, path: Path):
        content = b"\xef\xbb\xbf" + line(1).replace(b"\n", b"\r\n") + b"\n\r\n  \t\n" + line(2)
        found, feed = load(path, content)
        assert found == {1: None, 2: None}
        assert feed.refused == 0

    def test_a_byte_order_mark_anywhere_else_is_refused(self, path: Path):
        found, feed = load(path, line(1) + b"\xef\xbb\xbf" + line(2))
        assert (found, feed.refused) == ({1: None}, 1)

    def test_an_empty_file_is_an_empty_index(self, path: Path):
        assert load(path, b"")[0] == {}

    def test_bad_lines_are_skipped_counted_and_logged_with_number_and_reason(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ):
        bad = line(1).replace(b'"bids":[]', b'"bids":[{"price":0.5,"accumulated_liquidity":1}]')
        found, feed = load(path, line(1, "1") + bad + b"\n{nonsense\n\xff\n" + line(2))
        assert found == {1: "1", 2: None}
        assert (feed.books, feed.refused) == (2, 3)
        assert [record.getMessage().partition(" line ")[2] for record in caplog.records] == [
            "2 refused: bids[0].price: must be a string, not a number: 0.5",
            "4 refused: not JSON at character 1: Expecting property name enclosed in double quotes: 'nonsense'",
            r"5 refused: not UTF-8 at byte 0: b'\xff'",
        ]

    def test_a_hostile_line_cannot_forge_the_log(self, path: Path, caplog: pytest.LogCaptureFixture):
        load(path, b'{"base":"\\u000aforged\\u001b[2J"}\n' + b'{"a\\nforged":1}\n')
        assert len(caplog.records) == 2
        assert all(record.getMessage().isprintable() for record in caplog.records)

    def test_a_line_too_long_is_refused_and_costs_no_memory(self, path: Path, caplog: pytest.LogCaptureFixture):
        with path.open("wb") as file:
            file.write(line(1))
            file.seek(100 * 1024 * 1024, os.SEEK_CUR)
            file.write(b"\n" + line(2))
        live = LiveIndex()
        tracemalloc.start()
        with open_feed(path) as feed:
            feed.start(live)
            _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert spots(live) == {1: None, 2: None}
        assert feed.refused == 1
        assert "line 2 refused: it is longer than 16777216 bytes" in caplog.text
        assert peak < 3 * MAX_LINE_LENGTH

    def test_progress_is_told_in_bytes(self, path: Path):
        path.write_bytes(line(1) * 3_000)
        told: list[tuple[int, int]] = []
        with open_feed(path) as feed:
            feed.start(LiveIndex(), lambda done, total: told.append((done, total)))
        size = path.stat().st_size
        assert told[-1] == (size, size)
        assert len(told) > 1
        assert told == sorted(told)


class TestOpening:
    """What cannot be opened."""

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("nowhere.ndjson", "nowhere.ndjson cannot be opened: No such file or directory"),
            (".", ". cannot be opened: it is not a file"),
            ("a\0\nb", r"'a\x00\nb' cannot be opened: "),
            ("kafka://host/books", "'kafka' is not a kind of feed that is known"),
        ],
    )
    def test_it_says_why(self, source: str, message: str):
        with pytest.raises(FeedError) as refused:
            open_feed(source)
        assert message in str(refused.value)

    def test_a_file_that_goes_before_the_start_is_told_too(self, path: Path, live: LiveIndex):
        path.write_bytes(line(1))
        feed = open_feed(path)
        path.unlink()
        with pytest.raises(FeedError, match="cannot be read: No such file or directory"):
            feed.start(live)
        path.write_bytes(line(2))
        feed.start(live)
        assert spots(live) == {2: None}
        with pytest.raises(RuntimeError, match="started once"):
            feed.start(live)
        feed.close()
        feed.close()
        with pytest.raises(RuntimeError, match="started once"):
            feed.start(live)

    def test_closing_what_was_never_started_does_no_harm(self, path: Path):
        path.write_bytes(line(1))
        open_feed(path).close()


class TestFollowing:
    """What happens to a file goes live, and nothing else is lost."""

    def test_appended_lines_go_live(self, feed: Feed, path: Path, live: LiveIndex):
        with path.open("ab") as file:
            file.write(line(4, "4") + b"nonsense\n" + line(1, "9"))
        eventually(lambda: spots(live) == {1: "9", 2: "2", 3: "3", 4: "4"})
        assert (feed.books, feed.refused) == (5, 1)
        assert repr(feed) == f"<NdjsonFile of {path}: 5 books, 1 refused>"

    def test_an_unfinished_last_line_waits_for_its_newline(self, feed: Feed, path: Path, live: LiveIndex):
        whole = line(1, "7")
        with path.open("ab", buffering=0) as file:
            file.write(line(4) + whole[:-20])
            eventually(lambda: 4 in spots(live))
            assert spots(live)[1] == "1"
            file.write(whole[-20:-1])
            file.write(b"")
            with pytest.raises(AssertionError, match="did not come about"):
                eventually(lambda: spots(live)[1] == "7", 0.1)
            file.write(b"\n")
            eventually(lambda: spots(live)[1] == "7")
        assert feed.refused == 0

    def test_a_file_renamed_over_it_is_read_anew_and_what_it_no_longer_names_is_dropped(
        self, feed: Feed, path: Path, live: LiveIndex
    ):
        self.rename_over(path, line(2, "8") + line(5, "5"))
        eventually(lambda: spots(live) == {2: "8", 5: "5"})
        with path.open("ab") as file:
            file.write(line(6))
        eventually(lambda: 6 in spots(live))

    def test_one_swap_takes_the_new_file_in(self, feed: Feed, path: Path, live: LiveIndex):
        seen: set[tuple[int, ...]] = set()
        self.rename_over(path, line(4, "4") + line(5, "5"))
        while not seen or max(seen) == (1, 2, 3):
            seen.add(tuple(spots(live)))
        assert seen <= {(1, 2, 3), (4, 5)}

    def test_a_pair_that_a_refused_line_names_keeps_its_last_good_book(
        self, feed: Feed, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        self.rename_over(path, line(1, "1").replace(b'"1"', b"1") + line(5))
        eventually(lambda: spots(live) == {1: "1", 5: None})
        eventually(lambda: "1 pairs stay, because a line that was refused names them, or may" in caplog.text)
        self.rename_over(path, line(5))
        eventually(lambda: spots(live) == {5: None})

    @pytest.mark.parametrize("bad", [b"nonsense\n", b'{"base":"ADA"}\n', b'{"base":1,"quote":2}\n', b"{", b"[]\n"])
    def test_a_line_that_may_name_any_pair_lets_none_be_dropped(
        self, feed: Feed, path: Path, live: LiveIndex, bad: bytes
    ):
        self.rename_over(path, line(5) + bad)
        eventually(lambda: spots(live) == {1: "1", 2: "2", 3: "3", 5: None})

    def test_a_last_line_without_newline_that_names_its_pair_keeps_that_one_alone(
        self, feed: Feed, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        self.rename_over(path, line(5) + line(3, "9")[:-1])
        eventually(lambda: spots(live) == {3: "3", 5: None})
        assert "line 2 waits for its newline" in caplog.text

    @pytest.mark.parametrize(
        "replacement", [b"", b"\n", b" \r\n\t\n", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), b"nonsense"]
    )
    def test_a_file_that_turns_bad_leaves_the_last_good_index_up(
        self, feed: Feed, path: Path, live: LiveIndex, replacement: bytes, caplog: pytest.LogCaptureFixture
    ):
        before = len(caplog.records)
        self.rename_over(path, replacement)
        eventually(lambda: len(caplog.records) > before)
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        self.rename_over(path, line(7))
        eventually(lambda: 7 in spots(live))

    def test_a_file_that_vanishes_leaves_the_last_good_index_up_and_is_told_once(
        self, feed: Feed, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        away = path.with_suffix(".away")
        path.rename(away)
        told = "is not there; its 3 pairs stay as they were"
        eventually(lambda: told in caplog.text)
        with pytest.raises(AssertionError, match="did not come about"):
            eventually(lambda: caplog.text.count(told) > 1, 0.1)
        assert spots(live) == {1: "1", 2: "2", 3: "3"}
        away.rename(path)
        eventually(lambda: "is followed again" in caplog.text)
        path.unlink()
        path.mkdir()
        eventually(lambda: "cannot be read (Is a directory)" in caplog.text)
        path.rmdir()
        path.write_bytes(line(9))
        eventually(lambda: spots(live) == {9: None})

    def test_a_file_rewritten_in_place_is_read_anew(self, feed: Feed, path: Path, live: LiveIndex):
        path.write_bytes(line(2, "5"))
        eventually(lambda: spots(live) == {2: "5"})
        path.write_bytes(line(3, "5") + line(4) + line(5))
        eventually(lambda: spots(live) == {3: "5", 4: None, 5: None})
        path.write_bytes(line(3, "6") + line(4) + line(5))
        eventually(lambda: spots(live)[3] == "6")

    def test_a_touched_file_stays_as_it_is(
        self, feed: Feed, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        before = len(caplog.records)
        os.utime(path)
        with path.open("ab") as file:
            file.write(line(4))
        eventually(lambda: 4 in spots(live))
        os.utime(path)
        with pytest.raises(AssertionError, match="did not come about"):
            eventually(lambda: len(caplog.records) > before, 0.1)
        assert feed.books == 4

    def test_a_file_that_is_replaced_without_rest_is_kept_up_with(self, feed: Feed, path: Path, live: LiveIndex):
        seen = set()
        for spot in range(100, 160):
            self.rename_over(path, line(1, str(spot)))
            time.sleep(0.01)
            seen.add(spots(live)[1])
        assert len(seen) > 10

    def test_a_file_that_is_appended_to_without_rest_once_it_was_truncated_is_read(
        self, feed: Feed, path: Path, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(ndjson, "UNREST_SECONDS", 0.1)
        path.write_bytes(line(7))
        with path.open("ab", buffering=0) as file:
            patience = time.monotonic() + 20
            while 7 not in spots(live):
                assert time.monotonic() < patience
                file.write(line(8))
                time.sleep(0.001)
        eventually(lambda: spots(live) == {7: None, 8: None})

    def test_a_change_in_the_middle_is_noticed_though_the_file_grew(self, feed: Feed, path: Path, live: LiveIndex):
        lines = [line(number, "1.0") for number in range(1, 201)]
        self.rename_over(path, b"".join(lines))
        eventually(lambda: len(live.current) == 200)
        lines[99] = line(100, "7")
        path.write_bytes(b"".join(lines) + line(201))
        eventually(lambda: spots(live)[100] == "7")
        eventually(lambda: 201 in spots(live))

    def test_a_change_that_keeps_size_and_time_of_modification_is_noticed(
        self, feed: Feed, path: Path, live: LiveIndex
    ):
        before = path.stat()
        with path.open("r+b") as file:
            file.write(line(1, "8"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        eventually(lambda: spots(live)[1] == "8")

    def test_a_change_while_it_is_loaded_is_noticed(self, path: Path, live: LiveIndex):
        path.write_bytes(line(1, "1") + line(2) * 3_000)

        def change(done: int, total: int) -> None:
            if done < total:
                time.sleep(0.02)  # more than a tick of the file system's clock
                with path.open("r+b") as file:
                    file.write(line(1, "9"))

        with open_feed(path) as feed:
            feed.start(live, change)
            assert spots(live)[1] == "1"
            eventually(lambda: spots(live)[1] == "9")

    def test_the_pairs_that_an_unfinished_line_may_name_are_dropped_once_it_is_finished(
        self, feed: Feed, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        whole = line(2, "7")
        self.rename_over(path, line(5) + whole[:40])
        eventually(lambda: spots(live) == {1: "1", 2: "2", 3: "3", 5: None})
        with path.open("ab") as file:
            file.write(whole[40:])
        eventually(lambda: spots(live) == {2: "7", 5: None})
        eventually(lambda: "2 pairs dropped that it no longer names" in caplog.text)

    def test_what_was_appended_before_the_file_was_renamed_away_is_read(self, feed: Feed, path: Path, live: LiveIndex):
        with path.open("ab") as file:
            path.rename(path.with_suffix(".1"))
            file.write(line(1, "6"))
        eventually(lambda: spots(live)[1] == "6")
        path.write_bytes(b"")
        assert len(spots(live)) == 3

    def test_closing_does_not_wait_for_a_file_to_be_read_whole(self, feed: Feed, path: Path, live: LiveIndex):
        self.rename_over(path, line(4) * 200_000)
        eventually(lambda: feed.books > 1_000)
        feed.close()
        assert feed.books < 200_000
        assert spots(live) == {1: "1", 2: "2", 3: "3"}

    def test_a_file_that_cannot_be_read_is_not_tried_without_rest(
        self, feed: Feed, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        path.unlink()
        path.symlink_to("/proc/self/mem")
        eventually(lambda: "cannot be read (Input/output error); its 3 pairs stay as they were" in caplog.text)
        assert spots(live) == {1: "1", 2: "2", 3: "3"}

    def test_it_drops_only_what_it_named_itself(self, feed: Feed, path: Path, live: LiveIndex):
        live.publish(OrderBook(pair(50)))
        self.rename_over(path, line(1, "4"))
        eventually(lambda: spots(live) == {1: "4", 50: None})

    def test_nothing_goes_live_once_it_is_closed(self, feed: Feed, path: Path, live: LiveIndex):
        feed.close()
        self.rename_over(path, line(9))
        with pytest.raises(AssertionError, match="did not come about"):
            eventually(lambda: 9 in spots(live), 0.1)

    def test_a_defect_is_logged_and_following_goes_on(
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
            self.rename_over(path, line(9))
            eventually(lambda: "RuntimeError: a defect" in caplog.text)
        eventually(lambda: spots(live) == {9: None})
        with monkeypatch.context() as broken:
            broken.setattr(wire, "order_book_from_json", fail)
            with path.open("ab") as file:
                file.write(line(7) + line(8))
            eventually(lambda: caplog.text.count("RuntimeError: a defect") > 1)
        eventually(lambda: spots(live) == {7: None, 8: None, 9: None})

    @staticmethod
    def rename_over(path: Path, content: bytes) -> None:
        beside = path.with_suffix(".new")
        beside.write_bytes(content)
        beside.replace(path)


changes = st.lists(
    st.tuples(
        st.sampled_from(["append", "replace", "rewrite"]),
        st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9), st.booleans()), min_size=1, max_size=6),
    ),
    max_size=6,
)


@settings(max_examples=30)
@given(changes)
def test_whatever_happens_to_a_file_the_index_follows(tmp_path_factory: Any, changes: list[Any]):
    path = tmp_path_factory.mktemp("feed") / "books.ndjson"
    path.write_bytes(line(1, "1"))
    model: dict[int, str | None] = {1: "1"}
    live = LiveIndex()
    with open_feed(path) as feed:
        feed.start(live)
        for number, (kind, entries) in enumerate(changes, 100):
            # The pair of a bad line is told by the line, and the last line of each change marks it.
            content = b"".join(
                line(one, str(spot)) if good else line(one).replace(b"[]", b"0") for one, spot, good in entries
            ) + line(number)
            if kind == "append":
                with path.open("ab") as file:
                    file.write(content)
            elif kind == "replace":
                TestFollowing.rename_over(path, content)
            else:
                path.write_bytes(content)
            if kind != "append":
                model = {one: model[one] for one, _, good in entries if not good and one in model}
            model |= {one: str(spot) for one, spot, good in entries if good}
            model[number] = None
            eventually(lambda: spots(live) == model)  # noqa: B023  # called before the next turn


class TestStreams:
    """Standard input, and pipes by name."""

    @pytest.fixture
    def pipe(self, tmp_path: Path) -> Path:
        path = tmp_path / "pipe"
        os.mkfifo(path)
        return path

    @staticmethod
    def writing_to(pipe: Path) -> FileIO:
        # For reading too, so that it need not wait for a reader.
        return FileIO(os.open(pipe, os.O_RDWR), "w")

    def test_lines_go_live_as_they_come(self, pipe: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture):
        writer = self.writing_to(pipe)
        with open_feed(pipe) as feed:
            writer.write(line(1, "1") + line(2)[:30])
            feed.start(live)
            assert spots(live) == {1: "1"}
            writer.write(line(2)[30:] + b"nonsense\n" + line(1, "2"))
            eventually(lambda: spots(live) == {1: "2", 2: None})
            writer.write(b"\n" + line(3)[:-1])
            writer.close()
            eventually(lambda: f"{pipe} ended: 3 order books read, 2 lines refused" in caplog.text)
        assert "line 6 refused: it was not finished by a newline" in caplog.text
        assert spots(live) == {1: "2", 2: None}

    def test_blanks_at_the_end_are_no_line(self, pipe: Path, live: LiveIndex):
        writing = Thread(target=lambda: pipe.write_bytes(line(1) + b"  \r"))
        writing.start()
        with open_feed(pipe) as feed:
            feed.start(live)
            assert (feed.books, feed.refused) == (1, 0)
        writing.join()

    def test_a_stream_that_does_not_block_is_waited_for(self, live: LiveIndex, caplog: pytest.LogCaptureFixture):
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        with ndjson.NdjsonStream("a pipe", reading) as feed:
            feed.start(live)
            os.write(writing, line(1))
            eventually(lambda: len(live.current) == 1)
            os.write(writing, line(2))
            eventually(lambda: len(live.current) == 2)
            os.close(writing)
            eventually(lambda: "a pipe ended: 2 order books read, 0 lines refused" in caplog.text)
        os.close(reading)

    def test_a_stream_is_loaded_at_its_end(self, pipe: Path, live: LiveIndex):
        content = b"".join(line(number) for number in range(1, 5_001))
        writing = Thread(target=lambda: pipe.write_bytes(content))
        writing.start()
        with open_feed(pipe) as feed:
            feed.start(live)
            # It returns at a pause as well, and on a busy machine the writer may make one.
            eventually(lambda: len(live.current) == feed.books == 5_000)
        writing.join()

    def test_a_stream_that_never_pauses_is_waited_for_no_longer_than_said(
        self, pipe: Path, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(ndjson, "STREAM_WAIT_SECONDS", 0.3)
        stop: list[bool] = []

        def write() -> None:
            with pipe.open("wb", buffering=0) as writer:
                while not stop:
                    writer.write(line(1))

        writing = Thread(target=write)
        writing.start()
        with open_feed(pipe) as feed:
            feed.start(live)
            assert len(live.current) == 1
            stop.append(True)
            writing.join()

    def test_nothing_goes_live_once_it_is_closed(self, pipe: Path, live: LiveIndex):
        writer = self.writing_to(pipe)
        feed = open_feed(pipe)
        feed.start(live)
        feed.close()
        writer.write(line(1))
        with pytest.raises(AssertionError, match="did not come about"):
            eventually(lambda: len(live.current), 0.1)
        writer.close()

    def test_a_stream_that_cannot_be_read_on_has_ended(self, live: LiveIndex, caplog: pytest.LogCaptureFixture):
        reading, writing = os.pipe()
        os.close(reading)
        with ndjson.NdjsonStream("a closed pipe", writing) as feed:
            feed.start(live)
        os.close(writing)
        assert "a closed pipe cannot be read on: Bad file descriptor" in caplog.text
        assert "a closed pipe ended: 0 order books read, 0 lines refused" in caplog.text

    def test_read_once_it_is_read_to_its_end_whatever_pauses_it_makes(self, pipe: Path):
        def write() -> None:
            with pipe.open("wb", buffering=0) as writer:
                for number in range(1, 4):
                    writer.write(line(number))
                    time.sleep(0.05)

        writing = Thread(target=write)
        writing.start()
        told: list[tuple[int, int]] = []
        index = open_feed(pipe).read(lambda done, total: told.append((done, total)))
        writing.join()
        assert spots(index) == {1: None, 2: None, 3: None}
        assert set(told) == {(0, 0)}

    def test_read_once_what_cannot_be_read_is_an_error(self):
        reading, writing = os.pipe()
        os.close(reading)
        with pytest.raises(FeedError, match="a closed pipe cannot be read: Bad file descriptor"):
            ndjson.NdjsonStream("a closed pipe", writing).read()
        os.close(writing)

    def test_a_file_can_be_read_as_a_stream(self, tmp_path: Path):
        path = tmp_path / "books.ndjson"
        path.write_bytes(line(1) + b"nonsense\n" + line(2)[:-1])
        stream = ndjson.open_stream(str(path))
        (batch, last) = stream.batches()
        assert ([one.pair for one in batch.books], [one.number for one in batch.refused]) == ([pair(1)], [2])
        assert batch.offset == last.offset == path.stat().st_size
        assert [(one.number, one.reason, one.pair) for one in last.refused] == [
            (3, "it was not finished by a newline", pair(2))
        ]
        assert stream.refused == 2
        assert spots(ndjson.open_stream(str(path)).read()) == {1: None}

    def test_it_is_good_while_it_is_open_and_ages_once_it_has_ended(self, pipe: Path, live: LiveIndex):
        writer = self.writing_to(pipe)
        with open_feed(pipe) as feed:
            writer.write(line(1))
            feed.start(live)
            time.sleep(0.02)
            assert feed.age == 0
            writer.close()
            eventually(lambda: 0 < feed.age < 10)


class TestReadingOnce:
    """A file that is read, and not followed."""

    def test_it_gives_what_the_file_holds(self, path: Path):
        path.write_bytes(line(1, "1") + line(2, "2") + line(1, "3"))
        told: list[tuple[int, int]] = []
        assert spots(open_feed(path).read(lambda done, total: told.append((done, total)))) == {1: "3", 2: "2"}
        assert told == [(path.stat().st_size,) * 2]
        assert open_feed(path).read_order_book(pair(1)).spot == Decimal(3)
        with pytest.raises(PairNotFound):
            open_feed(path).read_order_book(pair(9))

    def test_it_is_read_once_or_followed(self, path: Path, live: LiveIndex):
        path.write_bytes(line(1))
        feed = open_feed(path)
        feed.read()
        for work in (feed.read, lambda: feed.start(live)):
            with pytest.raises(RuntimeError, match="a feed is started once, or read once"):
                work()

    def test_its_age_is_told_from_when_it_was_last_good(self, path: Path, live: LiveIndex):
        path.write_bytes(line(1))
        with open_feed(path) as feed:
            assert feed.age == float("inf")
            feed.start(live)
            assert 0 <= feed.age < 5
            assert feed.revision is None
            path.unlink()
            eventually(lambda: feed.age > 0.3)
            path.write_bytes(line(1))
            eventually(lambda: feed.age < 0.2)
