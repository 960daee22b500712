"""The state of a feed for probes and metrics, for apps without a feed."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field


@define
class FeedState:
    """The state of a feed that probes and metrics report; by default, that of a feed whose publisher is active."""

    revision: int | None = None
    age: float = 0.0
    quiet_age: float = 0.0
    change_age: float = 0.0
    problem: str | None = None
    is_unknown: bool = False
    rejected: int = 0
    current_rejections: int = 0
    saturated_levels: int = 0
    skipped_by_reason: Mapping[str, int] = field(factory=dict)
    figures: Mapping[str, float] = field(factory=dict)
    retries: int = 0
