"""`market-index publish` with commit lines and --as-of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from market_index import Freshness, MarketIndex, OrderBook, wire
from market_index.freshness import parse_time
from market_index_feeds import BookTooLarge, Receipt, line_source, open_feed, open_store
from market_index_feeds.sqlite.store import SqliteStore
from tests.command import SAMPLE, invoke, line, run
from tests.market_index_feeds.made_up import spots


def commit(as_of: str | None, published_at: str | None = None) -> str:
    """Return a line that commits the lines before it."""
    return (
        wire.freshness_to_json(Freshness(as_of, None if published_at is None else parse_time(published_at))).decode()
        + "\n"
    )


def published(store: Path) -> tuple[dict[int, str | None], str | None, int | None]:
    """Return the stored spots, their as_of, and the revision."""
    feed = open_feed(store)
    index = feed.read()
    return spots(index), index.as_of, feed.revision


class TestCommitLines:
    """Lines with the freshness of the books before them."""

    def test_each_commit_line_publishes_the_books_before_it_in_one_revision(
        self, store: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(line_source, "_CHUNK_BYTES", 50)
        revisions: list[Freshness] = []
        real = SqliteStore.update

        def noting(self: SqliteStore, *arguments: Any, **more: Any) -> Receipt:
            receipt = real(self, *arguments, **more)
            revisions.append(open_feed(store).read().freshness)
            return receipt

        monkeypatch.setattr(SqliteStore, "update", noting)
        time = "2026-11-22T04:17:03.000Z"
        first = commit("slot 1", time) + line(1, 1) + line(2, 1) + commit("slot 2", time)
        lines.write_text(first + commit("slot 3", time) + line(2, 4) + line(1, 4) + commit(None, time))
        done = invoke("publish", store, lines)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{store}: 4 order books published, revision 4\n"
        assert published(store) == ({1: "4", 2: "4"}, None, 4)
        assert revisions == [Freshness(as_of, parse_time(time)) for as_of in ("slot 1", "slot 2", "slot 3", None)]

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
        assert done.stderr == f"{lines}: 2 order books after the last commit line not published\n"
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
        assert f"{lines} has a commit line, which sets the as_of of the books: omit --as-of" in done.stderr
        assert published(store) == ({}, None, 0)


class TestAsOf:
    """`--as-of`, with and without books."""

    @pytest.mark.parametrize("arguments", [(), ("--replace",)])
    def test_a_file_is_published_together_with_its_as_of(self, store: Path, arguments: tuple[str, ...]):
        done = invoke("publish", store, SAMPLE, "--as-of", "slot 1", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(open_feed(store).read()) == 13
        assert published(store)[1:] == ("slot 1", 1)

    def test_the_as_of_is_published_with_the_last_batch(
        self, store: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
    ):
        with open_store(store) as opened:
            opened.update((), as_of="slot 1")
        seen: list[MarketIndex] = []
        real = SqliteStore.update

        def noting(self: SqliteStore, *arguments: Any, **more: Any) -> Receipt:
            receipt = real(self, *arguments, **more)
            seen.append(open_feed(store).read())
            return receipt

        monkeypatch.setattr(SqliteStore, "update", noting)
        monkeypatch.setattr(line_source, "_CHUNK_BYTES", len(line(1, 1)))
        lines.write_text(line(1, 1) + line(2, 2) + line(3, 3))
        assert invoke("publish", store, lines, "--as-of", "slot 2").returncode == 0
        assert [(len(index), index.as_of) for index in seen] == [(1, "slot 1"), (2, "slot 1"), (3, "slot 2")]

    def test_the_as_of_of_a_stream_is_published_at_its_end(self, store: Path):
        done = run("publish", store, "-", "--as-of", "slot 1", stdin=line(1, 1))
        assert done.stdout == f"{store}: 1 order book published, revision 2\n"
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
        assert done.stderr == "Error: standard input must contain an order book, got none: nothing was changed\n"
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
            raise BookTooLarge("too large", (books[0].pair,), receipt)

        monkeypatch.setattr(SqliteStore, "update", rejecting)
        monkeypatch.setattr(line_source, "_CHUNK_BYTES", len(line(1, 1)))
        lines.write_text(line(1, 1) + line(2, 2))
        done = invoke("publish", store, lines, "--as-of", "slot 1")
        assert done.returncode == 5
        assert done.stdout == f"{store}: 0 order books published, revision 2\n"
        assert f"{store}: as_of not recorded" in done.stderr
