"""The rules for public names, those in the `__all__` of a module: resolvable type hints, and docstrings."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator, Mapping
from types import ModuleType


def members(module: ModuleType) -> Iterator[tuple[str, typing.Any]]:
    """Yield the public classes and functions of a module, and all functions and properties of those classes."""
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield f"{module.__name__}.{name}", value
        if inspect.isclass(value):
            yield from methods(f"{module.__name__}.{name}", value)


def methods(path: str, of_class: type) -> Iterator[tuple[str, typing.Any]]:
    """Yield the functions and properties that the class and its bases in the project define."""
    ours = [base for base in of_class.__mro__ if base.__module__.startswith(of_class.__module__.partition(".")[0])]
    defined: Mapping[str, typing.Any] = {name: value for base in reversed(ours) for name, value in vars(base).items()}
    for name, value in defined.items():
        function = value.fget if isinstance(value, property) else inspect.unwrap(getattr(value, "__func__", value))
        if inspect.isfunction(function):
            yield f"{path}.{name}", function


def without_hints(module: ModuleType) -> Iterator[str]:
    """Yield each public class, function, method and property for which `typing.get_type_hints` raises."""
    for path, value in members(module):
        try:
            typing.get_type_hints(value)
        except Exception as error:  # noqa: BLE001  # an annotation can raise anything
            yield f"{path}: {error}"


def without_docstring(module: ModuleType) -> Iterator[str]:
    """Yield each public class, function, method and property without a docstring."""
    for path, value in members(module):
        if not path.rpartition(".")[2].startswith("_") and not value.__doc__:
            yield path
