"""The freshness of order books: what they reflect, and when they were published.

Publishers state both with each publication. Times are read and written in RFC 3339, in UTC and milliseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, final

from attrs import frozen

from market_index.errors import InvalidFreshness, safe_repr
from market_index.value import Value, slot_setters

__all__ = ["Freshness", "format_time", "parse_time"]

_AS_OF: Final = re.compile(r"[!-~](?:[ -~]{0,198}[!-~])?").fullmatch

# RFC 3339, section 5.6. `fromisoformat` accepts offsets of 60 minutes and more.
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII
).fullmatch


def parse_time(text: str) -> datetime:
    """Parse a time in RFC 3339, and return it in UTC, truncated to milliseconds.

    >>> parse_time("2026-11-22T04:17:03.1239+01:00")
    datetime.datetime(2026, 11, 22, 3, 17, 3, 123000, tzinfo=datetime.timezone.utc)

    Raises:
        InvalidFreshness: The text is not a time in RFC 3339, or not in the calendar of years 1 to 9999. A leap second
            (`23:59:60`) is not in this calendar: `datetime` cannot represent it.
    """
    if type(text) is not str or not _TIME(text):
        raise InvalidFreshness(f"a time must be in RFC 3339, such as 2026-11-22T04:17:03.123Z, got {safe_repr(text)}")
    try:
        return _in_utc(datetime.fromisoformat(text.upper()))
    except (ValueError, OverflowError) as error:
        raise InvalidFreshness(f"a time must exist in the calendar ({error}), got {safe_repr(text)}") from None


def format_time(time: datetime) -> str:
    """Return the text of a time: RFC 3339, in UTC, truncated to milliseconds.

    >>> from datetime import timedelta, timezone
    >>> format_time(datetime(2026, 11, 22, 5, 17, 3, 500_000, timezone(timedelta(hours=1))))
    '2026-11-22T04:17:03.500Z'

    Raises:
        InvalidFreshness: The value is not a datetime with a time zone, or in UTC not in the years 1 to 9999.
    """
    return _to_utc("a time", time).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _in_utc(time: datetime) -> datetime:
    # By its text, because a subclass, such as the timestamp of pandas, may have nanoseconds.
    return datetime.fromisoformat(time.astimezone(UTC).isoformat(timespec="milliseconds"))


def _to_utc(name: str, time: object) -> datetime:
    """Return a time in UTC and milliseconds. Raises `InvalidFreshness`, which starts with the name."""
    if not isinstance(time, datetime) or time.utcoffset() is None:
        raise InvalidFreshness(f"{name} must be a datetime with a time zone, got {safe_repr(time)}")
    try:
        return _in_utc(time)
    except OverflowError:
        raise InvalidFreshness(f"{name} must be in the years 1 to 9999, got {safe_repr(time)}") from None


@final
@frozen(getstate_setstate=False)
class Freshness(Value):
    """What order books reflect, and when they were published; None where unknown.

    `as_of` is in the terms of the publisher, such as a slot: 1 to 200 printable ASCII characters, without a space at
    either end. `published_at` is wall-clock time of the publisher, in UTC, truncated to milliseconds.

    >>> Freshness("slot 145000000").as_of
    'slot 145000000'

    Raises:
        InvalidFreshness: `as_of` is not such a text, or `published_at` is not a datetime with a time zone.
    """

    as_of: str | None = None
    published_at: datetime | None = None

    def __attrs_post_init__(self) -> None:
        as_of = self.as_of
        if as_of is not None and not (type(as_of) is str and _AS_OF(as_of)):
            rule = "as_of must be 1 to 200 printable ASCII characters with no space at either end"
            raise InvalidFreshness(f"{rule}, got {safe_repr(as_of)}")
        if self.published_at is not None:
            _SET_PUBLISHED_AT(self, _to_utc("published_at", self.published_at))

    def without_as_of(self) -> Freshness:
        """Return the freshness with an unknown `as_of`."""
        return Freshness(None, self.published_at)


(_SET_PUBLISHED_AT,) = slot_setters(Freshness, "published_at")
