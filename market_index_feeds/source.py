"""What all media have in common: a `Source` yields whole versions of its content, each derived from the last one.

These rules decide what a version contains:

- It has exactly the pairs of the content. A pair that the content lacks is retracted.
- An invalid record is rejected, counted and logged, once as long as it stays invalid. Its pair keeps the last valid
  book that this source has read. An invalid record whose pair cannot be read may be of any pair, so no pair is
  retracted while there is such a record. A valid record of its pair, or the whole content, replaces an invalid record.
- While a record is invalid, the as_of is not known.
- If a book or the whole content is equal to the one before, it is the same object.
- If a pair is retracted and has a book, it gets the book.
- Content without a book and without a retraction is no version, because nothing was published (decision 31). Neither is
  content that is not complete. The last version stays, and a later one is derived from what was read since.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from datetime import UTC, datetime
from threading import Event
from time import monotonic
from typing import Final, TypeAlias

from attrs import field, frozen

from market_index import Freshness, MarketIndex, OrderBook, Pair, RestingOrders
from market_index_feeds.venue_orders import SkippedOutput, VenueOrder

LOG: Final = logging.getLogger(__name__)

LOGGED_PER_MINUTE: Final = 20
"""How many rejected records of one source are logged per minute. All are counted."""

UNKNOWN: Final = Freshness()
"""The freshness of books of which nothing is known."""


def utc_now() -> datetime:
    """Return the time of the wall clock of this machine."""
    return datetime.now(UTC)


Progress: TypeAlias = Callable[[int, int], None]
"""A callback while a source is loaded. Its arguments are the bytes read and the bytes in total; 0 and 0 if not known.

