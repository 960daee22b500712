"""The freshness of single responses of a service, and of all books of a polling round."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from email.message import Message

from market_index import Freshness, InvalidFreshness
from market_index.wire import AS_OF, PUBLISHED_AT, parse_time


def freshness_in(headers: Message) -> Freshness:
    """Return the freshness of a response. A value that is missing, repeated or invalid is not known."""
    found = Freshness()
    with suppress(InvalidFreshness):
        found = found.changed(as_of=_only(headers, AS_OF))
    with suppress(InvalidFreshness):
        text = _only(headers, PUBLISHED_AT)
        found = found if text is None else found.changed(published_at=parse_time(text))
    return found


def oldest(seen: Collection[Freshness], before: Freshness) -> Freshness:
    """Return the freshness of books from several responses: the earliest one.

    `seen` has the freshness of each response, `before` is that of the last round. Responses differ if something was
    published in between, or if they come from several workers or caches. Only the clock of the publisher shows which
    was published first. The as_of is not known if two responses have the earliest publish time, if that is earlier
    than the one of the last round, or if a response has no as_of: its service may retain an older book.
    """
    different = set(seen)
    if len(different) == 1:
        return different.pop()
    times = [one.published_at for one in different if one.published_at is not None]
    if len(times) < len(different):
        return Freshness()
    first = min(times)
    one, *others = (one for one in different if one.published_at == first)
    is_earlier = before.published_at is not None and first < before.published_at
    is_known = all(one.as_of is not None for one in different)
    return one if is_known and not (others or is_earlier) else one.without_as_of()


def _only(headers: Message, name: str) -> str | None:
    values = headers.get_all(name, [])
    return values[0].strip(" \t") if len(values) == 1 else None
