"""`/healthz`: whether the feed still follows its source."""

from __future__ import annotations

import json
import os
from math import isfinite
from typing import Final, Protocol

from starlette.requests import Request

from market_index import LiveIndex
from market_index_http.routes import ExactRoute, JsonResponse

HEALTH_PATH: Final = "/healthz"


class FeedStatus(Protocol):
    """What `/healthz` reports of a feed. A `market_index_feeds.Feed` has it."""

    @property
    def revision(self) -> int | None:
        """The source's own count of its changes; None if it has none."""

    @property
    def age(self) -> float:
        """Seconds since the source was last known to be healthy."""

    @property
    def current_rejections(self) -> int:
        """The number of records that are rejected now."""

    @property
    def retained_age(self) -> float | None:
        """Seconds since the oldest retained book was last what the source contains; None if no book is retained."""


def health_route(live: LiveIndex, feed: FeedStatus, max_stale: float | None = None) -> ExactRoute:
    """Return the route `/healthz`: the number of pairs, the state of the feed, and the process id.

    It answers 503 while the feed is older than `max_stale` seconds; None means never. The pairs are served all the
    same. The process id matters where several workers share one address: each has its own feed.
    """

    async def health(_: Request) -> JsonResponse:
        age = feed.age
        status: dict[str, object] = {
            "pairs": len(live.current),
            "revision": feed.revision,
            "age_seconds": _rounded(age),
            "current_rejections": feed.current_rejections,
            "oldest_retained_seconds": _rounded(feed.retained_age),
            "process": os.getpid(),
        }
        stale = max_stale is not None and age > max_stale
        if stale:
            status = {"error": f"the feed was last healthy {age:.1f} seconds ago", **status}
        body = json.dumps(status, separators=(",", ":")).encode("ascii")
        return JsonResponse(body, 503 if stale else 200, {"Cache-Control": "no-store"})

    return ExactRoute(HEALTH_PATH, health)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None or not isfinite(seconds) else round(seconds, 3)
