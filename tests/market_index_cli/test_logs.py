"""The log of the commands that run until a signal ends them: its formats, its levels, and what it never contains."""

from __future__ import annotations

import json
import logging
import re
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index.wire import parse_time
from market_index_cli.logs import JsonFormatter, TextFormatter, log_with_times
from tests.command import SAMPLE, own_signals_and_logging, running, untimed
from tests.service import Client
from tests.waiting import eventually


def record(message: str, *args: Any, name: str = "market_index_feeds.feed", error: Any = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord(name, logging.WARNING, "", 0, message, args, info)
    made.created, made.msecs, made.process = 1_790_000_000.5, 500, 4711
    return made


def fields(made: logging.LogRecord) -> Any:
    text = JsonFormatter().format(made)
    assert text.isprintable()
    return json.loads(text)


def test_a_record_is_one_line_of_text_or_json_and_its_traceback():
    made = record("%s: cannot be read", "market.db", error=ValueError("one"))
    line = "2026-09-21T14:13:20.500Z WARNING market_index_feeds.feed[4711]: market.db: cannot be read"
    assert TextFormatter().format(made) == f"{line}\nValueError: one"
    assert fields(made) == {
        "time": "2026-09-21T14:13:20.500Z",
        "level": "WARNING",
        "logger": "market_index_feeds.feed",
        "process": 4711,
        "message": "market.db: cannot be read",
        "traceback": "ValueError: one",
    }


def test_the_docs_list_each_field():
    request = '%s "%s %s HTTP/%s" %d %.1f ms', "a", "GET", "/", "1.1", 200, 1.5
    found = fields(record(*request, name="market_index_cli.requests", error=ValueError()))
    assert found["message"] == "request", "the target is there once"
    page = (Path(__file__).resolve().parents[2] / "docs" / "operating.md").read_text()
    lists = re.findall(r"^- Fields of .*\n(?:  .*\n)+", page, re.MULTILINE)
    assert {*re.findall(r"`(\w+)`", "".join(lists))} == found.keys()


@given(st.text(st.characters(codec=None)))
def test_a_line_contains_no_control_character(text: str):
    made = record("%s", text)
    assert TextFormatter().format(made).isprintable()
    assert not text.isprintable() or TextFormatter().format(made).endswith(f": {text}")
    assert fields(made)["message"] == text


def test_json_of_a_server_and_its_requests(tmp_path: Path):
    path = tmp_path / "books.ndjson"
    path.write_bytes(SAMPLE.read_bytes() + b"\x1b[2J\n")
    with running(tmp_path, path, "--port", 0, "--log-format", "json", "--access-log") as command:
        port = command.service.port
        with closing(Client(port)) as client:
            assert client.request("/trading-view/pair-list", headers="Authorization: Bearer s3cret\r\n").status == 200
            address = "{}:{}".format(*client.socket.getsockname())
            # A client can cause these as often as it likes.
            assert client.send(b"nonsense\r\n\r\n").status == 400
        eventually(lambda: "market_index_cli.requests" in command.stderr)
        assert command.end() == 0
        assert "s3cret" not in command.stderr
        records = [json.loads(line) for line in command.stderr.splitlines()]
    rejected, started, loaded, listening, request, ending = records
    for one in records:
        assert parse_time(one["time"]).year > 2025
        assert one["process"] == command.process.pid
    assert (rejected["level"], rejected["logger"]) == ("WARNING", "market_index_feeds.source")
    assert started["message"] == f"market-index {version('market-index')}: serving {path}"
    assert ending["message"].startswith("shutting down: ")
    assert (loaded["level"], loaded["message"]) == ("INFO", f"{path}: 13 pairs, 1 records rejected")
    assert listening["message"] == f"listening on http://127.0.0.1:{port}"
    assert (request["client"], request["method"], request["http_version"]) == (address, "GET", "1.1")
    assert (request["target"], request["status"]) == ("/trading-view/pair-list", 200)
    assert request["milliseconds"] > 0


@pytest.mark.parametrize(("level", "logged"), [("info", "one\none\ntwo\n"), ("warning", "two\n"), ("error", "")])
def test_less_severe_records_are_not_logged(level: str, logged: str, capsys: pytest.CaptureFixture[str]):
    with own_signals_and_logging():
        log_with_times("text", level)
        for name in ("market_index_cli", "market_index_feeds.feed", "nats"):
            logging.getLogger(name).info("one")
        logging.getLogger("market_index_cli").warning("two")
        logging.getLogger("market_index_cli.requests").info("a request")
    assert untimed(capsys.readouterr().err) == f"{logged}a request\n"
