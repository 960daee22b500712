"""A constant load of requests, which records each one that fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from threading import Event, Thread
from typing import Self

from tests.service import Client
from tests.waiting import eventually

TARGET = "/healthz"


class Load:
    """Clients that send requests without a pause until the end of the block.

    Some use each connection as long as the server allows, others open one for each request. No request is repeated,
    unless `repeats` is set: then a request whose connection breaks is sent once more on a new connection.
    """

    def __init__(self, address: int | Path, *, clients: int = 3, repeats: bool = False) -> None:
        self.failures: list[str] = []
        self.repeated = 0
        self.answered = 0
        self.processes: set[int] = set()
        """The process ids of the workers that responded."""
        self._address = address
        self._repeats = repeats
        self._done = Event()
        kinds: list[Callable[[], None]] = [self._keep_connections, self._open_connections]
        self._threads = [Thread(target=kind) for kind in kinds for _ in range(clients)]

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
        enough = self.answered + requests
        eventually(lambda: self.answered >= enough or self.failures)

    def _keep_connections(self) -> None:
        while not self._done.is_set():
            self._attempt(self._done.is_set)

    def _open_connections(self) -> None:
        while not self._done.is_set():
            self._attempt(lambda: True)

    def _attempt(self, is_last: Callable[[], bool]) -> None:
        try:
            self._requests(is_last)
        except (OSError, HTTPException) as error:
            if not self._repeats:
                self.failures.append(repr(error))
                return
            self.repeated += 1
            try:
                self._requests(lambda: True)
            except (OSError, HTTPException) as again:
                self.failures.append(repr(again))

    def _requests(self, is_last: Callable[[], bool]) -> None:
        """Send requests on one connection, until the server closes it or one is the last."""
        with closing(Client(self._address)) as client:
            while True:
                answer = client.request(TARGET)
                if answer.status != 200:
                    self.failures.append(f"status {answer.status}")
                self.processes.add(answer.json["process"])
                self.answered += 1
                if answer.headers.get("connection") == "close" or is_last():
                    return
