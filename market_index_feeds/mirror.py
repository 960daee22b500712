"""Makes a target equal to each version of a feed: the loop of a relay and of a recorder (decision 34).

A mirror reads its target once. Then it writes the difference between what the target contains and the next version, in
one transaction. Once a second it compares the position of the target, to find other writers. After their changes, and
after an error, it reads the target again.

While a record of the source is invalid, the pairs that a version lacks may be those of the invalid record. Then the
mirror retracts only pairs that it has seen in the source, and remembers the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event
from typing import Final

from market_index import MarketIndex, OrderBook, Pair
from market_index_feeds.backoff import next_backoff
from market_index_feeds.feed import Feed
from market_index_feeds.source import Progress, Version
from market_index_feeds.store import BookTooLarge, Conflict, Store, StoreError, Target

LOG: Final = logging.getLogger(__name__)

MAX_CONFLICTS: Final = 10
"""How often a mirror reads its target again for one version, until it waits for the next one."""


def mirror(
    feed: Feed,
    open_target: Callable[[], Target],
    stop: Event | None = None,
    *,
    progress: Progress | None = None,
    on_written: Callable[[Target, Version], None] | None = None,
) -> None:
    """Make a target equal to each version of a feed, until the feed ends or is closed.

    The target is a store or a `Recorder`. It must have no other publisher: a mirror undoes what others change. After an
    error, it is closed and opened again. A book above a limit of the target is left out, and logged. Meanwhile the
    as_of of the target is not known.

    Args:
        feed: A feed that was not started. It is not closed.
        open_target: Opens the target.
        stop: Ends the mirror once it is set. A signal handler must not set it: the thread that waits for it may hold
            its lock. It can raise an exception instead.
        progress: Called while the source is loaded.
        on_written: Called with the target and the version, after the first version and after each that was written.

    Raises:
        FeedError: The source cannot be read at the first attempt, or a stream cannot be read.
        StoreError: The target cannot be opened or written at the first attempt. Later errors are logged, and the target
            is opened again.
    """
    stop = stop or Event()
    written: _Mirror | None = None
    failing: str | None = None
    backoff, seen = 0.0, set[Pair]()
    is_first = True
    try:
        for version in feed.versions(stop, progress):
            seen.update(version.index) if is_first else None
            try:
                written = written or _Mirror(open_target(), seen)
                if written.write(version) or is_first:
                    is_first = False
                    if on_written is not None:
                        on_written(written.target, version)
            except StoreError as error:
                if is_first:
                    raise
                if str(error) != failing:
                    failing = str(error)
                    LOG.warning("%s; retrying", error)
                if written is not None:
                    written.target.close()
                written, backoff = None, next_backoff(backoff)
                stop.wait(backoff)
            else:
                if failing is not None:
                    LOG.info("%s: recovered", written.target.name)
                backoff, failing = 0.0, None
    finally:
        if written is not None:
            written.target.close()
