"""The probes `/livez`, `/readyz` and `/healthz`: whether the process answers, and whether its books are current."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import inf, isfinite
from typing import Final, Protocol

from attrs import define, field, validators
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from market_index import LiveIndex
from market_index.wire import format_time
from market_index_http.routes import exact_route


class FeedStatus(Protocol):
    """The state of a feed that probes and metrics report. `market_index_feeds.FeedHealth` has these properties."""

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
        """Why the live books may not be those of the source; None while it is healthy."""

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
    def saturated_levels(self) -> int:
        """The number of levels that show 2^64-1, because there are orders for as much or more."""

    @property
    def skipped_by_reason(self) -> Mapping[str, int]:
        """The number of outputs of the ledger that are no orders now, by reason; empty for other feeds."""

    @property
    def figures(self) -> Mapping[str, float]:
        """Numbers of the medium by their names, such as the last slot of the ledger."""

    @property
    def retries(self) -> int:
        """How often the source could not be read so far, and was tried again."""


# NaN, with which every comparison is false, would make any feed healthy.
_LIMIT: Final = validators.optional(validators.and_(validators.ge(0), validators.lt(inf)))


@define
class Health:
    """The feed of an app, and the limits within which its books are current.

    `feed` may be set later, for example by the lifespan that opens it. Until then the app is not ready.

    >>> health = Health(max_stale=30)
    >>> health
    Health(feed=None, max_stale=30, max_quiet=None)
    >>> health.failures()
    ['the feed is not loaded']

    Args:
        feed: The state of the feed.
        max_stale: How many seconds the feed may be unhealthy; None: without limit.
        max_quiet: How many seconds the publisher may publish nothing; None: without limit.

    Raises:
        ValueError: A limit is not a finite number of seconds from 0.
    """

    feed: FeedStatus | None = None
    max_stale: float | None = field(default=None, validator=_LIMIT)
    max_quiet: float | None = field(default=None, validator=_LIMIT)

    def failures(self) -> list[str]:
        """Return the message of each failed check; none if the books are current."""
        feed, failed = self.feed, []
        if feed is None or (feed.problem is None and feed.age == inf):
            return ["the feed is not loaded"]
        age, quiet_age, problem = feed.age, feed.quiet_age, feed.problem
        if problem is not None and feed.is_unknown:
            failed.append(f"feed: {problem}")
        if self.max_stale is not None and age > self.max_stale:
            failed.append(f"the feed was last healthy {age:.1f} seconds ago")
        if quiet_age == inf:
            failed.append("nothing was ever published into the feed")
        elif self.max_quiet is not None and quiet_age > self.max_quiet:
            failed.append(f"the publisher last published {quiet_age:.1f} seconds ago")
        return failed


def probe_routes(live: LiveIndex, health: Health) -> list[Route]:
    """Return the routes of the probes.

    - `/livez`: 200 as long as the process answers.
    - `/readyz`: 200 if the books are current, otherwise 503 with the failed checks in `error`.
    - `/healthz`: as `/readyz`, with the number of pairs, the state of the feed, and the process id. The process id
      identifies one of several workers that share an address: each has its own feed.

    The pairs are served in all cases.
    """

    async def alive(_: Request) -> JSONResponse:
        return _response([], {"status": "alive"})

    async def ready(_: Request) -> JSONResponse:
        failed = health.failures()
        return _response(failed, {"status": "not ready" if failed else "ready"})

    async def details(_: Request) -> JSONResponse:
        index, feed = live.current, health.feed
        published_at = index.published_at
        status: dict[str, object] = {
            "pairs": len(index),
            "revision": None if feed is None else feed.revision,
            "as_of": index.as_of,
            "published_at": None if published_at is None else format_time(published_at),
            "quiet_seconds": None if feed is None else _rounded(feed.quiet_age),
            "max_quiet_seconds": health.max_quiet,
            "unchanged_seconds": None if feed is None else _rounded(feed.change_age),
            "age_seconds": None if feed is None else _rounded(feed.age),
            "problem": None if feed is None else feed.problem,
            "current_rejections": 0 if feed is None else feed.current_rejections,
            "saturated_levels": 0 if feed is None else feed.saturated_levels,
            "skipped_outputs": {} if feed is None else dict(feed.skipped_by_reason),
            "process": os.getpid(),
        }
        return _response(health.failures(), status)

    return [exact_route("/healthz", details), exact_route("/livez", alive), exact_route("/readyz", ready)]


def _response(failed: list[str], status: dict[str, object]) -> JSONResponse:
    if failed:
        status = {"error": "; ".join(failed), **status}
    return JSONResponse(status, 503 if failed else 200, {"Cache-Control": "no-store"})


def _rounded(seconds: float) -> float | None:
    return round(seconds, 3) if isfinite(seconds) else None
