"""The example kupo_to_orders.py as a process: recorded responses, a failing Kupo, rollbacks, and served books."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from attrs import define, field, frozen
from kupo_to_orders import script_of

from tests.command import running
from tests.conftest import RECORDED
from tests.examples.datums import SPLASH, TOKEN, datum, output, splash
from tests.waiting import DEADLINE_SECONDS, eventually

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "kupo_to_orders.py"
SNEK = f"{TOKEN[0].hex()}:{TOKEN[1].hex()}"
BOBA = "abb15dbbcc5c7c80cebea450f4f2131ec1f5b27ca38b66418e4c9a51:424f4241"


@frozen
class State:
    """What Kupo has indexed: the outputs at its last block.

    A new block is announced before it is stored: with `former`, the first response to each pattern has these outputs.
    """

    slot: int
    outputs: Sequence[Any] = ()
    fork: str = "a"
    former: Sequence[Any] | None = None

    @property
    def tag(self) -> str:
        return f"{self.slot:07x}{self.fork}".ljust(64, "0")

    @property
    def text(self) -> str:
        return f"slot {self.slot} {self.tag[:8]}"


@define
class Kupo:
    """The state of a server, and how its responses are wrong: as its API says, and as a real one can fail."""

    state: State
    port: int = 0
    failure: str = ""
    requests: int = 0
    not_modified: int = 0
    answered: set[tuple[str, str]] = field(factory=set)
    """The tag and the pattern of each response."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def matches(self, state: State, pattern: str) -> list[Any]:
        """Return the outputs of a pattern: a credential with any stake part, or a policy with any name."""
        is_first = (state.tag, pattern) not in self.answered
        self.answered.add((state.tag, pattern))
        outputs = state.outputs if state.former is None or not is_first else state.former
        part, _, kind = pattern.partition("/")
        if kind == "*":
            return [one for one in outputs if script_of(one["address"]) == part]
        policy = pattern.removesuffix(".*")
        return [one for one in outputs if any(key.startswith(policy) for key in one["value"]["assets"])]


class Handler(BaseHTTPRequestHandler):
    """Answers `/matches/<pattern>?unspent&resolve_hashes` and `/health`."""

    protocol_version = "HTTP/1.1"
    kupo: Kupo

    def do_GET(self) -> None:
        kupo = self.kupo
        self.state = kupo.state  # a test may change it meanwhile
        kupo.requests += 1
        if kupo.failure == "closed":
            self.close_connection = True
        elif kupo.failure == "error":
            self.send(500, b'{"hint":"an error"}')
        elif self.path == "/health":
            self.send(202 if kupo.failure == "syncing" else 200, b"{}")
        elif self.headers["If-None-Match"] == self.state.tag and kupo.failure != "no block":
            kupo.not_modified += 1
            self.send(304, b"")
        else:
            self.send_matches()

    def send_matches(self) -> None:
        kupo = self.kupo
        pattern, _, flags = self.path.removeprefix("/matches/").partition("?")
        assert flags == "unspent&resolve_hashes"
        body = json.dumps(kupo.matches(self.state, pattern)).encode()
        match kupo.failure:
            case "another body":
                self.send(200, b'{"hint":"an error"}')
            case "half" | "half without a size" as failure:
                self.send(200, body[: len(body) // 2], size=len(body) if failure == "half" else None)
                self.close_connection = True
            case _:
                self.send(200, body)

    def send(self, status: int, body: bytes, size: int | None = -1) -> None:
        self.send_response(status)
        if self.kupo.failure == "no block":
            self.send_header("X-Most-Recent-Checkpoint", "0")
        else:
            self.send_header("X-Most-Recent-Checkpoint", str(self.state.slot))
            self.send_header("ETag", self.state.tag)
        if size is None:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(body) if size < 0 else size))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(kupo: Kupo) -> Iterator[Kupo]:
    """Serve a Kupo on its port, or on a free one."""
    handler = type("HandlerOfOne", (Handler,), {"kupo": kupo})
    with ThreadingHTTPServer(("127.0.0.1", kupo.port), handler) as server:
        kupo.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield kupo
        finally:
            server.shutdown()
            thread.join(DEADLINE_SECONDS)


FIRST, SECOND = (output(SPLASH, datum(splash(amount=amount)), amount) for amount in (5_000_000, 4_999_999))


def order_id(match: Any) -> str:
    return f"{match['transaction_id']}#{match['output_index']}"


