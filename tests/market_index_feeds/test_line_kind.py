"""Files and streams whose lines are of another kind than the feed was opened for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from market_index import LiveIndex
from market_index_feeds import FeedError, open_feed
from market_index_feeds.errors import Unavailable
from market_index_feeds.line_kind import BOOKS, EVENTS, require_json, require_kind
from market_index_feeds.orders.events import read_event
from tests.market_index_feeds.made_up import pair, spots
from tests.market_index_feeds.ndjson.lines import commit, line, rename_over, retraction
from tests.market_index_feeds.orders.lines import RESET, block, place, remove, rollback, spot, untrack
from tests.waiting import eventually

USE_ORDERS = "it contains events of orders: type orders: before its name, as in orders:-"
OMIT_ORDERS = "it contains order books: omit orders: before its name"
STATE = RESET + place("a") + block("slot 1")
EVENT_LINES = [RESET, place("a"), remove("a"), untrack(1), block("1"), rollback("1")]
BOOK_LINES = [line(1), commit("slot 1"), retraction(1)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines.ndjson"


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A pipe, and the descriptor to write into it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writing = os.open(path, os.O_RDWR)
    yield path, writing
    os.close(writing)


class TestKeys:
    """Each kind has keys of its own."""

    @pytest.mark.parametrize("event", EVENT_LINES)
    def test_every_event_but_a_spot_is_recognized(self, event: bytes):
        read_event(event)
        require_kind(EVENTS, [event])
        with pytest.raises(Unavailable) as error:
            require_kind(BOOKS, [event])
        assert error.value.reason == USE_ORDERS

    @pytest.mark.parametrize("book_line", BOOK_LINES)
    def test_every_line_of_a_file_of_books_is_recognized(self, book_line: bytes):
        require_kind(BOOKS, [book_line])
        with pytest.raises(Unavailable) as error:
            require_kind(EVENTS, [book_line])
        assert error.value.reason == OMIT_ORDERS

    @pytest.mark.parametrize("kind", [BOOKS, EVENTS])
    @pytest.mark.parametrize("neither", [spot(1, "0.5"), b"nonsense", b"[]", b'{"other": 1}', b'{"reset'])
    def test_other_lines_are_of_neither_kind(self, kind, neither: bytes):
        require_kind(kind, [neither])

    def test_one_line_of_the_right_kind_suffices(self):
        require_kind(BOOKS, [RESET, place("a"), line(1)])
        require_kind(EVENTS, [line(1), line(2), RESET])


class TestFiles:
    """The first lines of a file that is opened."""

    @pytest.mark.parametrize("follow", [True, False])
    @pytest.mark.parametrize(
        ("prefix", "content", "reason"), [("", STATE, USE_ORDERS), ("orders:", line(1) + line(2), OMIT_ORDERS)]
    )
    def test_the_other_kind_is_an_error_that_says_what_to_type(
        self, path: Path, prefix: str, content: bytes, reason: str, follow: bool, caplog: pytest.LogCaptureFixture
    ):
        path.write_bytes(content)
        with pytest.raises(FeedError) as error, open_feed(f"{prefix}{path}", follow=follow) as feed:
            feed.read()
        assert str(error.value) == f"{path} cannot be read: {reason}"
        assert not caplog.records

    @pytest.mark.parametrize("follow", [True, False])
    @pytest.mark.parametrize(("prefix", "noun"), [("", "order books"), ("orders:", "events of orders")])
    def test_a_text_is_an_error_also_if_it_quotes_a_valid_line(
        self, path: Path, prefix: str, noun: str, follow: bool, caplog: pytest.LogCaptureFixture
    ):
        path.write_bytes(b"# Notes\n\n  A line is:\n" + (RESET if prefix else line(1)))
        with pytest.raises(FeedError) as error, open_feed(f"{prefix}{path}", follow=follow) as feed:
            feed.read()
        reason = f"it must contain {noun}, one JSON object per line; 2 of its first 3 lines are text"
        assert str(error.value) == f"{path} cannot be read: {reason}"
        assert not caplog.records

    @pytest.mark.parametrize("content", [b"", b"\n \n", b"unfinished", b"torn\n" + line(1), b'{"base": \n'])
    def test_a_file_that_is_empty_or_damaged_is_opened(self, path: Path, live: LiveIndex, content: bytes):
        path.write_bytes(content)
        with open_feed(path) as feed:
            feed.start(live)
            with path.open("ab") as file:
                file.write(b"\n# more text\n# than books\n# in this file\n" + line(2, "2"))
            eventually(lambda: spots(live).get(2) == "2")

    def test_a_file_that_becomes_a_text_keeps_its_pairs_and_is_invalid(self, path: Path, live: LiveIndex):
        path.write_bytes(line(1, "1"))
        with open_feed(path) as feed:
            feed.start(live)
            rename_over(path, b"# Notes\n")
            eventually(lambda: feed.current_rejections == 1)
            assert spots(live) == {1: "1"}

    def test_an_empty_file_that_gets_the_other_kind_recovers_with_another_file(self, path: Path, live: LiveIndex):
        path.write_bytes(b"")
        with open_feed(path) as feed:
            feed.start(live)
            with path.open("ab") as file:
                file.write(STATE)
            eventually(lambda: feed.problem == f"cannot be read: {USE_ORDERS}")
            rename_over(path, line(1, "1"))
            eventually(lambda: spots(live) == {1: "1"})
            assert feed.rejected == 0

    def test_one_line_may_be_the_end_of_an_object(self):
        require_json(BOOKS, [b"}"])

    def test_a_few_lines_of_the_other_kind_are_only_rejected(self, tmp_path: Path):
        path = tmp_path / "books.ndjson"
        base = str(pair(1).base).encode()
        path.write_bytes(b'{"base": "%b", "quote": "ADA", "spot": "1"}\n{"block": 7}\n' % base)
        with open_feed(path) as feed:
            assert len(feed.read()) == 1

    @pytest.mark.parametrize("count", [1, 2])
    def test_at_most_half_of_the_lines_may_be_text(self, count: int):
        require_json(BOOKS, [b"text"] * count + [b' {"base"'] * count)
        with pytest.raises(Unavailable, match=f"; {count + 1} of its first {2 * count + 1} lines are text"):
            require_json(BOOKS, [b"text"] * (count + 1) + [b"{"] * count)


class TestStreams:
    """The first lines of a stream, also of a producer that starts later than its reader."""

    @pytest.mark.parametrize(
        ("prefix", "content", "reason"), [("", STATE, USE_ORDERS), ("orders:", line(1), OMIT_ORDERS)]
    )
    def test_the_other_kind_is_an_error(
        self, pipe: tuple[Path, int], live: LiveIndex, prefix: str, content: bytes, reason: str
    ):
        path, writing = pipe
        os.write(writing, content)
        with open_feed(f"{prefix}{path}") as feed, pytest.raises(FeedError, match=reason):
            feed.start(live)

    @pytest.mark.parametrize(
        ("prefix", "content", "reason"), [("", STATE, USE_ORDERS), ("orders:", line(1), OMIT_ORDERS)]
    )
    def test_the_other_kind_of_a_producer_that_starts_later_is_a_problem(
        self, pipe: tuple[Path, int], live: LiveIndex, prefix: str, content: bytes, reason: str
    ):
        path, writing = pipe
        with open_feed(f"{prefix}{path}") as feed:
            feed.start(live)
            os.write(writing, b"\n" + content)
            eventually(lambda: feed.problem == f"cannot be read: {reason}")
            assert feed.rejected == 0

    def test_a_stream_may_begin_with_text(self, pipe: tuple[Path, int], live: LiveIndex):
        path, writing = pipe
        os.write(writing, b"starting the producer\n")
        with open_feed(path) as feed:
            feed.start(live)
            os.write(writing, line(1, "1"))
            eventually(lambda: spots(live) == {1: "1"})
            assert feed.rejected == 1
