"""The interface of a medium: a `Source`, which yields its content as snapshots and deltas.

A source only reads. The `Follower` does what all feeds have in common: the thread, the pairs in the live index,
retries, backoff, logging and counters. `docs/adding-a-medium.md` has an example.
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
"""A callback while a source is loaded. Its arguments are the bytes read and the bytes in total; 0 and 0 if not known.

An exception that it raises ends the loading.
"""


class Names(Enum):
    """What a rejected record names if that is not one known pair."""

    ANY = "any pair: its name cannot be read"
    NONE = "no pair: its name is not that of a pair"


@frozen
class Rejected:
    """A record that does not contain a valid order book. The pair that it `names` keeps its last valid book.

    `place` and `reason` are for the log: "line 7 rejected: not JSON". `record` identifies a record that can be
    overwritten, such as a row: it is the pair, if the record names one. The rejection of such a record is counted and
    logged once, until the record is valid again. It is None for a record that cannot be overwritten, such as a line:
    each rejection counts.
    """

    place: str
    reason: str
    names: Pair | Names
    record: Hashable | None = None


@frozen(kw_only=True)
class _Update:
    """The fields that snapshots and deltas have in common."""

    books: Collection[OrderBook] = ()
    """At most one per pair."""

    rejected: Collection[Rejected] = ()

    rejected_names: Collection[Pair | Names] = ()
    """What the records name that earlier `Loading` updates reported as rejected."""

    unfinished: Pair | Names = Names.NONE
    """What a record that is still being written may name."""

    revision: int | None = None
    """The revision of the source; None if it has none, or if it is unchanged."""

    freshness: Freshness | None = None
    """The freshness of the books of the source. None: not known for a snapshot, unchanged for a delta."""

    is_publication: bool = False
    """Whether the publisher published, even if books, revision and freshness are unchanged."""

    books_read: int | None = None
    """The number of records that contained a book, if several were of one pair; None: one per book."""

    is_whole: bool = True
    """Whether every pair that the source names was read. False for a stream of books before its end."""

    has_more: bool = False
    """Whether a caller that reads the source once must wait for further updates: true for a stream before its end."""

    problem: str | None = None
    """Why the source, or a part of it, cannot be read now, although the generator continues and tries again."""

    unknown: str | None = None
    """Why the content is not known, although the source can be read: the publisher has to publish it again."""


@frozen(kw_only=True)
class Snapshot(_Update):
    """The whole content of the source.

    Pairs that it does not name are retracted, except those that a rejected or unfinished record names or may name.
    """

    unchanged: Collection[Pair] = ()
    """Pairs that the source still contains, but whose books were not read again because they are unchanged."""

    is_blank: bool = False
    """Whether nothing was ever written to the source. That is more likely a fault than the end of all markets, so no
    pair is retracted until the source contains something."""

    reload_reason: str | None = None
    """Why the whole source was read again, for the log: "it was replaced"."""


@frozen(kw_only=True)
class Delta(_Update):
    """The changes since the last update. `Delta()` means that a check found no change, and the source is healthy."""

    removed: Collection[Pair] = ()
    """Removed pairs. If a pair is also in `books`, it gets its book."""

    removed_records: Collection[Hashable] = ()
    """The identities of rejected records that named no pair and were removed."""


@frozen(kw_only=True)
class Loading:
    """Records that were rejected while an update is still being read; the update follows. Each has no `record`.

    They are logged as they are found, so that they need no memory.
    """

    rejected: Collection[Rejected]


Update: TypeAlias = Snapshot | Delta | Loading


class Source(ABC):
    """The source of a feed. There is one class per medium.

    Only one thread at a time iterates over `updates`, but not always the same thread.
    """

    record: ClassVar[str]
    """The noun for its records: lines, rows, values."""

    followed_by_many = True
    """Whether several processes can each follow the source by themselves."""

    def __init__(self, name: str) -> None:
        """`name` is the name of the source in messages, without credentials."""
        self.name = name

    @abstractmethod
    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Open the source, and yield its content, then its changes. Closing the generator closes the source.

        The first update is a `Snapshot`; `Loading` updates may precede it. `progress` is called while it is read. Every
        check that finds no change yields `Delta()`. After `stop` is set, the generator returns soon. If it returns
        before, the source has ended for good, as a stream does.

        Raises `Unavailable` or `OSError` if the source cannot be read. After a backoff the follower calls `updates`
        again, which may resume with a `Delta` or start with a `Snapshot`. An update is delivered only when the
        generator is resumed after its `yield`, not when it is closed there.
        """

    def read_order_book(self, pair: Pair) -> OrderBook | None:
        """Return the book of one pair without reading the others; None if the medium does not support that.

        Raises `PairNotFound`, and `Unavailable` or `OSError` if the source cannot be read.
        """
        del pair
        return None

    def read_freshness(self) -> Freshness:
        """Return the freshness of the books without reading them; unknown if the medium does not support that.

        Raises `Unavailable` or `OSError` if the source cannot be read.
        """
        return UNKNOWN

    def interrupt(self) -> None:  # noqa: B027  # most sources wait for `stop` alone
        """End a wait of `updates` that does not check `stop`. It is called after `stop` is set."""
