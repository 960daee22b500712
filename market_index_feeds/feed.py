"""The class of all feeds. A feed reads its source into a `LiveIndex`, and follows it until it is closed."""

from __future__ import annotations

from typing import final

from market_index import Freshness, LiveIndex, MarketIndex, OrderBook, Pair
from market_index.errors import safe_repr
from market_index_feeds.follower import Follower
from market_index_feeds.medium import Names, Progress, Source
from market_index_feeds.opened import Closeable


@final
class Feed(Closeable):
    """A source of order books. Open it with `open_feed`; then either start it and close it when done, or read it once.

    The feed owns the pairs of the `LiveIndex` that its source names. It overwrites books that others publish under
    them, and retracts a pair when the source drops it. It does not change other pairs.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._follower = Follower(source)

    def __repr__(self) -> str:
        return f"<Feed of {self.source}: {self.books} books, {self.rejected} rejected>"

    @property
    def source(self) -> str:
        """The name that the feed was opened by, without credentials."""
        return self._source.name

    @property
    def record(self) -> str:
        """The noun for the records of the source: lines, rows, values."""
        return self._source.record

    @property
    def followed_by_many(self) -> bool:
        """Whether several processes can each follow the source by themselves."""
        return self._source.followed_by_many

    @property
    def books(self) -> int:
        """The number of order books read so far."""
        return self._follower.books

    @property
    def rejected(self) -> int:
        """The number of records rejected so far, because they contain no valid order book.

        The first 20 of each minute are logged, and the number of the others.
        """
        return self._follower.rejected

    @property
    def revision(self) -> int | None:
        """The revision of the last change that is live; None if the source does not number its changes."""
        return self._follower.revision

    @property
    def unresolved(self) -> frozenset[Pair | Names]:
        """What the currently rejected or unfinished records name: pairs, any pair, or none."""
        return self._follower.unresolved

    @property
    def is_whole(self) -> bool:
        """Whether every pair that the source names was read; for a stream of books, known only at its end."""
        return self._follower.is_whole

    @property
    def age(self) -> float:
        """Seconds since the source was last healthy: read, or checked and unchanged; infinite before the start."""
        return self._follower.age

    @property
    def problem(self) -> str | None:
        """Why the live books are not known to be those of the source, as in the log; None while it is healthy."""
        return self._follower.problem

    @property
    def is_unknown(self) -> bool:
        """Whether the content of the source is unknown until its publisher publishes again.

        It is if the state of the orders is unknown, the source contains no order book, or a stream has ended. A source
        that cannot be read, and is tried again, is only a `problem`.
        """
        return self._follower.is_unknown

    @property
    def quiet_age(self) -> float:
        """Seconds since the last publication arrived, including heartbeats; infinite before the first.

        For a publication before the start, or while the source could not be read, it is the age by wall clock, from the
        clocks of the publisher and of this machine.
        """
        return self._follower.publications.quiet_age

    @property
    def change_age(self) -> float:
        """Seconds since a publication last changed a book or a pair; infinite before the first."""
        return self._follower.publications.change_age

    @property
    def freshness(self) -> Freshness:
        """What the read books reflect, and when they were published, as far as that is known.

        After `read_order_book` it is known for stores in files, for files and for streams. The book is not older.
        """
        return self._follower.freshness

    @property
    def is_blank(self) -> bool:
        """Whether the source is empty, as if nothing was ever published into it."""
        return self._follower.publications.is_blank

    @property
    def current_rejections(self) -> int:
        """The number of records that are rejected now: neither overwritten by a valid record, nor removed.

        Lines that name the same pair count as one, and so do all lines that name none.
        """
        return self._follower.current_rejections

    @property
    def retained_age(self) -> float | None:
        """Seconds since the source last contained the oldest retained book; None if no book is retained.

        A book is retained if it is live although the source now contains an invalid record of its pair.
        """
        return self._follower.retained_age

    def start(self, live: LiveIndex, progress: Progress | None = None) -> None:
        """Publish the content of the source into `live`, then follow the source in a thread until `close`.

        Raises `FeedError` if the source cannot be read, `TypeError` if `live` is not a `LiveIndex`. Then nothing was
        published, and `start` may be called again. Once started, the feed raises nothing: it logs problems, and live
        books stay live.
        """
        if type(live) is not LiveIndex:
            raise TypeError(f"live must be a LiveIndex, got {type(live).__name__}: {safe_repr(live)}")
        self._follower.start(live, progress)

    def read(self, progress: Progress | None = None) -> MarketIndex:
        """Return the content of the source, and close the feed. A stream is read to its end.

        Raises `FeedError` if the source cannot be read.
        """
        return self._follower.read(progress)

    def read_order_book(self, pair: Pair) -> OrderBook:
        """Return the current book of one pair, and close the feed.

        Raises `FeedError` if the source cannot be read, `PairNotFound` if it does not name the pair.
        """
        return self._follower.read_order_book(pair)

    def close(self) -> None:
        """Stop following, within 2 seconds. Live books stay live. Closing twice does no harm.

        A thread that is blocked in a system call is abandoned. It publishes nothing more, and closes the source when
        the call returns.
        """
        self._follower.close()
