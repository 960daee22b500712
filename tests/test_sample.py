"""`make serve` as one process, and the recording of `sample:`."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.command import COMMAND, Running, invoke, started
from tests.page import SNEK, token_of
from tests.service import Client
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[1]
CHANGED = ROOT / "docs" / "samples" / "changed.ndjson"
NEEDS_MAKE = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of the project in which the command is installed."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
        os.utime(folder / name, (0, 0))
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(COMMAND.parent)
    (folder / ".venv" / "serve.installed").touch()
    return folder


@contextmanager
def making(folder: Path, *arguments: str) -> Iterator[Running]:
    """Run `make serve` in a process group of its own, which is killed at the end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment["MARKET_INDEX_PORT"] = "0"
    words = ("make", "serve", *arguments)
    options = {"cwd": folder, "env": environment, "stdout": subprocess.DEVNULL, "start_new_session": True}
    with started(folder / "errors", *words, **options) as make:
        try:
            yield make
        finally:
            with suppress(ProcessLookupError):
                os.killpg(make.process.pid, signal.SIGKILL)


def has_ended(make: Running) -> bool:
    """Whether no process of the group is left."""
    make.process.poll()
    try:
        os.killpg(make.process.pid, 0)
    except ProcessLookupError:
        return True
    return False


@NEEDS_MAKE
def test_make_serve_shows_a_sample_that_changes_until_a_signal(clone: Path):
    with making(clone) as make:
        service = make.service
        assert len(service.pair_list().json["pairs"]) == 13
        with closing(Client(service.port)) as client:
            client.socket.sendall(b"GET /stream?levels=changed HTTP/1.1\r\nHost: test\r\n\r\n")
            received = b""
            while b"event: change" not in received:
                received += (chunk := client.socket.recv(65536))
                assert chunk
        health = service.request("/healthz")
        assert (health.status, health.json["problem"]) == (200, None)
        assert token_of(service, SNEK) == ("SNEK", 0)
        # Ctrl-C in a terminal.
        os.killpg(make.process.pid, signal.SIGINT)
        eventually(lambda: has_ended(make))
        assert "Traceback" not in make.stderr
    assert {path.name for path in clone.iterdir()} == {"Makefile", "pyproject.toml", ".venv", "errors"}


@NEEDS_MAKE
def test_make_serve_serves_another_feed(clone: Path):
    with making(clone, f"FEED={CHANGED}") as make:
        assert len(make.service.pair_list().json["pairs"]) == 1


@pytest.mark.parametrize("command", [("pairs", "sample:"), ("book", "sample:", "ADA", "iUSD")])
def test_the_sample_is_shown_once_with_its_labels(command: tuple[str, ...]):
    done = invoke(*command)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\t0.7901\t" in done.stdout


def test_the_recording_is_made_from_the_stream(recorded_level_changes: Path):
    made = subprocess.run(
        [COMMAND.with_name("python"), ROOT / "docs" / "samples" / "make_recording.py", recorded_level_changes],
        capture_output=True,
        check=True,
    )
    packaged = ROOT / "market_index_feeds" / "sample" / "recording.ndjson.gz"
    assert made.stdout == gzip.decompress(packaged.read_bytes())
