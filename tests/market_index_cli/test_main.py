"""The group of commands: which packages each needs, and what it prints when one is missing."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from market_index import wire
from market_index_feeds import open_feed
from tests.command import BOOK, COMMAND, SAMPLE, invoke, started, untimed
from tests.waiting import DEADLINE_SECONDS

RUN = """
import sys
from market_index_cli.__main__ import run
missing, *sys.argv = sys.argv[1:]
sys.modules[missing] = None
run()
"""

INVOKE_EACH = """
import json, sys
from click.testing import CliRunner
from market_index_cli.main import main
for arguments in json.loads(sys.argv[1]):
    done = CliRunner().invoke(main, arguments)
    print(done.exit_code, *sorted({name.partition(".")[0] for name in sys.modules}))
"""

WEB_STACK = {"anyio", "httptools", "market_index_http", "starlette", "uvicorn", "uvloop"}


def run_python(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)


def test_only_serve_imports_a_web_stack_and_no_file_needs_nats(store: Path):
    commands = [
        ["--help"],
        ["--version"],
        ["serve", "--help"],
        ["publish", str(store), str(SAMPLE)],
        ["pairs", str(SAMPLE)],
        ["book", str(SAMPLE), "ADA", BOOK["quote"]],
        ["retract", str(store), "ADA", BOOK["quote"]],
        ["relay", "nowhere.db", str(store)],
    ]
    done = run_python("-c", INVOKE_EACH, json.dumps(commands))
    results = [line.split() for line in done.stdout.splitlines()]
    assert [code for code, *_ in results] == ["0"] * 7 + ["3"], done.stderr
    for command, (_, *imported) in zip(commands, results, strict=True):
        assert "market_index_cli" in imported
        assert not {*WEB_STACK, "nats"} & {*imported}, command


@pytest.mark.parametrize(
    ("missing", "command", "user", "extra"),
    [
        ("click", "pairs", "market-index", "cli"),
        ("click", "serve", "serve", "server"),
        ("starlette", "serve", "Error: serve", "server"),
        ("starlette", "relay --metrics-port 0 sample:", "--metrics-port", "server"),
    ],
)
def test_one_line_names_the_extra_that_is_missing(missing: str, command: str, user: str, extra: str):
    done = run_python("-c", RUN, missing, "market-index", *command.split(), "new.db")
    remedy = f"pip install 'PATH[{extra}]' of a clone or a wheel ({missing} is not installed)"
    expected = f"{user} needs the extra {extra}: {remedy}\n"
    assert (done.returncode, done.stdout, untimed(done.stderr)) == (2, "", expected)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_output_is_exit_code_3(store: Path):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([COMMAND, "publish", store, SAMPLE], stdout=full, stderr=-1, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "Error: standard output cannot be written: No space left on device\n")
    assert len(open_feed(store).read()) == 13


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_is_cut_is_exit_code_3(tmp_path: Path, unbuffered: str):
    """Without a buffer, Python ignores that a disk took only a part."""
    limited = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", str(COMMAND), "dump", str(SAMPLE)]
    with (tmp_path / "books").open("wb") as file:
        environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(limited, stdout=file, stderr=-1, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (3, "Error: standard output cannot be written: File too large\n")
    assert (tmp_path / "books").stat().st_size < SAMPLE.stat().st_size


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_pipe_that_does_not_block_gets_the_whole_output(unbuffered: str):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen([COMMAND, "dump", SAMPLE], stdout=writing, env=environment) as process:
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            lines = pipe.read().splitlines()
    assert process.returncode == 0
    assert [wire.order_book_from_json(one) for one in lines[:-1]] == [*open_feed(SAMPLE).read().values()]


@pytest.mark.parametrize("words", [("pairs", SAMPLE), ("publish", "STORE", "-", "--acknowledge")])
def test_a_reader_that_closes_the_output_is_exit_code_1_and_no_error_of_the_input(store: Path, words: tuple[Any, ...]):
    reading, writing = os.pipe()
    os.close(reading)
    command = [COMMAND, *(store if word == "STORE" else word for word in words)]
    with SAMPLE.open("rb") as books:
        done = subprocess.run(command, stdin=books, stdout=writing, stderr=-1, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr.replace(f"{store}: 13 order books published, revision 1\n", "")) == (1, "")


@pytest.mark.parametrize("command", ["pairs", "dump", "orders", "book"])
def test_a_signal_ends_a_command_that_reads_also_as_process_1_of_a_container(tmp_path: Path, command: str):
    """The kernel ignores a signal of process 1 that has no handler."""
    os.mkfifo(fifo := tmp_path / "fifo")
    words = [command, f"orders:{fifo}", *(["ADA", "SNEK"] if command == "book" else [])]
    # The file opens once the command reads it.
    with started(tmp_path / "errors", COMMAND, *words) as running, fifo.open("wb"):
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(DEADLINE_SECONDS) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("redirections", "exit_code", "pairs"),
    [("2>&-", 0, 13), ("<&- 2>&-", 0, 13), (">&-", 3, 13), ("<&- >&- 2>&-", 3, 13)],
)
def test_a_closed_stream_is_no_file_of_the_command(store: Path, redirections: str, exit_code: int, pairs: int):
    """The next file would get its descriptor: messages would be written into a store."""
    command = ["sh", "-c", f'exec "$@" {redirections}', "sh", str(COMMAND), "publish", str(store), str(SAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert done.returncode == exit_code
    assert done.stdout == ("" if exit_code else f"{store}: 13 order books published, revision 1\n")
    assert len(open_feed(store).read()) == pairs


def test_ctrl_c_during_the_imports_has_no_traceback(tmp_path: Path):
    """The process ends by the signal, before click handles it."""
    code = "import signal, sys\nsignal.raise_signal(signal.SIGINT)\nraise SystemExit(7)\n"
    (tmp_path / "click.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "market_index_cli", "--version"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_nothing_else_is_imported_before_ctrl_c_is_handled():
    code = (
        "import sys; known = {*sys.modules}; import market_index_cli.__main__; print(*sorted({*sys.modules} - known))"
    )
    assert run_python("-c", code).stdout.split() == ["market_index_cli", "market_index_cli.__main__"]


def test_the_package_runs_as_a_module():
    done = run_python("-m", "market_index_cli", "--version")
    assert (done.returncode, done.stdout) == (0, invoke("--version").stdout)
