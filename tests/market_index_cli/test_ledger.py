"""The ledger through the command: `serve kupo:`, `market-index orders`, and the other readers of a feed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from market_index import ADA, Pair, wire
from market_index_feeds import open_feed
from tests.command import COMMAND, invoke, running, started
from tests.conftest import RECORDED
from tests.feeds.event_lines import RESET, block, place
from tests.feeds.ledger.datums import SATURNSWAP, datum, filled, output, saturnswap, shadowbook
from tests.feeds.ledger.stand_in import Block, Kupo, recorded_blocks, serving
from tests.feeds.made_up import pair
from tests.waiting import DEADLINE_SECONDS, eventually

CHAD = "97075bf380e65f3c63fb733267adbb7d42eec574428a754d2abca55b:436861726c6573207468652043686164"


@pytest.fixture(scope="module")
def recorded() -> Iterator[Kupo]:
    with serving(Kupo(recorded_blocks(RECORDED / "ledger"))) as kupo:
        yield kupo


def name_of(kupo: Kupo) -> str:
    return f"kupo:{kupo.url}"


@pytest.mark.parametrize("workers", [1, 2])
def test_the_books_of_the_ledger_are_served_and_follow_each_block(tmp_path: Path, workers: int):
    """A fill has a spot price, and a rollback takes it back. An output that is no order is counted."""
    order, how = filled(pair(1), 7, 1)
    broken = output(SATURNSWAP, datum(saturnswap(amount=-1)), 2)
    first = Block(100, [order, broken])
    second = Block(120, (), {f"{order['transaction_id']}#0": how})
    other = Block(110, (), fork="b")
    with (
        serving(Kupo([first], lag=7)) as kupo,
        running(tmp_path, name_of(kupo), "--port", 0, "--workers", workers) as command,
    ):
        service = command.service
        eventually(lambda: command.stderr.count("listening on") == workers)

        def shows(block: Block, spot: str | None, asks: int) -> None:
            """Wait until each worker has responded with the block, and check all responses with it."""
            processes: set[int] = set()

            def all_have_shown() -> bool:
                health = service.request("/healthz").json
                book = service.order_book(str(pair(1).base), "ADA")
                if book.headers.get(wire.AS_OF.lower()) == block.text:
                    assert (book.json["spot"], len(book.json["asks"])) == (spot, asks)
                if health["as_of"] == block.text:
                    processes.add(health["process"])
                return len(processes) == workers

            eventually(all_have_shown)

        shows(first, None, 1)
        assert service.pair_list().json["pairs"] == [{"base": str(pair(1).base), "quote": "ADA", "last_spot": None}]
        assert service.request("/healthz").json["skipped_outputs"] == {"unknown datum": 1}
        metrics = service.request("/metrics").body.decode()
        assert 'market_index_feed_skipped_outputs{reason="unknown datum",worker="0"} 1.0' in metrics
        figures = {"slot": 100, "slots behind the node": 7, "rollbacks": 0, "orders of SaturnSwap V3": 1}
        for name, value in figures.items():
            assert f'market_index_feed_figure{{figure="{name}",worker="0"}} {value}.0' in metrics
        kupo.blocks = [first, second]
        shows(second, "7", 0)
        kupo.blocks = [first, other]
        shows(other, None, 1)
        kupo.failure = "error"
        eventually(lambda: service.request("/healthz").json["problem"] is not None)
        assert command.end() == 0
        assert (
            "cannot be read: response to /health must have status 200, got 500; keeping its 1 pairs" in command.stderr
        )
        assert command.stderr.count("outputs skipped: 1 unknown datum (") == workers


def test_each_order_is_a_line_with_its_venue(recorded: Kupo):
    found = invoke("orders", name_of(recorded), CHAD, "ADA")
    assert (found.returncode, found.stderr) == (0, "")
    header, row = (line.split("\t") for line in found.stdout.splitlines())
    assert row == [
        "e" * 56 + "00000001#0",
        *(
            "Splash",
            "Charles the Chad/ADA",
            CHAD,
            "ADA",
            "bid",
            "2832390295/152648",
            "17191",
            "anyone",
            "318979755",
            "318992042",
            "-",
        ),
        "123886 lovelace per fill (prepaid); 900000 lovelace per step (prepaid)",
    ]
    assert len(header) == len(row)
    assert invoke("orders", name_of(recorded), CHAD, "ADA", "--venue", "geni").stdout.count("\n") == 1
    unknown = invoke("orders", name_of(recorded), "--venue", "zzz")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert re.search(r"Error: --venue must begin as one of .*, GeniusYield, .*, Splash, got 'zzz'\n$", unknown.stderr)


def test_an_order_as_json_has_what_the_builder_of_a_transaction_needs(recorded: Kupo):
    found = invoke("orders", name_of(recorded), CHAD, "ADA", "--json", "--venue", "splash")
    order = json.loads(found.stdout)
    assert order["id"] == "e" * 56 + "00000001#0"
    assert (order["network"], order["value"]["ADA"], order["datum_is_inline"]) == ("mainnet", 325_115_928, True)
    assert order["address"].startswith("addr1")
    assert order["datum"].startswith("d8799f")
    assert order["fees"][0] == {
        "of": "lovelace",
        "rate": "0",
        "amount": 123_886,
        "least": 0,
        "per": "fill",
        "is_prepaid": True,
    }


def test_all_orders_are_sorted_by_pair_side_and_price(recorded: Kupo):
    rows = [line.split("\t") for line in invoke("orders", name_of(recorded)).stdout.splitlines()[1:]]
    with open_feed(name_of(recorded)) as feed:
        feed.read()
    orders = feed.version.orders if feed.version is not None else None
    assert orders is not None
    assert {row[0] for row in rows} == set(orders)
    keys = [(Pair.parse(f"{row[3]}/{row[4]}"), row[5], orders[row[0]].price) for row in rows]
    assert keys == sorted(keys)
    assert {len(row) for row in rows} == {13}
    assert "2030-03-17T17:46:40Z" in {row[11] for row in rows}


def test_skipped_outputs_are_listed_with_the_reason(recorded: Kupo):
    found = invoke("orders", name_of(recorded), "--skipped")
    rows = {row[0]: row for row in (line.split("\t") for line in found.stdout.splitlines()[1:])}
    with open_feed(name_of(recorded)) as feed:
        feed.read()
    assert feed.version is not None
    assert {key: row[-1] for key, row in rows.items()} == {key: one.reason for key, one in feed.version.skipped.items()}
    assert {"expired", "no valid beacons", "unknown datum"} <= {row[-1] for row in rows.values()}
    (unreadable,) = (row for row in rows.values() if row[1] == "SaturnSwap V3")
    assert unreadable[2:4] + unreadable[5:] == ["-", unreadable[3], "-", "unknown datum"]


def test_orders_of_another_feed_have_no_venue(tmp_path: Path):
    (tmp_path / "events.ndjson").write_bytes(RESET + place("51ab#0", price="3/2") + block("1"))
    found = invoke("orders", f"orders:{tmp_path / 'events.ndjson'}")
    order_id, venue, *_, price, _, _, _, _, expiry, fee = found.stdout.splitlines()[1].split("\t")
    assert (order_id, venue, price, expiry, fee) == ("51ab#0", "-", "3/2", "-", "-")


def test_every_reader_of_a_feed_reads_the_ledger(recorded: Kupo, tmp_path: Path):
    assert invoke("pairs", name_of(recorded)).stdout.count("\n") == 13
    assert invoke("book", name_of(recorded), CHAD, "ADA").stdout.count("\n") == 2
    assert invoke("dump", name_of(recorded)).stdout.count('"base"') == 12
    listed = f"{name_of(recorded)}?pair=ADA/{CHAD}&only"
    assert invoke("book", listed, "ADA", CHAD).stdout.startswith("side\tprice\tamount\nask\t")
    for command, target in ("relay", "market.db"), ("record", "recording.ndjson"):
        with running(tmp_path, name_of(recorded), tmp_path / target, command=command) as program:
            program.has_logged("12 pairs")
            assert program.end() == 0
        with closing(open_feed(tmp_path / target)) as feed:
            index = feed.read()
            assert (len(index), index.as_of) == (12, recorded.blocks[-1].text)
            assert index.order_book(Pair.parse(f"{CHAD}/{ADA}")).bids


def test_one_command_runs_the_stand_in_and_the_server_and_one_signal_ends_both(tmp_path: Path):
    """`make ledger`. A terminal sends the signal to both. The last blocks are rolled back, and arrive again."""
    words = (sys.executable, "-m", "tests.feeds.ledger.stand_in", "--seconds", 0.2, COMMAND, "serve", "--port", 0)
    with started(tmp_path / "errors", *words, stdout=subprocess.DEVNULL, start_new_session=True) as command:
        assert len(command.service.pair_list().json["pairs"]) == 3
        slots = [0]

        def is_rolled_back() -> bool:
            slots.append(int(command.service.request("/healthz").json["as_of"].split()[1]))
            return slots[-1] < slots[-2]

        eventually(is_rolled_back)
        os.killpg(command.process.pid, signal.SIGINT)
        assert command.process.wait(DEADLINE_SECONDS) == 0
        assert "Traceback" not in command.stderr


MINE = """
from market_index_feeds.ledger.exchanges.shadowbook import SHADOWBOOK, offers
from market_index_feeds.ledger import Exchange

