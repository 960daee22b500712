"""The clients of docs/clients.md that wait for changes, run against a real server."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from market_index import ADA, AssetId, LiveIndex, OrderBook, Pair
from market_index_http import create_app
from tests.service import Restartable
from tests.waiting import DEADLINE_SECONDS, eventually

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
PROGRAM = re.compile(r"^```(?:js|python|sh)\n(?://|#) ([\w-]+\.(?:mjs|py|sh))\n(.*?)^```$", re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.thorough


def book(amount: int, number: int = 1) -> OrderBook:
    """A book whose best bid is a price of its own."""
    return OrderBook.from_levels(Pair(AssetId(number.to_bytes(28), b"SNEK"), ADA), bids=[(f"0.{amount}", 1)])


class Recording:
    """An app that counts the requests that wait in it."""

    def __init__(self, live: LiveIndex, max_wait: int) -> None:
        self._app = create_app(live, max_wait=max_wait)
        self.end_waits = self._app.end_waits
        self.requests = self.waiting = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        may_wait = scope["type"] == "http" and any(name == b"prefer" for name, _ in scope["headers"])
        self.requests += scope["type"] == "http"
        self.waiting += may_wait
        try:
            await self._app(scope, receive, send)
        finally:
            self.waiting -= may_wait


@frozen
class Client:
    """A running program, and the file that it prints into."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def text(self) -> str:
        assert self.process.poll() is None, self.output.read_text()
        return self.output.read_text()


@contextmanager
def client(folder: Path, name: str, port: int) -> Iterator[Client]:
    """Run a program of the page that follows the first pair, or all pairs."""
    for file, text in PROGRAM.findall(PAGE.read_text()):
        (folder / file).write_text(text)
    pair = book(1).pair
    commands = {
        "follow.mjs": ["node", "follow.mjs", f"http://127.0.0.1:{port}"],
        "follow.py": [sys.executable, "follow.py", f"127.0.0.1:{port}", str(pair.base), "ADA"],
        "follow.sh": ["sh", "follow.sh", f"http://127.0.0.1:{port}/trading-view/order-book?base={pair.base}&quote=ADA"],
    }
    command = commands[name]
    needed = "curl" if name == "follow.sh" else command[0]
    if shutil.which(needed) is None:
        pytest.skip(f"{needed} is not installed")
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        yield Client(process, folder / "output")
    finally:
        process.kill()
        process.wait(DEADLINE_SECONDS)


@pytest.mark.parametrize("name", ["follow.mjs", "follow.py", "follow.sh"])
@pytest.mark.parametrize("max_wait", [60, 0], ids=["waiting", "polling"])
def test_a_program_of_the_page_shows_each_change(tmp_path: Path, name: str, max_wait: int):
    live = LiveIndex([book(11)])
    app = Recording(live, max_wait)
    server = Restartable(app)
    try:
        with client(tmp_path, name, server.port) as one:
            eventually(lambda: "0.11" in one.text)
            if max_wait:
                for amount in (12, 13):
                    eventually(lambda: app.waiting == 1)
                    live.publish(book(amount))
                    eventually(lambda amount=amount: f"0.{amount}" in one.text)  # type: ignore[misc]  # a default has no type
                assert app.requests <= 8, "the program polls although its requests wait"
            else:
                live.publish(book(12))
                eventually(lambda: "0.12" in one.text)
                asked = app.requests
                eventually(lambda: app.requests > asked + 1)
                assert app.requests <= asked + 3
            live.retract(book(11).pair)
            absent = {"follow.mjs": "best bid none", "follow.py": "best bid None", "follow.sh": ""}[name]
            eventually(lambda: absent in one.text)
            live.publish(book(14))
            eventually(lambda: "0.14" in one.text)
    finally:
        server.stop()


@pytest.mark.parametrize("name", ["follow.mjs", "follow.py", "follow.sh"])
def test_a_program_of_the_page_survives_a_restart_of_the_service(tmp_path: Path, name: str):
    live = LiveIndex([book(11)])
    server = Restartable(create_app(live, max_wait=60))
    try:
        with client(tmp_path, name, server.port) as one:
            eventually(lambda: "0.11" in one.text)
            server.stop()
            live.publish(book(12))
            server.start()
            eventually(lambda: "0.12" in one.text)
    finally:
        server.stop()


def test_the_javascript_program_follows_50_pairs(tmp_path: Path):
    live = LiveIndex(book(11, number) for number in range(1, 51))
    app = Recording(live, 60)
    server = Restartable(app)
    try:
        with client(tmp_path, "follow.mjs", server.port) as one:
            eventually(lambda: app.waiting == 50)
            live.publish(*(book(12, number) for number in range(1, 51)))
            eventually(lambda: one.text.count("0.12") == 50)
            eventually(lambda: app.waiting == 50)
    finally:
        server.stop()