PLACED_FIRST, PLACED_SECOND = (
    {"place": order_id(match), "base": SNEK, "quote": "ADA", "offered": "quote", "amount": amount}
    | {"price": "1000/5000000"}
    for match, amount in ((FIRST, 5_000_000), (SECOND, 4_999_999))
)
UNTRACKED = {"untrack": True, "base": SNEK, "quote": "ADA"}


def read_files(*arguments: object, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """Run the example until it ends."""
    return subprocess.run(
        [sys.executable, EXAMPLE, *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def state_file(folder: Path, name: str, *matches: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(matches))
    return path


@define
class Followed:
    """A running example and what it has written."""

    process: subprocess.Popen[bytes]
    path: Path

    @property
    def errors(self) -> str:
        return self.path.with_suffix(".errors").read_text()

    @property
    def blocks(self) -> list[list[Any]]:
        """The events of each block, the last of which is its text."""
        blocks: list[list[Any]] = [[]]
        for line in self.path.read_text().splitlines(keepends=True):
            if line.endswith("}\n"):
                event = json.loads(line)
                blocks[-1].append(event.get("block", event))
                blocks += [[]] if "block" in event else []
        return blocks[:-1]

    def block(self, number: int) -> list[Any]:
        """Wait for a block, and return its events."""

        def has_come() -> bool:
            assert self.process.poll() is None, self.errors
            return len(self.blocks) > number

        eventually(has_come)
        return self.blocks[number]


@contextmanager
def following(tmp_path: Path, kupo: Kupo) -> Iterator[Followed]:
    """Run the example until the test ends; it writes to a file."""
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "events.ndjson"
    # With it, a program that forgets to flush would pass.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, str(EXAMPLE), kupo.url, "--poll", "0.01"]
    with path.open("wb") as events, path.with_suffix(".errors").open("wb") as errors:
        process = subprocess.Popen(command, stdout=events, stderr=errors, env=environment)
    try:
        yield Followed(process, path)
    finally:
        process.kill()
        process.wait(DEADLINE_SECONDS)


@pytest.fixture
def kupo() -> Iterator[Kupo]:
    with serving(Kupo(State(100, [FIRST]))) as kupo:
        yield kupo


# Recorded responses


def test_each_file_is_a_state_and_a_block(tmp_path: Path):
    one, both, none = (
        state_file(tmp_path, "one.json", FIRST),
        state_file(tmp_path, "both.json", FIRST, SECOND),
        state_file(tmp_path, "none.json"),
    )
    done = read_files("--at", 1, one, both, both, none, one)
    assert done.returncode == 0
    assert done.stdout.startswith("\n{"), "an empty line ends the unfinished one of a killed program"
    assert [json.loads(line) for line in done.stdout.split("\n") if line] == [
        {"reset": True},
        PLACED_FIRST,
        {"block": "one.json"},
        PLACED_SECOND,
        {"block": "both.json"},
        {"block": "both.json (2)"},
        {"remove": order_id(FIRST)},
        {"remove": order_id(SECOND)},
        UNTRACKED,
        {"block": "none.json"},
        PLACED_FIRST,
        {"block": "one.json (2)"},
    ]


def test_the_name_of_a_file_becomes_a_valid_text(tmp_path: Path):
    names = ["é\n(2).json", " x ", "y" * 200, os.fsdecode(b"\xff.json")]
    done = read_files(*(state_file(tmp_path, name) for name in names))
    texts = [json.loads(line)["block"] for line in done.stdout.splitlines() if "block" in line]
    assert texts == ["???2?.json", "x", "y" * 150, "?.json"]


def test_a_listed_pair_is_tracked_without_orders(tmp_path: Path):
    done = read_files("--pair", f"ADA/{SNEK}", state_file(tmp_path, "a", FIRST), state_file(tmp_path, "b"))
    assert [json.loads(line) for line in done.stdout.splitlines() if line] == [
        {"reset": True},
        {"spot": None, "base": "ADA", "quote": SNEK},
        PLACED_FIRST | {"base": "ADA", "quote": SNEK, "offered": "base"},
        {"block": "a"},
        {"remove": order_id(FIRST)},
        {"block": "b"},
    ]


def test_an_invalid_pair_is_an_error():
    done = read_files("--pair", "ADA/ADA", "state.json")
    assert done.returncode == 2
    assert "--pair must be BASE/QUOTE" in done.stderr


def test_the_program_ends_quietly_when_its_reader_has_ended(tmp_path: Path):
    reading, writing = os.pipe()
    os.close(reading)
    done = read_files(state_file(tmp_path, "state.json"), stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


# A running Kupo


def test_each_block_of_kupo_is_a_block(tmp_path: Path, kupo: Kupo):
    with following(tmp_path, kupo) as followed:
        assert followed.block(0) == [{"reset": True}, PLACED_FIRST, kupo.state.text]
        eventually(lambda: kupo.not_modified > 5)
        assert kupo.requests - kupo.not_modified <= 2 * 6 + 1, "all patterns and the health, twice for a new block"
        kupo.state = State(120, [FIRST])
        assert followed.block(1) == [kupo.state.text], "a block without changes shows that the program is alive"
        kupo.state = State(140, [FIRST, SECOND])
        assert followed.block(2) == [PLACED_SECOND, kupo.state.text]


def test_a_block_that_is_announced_before_it_is_stored_is_read_again(tmp_path: Path, kupo: Kupo):
    """Kupo sets the tag within the transaction that stores the block, so a response can have the former outputs."""
    with following(tmp_path, kupo) as followed:
        followed.block(0)
        kupo.state = State(120, [SECOND], former=[FIRST])
        assert followed.block(1) == ["slot 120 0000078a"]
        assert followed.block(2) == [{"remove": order_id(FIRST)}, PLACED_SECOND, "slot 120 0000078a (2)"]


def test_a_rollback_restores_the_orders(tmp_path: Path, kupo: Kupo):
    """The slot goes back, to a block whose text was used before and to one of another fork."""
    first = kupo.state
    with following(tmp_path, kupo) as followed:
        followed.block(0)
        kupo.state = State(120, [SECOND])
        followed.block(1)
        kupo.state = first
        assert followed.block(2) == [{"remove": order_id(SECOND)}, PLACED_FIRST, f"{first.text} (2)"]
        kupo.state = State(100, [SECOND], fork="b")
        assert followed.block(3) == [{"remove": order_id(FIRST)}, PLACED_SECOND, kupo.state.text]


def test_a_failing_kupo_is_no_state_and_leaves_the_last_one(tmp_path: Path, kupo: Kupo):
    failures = ("error", "closed", "half", "half without a size", "another body", "no block", "syncing")
    kupo.failure = failures[0]
    with following(tmp_path, kupo) as followed:
        eventually(lambda: followed.errors.count("retrying") >= 2)
        assert followed.path.read_bytes() == b""
        kupo.failure = ""
        assert followed.block(0) == [{"reset": True}, PLACED_FIRST, kupo.state.text]
        for number, failure in enumerate(failures, 1):
            kupo.failure, kupo.state = failure, State(100 + 20 * number, [FIRST, SECOND])
            failed = followed.errors.count("retrying")
            eventually(lambda failed=failed: followed.errors.count("retrying") >= failed + 2)  # type: ignore[misc]  # a default has no type
            assert len(followed.blocks) == number
            kupo.failure = ""
            assert followed.block(number) == [*([PLACED_SECOND] if number == 1 else []), kupo.state.text]


# Through the command

CHAIN = [f"splash-chain-{name}" for name in ("1-placed", "2-filled", "3-placed", "4-filled")]
BID, ASK = (
    {"price": "257.1047028049608866615622813", "accumulated_liquidity": 19447},
    {"price": "1.2628853347157785", "accumulated_liquidity": 3888762},
)
BOOKS = [([BID], []), ([], []), ([], [ASK]), ([], [])]


def test_the_command_serves_the_books_of_a_kupo(tmp_path: Path):
    """The chain of real orders, one block after the other, and a rollback of two blocks."""
    states = [
        State(100 + 20 * at, json.loads((RECORDED / f"ledger/{name}.json").read_text()))
        for at, name in enumerate(CHAIN)
    ]
    with serving(Kupo(states[0])) as kupo:
        example = subprocess.Popen(
            [sys.executable, EXAMPLE, kupo.url, "--poll", "0.01", "--pair", f"{BOBA}/ADA"], stdout=subprocess.PIPE
        )
        try:
            with running(tmp_path, "orders:-", "--port", 0, stdin=example.stdout) as command:
                service = command.service
                for state, (expected_bids, expected_asks) in [*zip(states, BOOKS, strict=True), (states[1], BOOKS[1])]:
                    kupo.state = state

                    def has_arrived(state: State = state) -> bool:
                        return service.pair_list().headers.get("market-index-as-of", "").startswith(state.text)

                    eventually(has_arrived)
                    book = service.order_book(BOBA, "ADA").json
                    assert (book["bids"], book["asks"]) == (expected_bids, expected_asks)
                    assert service.request("/healthz").status == 200
        finally:
            example.kill()
            example.wait(DEADLINE_SECONDS)
            assert example.stdout
            example.stdout.close()
