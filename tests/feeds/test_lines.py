"""Files and streams of lines: what is cut, committed, unfinished, and read again."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import Freshness, OrderBook
from market_index_feeds import BookLines, FeedError, open_feed
from market_index_feeds.lines import MAX_LINE_BYTES, LineCutter
from tests.feeds.contract.lines import book_line, commit_line, retract_line, spoiled_line
from tests.feeds.contract.medium import Reader, Ticks
from tests.feeds.made_up import book, pair, spots

ONE, TWO = book_line(book(1, 1)), book_line(book(2, 2))
COMMIT = commit_line(Freshness("slot 1"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "books.ndjson"


def append(path: Path, *lines: bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(lines))


@given(st.lists(st.binary(max_size=4), max_size=20))
def test_lines_do_not_depend_on_how_their_bytes_arrive(chunks: list[bytes]):
    cutter = LineCutter()
    text = b"".join(chunks)
    found = [line for chunk in chunks for line in cutter.cut(chunk)]
    size = text.rfind(b"\n") + 1
    *whole, rest = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert [line.text for line in found] == whole
    assert [line.number for line in found] == list(range(1, len(whole) + 1))
    assert (cutter.size, b"" if cutter.tail is None else cutter.tail.text) == (size, rest)


def test_a_byte_order_mark_is_no_part_of_the_first_line():
    cutter = LineCutter()
    assert [line.text for line in cutter.cut(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n")] == [b"a", b"\xef\xbb\xbfb"]


def test_a_line_that_is_too_long_is_never_in_memory_as_a_whole(path: Path):
    cutter = LineCutter()
    (line,) = cutter.cut(b"x" * (MAX_LINE_BYTES + 1) + b"\n")
    assert (line.text, line.fault) == (b"", f"must have at most {MAX_LINE_BYTES} bytes")
    (line,) = cutter.cut(b"y\n")
    assert (line.number, line.text, line.fault) == (2, b"y", None)


class TestCommits:
    """Commit lines group lines."""

    def test_lines_are_visible_as_they_are_read_until_the_first_commit(self, path: Path):
        path.write_bytes(ONE)
        with Reader(open_feed(path)) as reader:
            reader.pull()
            append(path, TWO)
            reader.until(lambda version: len(version.index) == 2)
            assert reader.index.as_of is None
            append(path, COMMIT, book_line(book(3, 3)), retract_line(pair(1)))
            reader.until(lambda version: version.index.as_of == "slot 1")
            reader.pull()
            assert spots(reader.index) == {1: "1", 2: "2"}
            append(path, commit_line(Freshness("slot 2")))
            reader.until(lambda version: version.index.as_of == "slot 2")
            assert spots(reader.index) == {2: "2", 3: "3"}
            assert [version.index.as_of for version in reader.versions] == [None, None, "slot 1", "slot 2"]

    def test_an_invalid_commit_line_is_only_counted(self, path: Path):
        path.write_bytes(ONE + COMMIT + TWO + b'{"as_of":7}\n' + commit_line(Freshness("slot 2")))
        feed = open_feed(path)
        assert spots(feed.read()) == {1: "1", 2: "2"}
        assert feed.version is not None
        assert (feed.version.index.as_of, feed.version.invalid, feed.health.rejected) == ("slot 2", frozenset(), 1)

    def test_an_invalid_line_counts_with_its_commit(self, path: Path):
        path.write_bytes(ONE + COMMIT + spoiled_line(pair(1)))
        with Reader(open_feed(path)) as reader:
            assert reader.pull().invalid == frozenset()
            append(path, commit_line(Freshness("slot 2")))
            reader.until(lambda version: bool(version.invalid))
            assert spots(reader.index) == {1: "1"}

    def test_a_stream_that_ends_within_a_change_says_so(self, path: Path):
        os.mkfifo(path)
        descriptor = os.open(path, os.O_RDWR)
        writing = os.open(path, os.O_WRONLY)
        os.write(writing, ONE + COMMIT + TWO)
        with Reader(open_feed(path)) as reader:
            reader.pull()
            os.close(writing)
            os.close(descriptor)
            assert reader.end() == "ended while lines waited for a commit line (pairs: 1)"
            assert spots(reader.index) == {1: "1"}

    def test_only_commit_lines_are_no_version(self, path: Path):
        path.write_bytes(COMMIT)
        with pytest.raises(FeedError, match="contains no order book"):
            open_feed(path).read()
        append(path, retract_line(pair(1)), COMMIT)
        assert len(open_feed(path).read()) == 0


class TestLastLine:
    """A last line without a newline."""

    def test_it_counts_if_it_is_whole(self, path: Path):
        path.write_bytes(ONE + TWO[:-1])
        with Reader(open_feed(path)) as reader:
            before = reader.pull()
            assert spots(reader.index) == {1: "1", 2: "2"}
            append(path, b"\n")
            for _ in range(5):
                assert reader.pull() is before
            assert reader.feed.health.rejected == 0

    @pytest.mark.parametrize("size", [1, 20, len(TWO) // 2, len(TWO) - 3])
    def test_otherwise_it_is_invalid_until_it_is_whole(self, path: Path, size: int):
        path.write_bytes(ONE + TWO[:size])
        with Reader(open_feed(path)) as reader:
            assert (reader.pull().invalid, spots(reader.index)) == (frozenset({None}), {1: "1"})
            append(path, TWO[size:])
            reader.until(lambda version: not version.invalid)
            assert (spots(reader.index), reader.feed.health.rejected) == ({1: "1", 2: "2"}, 0)

    def test_pairs_that_an_unfinished_file_does_not_name_yet_stay_until_it_is_whole(self, path: Path):
        path.write_bytes(ONE + TWO)
        with Reader(open_feed(path)) as reader:
            reader.pull()
            path.with_suffix(".new").write_bytes(book_line(book(3, 3)) + TWO[:20])
            path.with_suffix(".new").rename(path)
            reader.until(lambda version: bool(version.invalid))
            assert spots(reader.index) == {1: "1", 2: "2", 3: "3"}
            append(path, TWO[20:])
            reader.until(lambda version: not version.invalid)
            assert spots(reader.index) == {2: "2", 3: "3"}

    def test_at_the_end_of_what_is_read_once_it_is_rejected(self, path: Path):
        path.write_bytes(ONE + TWO[:20])
        lines = BookLines(path, is_stream=True)
        (change,) = [change for change in lines.changes(Ticks()) if change.is_end]
        assert (change.published, change.invalid, lines.rejected) == ([book(1, 1)], {None}, 1)


class TestFiles:
    """A file that changes in place, or is another one."""

    def test_a_file_that_becomes_shorter_is_read_again(self, path: Path):
        path.write_bytes(ONE + TWO)
        with Reader(open_feed(path)) as reader:
            before = reader.pull()
            path.write_bytes(TWO)
            reader.until(lambda version: version is not before)
            assert spots(reader.index) == {2: "2"}
            assert reader.index[pair(2)] is before.index[pair(2)]

    def test_what_was_appended_before_a_file_is_replaced_is_not_mixed_with_it(self, path: Path):
        path.write_bytes(ONE + COMMIT)
        with Reader(open_feed(path)) as reader:
            reader.pull()
            append(path, TWO)
            path.with_suffix(".new").write_bytes(book_line(book(3, 3)))
            path.with_suffix(".new").rename(path)
            reader.until(lambda version: spots(version.index) == {3: "3"})
            assert [spots(version.index) for version in reader.versions] == [{1: "1"}, {3: "3"}]

    @pytest.mark.parametrize("is_pipe", [True, False], ids=["a pipe", "a device"])
    def test_what_is_no_file_at_its_path_is_a_problem_and_blocks_nothing(self, path: Path, is_pipe: bool):
        path.write_bytes(ONE)
        with Reader(open_feed(path)) as reader:
            before = reader.pull()
            path.rename(path.with_suffix(".away"))
            os.mkfifo(path) if is_pipe else path.symlink_to("/dev/zero")
            reader.until(lambda _: reader.feed.health.problem == "cannot be read: it must be a regular file")
            assert reader.pull() is before
            path.unlink()
            path.with_suffix(".away").rename(path)
            append(path, TWO)
            reader.until(lambda version: spots(version.index) == {1: "1", 2: "2"})

    def test_bytes_of_a_pipe_that_another_process_reads_first_are_no_error(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        os.mkfifo(path)
        descriptor, checks = os.open(path, os.O_RDWR), count()

        def is_readable(*_: object) -> bool:
            if next(checks) == 3:
                os.write(descriptor, ONE)
            return True

        monkeypatch.setattr("market_index_feeds.lines._is_readable", is_readable)
        with Reader(open_feed(path)) as reader:
            assert spots(reader.pull().index) == {1: "1"}
        os.close(descriptor)

    def test_a_folder_cannot_be_opened(self, path: Path):
        path.mkdir()
        with pytest.raises(FeedError, match="must be a regular file, a pipe or a character device"):
            open_feed(path)

    def test_a_file_of_several_chunks_is_one_version(self, path: Path):
        large = OrderBook.from_levels(pair(7), bids=[(str(number), number) for number in range(1, 9000)])
        path.write_bytes(b"".join(map(book_line, (large, book(1), large.apply(spot="2")))))
        seen: list[tuple[int, int]] = []
        with Reader(open_feed(path)) as reader:
            reader.pull()
            assert reader.index[pair(7)] == large.apply(spot="2")
        open_feed(path).read(lambda done, total: seen.append((done, total)))
        assert len(seen) > 2
        assert seen[-1] == (path.stat().st_size, path.stat().st_size)
