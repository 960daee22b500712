"""`market-index publish` with commit lines and --as-of."""

from __future__ import annotations

from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from market_index import Freshness, OrderBook, wire
from market_index.wire import parse_time
from market_index_feeds import BooksRejected, Receipt, open_feed
from market_index_feeds.sqlite.store import SqliteStore
from tests.command import COMMAND, SAMPLE, invoke, line, run
from tests.market_index_feeds.made_up import spots
from tests.waiting import eventually


def commit(as_of: str | None, published_at: str | None = None) -> str:
    """Return a line that commits the lines before it."""
    freshness = Freshness(as_of, None if published_at is None else parse_time(published_at))
    return wire.freshness_to_json(freshness).decode() + "\n"


def published(store: Path) -> tuple[dict[int, str | None], str | None, int | None]:
    """Return the stored spots, their as_of, and the revision."""
    feed = open_feed(store)
    index = feed.read()
    return spots(index), index.as_of, feed.revision


class TestCommitLines:
    """Lines with the freshness of the books before them."""

    def test_the_books_of_a_file_are_published_in_one_change_with_the_last_commit_line(self, store: Path, lines: Path):
        time = "2026-11-22T04:17:03.000Z"
        first = line(1, 1) + line(2, 1) + commit("slot 2", time)
        lines.write_text(first + line(2, 4) + line(1, 4) + commit("slot 3", time))
        done = invoke("publish", store, lines)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{store}: 2 order books published, revision 1\n"
        assert published(store) == ({1: "4", 2: "4"}, "slot 3", 1)
        assert open_feed(store).read().published_at == parse_time(time)

    def test_each_commit_line_of_a_stream_publishes_the_books_before_it_in_one_change(self, store: Path):
        with Popen([COMMAND, "publish", store, "-"], stdin=PIPE, stdout=PIPE, text=True) as process:
            assert process.stdin
            assert process.stdout
            for number, as_of in enumerate(("slot 1", None, "slot 3"), 1):
                process.stdin.write(line(1, number) + line(2, number) + commit(as_of))
                process.stdin.flush()
                expected = ({1: str(number), 2: str(number)}, as_of, number)
                eventually(lambda expected=expected: store.exists() and published(store) == expected)  # type: ignore[misc]  # a default has no type
            process.stdin.close()
            assert process.stdout.read() == f"{store}: 6 order books of 2 pairs published in 3 changes, revision 3\n"

    def test_a_commit_line_without_a_time_is_published_now(self, store: Path, lines: Path):
        lines.write_text(line(1, 1) + commit("slot 1"))
        assert invoke("publish", store, lines).returncode == 0
        freshness = open_feed(store).read().freshness
        assert freshness.as_of == "slot 1"
        assert freshness.published_at is not None

    @pytest.mark.parametrize("arguments", [(), ("--replace",)])
    def test_books_after_the_last_commit_line_are_not_published(
        self, store: Path, lines: Path, arguments: tuple[str, ...]
    ):
        lines.write_text(line(1, 1) + commit("slot 1") + line(1, 2) + line(2, 2))
        done = invoke("publish", store, lines, *arguments)
        assert done.returncode == 5
        assert "1 order book" in done.stdout
        assert done.stderr.startswith(f"{lines}: ended while 2 lines waited for a commit line")
        assert published(store)[:2] == ({1: "1"}, "slot 1")

    def test_replaced_books_have_the_freshness_of_the_last_commit_line(self, store: Path, lines: Path):
        invoke("publish", store, SAMPLE)
        lines.write_text(line(1, 1) + commit("slot 1") + line(2, 2) + commit("slot 2"))
        done = invoke("publish", store, lines, "--replace")
        assert (done.returncode, done.stderr) == (0, "")
        assert published(store) == ({1: "1", 2: "2"}, "slot 2", 2)

    @pytest.mark.parametrize("arguments", [(), ("--replace",)])
    def test_commit_lines_exclude_as_of(self, store: Path, lines: Path, arguments: tuple[str, ...]):
        lines.write_text(line(1, 1) + commit("slot 1"))
        done = invoke("publish", store, lines, "--as-of", "slot 2", *arguments)
        assert done.returncode == 2
        assert f"{lines} sets the as_of of its books: omit --as-of" in done.stderr
        assert published(store) == ({}, None, 0)

    def test_an_as_of_that_is_recorded_in_the_end_is_not_reported_as_missing(self, store: Path):
        with Popen([COMMAND, "publish", store, "-"], stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as process:
            assert process.stdin
            assert process.stderr
            for content, as_of in ((line(1).replace("[]", "0"), None), (line(1, 1), "slot 1")):
                process.stdin.write(content + commit("slot 1"))
                process.stdin.flush()
                eventually(lambda as_of=as_of: store.exists() and open_feed(store).read().as_of == as_of)  # type: ignore[misc]  # a default has no type
            process.stdin.close()
            assert "as_of not recorded" not in process.stderr.read()


class TestAsOf:
    """`--as-of`, with and without books."""

    @pytest.mark.parametrize("arguments", [(), ("--replace",)])
    def test_a_file_is_published_together_with_its_as_of(self, store: Path, arguments: tuple[str, ...]):
        done = invoke("publish", store, SAMPLE, "--as-of", "slot 1", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(open_feed(store).read()) == 13
        assert published(store)[1:] == ("slot 1", 1)

    def test_the_as_of_of_a_stream_is_published_at_its_end(self, store: Path):
        with Popen(
            [COMMAND, "publish", store, "-", "--as-of", "slot 1"], stdin=PIPE, stdout=PIPE, text=True
        ) as process:
            assert process.stdin
            assert process.stdout
            process.stdin.write(line(1, 1))
            process.stdin.flush()
            eventually(lambda: store.exists() and published(store) == ({1: "1"}, None, 1))
            process.stdin.close()
            assert process.stdout.read() == f"{store}: 1 order book published, revision 2\n"
        assert published(store) == ({1: "1"}, "slot 1", 2)

    def test_an_as_of_without_books_is_a_heartbeat(self, store: Path):
        invoke("publish", store, SAMPLE, "--as-of", "slot 1")
        before = open_feed(store).read()
        done = invoke("publish", store, "--as-of", "slot 2")
        assert (done.returncode, done.stdout) == (0, f"{store}: heartbeat published, revision 2\n")
        index = open_feed(store).read()
        assert (index, index.as_of) == (before, "slot 2")
        assert invoke("publish", store).stdout == f"{store}: heartbeat published, revision 3\n"
        again = open_feed(store).read()
        assert again.as_of == "slot 2"
        assert again.published_at is not None
        assert before.published_at is not None
        assert again.published_at >= before.published_at

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("--as-of", " slot 1"), "as_of must be 1 to 200 printable ASCII characters with no space at either end"),
            (("--as-of", ""), "as_of must be 1 to 200 printable ASCII characters with no space at either end"),
            (("--replace",), "--replace requires BOOKS"),
        ],
    )
    def test_wrong_usage_changes_nothing(self, store: Path, arguments: tuple[str, ...], reason: str):
        done = invoke("publish", store, *arguments)
        assert done.returncode == 2
        assert reason in " ".join(done.stderr.split())
        assert not store.exists()

    @pytest.mark.parametrize("arguments", [(), ("--replace",)])
    def test_input_without_a_book_does_not_set_the_as_of(self, store: Path, arguments: tuple[str, ...]):
        """A producer that died at its start did not confirm the books."""
        invoke("publish", store, SAMPLE, "--as-of", "slot 1")
        done = run("publish", store, "-", "--as-of", "slot 2", *arguments, stdin="")
        assert done.returncode == 5
        assert "Error: standard input must contain an order book, got none: nothing was changed\n" in done.stderr
        assert published(store)[1:] == ("slot 1", 1)

    @pytest.mark.parametrize("is_commit", [False, True])
    @pytest.mark.parametrize(
        ("bad", "arguments"),
        [
            (line(2).replace("[]", "0"), ()),
            ("nonsense\n", ()),
            (line(2).replace("[]", "0"), ("--replace",)),
            ("nonsense\n", ("--replace",)),
        ],
    )
    def test_a_rejected_line_hides_the_as_of(
        self, store: Path, lines: Path, bad: str, arguments: tuple[str, ...], is_commit: bool
    ):
        lines.write_text(line(1, 1) + line(2, 1))
        invoke("publish", store, lines)
        lines.write_text(line(1, 2) + bad + (commit("slot 2") if is_commit else ""))
        done = invoke("publish", store, lines, *arguments, *(() if is_commit else ("--as-of", "slot 2")))
        assert done.returncode == 5
        assert f"{store}: as_of not recorded, because of what was rejected\n" in done.stderr
        assert published(store)[:2] == ({1: "2", 2: "1"}, None)

    def test_a_pair_kept_for_a_line_after_the_last_commit_line_hides_the_as_of(self, store: Path, lines: Path):
        lines.write_text(line(1, 1) + line(2, 1))
        invoke("publish", store, lines)
        lines.write_text(line(1, 2) + commit("slot 2") + line(2).replace("[]", "0"))
        assert invoke("publish", store, lines, "--replace").returncode == 5
        assert published(store)[:2] == ({1: "2", 2: "1"}, None)

    def test_a_rejected_line_that_a_later_one_replaces_does_not_hide_the_as_of(self, store: Path, lines: Path):
        lines.write_text(line(1).replace("[]", "0") + line(1, 1))
        for arguments in ((), ("--replace",)):
            assert invoke("publish", store, lines, "--as-of", "slot 1", *arguments).returncode == 5
            assert published(store)[:2] == ({1: "1"}, "slot 1")

    def test_a_book_that_is_too_large_hides_the_as_of(self, store: Path, lines: Path, monkeypatch: pytest.MonkeyPatch):
        real = SqliteStore.update

        def rejecting(self: SqliteStore, books: list[OrderBook], *arguments: Any, **more: Any) -> Receipt:
            receipt = real(self, [], *arguments, **more)
            raise BooksRejected("too large", (next(iter(books)).pair,), receipt, "1 byte")

        monkeypatch.setattr(SqliteStore, "update", rejecting)
        lines.write_text(line(1, 1) + line(2, 2))
        done = invoke("publish", store, lines, "--as-of", "slot 1")
        assert done.returncode == 5
        assert done.stdout == f"{store}: 0 order books published, revision 1\n"
        assert f"{store}: as_of not recorded" in done.stderr
