"""Recordings: what a recorder writes, a killed one leaves, and a replay yields."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from market_index import Freshness, LiveIndex
from market_index.wire import format_time
from market_index_feeds import FeedError, Recorder, StoreError, mirror, open_feed, replay
from market_index_feeds.feed import Feed
from market_index_feeds.recording import Replay
from tests.feeds.contract.lines import book_line, retract_line
from tests.feeds.contract.medium import Reader, Ticks, without_waits
from tests.feeds.made_up import book, pair, spots
from tests.feeds.scripted import SteppedSource

START: Final = datetime(2026, 11, 22, tzinfo=UTC)


def recorded(seconds: float, as_of: str | None = None) -> bytes:
    """Return a commit line that was recorded so many seconds after `START`."""
    time = format_time(START + timedelta(seconds=seconds))
    return json.dumps({"as_of": as_of, "recorded_at": time}).encode() + b"\n"


def replayed(path: Path) -> list[tuple[float, dict[int, str | None], str | None]]:
    """Return the seconds since `START`, the spots and the as_of after each change."""
    return [((time - START).total_seconds(), spots(index), index.as_of) for time, index in replay(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recording.ndjson"


@pytest.fixture
def clock() -> Iterator[datetime]:
    return (START + timedelta(seconds=number) for number in range(100))


class TestRecorder:
    """What it writes."""

    def test_each_version_is_a_change_with_the_time_of_its_recording(self, path: Path, clock: Iterator[datetime]):
        source = SteppedSource()
        source.publish(book(1, 1), book(2, 2), as_of="slot 1")
        source.read_in_thread(
            lambda: mirror(without_waits(Feed(source)), lambda: Recorder(path, clock=lambda: next(clock)))
        )
        source.step()
        source.step()
        source.publish(book(2, 3), as_of="slot 2")
        source.step()
        source.books.pop(pair(1))
        source.step()
        source.end()
        assert replayed(path) == [
            (0, {1: "1", 2: "2"}, "slot 1"),
            (1, {1: "1", 2: "3"}, "slot 2"),
            (2, {2: "3"}, "slot 2"),
        ]

    def test_a_recording_is_continued_with_the_difference(self, path: Path):
        unfinished = book_line(book(3, 3)) + b'{"base":"half'
        path.write_bytes(book_line(book(1, 1)) + book_line(book(2, 2)) + recorded(0) + unfinished)
        source = SteppedSource()
        source.publish(book(2, 2), book(3, 9))
        source.read_in_thread(lambda: mirror(without_waits(Feed(source)), lambda: Recorder(path)))
        source.step()
        source.end()
        assert [spots(index) for _, index in replay(path)] == [{1: "1", 2: "2"}, {2: "2", 3: "9"}]
        assert path.read_bytes().count(str(pair(2).base).encode()) == 1

    def test_a_new_file_appears_with_its_first_change(self, path: Path):
        with Recorder(path) as recorder:
            assert (dict(recorder.read().index), recorder.position.number, path.exists()) == ({}, 0, False)
            receipt = recorder.update([book(1, 1)], [pair(2)])
            assert (receipt.published, receipt.retracted, receipt.position) == (1, 0, recorder.position)
        assert [one.name for one in path.parent.iterdir()] == [path.name]
        assert spots(open_feed(path).read()) == {1: "1"}

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (book_line(book(1)), "it must contain a commit line with recorded_at, got none"),
            (b"# Notes\n", "line 1 rejected: must be JSON"),
            (b'{"as_of":null}\n', "line 1 rejected: recorded_at: missing"),
            (recorded(0) + b"nonsense\n" + recorded(1), "line 2 rejected: must be JSON"),
        ],
    )
    def test_a_file_that_is_no_recording_stays_as_it_is(self, path: Path, content: bytes, reason: str):
        path.write_bytes(content)
        with pytest.raises(FeedError, match=f"{path} cannot be replayed: {reason}"):
            list(replay(path))
        with Recorder(path) as recorder, pytest.raises(StoreError) as raised:
            recorder.read()
        assert f"{path} must be a recording, or a new file: {reason}" in str(raised.value)
        assert path.read_bytes() == content

    def test_only_one_recorder_has_a_file_open(self, path: Path):
        with Recorder(path) as recorder:
            recorder.update([book(1)])  # it creates the file
            with pytest.raises(StoreError, match="another recorder has it open"):
                Recorder(path)
        with Recorder(path), pytest.raises(StoreError, match="another recorder has it open"):
            Recorder(path)
        Recorder(path).close()

    def test_a_file_that_is_removed_or_replaced_is_not_written(self, path: Path):
        with Recorder(path) as recorder:
            recorder.update([book(1, 1)])
            path.unlink()
            for use in (lambda: recorder.update([book(3)]), recorder.read, lambda: recorder.position):
                with pytest.raises(StoreError, match="was removed or replaced while it was recorded"):
                    use()
            path.touch()
            with pytest.raises(StoreError, match="was removed or replaced while it was recorded"):
                recorder.update([book(3)])
        assert path.read_bytes() == b""

    def test_a_file_that_another_program_has_just_created_is_not_replaced(self, path: Path):
        with Recorder(path) as recorder:
            path.write_bytes(b"another")
            with pytest.raises(StoreError, match="was not written to: File exists"):
                recorder.update([book(2)])
            assert path.read_bytes() == b"another"
            path.unlink()
            recorder.update([book(1, 1)])
        assert [one.name for one in path.parent.iterdir()] == [path.name]
        assert spots(open_feed(path).read()) == {1: "1"}

    def test_the_path_is_that_at_the_opening(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        with Recorder("recording.ndjson") as recorder:
            monkeypatch.chdir(tmp_path / "elsewhere")
            recorder.update([book(1, 1)])
            recorder.update([book(1, 2)])
            assert spots(recorder.read().index) == {1: "2"}
        assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["recording.ndjson"]

    def test_a_recording_is_not_written_as_if_it_were_compressed(self, path: Path):
        with pytest.raises(StoreError, match=r"its name must not end in \.gz: it is written uncompressed"):
            Recorder(f"{path}.gz")

    def test_its_folder_must_exist(self, path: Path):
        with pytest.raises(StoreError, match="its folder must exist"):
            Recorder(path / "new")

    @pytest.mark.parametrize("kind", ["pipe", "folder"])
    def test_it_must_be_a_regular_file(self, path: Path, kind: str):
        os.mkfifo(path) if kind == "pipe" else path.mkdir()
        with pytest.raises(StoreError, match="cannot be recorded into"):
            Recorder(path)


class TestReplay:
    """The source of a replay."""

    @pytest.fixture
    def feed(self, path: Path) -> Feed:
        path.write_bytes(
            book_line(book(1, 1))
            + book_line(book(2, 2))
            + recorded(0, "slot 1")
            + retract_line(pair(1))
            + recorded(5, "slot 2")
            + recorded(4, "slot 3")
        )
        self.now = 0.0
        self.waits: list[float] = []
        return Feed(Replay(path, speed=2, loop=True, clock=lambda: self.now))

    def test_changes_are_due_after_the_time_between_them_divided_by_the_speed(self, feed: Feed):
        test = self

        class Clock(Ticks):
            def wait(self, timeout: float | None = None) -> bool:
                test.waits.append(timeout or 0)
                test.now += timeout or 0
                return super().wait(timeout)

        shown: list[tuple[float, dict[int, str | None], str | None]] = []
        versions = without_waits(feed, Clock()).versions()
        for _ in range(9):
            version = next(versions)
            shown.append((self.now, spots(version.index), version.index.as_of))
        assert shown.index((0.0, {1: "1", 2: "2"}, "slot 1")) == 0
        assert (2.5, {2: "2"}, "slot 2") in shown
        assert (2.5, {2: "2"}, "slot 3") in shown
        assert max(self.waits) <= 1
        # The next round begins with its whole content.
        assert (3.0, {1: "1", 2: "2"}, "slot 1") in shown
        assert feed.is_endless
        assert feed.is_stream
        feed.close()

    def test_it_ends_without_a_loop(self, path: Path, feed: Feed):
        with Reader(Feed(Replay(path, speed=1e9))) as reader:
            assert reader.end() == "has ended"
            assert spots(reader.index) == {2: "2"}

    def test_it_is_published_now(self, path: Path, feed: Feed):
        before = datetime.now(UTC)
        with open_feed(f"replay:{path}?speed=1e9") as opened:
            opened.start(LiveIndex())
            assert opened.version is not None
            published_at = opened.version.index.published_at
        assert published_at is not None
        assert abs((published_at - before).total_seconds()) < 3600

    def test_an_invalid_line_ends_it(self, path: Path, feed: Feed):
        path.write_bytes(path.read_bytes() + b"nonsense\n" + recorded(9))
        with Reader(Feed(Replay(path, speed=1e9))) as reader, pytest.raises(FeedError, match="line 7 rejected"):
            reader.end()


def test_what_follows_the_last_commit_line_is_no_change(path: Path):
    path.write_bytes(book_line(book(1, 1)) + recorded(1, "a") + book_line(book(1, 2)))
    assert replayed(path) == [(1, {1: "1"}, "a")]


@pytest.mark.parametrize("torn", [bytes(4096) + b'pair":1}\n', b"nonsense\n", bytes(4096)])
def test_the_torn_end_of_a_power_cut_is_no_change_and_is_cut_off(path: Path, torn: bytes):
    path.write_bytes(recorded(1))
    whole = list(replay(path))
    path.write_bytes(recorded(1) + torn)
    assert list(replay(path)) == whole
    with Recorder(path) as recorder:
        recorder.publish(book(7, 7))
    assert [spots(index) for _, index in replay(path)][-1] == spots(whole[-1][1]) | {7: "7"}
    path.write_bytes(recorded(1) + torn + b"\n" + recorded(2))
    with pytest.raises(FeedError, match="rejected: must be"):
        list(replay(path))


def test_a_compressed_recording_is_replayed(tmp_path: Path):
    path = tmp_path / "recording.ndjson.gz"
    path.write_bytes(gzip.compress(book_line(book(1, 1)) + recorded(1)))
    assert [found for _, found, _ in replayed(path)] == [{1: "1"}]


def test_a_damaged_compressed_recording_raises_the_reason(tmp_path: Path):
    """Cut at each place, and with each byte changed: no other kind of error."""
    path = tmp_path / "recording.ndjson.gz"
    lines = b"".join(book_line(book(1, spot)) + recorded(spot) for spot in range(1, 4))
    text, whole = gzip.compress(lines), [{1: "1"}, {1: "2"}, {1: "3"}]
    damaged = [text[:size] for size in range(len(text))]
    damaged += [text[:at] + bytes([text[at] ^ 0xFF]) + text[at + 1 :] for at in range(len(text))]
    reasons = set[str]()
    for content in damaged:
        path.write_bytes(content)
        for read in (lambda: list(replay(path)), lambda: open_feed(f"replay:{path}?speed=1e9").read()):
            try:
                read()
            except FeedError as error:
                reasons.add(str(error).partition(": ")[2].partition(":")[0])
    assert [found for _, found, _ in replayed_from(path, text)] == whole
    assert {"it cannot be inflated", "Not a gzipped file (b'\\xe0\\x8b')"} <= reasons


def replayed_from(path: Path, content: bytes) -> list[tuple[float, dict[int, str | None], str | None]]:
    path.write_bytes(content)
    return replayed(path)


def test_a_recording_is_a_regular_file(tmp_path: Path):
    """Opening a pipe would wait for a writer."""
    os.mkfifo(tmp_path / "pipe")
    for read in (lambda: open_feed(f"replay:{tmp_path}/pipe"), lambda: list(replay(tmp_path / "pipe"))):
        with pytest.raises(FeedError, match="pipe cannot be replayed: it must be a regular file"):
            read()


def test_a_recorded_freshness_is_that_of_the_source(path: Path):
    with Recorder(path) as recorder:
        recorder.update([book(1)], freshness=Freshness("slot 1", START))
    assert [index.freshness for _, index in replay(path)] == [Freshness("slot 1", START)]
