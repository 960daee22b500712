"""`market-index record`, and replays by the other commands."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from market_index_feeds import open_feed, open_store, replay
from tests.command import COMMAND, SAMPLE, invoke, running, untimed
from tests.feeds.contract.lines import book_line, retract_line
from tests.feeds.made_up import book, pair, spots
from tests.feeds.test_recording import recorded
from tests.market_index_cli.test_publish import stored
from tests.waiting import DEADLINE_SECONDS, eventually


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_store_is_recorded_until_a_signal_ends_it(tmp_path: Path, store: Path, lines: Path, number: signal.Signals):
    invoke("publish", store, SAMPLE)
    with running(tmp_path, store, lines, command="record") as recording:
        eventually(lambda: "recording" in recording.stderr)
        assert untimed(recording.stderr).startswith(f"recording {store} into {lines}: 13 pairs, revision ")
        with open_store(store) as publishing:
            publishing.publish(book(1, 1))
            eventually(lambda: len(list(replay(lines))) == 2)
            publishing.retract(pair(1))
            eventually(lambda: len(list(replay(lines))) == 3)
        second = invoke("record", store, lines)
        assert second.returncode == 3
        assert second.stderr == f"Error: {lines} cannot be recorded into: another recorder has it open\n"
        assert recording.end(number) == 0
    assert [len(index) for _, index in replay(lines)] == [13, 14, 13]
    assert open_feed(lines).read() == open_feed(store).read()


def test_a_file_that_is_no_recording_is_exit_code_3(store: Path, lines: Path):
    invoke("publish", store, SAMPLE)
    lines.write_bytes(book_line(book(1)))
    done = invoke("record", store, lines)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"Error: {lines} must be a recording, or a new file: it must contain a commit line")


@pytest.mark.parametrize("name", ["market.db", "new.sqlite", "-", "nats://127.0.0.1/books", "replay:a", "orders:a"])
def test_a_file_name_that_means_something_else_is_wrong_usage(name: str):
    done = invoke("record", SAMPLE, "--", name)
    assert done.returncode == 2
    assert "FILE must be a file of lines such as recording.ndjson, got " in done.stderr


def test_an_error_of_a_file_name_shows_no_password():
    done = invoke("record", SAMPLE, "nats://user:secret@127.0.0.1/books")
    assert done.returncode == 2
    assert "got a URL" in done.stderr
    assert "secret" not in done.stderr


class TestReplays:
    """A recording is a FEED of serve, publish and relay."""

    @pytest.fixture
    def recording(self, lines: Path) -> Path:
        lines.write_bytes(
            book_line(book(1, 1))
            + book_line(book(2, 2))
            + recorded(0, "slot 1")
            + retract_line(pair(1))
            + book_line(book(2, 3))
            + recorded(9, "slot 2")
        )
        return lines

    def test_a_replay_is_published_to_its_end(self, store: Path, recording: Path):
        done = invoke("publish", store, f"replay:{recording}?speed=1000")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{store}: 3 order books published in 2 changes, 1 pair retracted, revision 2\n"
        index = open_feed(store).read()
        assert (spots(index), index.as_of) == ({2: "3"}, "slot 2")

    def test_a_loop_is_published_until_a_signal(self, store: Path, recording: Path):
        with open_store(store) as publishing:
            publishing.publish(book(7, 7))
        with subprocess.Popen(
            [COMMAND, "publish", store, f"replay:{recording}?loop&speed=50"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            for expected in ({2: "3"}, {1: "1", 2: "2"}, {2: "3"}):
                eventually(lambda expected=expected: stored(store) == expected)  # type: ignore[misc]  # a default has no type
            process.terminate()
            output, errors = process.communicate(timeout=DEADLINE_SECONDS)
        assert (process.returncode, errors) == (0, "")
        assert re.search(r": \d+ order books published in \d+ changes, \d+ pairs retracted, ", output)

    def test_a_replay_is_served_by_one_process(self, tmp_path: Path, recording: Path):
        with running(tmp_path, f"replay:{recording}?loop&speed=100", "--port", 0) as command:
            assert command.service.request("/healthz").json["problem"] is None
            assert command.end() == 0
        done = invoke("serve", f"replay:{recording}", "--workers", 2, "--port", 0)
        assert done.returncode == 2
        assert f"{recording} can be read by only one process: omit --workers" in done.stderr

    def test_a_replay_is_relayed(self, tmp_path: Path, store: Path, recording: Path):
        with running(tmp_path, f"replay:{recording}?loop&speed=100", store, command="relay") as relay:
            eventually(lambda: "relaying" in relay.stderr)
            assert relay.end() == 0

    def test_a_replay_is_no_store(self, recording: Path):
        done = invoke("publish", f"replay:{recording}", SAMPLE)
        assert done.returncode == 3
        assert "or a bucket, got a replay: 'replay:" in done.stderr
