"""Pairs by the names of their assets, on the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair, wire
from market_index.display import Tokens
from market_index_feeds import open_store
from tests.apps import composed
from tests.command import BOOK, COMMAND, SAMPLE, invoke
from tests.page import app_with_page
from tests.service import served
from tests.waiting import DEADLINE_SECONDS

IUSD = AssetId.parse(BOOK["quote"])
FIRST, SECOND = (AssetId(bytes([number]) * 28, b"TWIN") for number in (1, 2))


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """A folder with entries for iUSD, and for two tokens with the same ticker."""
    entries = [
        {"subject": IUSD.unit, "ticker": {"value": "USDI"}, "decimals": {"value": 6}},
        {"subject": FIRST.unit, "ticker": {"value": "T1"}, "decimals": {"value": 2}},
        {"subject": SECOND.unit, "ticker": {"value": "t1"}},
        {"subject": "x"},
    ]
    (tmp_path / "tokens.json").write_text(json.dumps(entries))
    return tmp_path


@pytest.fixture
def twins(tmp_path: Path) -> Path:
    """A file with the books of two tokens with the same names."""
    path = tmp_path / "twins.ndjson"
    books = [
        OrderBook.from_levels(Pair(one, ADA), bids=[("250.5", 1_234_567)], asks=[("300", 5)]) for one in (FIRST, SECOND)
    ]
    path.write_bytes(b"".join(wire.order_book_to_json(book) + b"\n" for book in books))
    return path


@pytest.mark.parametrize(("base", "quote"), [("ada", "iusd"), ("ADA", str(IUSD)), ("lovelace", IUSD.unit)])
def test_a_name_is_accepted_if_one_pair_fits(store: Path, base: str, quote: str):
    invoke("publish", store, SAMPLE)
    for source, stdin in ((store, ""), ("-", SAMPLE.read_text())):
        done = invoke("book", source, base, quote, "--json", stdin=stdin)
        assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, BOOK, "")


def test_a_name_of_the_registry_is_accepted(registry: Path):
    for name in ("usdi", "iUSD", f"USDI {IUSD.policy_id.hex()[:8]}"):
        done = invoke("book", SAMPLE, "ADA", name, "--json", "--tokens", registry)
        assert json.loads(done.stdout) == BOOK
        assert done.stderr.startswith(
            f"{registry}: 1 token left out; tokens.json entry 3: the policy id must have 56 digits"
        )
    assert invoke("book", SAMPLE, "ADA", "USDI").returncode == 1


def test_a_name_of_several_pairs_is_an_error_that_lists_them(twins: Path):
    done = invoke("book", twins, "TWIN", "ADA")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(
        "Error: 2 pairs are named TWIN/ADA; use the identifiers of one:\n"
        f"  TWIN/ADA: {FIRST} ADA\n"
        f"  TWIN/ADA: {SECOND} ADA\n"
    )


def test_with_a_registry_names_and_numbers_are_those_of_people(registry: Path, twins: Path):
    shown = invoke("pairs", twins, "--tokens", registry / "tokens.json").stdout
    headings, first, second = (row.split("\t") for row in shown.splitlines())
    assert headings[:5] == ["pair", "spot", "best bid", "best ask", "spread"]
    assert first[:5] == ["T1 01010101/ADA", "-", "0.02505", "0.03", "0.00495"]
    assert second[:5] == ["t1 02020202/ADA", "-", "0.0002505", "0.0003", "0.0000495"]
    done = invoke("book", twins, FIRST, "ADA", "--tokens", registry)
    assert done.stdout == "side\tprice\tamount\nask\t0.03\t0.05\nbid\t0.02505\t12345.67\n"
    assert "250.5" in invoke("book", twins, FIRST, "ADA", "--tokens", registry, "--json").stdout


def test_the_tokens_of_a_service_name_its_assets_and_a_pipe_has_its_smallest_units(registry: Path):
    live = LiveIndex([wire.order_book_from_json(json.dumps(BOOK).encode())])
    tokens = Tokens.from_json((registry / "tokens.json").read_bytes())
    with served(app_with_page(live, tokens=tokens)) as service:
        url = f"http://127.0.0.1:{service.port}"
        assert json.loads(invoke("book", url, "ada", "usdi", "--json").stdout) == BOOK
        first = invoke("book", url, "ada", "usdi").stdout.splitlines()[-1].split("\t")
        assert first[2] == str(BOOK["bids"][-1]["accumulated_liquidity"])
        assert invoke("pairs", url).stdout.splitlines()[1].startswith("ADA/USDI f66d78b4\t")
    # Another service has no names.
    with served(composed(live)) as service:
        assert invoke("pairs", f"http://127.0.0.1:{service.port}").stdout.splitlines()[1].startswith("ADA/iUSD\t")


def test_a_book_is_drawn_again_at_the_same_place_and_within_the_terminal(store: Path):
    pair, other = Pair(FIRST, ADA), Pair(SECOND, ADA)
    levels = {"bids": [(str(price), 1) for price in range(1, 50)], "asks": [(str(price), 1) for price in range(50, 99)]}
    ours, theirs = os.openpty()
    output = b""

    def shows(spot: int) -> bool:
        nonlocal output
        while f"spot {spot}\x1b".encode() not in output or not output.endswith(b"\x1b[J\r\n"):
            output += os.read(ours, 65536)
        first, *frames = output.split(b"\x1b[H")
        lines = frames[-1].decode().replace("\x1b[K", "").replace("\x1b[J", "").split("\r\n")
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 80
        # It is drawn over the last one: to clear the screen would flicker.
        return (first, len(frames)) == (b"", spot) and b"\x1b[2J" not in output

    with open_store(store) as publishing:
        publishing.publish(OrderBook.from_levels(pair, spot="1", **levels))
        command = [str(COMMAND), "book", str(store), "TWIN", "ADA", "--watch", "--depth", "40"]
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment) as process:
            assert process.stderr
            assert shows(1)
            publishing.publish(OrderBook(other, spot="9"))
            publishing.publish(OrderBook.from_levels(pair, spot="2", **levels))
            assert shows(2)
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_SECONDS) == 0
            assert process.stderr.read() == b""
    os.close(ours)
    os.close(theirs)
