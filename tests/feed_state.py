"""What `/healthz` reports of a feed, for apps without one."""

from __future__ import annotations

from attrs import define


@define
class FeedState:
    """What `/healthz` reports of a feed: by default, of one whose publisher publishes all the time."""

    revision: int | None = None
    age: float = 0.0
    quiet_age: float = 0.0
    change_age: float = 0.0
    problem: str | None = None
    current_rejections: int = 0
    retained_age: float | None = None
