"""A constant load of requests, which records each one that fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from http.client import HTTPException
from threading import Event, Thread
from typing import Self

from tests.service import Client
from tests.waiting import eventually


class Load:
    """Clients that send requests without a pause until the end of the block.

    Some use each connection as long as the server allows, others open one for each request. A request whose connection
    breaks is sent once more, on a new connection.
    """

    def __init__(self, port: int) -> None:
        self.failures: list[str] = []
        self._port = port
        self._answered = 0
        self._done = Event()
        self._threads = [Thread(target=self._run, args=(is_last,)) for is_last in 3 * (self._done.is_set, lambda: True)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def continues(self, requests: int = 100) -> None:
        """Wait until so many more requests were answered."""
        enough = self._answered + requests
        eventually(lambda: self._answered >= enough or self.failures)

    def _run(self, is_last: Callable[[], bool]) -> None:
        while not self._done.is_set():
            try:
                self._requests(is_last)
            except (OSError, HTTPException):
                try:
                    self._requests(lambda: True)
                except (OSError, HTTPException) as error:
                    self.failures.append(repr(error))

    def _requests(self, is_last: Callable[[], bool]) -> None:
        """Send requests on one connection, until the server closes it or one is the last."""
        with closing(Client(self._port)) as client:
            while True:
                answer = client.request("/healthz")
                if answer.status != 200:
                    self.failures.append(f"status {answer.status}")
                self._answered += 1
                if answer.headers.get("connection") == "close" or is_last():
                    return
