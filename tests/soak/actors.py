"""What the soak does at the same time: each actor has a thread, and acts again and again until the soak is over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from threading import Event, Thread

from tests.waiting import DEADLINE_SECONDS


class Actor(ABC):
    """Something that acts again and again."""

    def __init__(self) -> None:
        self.acts = 0
        """How often it acted."""
        self.over = Event()
        """Set when the soak is over."""

    @abstractmethod
    def act(self) -> None:
        """Act once."""

    def end(self) -> None:  # noqa: B027  # most actors keep nothing open
        """Close what it keeps open."""


def run(actors: Collection[Actor], observe: Callable[[], None], is_over: Callable[[], bool]) -> None:
    """Let all act at the same time, and observe, until it is over. Raises what an actor raises first."""
    raised: list[Exception] = []

    def loop(actor: Actor) -> None:
        try:
            while not actor.over.is_set():
                actor.act()
                actor.acts += 1
        except Exception as error:  # noqa: BLE001  # the main thread raises it
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
