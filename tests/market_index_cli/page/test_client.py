"""The JavaScript client and the bots of docs/clients.md, run against a real server."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from market_index import ADA, LiveIndex, OrderBook, Pair, __version__
from market_index.display import Token, Tokens
from market_index_feeds.service import SILENCE_SECONDS
from market_index_http.stream import audience
from tests.apps import composed
from tests.page import PAGE, app_with_page, token
from tests.service import Restartable, Service, served
from tests.waiting import DEADLINE_SECONDS

ROOT = Path(__file__).resolve().parents[3]
BOTS = sorted((ROOT / "docs" / "examples").glob("bot*"))
SNEK = token(b"SNEK")
EXACT = OrderBook.from_levels(
    Pair(SNEK, ADA),
    bids=[("1e-28", 2**53 + 1), ("0.5", 1)],
    asks=[("79228162514264337593543950335", 2**64 - 1), ("7.9228162514264337593543950335", 9007199254740995)],
    spot="0.1",
)
OTHER = OrderBook.from_levels(Pair(ADA, SNEK), bids=[("2", 5)])

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "client.mjs").write_text((PAGE / "client.js").read_text())
    for bot in BOTS:
        shutil.copy(bot, tmp_path)
    return tmp_path


@contextmanager
def running(folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([*command], stdout=pipe, stderr=pipe, text=True, cwd=folder) as process:
        try:
            yield process
        finally:
            process.kill()


def output(folder: Path, program: str, port: int, *arguments: str) -> list[str]:
    (folder / "program.mjs").write_text(HEAD + program)
    command = ["node", "program.mjs", f"http://127.0.0.1:{port}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def printed(book: OrderBook) -> dict[str, Any]:
    """Return the JSON of a book with the amounts as texts."""
    sides = {
        name: [
            {"price": format(level.price, "f"), "accumulated_liquidity": str(level.accumulated_liquidity)}
            for level in side
        ]
        for name, side in (("bids", book.bids), ("asks", book.asks))
    }
    spot = None if book.spot is None else format(book.spot, "f")
    return {"base": str(book.pair.base), "quote": str(book.pair.quote), "spot": spot, **sides}


HEAD = """
import { Client, comparePrices, parse } from "./client.mjs";
const [url, ...others] = process.argv.slice(2);
const client = new Client(url);
const print = (value) => console.log(JSON.stringify(value, (_, one) => (typeof one === "bigint" ? `${one}` : one)));
const report = (error) => print([error.status, error.message]);
"""

READ = """
const [base, quote] = others;
const book = await client.orderBook(base, quote);
print(book);
print(book === (await client.orderBook(base, quote)));
print((await client.pairList()).map((one) => `${one.base}/${one.quote} ${one.last_spot}`));
print(await client.orderBook("ADA", "ADA"));
await client.orderBook("lovelace", "ADA").catch(report);
await new Client(`${url}/elsewhere/`).pairList().catch(report);
await client.follow(["nonsense"], { onVersion: print }).catch(report);
await new Client("http://127.0.0.1:1").pairList().catch(report);
"""


def test_books_are_exact_and_cached_and_errors_are_raised(folder: Path):
    with served(composed(LiveIndex([EXACT, OTHER]), stream=True)) as service:
        found = [*map(json.loads, output(folder, READ, service.port, str(SNEK), "ADA"))]
    book, is_cached, pairs, absent, *errors = found
    assert (book, is_cached, absent) == (printed(EXACT), True, None)
    assert pairs == [f"{OTHER.pair} null", f"{EXACT.pair} 0.1"]
    assert [status for status, _ in errors] == [400, 404, 400, None]
    assert "Query parameter 'base': the identifier of this asset is ADA" in errors[0][1]
    assert errors[3][1] == "The service cannot be reached: bad port.", "with the cause"


def test_amounts_are_parsed_exactly_and_prices_are_compared_as_numbers(folder: Path):
    program = """
