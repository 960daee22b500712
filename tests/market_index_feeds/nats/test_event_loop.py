"""The event loop in a thread."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import CancelledError

import pytest

from market_index_feeds.nats.event_loop import EventLoop
from tests.waiting import eventually

KEY = re.compile(r"[-/_=a-zA-Z0-9][-/_=.a-zA-Z0-9]*[-/_=a-zA-Z0-9]")
NOTICED_SECONDS = 2
"""By when a follower has noticed whatever happened; and some more for a machine that has other things to do."""


def noticed(holds: Callable[[], object]) -> None:
    eventually(holds, 2 * NOTICED_SECONDS)


class TestClosing:
    def test_work_for_a_closed_event_loop_is_cancelled(self):
        background = EventLoop("closed")

        async def nothing() -> None:
            pass

        background.close(nothing)
        background.close(nothing)
        with pytest.raises(CancelledError):
            background.start(nothing())
