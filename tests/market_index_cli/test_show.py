"""`market-index pairs` and `market-index book`."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from market_index import Freshness, LiveIndex, OrderBook, wire
from market_index_cli import terminal
from market_index_cli.tokens import Display
from market_index_feeds import open_feed, open_store
from market_index_http import create_app
from tests.command import BOOK, COMMAND, SAMPLE, invoke, read_all
from tests.feeds.contract.lines import book_line, retract_line
from tests.feeds.made_up import pair
from tests.feeds.test_recording import recorded
from tests.service import served
from tests.waiting import DEADLINE_SECONDS

IUSD = BOOK["quote"]


def on_terminal(*arguments: object, columns: int, **environment: str) -> list[str]:
    """Return the output of the command on a terminal with this number of columns."""
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


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """The URL of a service of the sample."""
    with served(create_app(LiveIndex(open_feed(SAMPLE).read().values()))) as running:
        yield f"http://127.0.0.1:{running.port}"


@pytest.mark.parametrize("source", [SAMPLE, "-", "service"])
def test_pairs_lists_a_feed(source: object, service: str):
    source = service if source == "service" else source
    done = invoke("pairs", source, stdin=SAMPLE.read_text())
    assert (done.returncode, done.stderr) == (0, "")
    rows = terminal.pair_rows(open_feed(SAMPLE).read().values(), Display())
    assert done.stdout.splitlines() == [*map("\t".join, rows)]
    done = invoke("pairs", source, "--json", stdin=SAMPLE.read_text())
    assert wire.pair_list_from_json(done.stdout.encode()) == open_feed(SAMPLE).read().pair_list()


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """The URL of a service of the sample that requires a key."""
    app = create_app(LiveIndex(open_feed(SAMPLE).read().values()))

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        has_key = scope["type"] != "http" or (b"x-api-key", b"secret") in scope["headers"]
        await (app if has_key else Response('{"error": "a key is required"}', 401))(scope, receive, send)

    with served(guard) as running:
        yield f"http://127.0.0.1:{running.port}"


class TestHeaders:
    """A service that requires a key, which is never an argument."""

    @pytest.mark.parametrize("command", [("pairs",), ("book", "ADA", IUSD), ("dump",)])
    def test_the_headers_of_a_file_are_sent(self, guarded: str, command: tuple[str, ...], tmp_path: Path):
        (tmp_path / "headers").write_text("X-API-Key: secret\n\nX-Other:  of another name \n")
        name, *arguments = command
        without = invoke(name, guarded, *arguments)
        assert (without.returncode, "401" in without.stderr) == (3, True)
        assert invoke(name, guarded, *arguments, "--headers", tmp_path / "headers").returncode == 0
        assert invoke(name, guarded, *arguments, MARKET_INDEX_HEADERS_FILE=str(tmp_path / "headers")).returncode == 0
        # Another feed ignores them.
        assert invoke("pairs", SAMPLE, "--headers", tmp_path / "missing").returncode == 0

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"A: b\nsecret", "line 2 of FILE must be 'Name: value'"),
            (b"X-API-Key: secret\xff", "FILE cannot be read: it must be ASCII text"),
            (None, "FILE cannot be read: No such file or directory"),
        ],
    )
    def test_a_wrong_file_is_wrong_usage_and_is_not_shown(
        self, guarded: str, content: bytes | None, reason: str, tmp_path: Path
    ):
        file = tmp_path / "headers"
        if content is not None:
            file.write_bytes(content)
        done = invoke("pairs", guarded, "--headers", file)
        assert (done.returncode, "secret" in done.stderr + done.stdout) == (2, False)
        assert reason.replace("FILE", str(file)) in done.stderr


@pytest.mark.parametrize("kind", ["store", "service"])
def test_book_shows_a_pair(kind: str, store: Path, service: str):
    invoke("publish", store, SAMPLE)
    source = store if kind == "store" else service
    done = invoke("book", source, "ADA", IUSD)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [row.split("\t") for row in done.stdout.splitlines()]
    asks = [["ask", level["price"], str(level["accumulated_liquidity"])] for level in BOOK["asks"]]
    bids = [["bid", level["price"], str(level["accumulated_liquidity"])] for level in BOOK["bids"]]
    assert rows == [["side", "price", "amount"], *reversed(asks), *bids]
    cut = json.loads(invoke("book", source, "ADA", IUSD, "--json", "--depth", 1).stdout)
    assert cut == BOOK | {"bids": BOOK["bids"][:1], "asks": BOOK["asks"][:1]}


class TestWatch:
    """`book --watch` in a pipe."""

    @pytest.fixture
    def watching(self) -> Iterator[subprocess.Popen[bytes]]:
        with watched("-") as process:
            yield process

    def test_only_changes_are_shown_until_the_end_of_the_input(self, lines: Path):
        """A replay yields each of its changes, also those below the depth."""
        books = [level_line(1, 2), level_line(1, 2), level_line(1, 2, "7"), level_line(2, 3)]
        lines.write_bytes(b"".join(book + recorded(second, f"slot {second}") for second, book in enumerate(books)))
        done = invoke("book", f"replay:{lines}?speed=1000", pair(1).base, "ADA", "--watch", "--depth", 1)
        first = "as_of\tslot 0\nside\tprice\tamount\nask\t2\t9\nbid\t1\t9\n"
        second = "as_of\tslot 3\nside\tprice\tamount\nask\t3\t9\nbid\t2\t9\n"
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{first}\n{second}", "")

    def test_the_end_of_standard_input_ends_it(self):
        done = invoke("book", "-", pair(1).base, "ADA", "--watch", "--json", stdin=level_line(1, 2).decode())
        assert (done.returncode, done.stdout, done.stderr) == (0, level_line(1, 2).decode(), "")

    def test_it_ends_by_a_signal(self, watching: subprocess.Popen[bytes]):
        assert watching.stdin
        assert watching.stdout
        watching.stdin.write(level_line(1, 2))
        watching.stdin.flush()
        assert watching.stdout.readline() == b"as_of\t-\n"
        watching.terminate()
        watching.communicate(timeout=DEADLINE_SECONDS)
        assert watching.returncode == 0

    def test_it_ends_when_its_reader_has_gone(self, tmp_path: Path):
        (tmp_path / "books.ndjson").write_bytes(level_line(1, 2))
        with watched(tmp_path / "books.ndjson") as process:
            assert process.stdout
            assert process.stdout.readline() == b"as_of\t-\n"
            process.stdout.close()
            assert process.wait(DEADLINE_SECONDS) == 1
            assert process.stderr
            assert process.stderr.read() == b""

    def test_a_retracted_book_that_returns_is_shown_again(self, watching: subprocess.Popen[bytes]):
        assert watching.stdin
        assert watching.stdout
        shown: list[bytes] = []
        for lines in (level_line(1, 2), retract_line(pair(1)), level_line(1, 2)):
            watching.stdin.write(lines)
            watching.stdin.flush()
            pipe = watching.stderr if lines == retract_line(pair(1)) else watching.stdout
            assert pipe
            shown += [pipe.readline() for _ in range(1 if pipe is watching.stderr else 4 + bool(shown))]
        assert shown[4:6] == [f"Pair {pair(1)} not found\n".encode(), b"\n"]
        assert shown[6:] == shown[:4]


def level_line(bid: int, ask: int, *more: str) -> bytes:
    """Return the line of a book with these prices, and more asks."""
    asks = [(str(ask), 9), *[(price, 1) for price in more]]
    return book_line(OrderBook.from_levels(pair(1), bids=[(str(bid), 9)], asks=asks))


@contextmanager
def watched(source: object, *options: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run `book --watch` until the end of the block."""
    words = map(str, [COMMAND, "book", source, pair(1).base, pair(1).quote, "--watch", *options])
    process = subprocess.Popen([*words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the sample, with what its books reflect."""
    path = tmp_path_factory.mktemp("fresh") / "market.db"
    with open_store(path) as opened:
        opened.update(open_feed(SAMPLE).read().values(), freshness=Freshness("slot 145000000"))
    return path


def require_fresh(command: tuple[object, ...], as_of: str, published: str) -> None:
    """Require the last lines of a command on a terminal, which a pipe does not have."""
    assert as_of == "as of slot 145000000"
    assert re.fullmatch(r"published at \S+ \S+ UTC", published)
    assert "slot" not in invoke(*command).stdout


def test_pairs_on_a_terminal_is_a_table_in_80_columns(fresh: Path):
    *table, as_of, published = on_terminal("pairs", fresh, columns=80)
    require_fresh(("pairs", fresh), as_of, published)
    assert len(table) == 15
    assert all(len(row) <= 80 for row in table)


def test_book_on_a_terminal_is_a_ladder_of_the_best_levels_also_without_its_characters(fresh: Path):
    command = ("book", fresh, "ADA", IUSD, "--depth", 2)
    *rows, as_of, published = on_terminal(*command, columns=100, PYTHONIOENCODING="latin-1")
    require_fresh(command, as_of, published)
    assert rows[0] == "ADA/iUSD"
    first_words = [row.partition(" ")[0] for row in rows[4:]]
    assert first_words == ["", "side", "...", "ask", "ask", "---", "bid", "bid", "..."]
