"""Commit lines: which books are visible, and how fresh they are, compared with a model that applies line by line."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from math import inf
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic
from typing import Final, TypeAlias

import pytest
from attrs import define, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from market_index import Freshness, LiveIndex
from market_index.wire import CommitLine
from market_index_feeds import Feed, open_feed
from market_index_feeds.line_content import RejectedLine
from market_index_feeds.line_feed import LineFeedSource
from market_index_feeds.line_source import LineBatch, LineCutter
from market_index_feeds.ndjson.commits import Commits
from tests.market_index_feeds.checks import await_check
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.ndjson.lines import commit, line, rename_over, retraction
from tests.market_index_feeds.scripted_lines import ScriptedLines
from tests.waiting import WITHOUT_SHRINKING, eventually, in_thread

ANY: Final = 0
"""A number that means any pair."""

Shown: TypeAlias = tuple[dict[int, str | None], Freshness]


@frozen
class Entry:
    """One line: its text; what it contains."""

    text: bytes
    book: tuple[int, str] | None = None
    retract: int | None = None
    bad: int | None = None
    commit: Freshness | None = None


def book_entry(number: int, spot: str) -> Entry:
    return Entry(line(number, spot), book=(number, spot))


def retract_entry(number: int) -> Entry:
    return Entry(retraction(number), retract=number)


def bad_entry(number: int) -> Entry:
    return Entry(line(number).replace(b"[]", b"0"), bad=number)


def commit_entry(as_of: str | None) -> Entry:
    return Entry(commit(as_of), commit=Freshness(as_of))


NUMBERS: Final = st.integers(1, 3)
ENTRIES: Final = st.one_of(
    st.builds(book_entry, NUMBERS, st.sampled_from("12345")),
    st.builds(book_entry, NUMBERS, st.sampled_from("12345")),
    st.builds(commit_entry, st.sampled_from(["slot 1", "slot 2", None])),
    st.builds(commit_entry, st.sampled_from(["slot 1", "slot 2", None])),
    st.builds(retract_entry, NUMBERS),
    st.builds(bad_entry, NUMBERS),
    st.sampled_from([Entry(commit(7)), Entry(b'{"as_of"' + line(1), bad=ANY), Entry(b"\n")]),
)


@define
class Model:
    """The visible state, computed line by line."""

    live: dict[int, str] = field(factory=dict)
    is_complete: bool = False
    kept: set[int] = field(factory=set)
    """Pairs of the files before that may not be dropped yet."""

    def begin(self) -> None:
        """Another file is at the path."""
        self.kept, self.is_complete = set(self.live), False

    def show(self, entries: list[Entry], *, is_unfinished: bool) -> Shown:
        """Return what is visible of a file with these lines, and perhaps an unfinished one."""
        books: dict[int, str] = {}
        named: set[int] = set()
        bad: set[int] = set()
        pending: list[Entry] = []
        committed: Freshness | None = None
        for entry in entries:
            pending.append(entry)
            committed = entry.commit or committed
            if committed is not None and entry.commit is None:
                continue
            for visible in pending:
                if visible.book is not None:
                    books[visible.book[0]] = visible.book[1]
                    named.add(visible.book[0])
                    bad.discard(visible.book[0])
                if visible.retract is not None:
                    books.pop(visible.retract, None)
                    named.add(visible.retract)
                    bad.discard(visible.retract)
                if visible.bad is not None:
                    bad.add(visible.bad)
            pending.clear()
        is_valid = not bad and (committed is not None or not is_unfinished)
        self.kept -= named
        # A file without a visible book, retract line or commit line is not complete, nor one whose last lines wait.
        is_waiting = is_unfinished or any(
            entry.book or entry.retract is not None or entry.bad is not None for entry in pending
        )
        self.is_complete |= bool(named or committed is not None) and not is_waiting
        if is_valid and self.is_complete:
            self.kept.clear()
        self.live = {number: self.live[number] for number in self.kept} | books
        return dict(self.live), (committed or Freshness()) if is_valid and not self.kept else Freshness()


def before(entries: list[Entry], end: int) -> tuple[list[Entry], bool]:
    """Return the entries before the `end` of so many bytes, and whether it cuts one."""
    for count, entry in enumerate(entries):
        if end < len(entry.text):
            return entries[:count], end > 0
        end -= len(entry.text)
    return entries, False


@settings(phases=WITHOUT_SHRINKING)
@given(
    st.lists(
        st.tuples(st.lists(ENTRIES, max_size=10), st.lists(st.floats(0, 1), max_size=8), st.integers(0, 2)),
        min_size=1,
        max_size=4,
    )
)
def test_what_is_visible_equals_the_model(files: list[tuple[list[Entry], list[float], int]]):
    script: list[LineBatch] = []
    expected: list[Shown] = []
    model, shown = Model(), ({}, Freshness())  # type: Model, Shown
    for entries, cuts, loading in files:
        model.begin()
        content = b"".join(entry.text for entry in entries)
        cutter = LineCutter()
        ends = sorted({*(round(cut * len(content)) for cut in cuts), len(content)})
        for number, (start, end) in enumerate(pairwise([0, *ends])):
            lines = list(cutter.feed(content[start:end]))
            is_caught_up = number >= min(loading, len(ends) - 1)
            script.append(
                LineBatch(lines, cutter.unfinished if is_caught_up else None, end, len(content), is_start=number == 0)
            )
            if is_caught_up:
                visible, is_unfinished = before(entries, end)
                shown = model.show(visible, is_unfinished=is_unfinished)
            expected.append(shown)
    live = LiveIndex()
    source = ScriptedLines(script, lambda: (spots(live), live.current.freshness))
    with Feed(LineFeedSource(source, Commits)) as feed:
        feed.start(live)
        eventually(source.is_over.is_set)
    assert source.seen == expected


@pytest.fixture
def feed(path: Path, live: LiveIndex) -> Iterator[Feed]:
    """A feed of three pairs, which is being followed."""
    path.write_bytes(line(1) + line(2) + line(3))
    with open_feed(path) as feed:
        feed.start(live)
        yield feed


class TestFiles:
    """A file that is followed."""

    def test_no_visible_index_has_another_as_of_than_its_spots(self, path: Path, live: LiveIndex):
        def version(number: int) -> bytes:
            return b"".join(line(one, str(number)) for one in range(1, 6)) + commit(str(number))

        seen: set[str | None] = set()
        wrong: list[Shown] = []
        is_over = Event()

        def observe() -> None:
            while not is_over.is_set():
                index = live.current
                seen.add(index.as_of)
                if set(spots(index).values()) != {index.as_of}:
                    wrong.append((spots(index), index.freshness))

        path.write_bytes(version(1))
        chance = Random(1)
        with open_feed(path) as feed:
            feed.start(live)
            thread = in_thread(observe)
            try:
                for number in range(2, 100):
                    content = version(number)
                    if chance.random() < 0.1:
                        rename_over(path, content)
                        eventually(lambda number=number: live.current.as_of == str(number))  # type: ignore[misc]  # a default has no type
                        continue
                    cut = chance.randrange(len(content))
                    with path.open("ab", buffering=0) as file:
                        file.write(content[:cut])
                        if chance.random() < 0.1:
                            await_check(feed)
                        file.write(content[cut:])
                eventually(lambda: "99" in seen)
            finally:
                is_over.set()
                thread.join()
        assert wrong == []

    def test_books_wait_for_the_next_commit_line(self, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture):
        path.write_bytes(line(1, "1") + commit("slot 1", published_at="2026-11-22T04:17:03Z") + line(1, "2") * 3)
        with open_feed(path) as feed:
            feed.start(live)
            assert (spots(live), live.current.as_of, feed.books) == ({1: "1"}, "slot 1", 1)
            assert live.current.published_at == datetime(2026, 11, 22, 4, 17, 3, tzinfo=UTC)
            assert f"{path}: 3 lines wait for a commit line" in caplog.text
            with path.open("ab") as file:
                file.write(commit("slot 2"))
            eventually(lambda: spots(live) == {1: "2"})
            assert live.current.freshness == Freshness("slot 2")
            assert feed.books == 4
        assert "ended while" not in caplog.text

    def test_a_retract_line_waits_for_the_next_commit_line(self, path: Path, live: LiveIndex):
        path.write_bytes(line(1, "1") + line(2, "2") + commit("slot 1") + retraction(1) + line(2, "3") + retraction(2))
        with open_feed(path) as feed:
            feed.start(live)
            assert spots(live) == {1: "1", 2: "2"}
            with path.open("ab", buffering=0) as file:
                file.write(retraction(9) + commit("slot 2"))
                eventually(lambda: live.current.as_of == "slot 2")
                assert spots(live) == {}
                file.write(retraction(1) + line(1, "4") + commit("slot 3"))
                eventually(lambda: live.current.as_of == "slot 3")
                assert spots(live) == {1: "4"}

    def test_the_log_counts_retract_lines_that_wait(
        self, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        caplog.set_level("INFO")
        path.write_bytes(line(1) + commit("slot 1") + retraction(1))
        with open_feed(path) as feed:
            feed.start(live)
            assert f"{path}: 1 lines wait for a commit line" in caplog.text

    def test_a_retract_line_before_the_first_commit_line_is_visible(self, feed: Feed, path: Path, live: LiveIndex):
        with path.open("ab") as file:
            file.write(retraction(1) + line(2).replace(b"[]", b"0") + retraction(2))
        eventually(lambda: set(spots(live)) == {3})
        eventually(lambda: feed.current_rejections == 0)
        rename_over(path, retraction(3))
        eventually(lambda: spots(live) == {})
        eventually(lambda: feed.problem is None)

    def test_a_rejected_commit_line_commits_nothing(
        self, path: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        path.write_bytes(line(1, "1") + commit("slot 1") + line(1, "2") + commit(" slot 2"))
        with open_feed(path) as feed:
            feed.start(live)
            assert (spots(live), live.current.as_of, feed.rejected) == ({1: "1"}, "slot 1", 1)
            assert "line 4 rejected: as_of must be 1 to 200 printable ASCII characters" in caplog.text
            with path.open("ab") as file:
                file.write(commit("slot 3"))
            eventually(lambda: (spots(live), live.current.as_of) == ({1: "2"}, "slot 3"))

    def test_a_commit_line_with_nothing_before_it_is_a_heartbeat(self, path: Path, live: LiveIndex):
        path.write_bytes(line(1) + commit(None))
        with open_feed(path) as feed:
            feed.start(live)

            def is_confirmed() -> bool:
                changed, quiet = feed.change_age, feed.quiet_age
                return quiet < changed

            with path.open("ab", buffering=0) as file:
                file.write(b"\n")
                await_check(feed)
                assert not is_confirmed()
                file.write(commit(None))
                eventually(is_confirmed)

    def test_a_replaced_file_with_the_same_content_is_a_heartbeat(self, path: Path, live: LiveIndex):
        path.write_bytes(commit(None))
        with open_feed(path) as feed:
            feed.start(live)
            before = monotonic()
            await_check(feed)
            assert monotonic() - feed.quiet_age < before
            rename_over(path, commit(None))
            eventually(lambda: monotonic() - feed.quiet_age > before)

    def test_a_single_commit_line_removes_all_pairs(self, feed: Feed, path: Path, live: LiveIndex):
        rename_over(path, b"")
        eventually(lambda: feed.is_unknown)
        assert len(live.current) == 3
        assert feed.quiet_age < inf, "an empty file is not one that nothing was ever published into"
        with path.open("ab") as file:
            file.write(commit("slot 1"))
        eventually(lambda: not live.current)
        eventually(lambda: feed.problem is None)
        assert live.current.as_of == "slot 1"


class TestStreams:
    """A stream, which cannot be read again."""

    def test_books_after_its_last_commit_line_are_not_visible(
        self, pipe: Path, live: LiveIndex, caplog: pytest.LogCaptureFixture
    ):
        thread = in_thread(lambda: pipe.write_bytes(line(1) + commit("slot 1") + line(2) + line(3) + line(4)[:-1]))
        index = open_feed(pipe).read()
        thread.join()
        assert (set(spots(index)), index.as_of) == ({1}, None)
        assert f"{pipe}: ended while 2 lines waited for a commit line" in caplog.text
        assert "line 5 rejected: must end with a newline" in caplog.text

    def test_a_stream_continues_after_an_unexpected_error_with_committed_books(
        self, pipe: Path, live: LiveIndex, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ):
        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("a defect")

        with open_feed(pipe) as feed, pipe.open("r+b", buffering=0) as writer:
            writer.write(line(1) + commit("slot 1"))
            feed.start(live)
            with monkeypatch.context() as broken:
                broken.setattr(LiveIndex, "show", fail)
                writer.write(line(2) + line(9).replace(b"[]", b"0") + commit("slot 2") + line(3))
                eventually(lambda: "RuntimeError: a defect" in caplog.text)
            eventually(lambda: len(live.current) > 1)
            assert (set(spots(live)), live.current.as_of) == ({1, 2}, None)
            writer.write(line(9) + commit("slot 3"))
            eventually(lambda: (set(spots(live)), live.current.as_of) == ({1, 2, 3, 9}, "slot 3"))
            assert feed.rejected == 1


def test_at_most_one_book_per_pair_is_pending():
    commits = Commits()
    for content in (CommitLine(Freshness()), book(1, 1), book(1, 2), book(2, 1)):
        commits.add(content)
    assert (len(commits.waiting.books), commits.pending, len(commits.changes().books)) == (2, 3, 0)
    commits.add(CommitLine(Freshness("slot 1")))
    assert (len(commits.changes().books), commits.waiting.books, commits.pending) == (2, {}, 0)


def test_a_later_line_of_a_pair_overwrites_what_earlier_ones_changed():
    bad = RejectedLine(1, "no book", pair(1))
    for later in (book(1, 1), pair(1)):
        for is_committed in (False, True):
            commits = Commits()
            for content in (bad, pair(1), *([CommitLine(Freshness())] if is_committed else []), bad, later):
                commits.add(content)
            commits.add(CommitLine(Freshness()))
            update = commits.changes()
            assert (list(update.books), set(update.removed)) == (
                ([later], set()) if later == book(1, 1) else ([], {later})
            )
            assert not update.invalid


def test_a_committed_invalid_line_is_resolved_by_a_later_commit():
    for later in (book(1, 1), pair(1)):
        commits = Commits()
        for content in (RejectedLine(1, "no book", pair(1)), CommitLine(Freshness()), later, CommitLine(Freshness())):
            commits.add(content)
        assert not commits.changes().invalid
