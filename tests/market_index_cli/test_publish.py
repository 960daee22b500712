"""`market-index publish`: standard input, signals and memory in a process of its own, all else invoked here."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from market_index import Freshness, OrderBook, wire
from market_index_feeds import FeedError, open_feed, open_store
from tests.command import COMMAND, SAMPLE, invoke, line, padded_above_4_mib, read_all, run
from tests.feeds.contract.lines import commit_line, retract_line
from tests.feeds.event_lines import RESET, block, place, remove
from tests.feeds.made_up import book, pair, spots
from tests.waiting import DEADLINE_SECONDS, eventually


def stored(store: Path) -> dict[int, str | None] | None:
    """Return what a store contains; None if it has no version."""
    with suppress(FeedError):
        return spots(open_feed(store).read())
    return None


def test_a_file_is_published_and_the_store_is_created(store: Path):
    done = run("publish", store, SAMPLE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{store}: 13 order books published, revision 1\n"
    assert open_feed(store).read() == open_feed(SAMPLE).read()


@pytest.mark.parametrize("arguments", [(), ("--as-of", "slot 145000000")])
def test_a_heartbeat_needs_an_existing_store(store: Path, arguments: tuple[str, ...]):
    done = invoke("publish", store, *arguments)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"Error: {store} cannot be opened: No such file or directory\n"
    assert not list(store.parent.iterdir())
    invoke("publish", store, SAMPLE)
    done = invoke("publish", store, *arguments)
    assert (done.returncode, done.stdout) == (0, f"{store}: heartbeat published, revision 2\n")


def test_the_name_of_a_text_file_is_no_store(lines: Path):
    done = invoke("publish", lines, SAMPLE)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"Error: {lines} cannot be opened: a store must be a SQLite file")
    assert not list(lines.parent.iterdir())


def test_rejected_lines_are_named_and_do_not_stop_others(store: Path, lines: Path):
    lines.write_text(line(1, 1) + "nonsense\n" + line(2, 2) + line(3)[:40] + "\n" + line(4, 4) + line(5)[:-9])
    done = invoke("publish", store, lines)
    assert done.returncode == 5
    assert done.stdout == f"{store}: 3 order books published, revision 1\n"
    assert f"{lines}: line 2 rejected: must be JSON, but is not at character 0" in done.stderr
    assert f"{lines}: line 4 rejected: must be JSON" in done.stderr
    assert f"{lines}: line 6 rejected: must be JSON" in done.stderr
    assert done.stderr.endswith(f"{lines}: 3 lines rejected\n")
    assert spots(open_feed(store).read()) == {1: "1", 2: "2", 4: "4"}


def test_many_rejected_lines_are_counted(store: Path):
    done = run("publish", store, "-", stdin="nonsense\n" * 25)
    assert done.returncode == 5
    assert done.stdout == f"{store}: 0 order books published, revision 0\n"
    assert "standard input: line 20 rejected: " in done.stderr
    assert "standard input: line 21 rejected: " not in done.stderr
    assert done.stderr.endswith("standard input: 25 lines rejected\n")


def test_lines_of_standard_input_are_published_as_they_arrive(store: Path):
    with subprocess.Popen([COMMAND, "publish", store, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(line(1, 1).encode())
        process.stdin.flush()
        eventually(lambda: stored(store) == {1: "1"})
        assert process.poll() is None
        process.stdin.write(line(2, 2).encode() + line(1, 3).encode())
        process.stdin.close()
        assert process.stdout.read().decode() == f"{store}: 3 order books published in 2 changes, revision 2\n"
        assert process.wait(DEADLINE_SECONDS) == 0
    assert spots(open_feed(store).read()) == {1: "3", 2: "2"}


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.thorough), signal.SIGTERM])
def test_an_interrupted_publish_reports_what_it_published(store: Path, number: signal.Signals):
    with subprocess.Popen(
        [COMMAND, "publish", store, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(line(1, 1).encode())
        process.stdin.flush()
        eventually(lambda: stored(store) == {1: "1"})
        process.send_signal(number)
        assert process.stdout.read().decode() == f"{store}: 1 order book published, revision 1\n"
        assert process.wait(DEADLINE_SECONDS) == 1


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
        ((SAMPLE, SAMPLE), "cannot be opened: file is not a database"),
        ((__file__, SAMPLE), "cannot be opened: file is not a database"),
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


def test_a_read_error_is_one_line_and_exit_code_3(store: Path):
    for arguments in ((), ("--replace",)):
        done = invoke("publish", store, "/proc/self/mem", *arguments)
        assert (done.returncode, done.stderr) == (3, "Error: /proc/self/mem cannot be read: Input/output error\n")


@pytest.mark.parametrize("wait", ["nan", "-1", "soon"])
def test_an_invalid_number_of_seconds_is_wrong_usage(store: Path, wait: str):
    done = invoke("publish", store, SAMPLE, "--wait", wait)
    assert done.returncode == 2
    assert "must be a number of seconds, 0 or more, got" in done.stderr


def test_a_closed_standard_output_is_exit_code_1_without_a_message(store: Path):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([COMMAND, "publish", store, SAMPLE], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
    assert len(open_feed(store).read()) == 13


@pytest.mark.decision(35)
def test_retract_lines_retract_their_pairs(store: Path, lines: Path):
    lines.write_text(line(1) + line(2) + line(3))
    invoke("publish", store, lines)
    lines.write_bytes(line(4).encode() + b"".join(retract_line(pair(number)) for number in (1, 4, 5)))
    done = invoke("publish", store, lines)
    assert (done.returncode, done.stdout) == (0, f"{store}: 0 order books published, 1 pair retracted, revision 2\n")
    lines.write_bytes(retract_line(pair(2)))
    done = invoke("publish", store, lines, "--as-of", "slot 1")
    assert (done.returncode, done.stdout) == (0, f"{store}: 0 order books published, 1 pair retracted, revision 3\n")
    index = open_feed(store).read()
    assert (set(spots(index)), index.as_of) == ({3}, "slot 1")


def test_replace_makes_the_file_the_whole_of_the_store(store: Path, lines: Path):
    lines.write_text(line(1, 1) + line(2, 2) + line(3, 3))
    assert invoke("publish", store, lines).returncode == 0
    lines.write_text(line(2, 2) + line(3, 9) + line(4, 4))
    done = invoke("publish", store, lines, "--replace", "--as-of", "slot 7")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{store}: 2 order books published, 1 pair retracted, revision 2\n"
    index = open_feed(store).read()
    assert (spots(index), index.as_of) == ({2: "2", 3: "9", 4: "4"}, "slot 7")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (line(2, 9) + "nonsense\n", "must have no invalid line to replace a store: nothing was changed"),
        ("", "must contain an order book, got none: nothing was changed"),
        (retract_line(pair(1)).decode(), "must contain an order book, got none: nothing was changed"),
    ],
)
@pytest.mark.decision(35)
def test_input_with_an_invalid_line_or_without_a_book_replaces_nothing(store: Path, content: str, reason: str):
    """A producer that died at its start must not retract all pairs."""
    invoke("publish", store, SAMPLE)
    done = run("publish", store, "-", "--replace", stdin=content)
    assert (done.returncode, done.stdout) == (5, "")
    assert f"Error: standard input {reason}\n" in done.stderr
    assert len(open_feed(store).read()) == 13


@pytest.mark.parametrize(
    ("content", "as_of", "stored"),
    [
        (line(1), (), None),
        (line(1), ("--as-of", "slot 7"), "slot 7"),
        (line(1) + commit_line(Freshness("slot 8")).decode(), (), "slot 8"),
        (line(1) + "nonsense\n" + commit_line(Freshness("slot 8")).decode(), (), None),
        (line(1) + "nonsense\n", ("--as-of", "slot 7"), None),
    ],
)
def test_the_as_of_is_stored_unless_a_line_is_invalid(store: Path, content: str, as_of: tuple[str, ...], stored: str):
    done = run("publish", store, "-", *as_of, stdin=content)
    assert done.returncode == (5 if "nonsense" in content else 0)
    assert ("as_of not recorded, because of what was rejected" in done.stderr) == ("nonsense" in content)
    assert open_feed(store).read().as_of == stored


def test_lines_wait_for_their_commit_line(store: Path):
    commits = [commit_line(Freshness(f"slot {number}")).decode() for number in range(3)]
    done = run("publish", store, "-", stdin=line(1) + commits[0] + line(2) + commits[1] + line(3))
    assert (done.returncode, "ended while lines of 1 pair waited for a commit line" in done.stderr) == (5, True)
    index = open_feed(store).read()
    assert (set(spots(index)), index.as_of) == ({1, 2}, "slot 1")


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("http://127.0.0.1:1",), 2, "got a URL (market-index relay follows it)"),
        (("market.db",), 3, "market.db cannot be opened: it must be a file of order books, one per line"),
        (("orders:events", "--replace"), 2, "--replace requires BOOKS, a file with one order book per line, or -"),
        (("orders:events", "--as-of", "slot 1"), 2, "orders:events sets the as_of of its books: omit --as-of"),
        (("--replace",), 2, "--replace requires BOOKS, a file with one order book per line, or -"),
    ],
)
def test_options_and_books_that_do_not_go_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, reason: str
):
    monkeypatch.chdir(tmp_path)
    done = invoke("publish", "new.db", *arguments)
    assert (done.returncode, reason in done.stderr) == (code, True)
    assert list(tmp_path.iterdir()) == []


def test_a_commit_line_excludes_an_as_of(store: Path):
    done = run("publish", store, "-", "--as-of", "slot 7", stdin=line(1) + commit_line(Freshness("slot 8")).decode())
    assert (done.returncode, "sets the as_of of its books: omit --as-of" in done.stderr) == (2, True)


def test_a_book_above_the_limit_is_left_out(store: Path, lines: Path, monkeypatch: pytest.MonkeyPatch):
    large = OrderBook.from_levels(pair(2), bids=[(str(one), one) for one in range(1, 50)])
    lines.write_text(line(1) + wire.order_book_to_json(large).decode() + "\n" + line(3))
    monkeypatch.setattr("market_index.wire.MAX_ORDER_BOOK_BYTES", 300)
    done = invoke("publish", store, lines, "--as-of", "slot 7")
    assert (done.returncode, "at most 300 bytes" in done.stderr) == (5, True)
    assert done.stdout == f"{store}: 2 order books published, revision 1\n"
    index = open_feed(store).read()
    assert (set(spots(index)), index.as_of) == ({1, 3}, None)


class TestOrders:
    """Events of orders are the whole content of the store."""

    @pytest.mark.decision(35)
    def test_they_are_published_to_their_end(self, store: Path, lines: Path):
        with open_store(store) as other:
            other.publish(book(9, 9))
        lines.write_bytes(RESET + place("a") + block("slot 1") + place("b", 2) + block("slot 2"))
        done = invoke("publish", store, f"orders:{lines}")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{store}: 2 order books published, 1 pair retracted, revision 2\n"
        index = open_feed(store).read()
        assert (set(spots(index)), index.as_of) == ({1, 2}, "slot 2")

    @pytest.mark.parametrize(
        ("more", "reason"),
        [
            (place("b"), "ended while 1 events waited for a block"),
            (remove("z") + block("slot 2"), "cannot remove order 'z': there is no such order; waiting for a reset"),
            (remove("z") + RESET + block("slot 2"), "line 4 rejected: cannot remove order 'z'"),
        ],
    )
    def test_what_is_not_whole_is_exit_code_5(self, store: Path, lines: Path, more: bytes, reason: str):
        lines.write_bytes(RESET + place("a") + block("slot 1") + more)
        done = invoke("publish", store, f"orders:{lines}")
        assert (done.returncode, reason in done.stderr) == (5, True)

    def test_a_state_that_never_becomes_known_changes_nothing(self, store: Path, lines: Path):
        with open_store(store) as other:
            other.publish(book(9, 9))
        lines.write_bytes(place("a") + block("slot 1"))
        done = invoke("publish", store, f"orders:{lines}")
        assert (done.returncode, done.stdout) == (5, "")
        assert set(spots(open_feed(store).read())) == {9}
