"""Requests that wait for a change of the pair list or of a book (decision 28)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from threading import Event
from time import monotonic
from typing import TypeAlias

from market_index import Pair
from market_index_feeds.http.client import SLICE_SECONDS, Exchange, Outcome, ServiceClient, ServiceRequest

Content: TypeAlias = Pair | None
"""What a request is for: the book of a pair; None: the pair list."""


class Waits:
    """The requests that wait, at most one for each content. They belong to the thread of their client."""

    def __init__(self, client: ServiceClient) -> None:
        self._client = client
        self._open: dict[Content, Exchange] = {}
        # Those that may receive an older content than is known.
        self._outdated: set[Exchange] = set()
        # Set by the threads of the exchanges.
        self._is_any_over = Event()

    def include(self, contents: Collection[Content]) -> bool:
        """Whether there is a request for each of these contents."""
        return self._open.keys() >= set(contents)

    def replace(self, requests: Mapping[Content, ServiceRequest]) -> None:
        """Let exactly these requests wait: start those that are missing, and end all others."""
        for content, exchange in list(self._open.items()):
            if exchange.request != requests.get(content):
                del self._open[content]
                self._outdated.discard(exchange)
                exchange.end()
        for content, request in requests.items():
            if content not in self._open:
                self._start(content, request)

    def _start(self, content: Content, request: ServiceRequest) -> None:
        self._open[content] = exchange = self._client.start(request)
        exchange.call_when_over(self._is_any_over.set)

    def outcomes(self, seconds: float, stop: Event) -> Mapping[Content, Outcome]:
        """Return all outcomes. If there is none, wait for the first one, up to so many seconds or until `stop`."""
        until = monotonic() + seconds
        found = self._outcomes()
        while not found and not stop.is_set() and (left := until - monotonic()) > 0:
            if self._is_any_over.wait(min(left, SLICE_SECONDS)):
                found = self._outcomes()
        return found

    def _outcomes(self) -> Mapping[Content, Outcome]:
        """Remove the requests that are over, or past their deadline, and return their outcomes."""
        self._is_any_over.clear()
        found: dict[Content, Outcome] = {}
        for content, exchange in list(self._open.items()):
            outcome = exchange.result()
            if outcome is None:
                continue
            if exchange in self._outdated:
                self._outdated.remove(exchange)
                self._start(content, exchange.request)
            else:
                del self._open[content]
                found[content] = outcome
        return found

    def outdate(self) -> None:
        """Request the contents once more instead of using what these requests receive.

        To be called after another request for each content, whose response may be newer.
        """
        self._outdated = set(self._open.values())

    def close(self) -> None:
        """End all requests."""
        self.replace({})
