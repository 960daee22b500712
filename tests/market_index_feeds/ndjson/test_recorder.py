"""Recording a feed: new files, files that are continued, files that are rejected, and errors of writes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from threading import Thread

import pytest

from market_index import Freshness, LiveIndex
from market_index_feeds import FeedError, Recorder, Store, StoreError, open_feed, open_store, replay
from market_index_feeds.ndjson.recorder import RecordingFile
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.ndjson.lines import commit, line, retraction
from tests.market_index_feeds.ndjson.recordings import START, recorded, replayed
from tests.waiting import DEADLINE_SECONDS, eventually


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """The store that is recorded, with two pairs."""
    with open_store(tmp_path / "market.db", synchronous="normal") as store:
        store.replace([book(1, 1), book(2, 2)], as_of="slot 1")
        yield store


@contextmanager
def recording(source: str, path: Path) -> Iterator[Recorder]:
    """Record a source, at a time that is one second later with each change."""
    seconds = count()
    with open_feed(source) as feed:
        recorder = Recorder(feed, path, clock=lambda: START + timedelta(seconds=next(seconds)))
        recorder.start()
        thread = Thread(target=recorder.run)
        thread.start()
        try:
            yield recorder
        finally:
            recorder.close()
            recorder.close()
            assert recorder.is_closing
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()


class TestChanges:
    """What is recorded."""

    def test_the_content_and_each_change_are_recorded(self, store: Store, path: Path):
        with recording(store.target, path) as recorder:
            assert replayed(path) == [(0, {1: "1", 2: "2"}, "slot 1")]
            store.update([book(3, 3)], [pair(1)], as_of="slot 2")
            eventually(lambda: len(replayed(path)) == 2)
            heartbeat = Freshness("slot 2", START)
            store.update((), freshness=heartbeat)
            eventually(lambda: len(replayed(path)) == 3)
            store.publish(book(3, 4))
            eventually(lambda: len(replayed(path)) == 4)
            assert recorder.live.current == open_feed(path).read()
        found = replayed(path)
        assert [(spots, as_of) for _, spots, as_of in found] == [
            ({1: "1", 2: "2"}, "slot 1"),
            ({2: "2", 3: "3"}, "slot 2"),
            ({2: "2", 3: "3"}, "slot 2"),
            ({2: "2", 3: "4"}, "slot 2"),
        ]
        assert [index.published_at for _, index in replay(path)][2] == START
        assert [seconds for seconds, _, _ in found] == sorted(seconds for seconds, _, _ in found)

    def test_a_follower_of_the_recording_shows_the_source(self, store: Store, path: Path, live: LiveIndex):
        with recording(store.target, path), open_feed(path) as feed:
            feed.start(live)
            for spot in range(10, 20):
                store.publish(book(spot % 3, spot))
            store.retract(pair(1))
            source = open_feed(store.target).read()
            eventually(lambda: live.current == source)
            eventually(lambda: live.current.freshness == source.freshness)

    def test_content_of_unknown_freshness_is_recorded(self, tmp_path: Path, path: Path):
        books = tmp_path / "source.ndjson"
        books.write_bytes(line(1, "1") + line(2).replace(b"[]", b"0"))
        with recording(str(books), path):
            pass
        assert replayed(path) == [(0, {1: "1"}, None)]

    def test_a_recorder_is_started_before_it_runs(self, store: Store, path: Path):
        with open_feed(store.target) as feed, pytest.raises(RuntimeError, match="started before it runs"):
            Recorder(feed, path).run()

    def test_a_closed_recorder_records_nothing_more(self, store: Store, path: Path):
        with open_feed(store.target) as feed:
            recorder = Recorder(feed, path)
            recorder.start()
            recorder.close()
            store.publish(book(9, 9))
            recorder.run()
        assert len(replayed(path)) == 1


class TestContinuing:
    """A recording that exists."""

    def test_it_is_cut_after_its_last_commit_line_and_continued_with_the_whole_content(self, store: Store, path: Path):
        kept = (
            line(1, "7")
            + line(6, "6")
            + recorded(-10)
            + retraction(6)
            + line(8, "8")
            + line(9, "9")
            + retraction(1)
            + recorded(-5, "slot 0")
        )
        path.write_bytes(kept + line(5, "5") + line(6)[:-7])
        with recording(store.target, path):
            pass
        assert path.read_bytes().startswith(kept + retraction(8) + retraction(9) + line(1, "1") + line(2, "2"))
        assert replayed(path)[1:] == [
            (-5, {8: "8", 9: "9"}, "slot 0"),
            (0, {1: "1", 2: "2"}, "slot 1"),
        ]

    def test_a_follower_sees_no_pair_of_the_part_that_is_cut(self, store: Store, path: Path, live: LiveIndex):
        path.write_bytes(line(8, "8") + recorded(-5) + line(5, "5") + b"{")
        with open_feed(path) as feed:
            feed.start(live)
            with recording(store.target, path):
                eventually(lambda: spots(live) == {1: "1", 2: "2"})
                eventually(lambda: feed.problem is None)

    def test_a_pair_that_the_feed_neither_names_nor_has_retracted_stays(self, tmp_path: Path, path: Path):
        with open_store(tmp_path / "new.db", synchronous="normal") as new:
            new.update([book(1, 1)], as_of="slot 1")
            path.write_bytes(line(8, "8") + line(9, "9") + recorded(-5))
            with recording(new.target, path):
                assert replayed(path)[-1][1:] == ({1: "1", 8: "8", 9: "9"}, None)
                new.update([book(9, 10)], as_of="slot 2")
                eventually(lambda: replayed(path)[-1][1:] == ({1: "1", 8: "8", 9: "10"}, None))
                new.replace([book(1, 1), book(9, 10)], as_of="slot 3")
                eventually(lambda: replayed(path)[-1][1:] == ({1: "1", 9: "10"}, "slot 3"))

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "it must contain a commit line"),
            (b"hello", "it must contain a commit line"),
            (line(1), "it must contain a commit line"),
            (line(1) + commit("slot 1"), "line 2 rejected: recorded_at: missing"),
            (line(1) + recorded(0) + b"hello\n" + recorded(1), "line 3 rejected: must be JSON"),
            (line(1) + recorded(0) + b"hello\n", "line 3 rejected: must be JSON"),
        ],
    )
    def test_any_other_file_is_an_error_and_unchanged(self, store: Store, path: Path, content: bytes, reason: str):
        path.write_bytes(content)
        with open_feed(store.target) as feed, pytest.raises(StoreError) as caught:
            Recorder(feed, path).start()
        assert str(caught.value).startswith(f"{path} must be a recording, or a new file: {reason}")
        assert path.read_bytes() == content

    def test_a_feed_that_cannot_be_read_leaves_the_file_as_it_was(self, tmp_path: Path, path: Path):
        path.write_bytes(line(1) + recorded(0))
        unreadable = tmp_path / "unreadable.ndjson"
        unreadable.write_bytes(b"no recording\n")
        for existing in (path, tmp_path / "new.ndjson"):
            with open_feed(f"replay:{unreadable}") as feed, pytest.raises(FeedError):
                Recorder(feed, existing).start()
        assert path.read_bytes() == line(1) + recorded(0)
        assert not (tmp_path / "new.ndjson").exists()

    def test_progress_is_reported_while_it_is_read(self, store: Store, path: Path):
        path.write_bytes(line(1) + recorded(0))
        seen: list[tuple[int, int]] = []
        RecordingFile(str(path), lambda *sizes: seen.append(sizes)).close()
        assert seen == [(path.stat().st_size, path.stat().st_size)]


class TestErrors:
    """Other recorders, and files that cannot be opened or written."""

    @pytest.mark.parametrize("change", ["removed", "replaced", "truncated", "extended"])
    def test_a_file_that_another_program_changes_is_an_error(self, store: Store, path: Path, change: str):
        with open_feed(store.target) as feed:
            recorder = Recorder(feed, path)
            recorder.start()
            content = path.read_bytes()
            if change == "removed":
                path.unlink()
            elif change == "replaced":
                path.with_name("new").write_bytes(content)
                path.with_name("new").rename(path)
            elif change == "truncated":
                path.write_bytes(b"")
            else:
                path.write_bytes(content + b"\n")
            store.publish(book(1, 7))
            with pytest.raises(StoreError, match=r"was removed, replaced or changed by another program while it was"):
                recorder.run()

    def test_a_second_recorder_is_an_error(self, store: Store, path: Path):
        with recording(store.target, path), open_feed(store.target) as feed:
            before = path.read_bytes()
            with pytest.raises(StoreError, match=f"{path} cannot be recorded into: another recorder has it open"):
                Recorder(feed, path).start()
            assert path.read_bytes() == before
        with recording(store.target, path):
            pass

    def test_two_recorders_that_create_a_file_at_the_same_time(self, path: Path):
        with RecordingFile(str(path)) as one, RecordingFile(str(path)) as other:
            one.append(line(1) + recorded(0))
            with pytest.raises(StoreError, match="another program has just created it"):
                other.append(line(2) + recorded(0))
        assert path.read_bytes() == line(1) + recorded(0)
        assert list(path.parent.iterdir()) == [path]

    @pytest.mark.parametrize("kind", ["folder", "pipe", "missing folder", "invalid"])
    def test_a_file_that_cannot_be_opened_is_an_error(self, path: Path, kind: str):
        name = str(path)
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            name = str(path / "recording.ndjson") if kind == "missing folder" else "a\0b"
        with pytest.raises(StoreError, match=r"cannot be recorded into: (Is a dir|it must be|No such|embedded null)"):
            RecordingFile(name)

    def test_a_file_that_may_not_be_written_is_an_error(self, path: Path, monkeypatch: pytest.MonkeyPatch):
        def refuse(*_: object) -> int:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        monkeypatch.setattr(os, "open", refuse)
        with pytest.raises(StoreError, match="this user must be able to read and write it"):
            RecordingFile(str(path))

    def test_a_change_that_does_not_fit_is_not_written(self, path: Path):
        """A limit of the size of files, which the kernel applies to the part of a write that exceeds it."""
        program = (
            "import resource, signal, sys\n"
            "from market_index_feeds.ndjson.recorder import RecordingFile\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
            "with RecordingFile(sys.argv[1]) as file:\n"
            "    for _ in range(2):\n"
            "        try:\n"
            "            file.append(b'x' * 999 + b'\\n')\n"
            "        except Exception as error:\n"
            "            print(error)\n"
        )
        content = line(1) + recorded(0)
        path.write_bytes(content)
        done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
        message = f"{path} cannot be written: File too large (it contains all changes before this one)\n"
        assert done.stdout == message * 2
        assert path.read_bytes() == content
        new = path.with_name("new.ndjson")
        program = program.replace("999", "9999")
        done = subprocess.run([sys.executable, "-c", program, new], capture_output=True, text=True, check=True)
        assert "File too large" in done.stdout
        assert list(path.parent.iterdir()) == [path]
