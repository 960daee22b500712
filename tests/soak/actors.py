"""The concurrent actors of the soak test: each has a thread, and acts repeatedly until the test is over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from threading import Event, Thread

from tests.waiting import DEADLINE_SECONDS


class Actor(ABC):
    """A part of the soak test that acts repeatedly."""

    def __init__(self) -> None:
        self.acts = 0
        """The number of completed acts."""
        self.over = Event()
        """Set when the test is over."""

    @abstractmethod
    def act(self) -> None:
        """Act once."""

    def end(self) -> None:  # noqa: B027  # most actors have nothing to close
        """Close all resources."""


def run(actors: Collection[Actor], observe: Callable[[], None], is_over: Callable[[], bool]) -> None:
    """Run all actors concurrently, and call `observe`, until `is_over`. Raises the first exception of an actor."""
    raised: list[Exception] = []

    def loop(actor: Actor) -> None:
        try:
            while not actor.over.is_set():
                actor.act()
                actor.acts += 1
        except Exception as error:  # noqa: BLE001  # raised in the main thread
            raised.append(error)
        finally:
            actor.end()

    threads = [Thread(target=loop, args=[actor], daemon=True) for actor in actors]
    for thread in threads:
        thread.start()
    try:
        while not raised and not is_over():
            observe()
    finally:
        for actor in actors:
            actor.over.set()
        for thread in threads:
            thread.join(2 * DEADLINE_SECONDS)
    if raised:
        raise raised[0]
    assert not any(thread.is_alive() for thread in threads), "an actor did not end"
