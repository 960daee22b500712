"""What all values have in common: a copy is the value itself, and a pickle calls the constructor, which validates.

A record, such as a level or a book, is an attrs class. Its `__attrs_post_init__` converts and validates, because each
way to make a record calls it, while msgspec calls no converter. The converters of the fields only state the types of
the arguments for type checkers. With `getstate_setstate=False`, attrs adds no `__setstate__`, through which a pickle
could set fields that nothing validates. A collection (`Levels`, `MarketIndex`, `RestingOrders`) is no attrs class:
`asdict` and `astuple` leave it as it is, as they do with each sequence and mapping that they do not know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat
from typing import Any, Self, TypeVar

from attrs import fields
from attrs.exceptions import FrozenInstanceError

T = TypeVar("T")


class Value:
    """Base class of the immutable classes."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def _arguments(self) -> tuple[Any, ...]:
        """Return the arguments of the constructor that returns this value."""
        return tuple([getattr(self, part.name) for part in fields(type(self))])  # type: ignore[arg-type]  # of attrs

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments()


@cache
def slot_setters(of_type: type, *names: str) -> tuple[Callable[[Any, Any], None], ...]:
    """Return functions that set slots of a class that rejects assignment.

    They take half the time of `object.__setattr__`.
    """
    return tuple([vars(of_type)[name].__set__ for name in names])


def unchecked(
    of_type: type[T], setters: Iterable[Callable[[Any, Any], None]], first: Sequence[object], *others: Iterable[object]
) -> list[T]:
    """Return the records of columns of valid values, without validating them again: one setter for each column.

    It takes a fifth of the time of the constructor, and most callers look at the best levels after each change.
    """
    values = list(map(object.__new__, repeat(of_type, len(first))))
    for set_slot, column in zip(setters, (first, *others), strict=True):
        # deque(maxlen=0) exhausts the iterator at C speed.
        deque(map(set_slot, values, column), maxlen=0)
    return values
