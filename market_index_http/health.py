"""Whether what is served is still fed: an endpoint for whoever watches over a server."""

from __future__ import annotations

import json
import os
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response

from market_index import LiveIndex
from market_index_http.app import ExactRoute

HEALTH_PATH: Final = "/healthz"


class Followed(Protocol):
    """What is told of where the books come from."""

    @property
    def revision(self) -> int | None:
        """The source's own count of its changes, or None where it keeps none."""

    @property
    def age(self) -> float:
        """Seconds since the source was last known to be good."""


def health_route(live: LiveIndex, feed: Followed, max_stale: float | None = None) -> ExactRoute:
    """Return the route `/healthz`: how many pairs there are, of which revision, and how old the word of the feed is.

    It answers 503 where that is older than `max_stale` seconds; None for never. The pairs are served all the same. It
    tells which process answers, since each of several that serve one address has a feed of its own.
    """

    async def health(_: Request) -> Response:
        age = feed.age
        told: dict[str, object] = {
            "pairs": len(live.current),
            "revision": feed.revision,
            "age_seconds": round(age, 3),
            "process": os.getpid(),
        }
        stale = max_stale is not None and age > max_stale
        if stale:
            told = {"error": f"the feed was last known to be good {age:.1f} seconds ago", **told}
        body = json.dumps(told, separators=(",", ":")).encode("ascii")
        return Response(body, 503 if stale else 200, {"Cache-Control": "no-store"}, media_type="application/json")

    return ExactRoute(HEALTH_PATH, health)
