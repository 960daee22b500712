"""The value of a commit line, which makes the preceding lines of a file visible."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen

from market_index.freshness import Freshness


@frozen
class CommitLine:
    """A commit line: the freshness of the lines before it, and when they were recorded.

    `recorded_at` is wall-clock time of the recorder, in UTC and milliseconds; None if the line is not of a recording.
    """

    freshness: Freshness
    recorded_at: datetime | None = None
