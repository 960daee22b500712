"""What a medium implements: a `Source`, which yields what it reads as snapshots and deltas.

A source reads, and nothing else. The `Follower` owns everything that all feeds have in common: the thread, the pairs in
the live index, retries, backoff, logging and counters. `docs/adding-a-medium.md` has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Hashable
from enum import Enum
from threading import Event
from typing import ClassVar, TypeAlias

from attrs import frozen

from market_index import Freshness, OrderBook, Pair
from market_index.freshness import UNKNOWN

Progress: TypeAlias = Callable[[int, int], None]
"""Called while a source is loaded, with the bytes read and the bytes in total; 0 and 0 where the total is not known.

What it raises ends the loading.
"""


class Names(Enum):
    """Which pair a rejected record names, where that is not one pair."""

    ANY = "any pair: the text that names it cannot be read"
    NONE = "no pair: it is stored under a name that is not that of a pair"


@frozen
class Rejected:
    """A record that does not contain a valid order book.

    `place` and `reason` are for the log: "line 7 rejected: not JSON". The pair that it `names` keeps its last good
    book. `record` identifies a record that can be overwritten, such as a row; it is the pair, where it names one. Its
    rejection is counted and logged once, until the record is good again. None: the record is never written again, as a
    line is, and each rejection counts.
    """

    place: str
    reason: str
    names: Pair | Names
    record: Hashable | None = None


@frozen(kw_only=True)
class _Update:
    """What snapshots and deltas have in common."""

    books: Collection[OrderBook] = ()
    """At most one a pair."""

    rejected: Collection[Rejected] = ()

    rejected_names: Collection[Pair | Names] = ()
    """What the records name that were reported by `Loading` before."""

    unfinished: Pair | Names = Names.NONE
    """What a record that is still being written may name."""

    revision: int | None = None
    """The source's own count of its changes; None where it has none, or it is as before."""

    freshness: Freshness | None = None
    """What the source says of its books now. None: not known in a snapshot, as before in a delta."""

    is_publication: bool = False
    """Whether the publisher published, although perhaps neither books, nor revision, nor freshness differ."""

    books_read: int | None = None
    """How many records contained a book, where several were of the same pair; None: one a book."""

    is_whole: bool = True
    """Whether the source names no pair that was not read. False for a stream of books before its end."""

    has_more: bool = False
    """Whether more is to come for a caller that reads the source once: of a stream, before its end."""

    problem: str | None = None
    """Why the source, or a part of it, cannot be read at the moment, although the generator continues."""


@frozen(kw_only=True)
class Snapshot(_Update):
    """All that the source contains.

    Pairs that it does not name are retracted, except those that a rejected or unfinished record names or may name.
    """

    unchanged: Collection[Pair] = ()
    """Pairs that the source still contains, and whose books were not read again because they have not changed."""

    is_blank: bool = False
    """Whether nothing was ever written to the source: more likely a fault than the end of all markets. No pair is
    retracted until it contains something."""

    because: str | None = None
    """Why all of it was read again, for the log: "it was replaced"."""


@frozen(kw_only=True)
class Delta(_Update):
    """What has changed since the last update; `Delta()` if nothing has: the source was checked, and is healthy."""

    removed: Collection[Pair] = ()
    """A pair that is in `books` too gets its book."""

    removed_records: Collection[Hashable] = ()
    """What identified rejected records that are gone and named no pair."""


@frozen(kw_only=True)
class Loading:
    """Records, each without a `record` of its own, that were rejected while an update is read, which follows.

    So they are logged as they are found, and need no memory.
    """

    rejected: Collection[Rejected]


Update: TypeAlias = Snapshot | Delta | Loading


class Source(ABC):
    """Where the order books of a feed come from. One per medium.

    One thread at a time iterates over `updates`; which thread may change between two updates.
    """

    record: ClassVar[str]
    """What its records are called: lines, rows, values."""

    followed_by_many = True
    """Whether several processes can each follow the source by themselves."""

    def __init__(self, name: str) -> None:
        """`name` is what messages call the source; without credentials."""
        self.name = name

    @abstractmethod
    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Open the source, yield what it contains, then wait for changes and yield them. Closing it closes the source.

        The first update is a `Snapshot`, perhaps after some `Loading`. `progress` is called while it is read. Every
        check that finds no change yields `Delta()`. When `stop` is set the generator returns soon. If it returns
        otherwise, the source has ended for good, as a stream does.

        Raises `Unavailable` or `OSError` when the source cannot be read. The follower waits, and calls `updates` again:
        that may resume with a `Delta`, or start with a `Snapshot`. An update counts as delivered only when the
        generator is resumed: not if it is closed at its `yield`.
        """

    def read_order_book(self, pair: Pair) -> OrderBook | None:
        """Return the book of one pair without reading the others, or None where the medium cannot do that.

        Raises `PairNotFound`, and `Unavailable` or `OSError` when it cannot be read.
        """
        del pair
        return None

    def read_freshness(self) -> Freshness:
        """Return what the source says of its books, without reading them; not known where the medium cannot do that.

        Raises `Unavailable` or `OSError` when it cannot be read.
        """
        return UNKNOWN

    def interrupt(self) -> None:  # noqa: B027  # most sources wait for `stop` alone
        """End what a thread in `updates` waits for, where that does not look at `stop`; called after `stop` is set."""
