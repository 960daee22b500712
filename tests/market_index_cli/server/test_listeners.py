"""The socket of the server: a path, or a socket that is passed as systemd passes it; and proxies in front of it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TextIO

import pytest

from market_index_cli.server import listeners
from tests.command import COMMAND, SAMPLE, Running, invoke, running
from tests.service import Client
from tests.waiting import DEADLINE_SECONDS, eventually

ACTIVATE = shutil.which("systemd-socket-activate")

# The process keeps its id when it becomes the command.
PASS = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.argv[2], sys.argv[2:])
"""


@contextmanager
def activated(folder: Path, listener: socket.socket | TextIO, *options: object) -> Iterator[Running]:
    """Run `serve` with a socket that is passed as systemd passes it."""
    folder.mkdir()
    errors = folder / "errors"
    words = [sys.executable, "-c", PASS, listener.fileno(), COMMAND, "serve", SAMPLE, *options]
    with errors.open("wb") as file:
        process = subprocess.Popen(list(map(str, words)), pass_fds=[listener.fileno()], stderr=file)
    try:
        yield Running(process, errors)
    finally:
        process.kill()
        process.wait(DEADLINE_SECONDS)


@pytest.fixture
def passed() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_a_passed_socket_takes_precedence_over_options(tmp_path: Path, passed: socket.socket):
    port = passed.getsockname()[1]
    with activated(tmp_path / "one", passed, "--port", 1, "--uds", tmp_path / "unused") as command:
        assert command.service.port == port
        assert len(command.service.pair_list().json["pairs"]) == 13
        assert command.end() == 0
    assert not (tmp_path / "unused").exists()


@pytest.mark.skipif(ACTIVATE is None, reason="systemd-socket-activate is not installed: apt-get install systemd")
def test_it_accepts_the_socket_of_systemd(tmp_path: Path):
    path = tmp_path / "activated.sock"
    arguments = [ACTIVATE, "-l", path, COMMAND, "serve", SAMPLE]
    errors = tmp_path / "errors"
    with errors.open("wb") as file:
        process = subprocess.Popen(list(map(str, arguments)), stderr=file)
    try:
        eventually(lambda: f"Listening on {path}" in errors.read_text())
        assert pairs_at(path) == 13, "the first connection starts the command"
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 0
    finally:
        process.kill()
        process.wait(DEADLINE_SECONDS)


def environment(sockets: str) -> dict[str, str]:
    return {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": sockets}


def test_a_socket_for_another_process_is_not_used():
    assert listeners.passed_socket({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) is None
    assert listeners.passed_socket({}) is None


@pytest.mark.parametrize("count", ["0", "2", ""])
def test_exactly_one_socket_is_passed(count: str):
    done = invoke("serve", SAMPLE, **environment(count))
    assert done.returncode == 4
    message = f"exactly one socket must be passed, got LISTEN_FDS={count}"
    assert done.stderr == f"Error: cannot listen on the passed socket: {message}\n"


def test_a_descriptor_that_is_no_listening_socket_is_one_line_and_exit_code_4(tmp_path: Path):
    must = "the passed socket must be a stream socket that listens (ListenStream=, Accept=no)"
    with socket.socket() as bound, (tmp_path / "file").open("w") as file:
        bound.bind(("127.0.0.1", 0))
        cases: list[tuple[socket.socket | TextIO, str]] = [(bound, must), (file, "Socket operation on non-socket")]
        for one, message in cases:
            with activated(tmp_path / str(one.fileno()), one) as command:
                assert command.process.wait(DEADLINE_SECONDS) == 4
                assert command.stderr == f"Error: cannot listen on the passed socket: {message}\n"


def pairs_at(path: Path) -> int:
    with closing(Client(path)) as client:
        return len(client.request("/trading-view/pair-list").json["pairs"])


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_it_serves_on_a_path_and_uses_it_again(tmp_path: Path, workers: int):
    path = tmp_path / "index.sock"
    for end in (signal.SIGKILL, signal.SIGTERM):
        with running(tmp_path, SAMPLE, "--uds", path, "--workers", workers) as command:
            command.has_logged(f"listening on unix:{path}\n", workers)
            assert pairs_at(path) == 13
            assert stat.S_IMODE(path.stat().st_mode) == 0o666
            command.end(end)


def test_a_path_in_use_is_exit_code_4_also_if_no_connection_is_accepted(tmp_path: Path):
    path = tmp_path / "index.sock"
    with socket.socket(socket.AF_UNIX) as other, ExitStack() as stack:
        other.bind(str(path))
        other.listen(0)
        is_full = False
        while not is_full:
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(0)
            try:
                client.connect(str(path))
            except BlockingIOError:
                is_full = True
        done = invoke("serve", SAMPLE, "--uds", path)
    assert (done.returncode, done.stderr) == (4, f"Error: cannot listen on {path}: Address already in use\n")


def test_the_log_names_the_client_of_a_trusted_proxy(tmp_path: Path):
    """By default no proxy is trusted, also if the variable is set that uvicorn reads; `*` is also a Unix socket."""
    path, trust = tmp_path / "index.sock", "--forwarded-allow-ips"
    for options, client in (
        ((), "127.0.0.1:"),
        ((trust, "10.0.0.0/8", trust, "127.0.0.0/8"), "203.0.113.7:"),
        ((trust, "*", "--uds", path), "203.0.113.7:0 "),
    ):
        with running(tmp_path, SAMPLE, "--port", 0, "--access-log", *options, FORWARDED_ALLOW_IPS="*") as command:
            command.has_logged("listening on")
            with closing(Client(path if path in options else command.service.port)) as connection:
                connection.request("/healthz", headers="X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\n")
            command.has_logged("GET /healthz")
            assert f": {client}" in command.stderr.splitlines()[-1]