for (const text of [
  '{"accumulated_liquidity" : 9007199254740993}',
  '{"accumulated_liquidity":\\n18446744073709551615,"x":"\\\\"accumulated_liquidity\\\\":5"}',
]) print(parse(text));
for (const text of ["1e3", "1.0", "null"]) {
  try {
    print(parse(`{"accumulated_liquidity":${text}}`));
  } catch (error) {
    print(error.message);
  }
}
print(["10", "9.5", "0.5", "9", "0.45", "0.05"].sort(comparePrices));
"""
    assert [*map(json.loads, output(folder, program, 1))] == [
        {"accumulated_liquidity": "9007199254740993"},
        {"accumulated_liquidity": str(2**64 - 1), "x": '"accumulated_liquidity":5'},
        *[f"an amount must be an integer, got {text}" for text in ("1000", "1", "null")],
        ["0.05", "0.45", "0.5", "9", "9.5", "10"],
    ]


def test_the_package_for_npm_has_the_version_of_the_project_and_every_export_has_a_type(folder: Path):
    package = folder / "node_modules" / "market-index"
    package.mkdir(parents=True)
    for file in (ROOT / "npm" / "package.json", PAGE / "client.js", PAGE / "client.d.ts"):
        shutil.copy(file, package)
    program = """
import * as exported from "market-index";
print(Object.keys(exported));
"""
    [line] = output(folder, program, 1)
    types = (PAGE / "client.d.ts").read_text()
    assert sorted(json.loads(line)) == sorted(re.findall(r"^export (?:class|function) (\w+)", types, re.MULTILINE))
    assert json.loads((package / "package.json").read_text())["version"] == __version__


FOLLOW = """
const onVersion = ({ books, ...version }) => print({ ...version, books: [...books.values()] });
await client.follow(others, { onVersion, onSilence: (reason) => print(reason.message) });
"""


def test_each_version_is_whole_also_after_a_restart(folder: Path):
    live = LiveIndex([EXACT, OTHER])
    (folder / "program.mjs").write_text(HEAD + FOLLOW)
    server = Restartable(composed(live, stream=True))
    try:
        with running(folder, "node", "program.mjs", f"http://127.0.0.1:{server.port}") as process:
            assert process.stdout
            lines = process.stdout

            def following() -> Any:
                return json.loads(lines.readline())

            first = following()
            assert (first["isFirst"], {*first["changed"]}) == (True, {str(EXACT.pair), str(OTHER.pair)})
            # Many levels: the service sends the changed ones alone.
            deep = EXACT.apply(asks=[(f"0.{100 + number}", 2**60 + number) for number in range(50)])
            live.publish(deep)
            assert following()["changed"] == [str(EXACT.pair)]
            after = deep.apply(bids=[("0.05", 2**64 - 1)], asks=[("0.101", 0), ("0.1015", 9007199254740993)])
            live.publish(after, OTHER.apply(bids=[("1.5", 1)]))
            version = following()
            assert {*version["changed"]} == {str(EXACT.pair), str(OTHER.pair)}
            assert printed(after) in version["books"]
            live.retract(OTHER.pair)
            assert following()["books"] == [printed(after)]
            server.stop()
            live.publish(OTHER)
            live.retract(EXACT.pair)
            server.start()
            # It may have failed to connect in the meantime.
            reasons = []
            while not isinstance(found := following(), dict):
                reasons.append(found)
            assert reasons[0] == "The stream has ended." or reasons[0].startswith("The service cannot be reached: ")
            assert (found["isFirst"], found["books"]) == (True, [printed(OTHER)])
            assert {*found["changed"]} == {str(EXACT.pair), str(OTHER.pair)}
    finally:
        server.stop()


@contextmanager
def scripted(*bodies: bytes) -> Iterator[Service]:
    """A service whose streams are these texts, one for each connection, the last one again and again."""
    left = [*bodies]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            for part in (left.pop(0) if len(left) > 1 else left[0]).split(b"|"):
                self.wfile.write(part)
                self.wfile.flush()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Service(server.server_port)
        finally:
            server.shutdown()
            thread.join()


def test_events_in_any_pieces_are_read_and_a_contradiction_begins_a_new_connection(folder: Path):
    book = b'event: book\ndata: {"base":"A","quote":"B","spot":null,"bids":[],"asks":[]}\n\n'
    version = b'event: version\ndata: {"as_of":"slot 1","published_at":null}\n\n'
    change = book.replace(b"event: book", b"event: change").replace(b'"A"', b'"C"')
    program = """
