"""The record of a batch: what is known of the content of a bucket after it (decision 37).

Theory of operation
===================

The servers accept 1,000 messages in an atomic batch, so a larger change is several batches. Other publishers may write
between them, and its publisher may be killed. So the headers of the last message of each batch are a record, which says
what the content is now:

    NOTHING     no message is stored
    FIRST       only batches of changes that were not finished: no version for readers
    WHOLE       known as a whole: it was replaced or read, and since then only publishers have changed it
    MIXED       all else: a later change was not finished, or another program has written

An as_of describes all books, so only a WHOLE content has one. The last batch of a change makes the content WHOLE in
three cases:

- The change is a replacement, or a change of a content that was read.
- The content was NOTHING or WHOLE before the batch.
- The content was NOTHING or WHOLE before the first batch of the change, and since then only publishers have changed it.
  `pending` proves that: each batch but the last one writes its id there, and a change of one batch by another publisher
  copies it. It is lost by a second change of several batches, by a write of another program, which has no record, and
  by a rollback of the servers.

Any publisher may write after any record. If a publisher is killed between its batches, its change stays pending without
an end, and the content stays MIXED until it is replaced, or changed after it was read.
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


class Content(Enum):
    """What the content of a bucket is."""

    NOTHING = "nothing"
    FIRST = "first"
    WHOLE = "whole"
    MIXED = "mixed"


@frozen
class Record:
    """The record of a batch. `freshness` is that of all books, and `change` is a random id of the batch.

    `pending` is the id of the last batch of a change that makes the content WHOLE when it is finished. The default is
    the record of a write by another program.
    """

    freshness: Freshness = UNKNOWN
    change: str = ""
    content: Content = Content.MIXED
    pending: str = ""

    def next(
        self, change: str, freshness: Freshness, previous: str = "", *, is_last: bool, knows_content: bool
    ) -> Record:
        """Return the record of a batch after this one.

        Args:
            change: The id of the batch.
            freshness: The freshness after the change.
            previous: The id of the batch of the same change before this one, if any.
            is_last: Whether it is the last batch of the change.
            knows_content: Whether the change is a replacement, or one of a content that was read.
        """
        is_continued = bool(previous) and self.pending == previous
        is_known = knows_content or is_continued or self.content in {Content.NOTHING, Content.WHOLE}
        if is_last and is_known:
            return Record(freshness, change, Content.WHOLE)
        freshness = freshness.without_as_of()
        if is_last:
            return Record(freshness, change, Content.MIXED, self.pending)
        is_first = self.content in {Content.NOTHING, Content.FIRST}
        return Record(freshness, change, Content.FIRST if is_first else Content.MIXED, change if is_known else "")

    def headers(self) -> dict[str, str]:
        """Return the headers."""
        return {
            _FRESHNESS_HEADER: freshness_to_json(self.freshness).decode(),
            _CHANGE_HEADER: self.change,
            _CONTENT_HEADER: f"{self.content.value} {self.pending}".strip(),
        }

    @classmethod
    def of(cls, message: Message | None) -> Record:
        """Return the record of a message; nothing is known if another program wrote it. Raises `InvalidFreshness`."""
        headers = {} if message is None else message.headers
        text = headers.get(_FRESHNESS_HEADER.lower())
        if text is None:
            return cls()
        freshness = freshness_from_json(text.encode(errors="replace"))
        name, _, pending = headers.get(_CONTENT_HEADER.lower(), "").partition(" ")
        contents = {content.value: content for content in Content}
        content = contents.get(name, Content.MIXED)
        freshness = freshness if content is Content.WHOLE else freshness.without_as_of()
        return cls(freshness, headers.get(_CHANGE_HEADER.lower(), ""), content, pending)
