"""The record of a batch: what is known of the content of a bucket after it (decision 37).

Theory of operation
===================

The servers accept 1,000 messages in an atomic batch, so a larger change is several batches. Other publishers may write
between them, and its publisher may be killed. So the headers of the last message of each batch are a record, with a
mark of the content:

    NOTHING     no message is stored
    FIRST       only batches of a change that was not finished: no version for readers
    WHOLE       known as a whole
    MIXED       all else: a later change was not finished, or another program has written

An as_of describes all books, so only a WHOLE content has one. The last batch of a change makes the content WHOLE if the
content was known before its first batch, and no other publisher has written since: it was NOTHING or WHOLE, or the
publisher has read or replaced it. Any publisher may write after any record.

If a disk or an account is full, the servers may store the first messages of a batch only. The last one then has a
number in its batch, but not the header that commits the batch: the batch is a change that was not finished.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from attrs import frozen

from market_index import Freshness
from market_index.wire import freshness_from_json, freshness_to_json
from market_index_feeds.nats.bucket import Message
from market_index_feeds.source import UNKNOWN

_FRESHNESS_HEADER: Final = "Market-Index-Freshness"
_CHANGE_HEADER: Final = "Market-Index-Change"
_CONTENT_HEADER: Final = "Market-Index-Content"


class Mark(Enum):
    """What is known of the content of a bucket."""

    NOTHING = "nothing"
    FIRST = "first"
    WHOLE = "whole"
    MIXED = "mixed"


@frozen
class Record:
    """The record of a batch. `freshness` is that of all books, and `change` is a random id of the batch.

    `part` is how many messages of the batch are stored, if it is not stored as a whole; otherwise 0. The default is the
    record of a write by another program.
    """

    freshness: Freshness = UNKNOWN
    change: str = ""
    mark: Mark = Mark.MIXED
    part: int = 0

    @property
    def is_known(self) -> bool:
        """Whether the content is known as a whole."""
        return self.mark in {Mark.NOTHING, Mark.WHOLE}

    def next(self, change: str, freshness: Freshness, *, is_last: bool, is_known: bool) -> Record:
        """Return the record of a batch after this one.

        Args:
            change: The id of the batch.
            freshness: The freshness after the change.
            is_last: Whether it is the last batch of the change.
            is_known: Whether the content was known before the first batch, and only this change was written since.
        """
        if is_last and is_known:
            return Record(freshness, change, Mark.WHOLE)
        is_first = not is_last and self.mark in {Mark.NOTHING, Mark.FIRST}
        return Record(freshness.without_as_of(), change, Mark.FIRST if is_first else Mark.MIXED)

    def headers(self) -> dict[str, str]:
        """Return the headers."""
        return {
            _FRESHNESS_HEADER: freshness_to_json(self.freshness).decode(),
            _CHANGE_HEADER: self.change,
            _CONTENT_HEADER: self.mark.value,
        }

    @classmethod
    def of(cls, message: Message | None, messages: int) -> Record:
        """Return the record of the last message of a bucket with so many messages. Raises `InvalidFreshness`.

        None: the last message was deleted, or there is none.
        """
        if not messages:
            return cls(mark=Mark.NOTHING)
        headers = {} if message is None else message.headers
        change, part = headers.get("nats-batch-id", "").partition(".")[0], headers.get("nats-batch-sequence", "")
        if part.isdecimal() and "nats-batch-commit" not in headers:
            return cls(change=change, mark=Mark.FIRST if messages <= int(part) else Mark.MIXED, part=int(part))
        text = headers.get(_FRESHNESS_HEADER.lower())
        if text is None:
            return cls()
        freshness = freshness_from_json(text.encode(errors="replace"))
        marks = {mark.value: mark for mark in Mark}
        mark = marks.get(headers.get(_CONTENT_HEADER.lower(), ""), Mark.MIXED)
        return cls(freshness, headers.get(_CHANGE_HEADER.lower(), ""), mark)