const stopping = new AbortController();
const onVersion = ({ books, asOf }) => {
  print([[...books.keys()], asOf]);
  if (books.size > 1) stopping.abort();
};
await client.follow([], { onVersion, onSilence: (reason) => print(reason.message), signal: stopping.signal });
const failing = () => { throw new Error("of the caller"); };
await client.follow([], { onVersion: failing }).catch((error) => print(error.message));
"""
    # By the HTML standard: lines end with CR, LF or both, the space is optional, an event may have two lines of data.
    odd = (
        book.replace(b'"A"', b'"C"')
        .replace(b": ", b":")
        .replace(b',"quote"', b'\ndata: ,"quote"')
        .replace(b"\n", b"\r")
    )
    streams = [
        b"retry: 1\nid: 7\n" + book[:30] + b"|" + book[30:] + b":\n|:\n" + version[:-1] + b"|\n" + change + version,
        b"event: book\r|\ndata: nothing\r\n\r\n" + version,
        b":\n" + book + odd + version,
    ]
    with scripted(*streams) as service:
        found = [*map(json.loads, output(folder, program, service.port))]
    assert found == [
        [["A/B"], "slot 1"],
        "The service sent a change without a book: C/B.",
        "The service sent an invalid response.",
        [["A/B", "C/B"], "slot 1"],
        "of the caller",
    ]


def test_readers_give_up_after_two_missing_comments():
    silence = re.search(r"silence: (\d+),", (PAGE / "client.js").read_text())
    assert silence
    assert int(silence[1]) == 1000 * SILENCE_SECONDS
    assert SILENCE_SECONDS >= 2 * (audience.PING_SECONDS + audience.CHECK_SECONDS)


def test_a_silent_stream_is_lost_and_each_attempt_waits_longer(folder: Path):
    program = """
// Timers are a hundred times as fast.
const { setTimeout } = globalThis;
globalThis.setTimeout = (work, milliseconds, ...others) => setTimeout(work, milliseconds / 100, ...others);
const stopping = new AbortController();
const reasons = [];
const onSilence = (reason, milliseconds) => {
  reasons.push([reason.message, milliseconds]);
  if (reasons.length === 5) stopping.abort();
};
await client.follow([], { onVersion: print, onSilence, signal: stopping.signal });
print(new Set(reasons.map(([message]) => message)).size === 1 && reasons[0][0]);
print(reasons.map(([, milliseconds], at) => milliseconds >= 500 * 2 ** at && milliseconds <= 1000 * 2 ** at));
process.exit();
"""
    with silent() as service:
        assert [*map(json.loads, output(folder, program, service.port))] == [
            "The stream was silent for 5 seconds.",
            [True] * 5,
        ]


def test_a_stream_of_comments_without_a_version_is_reported_and_stays_open(folder: Path):
    """As that of a service into which nothing was published yet."""
    program = """
const stopping = new AbortController();
const onSilence = (reason, milliseconds) => {
  print([reason.message, milliseconds]);
  stopping.abort();
};
// Longer than any test: only the comments end the waiting.
const silence = 2 ** 30;
let now = 0;
performance.now = () => (now += 2 * silence);
const patient = new Client(url, { silence });
await patient.follow([], { onVersion: print, onSilence, signal: stopping.signal });
"""
    with scripted(b":\n\n") as service:
        assert [*map(json.loads, output(folder, program, service.port))] == [["The stream has sent no version.", None]]


def test_a_book_survives_json_and_responses_are_cached_up_to_a_number(folder: Path):
    program = """
