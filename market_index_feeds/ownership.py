"""Decides which pairs of a live index belong to a feed, and which of them are retracted."""

from __future__ import annotations

from collections.abc import Hashable

from market_index import Pair
from market_index_feeds.medium import Delta, Names, Snapshot


class Ownership:
    """The pairs of the live index that belong to one feed.

    A pair belongs to the feed from its first book until it is retracted. It is retracted when a delta removes it, or
    when a snapshot does not name it. A pair that a snapshot does not name is kept nevertheless

    - as long as a rejected or unfinished record names it, or may name any pair: an invalid record must not remove a
      valid book;
    - as long as the source is blank.
    """

    def __init__(self) -> None:
        self._named: set[Pair] = set()
        self._kept: set[Pair] = set()
        # What the currently rejected records name. A record without an identity is identified by what it names.
        self._rejected: dict[Hashable, Pair | Names] = {}
        self._unfinished: Pair | Names = Names.NONE
        self._is_blank = False

    def __len__(self) -> int:
        return len(self._named) + len(self._kept)

    @property
    def kept(self) -> int:
        """The number of pairs that belong to the feed although its source does not name them."""
        return len(self._kept)

    @property
    def rejections(self) -> int:
        """The number of records that are rejected now."""
        return len(self._rejected)

    @property
    def unresolved(self) -> frozenset[Pair | Names]:
        """What the currently rejected or unfinished records name."""
        return frozenset((*self._rejected.values(), self._unfinished))

    @property
    def retained(self) -> set[Pair]:
        """The pairs whose live book is the last valid one, not the current record of the source."""
        return self._kept | self._named.intersection(self._rejected.values())

    @property
    def is_current(self) -> bool:
        """Whether every live book of the feed is the current one of the source, as far as its records show."""
        return not self.retained and Names.ANY not in self._rejected.values()

    @property
    def is_blank(self) -> bool:
        """Whether the source was blank when it was last read, and nothing was published into it since then."""
        return self._is_blank

    @property
    def has_only_rejections(self) -> bool:
        """Whether no pair belongs to the feed, although a record was rejected that names one or may name any."""
        return not len(self) and not self.unresolved <= {Names.NONE}

    def replace(self, snapshot: Snapshot) -> set[Pair]:
        """Apply a snapshot, and return the pairs to retract."""
        owned = self._named | self._kept
        self._named = owned.intersection(snapshot.unchanged)
        self._named.update(book.pair for book in snapshot.books)
        self._kept = owned - self._named
        self._rejected = _rejected_by_record(snapshot)
        self._unfinished = snapshot.unfinished
        self._is_blank = snapshot.is_blank
        return self._dropped()

    def change(self, delta: Delta) -> set[Pair]:
        """Apply a delta, and return the pairs to retract."""
        published = {book.pair for book in delta.books}
        removed = set(delta.removed) - published
        # If every book of a pair was invalid, the pair in the live index does not belong to the feed.
        retracted = {pair for pair in removed if pair in self._named or pair in self._kept}
        self._named -= removed
        self._named |= published
        self._kept -= removed | published
        for record in (*removed, *published, *delta.removed_records):
            self._rejected.pop(record, None)
        self._rejected |= _rejected_by_record(delta)
        self._unfinished = delta.unfinished
        if published or removed or delta.is_publication:
            self._is_blank = False
        return retracted | self._dropped()

    def _dropped(self) -> set[Pair]:
        unresolved = self.unresolved
        if self._is_blank or Names.ANY in unresolved:
            return set()
        dropped = self._kept - unresolved
        self._kept -= dropped
        return dropped


def _rejected_by_record(update: Snapshot | Delta) -> dict[Hashable, Pair | Names]:
    by_record: dict[Hashable, Pair | Names] = {names: names for names in update.rejected_names}
    return by_record | {one.names if one.record is None else one.record: one.names for one in update.rejected}
