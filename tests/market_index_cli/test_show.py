"""`market-index pairs` and `market-index book`."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest

from market_index import LiveIndex, wire
from market_index_feeds import open_feed
from market_index_http import create_app
from tests.command import BOOK, COMMAND, LINES, SAMPLE, read_all, run
from tests.service import served
from tests.waiting import DEADLINE_SECONDS

IUSD = BOOK["quote"]


def on_terminal(*arguments: object, columns: int, **environment: str) -> list[str]:
    """The lines that the command shows on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [COMMAND, *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"COLUMNS": str(columns), "PYTHONIOENCODING": "utf-8"} | environment,
    ) as process:
        os.close(theirs)
        shown = read_all(ours)
        assert process.wait(DEADLINE_SECONDS) == 0, shown
    return shown.splitlines()


def plain(text: str) -> str:
    """The text without its colours."""
    parts = text.split("\x1b[")
    return parts[0] + "".join(part.partition("m")[2] for part in parts[1:])


@pytest.fixture(params=["store", "file", "stdin", "service"])
def source(request: pytest.FixtureRequest, store: Path):
    """Every kind of feed, and what is to be said to the command."""
    if request.param == "store":
        run("publish", store, SAMPLE)
        yield store, None
    elif request.param == "file":
        yield SAMPLE, None
    elif request.param == "stdin":
        yield "-", SAMPLE.read_text()
    else:
        with open_feed(SAMPLE) as feed, served(create_app(live := LiveIndex())) as service:
            feed.start(live)
            yield f"http://127.0.0.1:{service.port}", None


def test_the_pairs_of_any_feed(source: tuple[object, str | None]):
    name, said = source
    done = run("pairs", name, said=said)
    assert (done.returncode, done.stderr) == (0, "")
    headings, *rows = [row.split("\t") for row in done.stdout.splitlines()]
    assert headings == ["pair", "spot", "best bid", "best ask", "spread", "bids", "asks", "base", "quote"]
    plain = {(one["base"], one["quote"]): one for one in map(json.loads, LINES)}
    assert len(rows) == 13
    for _, spot, bid, ask, spread, bids, asks, base, quote in rows:
        one = plain[base, quote]
        assert spot == (one["spot"] or "-")
        assert bid == (one["bids"][0]["price"] if one["bids"] else "-")
        assert ask == (one["asks"][0]["price"] if one["asks"] else "-")
        assert (spread == "-") if "-" in {bid, ask} else Decimal(spread) == Decimal(ask) - Decimal(bid)
        assert (int(bids), int(asks)) == (len(one["bids"]), len(one["asks"]))
    done = run("pairs", name, "--json", said=said)
    assert wire.pair_list_from_json(done.stdout.encode()) == open_feed(SAMPLE).read().pair_list()


def test_the_book_of_any_feed(source: tuple[object, str | None]):
    name, said = source
    one = BOOK
    done = run("book", name, "ADA", IUSD, said=said)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [row.split("\t") for row in done.stdout.splitlines()]
    asks = [["ask", level["price"], str(level["accumulated_liquidity"])] for level in one["asks"]]
    bids = [["bid", level["price"], str(level["accumulated_liquidity"])] for level in one["bids"]]
    assert rows == [["side", "price", "amount"], *reversed(asks), *bids]
    assert json.loads(run("book", name, "ADA", IUSD, "--json", said=said).stdout) == one
    cut = json.loads(run("book", name, "ADA", IUSD, "--json", "--depth", 1, said=said).stdout)
    assert cut == one | {"bids": one["bids"][:1], "asks": one["asks"][:1]}
    done = run("book", name, IUSD, "ADA", said=said)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Error: Pair {IUSD}/ADA not found\n")


def test_what_cannot_be_read_is_one_line_and_exit_code_3(tmp_path: Path):
    for command in (("pairs",), ("book", "ADA", IUSD)):
        done = run(command[0], tmp_path / "market.db", *command[1:])
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.endswith("market.db cannot be opened: No such file or directory\n")
        assert done.stderr.count("\n") == 1


def test_on_a_terminal_there_is_a_table_and_a_ladder(store: Path):
    run("publish", store, SAMPLE)
    table = on_terminal("pairs", store, columns=110)
    assert len(table) == 16
    assert all(len(plain(row)) <= 110 for row in table)
    assert "\x1b[1m" in table[0]
    assert plain(table[-1]) == "Identifiers are cut to fit; --wide shows them whole."
    assert len(on_terminal("pairs", store, "--wide", columns=100)) == 15
    narrow = on_terminal("pairs", store, columns=80)
    assert all(len(plain(row)) <= 80 for row in narrow)
    assert plain(narrow[-1]) == "There is no room for identifiers; --wide shows them."
    rows = on_terminal("book", store, "ADA", IUSD, "--depth", 2, columns=100)
    assert plain(rows[0]) == "ADA/iUSD"
    assert [plain(row).partition(" ")[0] for row in rows[4:]] == [
        "",
        "...",
        "ask",
        "ask",
        "---",
        "bid",
        "bid",
        "...",
    ]
    assert "█" in rows[6]
    assert len(on_terminal("book", store, "ADA", IUSD, columns=100)) == 5 + 10 + 1 + 10
    colourless = on_terminal("book", store, "ADA", IUSD, columns=100, NO_COLOR="1")
    assert not any("\x1b" in row for row in colourless)
    ascii_alone = on_terminal("book", store, "ADA", IUSD, columns=100, PYTHONIOENCODING="ascii")
    assert any("#" in row for row in ascii_alone)


def test_what_is_refused_is_an_exit_code_of_its_own(lines: Path):
    lines.write_text("nonsense\n" + LINES[0])
    done = run("pairs", lines)
    assert (done.returncode, done.stdout.count("\n")) == (5, 2)
    assert "line 1 rejected" in done.stderr


def test_a_pipe_that_is_closed_early_is_no_failure_that_is_told_of(store: Path):
    run("publish", store, SAMPLE)
    done = subprocess.run(
        ["sh", "-c", f"{COMMAND} pairs {store} | head -1"],
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.stdout.startswith("pair\t")
    assert done.stderr == ""
