"""Makes a target equal to each version of a feed: the loop of a relay and of a recorder (decision 34).

A mirror reads its target once. Then it writes the difference between what the target contains and the next version, in
one transaction. Once a second, it compares the position of the target with that of its last change, to find other
writers. After their changes, and after an error, it reads the target again.

A version may lack a pair because its record is invalid. So while a record is invalid, the mirror retracts only pairs
that it has seen in the source. The others stay in the target, and in the difference to the next version.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from math import inf
from time import monotonic
from typing import Final

from market_index import MarketIndex, OrderBook, Pair
from market_index_feeds.backoff import next_backoff
from market_index_feeds.errors import Conflict, StoreError
from market_index_feeds.feed import Feed
from market_index_feeds.source import Progress, Version
from market_index_feeds.store import Receipt, Store

LOG: Final = logging.getLogger(__name__)

CHECK_SECONDS: Final = 1.0
"""Interval between two questions for the position of the target, however often the source yields a version."""


def mirror(
    feed: Feed,
    open_target: Callable[[], Store],
    *,
    progress: Progress | None = None,
    on_written: Callable[[Store, Receipt], object] | None = None,
    is_keeping: Callable[[], bool] = lambda: True,
) -> frozenset[Pair]:
    """Make a target equal to each version of a feed, until the feed ends or is closed.

    The target is a store or a `Recorder`. It must have no other publisher: a mirror undoes what others change. A book
    above a limit of the target is left out, and logged. Meanwhile the as_of of the target is not known. The target is
    opened at the first version, and again after an error.

    Args:
        feed: A feed that was not started.
        open_target: Opens the target, which the mirror closes.
        progress: Called while the source is loaded.
        on_written: Called after the first version, and after each further one that differs from the target.
        is_keeping: Returns whether this mirror keeps the target, called before each version. Otherwise another one
            does, and nothing is written (decision 40).

    Returns:
        The pairs whose current books are left out.

    Raises:
        FeedError: The source cannot be read at the first attempt, or a stream cannot be read.
        StoreError: The target cannot be opened, read or written at the first attempt, or when the feed ends. Between
            these, errors are logged, and the next version is written.
    """
    copy, failure, backoff = _Copy(open_target, is_keeping), None, 0.0
    with closing(copy), closing(feed.versions(progress)) as versions:
        for version in versions:
            if not is_keeping():
                copy.close()
                continue
            try:
                receipt = copy.write(version)
            except StoreError as error:
                if copy.is_new:
                    raise
                if str(error) != str(failure):
                    LOG.warning("%s; retrying", error)
                copy.close()
                failure, backoff = error, next_backoff(backoff)
                feed.wait(backoff)
            else:
                if failure is not None:
                    LOG.info("%s: equal again to %s", copy.target.name, feed.name)
                failure, backoff = None, 0.0
                if receipt is not None and on_written is not None:
                    on_written(copy.target, receipt)
    if failure is not None:
        raise failure
    return frozenset(copy.left_out)


class _Copy:
    """A target, and what it contains.

    `is_new`: whether nothing was written yet. `left_out` has the books that exceed a limit of the target, which keeps
    the earlier books of their pairs, if any.
    """

    def __init__(self, open_target: Callable[[], Store], is_keeping: Callable[[], bool]) -> None:
        self.is_new: bool = True
        self.left_out: dict[Pair, OrderBook] = {}
        self._open_target, self._is_keeping = open_target, is_keeping
        self._target: Store | None = None
        self._content: Version | None = None
        self._check_at = -inf
        # The last index of the source, and all pairs that the source had so far.
        self._source_index = MarketIndex()
        self._seen: set[Pair] = set()

    @property
    def target(self) -> Store:
        """The target, which is opened when it is needed: a source without a version leaves no new store."""
        if self._target is None:
            self._target = self._open_target()
        return self._target

    def close(self) -> None:
        """Close the target. The next `write` opens and reads it."""
        if self._target is not None:
            self._target.close()
        self._target = self._content = None

    def write(self, version: Version) -> Receipt | None:
        """Make the target equal to a version. Return None if it is equal already. Raises `StoreError`."""
        changed, _ = version.index.changes_since(self._source_index)
        self._seen.update([book.pair for book in changed])
        self._source_index = version.index
        try:
            receipt = self._write(version)
        except Conflict as error:
            if not self._is_keeping():
                raise
            LOG.warning("%s; making it equal again", error)
            self._content = None
            receipt = self._write(version)
        self.is_new = False
        return receipt

    def _write(self, version: Version) -> Receipt | None:
        target, content, index = self.target, self._content, version.index
        if content is None:
            content = self._content = target.read()
        elif monotonic() >= self._check_at:
            self._check_at = monotonic() + CHECK_SECONDS
            if target.position != content.position:
                raise Conflict(f"{target.name} was changed by another program")
        left_out = self.left_out = {pair: book for pair, book in self.left_out.items() if index.get(pair) is book}
        before = content.index
        changed, removed = index.changes_since(before)
        books = [book for book in changed if book.pair not in left_out]
        retract = [pair for pair in removed if pair in self._seen] if version.invalid else list(removed)
        freshness = index.freshness.without_as_of() if left_out else index.freshness
        if content.invalid and not left_out and len(retract) == len(removed):
            receipt = target.replace(index.values(), freshness, leave_out=True)
            self._content = None
            self.left_out = {book.pair: book for book in receipt.left_out}
            return receipt
        if books or retract or freshness != before.freshness:
            receipt = target.update(books, retract, freshness, after=content.position, leave_out=True)
        elif self.is_new and content.position is not None:
            receipt = Receipt(position=content.position, freshness=before.freshness)
        else:
            return None
        if receipt.left_out:
            left_out.update((book.pair, book) for book in receipt.left_out)
            freshness = freshness.without_as_of()
        # Derived from the index of the source, so that the next difference costs only what changes.
        stay = [before[pair] for pair in set(removed).difference(retract).union(left_out) if pair in before]
        after = index.without(*left_out).with_books(*stay).with_freshness(freshness)
        self._content = Version(after, content.invalid, receipt.position)
        return receipt
