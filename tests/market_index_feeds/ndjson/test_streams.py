"""Standard input and pipes of order books."""

from __future__ import annotations

import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from threading import Thread

import pytest

from market_index import LiveIndex, Pair
from market_index_feeds import Feed, FeedError, open_feed
from market_index_feeds import feed as feed_module
from market_index_feeds.line_feed import LineFeedSource
from market_index_feeds.line_source import LineStream
from market_index_feeds.medium import Unnamed
from market_index_feeds.ndjson.commits import Commits
from tests.market_index_feeds.checks import await_check
from tests.market_index_feeds.made_up import pair, spots
from tests.market_index_feeds.ndjson.lines import line
from tests.waiting import eventually


def writing_to(pipe: Path) -> FileIO:
    # Opened for reading too, so that the open does not wait for a reader.
    return FileIO(os.open(pipe, os.O_RDWR), "w")


def feed_of(name: str, descriptor: int) -> Feed:
    return Feed(LineFeedSource(LineStream(name, descriptor), Commits))


def test_lines_go_live_as_they_arrive(pipe: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture):
    writer = writing_to(pipe)
    with open_feed(pipe) as feed:
        writer.write(line(1, "1") + line(2)[:30])
        feed.start(live)
        assert spots(live) == {1: "1"}
        eventually(lambda: Unnamed.UNFINISHED in feed.content.coverage.invalid)
        writer.write(line(2)[30:] + b"nonsense\n" + line(1, "2"))
        eventually(lambda: spots(live) == {1: "2", 2: None})
        writer.write(b"\n" + line(3)[:-1])
        writer.close()
        eventually(lambda: f"{pipe} ended: 3 order books read, 2 lines rejected" in caplog.text)
    assert "line 6 rejected: must end with a newline" in caplog.text
    assert spots(live) == {1: "2", 2: None}


def test_blanks_at_the_end_are_ignored(pipe: Path):
    writing = Thread(target=lambda: pipe.write_bytes(line(1) + b"  \r"))
    writing.start()
    feed = open_feed(pipe)
    assert spots(feed.read()) == {1: None}
    assert (feed.books, feed.rejected) == (1, 0)
    writing.join()


def test_a_non_blocking_stream_is_waited_for(live: LiveIndex, caplog: pytest.LogCaptureFixture):
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with feed_of("a pipe", reading) as feed:
        feed.start(live)
        os.write(writing, line(1))
        eventually(lambda: len(live.current) == 1)
        os.write(writing, line(2))
        eventually(lambda: len(live.current) == 2)
        os.close(writing)
        eventually(lambda: "a pipe ended: 2 order books read, 0 lines rejected" in caplog.text)
    os.close(reading)


def test_a_stream_is_loaded_when_it_is_idle_for_the_first_time(pipe: Path, live: LiveIndex):
    content = b"".join(line(number) for number in range(1, 5_001))
    writing = Thread(target=lambda: pipe.write_bytes(content))
    writing.start()
    with open_feed(pipe) as feed:
        feed.start(live)
        # On a busy machine, the writer may be delayed too.
        eventually(lambda: len(live.current) == feed.books == 5_000)
    writing.join()


def test_nothing_is_invalid_while_a_stream_is_idle_between_two_lines(
    pipe: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
):
    writer = writing_to(pipe)
    with open_feed(pipe) as feed, writer:
        writer.write(line(1))
        feed.start(live)
        eventually(lambda: not feed.content.coverage.invalid)
        writer.write(line(2) + line(3)[:30])
        eventually(lambda: feed.content.coverage.invalid and len(live.current) == 2)
        writer.write(line(3)[30:])
        eventually(lambda: not feed.content.coverage.invalid and len(live.current) == 3)
    assert "waits for its newline" not in caplog.text