const bounded = new Client(url, { cached: 2 });
const [base, quote] = others;
const book = await bounded.orderBook(base, quote);
print(JSON.stringify(parse(JSON.stringify(book))) === JSON.stringify(book));
console.log(JSON.stringify(book));
await bounded.pairList();
print(book === (await bounded.orderBook(base, quote)));
await bounded.orderBook(quote, base);
await bounded.pairList();
print(book === (await bounded.orderBook(base, quote)));
"""
    with served(composed(LiveIndex([EXACT, OTHER]))) as service:
        survives, book, *same = map(json.loads, output(folder, program, service.port, str(SNEK), "ADA"))
    assert (survives, book, same) == (True, printed(EXACT), [True, False])


def test_a_name_and_password_in_the_address_are_sent_by_basic_authentication(folder: Path):
    """`fetch` rejects such an address."""
    found = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"pairs":[]}')

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            program = "print(await new Client(url.replace('//', '//user:p%C3%A4ss%40@')).pairList());"
            assert output(folder, program, server.server_port) == ["[]"]
        finally:
            server.shutdown()
            thread.join()
    assert found == [f"Basic {b64encode('user:päss@'.encode()).decode()}"]


@contextmanager
def silent() -> Iterator[Service]:
    """A service that accepts connections, and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Service(listener.getsockname()[1])


@pytest.mark.parametrize("name", ["bot.py", "bot_sseclient.py"])
def test_a_bot_in_python_follows_through_a_restart_and_has_the_books_of_the_endpoint(folder: Path, name: str):
    pairs = [EXACT.pair, OTHER.pair]
    live = LiveIndex([EXACT, OTHER])
    server = Restartable(composed(live, stream=True))
    program = [sys.executable, "-W", "error", name, f"http://127.0.0.1:{server.port}", ",".join(map(str, pairs))]
    try:
        with running(folder, *program) as process:
            assert process.stdout
            lines = process.stdout

            def reads(price: str) -> None:
                """Read lines until a book has this best bid."""
                assert any(f" {price} " in line for line in iter(lines.readline, "")), "it has ended"

            assert f"{OTHER.pair} 2 -" in [lines.readline().strip(), lines.readline().strip()]
            deep = EXACT.apply(asks=[(f"0.{600 + number}", 2**60 + number) for number in range(50)])
            live.publish(deep)
            live.publish(deep.apply(bids=[("0.51", 2**53 + 1)], asks=[("0.6005", 9007199254740993)]))
            reads("0.51")
            server.stop()
            deep = deep.apply(bids=[("0.52", 2**53 + 1)])
            live.publish(deep)
            server.start()
            reads("0.52")
            # After the last whole book, a change that removes levels.
            live.publish(deep.apply(bids=[("0.53", 2**53 + 1)], asks=[("0.601", 0)]))
            reads("0.53")
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=DEADLINE_SECONDS)[0]
            assert (rest.count("equal"), "different" in rest, process.returncode) == (2, False, 0)
    finally:
        server.stop()


def test_the_bot_in_javascript_prints_names_and_whole_units(folder: Path):
    tokens = Tokens([Token(SNEK, "SNEK", decimals=2)])
    book = OrderBook.from_levels(Pair(SNEK, ADA), bids=[("25.5", 10)])
    with served(app_with_page(LiveIndex([book]), tokens=tokens)) as service:
        command = ["node", "bot.mjs", f"http://127.0.0.1:{service.port}", str(book.pair)]
        with running(folder, *command) as process:
            assert process.stdout
            assert process.stdout.readline() == "SNEK/ADA: 0.00255 / no ask\n"


@pytest.mark.parametrize("name", [path.name for path in BOTS])
def test_a_bot_in_40_lines_ends_with_the_reason_if_its_request_is_not_valid(folder: Path, name: str):
    """It would be rejected again and again."""
    assert len([line for line in (folder / name).read_text().splitlines() if line]) <= 40
    program = [sys.executable, "-W", "error", name] if name.endswith(".py") else ["node", name]
    with served(composed(LiveIndex([EXACT]), stream=True)) as service:
        command = [*program, f"http://127.0.0.1:{service.port}", "SNEK/ADA"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, cwd=folder, check=False
        )
    assert done.returncode == 1
    assert "an asset identifier must be" in done.stderr
