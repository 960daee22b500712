"""How IPython, notebooks and Hypothesis show values: the methods `_repr_pretty_` and `_repr_html_` of their classes.

A class names these functions itself, because IPython prefers the `repr` of a class to a method that it inherits.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

MAX_PRINTED: Final = 50
"""The maximum number of items of a collection that IPython and Hypothesis print one by one."""


def repr_pretty(value: Any, printer: Any, cycle: bool) -> None:  # noqa: FBT001  # the signature of IPython
    """Print a call that evaluates to the value, or its `repr` if a collection in it has more than 50 items."""
    del cycle
    arguments = value._arguments()  # noqa: SLF001  # of all values
    if any(isinstance(one, (list, tuple, dict)) and len(one) > MAX_PRINTED for one in arguments):
        printer.text(repr(value))
        return
    while arguments and arguments[-1] is None:
        arguments = arguments[:-1]
    with printer.group(1, f"{type(value).__name__}(", ")"):
        for position, argument in enumerate(arguments):
            if position:
                printer.text(",")
                printer.breakable()
            printer.pretty(argument)


def repr_html(value: object) -> str:
    """Return the table that a notebook shows for a value. Few programs show one, so tables are imported here."""
    html: str = import_module("market_index.display").table(value).html
    return html
