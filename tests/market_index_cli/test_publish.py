"""`market-index publish`: standard input, signals and memory in a process of its own, all else invoked here."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest

from market_index import AssetId, Pair, wire
from market_index_feeds import open_feed, open_store
from tests.command import COMMAND, SAMPLE, invoke, line, padded_above_4_mib, read_all, run
from tests.market_index_feeds.made_up import spots
from tests.market_index_feeds.ndjson.lines import commit, retraction
from tests.waiting import DEADLINE_SECONDS, eventually


def memory_of(process: int) -> int:
    """Return the resident memory of a process in bytes."""
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


@pytest.mark.parametrize("arguments", [(), ("--as-of", "slot 145000000")])
def test_a_heartbeat_needs_an_existing_store(store: Path, arguments: tuple[str, ...]):
    done = invoke("publish", store, *arguments)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"Error: {store} cannot be opened: No such file or directory\n"
    assert not list(store.parent.iterdir())
    invoke("publish", store, SAMPLE)
    done = invoke("publish", store, *arguments)
    assert (done.returncode, done.stdout) == (0, f"{store}: heartbeat published, revision 2\n")


@pytest.mark.parametrize("books", [(), (SAMPLE,)])
def test_the_name_of_a_text_file_is_no_store(lines: Path, books: tuple[Path, ...]):
    done = invoke("publish", lines, *books)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"to publish its books: market-index publish market.db {lines}; to serve them:" in done.stderr
    assert not list(lines.parent.iterdir())


def test_rejected_lines_are_named_and_do_not_stop_others(store: Path, lines: Path):
    lines.write_text(line(1, 1) + "nonsense\n" + line(2, 2) + line(3)[:40] + "\n" + line(4, 4) + line(5)[:-1])
    done = invoke("publish", store, lines)
    assert done.returncode == 5
    assert done.stdout == f"{store}: 3 order books published, revision 1\n"
    assert f"{lines} line 2 rejected: must be JSON, but is not at character 0" in done.stderr
    assert f"{lines} line 4 rejected: must be JSON" in done.stderr
    assert f"{lines} line 6 rejected: must end with a newline" in done.stderr
    assert done.stderr.endswith(f"{lines}: 3 lines rejected\n")
    assert spots(open_feed(store).read()) == {1: "1", 2: "2", 4: "4"}


def test_many_rejected_lines_are_counted(store: Path):
    done = run("publish", store, "-", stdin="nonsense\n" * 25)
    assert done.returncode == 5
    assert done.stdout == f"{store}: 0 order books published, revision 0\n"
    assert "standard input line 20 rejected: " in done.stderr
    assert "standard input line 21 rejected: " not in done.stderr
    assert done.stderr.endswith("standard input: 25 lines rejected\n")


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
        assert (
            process.stdout.read().decode() == f"{store}: 3 order books of 2 pairs published in 2 changes, revision 2\n"
        )
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


@pytest.mark.parametrize("bad", [line(1)[:-3] + "\n", line(3).replace('"asks":[]', '"asks":[7]')])
def test_a_rejected_line_keeps_all_pairs_that_the_lines_do_not_name(store: Path, lines: Path, bad: str):
    lines.write_text(line(1, 1) + line(2, 2) + line(3, 3) + line(4, 4))
    assert invoke("publish", store, lines).returncode == 0
    lines.write_text(line(2, 9) + bad)
    done = invoke("publish", store, lines, "--replace")
    assert done.returncode == 5
    assert "1 are new, 0 pairs retracted, 3 kept because of rejected lines" in done.stdout
    assert spots(open_feed(store).read()) == {1: "1", 2: "9", 3: "3", 4: "4"}


@pytest.mark.parametrize("content", ["", pytest.param("nonsense\n", marks=pytest.mark.thorough)])
def test_input_without_a_book_replaces_nothing(store: Path, content: str):
    """A producer that died at its start must not retract all pairs."""
    invoke("publish", store, SAMPLE)
    done = run("publish", store, "-", "--replace", stdin=content)
    assert (done.returncode, done.stdout) == (5, "")
    assert "Error: standard input must contain an order book, got none: nothing was changed\n" in done.stderr
    assert len(open_feed(store).read()) == 13


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
        ((SAMPLE, SAMPLE), "a store must be a SQLite file such as order-books.db, got the name of a text file"),
        ((__file__, SAMPLE), "it must be a store, got a file that is not of SQLite"),
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
    [
        ("http://127.0.0.1:1", "got a URL"),
        ("market.db", "got a store: market.db (STORE comes first: market-index publish market.db books.ndjson)"),
    ],
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
    assert "must be a number of seconds, 0 or more, got" in done.stderr


def test_a_locked_store_is_waited_for_as_long_as_given(store: Path):
    with open_store(store) as other:
        with other._change(None):  # type: ignore[attr-defined]  # the lock that another process would hold
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


def test_retract_lines_retract_their_pairs(store: Path, lines: Path):
    lines.write_text(line(1) + line(2) + line(3))
    invoke("publish", store, lines)
    lines.write_bytes(line(4).encode() + retraction(1) + retraction(4) + retraction(5))
    done = invoke("publish", store, lines)
    assert (done.returncode, done.stdout) == (0, f"{store}: 0 order books published, 1 pair retracted, revision 2\n")
    lines.write_bytes(retraction(2))
    done = invoke("publish", store, lines, "--as-of", "slot 1")
    assert (done.returncode, done.stdout) == (0, f"{store}: 0 order books published, 1 pair retracted, revision 3\n")
    index = open_feed(store).read()
    assert (set(spots(index)), index.as_of) == ({3}, "slot 1")


def test_retract_lines_alone_replace_nothing(store: Path, lines: Path):
    invoke("publish", store, SAMPLE)
    lines.write_bytes(retraction(1))
    done = invoke("publish", store, lines, "--replace")
    assert (done.returncode, done.stderr) == (
        5,
        f"Error: {lines} must contain an order book, got none: nothing was changed\n",
    )
    lines.write_bytes(line(1).encode() + line(2).encode() + retraction(1))
    assert invoke("publish", store, lines, "--replace").returncode == 0
    assert set(spots(open_feed(store).read())) == {2}


def test_retract_lines_of_standard_input_are_published_with_their_commit(store: Path):
    done = run("publish", store, "-", stdin=line(1) + line(2) + (retraction(1) + commit("slot 1")).decode())
    assert done.returncode == 0, done.stderr
    index = open_feed(store).read()
    assert (set(spots(index)), index.as_of) == ({2}, "slot 1")
