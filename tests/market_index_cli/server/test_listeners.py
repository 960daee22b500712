"""The socket of the server: a path, or a socket that is passed as systemd passes it; and proxies in front of it."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import stat
import sys
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from market_index import LiveIndex
from market_index_cli.server.http_server import Server
from market_index_cli.server.listeners import bind, passed_socket
from market_index_http import create_app
from tests.command import COMMAND, SAMPLE, Running, invoke, running, started, untimed
from tests.service import Client, served
from tests.waiting import DEADLINE_SECONDS, eventually

FORWARDED = "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\n"

# The process keeps its id when it becomes the command.
PASS = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.argv[2], sys.argv[2:])
"""


def activated(tmp_path: Path, listener: socket.socket | Path, *options: object) -> AbstractContextManager[Running]:
    """Run `serve` with a socket that is passed as systemd passes it, or by its own program, which listens on a path."""
    if isinstance(listener, Path):
        passed, program = [], ["systemd-socket-activate", "--listen", listener]
    else:
        passed, program = [listener.fileno()], [sys.executable, "-c", PASS, listener.fileno()]
    return started(tmp_path / "errors", *program, COMMAND, "serve", SAMPLE, *options, pass_fds=passed)


def test_a_passed_socket_takes_precedence_over_options(tmp_path: Path):
    with (
        socket.create_server(("127.0.0.1", 0)) as passed,
        activated(tmp_path, passed, "--port", 1, "--uds", tmp_path / "unused") as command,
    ):
        assert command.service.port == passed.getsockname()[1]
        assert len(command.service.pair_list().json["pairs"]) == 13
    assert not (tmp_path / "unused").exists()


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd is not installed")
def test_the_program_of_systemd_passes_a_socket(tmp_path: Path):
    path = tmp_path / "index.sock"
    with activated(tmp_path, path, "--port", 1) as command:
        command.has_logged("Listening on ")
        # It starts the command at the first connection.
        assert pairs_at(path) == 13
        command.has_logged(f"listening on unix:{path}\n")
        assert command.end() == 0


def test_a_socket_for_another_process_is_not_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LISTEN_PID", "1")
    monkeypatch.setenv("LISTEN_FDS", "1")
    assert passed_socket() is None


def test_what_is_no_listening_socket_is_exit_code_4(tmp_path: Path):
    must = "the passed socket must be a stream socket that listens (ListenStream=, Accept=no)"
    done = invoke("serve", SAMPLE, LISTEN_PID=str(os.getpid()), LISTEN_FDS="2")
    message = "exactly one socket must be passed, got LISTEN_FDS=2"
    assert (done.returncode, untimed(done.stderr)) == (4, f"cannot listen on the passed socket: {message}\n")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with activated(tmp_path, bound) as command:
            assert command.process.wait(DEADLINE_SECONDS) == 4
            assert untimed(command.stderr) == f"cannot listen on the passed socket: {must}\n"


def pairs_at(path: Path) -> int:
    with closing(Client(path)) as client:
        return len(client.request("/trading-view/pair-list", headers=FORWARDED).json["pairs"])


def test_it_serves_on_a_path_and_replaces_that_of_a_killed_server(tmp_path: Path):
    path = tmp_path / "index.sock"
    for _ in range(2):
        options = ("--uds", path, "--access-log", "--forwarded-allow-ips", "*")
        with running(tmp_path, SAMPLE, *options) as command:
            command.has_logged(f"listening on unix:{path}\n")
            assert pairs_at(path) == 13
            command.has_logged(": 203.0.113.7:0 ")
            assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_the_path_of_a_running_server_is_not_taken(tmp_path: Path):
    """Nor that of one whose feed is still loading."""
    path, pipe = tmp_path / "index.sock", tmp_path / "pipe"
    os.mkfifo(pipe)
    with running(tmp_path, pipe, "--uds", path) as command, pipe.open("wb", buffering=0) as writer:
        writer.write(b"nonsense\n")
        command.has_logged("line 1 rejected")
        with pytest.raises(OSError, match="Address already in use"):
            bind("", 0, path)
        writer.write(SAMPLE.read_bytes())
        command.has_logged(f"listening on unix:{path}\n")
        done = invoke("serve", SAMPLE, "--uds", path)
        assert (done.returncode, untimed(done.stderr)) == (4, f"cannot listen on {path}: Address already in use\n")
        writer.close()
        assert command.end() == 0


def test_a_path_on_which_another_program_listens_is_not_taken(tmp_path: Path):
    path = tmp_path / "index.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(OSError, match="Address already in use"):
            bind("", 0, path)


@pytest.mark.parametrize(
    ("trusted", "client"),
    [((), "127.0.0.1:"), (("10.0.0.0/8",), "127.0.0.1:"), (("10.0.0.0/8", "127.0.0.0/8"), "203.0.113.7:")],
)
def test_the_log_names_the_client_of_a_trusted_proxy(
    trusted: tuple[str, ...], client: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    # uvicorn reads this variable unless its option is set.
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    caplog.set_level(logging.INFO, "market_index_cli.requests")
    app = create_app(LiveIndex())
    with served(app, Server(app, access_log=True, proxies=trusted)) as service, closing(Client(service.port)) as one:
        one.request("/healthz", headers=FORWARDED)
        eventually(lambda: "GET /healthz" in caplog.text)
    assert caplog.messages[-1].startswith(client)
