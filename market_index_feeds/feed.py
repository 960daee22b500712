"""What every feed can do: fill a `LiveIndex`, and follow its source until it is closed."""

from __future__ import annotations

from typing import final

from market_index import Freshness, LiveIndex, MarketIndex, OrderBook, Pair
from market_index_feeds.follower import Follower
from market_index_feeds.medium import Names, Progress, Source
from market_index_feeds.opened import Opened


@final
class Feed(Opened):
    """Where order books come from. Open one with `open_feed`, then start it and close it when done, or read it once.

    As far as the pairs go that its source names, the `LiveIndex` is the feed's: whatever else publishes one of them is
    overwritten, and the pair is retracted when the source drops it. Other pairs are left alone.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._follower = Follower(source)

    def __repr__(self) -> str:
        return f"<Feed of {self.source}: {self.books} books, {self.rejected} rejected>"

    @property
    def source(self) -> str:
        """The name that it was opened by, without credentials."""
        return self._source.name

    @property
    def record(self) -> str:
        """What the records of the source are called: lines, rows, values."""
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

        The first 20 within a minute are logged, then their number.
        """
        return self._follower.rejected

    @property
    def revision(self) -> int | None:
        """The source's own count of its changes, as far as they are live; None where it has none."""
        return self._follower.revision

    @property
    def unresolved(self) -> frozenset[Pair | Names]:
        """What the records name that are rejected or unfinished now: pairs, any pair, or none."""
        return self._follower.unresolved

    @property
    def is_whole(self) -> bool:
        """Whether the source names no pair that was not read: for a stream of books, known at its end."""
        return self._follower.is_whole

    @property
    def age(self) -> float:
        """Seconds since the source was last healthy: read, or checked and unchanged; infinite before the start."""
        return self._follower.age

    @property
    def problem(self) -> str | None:
        """Why the source cannot be read now, or not all of it, as the log says; None while it is healthy."""
        return self._follower.problem

    @property
    def quiet_age(self) -> float:
        """Seconds since the publisher last published, be it the time alone; infinite before it ever did.

        That is when the publication arrived. One that was made while the source could not be read, or before the start,
        is as old as the clocks of the publisher and of this machine say.
        """
        return self._follower.publications.quiet_age

    @property
    def change_age(self) -> float:
        """Seconds since a publication last changed a book or a pair; infinite before the first."""
        return self._follower.publications.change_age

    @property
    def freshness(self) -> Freshness:
        """What the books reflect that were read, and when they were published, as far as that is known.

        After `read_order_book` it is known of stores in files, of files and of streams. The book is not older.
        """
        return self._follower.freshness

    @property
    def is_blank(self) -> bool:
        """Whether the source contains nothing, as if nothing was ever published into it."""
        return self._follower.publications.is_blank

    @property
    def current_rejections(self) -> int:
        """The number of records that are rejected now: neither overwritten by a valid one yet, nor gone.

        Lines that name the same pair count as one, and so do all lines that name none.
        """
        return self._follower.current_rejections

    @property
    def retained_age(self) -> float | None:
        """Seconds since the oldest retained book was last what the source contains; None if no book is retained.

        A book is retained if it is live although the source contains another, invalid record of its pair.
        """
        return self._follower.retained_age

    def start(self, live: LiveIndex, progress: Progress | None = None) -> None:
        """Put what the source contains now into `live`, then follow the source in a thread until `close`.

        Raises `FeedError` when the source cannot be read; then nothing was published, and the feed can be started
        again. Once started, it raises nothing: problems are logged, and what is live stays live.
        """
        self._follower.start(live, progress)

    def read(self, progress: Progress | None = None) -> MarketIndex:
        """Return what the source contains now, instead of following it, and close it; a stream is read to its end.

        Raises `FeedError` when the source cannot be read.
        """
        return self._follower.read(progress)

    def read_order_book(self, pair: Pair) -> OrderBook:
        """Return the book of one pair as the source contains it now, and close the feed.

        Raises `FeedError` when the source cannot be read, `PairNotFound` when it does not name the pair.
        """
        return self._follower.read_order_book(pair)

    def close(self) -> None:
        """Stop following, within 2 seconds. What is live stays live. Closing twice does no harm.

        A thread that is in a system call is abandoned. It publishes nothing, and closes the source when that returns.
        """
        self._follower.close()
