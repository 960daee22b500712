"""Producers of events of orders that are killed at any moment, while two workers serve the file that they write."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from market_index import ADA, wire
from tests.command import running
from tests.faults.orders_producer import events, orders
from tests.feeds.made_up import pair
from tests.service import Service
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread

pytestmark = pytest.mark.thorough

KILLS = int(os.environ.get("MARKET_INDEX_KILLS", "12"))


class Observer:
    """Requests the book repeatedly, and records each response that is not the book of the block that it names."""

    def __init__(self, service: Service) -> None:
        self.wrong: list[str] = []
        self.blocks: set[int] = set()
        self.is_over = Event()
        self._service = service

    def run(self) -> None:
        while not self.is_over.is_set():
            answer = self._service.order_book(str(pair(1).base), str(ADA))
            block = answer.headers.get(wire.AS_OF.lower(), "none")
            shown = {int(one["price"]): one["accumulated_liquidity"] for one in answer.json["asks"]}
            if not block.isdigit() or shown != orders(int(block)):
                self.wrong.append(f"{block}: {answer.json}")
            else:
                self.blocks.add(int(block))


def kill_in_a_life(path: Path, start: int, at: int) -> None:
    """Start a producer, and kill it after it has written this number of bytes."""
    size = path.stat().st_size
    with subprocess.Popen([sys.executable, "-m", "tests.faults.orders_producer", path, str(start)]) as process:
        eventually(lambda: process.poll() is not None or path.stat().st_size >= size + at)
        process.kill()


def test_every_served_book_is_that_of_a_block(tmp_path: Path):
    numbers = random.Random(KILLS)
    path = tmp_path / "events.ndjson"
    first, last = events(1000), events(1000 * (KILLS + 2))
    path.write_bytes(b"".join(first))
    with running(tmp_path, f"orders:{path}", "--port", 0, "--workers", 2) as command:
        service = command.service
        eventually(lambda: command.stderr.count("listening on") == 2)
        observer = Observer(service)
        thread = in_thread(observer.run)
        try:
            for life in range(2, KILLS + 2):
                kill_in_a_life(path, 1000 * life, numbers.randrange(len(b"".join(first))))
            with path.open("ab") as file:
                file.write(b"".join(last))
            states: dict[int, tuple[object, object]] = {}

            def are_current() -> bool:
                health = service.request("/healthz").json
                states[health["process"]] = health["as_of"], health["problem"]
                return list(states.values()) == [(str(1000 * (KILLS + 2) + 49), None)] * 2

            eventually(are_current)
        finally:
            observer.is_over.set()
            thread.join(DEADLINE_SECONDS)
    assert observer.wrong == []
    assert len(observer.blocks) > KILLS // 2, "it was killed before it had done anything, again and again"
    unfinished = [line for line in path.read_bytes().splitlines() if line and not is_json(line)]
    assert unfinished, "it was never killed in a line"


def is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
