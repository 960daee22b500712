"""Decides which pairs of a feed are kept, which are retracted, and whether their as_of is known.

It is the only module that decides this. docs/coverage.md has the rule in words.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import TypeVar

from attrs import frozen

from market_index import Pair
from market_index_feeds.medium import Update

T = TypeVar("T", bound=Hashable)


@frozen
class Coverage:
    """What the books of a feed do not cover of its source.

    A pair is retracted when its source says so. A pair that new content merely lacks is `absent`: it keeps its last
    book until the content is complete and contains no invalid record.

    >>> from market_index import ADA, AssetId
    >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
    >>> lacking, retracted = Coverage().after(Update(replaces_all=True), live=[pair])
    >>> lacking.absent == {pair}, lacking.is_current, retracted
    (True, False, frozenset())
    >>> lacking.after(Update(is_complete=True), live=[pair])[1] == {pair}
    True
    """

    invalid: frozenset[Hashable] = frozenset()
    """The invalid records, which may contain a newer book: each by its pair, or by another identity."""

    absent: frozenset[Pair] = frozenset()
    """The pairs that the source neither names nor has retracted. They keep their last book."""

    retracted: frozenset[Pair] = frozenset()
    """The pairs that the source has retracted, and has not named since."""

    is_complete: bool = False
    """Whether the source is known to name every pair that is tracked (decision 31)."""

    @property
    def is_current(self) -> bool:
        """Whether every book is known to be the current one, so that the as_of of the source is true of all."""
        return not self.invalid and not self.absent

    @property
    def names_all_pairs(self) -> bool:
        """Whether a pair that the source does not name is known to be retracted."""
        return self.is_complete and not self.invalid

    def after(self, update: Update, live: Collection[Pair]) -> tuple[Coverage, frozenset[Pair]]:
        """Return the coverage after an update, and which of the `live` pairs it retracts."""
        named = frozenset([book.pair for book in update.books])
        removed = frozenset(update.removed) - named
        gone = named.union(removed, update.resolved)
        if update.replaces_all:
            invalid = frozenset(update.invalid)
            absent = frozenset(live).difference(named, update.unchanged, removed)
            is_complete = bool(update.is_complete)
        else:
            invalid = _changed(self.invalid, gone, update.invalid)
            absent = _changed(self.absent, gone, ())
            is_complete = self.is_complete if update.is_complete is None else update.is_complete
        dropped = frozenset[Pair]()
        if is_complete and not invalid:
            dropped, absent = absent, dropped
        retracted = _changed(self.retracted, named, removed | dropped)
        following = Coverage(invalid, absent, retracted, is_complete)
        return following, dropped.union([pair for pair in removed if pair in live])


def _changed(before: frozenset[T], gone: Collection[Hashable], added: Collection[T]) -> frozenset[T]:
    """Return a set after removals and additions; the same set if it is unchanged, because it may be large."""
    if before.isdisjoint(gone) and before.issuperset(added):
        return before
    return before.difference(gone).union(added)
