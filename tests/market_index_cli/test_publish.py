"""`market-index publish`. Its errors are in `test_exits.py`."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from market_index import Freshness, OrderBook, wire
from market_index_feeds import FeedError, open_feed, open_store
from tests.command import COMMAND, SAMPLE, invoke, line
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
    done = invoke("publish", store, SAMPLE)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{store}: 13 order books published, revision 1\n", "")
    assert open_feed(store).read() == open_feed(SAMPLE).read()


@pytest.mark.parametrize(("arguments", "as_of"), [((), None), (("--as-of", "slot 145000000"), "slot 145000000")])
def test_a_heartbeat_without_books(store: Path, arguments: tuple[str, ...], as_of: str | None):
    invoke("publish", store, SAMPLE)
    done = invoke("publish", store, *arguments)
    assert (done.returncode, done.stdout) == (0, f"{store}: heartbeat published, revision 2\n")
    assert open_feed(store).read().as_of == as_of


def test_rejected_lines_are_named_and_do_not_stop_others(store: Path, lines: Path):
    lines.write_text(line(1, 1) + "nonsense\n" + line(2, 2) + line(3)[:40] + "\n" + line(4, 4) + line(5)[:-9])
    done = invoke("publish", store, lines)
    assert (done.returncode, done.stdout) == (5, f"{store}: 3 order books published, revision 1\n")
    *rejected, count = done.stderr.splitlines()
    assert [one.split(": must be JSON")[0] for one in rejected] == [f"{lines}: line {n} rejected" for n in (2, 4, 6)]
    assert count == f"{lines}: 3 records rejected"
    assert stored(store) == {1: "1", 2: "2", 4: "4"}


def test_no_store_is_created_if_all_lines_are_rejected(store: Path):
    """Of many, 20 are named, and all are counted."""
    done = invoke("publish", store, "-", stdin="nonsense\n" * 25)
    assert (done.returncode, done.stdout) == (5, f"{store}: 0 order books published\n")
    assert done.stderr.count(" rejected: ") == 20
    assert done.stderr.endswith("standard input: 25 records rejected\n")
    assert not store.exists()


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
def test_lines_of_standard_input_are_published_as_they_arrive(store: Path, number: signal.Signals | None):
    """To the end of the input, or until a signal, which is exit code 1."""
    with subprocess.Popen(
        [COMMAND, "publish", store, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        process.stdin.write(line(1, 1).encode())
        process.stdin.flush()
        eventually(lambda: stored(store) == {1: "1"})
        assert process.poll() is None
        if number is None:
            output, _ = process.communicate((line(2, 2) + line(1, 3)).encode(), timeout=DEADLINE_SECONDS)
            expected = 0, "3 order books published, revision 2", {1: "3", 2: "2"}
        else:
            process.send_signal(number)
            output, _ = process.communicate(timeout=DEADLINE_SECONDS)
            expected = 1, "1 order book published, revision 1", {1: "1"}
    assert (process.returncode, output.decode(), stored(store)) == (
        expected[0],
        f"{store}: {expected[1]}\n",
        expected[2],
    )


def test_each_durable_change_is_acknowledged(store: Path):
    """A producer in another language knows what is stored, while the command runs."""
    with subprocess.Popen(
        [COMMAND, "publish", store, "-", "--acknowledge"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=-1
    ) as process:
        assert process.stdin
        assert process.stdout
        for number in (1, 2):
            process.stdin.write(line(number, number).encode() + commit_line(Freshness(f"slot {number}")))
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == {"as_of": f"slot {number}", "revision": number}
            assert open_feed(store).read().as_of == f"slot {number}"
        output, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, output) == (0, b"")
    assert errors.decode() == f"{store}: 2 order books published, revision 2\n"


@pytest.mark.parametrize("books", ["events", "heartbeat", "file"])
def test_each_way_to_publish_acknowledges(store: Path, lines: Path, books: str):
    with open_store(store) as other:
        other.update([book(9, 9)], freshness=Freshness("slot 0"))
    lines.write_bytes(START if books == "events" else line(1).encode())
    sources: dict[str, list[object]] = {"events": [f"orders:{lines}"], "heartbeat": [], "file": [lines]}
    done = invoke("publish", store, *sources[books], "--acknowledge")
    as_of = "slot 1" if books == "events" else "slot 0"
    assert (done.returncode, json.loads(done.stdout)) == (0, {"as_of": as_of, "revision": 2})
    assert done.stderr.endswith(" published, revision 2\n" if books != "events" else " retracted, revision 2\n")


@pytest.mark.decision(35)
def test_retract_lines_retract_their_pairs(store: Path, lines: Path):
    with open_store(store) as publishing:
        publishing.publish(book(1), book(2), book(3))
    lines.write_bytes(line(4).encode() + b"".join(retract_line(pair(number)) for number in (1, 4, 5)))
    done = invoke("publish", store, lines)
    assert (done.returncode, done.stdout) == (0, f"{store}: 0 order books published, 1 pair retracted, revision 2\n")
    lines.write_bytes(retract_line(pair(2)))
    assert invoke("publish", store, lines, "--as-of", "slot 1").returncode == 0
    index = open_feed(store).read()
    assert (set(spots(index)), index.as_of) == ({3}, "slot 1")


def test_a_replacement_with_an_invalid_line_says_that_nothing_was_published(store: Path):
    done = invoke("publish", store, "-", "--replace", stdin=line(1) + "nonsense\n")
    assert (done.returncode, done.stdout) == (5, f"{store}: 0 order books published\n")
    assert done.stderr.endswith("must have no invalid line to replace a store: nothing was changed\n")


def test_replace_makes_the_file_the_whole_of_the_store(store: Path, lines: Path):
    with open_store(store) as publishing:
        publishing.publish(book(1, 1), book(2, 2), book(3, 3))
    lines.write_text(line(2, 2) + line(3, 9) + line(4, 4))
    done = invoke("publish", store, lines, "--replace", "--as-of", "slot 7")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{store}: 2 order books published, 1 pair retracted, revision 2\n"
    index = open_feed(store).read()
    assert (spots(index), index.as_of) == ({2: "2", 3: "9", 4: "4"}, "slot 7")


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
    done = invoke("publish", store, "-", *as_of, stdin=content)
    assert done.returncode == (5 if "nonsense" in content else 0)
    assert (f"{store}: as_of not recorded, because of what was rejected\n" in done.stderr) == ("nonsense" in content)
    assert open_feed(store).read().as_of == stored


def test_lines_wait_for_their_commit_line(store: Path):
    commits = [commit_line(Freshness(f"slot {number}")).decode() for number in range(2)]
    done = invoke("publish", store, "-", stdin=line(1) + commits[0] + line(2) + commits[1] + line(3))
    expected = "standard input ended while lines waited for a commit line (pairs: 1)\n"
    assert (done.returncode, done.stderr) == (5, expected)
    index = open_feed(store).read()
    assert (set(spots(index)), index.as_of) == ({1, 2}, "slot 1")


def test_a_book_above_the_limit_is_left_out(store: Path, lines: Path, monkeypatch: pytest.MonkeyPatch):
    large = OrderBook.from_levels(pair(2), bids=[(str(one), one) for one in range(1, 50)])
    lines.write_text(line(1) + wire.order_book_to_json(large).decode() + "\n" + line(3))
    monkeypatch.setattr("market_index.wire.MAX_ORDER_BOOK_BYTES", 300)
    done = invoke("publish", store, lines, "--as-of", "slot 7")
    assert (done.returncode, "at most 300 bytes" in done.stderr) == (5, True)
    assert done.stdout == f"{store}: 2 order books published, revision 1\n"
    index = open_feed(store).read()
    assert (set(spots(index)), index.as_of) == ({1, 3}, None)


START = RESET + place("a") + block("slot 1")


@pytest.mark.decision(35)
def test_events_of_orders_are_the_whole_content_of_the_store(store: Path, lines: Path):
    with open_store(store) as other:
        other.publish(book(9, 9))
    lines.write_bytes(START + place("b", 2) + block("slot 2"))
    done = invoke("publish", store, f"orders:{lines}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{store}: 2 order books published, 1 pair retracted, revision 2\n"
    index = open_feed(store).read()
    assert (set(spots(index)), index.as_of) == ({1, 2}, "slot 2")


@pytest.mark.parametrize(
    ("events", "pairs", "reason"),
    [
        (START + place("b"), {1}, "ended while events waited for a block (events: 1)"),
        (
            START + remove("z") + block("slot 2"),
            {1},  # the last block before the wrong line
            "cannot remove order 'z': there is no such order; waiting for a reset",
        ),
        (place("a") + block("slot 1"), {9}, "waiting for a reset"),
    ],
)
def test_events_that_are_not_whole_are_exit_code_5(
    store: Path, lines: Path, events: bytes, pairs: set[int], reason: str
):
    with open_store(store) as other:
        other.publish(book(9, 9))
    lines.write_bytes(events)
    done = invoke("publish", store, f"orders:{lines}")
    assert (done.returncode, reason in done.stderr) == (5, True)
    assert set(spots(open_feed(store).read())) == pairs
