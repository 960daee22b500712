"""The route `/healthz`: reports whether the feed follows its source and whether the publisher publishes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from math import inf, isfinite
from typing import Final, Protocol

from starlette.requests import Request

from market_index import LiveIndex
from market_index.freshness import format_time
from market_index_http.routes import ExactRoute, JsonResponse, require_live

HEALTH_PATH: Final = "/healthz"


class FeedStatus(Protocol):
    """The state of a feed that `/healthz` reports. A `market_index_feeds.Feed` has these properties."""

    @property
    def revision(self) -> int | None:
        """The revision of the source; None if the source has no revisions."""

    @property
    def age(self) -> float:
        """Seconds since the source was last known to be healthy."""

    @property
    def quiet_age(self) -> float:
        """Seconds since the publisher last published, heartbeats included; infinite before the first publication."""

    @property
    def change_age(self) -> float:
        """Seconds since a book or a pair last changed; infinite before the first change."""

    @property
    def problem(self) -> str | None:
        """Why the live books are not known to be those of the source; None while it is healthy."""

    @property
    def is_unknown(self) -> bool:
        """Whether the content of the source is unknown until its publisher publishes again. There is a problem then."""

    @property
    def current_rejections(self) -> int:
        """The number of records that are currently rejected."""

    @property
    def retained_age(self) -> float | None:
        """Seconds since the source last contained the oldest retained book; None if no book is retained."""


def health_route(
    live: LiveIndex, feed: FeedStatus, max_stale: float | None = None, max_quiet: float | None = None
) -> ExactRoute:
    """Return the route `/healthz`: the number of pairs, the state of the feed, and the process id.

    The response is 503, with the failed checks in `error`, in these cases: the feed has not been healthy for more than
    `max_stale` seconds, the publisher has published nothing for more than `max_quiet` seconds, nothing was ever
    published, or the content of the source is unknown. A limit of None is never exceeded. The pairs are served in all
    cases. The process id tells apart workers that share one address: each has its own feed.

    Raises:
        TypeError: `live` is not a `LiveIndex`.
    """
    require_live(live)

    async def health(_: Request) -> JsonResponse:
        index, failed = live.current, list(_failed(feed, max_stale, max_quiet))
        published_at = index.published_at
        status: dict[str, object] = {
            "pairs": len(index),
            "revision": feed.revision,
            "as_of": index.as_of,
            "published_at": None if published_at is None else format_time(published_at),
            "quiet_seconds": _rounded(feed.quiet_age),
            "max_quiet_seconds": max_quiet,
            "unchanged_seconds": _rounded(feed.change_age),
            "age_seconds": _rounded(feed.age),
            "problem": feed.problem,
            "current_rejections": feed.current_rejections,
            "oldest_retained_seconds": _rounded(feed.retained_age),
            "process": os.getpid(),
        }
        if failed:
            status = {"error": "; ".join(failed), **status}
        body = json.dumps(status, separators=(",", ":")).encode("ascii")
        return JsonResponse(body, 503 if failed else 200, {"Cache-Control": "no-store"})

    return ExactRoute(HEALTH_PATH, health)


def _failed(feed: FeedStatus, max_stale: float | None, max_quiet: float | None) -> Iterator[str]:
    """Yield the message of each failed check."""
    age, quiet_age, problem = feed.age, feed.quiet_age, feed.problem
    if problem is not None and feed.is_unknown:
        yield f"feed: {problem}"
    if max_stale is not None and age > max_stale:
        yield f"the feed was last healthy {age:.1f} seconds ago"
    if quiet_age == inf:
        yield "nothing was ever published into the feed"
    elif max_quiet is not None and quiet_age > max_quiet:
        yield f"the publisher last published {quiet_age:.1f} seconds ago"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None or not isfinite(seconds) else round(seconds, 3)
