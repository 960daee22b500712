"""Lines of files and streams: cutting, following, and where they end."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index_feeds.line_source import CHUNK_BYTES, MAX_LINE_BYTES, Line, LineCutter, LineFile, LineStream
from tests.waiting import DEADLINE_SECONDS


def quick_file(path: Path) -> LineFile:
    return LineFile("lines", path, poll_seconds=0.005)


def quick_stream(stream: int | str) -> LineStream:
    return LineStream("a pipe", stream, idle_seconds=0.01)


class TestCutting:
    """Cutting chunks into lines."""

    @given(st.binary(max_size=60).map(lambda data: data.replace(b"\x07", b"\n")), st.lists(st.integers(0, 60)))
    def test_chunks_cut_anywhere_give_the_same_lines(self, data: bytes, cuts: list[int]):
        cutter = LineCutter()
        found: list[Line] = []
        borders = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
        for start, stop in pairwise(borders):
            found += cutter.feed(data[start:stop])
        lines = data.split(b"\n")
        lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        assert [*found, cutter.unfinished] == [Line(number, text) for number, text in enumerate(lines, 1)]

    def test_a_line_that_is_too_long_is_none_for_any_chunks(self):
        cutter = LineCutter()
        longest, longer = b"x" * MAX_LINE_BYTES, b"y" * (MAX_LINE_BYTES + 1)
        assert list(cutter.feed(longest)) == []
        assert list(cutter.feed(b"\n" + longer + b"\nz\n" + longer)) == [
            Line(1, longest),
            Line(2, None),
            Line(3, b"z"),
        ]
        assert cutter.unfinished == Line(4, None)
        assert list(cutter.feed(longest)) == []
        assert list(cutter.feed(b"\n\n")) == [Line(4, None), Line(5, b"")]


class TestFiles:
    """A file that is followed."""

    def test_each_file_at_the_path_starts_again_at_line_1(self, tmp_path: Path):
        path = tmp_path / "lines"
        path.write_bytes(b"a\nb")
        with closing(quick_file(path).batches(Event())) as batches:
            first = next(batches)
            assert (first.lines, first.unfinished, first.is_start) == ([Line(1, b"a")], Line(2, b"b"), True)
            assert next(batches).lines == []
            with path.open("ab") as file:
                file.write(b"\n")
            second = next(batch for batch in batches if batch.lines)
            assert (second.lines, second.is_start, second.offset) == ([Line(2, b"b")], False, 4)
            (tmp_path / "new").write_bytes(b"c\n")
            (tmp_path / "new").replace(path)
            third = next(batch for batch in batches if batch.lines)
            assert (third.lines, third.is_start) == ([Line(1, b"c")], True)
            path.write_bytes(b"")
            fourth = next(batch for batch in batches if batch.is_start)
            assert (fourth.lines, fourth.unfinished) == ([], Line(1, b""))

    def test_a_renamed_file_is_read_until_another_one_replaces_it(self, tmp_path: Path):
        path = tmp_path / "lines"
        path.write_bytes(b"a\n")
        with closing(quick_file(path).batches(Event())) as batches, path.open("ab", buffering=0) as file:
            assert next(batches).problem is None
            path.rename(tmp_path / "away")
            assert next(batch for batch in batches if batch.problem).problem == "No such file or directory"
            file.write(b"b\n")
            assert next(batch for batch in batches if batch.lines).lines == [Line(2, b"b")]
            path.write_bytes(b"c\n")
            file.write(b"d\n")
            assert next(batch for batch in batches if batch.lines).lines == [Line(3, b"d")]
            assert next(batch for batch in batches if batch.lines).lines == [Line(1, b"c")]

    def test_a_large_file_is_caught_up_only_at_its_end(self, tmp_path: Path):
        path = tmp_path / "lines"
        line = b"x" * (CHUNK_BYTES // 2 - 1) + b"\n"
        path.write_bytes(line * 4 + b"f")
        with closing(quick_file(path).batches(Event())) as batches:
            read = [next(batches) for _ in range(3)]
        assert [(batch.offset, batch.size, batch.is_start, batch.is_caught_up) for batch in read] == [
            (CHUNK_BYTES, 2 * CHUNK_BYTES + 1, True, False),
            (2 * CHUNK_BYTES, 2 * CHUNK_BYTES + 1, False, False),
            (2 * CHUNK_BYTES + 1, 2 * CHUNK_BYTES + 1, False, True),
        ]

    def test_it_ends_when_it_is_stopped(self, tmp_path: Path):
        path = tmp_path / "lines"
        path.write_bytes(b"a\n")
        stop = Event()
        with closing(quick_file(path).batches(stop)) as batches:
            next(batches)
            stop.set()
            assert list(batches) == []
        assert list(quick_file(path).batches(stop)) == []


class TestStreams:
    """Standard input, and pipes."""

    def test_a_pipe_without_a_writer_does_not_block(self, tmp_path: Path):
        path = tmp_path / "pipe"
        os.mkfifo(path)
        with closing(quick_stream(str(path)).batches(Event())) as batches:
            first = next(batches)
            assert (first.lines, first.is_start, first.is_caught_up, first.is_end) == ([], True, True, False)
            with path.open("wb", buffering=0) as writer:
                writer.write(b"a\nb")
                assert next(batch for batch in batches if batch.lines).lines == [Line(1, b"a")]
            *_, last = batches
            assert (last.unfinished, last.is_end) == (Line(2, b"b"), True)

    def test_it_continues_where_it_was_interrupted(self):
        reading, writing = os.pipe()
        stream = quick_stream(reading)

        def interrupted(text: bytes) -> tuple[list[Line], bool]:
            os.write(writing, text)
            with closing(stream.batches(Event())) as batches:
                batch = next(batches)
                return batch.lines, batch.is_start

        # Until the stream is caught up, its batches are starts.
        assert interrupted(b"a\nb") == ([Line(1, b"a")], True)
        assert interrupted(b"b\n") == ([Line(1, b"a")], True)
        with closing(stream.batches(Event())) as batches:
            assert [next(batches).is_start, next(batches).lines, next(batches).is_caught_up] == [
                True,
                [Line(2, b"bb")],
                True,
            ]
            next(batches)
        assert interrupted(b"c\n") == ([], False)
        with closing(stream.batches(Event())) as batches:
            assert [next(batches).lines, next(batches).lines] == [[], [Line(3, b"c")]]
        os.close(writing)
        os.close(reading)

    def test_a_file_is_read_again_from_its_start(self, tmp_path: Path):
        path = tmp_path / "lines"
        path.write_bytes(b"a\n")
        stream = LineStream("lines", str(path))
        for _ in range(2):
            first, last = stream.batches(Event())
            assert (first.lines, first.is_start, last.offset) == ([Line(1, b"a")], True, 2)

    def test_it_ends_when_it_is_stopped(self):
        reading, writing = os.pipe()
        stop = Event()
        batches = quick_stream(reading).batches(stop)
        os.write(writing, b"a\n")
        assert next(batches).lines == [Line(1, b"a")]
        stop.set()
        assert list(batches) == []
        os.close(reading)
        os.close(writing)

    def test_a_stream_that_is_never_idle_is_loaded_after_the_timeout(self):
        reading, writing = os.pipe()
        stop = Event()

        def write() -> None:
            while not stop.is_set():
                os.write(writing, b"a\n")
            os.close(writing)

        thread = Thread(target=write)
        thread.start()
        with closing(LineStream("a pipe", reading, load_seconds=0.05).batches(Event())) as batches:
            assert next(batch for batch in batches if batch.is_caught_up).lines
            stop.set()
            *_, last = batches
        thread.join(DEADLINE_SECONDS)
        assert last.is_end
        os.close(reading)

    def test_the_wait_continues_if_another_process_read_the_data(self, monkeypatch: pytest.MonkeyPatch):
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.write(writing, b"a\n")
        real = os.read

        def stolen(descriptor: int, length: int) -> bytes:
            real(descriptor, length)
            monkeypatch.setattr(os, "read", real)
            raise BlockingIOError

        monkeypatch.setattr(os, "read", stolen)
        batches = quick_stream(reading).batches(Event())
        assert next(batches).lines == []
        os.write(writing, b"b\n")
        os.close(writing)
        assert [line for batch in batches for line in batch.lines] == [Line(1, b"b")]
        os.close(reading)

    def test_standard_input_that_cannot_be_read_is_an_error(self):
        reading, writing = os.pipe()
        script = "from market_index_feeds import open_feed; print(open_feed('-').source)"
        error = b"standard input cannot be opened: Bad file descriptor"
        for stream, found in ((writing, error), (reading, b"standard input")):
            done = subprocess.run([sys.executable, "-c", script], stdin=stream, capture_output=True, check=False)
            assert found in done.stdout + done.stderr
        os.close(reading)
        os.close(writing)
