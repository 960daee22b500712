"""The visible books of a file or stream of lines, which its commit lines determine.

Theory of operation
    A commit line contains the freshness of the lines before it, instead of a book. A retract line retracts a pair.

    Before the first commit line, lines are visible as they are read, and their freshness is not known. Afterwards,
    lines are pending until the next commit line, which makes them visible in one update, with its freshness. Lines
    after the last commit line stay pending.

    A rejected line takes effect together with the lines around it: it is invalid once they are visible.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from market_index import Freshness, OrderBook, Pair
from market_index.wire import CommitLine
from market_index_feeds.line_content import LineContent, RejectedLine, Reported
from market_index_feeds.line_kind import BOOKS
from market_index_feeds.line_source import LineBatch
from market_index_feeds.medium import Unnamed, Update
from market_index_feeds.ndjson.book_lines import Change, Content, contents_of


class Changes:
    """The changes of some lines: the last one of each pair, and the invalid lines that no later line overwrites."""

    def __init__(self) -> None:
        self.books: dict[Pair, OrderBook] = {}
        self.removed: set[Pair] = set()
        self.books_read: int = 0
        self.lines_read: int = 0
        """The number of lines that are not rejected."""
        self.invalid: set[Pair | Unnamed] = set()
        self.freshness: Freshness | None = None
        """The freshness of the last commit line; None if there is none."""

    def add(self, content: Change) -> None:
        """Add the content of the next line."""
        if isinstance(content, RejectedLine):
            if content.invalid is not None:
                self.invalid.add(content.invalid)
            return
        self.lines_read += 1
        if isinstance(content, OrderBook):
            pair = content.pair
            self.books[pair] = content
            self.removed.discard(pair)
            self.books_read += 1
        else:
            pair = content
            self.books.pop(pair, None)
            self.removed.add(pair)
        self.invalid.discard(pair)

    def commit(self, later: Changes, freshness: Freshness) -> None:
        """Add the changes of later lines, and the freshness of the commit line after them."""
        for pair in later.removed:
            self.books.pop(pair, None)
        self.books |= later.books
        self.removed = self.removed.difference(later.books) | later.removed
        self.books_read += later.books_read
        self.lines_read += later.lines_read
        self.invalid = self.invalid.difference(later.books, later.removed) | later.invalid
        self.freshness = freshness


class Commits(LineContent):
    """The visible and the pending changes of a file or stream."""

    kind = BOOKS
    commit = "commit line"
    pending_record = "line"

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
            if isinstance(content, CommitLine):
                yield content.freshness
            elif isinstance(content, RejectedLine):
                yield content

    def add(self, content: Content) -> None:
        """Add the content of the next line."""
        if isinstance(content, CommitLine):
            self._visible.commit(self.waiting, content.freshness)
            self.waiting, self.is_committed = Changes(), True
        else:
            (self.waiting if self.is_committed else self._visible).add(content)

    def changes(self) -> Update:
        """Return the changes that became visible."""
        visible = self._visible
        return Update(
            books=visible.books.values(),
            removed=visible.removed,
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
        """The number of lines that wait for a commit line, without those that are rejected."""
        return self.waiting.lines_read

    @property
    def pending_invalid(self) -> Collection[Pair | Unnamed]:
        """The invalid lines that wait for a commit line."""
        return self.waiting.invalid

    @property
    def reads_on(self) -> bool:
        """Whether the next line may be visible: not after a commit line, because it is pending."""
        return not self.is_committed
