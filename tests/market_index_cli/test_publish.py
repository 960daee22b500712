"""`market-index publish`: standard input, signals and memory in a process of its own, all else invoked here."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from market_index import AssetId, Freshness, MarketIndex, OrderBook, Pair, wire
from market_index.freshness import parse_time
from market_index_feeds import BookTooLarge, Receipt, line_source, open_feed, open_store
from market_index_feeds.sqlite.store import SqliteStore
from tests.command import COMMAND, SAMPLE, invoke, line, padded_above_4_mib, read_all, run
from tests.market_index_feeds.made_up import spots
from tests.waiting import DEADLINE_SECONDS, eventually


def memory_of(process: int) -> int:
    """How many bytes a process holds in memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_file_is_published_and_the_store_is_created(store: Path):
    done = run("publish", store, SAMPLE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{store}: 13 order books published, revision 1\n"
    assert open_feed(store).read() == open_feed(SAMPLE).read()


def test_every_recorded_book_comes_back_as_plain_json_and_decimal_read_it(store: Path, recorded_order_books: Path):
    assert invoke("publish", store, recorded_order_books).returncode == 0
    index = open_feed(store).read()
    assert len(index) == 756
    for text in recorded_order_books.read_text().splitlines():
        plain = json.loads(text)
        one = json.loads(wire.order_book_to_json(index[Pair(*map(AssetId.parse, (plain["base"], plain["quote"])))]))
        for side in ("bids", "asks"):
            assert [(Decimal(level["price"]), level["accumulated_liquidity"]) for level in one[side]] == [
                (Decimal(level["price"]), level["accumulated_liquidity"]) for level in plain[side]
            ]


def test_rejected_lines_are_named_and_do_not_stop_others(store: Path, lines: Path):
    lines.write_text(line(1, 1) + "nonsense\n" + line(2, 2) + line(3)[:40] + "\n" + line(4, 4) + line(5)[:-1])
    done = invoke("publish", store, lines)
    assert done.returncode == 5
    assert done.stdout == f"{store}: 3 order books published, revision 1\n"
    assert f"{lines} line 2 rejected: must be JSON, but is not at character 0" in done.stderr
    assert f"{lines} line 4 rejected: must be JSON" in done.stderr
    assert f"{lines} line 6 rejected: must end with a newline" in done.stderr
    assert done.stderr.endswith(f"{lines}: 3 lines rejected: 2, 4, 6\n")
    assert spots(open_feed(store).read()) == {1: "1", 2: "2", 4: "4"}


def test_the_first_of_many_rejected_lines_are_named(store: Path):
    done = run("publish", store, "-", stdin="nonsense\n" * 25)
    assert done.returncode == 5
    assert done.stdout == f"{store}: 0 order books published, revision 0\n"
    numbers = ", ".join(map(str, range(1, 21)))
    assert done.stderr.endswith(f"standard input: 25 lines rejected: {numbers} and 5 more\n")


def test_lines_of_standard_input_are_published_as_they_arrive(store: Path):
    with subprocess.Popen([COMMAND, "publish", store, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(line(1, 1).encode())
        process.stdin.flush()
        eventually(lambda: store.exists() and spots(open_feed(store).read()) == {1: "1"})
        assert process.poll() is None
        process.stdin.write(line(2, 2).encode() + line(1, 3).encode())
        process.stdin.close()
        assert process.stdout.read().decode() == f"{store}: 3 order books published, revision 2\n"
        assert process.wait(DEADLINE_SECONDS) == 0
    assert spots(open_feed(store).read()) == {1: "3", 2: "2"}


@pytest.mark.thorough
def test_rejected_lines_are_not_kept_in_memory(store: Path):
    with subprocess.Popen(
        [COMMAND, "publish", store, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin
        bad = b"x" * 1_000_000 + b"\n"
        process.stdin.write(bad * 20)
        process.stdin.flush()
        before = memory_of(process.pid)
        process.stdin.write(bad * 100)
        process.stdin.flush()
        assert memory_of(process.pid) < before + 50_000_000
        process.stdin.close()
        assert process.wait(DEADLINE_SECONDS) == 5


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.thorough), signal.SIGTERM])
def test_an_interrupted_publish_reports_what_it_published(store: Path, number: signal.Signals):
    with subprocess.Popen(
        [COMMAND, "publish", store, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(line(1, 1).encode())
        process.stdin.flush()
        eventually(lambda: store.exists() and spots(open_feed(store).read()) == {1: "1"})
        process.send_signal(number)
        assert process.stdout.read().decode() == f"{store}: 1 order book published, revision 1\n"
        assert process.wait(DEADLINE_SECONDS) == 1


def test_replace_makes_the_file_the_whole_of_the_store(store: Path, lines: Path):
    lines.write_text(line(1, 1) + line(2, 2) + line(3, 3))
    assert invoke("publish", store, lines).returncode == 0
    lines.write_text(line(2, 2) + line(3, 9) + line(4, 4))
    done = invoke("publish", store, lines, "--replace")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{store}: 3 order books, of which 2 are new, 1 pair retracted, revision 2\n"
    assert spots(open_feed(store).read()) == {2: "2", 3: "9", 4: "4"}


@pytest.mark.parametrize(
    ("bad", "kept", "left"),
    [
        (line(1)[:-3] + "\n", 3, {1: "1", 2: "9", 3: "3", 4: "4"}),
        (line(3).replace('"asks":[]', '"asks":[7]'), 1, {2: "9", 3: "3"}),
    ],
)
def test_a_rejected_line_keeps_the_pair_that_it_names_or_may_name(
    store: Path, lines: Path, bad: str, kept: int, left: dict[int, str]
):
    lines.write_text(line(1, 1) + line(2, 2) + line(3, 3) + line(4, 4))
    assert invoke("publish", store, lines).returncode == 0
    lines.write_text(line(2, 9) + bad)
    done = invoke("publish", store, lines, "--replace")
    assert done.returncode == 5
    assert f"1 are new, {3 - kept} pair" in done.stdout
    assert f" retracted, {kept} kept because of rejected lines" in done.stdout
    assert spots(open_feed(store).read()) == left


@pytest.mark.parametrize("content", ["", pytest.param("nonsense\n", marks=pytest.mark.thorough)])
def test_input_without_a_book_replaces_nothing(store: Path, content: str):
    """A producer that died at its start must not cost every price."""
    invoke("publish", store, SAMPLE)
    done = run("publish", store, "-", "--replace", stdin=content)
    assert (done.returncode, done.stdout) == (5, "")
    assert "Error: standard input holds no order book: nothing was changed\n" in done.stderr
    assert len(open_feed(store).read()) == 13


def commit(as_of: str | None, published_at: str | None = None) -> str:
    """A line that commits those before it."""
    return (
        wire.freshness_to_json(Freshness(as_of, None if published_at is None else parse_time(published_at))).decode()
        + "\n"
    )


def published(store: Path) -> tuple[dict[int, str | None], str | None, int | None]:
    """What the store contains, what that reflects, and the revision."""
    feed = open_feed(store)
    index = feed.read()
    return spots(index), index.as_of, feed.revision


class TestCommitLines:
    """Lines that say what the books before them reflect."""

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
        assert f"{lines} has a commit line, which says what the books reflect: omit --as-of" in done.stderr
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
        invoke("publish", store, "--as-of", "slot 1")
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
        assert done.stderr == "Error: standard input holds no order book: nothing was changed\n"
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


def test_a_large_file_shows_progress_on_a_terminal(store: Path, lines: Path):
    lines.write_text(padded_above_4_mib(SAMPLE.read_text()))
    ours, theirs = pty.openpty()
    with subprocess.Popen([COMMAND, "publish", store, lines], stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = read_all(ours)
        assert process.wait(DEADLINE_SECONDS) == 0
    assert f"{lines}" in shown
    assert "100%" in shown


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("market.db", "nowhere.ndjson"), "nowhere.ndjson cannot be opened: No such file or directory"),
        (("/sys/market.db", SAMPLE), "/sys/market.db cannot be opened: "),
        (("nowhere/market.db", SAMPLE), "nowhere/market.db cannot be opened: "),
        ((SAMPLE, SAMPLE), "it must be a store, got a file that is not of SQLite"),
        (("amqp://host/books", SAMPLE), "the scheme of a store must be nats or tls, got 'amqp'"),
    ],
)
def test_a_target_or_file_that_cannot_be_opened_is_one_line_and_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...], reason: str
):
    monkeypatch.chdir(tmp_path)
    done = invoke("publish", *arguments)
    assert done.returncode == 3
    assert done.stderr.startswith("Error: ")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("books", "reason"),
    [("http://127.0.0.1:1", "but no URL"), ("market.db", "market.db is a store")],
)
def test_a_source_that_is_not_a_file_of_lines_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, books: str, reason: str
):
    monkeypatch.chdir(tmp_path)
    done = invoke("publish", "new.db", books)
    assert done.returncode == 2
    assert reason in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_read_error_is_one_line_and_exit_code_3(store: Path):
    for arguments in ((), ("--replace",)):
        done = invoke("publish", store, "/proc/self/mem", *arguments)
        assert (done.returncode, done.stderr) == (3, "Error: /proc/self/mem cannot be read: Input/output error\n")


@pytest.mark.parametrize("wait", ["nan", "-1", "soon"])
def test_an_invalid_number_of_seconds_is_wrong_usage(store: Path, wait: str):
    done = invoke("publish", store, SAMPLE, "--wait", wait)
    assert done.returncode == 2
    assert "is not a number of seconds, 0 or more." in done.stderr


def test_a_locked_store_is_waited_for_as_long_as_given(store: Path):
    with open_store(store) as other:
        with other._change(Freshness(), keeps_as_of=True):  # type: ignore[attr-defined]  # the lock that another process would hold
            done = run("publish", store, SAMPLE, "--wait", 0.1)
        assert (done.returncode, done.stdout) == (3, "")
        assert "was not written to: others have been writing for 0.1 seconds" in done.stderr
        assert invoke("publish", store, SAMPLE, "--synchronous", "normal").returncode == 0


def test_a_closed_standard_output_is_exit_code_1_without_a_message(store: Path):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([COMMAND, "publish", store, SAMPLE], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
    assert len(open_feed(store).read()) == 13
