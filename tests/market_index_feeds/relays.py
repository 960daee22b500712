"""A relay that runs in a thread, and the content of its store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from market_index_feeds import FeedError, Relay, Store, open_feed, open_store
from tests.market_index_feeds.made_up import spots
from tests.waiting import DEADLINE_SECONDS, eventually


def read(target: str) -> dict[int, str | None]:
    return spots(open_feed(target).read())


def as_of(target: str) -> str | None:
    return open_feed(target).read().as_of


def is_complete(target: str) -> bool:
    """Return whether the store is marked as complete."""
    with open_feed(target) as feed:
        feed.read()
        return feed.content.coverage.is_complete


def await_spots(target: str, expected: dict[int, str | None]) -> None:
    """Wait until the store contains exactly these spots."""
    eventually(lambda: read_or_none(target) == expected)


def read_or_none(target: str) -> dict[int, str | None] | None:
    """Return the stored spots; None while the store cannot be read."""
    try:
        return read(target)
    except FeedError:
        return None


@contextmanager
def relaying(source: Store | str, target: str, wait: float = DEADLINE_SECONDS) -> Iterator[Relay]:
    with open_feed(source if isinstance(source, str) else source.target) as feed:
        relay = Relay(feed, lambda: open_store(target, wait=wait), check_seconds=0.05)
        relay.start()
        thread = Thread(target=relay.run)
        thread.start()
        try:
            yield relay
        finally:
            relay.close()
            relay.close()
            assert relay.is_closing
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()
