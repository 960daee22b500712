"""Runs `market-index` and records what blocks its event loop: `python -m benchmarks.observed FILE serve FEED …`.

Without a command, the event loop does nothing else until SIGTERM: it is late only if the machine is.

A beat of the event loop is due every two milliseconds. How late each one is, is how long a request that arrives then
has to wait for the event loop: a loop that was blocked for 20 ms is late for ten beats. Garbage collections are
recorded too, because they block all threads. The file is written when the command ends. All times are seconds of the
monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
import sys
import time
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import cattrs
from attrs import Factory, define

from market_index_cli.main import main
from market_index_cli.server import serving
from market_index_cli.server.http_server import Server

BEAT_SECONDS: Final = 0.002


@define
class Observed:
    """What was recorded: how late each beat was, and the garbage collections."""

    first: float = 0
    """When the first beat was due."""

    late: list[float] = Factory(list)
    collections: list[tuple[float, int, float, int]] = Factory(list)
    """The start of each garbage collection, its generation, its seconds, and how many objects it freed."""

    @classmethod
    def load(cls, path: Path) -> Observed:
        return cattrs.structure(json.loads(path.read_text(encoding="utf-8")), cls)

    def since(self, begun: float) -> Observed:
        """Return what was recorded from a time on."""
        skipped = max(round((begun - self.first) / BEAT_SECONDS), 0)
        return Observed(begun, self.late[skipped:], [one for one in self.collections if one[0] >= begun])


@define
class Recorder:
    """Records into compact arrays: a growing heap would be part of what is measured."""

    first: float = 0
    late: array[float] = Factory(lambda: array("d"))
    collections: array[float] = Factory(lambda: array("d"))

    def beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """Record how late the beats are that are due, and schedule the next one."""
        now = time.monotonic()
        self.first = self.first or now
        while (late := now - self.first - len(self.late) * BEAT_SECONDS) >= 0:
            self.late.append(late)
        loop.call_later(-late, self.beat, loop)

    def collection(self, phase: str, info: Mapping[str, Any]) -> None:
        """Record a garbage collection: what `gc.callbacks` calls before and after each."""
        if phase == "start":
            self.collections.extend([time.monotonic(), info["generation"]])
        else:
            self.collections.extend([time.monotonic() - self.collections[-2], info["collected"]])

    def write(self, path: Path) -> None:
        fields = [iter(self.collections)] * 4
        content = {"first": self.first, "late": list(self.late), "collections": list(zip(*fields, strict=True))}
        path.write_text(json.dumps(content), encoding="utf-8")


def run(path: Path, arguments: list[str]) -> None:
    """Run the command with these arguments, and write what was recorded."""
    recorder = Recorder()

    class ObservedServer(Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            recorder.beat(asyncio.get_running_loop())

    gc.callbacks.append(recorder.collection)
    try:
        with patch.object(serving, "Server", ObservedServer):
            main(arguments)
    finally:
        gc.callbacks.remove(recorder.collection)
        recorder.write(path)


async def idle(path: Path) -> None:
    """Do nothing until SIGTERM, and write what was recorded."""
    loop, ended, recorder = asyncio.get_running_loop(), asyncio.Event(), Recorder()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    recorder.beat(loop)
    await ended.wait()
    recorder.write(path)


if __name__ == "__main__":
    if arguments := sys.argv[2:]:
        run(Path(sys.argv[1]), arguments)
    else:
        asyncio.run(idle(Path(sys.argv[1])))
