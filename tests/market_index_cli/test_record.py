"""`market-index record`, and replays by the other commands."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from market_index_feeds import open_feed, open_store, replay
from tests.command import COMMAND, SAMPLE, invoke, running, untimed
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.ndjson.lines import line, retraction
from tests.market_index_feeds.ndjson.recordings import recorded
from tests.waiting import DEADLINE_SECONDS, eventually


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_store_is_recorded_until_a_signal_ends_it(tmp_path: Path, store: Path, lines: Path, number: signal.Signals):
    invoke("publish", store, SAMPLE)
    with running(tmp_path, store, lines, command="record") as recording:
        eventually(lambda: "recording" in recording.stderr)
        assert untimed(recording.stderr) == f"recording {store} into {lines}: 13 pairs\n"
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
    lines.write_bytes(line(1))
    done = invoke("record", store, lines)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"Error: {lines} must be a recording, or a new file: it must contain a commit line")


@pytest.mark.parametrize("name", ["market.db", "new.sqlite", "-", "nats://127.0.0.1/books", "replay:a", "orders:a"])
def test_a_file_name_that_means_something_else_is_wrong_usage(name: str):
    done = invoke("record", SAMPLE, "--", name)
    assert done.returncode == 2
    assert f"FILE must be a file of lines such as recording.ndjson, got {name}" in done.stderr


def test_an_error_of_a_file_name_shows_no_password():
    done = invoke("record", SAMPLE, "nats://user:secret@127.0.0.1/books")
    assert done.returncode == 2
    assert "got nats://127.0.0.1/books" in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize("command", [("publish", "STORE", "BOOKS"), ("relay", "BOOKS", "STORE")])
def test_a_target_with_the_name_of_lines_names_the_commands_that_write_lines(lines: Path, command: tuple[str, ...]):
    names = {"STORE": lines.with_name("out.ndjson"), "BOOKS": SAMPLE}
    done = invoke(*(names.get(word, word) for word in command))
    assert done.returncode == 3
    out = names["STORE"]
    assert f"market-index record FEED {out}, or market-index dump FEED > {out})" in done.stderr


class TestReplays:
    """A recording is a FEED of serve, publish and relay."""

    @pytest.fixture
    def recording(self, lines: Path) -> Path:
        lines.write_bytes(
            line(1, "1") + line(2, "2") + recorded(0, "slot 1") + retraction(1) + line(2, "3") + recorded(9, "slot 2")
        )
        return lines

    def test_a_replay_is_published_to_its_end(self, store: Path, recording: Path):
        done = invoke("publish", store, f"replay:{recording}", "--speed", 1000)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == (
            f"{store}: 3 order books of 2 pairs published in 2 changes, 1 pair retracted, revision 2\n"
        )
        index = open_feed(store).read()
        assert (spots(index), index.as_of) == ({2: "3"}, "slot 2")

    def test_a_loop_is_published_until_a_signal_and_keeps_what_others_publish(self, store: Path, recording: Path):
        with open_store(store) as publishing:
            publishing.publish(book(7, 7))
        with subprocess.Popen(
            [COMMAND, "publish", store, f"replay:{recording}", "--loop", "--speed", "50"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            for expected in ({2: "3", 7: "7"}, {1: "1", 2: "2", 7: "7"}, {2: "3", 7: "7"}):
                eventually(lambda expected=expected: spots(open_feed(store).read()) == expected)  # type: ignore[misc]  # a default has no type
            process.terminate()
            output, errors = process.communicate(timeout=DEADLINE_SECONDS)
        assert (process.returncode, errors) == (0, "")
        assert re.search(r": \d+ order books of 2 pairs published in \d+ changes, \d+ pairs retracted, ", output)

    def test_a_replay_is_served_by_one_process(self, tmp_path: Path, recording: Path):
        with running(tmp_path, f"replay:{recording}", "--port", 0) as command:
            assert command.service.request("/healthz").json["problem"] is None
            assert command.end() == 0
        done = invoke("serve", f"replay:{recording}", "--workers", 2, "--port", 0)
        assert done.returncode == 2
        assert f"{recording} can be read by only one process: omit --workers" in done.stderr

    def test_a_replay_is_relayed(self, tmp_path: Path, store: Path, recording: Path):
        with running(tmp_path, f"replay:{recording}", store, "--speed", 100, command="relay") as relay:
            eventually(lambda: store.exists() and spots(open_feed(store).read()) == {2: "3"})
            assert relay.end() == 0

    @pytest.mark.parametrize("options", [("--speed", "2"), ("--loop",)])
    def test_another_feed_has_no_speed_and_no_loop(self, store: Path, options: tuple[str, ...]):
        done = invoke("publish", store, SAMPLE, *options)
        assert done.returncode == 3
        assert "only a replay, replay:PATH, has a speed and a loop" in done.stderr
        assert not store.exists()
        done = invoke("publish", store, *options)
        assert (done.returncode, f"{options[0]} requires BOOKS" in done.stderr) == (2, True)

    def test_a_loop_never_replaces(self, store: Path, recording: Path):
        done = invoke("publish", store, f"replay:{recording}", "--loop", "--replace")
        assert done.returncode == 2
        assert "--replace requires BOOKS with an end: omit --loop" in done.stderr

    @pytest.mark.parametrize("speed", ["0", "-1", "fast"])
    def test_a_speed_is_above_0(self, store: Path, recording: Path, speed: str):
        assert invoke("publish", store, f"replay:{recording}", "--speed", speed).returncode == 2

    def test_a_replay_is_no_store(self, recording: Path):
        done = invoke("publish", f"replay:{recording}", SAMPLE)
        assert done.returncode == 3
        assert "or a bucket, got a replay: 'replay:" in done.stderr
