"""Recognizes lines of another kind than a feed was opened for: events of orders, order books, or text.

Each kind has keys that only its lines have. A spot event has none, because it is also a valid order book.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from attrs import frozen

from market_index import InvalidOrderBook
from market_index.wire import object_from_json
from market_index_feeds.errors import Unavailable


@frozen
class LineKind:
    """A kind of lines: its noun, the `keys` that only such lines have, and what to type to open them."""

    noun: str
    keys: frozenset[str]
    remedy: str


BOOKS: Final = LineKind(
    "order books",
    frozenset({"bids", "asks", "as_of", "retract"}),
    "omit orders: before its name",
)
EVENTS: Final = LineKind(
    "events of orders",
    frozenset({"place", "remove", "untrack", "block", "rollback", "reset"}),
    "type orders: before its name, as in orders:-",
)


def require_kind(kind: LineKind, lines: Sequence[bytes]) -> None:
    """Raise `Unavailable` if most of the lines are of the other kind, and none is of this one.

    >>> require_kind(BOOKS, [b'{"reset": true}', b'{"block": "slot 7"}'])
    Traceback (most recent call last):
    market_index_feeds.errors.Unavailable: it contains events of orders: type orders: before its name, as in orders:-
    """
    other = EVENTS if kind is BOOKS else BOOKS
    others = 0
    for line in lines:
        with suppress(InvalidOrderBook):
            keys = object_from_json(line).keys()
            if not keys.isdisjoint(kind.keys):
                return
            others += not keys.isdisjoint(other.keys)
    if 2 * others > len(lines):
        raise Unavailable(f"it contains {other.noun}: {other.remedy}")


def require_json(kind: LineKind, lines: Sequence[bytes]) -> None:
    """Raise `Unavailable` if most of the lines cannot be JSON objects, not even damaged or unfinished ones.

    One line may be the end of an object whose beginning was cut off.

    >>> require_json(BOOKS, [b"}"])
    >>> require_json(BOOKS, [b"# Notes", b"of today"])
    Traceback (most recent call last):
    market_index_feeds.errors.Unavailable: it must contain order books, one JSON object per line; 2 of its ...
    """
    text = sum(not line.lstrip().startswith(b"{") for line in lines)
    if text > 1 and 2 * text > len(lines):
        raise Unavailable(
            f"it must contain {kind.noun}, one JSON object per line; {text} of its first {len(lines)} lines are text"
        )
