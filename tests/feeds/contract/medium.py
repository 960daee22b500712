"""The interface of the contract: a medium, and a reader whose versions are pulled, so that no test waits for time.

A medium plugs in with a class below `Medium`, which is listed in `media.py`. Capabilities that it lacks exclude the
laws that need them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from enum import Enum, auto
from pathlib import Path
from threading import Event
from typing import ClassVar, Final, Self, TypeAlias

import pytest

from market_index import Freshness, MarketIndex, OrderBook, Pair
from market_index_feeds import Feed, Store, Version, open_feed
from tests.feeds.made_up import book, pair

Fence: TypeAlias = Callable[[Version], bool]
"""Whether a version has what was written. It holds for all later versions, too, until the medium is replaced."""

MAX_PULLS: Final = 1000
"""How many versions a reader pulls until it fails."""

MAX_WAITS: Final = 100_000
"""How often a source waits until a test fails: one without a version is read again and again."""

MARK: Final = pair(0)
"""The pair by which a medium without positions marks what was written."""


class Can(Enum):
    """What a medium can do."""

    ANY_BOOK = auto()  # it contains every valid book exactly, not only a spot price
    LIVE = auto()  # it can be changed while it is read
    RETRACT = auto()
    REPLACE = auto()
    AS_OF = auto()
    PUBLISHED_AT = auto()
    NAMED = auto()  # it can contain an invalid record whose pair can be read
    UNNAMED = auto()  # it can contain an invalid record whose pair cannot be read
    HIDE = auto()  # it can become unreadable, and readable again
    BLANK = auto()  # nothing was ever published into it
    MANY = auto()  # several readers can read it
    STORE = auto()  # it is a store
    SEVERAL = auto()  # several publishers can have it open
    COPY = auto()  # a copy of it can be renamed over it
    REVISIONS = auto()  # its readers know its positions


class Medium(ABC):
    """One source, and the programs that change it. `path` is a folder of its own."""

    can: ClassVar[frozenset[Can]]
    most_unread: ClassVar[int] = 2
    """How many versions of many changes a slow reader gets: the last one, and one that was read already."""

    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        self.path, self.request = path, request

    @property
    @abstractmethod
    def name(self) -> str:
        """The name for `open_feed` and `open_store`."""

    @abstractmethod
    def write(self, *books: OrderBook, retract: tuple[Pair, ...] = (), freshness: Freshness | None = None) -> Fence:
        """Publish a change. `freshness` of None: the as_of is unchanged, or not known."""

    def replace(self, *books: OrderBook, freshness: Freshness | None = None) -> Fence:
        """Make these books the whole content."""
        raise NotImplementedError

    def spoil(self, pair: Pair | None) -> Fence:
        """Make the record of a pair invalid, or add one whose pair cannot be read."""
        raise NotImplementedError

    def hide(self) -> None:
        """Make it unreadable."""
        raise NotImplementedError

    def show(self) -> None:
        """Make it readable again, with its content."""
        raise NotImplementedError

    def reset(self) -> None:
        """Replace it by one into which nothing was ever published."""
        raise NotImplementedError

    def copy(self) -> None:
        """Copy it."""
        raise NotImplementedError

    def restore(self) -> Fence:
        """Rename the copy over it. The fence is that of the time of the copy."""
        raise NotImplementedError

    def feed(self) -> Feed:
        """Open a feed of it."""
        return open_feed(self.name)

    def store(self) -> Store:
        """Open it as a store."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027  # most have nothing open
        """Close what it has open."""


class Marked(Medium):
    """A medium without positions: each write changes the spot price of the pair `MARK`."""

    writes: int = 0

    def mark(self) -> OrderBook:
        """Return the next book of `MARK`."""
        self.writes += 1
        return book(0, self.writes)

    def fence(self) -> Fence:
        """Return the fence of the last write."""
        writes = self.writes
        return lambda version: MARK in version.index and int(version.index[MARK].spot or 0) >= writes


class Ticks(Event):
    """A stop event whose `wait` returns at once, so that waiting takes no time. It counts the waits.

    `then` has work to do at a wait of that number. With `limit`, it is set after so many waits.
    """

    def __init__(self, limit: int | None = None, then: dict[int, Callable[[], object]] | None = None) -> None:
        super().__init__()
        self.waits, self._limit, self._then = 0, limit, then or {}

    def wait(self, timeout: float | None = None) -> bool:
        """Return at once whether the event is set."""
        del timeout
        if not self.is_set():
            self.waits += 1
            assert self.waits <= MAX_WAITS, "there is no version"
            if work := self._then.get(self.waits):
                work()
            if self._limit is not None and self.waits >= self._limit:
                self.set()
        return self.is_set()


def without_waits(feed: Feed, stop: Ticks | None = None) -> Feed:
    """Return the feed, whose waits take no time from now on."""
    feed._stop = stop or Ticks()
    return feed


class Reader:
    """A feed whose versions are pulled. `versions` has all of them so far, each once."""

    def __init__(self, feed: Feed, stop: Ticks | None = None) -> None:
        self.feed, self.stop = feed, stop or Ticks()
        self.versions: list[Version] = []
        self._pulled: Generator[Version, None, None] = without_waits(feed, self.stop).versions()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.close()
        # Not left to the garbage collection, which may run within another event loop.
        self._pulled.close()

    @property
    def index(self) -> MarketIndex:
        """The content of the last version."""
        return content(self.versions[-1].index)

    def problem(self) -> str | None:
        """Return the problem of the feed."""
        return self.feed.health.problem

    @property
    def books(self) -> dict[Pair, OrderBook]:
        """The books of the last version."""
        return dict(self.index)

    def pull(self) -> Version:
        """Return the next version."""
        version = next(self._pulled)
        if not self.versions or version is not self.versions[-1]:
            self.versions.append(version)
        return version

    def until(self, fence: Fence, *more: Fence) -> list[Version]:
        """Pull versions until one has what was written. Return those that are new."""
        before = len(self.versions)
        for _ in range(MAX_PULLS):
            version = self.pull()
            if fence(version) and all(one(version) for one in more):
                return self.versions[before:]
        raise AssertionError(f"not read within {MAX_PULLS} versions; problem: {self.feed.health.problem}")

    def end(self) -> str | None:
        """Pull until the iterator ends, and return the problem of the feed."""
        for _ in range(MAX_PULLS):
            try:
                self.pull()
            except StopIteration:
                return self.feed.health.problem
        raise AssertionError(f"not ended within {MAX_PULLS} versions")


def content(index: MarketIndex) -> MarketIndex:
    """Return an index without the pair `MARK`."""
    return index.without(MARK)
