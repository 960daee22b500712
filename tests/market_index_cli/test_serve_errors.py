"""`market-index serve` that cannot start: exit codes and messages."""

from __future__ import annotations

import socket
import subprocess

import pytest

from market_index import LiveIndex
from market_index_feeds import Feed, Progress
from tests.command import COMMAND, SAMPLE, invoke, run
from tests.waiting import DEADLINE_SECONDS


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("nowhere.ndjson", "nowhere.ndjson cannot be opened: No such file or directory"),
        ("/", "/ cannot be opened: it must be a regular file, a pipe or a character device"),
        ("amqp://127.0.0.1/books", "the scheme of a feed must be http, https, nats or tls, got 'amqp'"),
    ],
)
def test_a_feed_that_cannot_be_opened_is_one_line_and_exit_code_3(source: str, reason: str):
    done = invoke("serve", source, "--port", 0)
    assert done.returncode == 3
    assert reason in done.stderr
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


def test_a_feed_that_cannot_be_opened_ends_a_process_with_exit_code_3():
    done = run("serve", "nowhere.ndjson", "--port", 0)
    assert done.returncode == 3
    assert done.stderr == "Error: nowhere.ndjson cannot be opened: No such file or directory\n"


def test_an_unreadable_file_is_exit_code_3():
    # Reading a process's own memory at address 0 fails, also for root, though the file exists.
    done = invoke("serve", "/proc/self/mem", "--port", 0)
    assert (done.returncode, done.stderr) == (3, "Error: /proc/self/mem cannot be read: Input/output error\n")


def test_an_address_in_use_ends_a_process_with_exit_code_4():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", SAMPLE, "--port", port)
        assert done.returncode == 4
        assert done.stderr == f"Error: cannot listen on 127.0.0.1 port {port}: Address already in use\n"


@pytest.mark.parametrize("host", ["no such host", "x" * 300], ids=len)
def test_an_invalid_host_is_one_line_and_exit_code_4(host: str):
    done = invoke("serve", SAMPLE, "--host", host)
    assert done.returncode == 4
    assert done.stderr.startswith(f"Error: cannot listen on {host} port 8000: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("redirection", ["<&-", pytest.param("0>/dev/null", marks=pytest.mark.thorough)])
def test_a_standard_input_that_cannot_be_read_is_exit_code_3(redirection: str):
    done = subprocess.run(
        ["sh", "-c", f"{COMMAND} serve - --port 0 {redirection}"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.startswith("Error: standard input cannot be opened: ")
    assert done.stderr.count("\n") == 1


def test_an_address_that_is_taken_while_it_loads_is_exit_code_4(monkeypatch: pytest.MonkeyPatch):
    start = Feed.start
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]

        def start_while_another_listens(feed: Feed, live: LiveIndex, progress: Progress | None = None) -> None:
            start(feed, live, progress)
            other.listen()

        monkeypatch.setattr(Feed, "start", start_while_another_listens)
        done = invoke("serve", SAMPLE, "--port", port)
    assert done.returncode == 4
    assert done.stderr.endswith(f"Error: cannot listen on 127.0.0.1 port {port}: Address already in use\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [SAMPLE, "--port", "-1"],
        [SAMPLE, "--port", "x"],
        [SAMPLE, "--no-such"],
        [SAMPLE, "--max-age", str(2**31 + 1)],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[object]):
    done = invoke("serve", *arguments)
    assert done.returncode == 2
    assert "Usage: market-index serve" in done.stderr
