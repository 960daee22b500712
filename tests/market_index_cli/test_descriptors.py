"""Standard streams that cannot be used, and too few file descriptors: one line each, with an exit code."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

import pytest

from market_index_cli.descriptors import _Output, _Stream
from market_index_feeds import open_feed, open_store
from tests.command import COMMAND, SAMPLE, invoke
from tests.market_index_feeds.made_up import book
from tests.service import Service
from tests.waiting import DEADLINE_SECONDS, eventually

FULL = "/dev/full"
needs_full_device = pytest.mark.skipif(not Path(FULL).exists(), reason="needs a device that is always full")
ENDINGS = [
    (">&-", "Bad file descriptor"),
    pytest.param(f">{FULL}", "No space left on device", marks=needs_full_device),
]


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command line, in which `market-index` is the command."""
    return subprocess.run(
        ["sh", "-c", command.replace("market-index", str(COMMAND))],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize(("redirection", "reason"), ENDINGS)
@pytest.mark.parametrize("arguments", ["pairs STORE", "pairs STORE --json", "--version"])
def test_a_standard_output_that_cannot_be_written_is_one_line_and_exit_code_3(
    store: Path, arguments: str, redirection: str, reason: str
):
    with open_store(store) as opened:
        opened.publish(*map(book, range(200)))
    done = shell(f"market-index {arguments} {redirection}".replace("STORE", str(store)))
    assert (done.returncode, done.stderr) == (
        3,
        f"Error: standard output cannot be written: {reason} (redirect it to another file, or to /dev/null)\n",
    )


@pytest.mark.parametrize(("redirection", "reason"), ENDINGS)
def test_publish_without_a_standard_output_publishes_and_is_exit_code_3(store: Path, redirection: str, reason: str):
    done = shell(f"market-index publish {store} {SAMPLE} {redirection}")
    assert (done.returncode, reason in done.stderr, done.stderr.count("\n")) == (3, True, 1)
    assert len(open_feed(store).read()) == 13


@pytest.mark.parametrize("redirection", ["2>&-", pytest.param(f"2>{FULL}", marks=needs_full_device)])
def test_the_exit_code_is_the_same_without_a_standard_error(redirection: str):
    done = shell(f"market-index pairs nowhere.ndjson {redirection}")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_no_file_gets_the_number_of_a_closed_standard_stream(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, subprocess, sys\n"
        "from market_index_cli.descriptors import open_standard_streams\n"
        "open_standard_streams()\n"
        "with open(sys.argv[1], 'w') as file:\n"
        "    print('lost', file=sys.stderr)\n"
        "    child = subprocess.run([sys.executable, '-c', 'import os; [os.fstat(n) for n in range(3)]'])\n"
        "    file.write(f'{file.fileno() > 2} {child.returncode}')\n"
    )
    result = tmp_path / "result"
    done = shell(f"{sys.executable} {script} {result} <&- >&- 2>&-")
    assert (done.returncode, result.read_text()) == (0, "True 0")


@contextmanager
def serving(options: str) -> Iterator[Service]:
    """Serve the sample with these options and redirections of a shell, and check that a signal ends it with 0."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(["sh", "-c", f"exec {COMMAND} serve {SAMPLE} --port {port} {options}"])
    try:

        def answers() -> bool:
            assert process.poll() is None
            try:
                return Service(port).pair_list().status == 200
            except ConnectionRefusedError:
                return False

        eventually(answers)
        yield Service(port)
    finally:
        process.terminate()
        ended = process.wait(DEADLINE_SECONDS)
    assert ended == 0


@pytest.mark.parametrize(
    "options",
    [
        "2>&-",
        pytest.param(f"--access-log 2>{FULL}", marks=needs_full_device),
        pytest.param(f"--workers 2 2>{FULL}", marks=[needs_full_device, pytest.mark.thorough]),
        pytest.param("--workers 2 <&- >&- 2>&-", marks=pytest.mark.thorough),
    ],
)
def test_it_serves_without_a_standard_error(options: str):
    with serving(options) as service:
        for _ in range(10):
            assert len(service.pair_list().json["pairs"]) == 13


@pytest.mark.parametrize(
    ("allowed", "arguments", "required"),
    [
        (12, "serve {sample} --port 0", 64),
        (20, "serve {sample} --port 0 --workers 2", 64),
        (71, "serve {sample} --port 0 --workers 4", 72),
        (12, "pairs {sample}", 64),
        (6, "publish {store} {sample}", 64),
        (12, "relay {sample} {store}", 64),
    ],
)
def test_too_few_file_descriptors_are_one_line_and_exit_code_2(
    store: Path, allowed: int, arguments: str, required: int
):
    done = shell(f"ulimit -n {allowed}; market-index {arguments.format(sample=SAMPLE, store=store)}")
    remedy = f"raise it (ulimit -n {4 * required})"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: the limit of open files must be at least {required}, got {allowed}: {remedy}\n"
    assert not store.exists()


def test_64_file_descriptors_are_sufficient(store: Path):
    invoke("publish", store, SAMPLE)
    assert shell(f"ulimit -n 64; market-index pairs {store}").returncode == 0
    done = shell(f"ulimit -n 64; market-index publish {store} {SAMPLE}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("size", [1, 100_000])  # one that is buffered, and one that is larger than the buffer
def test_standard_output_in_non_blocking_mode_is_waited_for(monkeypatch: pytest.MonkeyPatch, size: int):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += os.write(writing, bytes(4096))
    read: list[bytes] = []

    def make_room(*_: object) -> None:
        read.append(os.read(reading, 2**20))

    monkeypatch.setattr("select.select", make_room)
    with _Output(FileIO(writing, "w")) as output:
        assert output.write(b"x" * size) == size
    assert read
    with os.fdopen(reading, "rb") as rest:
        assert b"".join([*read, rest.read()]) == bytes(filled) + b"x" * size


@needs_full_device
@pytest.mark.parametrize("size", [1, 100_000])
def test_what_cannot_be_written_to_standard_error_is_lost(size: int):
    with _Stream(FileIO(FULL, "w")) as errors:
        assert errors.write(b"x" * size) == size


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system how full a pipe is")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_an_interrupted_write_is_not_repeated(stream: str):
    """The pipe has a part of the last line when the signal arrives. The end of the process writes the rest.

    The length of a line is a multiple of half a page, so that the pipe becomes full.
    """
    script = (
        "import sys\n"
        "from contextlib import suppress\n"
        "from market_index_cli.descriptors import open_standard_streams\n"
        "open_standard_streams()\n"
        "with suppress(KeyboardInterrupt):\n"
        "    for number in range(1_000):\n"
        f"        print(f'{{number:06143}}', file=sys.{stream})\n"
    )
    reading, writing = os.pipe()
    capacity = fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ)

    def is_full() -> bool:
        return int.from_bytes(fcntl.ioctl(reading, termios.FIONREAD, bytes(4)), sys.byteorder) == capacity

    with subprocess.Popen([sys.executable, "-c", script], **{stream: writing}) as process:  # type: ignore[call-overload]
        os.close(writing)
        eventually(is_full)
        process.send_signal(signal.SIGINT)
        with os.fdopen(reading) as pipe:
            lines = pipe.readlines()
    assert lines == [f"{number:06143}\n" for number in range(capacity // 6_144 + 1)]
    assert process.returncode == 0
