"""Generates docs/api, the reference of the Python API, from signatures and docstrings: `python -m tests.api_pages`.

A signature is a block of `py`, and an example is one of `pycon`. The tests of pages run only blocks of `python`: the
examples of docstrings are run in their modules.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from abc import ABC
from collections.abc import Iterable, Iterator
from enum import Enum
from importlib import import_module
from itertools import chain, pairwise
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import attrs

ROOT: Final = Path(__file__).resolve().parents[1]

FOLDER: Final = ROOT / "docs" / "api"

_STABLE: Final = "Stable: no change of its names or their meaning is planned before 1.0."
_MAY_CHANGE: Final = "Not stable: its names may change before 1.0, with a note in the [changelog](../changelog.md)."

MODULES: Final = {
    "market_index": (_STABLE, "[the library](../library.md)"),
    "market_index.display": (_MAY_CHANGE, "[names and human units](../library.md#names-and-human-units)"),
    "market_index.wire": (_STABLE, "[read and write the JSON](../library.md#read-and-write-the-json)"),
    "market_index.contract": (_MAY_CHANGE, "[test a service](../testing.md)"),
    "market_index.contract.machine": (
        _MAY_CHANGE,
        "[test a service](../testing.md#publish-arbitrary-books-into-your-service)",
    ),
    "market_index.strategies": (_STABLE, "[test with arbitrary books](../testing.md)"),
    "market_index.stateful": (_MAY_CHANGE, "[test an indexer](../testing.md#test-an-indexer)"),
    "market_index_feeds": (_MAY_CHANGE, "[publish and follow books](../publish.md)"),
    "market_index_feeds.ledger": (_MAY_CHANGE, "[add an exchange](../extending.md#add-an-exchange)"),
    "market_index_http": (_STABLE, "[mount the app](../mounting.md)"),
    "market_index_http.stream": (_MAY_CHANGE, "[mount the app](../mounting.md#streams-probes-metrics-description)"),
    "market_index_http.operating": (_MAY_CHANGE, "[mount the app](../mounting.md#streams-probes-metrics-description)"),
}
"""The stability of each public module, and its guide."""

SECTIONS: Final = {
    "market_index.contract": ["market_index.contract.machine"],
    "market_index_feeds": ["market_index_feeds.ledger"],
    "market_index_http": ["market_index_http.stream", "market_index_http.operating"],
}
"""The modules that are sections of the page of another one."""

ALIASES: Final = "Types in signatures"
"""The heading of the types that only signatures name."""

MAX_COLUMNS: Final = 100
"""The maximum length of a signature in one line."""

MAX_DEFAULT_LENGTH: Final = 40
"""The maximum length of a default. A longer one is shown as `...`, as a function is."""

MAX_VALUE_LENGTH: Final = 400
"""The maximum length of the value of a constant. A longer one is shown as `...`."""


def pages() -> dict[Path, str]:
    """Return the text of each page."""
    sections = set(chain.from_iterable(SECTIONS.values()))
    return {FOLDER / f"{name.removeprefix('market_index.')}.md": page(name) for name in MODULES if name not in sections}


def page(name: str) -> str:
    parts = [*module_parts(name, "#"), *[part for one in SECTIONS.get(name, ()) for part in module_parts(one, "##")]]
    return "\n\n".join(parts) + "\n"


def module_parts(name: str, heading: str) -> Iterator[str]:
    """Yield the parts of a page that describe a module: paragraphs and blocks."""
    module, (stability, guide) = import_module(name), MODULES[name]
    yield f"{heading} {name}"
    yield f"{stability} How to use it: {guide}."
    yield markdown(module.__doc__)
    documented = assignments(package_body(name))
    parts = [part for public in module.__all__ for part in name_parts(module, public, f"{heading}#", documented)]
    in_signatures = set(re.findall(r"\w+", "".join(part for part in parts if part.startswith("```py\n"))))
    aliases = sorted(in_signatures & documented.keys() - set(module.__all__))
    yield "\n".join([f"- {group}: {links}" for group, links in contents(module, aliases) if links])
    yield from parts
    if aliases:
        yield f"{heading}# {ALIASES}"
    for alias in aliases:
        yield from assignment_parts(alias, documented, f"{heading}##")


def contents(module: ModuleType, aliases: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each group of names of a module, with links to their headings."""
    groups: dict[str, list[str]] = {"Constants": [], "Classes": [], "Errors": [], "Functions": []}
    for name in module.__all__:
        public = getattr(module, name)
        is_class = inspect.isclass(public)
        group = "Functions" if isinstance(public, FunctionType) else "Classes" if is_class else "Constants"
        groups["Errors" if is_class and issubclass(public, Exception) else group].append(name)
    for group, names in (groups | {ALIASES: [*aliases]}).items():
        yield group, ", ".join([f"[{name}](#{anchor(module, name)})" for name in names])


def anchor(module: ModuleType, name: str) -> str:
    """Return the anchor of a name: `table` is the second one after `Table`."""
    lower = [public.lower() for public in module.__all__]
    times = lower[: module.__all__.index(name)].count(name.lower()) if name in module.__all__ else 0
    return f"{name.lower()}-{times}" if times else name.lower()


