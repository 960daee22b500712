"""Objects of validated values, created without the constructor.

The constructor of a public class validates every value. Code that derives a value from valid ones does not validate
them again: a stream derives a level and a book with every message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any, Final, TypeVar

from attrs import fields

T = TypeVar("T")

_new: Final = object.__new__


def unchecked_constructor(of_type: type[T]) -> Callable[..., T]:
    """Return a function that creates an object of a frozen attrs class from its fields, in order, without validation.

    The function is generated, as attrs generates `__init__`. It sets the slots of the class directly, which takes two
    thirds of the time of `__attrs_init__`.
    """
    setters = _setters(of_type)
    values = [f"value_{number}" for number in range(len(setters))]
    names: dict[str, Any] = {"new": _new, "of_type": of_type}
    names |= {f"set_{value}": setter for value, setter in zip(values, setters, strict=True)}
    lines = [f"def create({', '.join(values)}):", "created = new(of_type)"]
    lines += [f"set_{value}(created, {value})" for value in values]
    exec("\n    ".join([*lines, "return created"]), names)  # noqa: S102  # of the lines above
    create: Callable[..., T] = names["create"]
    return create


def unchecked_rows(of_type: type[T], length: int, *columns: Iterable[object]) -> list[T]:
    """Return `length` objects of a frozen attrs class from one column of validated values per field.

    For thousands of rows, the constructor takes ten times as long.
    """
    created = list(map(_new, repeat(of_type, length)))
    for setter, column in zip(_setters(of_type), columns, strict=True):
        # deque(maxlen=0) exhausts the iterator at C speed.
        deque(map(setter, created, column), maxlen=0)
    return created


def _setters(of_type: type) -> list[Callable[[Any, Any], None]]:
    """Return the function that sets each slot: a frozen class rejects assignments, but its slots do not."""
    return [of_type.__dict__[attribute.name].__set__ for attribute in fields(of_type)]
