"""What all values have in common: a copy is the value itself, and a pickle calls the constructor, which validates."""

from __future__ import annotations

from typing import Any, Self

from attrs import fields


class Value:
    """Base class of the immutable attrs classes."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, part.name) for part in fields(type(self)) if part.init)  # type: ignore[arg-type]  # of attrs, all of them


def repr_html(value: object) -> str:
    """Return the table that a notebook shows for a value: the method `_repr_html_` of values that have a table."""
    from market_index.display.notebook import table  # noqa: PLC0415  # few programs show a table

    return table(value).html


def print_call(printer: Any, name: str, *arguments: object, **named: object) -> None:
    """Print a call in IPython, and in the report of a failing Hypothesis test; named arguments of None are left out."""
    with printer.group(1, f"{name}(", ")"):
        for position, argument in enumerate(arguments):
            if position:
                printer.text(",")
                printer.breakable()
            printer.pretty(argument)
        for keyword, argument in named.items():
            if argument is not None:
                printer.text(",")
                printer.breakable()
                printer.text(f"{keyword}=")
                printer.pretty(argument)