def name_parts(module: ModuleType, name: str, heading: str, documented: dict[str, tuple[str, str]]) -> Iterator[str]:
    """Yield the heading, the signature and the text of a public name, and those of its members."""
    public = getattr(module, name)
    if not inspect.isclass(public) and not isinstance(public, FunctionType):
        yield from assignment_parts(name, documented, heading)
        return
    yield f"{heading} `{name}`"
    yield fenced("py", class_signature(public) if inspect.isclass(public) else signature(name, public))
    yield markdown(public.__doc__)
    if inspect.isclass(public):
        (defined,) = ast.parse(textwrap.dedent(inspect.getsource(public))).body
        assert isinstance(defined, ast.ClassDef)
        for field, (_, text) in assignments(defined.body).items():
            yield f"{heading}# `{name}.{field}`"
            yield markdown(text)
        for member, value in vars(public).items():
            if not member.startswith("_") and isinstance(value, FunctionType | classmethod | staticmethod | property):
                yield f"{heading}# `{name}.{member}`"
                yield fenced("py", member_signature(member, value))
                yield markdown(value.__doc__)


def assignment_parts(name: str, documented: dict[str, tuple[str, str]], heading: str) -> Iterator[str]:
    value, text = documented[name]
    yield f"{heading} `{name}`"
    yield fenced("py", f"{name} = {value if len(value) <= MAX_VALUE_LENGTH else '...'}")
    yield markdown(text)


def package_body(name: str) -> list[ast.stmt]:
    """Return the statements of all modules of the package of a module."""
    files = sorted((ROOT / name.partition(".")[0]).rglob("*.py"))
    return [statement for file in files for statement in ast.parse(file.read_text(encoding="utf-8")).body]


def assignments(body: Iterable[ast.stmt]) -> dict[str, tuple[str, str]]:
    """Return the value and the docstring of each assignment that a docstring follows."""
    found = {}
    for statement, following in pairwise(body):
        match statement, following:
            case ast.AnnAssign(ast.Name(name), _, value) | ast.Assign([ast.Name(name)], value), ast.Expr(
                ast.Constant(str(text))
            ):
                found[name] = ast.unparse(value) if value else "", text
    return found


def class_signature(of: Any) -> str:
    """Return the base classes of a class, and the call of its constructor if it has one."""
    bases = ", ".join(base.__name__ for base in of.__bases__ if base not in {object, ABC} and not is_internal(base))
    if issubclass(of, Enum):
        return "\n".join([f"class {of.__name__}({bases})", *[f"{member} = {member.value!r}" for member in of]])
    if is_ours(of.__init__):
        call = signature(of.__name__, of)
        return f"class {of.__name__}({bases})\n{call}" if bases else call
    return f"class {of.__name__}({bases})"


def is_ours(value: Any) -> bool:
    return getattr(value, "__module__", "").startswith("market_index")


def is_internal(base: Any) -> bool:
    return is_ours(base) and not any(base.__name__ in import_module(module).__all__ for module in MODULES)


def member_signature(name: str, value: Any) -> str:
    if isinstance(value, property):
        assert value.fget
        return f"{name}: {inspect.signature(value.fget).return_annotation}"
    if isinstance(value, classmethod | staticmethod):
        return f"@{type(value).__name__}\ndef {signature(name, value.__func__)}"
    is_async = inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value)
    return f"{'async def' if is_async else 'def'} {signature(name, value)}"


def signature(name: str, of: Any) -> str:
    """Return the call of a function or a class, with types and defaults."""
    found = inspect.signature(of)
    shown = [argument(parameter, of) for parameter in found.parameters.values()]
    kinds = [parameter.kind for parameter in found.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returned = "" if inspect.isclass(of) else f" -> {found.return_annotation}"
    line = f"{name}({', '.join(shown)}){returned}"
    if len(line) <= MAX_COLUMNS:
        return line
    return "\n".join([f"{name}(", *[f"    {one}," for one in shown], f"){returned}"])


def argument(parameter: inspect.Parameter, of: Any) -> str:
    """Return an argument with its type and its default."""
    of_type = parameter.annotation
    if of_type is parameter.empty and attrs.has(of):
        # Not the type of the attrs field: cattrs resolves its text, so it depends on what was called before.
        of_type = next(
            found[parameter.name] for found in map(inspect.get_annotations, of.__mro__) if parameter.name in found
        )
    prefix = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    typed = prefix + (parameter.name if of_type is parameter.empty else f"{parameter.name}: {of_type}")
    if parameter.default is parameter.empty:
        return typed
    default = repr(parameter.default)
    is_shown = len(default) <= MAX_DEFAULT_LENGTH and not callable(parameter.default) and default != "NOTHING"
    return f"{typed} = {default if is_shown and parameter.default is not ... else '...'}"


def fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def markdown(docstring: str | None) -> str:
    """Return a docstring in Markdown: examples are blocks, and `Args:` and the like are lists.

    What follows "Theory of operation" is for those who change the module.
    """
    assert docstring, "a public name must have a docstring"
    text, _, _ = inspect.cleandoc(docstring).partition("\n\nTheory of operation\n")
    paragraphs = [paragraph.rstrip() for paragraph in text.split("\n\n")]
    return "\n\n".join(map(paragraph_in_markdown, paragraphs))


def paragraph_in_markdown(paragraph: str) -> str:
    heading, _, rest = paragraph.partition("\n")
    if paragraph.startswith(">>> "):
        return fenced("pycon", paragraph)
    if heading in {"Args:", "Returns:", "Raises:"}:
        items = re.sub(r"^ {4}(\w+): ", r"- `\1`: ", rest, flags=re.MULTILINE)
        items = re.sub(r"^ {4}(?=\S)", "- ", items, flags=re.MULTILINE)
        return f"{heading}\n\n{items}".replace("\n        ", "\n  ")
    return paragraph


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
