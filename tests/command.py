"""Runs the command in its own process, as a user does, or in the process of the test."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from click.testing import CliRunner

from market_index import wire
from market_index_cli.main import main
from tests.feeds.made_up import book
from tests.service import Service
from tests.waiting import DEADLINE_SECONDS, eventually

COMMAND = Path(sys.executable).with_name("market-index")
SAMPLE = Path(__file__).resolve().parents[1] / "docs" / "samples" / "order-books.ndjson"
LINES = SAMPLE.read_text().splitlines(keepends=True)
BOOK = next(one for one in map(json.loads, LINES) if one["base"] == "ADA" and one["asks"])
"""The book of a pair whose base is ADA."""


def line(number: int, spot: object = None) -> str:
    """Return the line of a made-up book."""
    return wire.order_book_to_json(book(number, spot)).decode() + "\n"


def invoke(*arguments: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, which takes a tenth of the time of its own process."""
    runner = CliRunner(env=environment, catch_exceptions=False)
    with own_signals_and_logging(), standard_input(stdin):
        result = runner.invoke(main, [*map(str, arguments)], prog_name=COMMAND.name)
    return subprocess.CompletedProcess("market-index", result.exit_code, result.stdout, result.stderr)


@contextmanager
def standard_input(text: str) -> Iterator[None]:
    """Make the text the standard input of this process: the command reads the descriptor."""
    before = os.dup(0)
    try:
        with TemporaryFile() as file:
            file.write(text.encode())
            file.seek(0)
            os.dup2(file.fileno(), 0)
            yield
    finally:
        os.dup2(before, 0)
        os.close(before)


@contextmanager
def own_signals() -> Iterator[None]:
    """Restore the signal handlers at the end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def own_signals_and_logging() -> Iterator[None]:
    """Hide the log handlers of pytest from the command; at the end, restore the signal handlers and log levels."""
    root = logging.getLogger()
    names = "market_index_feeds", "market_index_cli", "uvicorn.access", "uvicorn.error"
    loggers = [root, *map(logging.getLogger, names)]
    levels = [logger.level for logger in loggers]
    handlers, root.handlers = root.handlers, []
    try:
        with own_signals():
            yield
    finally:
        root.handlers = handlers
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def untimed(log: str) -> str:
    """Return the messages of a log in text, one per line."""
    return re.sub(r"^\S+Z [A-Z]+ [\w.]+(\[\d+\])?: ", "", log, flags=re.MULTILINE)


class Running:
    """A running command and its standard error."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self.process = process
        self._errors = errors

    @property
    def stderr(self) -> str:
        return self._errors.read_text()

    @property
    def service(self) -> Service:
        def listening() -> re.Match[str] | None:
            assert self.process.poll() is None, self.stderr
            return re.search(r"listening on http://127\.0\.0\.1:(\d+)[\n\"]", self.stderr)

        eventually(listening)
        found = listening()
        assert found
        return Service(int(found[1]))

    def has_logged(self, text: str, times: int = 1) -> None:
        """Wait until a text was logged so many times."""
        eventually(lambda: self.stderr.count(text) >= times)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_SECONDS)


@contextmanager
def started(errors: Path, *words: object, **options: Any) -> Iterator[Running]:
    """Run a program until the end of the block, with its standard error in a file."""
    with errors.open("wb") as file:
        process = subprocess.Popen(list(map(str, words)), stderr=file, **options)
    try:
        yield Running(process, errors)
    finally:
        # Ends the process of a failed test. Clean shutdowns are tested elsewhere.
        process.kill()
        process.wait(DEADLINE_SECONDS)


@contextmanager
def running(
    tmp_path: Path, *arguments: object, command: str = "serve", stdin: Any = subprocess.DEVNULL, **environment: str
) -> Iterator[Running]:
    """Run the command until the end of the block."""
    words = (COMMAND, command, *arguments)
    with started(tmp_path / f"errors of {command}", *words, stdin=stdin, env=os.environ | environment) as found:
        yield found


def read_all(descriptor: int) -> str:
    """Return the output of a pseudo-terminal until its other end is closed, and close it."""
    output = b""
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
    os.close(descriptor)
    return output.decode()
