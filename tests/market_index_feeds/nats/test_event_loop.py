"""The event loop in a thread."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError
from threading import Event, Thread

import pytest

from market_index_feeds.nats.event_loop import EventLoop
from tests.waiting import DEADLINE_SECONDS, eventually, raised_in_thread


async def nothing() -> None:
    """No cleanup."""


def test_work_for_a_closed_loop_is_cancelled():
    loop = EventLoop("closed")
    loop.close(nothing)
    loop.close(nothing)
    with pytest.raises(CancelledError):
        loop.start(nothing())


def test_closing_cancels_the_work_before_the_cleanup():
    loop = EventLoop("closed")
    steps: list[str] = []
    started = Event()

    async def work() -> None:
        try:
            started.set()
            await asyncio.sleep(600)
        finally:
            steps.append("work")

    async def cleanup() -> None:
        steps.append("cleanup")

    future = loop.start(work())
    assert started.wait(60)
    loop.close(cleanup)
    assert future.cancelled()
    assert steps == ["work", "cleanup"]


def test_closing_does_not_wait_for_a_blocked_thread():
    loop = EventLoop("stuck")
    started, released = Event(), Event()

    async def work() -> None:
        started.set()
        released.wait(DEADLINE_SECONDS)

    future = loop.start(work())
    assert started.wait(DEADLINE_SECONDS)
    loop.close(nothing, 0.01)
    assert not future.done()
    released.set()
    eventually(lambda: not loop._thread.is_alive())


def test_a_signal_handler_may_close_it_while_its_thread_starts_work():
    loop = EventLoop("closed")

    def work() -> None:
        with loop._lock:
            loop.close(nothing)

    assert raised_in_thread(work) == ""
    assert not loop._thread.is_alive()


def test_an_exception_of_progress_cancels_the_work():
    loop = EventLoop("closed")
    cancelled = Event()

    async def work() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            cancelled.set()

    def progress() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop.run(work(), progress)
    assert cancelled.wait(60)
    loop.close(nothing)


def test_without_a_thread_nothing_stays_open(monkeypatch: pytest.MonkeyPatch):
    def start(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        EventLoop("none")
