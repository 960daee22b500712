"""The visible books of a file or stream of lines, which its commit lines determine.

Theory of operation
    A commit line contains the freshness of the books before it, instead of a book.

    Before the first commit line, lines are visible as they are read, and their freshness is not known. Afterwards,
    lines are pending until the next commit line, which makes them visible in one update, with its freshness. Lines
    after the last commit line stay pending.

    A rejected line takes effect together with the lines around it: it is invalid once they are visible.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from market_index import Freshness, OrderBook, Pair
from market_index_feeds.line_content import LineContent, RejectedLine, Reported
from market_index_feeds.line_source import LineBatch
from market_index_feeds.medium import Unnamed, Update
from market_index_feeds.ndjson.book_lines import Content, contents_of


class Changes:
    """The changes of some lines: the last book of each pair, and the invalid lines without a later book."""

    def __init__(self) -> None:
        self.books: dict[Pair, OrderBook] = {}
        self.books_read: int = 0
        self.invalid: set[Pair | Unnamed] = set()
        self.freshness: Freshness | None = None
        """The freshness of the last commit line; None if there is none."""

    def add(self, content: OrderBook | RejectedLine) -> None:
        """Add the content of the next line."""
        if isinstance(content, OrderBook):
            self.books[content.pair] = content
            self.books_read += 1
            self.invalid.discard(content.pair)
        elif content.invalid is not None:
            self.invalid.add(content.invalid)

    def commit(self, later: Changes, freshness: Freshness) -> None:
        """Add the changes of later lines, and the freshness of the commit line after them."""
        self.books |= later.books
        self.books_read += later.books_read
        self.invalid = self.invalid.difference(later.books) | later.invalid
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

    def changes(self) -> Update:
        """Return the books that became visible."""
        visible = self._visible
        return Update(
            books=visible.books.values(),
            invalid=visible.invalid,
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

    @property
    def pending_invalid(self) -> Collection[Pair | Unnamed]:
        """The invalid lines that wait for a commit line."""
        return self.waiting.invalid

    @property
    def reads_on(self) -> bool:
        """Whether the next line may be visible: not after a commit line, because it is pending."""
        return not self.is_committed
