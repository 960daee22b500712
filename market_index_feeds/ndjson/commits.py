"""Which books of a file or stream of lines are visible: its commit lines decide.

Theory of operation
    A commit line has the freshness of the books before it, instead of a book.

    Before the first commit line, lines are visible as they are read, and their freshness is not known. From then on,
    lines are pending until the next commit line: it makes all of them visible in one update, with its freshness. What
    follows the last commit line stays pending.

    A rejected line takes effect together with the lines around it: its pair is retained once they are visible.
"""

from __future__ import annotations

from market_index import Freshness, OrderBook, Pair
from market_index_feeds.medium import Names
from market_index_feeds.ndjson.book_lines import Content, RejectedLine


class Changes:
    """What some lines change: the last book of each pair, and what rejected lines name that no later book replaces."""

    def __init__(self) -> None:
        self.books: dict[Pair, OrderBook] = {}
        self.books_read: int = 0
        self.rejected: set[Pair | Names] = set()
        self.freshness: Freshness | None = None
        """That of the last commit line; None if there is none."""

    def add(self, content: OrderBook | RejectedLine) -> None:
        """Add what the next line contains."""
        if isinstance(content, RejectedLine):
            self.rejected.add(content.names)
            return
        self.books[content.pair] = content
        self.books_read += 1
        self.rejected.discard(content.pair)

    def commit(self, later: Changes, freshness: Freshness) -> None:
        """Add the changes of later lines, and the commit line after them."""
        self.books |= later.books
        self.books_read += later.books_read
        self.rejected = self.rejected.difference(later.books) | later.rejected
        self.freshness = freshness


class Commits:
    """The visible and the pending changes of a file or stream."""

    def __init__(self) -> None:
        self.is_committed: bool = False
        """Whether there was a commit line."""
        self.visible: Changes = Changes()
        """What became visible. A caller that has delivered it replaces it by `Changes()`."""
        self.pending: Changes = Changes()

    def add(self, content: Content) -> None:
        """Add what the next line contains."""
        if isinstance(content, Freshness):
            self.visible.commit(self.pending, content)
            self.pending, self.is_committed = Changes(), True
        else:
            (self.pending if self.is_committed else self.visible).add(content)
