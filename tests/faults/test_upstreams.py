"""A reader in a process of its own, against hostile upstreams: it can be ended while it loads."""

from __future__ import annotations

import signal
from threading import Event

import pytest

from tests.faults import upstreams
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("answer", [upstreams.continues, upstreams.drips_head, upstreams.lists_and_stalls])
def test_a_signal_ends_a_reader_of_a_slow_service(answer: upstreams.Answer):
    asked = Event()
    with upstreams.upstream(answer, asked) as url, upstreams.reader(url) as process:
        assert asked.wait(DEADLINE_SECONDS)
        process.send_signal(signal.SIGTERM)
        assert "cannot be read" not in process.communicate(timeout=DEADLINE_SECONDS)[1], "it ended by itself"


def test_a_signal_ends_a_reader_that_connects():
    with upstreams.unconnectable() as url, upstreams.reader(url) as process:
        process.send_signal(signal.SIGTERM)
        assert "cannot be read" not in process.communicate(timeout=DEADLINE_SECONDS)[1], "it ended by itself"
