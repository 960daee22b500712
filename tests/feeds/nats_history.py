"""A publisher of numbered changes into a bucket, and readers whose versions are compared with the numbered contents."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from market_index import Freshness
from market_index_feeds import Feed, FeedError, Store, StoreError, Version, open_feed, open_store
from tests.feeds.made_up import book, pair, spots
from tests.waiting import DEADLINE_SECONDS, eventually

PAIRS = 12


class History:
    """Publishes random changes. Change n has the as_of "n", and `contents[n]` is the whole content after it.

    A change that failed is tried again under its number, until it is acknowledged or was stored. `check` requires that
    a version is exactly one of the contents.
    """

    def __init__(self, url: str, *, wait: float = 1.0, seed: int = 7) -> None:
        self.url = url
        self.contents: list[dict[int, str | None]] = [{}]
        self.failures: list[str] = []
        self._wait = wait
        self._random = random.Random(seed)
        self._store: Store | None = None

    @property
    def last(self) -> int:
        """The number of the last change that is stored."""
        return len(self.contents) - 1

    def publish(self) -> None:
        """Store one more change, whatever happens to the servers meanwhile."""
        number, before = len(self.contents), self.contents[-1]
        changed = {one: str(number) for one in self._random.sample(range(PAIRS), self._random.randrange(1, 6))}
        gone = set(self._random.sample(range(PAIRS), self._random.randrange(3))) - changed.keys()
        is_whole = number == 1 or self._random.random() < 0.2
        content = changed if is_whole else {k: v for k, v in before.items() if k not in gone} | changed
        # Readers may see it before it is acknowledged.
        self.contents.append(dict(content))
        freshness, books = Freshness(str(number)), [book(one, spot) for one, spot in changed.items()]
        for attempt in range(1000):
            try:
                self._store = self._store or open_store(self.url, wait=self._wait)
                if attempt and self._store.read().index.as_of == str(number):
                    return
                if is_whole:
                    self._store.replace(books, freshness)
                else:
                    self._store.update(books, [pair(one) for one in gone], freshness)
            except StoreError as error:
                self.failures.append(str(error))
            else:
                return
        raise AssertionError(self.failures[-1])

    def check(self, version: Version) -> int:
        """Return the number of the change that a version contains; fail if it is a mixture."""
        assert version.index.as_of is not None
        number = int(version.index.as_of)
        assert spots(version.index) == self.contents[number]
        return number

    def read(self) -> int:
        """Return the number of the change that a new reader finds."""
        feed = open_feed(self.url)
        feed.read()
        assert feed.version is not None
        return self.check(feed.version)

    @contextmanager
    def followed(self, readers: int = 2) -> Iterator[Callable[[], None]]:
        """Check each version of some readers. Yield a function that waits until all have seen the last change."""
        stop, seen, errors, feeds = Event(), [0] * readers, list[BaseException](), dict[int, Feed]()

        def follow(reader: int) -> None:
            try:
                while not stop.is_set():
                    feeds[reader] = feed = open_feed(self.url)
                    try:
                        for version in feed.versions():
                            if stop.is_set():
                                return
                            number = self.check(version)
                            assert number >= seen[reader]
                            seen[reader] = number
                    except FeedError:
                        continue  # no server is reachable at the start
            except BaseException as error:  # noqa: BLE001  # the main thread raises it
                errors.append(error)

        def await_last() -> None:
            eventually(lambda: errors or min(seen) == self.last)
            if errors:
                raise errors[0]

        threads = [Thread(target=follow, args=(reader,)) for reader in range(readers)]
        for thread in threads:
            thread.start()
        try:
            yield await_last
            await_last()
        finally:
            stop.set()
            for feed in [*feeds.values()]:
                feed.close()
            for thread in threads:
                thread.join(DEADLINE_SECONDS)
            if self._store is not None:
                self._store.close()
