"""A source of lines with given chunks, for tests of what is visible after each chunk."""

from __future__ import annotations

from collections.abc import Callable, Generator
from threading import Event
from typing import Generic, TypeVar

from market_index_feeds.line_source import LineBatch, LineSource

T = TypeVar("T")


class ScriptedLines(LineSource, Generic[T]):
    """A source of lines with given chunks. It records what is visible after each of them."""

    is_stream = False

    def __init__(self, script: list[LineBatch], see: Callable[[], T]) -> None:
        super().__init__("script")
        self.seen: list[T] = []
        self.is_over = Event()
        self._script = script
        self._see = see

    def batches(self, stop: Event) -> Generator[LineBatch, None, None]:
        for batch in self._script:
            yield batch
            self.seen.append(self._see())
        self.is_over.set()
        stop.wait()
