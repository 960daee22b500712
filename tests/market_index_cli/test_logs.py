"""The log of the commands that run until a signal ends them: its formats, its levels, and what it never contains."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index.freshness import parse_time
from market_index_cli.logs import JsonFormatter, LineHandler, OncePerSecond, TextFormatter, errors_logged, printable
from tests.command import COMMAND, SAMPLE, invoke, running
from tests.nats import spare_port
from tests.service import Client
from tests.waiting import eventually, in_thread

REQUEST = '%s - "%s %s HTTP/%s" %d'
IS_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING|ERROR) [\w.]+(\[\d+\])?: .*").fullmatch
DOCUMENTED = re.compile(r"^\| `(\w+)` \| (all|some|requests) \|", re.MULTILINE)


def record(message: str, *args: Any, name: str = "market_index_feeds.feed", error: Any = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord(name, logging.WARNING, "", 0, message, args, info)
    made.created, made.process = 1_790_000_000.5, 4711
    return made


def fields(made: logging.LogRecord) -> Any:
    text = JsonFormatter().format(made)
    assert text.isprintable()
    return json.loads(text)


START = "2026-09-21T14:13:20.500Z WARNING market_index_feeds.feed"


class TestFormats:
    """One record in both formats."""

    def test_a_message(self):
        made = record("%s: cannot be read", "market.db")
        assert TextFormatter().format(made) == f"{START}: market.db: cannot be read"
        assert TextFormatter(with_process=True).format(made) == f"{START}[4711]: market.db: cannot be read"
        assert fields(made) == {
            "time": "2026-09-21T14:13:20.500Z",
            "level": "WARNING",
            "logger": "market_index_feeds.feed",
            "process": 4711,
            "message": "market.db: cannot be read",
        }

    def test_each_line_of_a_traceback_has_the_start_of_its_record(self):
        def fail() -> None:
            raise ValueError("one\nforged \x1b[2J")

        with pytest.raises(ValueError, match="one") as raised:
            fail()
        made = record("a defect\n", error=raised.value)
        lines = TextFormatter().format(made).split("\n")
        assert lines[0] == f"{START}: a defect"
        assert lines[1] == f"{START}: Traceback (most recent call last):"
        assert lines[-2:] == [f"{START}: ValueError: one", rf"{START}: forged \x1b[2J"]
        assert all(IS_LINE(line) for line in lines)
        assert fields(made)["message"] == "a defect"
        assert fields(made)["traceback"].endswith("ValueError: one\nforged \\x1b[2J")

    def test_a_request_has_fields(self):
        made = record(REQUEST, "127.0.0.1:5", "GET", "/x?base=ADA", "1.1", 200, name="uvicorn.access")
        assert TextFormatter().format(made).endswith(" uvicorn.access: 127.0.0.1:5 GET /x?base=ADA 200")
        found = fields(made)
        assert found.pop("message") == "127.0.0.1:5 GET /x?base=ADA 200"
        for name in ("time", "level", "logger", "process"):
            del found[name]
        assert found == {
            "client": "127.0.0.1:5", "method": "GET", "target": "/x?base=ADA", "http_version": "1.1", "status": 200,
        }  # fmt: skip

    def test_a_request_on_a_unix_socket_has_no_client(self):
        found = fields(record(REQUEST, "", "GET", "/livez", "1.1", 200, name="uvicorn.access"))
        assert (found["message"], found["client"]) == ("GET /livez 200", "")

    @pytest.mark.parametrize(
        ("target", "expected"),
        [
            ("/x", "/x"),
            ("/x?", "/x?"),
            ("/x?base=ADA&quote=ab:cd", "/x?base=ADA&quote=ab:cd"),
            ("/x?key=s3cret", "/x?***"),
            ("/x?s3cret&base=ADA&baser=s3cret&&quote=a", "/x?***&base=ADA&***&&quote=a"),
            ("/x?BASE=s3cret", "/x?***"),
            ("/x?base=\x1b", "/x?base=\\x1b"),
        ],
    )
    def test_other_parameters_of_a_request_may_be_secrets(self, target: str, expected: str):
        made = record(REQUEST, "a", "GET", target, "1.1", 200, name="uvicorn.access")
        assert fields(made)["target"] == expected
        assert "s3cret" not in TextFormatter().format(made)

    def test_the_docs_list_each_field(self):
        request = record(REQUEST, "a", "GET", "/", "1.1", 200, name="uvicorn.access", error=ValueError())
        page = (Path(__file__).resolve().parents[2] / "docs" / "operating.md").read_text()
        assert [name for name, _ in DOCUMENTED.findall(page)] == sorted(
            fields(request), key=[name for name, _ in DOCUMENTED.findall(page)].index
        )

    @given(st.text(st.characters(codec=None)))
    def test_a_line_contains_no_control_character(self, text: str):
        made = record("%s", text)
        assert TextFormatter().format(made).isprintable()
        assert fields(made)["message"].isprintable()

    def test_printable_text_is_unchanged(self):
        assert printable("名前 é ✓") == "名前 é ✓"
        assert printable("\udc80\u202e\x7f\x9b") == r"\udc80\u202e\x7f\x9b"


class TestCommand:
    """The log of real commands."""

    def test_json_of_a_server_and_its_requests(self, tmp_path: Path):
        path = tmp_path / "books.ndjson"
        path.write_bytes(SAMPLE.read_bytes() + b"\x1b[2J\n")
        options = ("--port", 0, "--log-format", "json", "--access-log")
        with running(tmp_path, path, *options) as command:
            port = command.service.port
            with closing(Client(port)) as client:
                target = "/trading-view/pair-list?key=s3cret"
                assert client.request(target, headers="Authorization: Bearer s3cret\r\n").status == 200
                address = "{}:{}".format(*client.socket.getsockname())
            eventually(lambda: "uvicorn.access" in command.stderr)
            assert command.end() == 0
            lines = command.stderr.splitlines()
        records = [json.loads(line) for line in lines]
        for one in records:
            assert parse_time(one["time"]).year > 2025
            assert one["process"] == command.process.pid
        rejected, loaded, listening, request = records
        assert (rejected["level"], rejected["logger"]) == ("WARNING", "market_index_feeds.source")
        assert loaded["message"] == f"{path}: 13 pairs, 1 records rejected"
        assert (loaded["level"], loaded["logger"]) == ("INFO", "market_index_cli")
        assert listening["message"] == f"listening on http://127.0.0.1:{port}"
        assert request["client"] == address
        assert request["message"] == f"{address} GET /trading-view/pair-list?*** 200"
        assert "s3cret" not in "".join(lines)
        assert all(line.isprintable() for line in lines)

    def test_each_line_of_text_has_a_time(self, tmp_path: Path):
        path = tmp_path / "books.ndjson"
        path.write_bytes(SAMPLE.read_bytes() + b"nonsense\n")
        with running(tmp_path, path, "--port", 0, "--access-log") as command:
            assert command.service.pair_list().status == 200
            path.unlink()
            eventually(lambda: "cannot be read" in command.stderr)
            assert command.end() == 0
            lines = command.stderr.splitlines()
        assert len(lines) == 5
        assert all(IS_LINE(line) for line in lines)

    @pytest.mark.thorough
    def test_json_of_workers(self, tmp_path: Path):
        with running(tmp_path, SAMPLE, "--port", 0, "--workers", 2, "--log-format", "json") as command:
            eventually(lambda: command.stderr.count("listening on") == 2)
            assert command.end(signal.SIGTERM) == 0
            records = [json.loads(line) for line in command.stderr.splitlines()]
        assert len({one["process"] for one in records}) == 2

    @pytest.mark.parametrize(("level", "messages"), [("info", 3), ("warning", 1), ("error", 0)])
    def test_less_severe_records_are_not_logged(self, tmp_path: Path, level: str, messages: int):
        path = tmp_path / "books.ndjson"
        path.write_bytes(SAMPLE.read_bytes() + b"nonsense\n")
        port = spare_port()
        with running(tmp_path, path, "--port", port, "--log-level", level) as command:
            eventually(lambda: is_served(port))
            assert command.end() == 0
            assert command.stderr.count("\n") == messages

    @pytest.mark.parametrize("command", ["serve", "relay", "record"])
    def test_an_error_that_ends_the_command_is_a_record(self, command: str):
        arguments = {"serve": ["nowhere.db"], "relay": ["nowhere.db", "store.db"], "record": ["nowhere.db", "x.ndjson"]}
        done = invoke(command, *arguments[command], "--log-format", "json")
        found = json.loads(done.stderr)
        assert done.returncode == 3
        assert (found["level"], found["logger"]) == ("ERROR", "market_index_cli")
        assert found["message"] == "nowhere.db cannot be opened: No such file or directory"


RECORDS = {
    "message": ("x" * 10_000, None),
    "wide": ("\U0001f600" * 3_000, None),
    "traceback": ("failed", "x" * 20_000),
}


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("formatter", [TextFormatter(with_process=True), JsonFormatter()])
def test_each_line_is_written_in_one_piece_that_a_pipe_does_not_divide(name: str, formatter: logging.Formatter):
    message, error = RECORDS[name]
    written: list[str] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    handler = LineHandler(Stream())
    handler.setFormatter(formatter)
    info = None if error is None else (ValueError, ValueError(error, "its end"), None)
    handler.emit(logging.LogRecord("market_index_cli", logging.ERROR, "", 0, "%s", (message,), info))
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in written)
    assert all(len(line.encode("ascii", "backslashreplace")) <= select.PIPE_BUF for line in written)
    assert "..." in "".join(written)
    if isinstance(formatter, JsonFormatter):
        (fields,) = map(json.loads, written)
        assert fields["message"][0] == message[0]
        if error is not None:
            assert fields["traceback"].endswith("'its end')")


def test_an_error_of_standard_error_is_handled_as_by_the_standard_library(capsys: pytest.CaptureFixture[str]):
    stream = io.StringIO()
    stream.close()
    handler = LineHandler(stream)
    handler.emit(logging.LogRecord("market_index_cli", logging.ERROR, "", 0, "lost", (), None))
    assert "Message: 'lost'" in capsys.readouterr().err


@pytest.mark.thorough
def test_workers_do_not_mix_lines_in_a_full_pipe(tmp_path: Path):
    read, write = os.pipe()
    words = [COMMAND, "serve", SAMPLE, "--port", "0", "--workers", "2", "--log-format", "json", "--access-log"]
    with os.fdopen(read, "rb", buffering=0) as pipe, subprocess.Popen(list(map(str, words)), stderr=write) as process:
        os.close(write)
        text = b""
        while text.count(b"listening on") < 2:
            text += pipe.read(65536)
        found = re.search(rb"127\.0\.0\.1:(\d+)", text)
        assert found
        port, target = int(found[1]), "/" + "x" * 7500

        def ask() -> None:
            # One at a time, so that both workers get connections.
            for _ in range(50):
                with closing(Client(port)) as client:
                    assert client.request(target).status == 404

        threads = [in_thread(ask) for _ in range(4)]
        # Before anything is read, the pipe is full.
        while any(thread.is_alive() for thread in threads):
            text += pipe.read(3000) if select.select([pipe], [], [], 0.01)[0] else b""
        process.terminate()
        text += pipe.read()
    lines = list(map(json.loads, text.splitlines()))
    assert len({line["process"] for line in lines if line["logger"] == "uvicorn.access"}) == 2
    assert sum(line["logger"] == "uvicorn.access" for line in lines) == 200


@pytest.mark.thorough
def test_the_error_of_a_worker_is_a_line_of_the_log(tmp_path: Path):
    books = tmp_path / "books.ndjson"
    books.write_bytes(SAMPLE.read_bytes())
    with running(tmp_path, books, "--port", 0, "--workers", 2) as command:
        process = command.service.request("/healthz").json["process"]
        command.has_logged("listening on", 2)
        books.rename(tmp_path / "hidden")
        os.kill(process, signal.SIGKILL)
        command.has_logged("cannot be opened: No such file")
        assert command.end() == 0
        assert all(IS_LINE(line) for line in command.stderr.splitlines())


@pytest.mark.parametrize("is_logged", [False, True])
def test_other_exceptions_are_not_logged(*, is_logged: bool):
    with pytest.raises(ZeroDivisionError), errors_logged(instead_of_printed=is_logged):
        raise ZeroDivisionError


def test_in_text_an_error_is_left_to_the_command():
    with pytest.raises(click.ClickException), errors_logged(instead_of_printed=False):
        raise click.ClickException("wrong")


def is_served(port: int) -> bool:
    try:
        with closing(Client(port)) as client:
            return client.request("/livez").status == 200
    except OSError:
        return False


@contextmanager
def filtered(once: OncePerSecond) -> Iterator[logging.Logger]:
    logger = logging.getLogger("market_index_cli.test")
    logger.addFilter(once)
    try:
        yield logger
    finally:
        logger.removeFilter(once)


def test_a_message_is_logged_once_per_second(caplog: pytest.LogCaptureFixture):
    now = 100.0
    with filtered(OncePerSecond(lambda: now)) as logger:
        for second in (100.0, 100.5, 100.9, 101.0):
            now = second
            logger.warning("%s connections are open", second)
            logger.warning("another message")
    assert caplog.messages == [
        "100.0 connections are open", "another message", "101.0 connections are open", "another message"
    ]  # fmt: skip


def test_every_traceback_is_logged(caplog: pytest.LogCaptureFixture):
    with filtered(OncePerSecond(lambda: 100.0)) as logger:
        for error in (ValueError("one"), KeyError("two")):
            logger.error("Exception in ASGI application", exc_info=error)
    assert "ValueError: one" in caplog.text
    assert "KeyError: 'two'" in caplog.text
