"""Lines of recordings, and what they contain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

from market_index.wire import format_time
from market_index_feeds import replay
from tests.market_index_feeds.made_up import spots
from tests.market_index_feeds.ndjson.lines import commit

START: Final = datetime(2026, 11, 22, tzinfo=UTC)

Recorded: TypeAlias = tuple[float, dict[int, str | None], str | None]
"""The seconds since `START`, the spots by number, and the as_of."""


def recorded(seconds: float, as_of: str | None = None) -> bytes:
    """Return a commit line that was recorded so many seconds after `START`."""
    return commit(as_of, recorded_at=format_time(START + timedelta(seconds=seconds)))


def replayed(path: Path) -> list[Recorded]:
    """Return what a recording contains, change by change."""
    return [((time - START).total_seconds(), spots(index), index.as_of) for time, index in replay(path)]
