"""The difference of two versions of the index as server-sent events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, final

from attrs import frozen

from market_index import MarketIndex, Pair, wire

PIECE_BYTES: Final = 16 * 1024
"""How many bytes of events are joined before they are sent."""


@final
@frozen
class Asked:
    """What a client asks for."""

    pairs: frozenset[Pair] | None = None
    """The pairs; None for all."""
    as_changes: bool = False
    """Whether changed levels are sent instead of a book, where they are shorter."""


@final
@frozen(eq=False)
class Version:
    """A version of the index, compared by identity."""

    index: MarketIndex


NOTHING: Final = Version(MarketIndex())
"""What a client has at first."""


@final
class Step:
    """The difference of two versions, and the text of its events."""

    def __init__(self, before: Version, after: Version) -> None:
        self.before: Final = before
        self.after: Final = after
        self.is_first: Final = before is NOTHING
        self.changes_freshness: Final = self.is_first or before.index.freshness != after.index.freshness
        changed, removed = after.index.changes_since(before.index)
        self.pairs: Final = frozenset([*[book.pair for book in changed], *removed])
        self._events: dict[tuple[Pair, bool], bytes] = {}
        self._version: Final = _event(b"version", wire.freshness_to_json(after.index.freshness))

    def concerns(self, asked: Asked) -> bool:
        """Whether there may be events for a client that waits."""
        if self.changes_freshness or not self.before.index or asked.pairs is None:
            return True
        return not asked.pairs.isdisjoint(self.pairs)

    def pieces(self, asked: Asked) -> Iterator[bytes]:
        """Yield the events for a client, joined to pieces: each piece that is sent costs a system call."""
        piece = bytearray()
        for event in self.events(asked):
            piece += event
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
        if piece:
            yield bytes(piece)

    def events(self, asked: Asked) -> Iterable[bytes]:
        """Yield the events for a client; none if nothing has changed for it."""
        pairs = self.pairs
        if asked.pairs is not None:
            pairs = asked.pairs if self.is_first else asked.pairs & pairs
        for pair in pairs:
            event = self._events.get((pair, asked.as_changes))
            if event is None:
                event = self._event(pair, as_changes=asked.as_changes)
                # The books of a first step are not cached: all of them may be a hundred megabytes.
                if not self.is_first:
                    self._events[pair, asked.as_changes] = event
            yield event
        if pairs or self.changes_freshness:
            yield self._version

    def _event(self, pair: Pair, *, as_changes: bool) -> bytes:
        book, earlier = self.after.index.get(pair), self.before.index.get(pair)
        if book is None:
            return _event(b"retract", wire.pair_to_json(pair))
        parts = wire.encoded_order_book(book)
        text, tag = wire.text_of(parts), wire.digest_of(parts).hex().encode("ascii")  # as in the ETag of the endpoint
        if as_changes and earlier is not None:
            changes = wire.order_book_changes_to_json(book, earlier)
            if len(changes) < len(text):
                return b"id: %b\n" % tag + _event(b"change", changes)
        return b"id: %b\n" % tag + _event(b"book", text)


def _event(name: bytes, data: bytes) -> bytes:
    """Return an event. Only here a block ends with an empty line, so each block of a stream has data."""
    return b"event: %b\ndata: %b\n\n" % (name, data)
