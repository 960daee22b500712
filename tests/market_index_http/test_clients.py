"""The JavaScript client of docs/clients.md, run by node against a real server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair
from market_index_feeds import open_feed
from tests.apps import composed
from tests.command import SAMPLE
from tests.service import Service, served
from tests.waiting import DEADLINE_SECONDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
SNEK = AssetId(bytes(28), b"SNEK")
EXACT = OrderBook.from_levels(
    Pair(SNEK, ADA),
    bids=[("1e-28", 2**53 + 1), ("0.5", 1)],
    asks=[("79228162514264337593543950335", 2**64 - 1), ("7.9228162514264337593543950335", 9007199254740995)],
    spot="0.1",
)

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


@pytest.fixture(scope="module")
def live() -> LiveIndex:
    return LiveIndex([EXACT, *open_feed(SAMPLE).read().values()])


@pytest.fixture(scope="module")
def service(live: LiveIndex) -> Iterator[Service]:
    with served(composed(live, stream=True)) as service:
        yield service


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, program in re.findall(
        r"^```js\n// ([\w-]+\.mjs)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE
    ):
        (tmp_path / name).write_text(program)
    return tmp_path


def node(folder: Path, program: str, service: Service, *arguments: str, options: Sequence[str] = ()) -> str:
    (folder / "program.mjs").write_text(program)
    return run(folder, "program.mjs", service, *arguments, options=options)


def run(folder: Path, program: str, service: Service, *arguments: str, options: Sequence[str] = ()) -> str:
    command = ["node", *options, program, f"http://127.0.0.1:{service.port}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_printed(levels: Any) -> list[dict[str, str]]:
    return [
        {"price": format(level.price, "f"), "accumulated_liquidity": f"{level.accumulated_liquidity}n"}
        for level in levels
    ]


READ = """
import { Reader } from "./market-index.mjs";
const [url, base, quote] = process.argv.slice(2);
const reader = new Reader(url);
const plain = (_, value) => (typeof value === "bigint" ? `${value}n` : value);
const report = (error) => console.log(error.message);
const book = await reader.orderBook(base, quote);
console.log(JSON.stringify(book, plain));
console.log(book === (await reader.orderBook(base, quote)));
console.log((await reader.pairList()).pairs.map((one) => `${one.base}/${one.quote}`).join());
console.log(await reader.orderBook("ADA", "ADA"));
await reader.orderBook("lovelace", "ADA").catch(report);
await new Reader(`${url}/elsewhere`).pairList().catch(report);
await reader.follow(["nonsense"], console.log).catch(report);
"""


def test_books_are_exact_and_cached_and_errors_are_raised(folder: Path, service: Service, live: LiveIndex):
    book, is_cached, pairs, absent, *errors = node(folder, READ, service, str(SNEK), "ADA").splitlines()
    sides = {"bids": as_printed(EXACT.bids), "asks": as_printed(EXACT.asks)}
    assert json.loads(book) == {"base": str(SNEK), "quote": "ADA", "spot": "0.1", **sides}
    assert (is_cached, absent) == ("true", "null")
    assert pairs.split(",") == [str(pair) for pair in live.current]
    assert [error.partition(" ")[0] for error in errors] == ["400:", "404:", "400:"]
    assert errors[0].startswith('400: {"error":"Query parameter \'base\': an asset identifier must be')


def test_amounts_are_read_exactly_with_any_white_space(folder: Path, service: Service):
    program = """
import { parse } from "./market-index.mjs";
for (const text of [
  '{"accumulated_liquidity" : 9007199254740993}',
  '{"accumulated_liquidity":\\n18446744073709551615,"x":"\\\\"accumulated_liquidity\\\\":5"}',
]) {
  const { accumulated_liquidity: amount, x } = parse(text);
  console.log(`${amount} ${typeof amount} ${x}`);
}
for (const text of ["1e3", "1.0", "null"]) {
  try {
    console.log(parse(`{"accumulated_liquidity":${text}}`));
  } catch (error) {
    console.log(error.message);
  }
}
"""
    assert node(folder, program, service).splitlines() == [
        "9007199254740993 bigint undefined",
        '18446744073709551615 bigint "accumulated_liquidity":5',
        "an amount must be an integer, got 1000",
        "an amount must be an integer, got 1",
        "an amount must be an integer, got null",
    ]


def test_the_source_text_of_numbers_gives_exact_amounts_or_an_error(folder: Path, service: Service):
    program = """
import { parse } from "./source.mjs";
const book = '{"accumulated_liquidity":9007199254740993}';
const parseAsBefore = JSON.parse;
JSON.parse = (text, reviver) => parseAsBefore(text, (key, value) => reviver(key, value));
try {
  console.log(parse(book));
} catch (error) {
  console.log(error.name);
}
JSON.parse = parseAsBefore;
console.log(`${parse(book).accumulated_liquidity}`);
"""
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    options = ["--harmony-json-parse-with-source"] if int(version[1:].split(".")[0]) < 21 else []
    assert node(folder, program, service, options=options).splitlines() == ["TypeError", "9007199254740993"]


def test_the_program_of_the_page_prints_every_book(folder: Path, service: Service, live: LiveIndex):
    lines = run(folder, "show.mjs", service).splitlines()
    assert len(lines) == len(live.current) == 14
    total = sum(level.accumulated_liquidity for level in (*EXACT.bids, *EXACT.asks))
    assert f"{SNEK}/ADA: 2 bids, 2 asks, {total} in total" in lines


FOLLOWED = """
import { Reader } from "./market-index.mjs";
const plain = (_, value) => (typeof value === "bigint" ? `${value}n` : value);
const reader = new Reader(process.argv[2]);
await reader.follow(process.argv.slice(3), (pair, book) => console.log(JSON.stringify([pair, book], plain)));
"""


def test_followed_books_are_exact_until_they_are_retracted(folder: Path):
    live = LiveIndex([EXACT])
    following = EXACT.apply(bids=[("0.5", 2**64 - 1)], asks=[("7.9228162514264337593543950335", 0)])
    (folder / "program.mjs").write_text(FOLLOWED)
    with served(composed(live, stream=True)) as service:
        command = ["node", "program.mjs", f"http://127.0.0.1:{service.port}", str(EXACT.pair)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
            assert process.stdout is not None
            for book in (EXACT, following):
                live.publish(book)
                pair, found = json.loads(process.stdout.readline())
                assert pair == str(book.pair)
                assert (found["bids"], found["asks"]) == (as_printed(book.bids), as_printed(book.asks))
            live.retract(EXACT.pair)
            assert json.loads(process.stdout.readline()) == [str(EXACT.pair), None]
            process.kill()