def test_a_stream_continues_after_an_unexpected_error(
    pipe: Path, live: LiveIndex, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """It cannot be read again, so that neither what it named before is retracted, nor what it names then is missed."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    writer = writing_to(pipe)
    with open_feed(pipe) as feed, writer:
        writer.write(line(1) + line(2))
        feed.start(live)
        with monkeypatch.context() as broken:
            broken.setattr(LiveIndex, "show", fail)
            writer.write(line(3) + line(4)[:30])
            eventually(lambda: "RuntimeError: a defect" in caplog.text)
        eventually(lambda: set(spots(live)) == {1, 2, 3})
        writer.write(line(4)[30:] + b"nonsense\n")
        eventually(lambda: set(spots(live)) == {1, 2, 3, 4})
        eventually(lambda: "line 5 rejected" in caplog.text)
        assert "reloaded" not in caplog.text


def test_a_stream_that_could_not_be_followed_can_be_started_again(
    pipe: Path, live: LiveIndex, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    class Failing(Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    writer = writing_to(pipe)
    reading, name = os.open(pipe, os.O_RDONLY), "a pipe"
    with feed_of(name, reading) as feed, writer:
        writer.write(line(1) + line(2))
        with monkeypatch.context() as patch:
            patch.setattr(feed_module, "Thread", Failing)
            with pytest.raises(FeedError, match="cannot be followed"):
                feed.start(live)
        feed.start(live)
        assert spots(live) == {1: None, 2: None}
        assert "reloaded" not in caplog.text
    os.close(reading)


def test_nothing_goes_live_after_close(pipe: Path, live: LiveIndex):
    writer = writing_to(pipe)
    feed = open_feed(pipe)
    feed.start(live)
    feed.close()
    writer.write(line(1))
    assert len(live.current) == 0
    writer.close()


@pytest.mark.parametrize("work", [Feed.read, lambda feed: feed.start(LiveIndex())])
def test_a_stream_that_cannot_be_read_is_an_error(work: Callable[[Feed], object]):
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(FeedError, match="a closed pipe cannot be read: "):
        work(feed_of("a closed pipe", reading))
    os.close(writing)


def test_a_stream_is_read_to_its_end_despite_idle_periods(pipe: Path):
    def write() -> None:
        with pipe.open("wb", buffering=0) as writer:
            for number in range(1, 4):
                writer.write(line(number))
                eventually(lambda number=number: len(reported) > number)  # type: ignore[misc]  # a default has no type

    reported: list[tuple[int, int]] = []
    writing = Thread(target=write)
    writing.start()
    index = open_feed(pipe).read(lambda done, total: reported.append((done, total)))
    writing.join()
    assert spots(index) == {1: None, 2: None, 3: None}
    assert set(reported) == {(0, 0)}


def test_a_stream_is_healthy_while_it_is_open_and_ages_after_its_end(
    pipe: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
):
    writer = writing_to(pipe)
    with open_feed(pipe) as feed:
        writer.write(line(1))
        feed.start(live)
        await_check(feed)
        writer.close()
        eventually(lambda: f"{pipe} ended" in caplog.text)
        age = feed.age
        eventually(lambda: feed.age > age + 0.2)


def test_a_file_that_is_not_followed_is_read_to_its_end(path: Path, caplog: pytest.LogCaptureFixture):
    path.write_bytes(line(1) + b"nonsense\n" + line(2)[:-1])
    reported: list[tuple[int, int]] = []
    feed = open_feed(path, follow=False)
    *loading, update = feed.updates(lambda done, total: reported.append((done, total)))
    assert all(one.is_loading for one in loading)
    assert ([book.pair for book in update.books], update.has_more) == ([pair(1)], False)
    assert feed.content.coverage.invalid == {Unnamed.UNREADABLE, pair(2)}
    assert (feed.books, feed.rejected, reported[-1]) == (1, 2, (path.stat().st_size,) * 2)
    assert f"{path} line 3 rejected: must end with a newline" in caplog.text


def test_each_part_of_a_stream_is_an_update_that_is_never_complete(pipe: Path):
    def write() -> None:
        with pipe.open("wb", buffering=0) as writer:
            for number in (1, 2):
                writer.write(line(number))
                eventually(lambda number=number: len(read) == number)  # type: ignore[misc]  # a default has no type

    read: list[list[Pair]] = []
    writing = Thread(target=write)
    writing.start()
    feed = open_feed(pipe)
    for update in feed.updates():
        if update.books:
            read.append([book.pair for book in update.books])
    writing.join()
    assert read == [[pair(1)], [pair(2)]]
    assert not feed.content.coverage.is_complete
