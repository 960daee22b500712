"""`market-index record`, and replays by the other commands. Their errors are in `test_exits.py`."""

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


def test_a_store_is_recorded_until_a_signal_ends_it(tmp_path: Path, store: Path, lines: Path):
    invoke("publish", store, SAMPLE)
    with running(tmp_path, store, lines, command="record") as recording:
        eventually(lambda: "recording" in recording.stderr)
        assert untimed(recording.stderr).startswith(
            f"recording {store} into {lines}: 13 pairs, {lines.stat().st_size} bytes\n"
        )
        with open_store(store) as publishing:
            publishing.publish(book(1, 1))
            eventually(lambda: len(list(replay(lines))) == 2)
            publishing.retract(pair(1))
            eventually(lambda: len(list(replay(lines))) == 3)
        second = invoke("record", store, lines)
        assert second.returncode == 3
        assert untimed(second.stderr) == f"{lines} cannot be recorded into: another recorder has it open\n"
        assert recording.end(signal.SIGINT) == 0
    assert [len(index) for _, index in replay(lines)] == [13, 14, 13]
    assert open_feed(lines).read() == open_feed(store).read()


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
        assert done.stdout == f"{store}: 3 order books published, 1 pair retracted, revision 2\n"
        index = open_feed(store).read()
        assert (spots(index), index.as_of) == ({2: "3"}, "slot 2")

    def test_a_replay_is_relayed_to_its_end(self, bucket: str, recording: Path):
        done = invoke("relay", f"replay:{recording}?speed=1000", bucket)
        assert (done.returncode, untimed(done.stderr).splitlines()[-1]) == (0, f"{recording}: has ended")
        index = open_feed(bucket).read()
        assert (spots(index), index.as_of) == ({2: "3"}, "slot 2")

    def test_a_loop_is_published_until_a_signal(self, store: Path, recording: Path):
        with subprocess.Popen(
            [COMMAND, "publish", store, f"replay:{recording}?loop&speed=50"], stdout=subprocess.PIPE, text=True
        ) as process:
            for expected in ({2: "3"}, {1: "1", 2: "2"}, {2: "3"}):
                eventually(lambda expected=expected: stored(store) == expected)  # type: ignore[misc]  # a default has no type
            process.terminate()
            output, _ = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 1
        assert re.search(r": \d+ order books published, \d+ pairs retracted, ", output)
