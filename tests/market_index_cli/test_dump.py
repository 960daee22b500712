"""`market-index dump`. Its errors are in `test_exits.py`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from market_index import Freshness, MarketIndex, wire
from market_index.strategies import market_indexes
from market_index.wire import freshness_to_json
from market_index_feeds import open_feed, open_store
from tests.command import SAMPLE, invoke, line
from tests.feeds.contract.lines import commit_line, retract_line
from tests.feeds.made_up import pair

TIMES = st.datetimes(timezones=st.just(UTC))


def test_the_books_are_in_ledger_order_before_a_commit_line():
    done = invoke("dump", SAMPLE)
    index = open_feed(SAMPLE).read()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.encode().splitlines() == [
        *map(wire.order_book_to_json, index.values()),
        b'{"as_of":null,"published_at":null}',
    ]


@settings(max_examples=10)
@given(market_indexes(min_pairs=1, max_pairs=4), TIMES)
def test_a_dump_that_is_published_into_an_empty_store_is_dumped_again_as_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, index: MarketIndex, time: datetime
):
    folder = tmp_path_factory.mktemp("dump")
    with open_store(folder / "one.db", synchronous="normal") as store:
        store.replace(index.values(), freshness=Freshness(index.as_of, time))
    dumped = invoke("dump", folder / "one.db")
    assert dumped.returncode == 0
    lines = folder / "lines.ndjson"
    lines.write_text(dumped.stdout)
    assert invoke("publish", folder / "two.db", lines).returncode == 0
    assert invoke("dump", folder / "two.db").stdout == invoke("dump", lines).stdout == dumped.stdout


@pytest.mark.parametrize("command", ["dump", "pairs"])
def test_a_rejected_record_is_exit_code_5_after_the_output(lines: Path, command: str):
    lines.write_bytes(
        (line(1) + line(2)).encode() + retract_line(pair(1)) + b"nonsense\n" + commit_line(Freshness("slot 1"))
    )
    done = invoke(command, lines)
    assert (done.returncode, done.stdout.count("\n"), "line 4 rejected" in done.stderr) == (5, 2, True)
    if command == "dump":
        assert done.stdout == line(2) + freshness_to_json(Freshness()).decode() + "\n"
