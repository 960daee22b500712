"""Files and streams of order books, one per line, in the JSON of the order-book endpoint.

Theory of operation
===================

    UNCOMMITTED ──a commit line──▶ COMMITTED
         ▲                             │
         └──── the file starts again ──┘

- UNCOMMITTED: A line is visible once it is read. A file without commit lines stays in this state.
- COMMITTED: A line is staged. The next commit line makes all staged lines visible, in one change, with its freshness.

A later line replaces an earlier one of the same pair. A retract line removes its pair. An invalid line keeps the last
book of its pair; it is staged like any other line, so its pair counts as invalid from the commit line on. An invalid
commit line is only counted: the next valid one commits its lines, too.

The last line of a file counts without its newline if it is whole, because no prefix of a JSON object is one. Otherwise
it is invalid until its rest is appended. How a file is followed is the task of `lines`.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing
from threading import Event
from typing import TypeAlias, final

from attrs import define, field, frozen

from market_index import Freshness, InvalidFreshness, MarketIndexError, OrderBook, Pair, wire
from market_index_feeds.line_json import CommitLine, marker_from_json
from market_index_feeds.lines import Line, LineSource, Reading
from market_index_feeds.source import UNKNOWN, NoVersion, Progress, Version


@frozen
class Invalid:
    """A line that is rejected, and the reason.

    `pairs` has the pair that it names, None if none can be read. It is empty for a commit line.
    """

    pairs: frozenset[Pair | None]
    reason: str


Content: TypeAlias = OrderBook | Pair | CommitLine | Invalid
"""The content of a line. A `Pair` is retracted."""


def read_line(line: Line) -> Content | None:
    """Return the content of a line; None if it is blank."""
    text = line.text
    if line.fault is not None:
        return Invalid(frozenset({None}), line.fault)
    if not text.strip():
        return None
    try:
        return marker_from_json(text) or wire.order_book_from_json(text)
    except InvalidFreshness as error:
        return Invalid(frozenset(), str(error))
    except MarketIndexError as error:
        reason = str(error)
    # The decoded value is released with the error, so that it is not in memory twice.
    return Invalid(frozenset({wire.pair_named_in(text)}), reason)


@define(eq=False)
class Change:
    """What some lines change: the last valid line of each pair, and the invalid lines after it.

    `books` has the book of each pair, None for a pair that is retracted. `unfinished` has the pair of the last line, if
    that line is not whole yet. `is_whole`: whether the lines begin a file or a stream, so that pairs without a line are
    not in it. `is_end`: whether no more lines follow. `freshness` comes from the last commit line, None if there is
    none.
    """

    books: dict[Pair, OrderBook | None] = field(factory=dict)
    invalid: set[Pair | None] = field(factory=set)
    unfinished: frozenset[Pair | None] = frozenset()
    is_whole: bool = False
    is_end: bool = False
    freshness: Freshness | None = None

    def add_line(self, content: OrderBook | Pair | Invalid) -> None:
        """Add the content of the next line."""
        if isinstance(content, Invalid):
            self.invalid |= content.pairs
            return
        pair, book = (content, None) if isinstance(content, Pair) else (content.pair, content)
        self.books[pair] = book
        self.invalid.discard(pair)

    def add(self, later: Change) -> None:
        """Add what later lines change."""
        self.books |= later.books
        self.invalid = self.invalid.difference(later.books) | later.invalid
        self.unfinished = later.unfinished
        self.freshness = self.freshness if later.freshness is None else later.freshness

    @property
    def published(self) -> list[OrderBook]:
        """The books."""
        return [book for book in self.books.values() if book is not None]

    @property
    def retracted(self) -> list[Pair]:
        """The pairs that are retracted."""
        return [pair for pair, book in self.books.items() if book is None]


class _Commits:
    """The lines that became visible since the last change, and the staged ones, which wait for a commit line.

    `has_commits`: whether there was a commit line, so that lines are staged; see the module docstring.
    """

    def __init__(self) -> None:
        self.has_commits: bool = False
        self.visible, self.staged = Change(is_whole=True), Change()

    def add(self, content: Content) -> None:
        """Add the content of the next line."""
        if isinstance(content, CommitLine):
            self.visible.add(self.staged)
            self.visible.freshness, self.staged = content.freshness, Change()
            self.has_commits = True
        else:
            (self.staged if self.has_commits else self.visible).add_line(content)


@final
class BookLines(LineSource):
    """Lines of order books: `changes` yields what the lines change, and `versions` the content after each change.

    `uncommitted` is the number of pairs whose lines wait for a commit line.
    """

    def __init__(self, path: str | os.PathLike[str], *, is_stream: bool = False) -> None:
        super().__init__(path, is_stream=is_stream)
        self.uncommitted: int = 0
        self._freshness = UNKNOWN

    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        """Yield a version after each change, and after each check that finds none."""
        with closing(self.changes(stop, progress)) as changes:
            for change in changes:
                yield self._after(change)
        if self.is_stream and self.uncommitted:
            yield NoVersion(f"ended while lines waited for a commit line (pairs: {self.uncommitted})")

    def changes(self, stop: Event, progress: Progress | None = None) -> Generator[Change, None, None]:
        """Yield what became visible since the last change, whenever all lines are read; empty if nothing did.

        Raises `OSError`.
        """
        commits, tail, unfinished = _Commits(), None, frozenset[Pair | None]()
        with closing(self._batches(stop)) as batches:
            for batch in batches:
                if batch.is_start:
                    commits, tail, unfinished = _Commits(), None, frozenset()
                for line in batch.lines:
                    content = read_line(line)
                    if isinstance(content, Invalid):
                        self.reject(f"line {line.number}", content.reason)
                    if content is not None:
                        commits.add(content)
                if progress is not None:
                    progress(batch.offset, batch.size)
                if batch.reading is Reading.MORE:
                    continue
                if batch.tail != tail:
                    tail = batch.tail
                    unfinished = self._add_tail(commits, tail)
                visible, commits.visible = commits.visible, Change()
                visible.unfinished, visible.is_end = unfinished, batch.reading is Reading.ENDED
                self.uncommitted = len(commits.staged.books)
                yield visible

    def _add_tail(self, commits: _Commits, tail: Line | None) -> frozenset[Pair | None]:
        """Add the last line, which has no newline, if it is whole. Otherwise return its pair, if it is not waiting."""
        content = None if tail is None else read_line(tail)
        if isinstance(content, Invalid):
            return frozenset() if commits.has_commits else content.pairs
        if content is not None:
            # It is added again once it has its newline, which changes nothing.
            commits.add(content)
        return frozenset()

    def _after(self, change: Change) -> Version | NoVersion:
        """Return the version after a change."""
        if change.is_whole:
            self._freshness = UNKNOWN
        self._freshness = self._freshness if change.freshness is None else change.freshness
        return self.derive(
            change.published,
            change.retracted,
            invalid=change.invalid,
            unfinished=change.unfinished,
            is_whole=change.is_whole,
            freshness=self._freshness,
        )
