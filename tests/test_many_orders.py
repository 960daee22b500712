"""The benchmark of very many orders: what its producer writes, and how it records a blocked event loop."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from asyncio import AbstractEventLoop
from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks.many_orders import Resting
from benchmarks.observed import BEAT_SECONDS, Observed, Recorder, idle


def test_a_blocked_loop_is_late_for_each_beat_that_was_due(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    recorder, loop = Recorder(), Mock(spec=AbstractEventLoop)
    for now in (100.0, 100.0 + 2.5 * BEAT_SECONDS):
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        recorder.beat(loop)
    recorder.write(tmp_path / "observed.json")
    observed = Observed.load(tmp_path / "observed.json")
    assert observed.first == 100
    assert observed.late == pytest.approx([0, 1.5 * BEAT_SECONDS, 0.5 * BEAT_SECONDS])
    delays = [call.args[0] for call in loop.call_later.call_args_list]
    assert delays == pytest.approx([BEAT_SECONDS, 0.5 * BEAT_SECONDS])
    assert observed.since(100 + BEAT_SECONDS).late == observed.late[1:]


def test_an_idle_process_records_until_it_is_terminated(tmp_path: Path):
    recorded = tmp_path / "idle.json"

    async def terminated() -> None:
        recording = asyncio.create_task(idle(recorded))
        await asyncio.sleep(0)  # the task starts to wait for the signal
        signal.raise_signal(signal.SIGTERM)
        await recording

    asyncio.run(terminated())
    assert Observed.load(recorded).late[0] == 0


def test_changes_keep_the_number_of_orders():
    numbers = random.Random(1)
    resting = Resting(3, {"a": 0, "b": 1, "c": 2})
    orders = {"a", "b", "c"}
    for _ in range(100):
        change = json.loads(resting.change(numbers))
        if "remove" in change:
            orders.remove(change["remove"])
        else:
            orders.add(change["place"])
        assert orders == {*resting.ids}
        assert 2 <= len(orders) <= 3
