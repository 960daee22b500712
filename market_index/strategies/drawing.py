"""Functions that all strategies share: they build values of drawn parts, and check sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st

from market_index.errors import safe_repr

_T = TypeVar("_T")


@st.composite
def build(draw: st.DrawFn, target: Callable[..., _T], *parts: st.SearchStrategy[Any]) -> _T:
    """Build a value of drawn parts. Unlike with `st.builds`, a failing test shows the value, not the call."""
    return target(*map(draw, parts))


def part_strategy(part: object, default: Callable[[], st.SearchStrategy[_T]]) -> st.SearchStrategy[_T]:
    """Return the strategy of a part that is given as a strategy, as a value, or not at all."""
    if part is None:
        return default()
    return part if isinstance(part, st.SearchStrategy) else st.just(part)  # type: ignore[arg-type]  # it is a _T


def require_range(what: str, least: int, most: int, bound: int | None = None) -> None:
    """Raise `ValueError` unless the range is within 0 to `bound`, or has no upper bound if that is None."""
    if type(least) is not int or type(most) is not int or not 0 <= least <= most <= (most if bound is None else bound):
        highest = "" if bound is None else f" to {bound}"
        raise ValueError(
            f"{what} must be a range of whole numbers from 0{highest}, got {safe_repr(least)} to {safe_repr(most)}"
        )