An exception that it raises ends the loading.
"""


@frozen
class Position:
    """The position of a store: a number that increases with each change, and the `run` of these changes.

    Compare only numbers of the same run: a store and its restored copy have different runs.
    """

    run: str
    number: int


@frozen(eq=False)
class Version:
    """What a source contains at one moment. Compared by identity.

    `index` has the valid books, with their freshness. `invalid` has the pairs of the invalid records, and None for a
    record whose pair cannot be read. `position` is None if the medium is not a store. `orders` are the orders behind
    the index, None if the medium has only books. If they come from the ledger, `venue_orders` has each order with its
    venue, `spot_times` has the time of each spot, and `skipped` has the reason why an output is no order, by its id.

    `problem` is why the source may contain something else by now, such as an outage during which orders expire; None if
    the version is all of it. A feed shows the version, and is not healthy.
    """

    index: MarketIndex
    invalid: frozenset[Pair | None] = frozenset()
    position: Position | None = None
    orders: RestingOrders | None = None
    venue_orders: Mapping[str, VenueOrder] | None = None
    skipped: Mapping[str, SkippedOutput] = field(factory=dict)
    problem: str | None = None
    spot_times: Mapping[Pair, datetime] = field(factory=dict)

    def equals(self, other: Version) -> bool:
        """Whether nothing differs. The large values are compared by identity."""
        return (
            self.index is other.index
            and self.orders is other.orders
            and self.venue_orders is other.venue_orders
            and self.skipped is other.skipped
            and self.spot_times is other.spot_times
            and (self.invalid, self.position, self.problem) == (other.invalid, other.position, other.problem)
        )


@frozen
class NoVersion:
    """Why a source has no version now, and only its publisher can change that (decision 31).

    `reason` completes the message "market.db contains no order book".
    """

    reason: str = "contains no order book"


class Source(ABC):
    """A medium that is read. One thread at a time iterates over `versions`, but not always the same thread.

    To add a medium, write a class with one generator, and a row in the table of `sources.py`. `reject` counts and logs
    a record, and `derive` applies the rules of this module. `Feed` does the rest: it calls `versions` again after an
    error, logs, and reports health. This medium is a folder with a file for each order book:

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from market_index import MarketIndexError, wire
    >>> from market_index_feeds import Feed
    >>> class Folder(Source):
    ...     def __init__(self, path):
    ...         super().__init__(f"folder:{path}")
    ...         self.path = Path(path)
    ...
    ...     def versions(self, stop, progress=None):
    ...         while not stop.is_set():
    ...             books, invalid = [], set()
    ...             for file in sorted(self.path.iterdir()):
    ...                 text = file.read_bytes()
    ...                 try:
    ...                     books.append(wire.order_book_from_json(text))
    ...                 except MarketIndexError as error:
    ...                     invalid.add(wire.pair_named_in(text))
    ...                     self.reject(file.name, error)
    ...             yield self.derive(books, invalid=invalid, is_whole=True)
    ...             stop.wait(0.1)
    >>> with TemporaryDirectory() as path:
    ...     _ = Path(path, "one.json").write_text('{"base": "ADA", "quote": "%s:", "spot": "0.5"}' % ("00" * 28))
    ...     Feed(Folder(path)).read()
    <MarketIndex: 1 pairs>

    `name` is its name in messages, without credentials. `last` is the last version; it is kept when the source fails.
    `content` is what was read last, which may be no version. `rejected` is the number of records that were rejected so
    far.
    """

    is_stream: bool = False
    """Whether it can be read only once, by one process."""

    is_endless: bool = False
    """Whether it is a stream without an end, such as a replay in a loop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last: Version | None = None
        self.content: Version = Version(MarketIndex())
        self.rejected: int = 0
        # Whether nothing was published. The books of the content, and of pairs that it lacks, but that may be invalid
        # in it. The pairs of its invalid records.
        self._is_blank = True
        self._index = MarketIndex()
        self._lacking: set[Pair] = set()
        self._invalid: frozenset[Pair | None] = frozenset()
        self._invalid_records: Collection[str] = ()
        # The pairs of which a saturated level was logged (decision 26).
        self._saturated: set[Pair] = set()
        self._minute_ends_at, self._logged = 0.0, 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def figures(self) -> Mapping[str, float]:
        """Numbers of this medium by their names, for probes and metrics."""
        return {}

    @abstractmethod
    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        """Yield the content, then each later version; the same object again for a check that finds no change.

        It yields at least once a second. Each version is derived from the content at the time when it is asked for, so
        a slow caller gets fewer versions. Every wait is `stop.wait`. The generator returns soon after `stop` is set. If
        it returns before, the source has ended for good. Closing the generator releases what it has open. `progress` is
        called while the first version is read.

        If only the publisher can end a problem, yield a `NoVersion`. If the problem may end by itself, raise
        `FeedError` or `OSError`: the text of the error completes the message "market.db cannot be read: ...". Then the
        feed calls `versions` again after a backoff. If the content changes although the source cannot be read, as
        orders of the ledger expire, yield a version with `problem_of(error)` before.
        """

    def versions_of(self, pair: Pair, stop: Event) -> Generator[Version | NoVersion, None, None]:
        """Yield versions as `versions`; only the book of one pair must be in them, if the source has it.

        For a medium that can read one book without the others.
        """
        del pair
        return self.versions(stop)

    def reject(self, record: str, reason: object) -> None:
        """Count and log a record that is not valid. `record` is its place: `line 7`, `row ADA/...`."""
        self.rejected += 1
        if monotonic() >= self._minute_ends_at:
            self.log_unlogged()
            self._minute_ends_at, self._logged = monotonic() + 60, 0
        self._logged += 1
        if self._logged <= LOGGED_PER_MINUTE:
            LOG.warning("%s: %s rejected: %s", self.name, record, reason)

    def reject_new(self, invalid: Mapping[str, object]) -> None:
        """Reject the records that were not invalid at the last call.

        For a source that reads a record again while it stays invalid. `invalid` has all records that are invalid now,
        with the reason of each.
        """
        for record, reason in invalid.items():
            if record not in self._invalid_records:
                self.reject(record, reason)
        self._invalid_records = frozenset(invalid)

    def log_unlogged(self) -> None:
        """Log how many records were rejected beyond those that were logged."""
        if self._logged > LOGGED_PER_MINUTE:
            LOG.warning("%s: %d more records rejected", self.name, self._logged - LOGGED_PER_MINUTE)
            self._logged = LOGGED_PER_MINUTE

    def derive(
        self,
        books: Iterable[OrderBook],
        retract: Iterable[Pair] = (),
        *,
        invalid: Collection[Pair | None] = (),
        unfinished: Collection[Pair | None] = (),
        is_whole: bool = False,
        incomplete: str | None = None,
        freshness: Freshness = UNKNOWN,
        position: Position | None = None,
    ) -> Version | NoVersion:
        """Return the version that follows, and remember it as `last`; `last` itself if nothing differs.

        Args:
            books: The whole content, or what changed since the last call. If a pair repeats, its last book wins.
            retract: The pairs that are removed, unless they have a book.
            invalid: The pairs of the invalid records among them, None for one whose pair cannot be read. A pair stays
                invalid until a later call has a book or a retraction of it, or the whole content.
            unfinished: The pairs of records that are not yet written to their end: invalid up to the next call.
            is_whole: Whether `books` is the whole content: all other pairs are removed, but not those of invalid
                records, and none as long as the pair of an invalid record cannot be read.
            incomplete: Why the content is no version, as in `NoVersion`. It is only remembered as `content`.
            freshness: The freshness of the whole content.
            position: The position of the store.
        """
        by_pair = {book.pair: book for book in books}
        gone = set(retract).difference(by_pair)
        if is_whole:
            self._is_blank, self._lacking, self._invalid = True, set(self._index), frozenset()
        self._is_blank = self._is_blank and not by_pair and not gone
        self._invalid = self._invalid.difference(by_pair, gone).union(invalid)
        now_invalid = self._invalid.union(unfinished)
        freshness = freshness.without_as_of() if now_invalid else freshness
        if self._is_blank:
            self.content = Version(MarketIndex().with_freshness(freshness), now_invalid, position)
            return NoVersion("contains no valid order book") if now_invalid else NoVersion()
        self._lacking.difference_update(by_pair)
        if None not in now_invalid:
            gone |= self._lacking - now_invalid
            self._lacking &= now_invalid
        changed = [book for pair, book in by_pair.items() if self._index.get(pair) != book]
        self._index = self._index.with_books(*changed).without(*gone).with_freshness(freshness)
        if incomplete is not None:
            self.content = Version(self._index, now_invalid, position)
            return NoVersion(incomplete)
        return self.version_of(self._index, invalid=now_invalid, position=position)

    def version_of(
        self,
        index: MarketIndex,
        *,
        invalid: frozenset[Pair | None] = frozenset(),
        position: Position | None = None,
        orders: RestingOrders | None = None,
        venue_orders: Mapping[str, VenueOrder] | None = None,
        skipped: Mapping[str, SkippedOutput] = {},
        problem: str | None = None,
        spot_times: Mapping[Pair, datetime] = {},
    ) -> Version:
        """Return the version with an index, and remember it as `last`; `last` itself if nothing differs.

        For a medium that derives its index by itself, such as orders.
        """
        for pair in () if orders is None else orders.saturated.keys() - self._saturated:
            self._saturated.add(pair)
            LOG.warning("%s: %s has a level of 2^64-1, the largest amount of a book, or more", self.name, pair)
        version = Version(index, invalid, position, orders, venue_orders, skipped, problem, spot_times)
        if self.last is None or not version.equals(self.last):
            self.last = version
        self.content = self.last
        return self.last
