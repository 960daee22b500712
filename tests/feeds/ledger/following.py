"""A source of the ledger, pulled until it shows something."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from threading import Event
from typing import Any

from market_index_feeds.ledger.source import LedgerSource
from market_index_feeds.source import NoVersion, Version
from tests.feeds.ledger.datums import id_of

NOW = datetime.fromtimestamp(1_800_000_000, UTC)


def orders(version: Version) -> set[str]:
    """Return the ids of the orders of a version."""
    assert version.orders is not None
    assert version.venue_orders is not None
    assert version.venue_orders.keys() == version.orders.keys()
    return set(version.orders)


class Followed:
    """A source, and what it yields. `now` is its wall clock."""

    def __init__(self, opened: Callable[[Callable[[], datetime]], LedgerSource]) -> None:
        self.now = NOW
        self.source = opened(lambda: self.now)
        self.versions = self.source.versions(Event())

    def close(self) -> None:
        self.versions.close()

    def until(self, expected: NoVersion) -> None:
        """Wait for the reason why there is no version."""
        assert expected in islice(self.versions, 100)

    def first(self, fits: Callable[[Version], bool]) -> Version:
        """Return the next version that fits."""
        return next(one for one in islice(self.versions, 1000) if isinstance(one, Version) and fits(one))

    def version(self, text: str) -> Version:
        """Return the version of a block. One that was in flight may come before."""
        return self.first(lambda one: one.index.as_of == text)

    def showing(self, *matches: Any) -> Version:
        """Return the next version with exactly these orders."""
        return self.first(lambda one: orders(one) == {id_of(match) for match in matches})

    def failure(self) -> str:
        """Return the problem of the next version that has one. It can be followed again afterwards."""
        problem = str(self.first(lambda one: one.problem is not None).problem)
        self.versions.close()
        self.versions = self.source.versions(Event())
        return problem
