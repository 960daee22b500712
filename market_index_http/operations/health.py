"""The probes `/livez`, `/readyz` and `/healthz`: whether the process answers, and whether its books are current."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from math import inf, isfinite
from typing import Final, Protocol

from attrs import define, frozen
from starlette.requests import Request

from market_index import LiveIndex
from market_index.freshness import format_time
from market_index_http.paths import HEALTH_PATH, LIVE_PATH, READY_PATH
from market_index_http.routes import ExactRoute, JsonResponse


class FeedStatus(Protocol):
    """The state of a feed that probes and metrics report. A `market_index_feeds.Feed` has these properties."""

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
        """Whether only the publisher of the source can end the problem."""

    @property
    def rejected(self) -> int:
        """The number of records that were rejected so far."""

    @property
    def current_rejections(self) -> int:
        """The number of pairs of which a record is invalid now."""

    @property
    def retries(self) -> int:
        """How often the source could not be read so far, and was tried again."""


@frozen(repr=False)
class _NoFeed:
    revision: int | None = None
    age: float = inf
    quiet_age: float = inf
    change_age: float = inf
    problem: str | None = None
    is_unknown: bool = False
    rejected: int = 0
    current_rejections: int = 0
    retries: int = 0

    def __repr__(self) -> str:
        return "<no feed>"


_NO_FEED: Final = _NoFeed()


@define
class Health:
    """The feed of an app, and the limits within which its books are current.

    `feed` may be set later, as by a lifespan that opens it. Until then the app is not ready.

    >>> health = Health(max_stale=30)
    >>> health
    Health(feed=<no feed>, max_stale=30, max_quiet=None)
    >>> health.failures()
    ['the feed is not loaded']

    Args:
        feed: The state of the feed.
        max_stale: How many seconds the feed may be unhealthy; None: without limit.
        max_quiet: How many seconds the publisher may publish nothing; None: without limit.
    """

    feed: FeedStatus = _NO_FEED
    max_stale: float | None = None
    max_quiet: float | None = None

    def failures(self) -> list[str]:
        """Return the message of each failed check; none if the books are current."""
        return list(self._failures())

    def _failures(self) -> Iterator[str]:
        age, quiet_age, problem = self.feed.age, self.feed.quiet_age, self.feed.problem
        if problem is None and age == inf:
            yield "the feed is not loaded"
            return
        if problem is not None and self.feed.is_unknown:
            yield f"feed: {problem}"
        if self.max_stale is not None and age > self.max_stale:
            yield f"the feed was last healthy {age:.1f} seconds ago"
        if quiet_age == inf:
            yield "nothing was ever published into the feed"
        elif self.max_quiet is not None and quiet_age > self.max_quiet:
            yield f"the publisher last published {quiet_age:.1f} seconds ago"


def health_routes(live: LiveIndex, health: Health) -> list[ExactRoute]:
    """Return the routes of the probes.

    - `/livez`: 200 as long as the process answers.
    - `/readyz`: 200 if the books are current, otherwise 503 with the failed checks in `error`.
    - `/healthz`: as `/readyz`, with the number of pairs, the state of the feed, and the process id. The process id
      identifies one of several workers that share an address: each has its own feed.

    The pairs are served in all cases.
    """

    async def alive(_: Request) -> JsonResponse:
        return _response([], {"status": "alive"})

    async def ready(_: Request) -> JsonResponse:
        failed = health.failures()
        return _response(failed, {"status": "not ready" if failed else "ready"})

    async def details(_: Request) -> JsonResponse:
        index, feed = live.current, health.feed
        published_at = index.published_at
        status: dict[str, object] = {
            "pairs": len(index),
            "revision": feed.revision,
            "as_of": index.as_of,
            "published_at": None if published_at is None else format_time(published_at),
            "quiet_seconds": _rounded(feed.quiet_age),
            "max_quiet_seconds": health.max_quiet,
            "unchanged_seconds": _rounded(feed.change_age),
            "age_seconds": _rounded(feed.age),
            "problem": feed.problem,
            "current_rejections": feed.current_rejections,
            "process": os.getpid(),
        }
        return _response(health.failures(), status)

    return [ExactRoute(HEALTH_PATH, details), ExactRoute(LIVE_PATH, alive), ExactRoute(READY_PATH, ready)]


def _response(failed: list[str], status: dict[str, object]) -> JsonResponse:
    if failed:
        status = {"error": "; ".join(failed), **status}
    body = json.dumps(status, separators=(",", ":")).encode("ascii")
    return JsonResponse(body, 503 if failed else 200, {"Cache-Control": "no-store"})


def _rounded(seconds: float) -> float | None:
    return round(seconds, 3) if isfinite(seconds) else None
