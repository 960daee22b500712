"""Publishing, retracting and looking at books by the command, as a user does it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from decimal import Decimal
from pathlib import Path

import pytest

from market_index import AssetId, LiveIndex, Pair, wire
from market_index_feeds import open_feed, open_store
from market_index_http import create_app
from tests.command import COMMAND, SAMPLE, run, running
from tests.market_index_feeds.made_up import book, pair, spots
from tests.service import served
from tests.waiting import eventually

LINES = SAMPLE.read_text().splitlines(keepends=True)
BOOK = next(one for one in map(json.loads, LINES) if one["base"] == "ADA" and one["asks"])
IUSD = BOOK["quote"]


def line(number: int, spot: object = None) -> str:
    return wire.order_book_to_json(book(number, spot)).decode() + "\n"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "market.db"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    return tmp_path / "books.ndjson"


class TestPublish:
    """market-index publish STORE BOOKS"""

    def test_a_file_is_published_and_the_store_is_made(self, store: Path):
        done = run("publish", store, SAMPLE)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{store}: 13 order books published, revision 1\n"
        assert open_feed(store).read() == open_feed(SAMPLE).read()

    def test_every_recorded_book_comes_back_as_plain_json_and_decimal_read_it(
        self, store: Path, recorded_order_books: Path
    ):
        assert run("publish", store, recorded_order_books).returncode == 0
        index = open_feed(store).read()
        assert len(index) == 756
        for text in recorded_order_books.read_text().splitlines():
            plain = json.loads(text)
            one = json.loads(wire.order_book_to_json(index[Pair(*map(AssetId.parse, (plain["base"], plain["quote"])))]))
            for side in ("bids", "asks"):
                assert [(Decimal(level["price"]), level["accumulated_liquidity"]) for level in one[side]] == [
                    (Decimal(level["price"]), level["accumulated_liquidity"]) for level in plain[side]
                ]

    def test_what_is_refused_is_named_by_its_line_and_costs_nothing_else(self, store: Path, lines: Path):
        lines.write_text(line(1, 1) + "nonsense\n" + line(2, 2) + line(3)[:40] + "\n" + line(4, 4) + line(5)[:-1])
        done = run("publish", store, lines)
        assert done.returncode == 5
        assert done.stdout == f"{store}: 3 order books published, revision 1\n"
        assert f"{lines} line 2 refused: not JSON at character 0" in done.stderr
        assert f"{lines} line 4 refused: not JSON" in done.stderr
        assert f"{lines} line 6 refused: it was not finished by a newline" in done.stderr
        assert done.stderr.endswith(f"{lines}: 3 lines refused: 2, 4, 6\n")
        assert spots(open_feed(store).read()) == {1: "1", 2: "2", 4: "4"}

    def test_of_many_refused_lines_the_first_are_named(self, store: Path):
        done = run("publish", store, "-", said="nonsense\n" * 25)
        assert done.returncode == 5
        assert done.stdout == f"{store}: 0 order books published, revision 0\n"
        numbers = ", ".join(map(str, range(1, 21)))
        assert done.stderr.endswith(f"standard input: 25 lines refused: {numbers} and 5 more\n")

    def test_standard_input_is_published_as_it_comes(self, store: Path):
        with subprocess.Popen(
            [COMMAND, "publish", store, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdin
            assert process.stdout
            process.stdin.write(line(1, 1).encode())
            process.stdin.flush()
            eventually(lambda: store.exists() and spots(open_feed(store).read()) == {1: "1"})
            assert process.poll() is None
            process.stdin.write(line(2, 2).encode() + line(1, 3).encode())
            process.stdin.close()
            assert process.stdout.read().decode() == f"{store}: 3 order books published, revision 2\n"
            assert process.wait(30) == 0
        assert spots(open_feed(store).read()) == {1: "3", 2: "2"}

    def test_it_does_not_keep_what_it_refuses(self, store: Path):
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
            assert process.wait(30) == 5

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_an_interrupted_one_says_how_far_it_came(self, store: Path, number: signal.Signals):
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
            assert process.wait(30) == 1

    def test_a_file_can_be_made_the_whole_of_the_store(self, store: Path, lines: Path):
        lines.write_text(line(1, 1) + line(2, 2) + line(3, 3))
        assert run("publish", store, lines).returncode == 0
        lines.write_text(line(2, 2) + line(3, 9) + line(4, 4))
        done = run("publish", store, lines, "--replace")
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
    def test_a_refused_line_keeps_the_pair_that_it_names_or_may_name(
        self, store: Path, lines: Path, bad: str, kept: int, left: dict[int, str]
    ):
        lines.write_text(line(1, 1) + line(2, 2) + line(3, 3) + line(4, 4))
        assert run("publish", store, lines).returncode == 0
        lines.write_text(line(2, 9) + bad)
        done = run("publish", store, lines, "--replace")
        assert done.returncode == 5
        assert f"1 are new, {3 - kept} pair" in done.stdout
        assert f" retracted, {kept} kept because of refused lines" in done.stdout
        assert spots(open_feed(store).read()) == left

    @pytest.mark.parametrize("content", ["", "nonsense\n"])
    def test_nothing_replaces_nothing(self, store: Path, content: str):
        """A producer that died at once must not cost every price."""
        run("publish", store, SAMPLE)
        done = run("publish", store, "-", "--replace", said=content)
        assert (done.returncode, done.stdout) == (5, "")
        assert "Error: standard input holds no order book: nothing was changed\n" in done.stderr
        assert len(open_feed(store).read()) == 13

    def test_a_large_file_shows_on_a_terminal_how_it_gets_on(self, store: Path, lines: Path):
        lines.write_text("".join(LINES) * 600)
        assert lines.stat().st_size > 4 * 1024 * 1024
        ours, theirs = pty.openpty()
        with subprocess.Popen([COMMAND, "publish", store, lines], stdout=subprocess.DEVNULL, stderr=theirs) as process:
            os.close(theirs)
            shown = read_all(ours)
            assert process.wait(60) == 0
        assert f"{lines}" in shown
        assert "100%" in shown

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("market.db", "nowhere.ndjson"), "nowhere.ndjson cannot be opened: No such file or directory"),
            (("/sys/market.db", SAMPLE), "/sys/market.db cannot be opened: "),
            (("nowhere/market.db", SAMPLE), "nowhere/market.db cannot be opened: "),
            ((SAMPLE, SAMPLE), "it is not a store: not a SQLite file"),
            (("amqp://host/books", SAMPLE), "'amqp' is not a kind of store that is known"),
        ],
    )
    def test_what_cannot_be_opened_is_one_line_and_exit_code_3(
        self, tmp_path: Path, arguments: tuple[object, ...], reason: str
    ):
        done = subprocess.run(
            [COMMAND, "publish", *map(str, arguments)], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert done.returncode == 3
        assert done.stderr.startswith("Error: ")
        assert reason in done.stderr
        assert done.stderr.count("\n") == 1
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("books", "reason"),
        [("http://127.0.0.1:1", "but no URL"), ("market.db", "market.db is a store")],
    )
    def test_what_is_no_file_of_lines_is_wrong_usage(self, tmp_path: Path, books: str, reason: str):
        done = subprocess.run(
            [COMMAND, "publish", "new.db", books], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert done.returncode == 2
        assert reason in done.stderr
        assert list(tmp_path.iterdir()) == []

    def test_what_cannot_be_read_on_is_one_line_and_exit_code_3(self, store: Path):
        for arguments in ((), ("--replace",)):
            done = run("publish", store, "/proc/self/mem", *arguments)
            assert (done.returncode, done.stderr) == (3, "Error: Input/output error\n")

    @pytest.mark.parametrize("wait", ["nan", "-1", "soon"])
    def test_what_is_no_number_of_seconds_is_wrong_usage(self, store: Path, wait: str):
        done = run("publish", store, SAMPLE, "--wait", wait)
        assert done.returncode == 2
        assert "is not a number of seconds, 0 or more." in done.stderr

    def test_a_store_that_others_write_to_is_waited_for_so_long(self, store: Path):
        with open_store(store) as other:
            with other._change():  # type: ignore[attr-defined]  # what another process would hold
                begun = time.monotonic()
                done = run("publish", store, SAMPLE, "--wait", 0.3)
                assert 0.3 < time.monotonic() - begun < 30
            assert done.returncode == 3
            assert "was not written to: others have been writing for 0.3 seconds" in done.stderr
            assert done.stdout == ""
            assert run("publish", store, SAMPLE, "--synchronous", "normal").returncode == 0

    def test_who_does_not_wait_for_the_summary_is_told_nothing(self, store: Path):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([COMMAND, "publish", store, SAMPLE], stdout=writing, stderr=subprocess.PIPE, check=False)
        os.close(writing)
        assert (done.returncode, done.stderr) == (1, b"")
        assert len(open_feed(store).read()) == 13


class TestRetract:
    """market-index retract STORE BASE QUOTE"""

    def test_a_pair_is_retracted_and_one_that_is_not_there_is_told_of(self, store: Path):
        run("publish", store, SAMPLE)
        done = run("retract", store, "ADA", IUSD)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{store}: ADA/{IUSD} retracted, revision 2\n", "")
        assert len(open_feed(store).read()) == 12
        done = run("retract", store, "ADA", IUSD)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Error: Pair ADA/{IUSD} not found\n")

    def test_a_store_that_is_not_there_is_not_made(self, store: Path):
        done = run("retract", store, "ADA", IUSD)
        assert (done.returncode, done.stderr) == (3, f"Error: {store} cannot be opened: No such file or directory\n")
        assert list(store.parent.iterdir()) == []

    def test_what_is_no_identifier_is_wrong_usage(self, store: Path):
        done = run("retract", store, "ada", IUSD)
        assert done.returncode == 2
        assert "Invalid value for 'BASE': 'ada'" in done.stderr


class TestLooking:
    """market-index pairs FEED, market-index book FEED BASE QUOTE"""

    @pytest.fixture(params=["store", "file", "stdin", "service"])
    def source(self, request: pytest.FixtureRequest, store: Path):
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

    def test_the_pairs_of_any_feed(self, source: tuple[object, str | None]):
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

    def test_the_book_of_any_feed(self, source: tuple[object, str | None]):
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

    def test_what_cannot_be_read_is_one_line_and_exit_code_3(self, tmp_path: Path):
        for command in (("pairs",), ("book", "ADA", IUSD)):
            done = run(command[0], tmp_path / "market.db", *command[1:])
            assert (done.returncode, done.stdout) == (3, "")
            assert done.stderr.endswith("market.db cannot be opened: No such file or directory\n")
            assert done.stderr.count("\n") == 1

    def test_on_a_terminal_there_is_a_table_and_a_ladder(self, store: Path):
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

    def test_what_is_refused_is_an_exit_code_of_its_own(self, lines: Path):
        lines.write_text("nonsense\n" + LINES[0])
        done = run("pairs", lines)
        assert (done.returncode, done.stdout.count("\n")) == (5, 2)
        assert "line 1 refused" in done.stderr

    def test_a_pipe_that_is_closed_early_is_no_failure_that_is_told_of(self, store: Path):
        run("publish", store, SAMPLE)
        done = subprocess.run(
            ["sh", "-c", f"{COMMAND} pairs {store} | head -1"], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout.startswith("pair\t")
        assert done.stderr == ""


class TestServing:
    """market-index serve STORE"""

    def test_a_store_is_served_and_its_changes_go_live(self, store: Path, tmp_path: Path):
        run("publish", store, SAMPLE)
        with running(tmp_path, store, "--port", 0) as command:
            service = command.service
            assert command.said.startswith(f"{store}: 13 pairs, 0 rows refused\nlistening on http://")
            assert len(service.pair_list().json["pairs"]) == 13
            run("publish", store, "-", said=line(1, 1))
            eventually(lambda: len(service.pair_list().json["pairs"]) == 14)
            assert run("retract", store, pair(1).base, "ADA").returncode == 0
            eventually(lambda: len(service.pair_list().json["pairs"]) == 13)
            assert command.end() == 0


def memory_of(process: int) -> int:
    """How many bytes a process holds in memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read_all(descriptor: int) -> str:
    """What comes out of a terminal until whoever writes to it has gone."""
    shown = b""
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
    os.close(descriptor)
    return shown.decode()


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
        assert process.wait(60) == 0, shown
    return shown.splitlines()


def plain(text: str) -> str:
    """The text without its colours."""
    parts = text.split("\x1b[")
    return parts[0] + "".join(part.partition("m")[2] for part in parts[1:])
