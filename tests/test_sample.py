"""`make serve`: a sample that changes, and the end of both of its processes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from attrs import frozen

from market_index import MarketIndex
from market_index_feeds import open_feed, replay
from tests.command import COMMAND, Running
from tests.waiting import DEADLINE_SECONDS, eventually

ROOT = Path(__file__).resolve().parents[1]
CHANGED = ROOT / "docs" / "samples" / "changed.ndjson"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of the project in which the command is installed."""
    folder = tmp_path / "clone"
    shutil.copytree(ROOT / "docs" / "samples", folder / "docs" / "samples")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
        os.utime(folder / name, (0, 0))
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(COMMAND.parent)
    (folder / ".venv" / "serve.installed").touch()
    return folder


@frozen
class Making:
    """A running `make serve`, and its process group."""

    running: Running
    folder: Path

    def child(self) -> int:
        """Return the process id of the shell that make has started."""
        process = self.running.process.pid
        return int(Path(f"/proc/{process}/task/{process}/children").read_text())

    def has_ended(self) -> bool:
        """Whether no process of the group is left."""
        self.running.process.poll()
        try:
            os.killpg(self.running.process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def index(self) -> MarketIndex:
        return open_feed(self.folder / "sample.db").read()


@contextmanager
def making(folder: Path, *arguments: str, port: int = 0) -> Iterator[Making]:
    errors = folder / "errors"
    with errors.open("wb") as file:
        process = subprocess.Popen(
            ["make", "serve", *arguments],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
            | {"MARKET_INDEX_PORT": str(port)},
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield Making(Running(process, errors), folder)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_SECONDS)


def test_the_sample_changes_until_a_signal_ends_both_processes(clone: Path):
    with making(clone) as make:
        service = make.running.service
        before = make.index()
        eventually(lambda: make.index().changes_since(before)[0])
        health = service.request("/healthz")
        assert (health.status, health.json["problem"]) == (200, None)
        assert health.json["quiet_seconds"] < 30
        (changed,) = open_feed(CHANGED).read().values()
        subprocess.run(
            [clone / ".venv/bin/market-index", "publish", "sample.db", "docs/samples/changed.ndjson"],
            cwd=clone,
            check=True,
        )
        assert make.index()[changed.pair] == changed
        # Ctrl-C in a terminal.
        os.killpg(make.running.process.pid, signal.SIGINT)
        eventually(make.has_ended)
        assert "Traceback" not in make.running.stderr
        assert "Aborted" not in make.running.stderr
    with making(clone) as make:
        service = make.running.service
        assert service.request("/healthz").json["quiet_seconds"] < 30
        assert make.index()[changed.pair] == changed
        os.kill(make.child(), signal.SIGTERM)
        eventually(make.has_ended)


def test_a_port_in_use_is_an_error_that_leaves_no_process(clone: Path):
    with socket.create_server(("127.0.0.1", 0)) as used, making(clone, port=used.getsockname()[1]) as make:
        eventually(make.has_ended)
        assert make.running.process.returncode == 2
        assert "cannot listen on 127.0.0.1 port" in make.running.stderr


def test_another_feed_is_served_as_it_is(clone: Path):
    with making(clone, "FEED=docs/samples/changed.ndjson") as make:
        assert len(make.running.service.pair_list().json["pairs"]) == 1
        os.kill(make.child(), signal.SIGTERM)
        eventually(make.has_ended)
    assert not (clone / "sample.db").exists()


def test_the_recording_changes_no_pair_of_the_readme_and_lists_the_same_pairs_throughout():
    (changed,) = open_feed(CHANGED).read()
    sample = open_feed(ROOT / "docs" / "samples" / "order-books.ndjson").read()
    assert changed in sample
    path = ROOT / "docs" / "samples" / "recording.ndjson"
    assert path.stat().st_size < 1_000_000
    indexes = [index for _, index in replay(path)]
    assert {len(index) for index in indexes} == {8}
    assert all(pair in sample and pair != changed for index in indexes for pair in index)
    times = [time for time, _ in replay(path)]
    assert max((later - earlier).total_seconds() for earlier, later in pairwise(times)) < 10


def test_the_recording_is_made_from_the_stream(recorded_level_changes: Path):
    made = subprocess.run(
        [COMMAND.with_name("python"), ROOT / "docs" / "samples" / "make_recording.py", recorded_level_changes],
        capture_output=True,
        check=True,
    )
    assert made.stdout == (ROOT / "docs" / "samples" / "recording.ndjson").read_bytes()