MINE = Exchange("Mine", "11" * 28, SHADOWBOOK, offers)
ALL = [MINE]
"""


@pytest.mark.parametrize("name", ["MINE", "ALL"])
def test_an_exchange_of_the_user_needs_no_program(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_exchanges.py").write_text(MINE)
    order = output("11" * 28, datum(shadowbook()), 5)
    with serving(Kupo([Block(100, [order])])) as kupo:
        found = invoke("orders", name_of(kupo), "--add-exchanges", f"my_exchanges:{name}")
        assert [line.split("\t")[1] for line in found.stdout.splitlines()] == ["venue", "Mine"]
        wrong = invoke("orders", name_of(kupo), "--add-exchanges", "my_exchanges:NOTHING")
        assert wrong.returncode == 2
        assert "names nothing" in wrong.stderr
        with running(
            tmp_path, name_of(kupo), "--port", 0, "--workers", 2, "--add-exchanges", f"my_exchanges:{name}"
        ) as command:
            assert len(command.service.pair_list().json["pairs"]) == 1
        arguments = name_of(kupo), tmp_path / "market.db", "--add-exchanges", f"my_exchanges:{name}"
        with running(tmp_path, *arguments, command="relay") as program:
            program.has_logged("1 pairs")
            assert program.end() == 0


def test_a_kupo_is_checked(recorded: Kupo):
    done = invoke("check", name_of(recorded))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["found", "version", recorded.version]
    assert {line.split()[1] for line in lines if line.startswith("passed")} == {"node", "lag", "patterns"}
    orders = [line.split() for line in lines if "outputs skipped" in line]
    with open_feed(name_of(recorded)) as feed:
        feed.read()
        assert feed.version is not None
        assert sum(int(words[words.index("orders,") - 1]) for words in orders) == len(feed.version.venue_orders or ())
    with serving(Kupo(recorded.blocks, patterns=["00/*"], lag=121)) as other:
        wrong = invoke("check", name_of(other))
    failed = [line.split()[1] for line in wrong.stdout.splitlines() if line.startswith("FAILED")]
    assert (wrong.returncode, failed) == (1, ["lag", "patterns"])
    assert invoke("check", "kupo:http://127.0.0.1:9").returncode == 3
