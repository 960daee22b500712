"""`market-index dump`. Its errors are in `test_exits.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from market_index import Freshness, wire
from market_index.wire import freshness_to_json
from market_index_feeds import open_feed, open_store
from tests.command import SAMPLE, invoke, line
from tests.feeds.contract.lines import commit_line, retract_line
from tests.feeds.event_lines import RESET, block, place
from tests.feeds.made_up import pair


def test_a_dump_has_the_books_in_ledger_order_and_can_be_published(tmp_path: Path, store: Path):
    index = open_feed(SAMPLE).read()
    with open_store(tmp_path / "one.db") as one:
        one.replace(index.values(), freshness=Freshness("slot 7"))
    freshness = open_feed(tmp_path / "one.db").read().freshness
    done = invoke("dump", tmp_path / "one.db")
    assert (done.returncode, done.stderr) == (0, "")
    expected = [*map(wire.order_book_to_json, index.values()), freshness_to_json(freshness)]
    assert done.stdout.encode().splitlines() == expected
    assert invoke("publish", store, "-", stdin=done.stdout).returncode == 0
    assert invoke("dump", store).stdout == done.stdout


@pytest.mark.parametrize("command", ["dump", "pairs"])
def test_a_rejected_record_is_exit_code_5_after_the_output(lines: Path, command: str):
    lines.write_bytes(
        (line(1) + line(2)).encode() + retract_line(pair(1)) + b"nonsense\n" + commit_line(Freshness("slot 1"))
    )
    done = invoke(command, lines)
    assert (done.returncode, done.stdout.count("\n"), "line 4 rejected" in done.stderr) == (5, 2, True)
    if command == "dump":
        assert done.stdout == line(2) + freshness_to_json(Freshness()).decode() + "\n"


UNCOMMITTED = line(1) + commit_line(Freshness()).decode() + line(2) + line(3)
WITHOUT_BLOCK = (RESET + place("a") + block("slot 1") + place("b")).decode()


@pytest.mark.parametrize(
    ("source", "content", "problem"),
    [
        ("-", UNCOMMITTED, "lines waited for a commit line (pairs: 2)"),
        ("orders:-", WITHOUT_BLOCK, "events waited for a block (events: 1)"),
    ],
)
def test_a_stream_that_ends_within_a_change_is_exit_code_5_with_the_reason(source: str, content: str, problem: str):
    done = invoke("dump", source, stdin=content)
    assert (done.returncode, done.stdout.count("\n")) == (5, 2)
    assert done.stderr == f"standard input: ended while {problem}; keeping its 1 pairs\n"
