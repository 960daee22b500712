"""Opening and loading a file of order books."""

from __future__ import annotations

import json
import os
import tracemalloc
from decimal import Decimal
from pathlib import Path

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, FeedError, open_feed
from market_index_feeds.line_source import MAX_LINE_BYTES
from tests.market_index_feeds.made_up import spots
from tests.market_index_feeds.ndjson.lines import line


def load(path: Path, content: bytes) -> tuple[dict[int, str | None], Feed]:
    path.write_bytes(content)
    live = LiveIndex()
    with open_feed(path) as feed:
        feed.start(live)
    return spots(live), feed


class TestLoading:
    """The content of a file."""

    def test_every_recorded_book_goes_live_as_plain_json_reads_it(self, recorded_order_books: Path):
        live = LiveIndex()
        with open_feed(str(recorded_order_books)) as feed:
            feed.start(live)
            assert (feed.books, feed.rejected) == (756, 0)
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
        assert (feed.books, feed.rejected) == (3, 0)

    def test_blank_lines_crlf_and_a_byte_order_mark_are_accepted(self, path: Path):
        content = b"\xef\xbb\xbf" + line(1).replace(b"\n", b"\r\n") + b"\n\r\n  \t\n" + line(2)
        found, feed = load(path, content)
        assert found == {1: None, 2: None}
        assert feed.rejected == 0

    def test_a_byte_order_mark_anywhere_else_is_rejected(self, path: Path):
        found, feed = load(path, line(1) + b"\xef\xbb\xbf" + line(2))
        assert (found, feed.rejected) == ({1: None}, 1)

    def test_an_empty_file_is_an_empty_index(self, path: Path):
        assert load(path, b"")[0] == {}

    def test_invalid_lines_are_skipped_counted_and_logged_with_number_and_reason(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ):
        bad = line(1).replace(b'"bids":[]', b'"bids":[{"price":0.5,"accumulated_liquidity":1}]')
        found, feed = load(path, line(1, "1") + bad + b"\n{nonsense\n\xff\n" + line(2))
        assert found == {1: "1", 2: None}
        assert (feed.books, feed.rejected) == (2, 3)
        assert [record.getMessage().partition(" line ")[2] for record in caplog.records] == [
            "2 rejected: bids[0].price: must be a string, got a number: 0.5",
            (
                "4 rejected: must be JSON, but is not at character 1: "
                "Expecting property name enclosed in double quotes: 'nonsense'"
            ),
            r"5 rejected: must be UTF-8, but is not at byte 0: b'\xff'",
        ]

    def test_a_hostile_line_cannot_forge_the_log(self, path: Path, caplog: pytest.LogCaptureFixture):
        load(path, line(1) + b'{"base":"\\u000aforged\\u001b[2J"}\n' + b'{"a\\nforged":1}\n')
        assert len(caplog.records) == 2
        assert all(record.getMessage().isprintable() for record in caplog.records)

    def test_a_line_that_is_too_long_is_rejected_and_takes_no_memory(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ):
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
        assert feed.rejected == 1
        assert "line 2 rejected: must have at most 16777216 bytes" in caplog.text
        assert peak < 3 * MAX_LINE_BYTES

    def test_progress_is_reported_in_bytes(self, path: Path):
        path.write_bytes(line(1) * 3_000)
        reported: list[tuple[int, int]] = []
        with open_feed(path) as feed:
            feed.start(LiveIndex(), lambda done, total: reported.append((done, total)))
        size = path.stat().st_size
        assert reported[-1] == (size, size)
        assert len(reported) > 1
        assert reported == sorted(reported)


class TestOpening:
    """Sources that cannot be opened."""

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("nowhere.ndjson", "nowhere.ndjson cannot be opened: No such file or directory"),
            (".", ". cannot be opened: it must be a regular file, a pipe or a character device"),
            ("a\0\nb", r"'a\x00\nb' cannot be opened: "),
            ("kafka://host/books", "the scheme of a feed must be http, https, nats or tls, got 'kafka'"),
        ],
    )
    def test_an_error_contains_the_reason(self, source: str, message: str):
        with pytest.raises(FeedError) as error:
            open_feed(source)
        assert message in str(error.value)

    def test_a_file_deleted_before_the_start_is_an_error(self, path: Path, live: LiveIndex):
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

    def test_closing_a_feed_that_was_never_started_does_no_harm(self, path: Path):
        path.write_bytes(line(1))
        open_feed(path).close()
