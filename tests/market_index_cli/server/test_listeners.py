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

import pytest

from market_index_cli.server import listeners
from tests.command import COMMAND, SAMPLE, Running, invoke, run, running
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
def activated(folder: Path, listener: socket.socket, *options: object) -> Iterator[Running]:
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


def test_a_passed_unix_socket_stays_at_the_end(tmp_path: Path):
    path = tmp_path / "passed.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with activated(tmp_path / "one", listener) as command:
            eventually(lambda: f"listening on unix:{path}\n" in command.stderr)
            assert pairs_at(path) == 13
            assert command.end() == 0
    assert path.is_socket()


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


def test_a_descriptor_that_is_no_socket_is_one_line_and_exit_code_4():
    script = 'LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" serve "$1" 3</dev/null'
    done = subprocess.run(
        ["sh", "-c", script, COMMAND, SAMPLE], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (
        4,
        "Error: cannot listen on the passed socket: Socket operation on non-socket\n",
    )


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, pytest.param(socket.SOCK_DGRAM, marks=pytest.mark.thorough)])
def test_a_socket_that_does_not_listen_is_one_line_and_exit_code_4(tmp_path: Path, kind: socket.SocketKind):
    with socket.socket(type=kind) as one:
        one.bind(("127.0.0.1", 0))
        with activated(tmp_path / "one", one) as command:
            assert command.process.wait(DEADLINE_SECONDS) == 4
            assert command.stderr == (
                "Error: cannot listen on the passed socket: "
                "the passed socket must be a stream socket that listens (ListenStream=, Accept=no)\n"
            )


def pairs_at(path: Path) -> int:
    with closing(Client(path)) as client:
        return len(client.request("/trading-view/pair-list").json["pairs"])


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_it_serves_on_a_path(tmp_path: Path, workers: int):
    path = tmp_path / "index.sock"
    with running(tmp_path, SAMPLE, "--uds", path, "--workers", workers) as command:
        eventually(lambda: command.stderr.count(f"listening on unix:{path}\n") == workers)
        assert pairs_at(path) == 13
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        assert command.end() == 0


def test_the_path_of_a_server_that_has_ended_is_used_again(tmp_path: Path):
    path = tmp_path / "index.sock"
    for end in (signal.SIGKILL, signal.SIGTERM):
        with running(tmp_path, SAMPLE, "--uds", path) as command:
            command.has_logged("listening on")
            assert pairs_at(path) == 13
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
        done = run("serve", SAMPLE, "--uds", path)
    assert (done.returncode, done.stderr) == (4, f"Error: cannot listen on {path}: Address already in use\n")


FORWARDED = "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\n"


@pytest.mark.parametrize(
    ("trusted", "client"),
    [
        ([], "127.0.0.1"),
        (["10.0.0.0/8", "127.0.0.0/8"], "203.0.113.7"),
        (["10.0.0.0/8"], "127.0.0.1"),
    ],
)
def test_the_log_names_the_client_of_a_trusted_proxy(tmp_path: Path, trusted: list[str], client: str):
    options = [word for one in trusted for word in ("--forwarded-allow-ips", one)]
    # uvicorn reads this variable unless its option is set.
    variables = {"FORWARDED_ALLOW_IPS": "*"}
    with running(tmp_path, SAMPLE, "--port", 0, "--access-log", *options, **variables) as command:
        with closing(Client(command.service.port)) as connection:
            connection.request("/trading-view/pair-list", headers=FORWARDED)
        eventually(lambda: "GET /trading-view/pair-list" in command.stderr)
        assert f"{client}:" in command.stderr.splitlines()[-1]


def test_a_proxy_on_a_unix_socket_is_trusted_as_any(tmp_path: Path):
    path = tmp_path / "index.sock"
    with running(tmp_path, SAMPLE, "--uds", path, "--access-log", "--forwarded-allow-ips", "*") as command:
        eventually(lambda: "listening on" in command.stderr)
        with closing(Client(path)) as connection:
            connection.request("/trading-view/pair-list", headers=FORWARDED)
        eventually(lambda: "203.0.113.7:0 " in command.stderr)
