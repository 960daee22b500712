"""The interface of a medium: a `Source`, which yields its content and its changes as updates.

A source only reads. The `Feed` does what all feeds have in common: the thread, the pairs in the live index, retries,
backoff, logging and counters. `docs/adding-a-medium.md` has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Hashable
from enum import Enum
from threading import Event
from typing import ClassVar, TypeAlias

from attrs import frozen

from market_index import Freshness, OrderBook, Pair

Progress: TypeAlias = Callable[[int, int], None]
"""A callback while a source is loaded. Its arguments are the bytes read and the bytes in total; 0 and 0 if not known.

An exception that it raises ends the loading.
"""


class Unnamed(Enum):
    """The identities of invalid records that do not show of which pair they are."""

    UNREADABLE = "the records whose pair cannot be read"
    UNFINISHED = "the record that is still being written"


@frozen
class Rejected:
    """A record that does not contain what it must.

    `place` and `reason` are for the log: "line 7 rejected: not JSON". `record` identifies a record that can be
    overwritten, such as a row, by its pair or by the name that it is stored under: its rejection is counted and logged
    once, until the record is valid or removed. It is None for a record that cannot be overwritten, such as a line.
    """

    place: str
    reason: str
    record: Hashable | None = None


@frozen(kw_only=True)
class Update:
    """The whole content of a source, or its changes since the last update.

    `Update()` means that a check found no change, and that the source is healthy.
    """

    books: Collection[OrderBook] = ()
    """At most one per pair."""

    removed: Collection[Pair] = ()
    """The pairs that the source retracts. A pair that is also in `books` gets its book."""

    replaces_all: bool = False
    """Whether this is the whole content. A live pair that it neither names nor removes is absent."""

    unchanged: Collection[Pair] = ()
    """The pairs of a whole content whose books were not read again because they are unchanged."""

    is_complete: bool | None = None
    """Whether the source now names all pairs (decision 31). None: unchanged; unknown for a whole content."""

    is_blank: bool = False
    """Whether nothing was ever written to the source, of a whole content."""

    invalid: Collection[Hashable] = ()
    """The invalid records that may contain a newer book: the pair of each, or an `Unnamed`.

    Of a whole content all of them, otherwise the new ones. One of a pair is resolved by the book or the removal of it.
    """

    resolved: Collection[Hashable] = ()
    """The records that are no longer invalid or rejected, besides those of `books` and `removed`."""

    rejected: Collection[Rejected] = ()
    """The rejected records, for counters and the log. Of a whole content all of them, otherwise the new ones."""

    revision: int | None = None
    """The revision of the source; None if it has none, or if it is unchanged."""

    freshness: Freshness | None = None
    """The freshness of the books of the source. None: unchanged; not known for a whole content."""

    is_publication: bool = False
    """Whether the publisher published, even if books, revision and freshness are unchanged."""

    books_read: int | None = None
    """The number of records that contained a book, if several were of one pair; None: one per book."""

    is_loading: bool = False
    """Whether this only reports what is `rejected`, and the update that it belongs to follows."""

    has_more: bool = False
    """Whether a caller that reads the source once must wait for further updates: true for a stream before its end."""

    problem: str | None = None
    """Why the source, or a part of it, cannot be read now, although the generator continues and tries again."""

    unknown: str | None = None
    """Why the content is not known, although the source can be read: the publisher has to publish it again."""

    reload_reason: str | None = None
    """Why a whole content was read again, for the log: "it was replaced"."""


class Source(ABC):
    """The source of a feed. There is one class per medium.

    Only one thread at a time iterates over `updates`, but not always the same thread.
    """

    record: ClassVar[str]
    """The noun for its records: lines, rows, values."""

    followed_by_many = True
    """Whether several processes can each follow the source by themselves."""

    is_endless = False
    """Whether it always has more updates, so that a caller that reads it once takes the first content."""

    def __init__(self, name: str) -> None:
        """`name` is the name of the source in messages, without credentials."""
        self.name = name

    @abstractmethod
    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        """Open the source, and yield its content, then its changes. Closing the generator closes the source.

        The first update replaces all, besides those that are loading. `progress` is called while it is read. Every
        check that finds no change yields `Update()`. After `stop` is set, the generator returns soon. If it returns
        before, the source has ended for good, as a stream does.

        Raises `Unavailable` or `OSError` if the source cannot be read. After a backoff the feed calls `updates` again,
        which may resume with changes or with the whole content. An update is delivered only when the generator is
        resumed after its `yield`, not when it is closed there.
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
        return Freshness()

    def interrupt(self) -> None:  # noqa: B027  # most sources wait for `stop` alone
        """End a wait of `updates` that does not check `stop`. It is called after `stop` is set."""
