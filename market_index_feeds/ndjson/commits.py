"""The visible books of a file or stream of lines, which its commit lines determine.

Theory of operation
    A commit line contains the freshness of the books before it, instead of a book.

    Before the first commit line, lines are visible as they are read, and their freshness is not known. Afterwards,
    lines are pending until the next commit line, which makes them visible in one update, with its freshness. Lines
    after the last commit line stay pending.

    A rejected line takes effect together with the lines around it: its pair is retained once they are visible.
"""

from __future__ import annotations

from collections.abc import Iterator

from market_index import Freshness, OrderBook, Pair
from market_index_feeds.line_content import LineContent, RejectedLine, Reported
from market_index_feeds.line_source import LineBatch
from market_index_feeds.medium import Delta, Names
from market_index_feeds.ndjson.book_lines import Content, contents_of, names_of


class Changes:
    """The changes of some lines: the last book of each pair, and what rejected lines name without a later book."""

    def __init__(self) -> None:
        self.books: dict[Pair, OrderBook] = {}
        self.books_read: int = 0
        self.rejected: set[Pair | Names] = set()
        self.freshness: Freshness | None = None
        """The freshness of the last commit line; None if there is none."""

    def add(self, content: OrderBook | RejectedLine) -> None:
        """Add the content of the next line."""
        if isinstance(content, RejectedLine):
            self.rejected.add(content.names)
            return
        self.books[content.pair] = content
        self.books_read += 1
        self.rejected.discard(content.pair)

    def commit(self, later: Changes, freshness: Freshness) -> None:
        """Add the changes of later lines, and the freshness of the commit line after them."""
        self.books |= later.books
        self.books_read += later.books_read
        self.rejected = self.rejected.difference(later.books) | later.rejected
        self.freshness = freshness


class Commits(LineContent):
    """The visible and the pending changes of a file or stream."""

    commit = "commit line"
    pending_record = "order book"

    def __init__(self) -> None:
        self.is_committed: bool = False
        """Whether there was a commit line."""
        self.waiting: Changes = Changes()
        """The pending changes."""
        self._visible = Changes()

    def read(self, batch: LineBatch) -> Iterator[Reported]:
        """Read the lines of the next batch. Report rejected lines and commit lines."""
        for content in contents_of(batch):
            self.add(content)
            if not isinstance(content, OrderBook):
                yield content

    def add(self, content: Content) -> None:
        """Add the content of the next line."""
        if isinstance(content, Freshness):
            self._visible.commit(self.waiting, content)
            self.waiting, self.is_committed = Changes(), True
        else:
            (self.waiting if self.is_committed else self._visible).add(content)

    def changes(self) -> Delta:
        """Return the books that became visible."""
        visible = self._visible
        return Delta(
            books=visible.books.values(),
            rejected_names=visible.rejected,
            freshness=visible.freshness,
            is_publication=visible.freshness is not None,
            books_read=visible.books_read,
        )

    def deliver(self) -> None:
        """Forget what became visible."""
        self._visible = Changes()

    @property
    def pending(self) -> int:
        """The number of order books that wait for a commit line."""
        return self.waiting.books_read

    def unfinished(self, batch: LineBatch) -> Pair | Names:
        """Return which pair the unread lines may name: none after a commit line, because they are pending."""
        if self.is_committed:
            return Names.NONE
        if batch.unfinished is None:
            return Names.ANY
        if batch.is_end or batch.unfinished.text == b"":
            return Names.NONE
        return names_of(batch.unfinished)
