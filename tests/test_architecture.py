"""The layer rules of the four packages, checked in the syntax trees of their modules."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = ("market_index", "market_index_feeds", "market_index_http", "market_index_cli")

# What the modules of a package or folder may import, besides themselves and the standard library.
MAY_IMPORT: Mapping[str, set[str]] = {
    "market_index": {"attrs", "cattrs"},
    "market_index.contract.machine": {"hypothesis"},
    "market_index.hypothesis_plugin": {"hypothesis"},
    "market_index.live": {"asyncio"},  # a task waits in the event loop that runs it
    "market_index.stateful": {"hypothesis"},
    "market_index.strategies": {"hypothesis"},
    "market_index_feeds": {"market_index", "attrs"},
    "market_index_feeds.nats": {"isal", "nats"},
    "market_index_feeds.http": {"httpx"},
    "market_index_feeds.ledger": {"cbor2"},
    "market_index_http": {"market_index", "attrs", "starlette"},
    "market_index_http.responses": {"isal"},
    "market_index_http.operating.metrics": {"prometheus_client"},
    "market_index_cli": {*PACKAGES, "attrs", "anyio", "click", "httptools", "starlette", "uvicorn", "uvloop"},
    "market_index_cli.pytest_plugin": {"pytest"},
}
# The parts of the standard library that the domain does not import: I/O, clocks and logging.
# fmt: off
NOT_IN_THE_DOMAIN = frozenset({
    "asyncio", "concurrent", "fcntl", "http", "io", "logging", "mmap", "multiprocessing", "os", "pathlib", "random",
    "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "time", "urllib",
})
# fmt: on
# The modules of the domain whose `__all__` the other packages may import.
PUBLIC = {
    "market_index",
    *(f"market_index.{name}" for name in ("contract", "display", "errors", "stateful", "strategies", "wire")),
}
# The modules and folders of the feeds that are a medium. Lines and recordings are shared by the commands.
MEDIA = {f"market_index_feeds.{name}" for name in ("ledger", "nats", "orders", "service", "sqlite")}
IMPORT_MEDIA = {"market_index_cli.check", "market_index_feeds.checking", "market_index_feeds.sources"}


class Import(NamedTuple):
    """An import of a module, or of a name in it, by another module."""

    importer: str
    module: str
    name: str = ""


class Code:
    """The imports and the `__all__` of each module, by module name."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self.nodes = {module: [*ast.walk(ast.parse(source))] for module, source in sources.items()}
        self.imports = {module: sorted({*imports(module, nodes, sources)}) for module, nodes in self.nodes.items()}
        self.exports = {module: exported(nodes) for module, nodes in self.nodes.items()}

    def __iter__(self) -> Iterator[Import]:
        for found in self.imports.values():
            yield from found


def exported(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the names in the `__all__` of a module."""
    for node in nodes:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def imports(module: str, nodes: Iterable[ast.AST], known: Collection[str]) -> Iterator[Import]:
    """Yield all imports of a module: at the top, in functions, under TYPE_CHECKING, and attributes of modules."""
    bound: dict[str, str] = {}  # name in this module -> module
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name] = alias.name
                yield Import(module, alias.name)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            for alias in node.names:
                if (submodule := f"{source}.{alias.name}") in known:
                    bound[alias.asname or alias.name] = submodule
                    yield Import(module, submodule)
                else:
                    yield Import(module, source, alias.name)
    for node in nodes:
        if isinstance(node, ast.Attribute) and (imported := bound.get(dotted(node.value))):
            is_module = (submodule := f"{imported}.{node.attr}") in known
            yield Import(module, submodule) if is_module else Import(module, imported, node.attr)


def dotted(node: ast.expr) -> str:
    """Return the dotted name that an expression is; empty if it is none. `ast.unparse` takes ten times as long."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def package_of(module: str) -> str:
    return module.partition(".")[0]


def is_within(module: str, folder: str) -> bool:
    return f"{module}.".startswith(f"{folder}.")


# The rules. Each yields its violations.


def requirements(code: Code) -> Iterator[Import]:
    """A module imports only what its layer allows. The domain imports nothing for I/O, clocks or logging."""
    for one in code:
        allowed = {package_of(one.importer), *sys.stdlib_module_names}
        allowed -= NOT_IN_THE_DOMAIN if package_of(one.importer) == "market_index" else set()
        for folder, names in MAY_IMPORT.items():
            allowed |= names if is_within(one.importer, folder) else set()
        if package_of(one.module) not in allowed:
            yield one


def public_names(code: Code) -> Iterator[Import]:
    """Other packages import from the domain only names in the `__all__` of a public module."""
    for one in code:
        if package_of(one.module) == "market_index" != package_of(one.importer) and (
            one.module not in PUBLIC or (one.name and one.name not in code.exports.get(one.module, []))
        ):
            yield one


def private_names(code: Code) -> Iterator[Import]:
    """No private name and no private module is imported across packages."""
    for one in code:
        is_private = any(part.startswith("_") and part[-1] != "_" for part in (*one.module.split("."), one.name))
        if is_private and package_of(one.importer) != package_of(one.module) in PACKAGES:
            yield one


def media(code: Code) -> Iterator[Import]:
    """Only `sources` and what checks import media. A medium imports shared modules, but no other medium."""
    for one in code:
        for medium in MEDIA:
            if is_within(one.module, medium) and not (one.importer in IMPORT_MEDIA or is_within(one.importer, medium)):
                yield one


def cycles(code: Code) -> Iterator[Import]:
    """There are no import cycles, including imports in functions or under TYPE_CHECKING."""
    below: dict[str, set[str]] = {module: set() for module in code.imports}
    for one in code:
        below[one.importer].add(one.module)
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        yield Import(*error.args[1][:2])


def clocks(code: Code) -> Iterator[Import]:
    """The domain imports `datetime` for values, but never reads the current time."""
    for module, nodes in code.nodes.items():
        for node in nodes if package_of(module) == "market_index" else ():
            if isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today"}:
                yield Import(module, "datetime", node.attr)


def code() -> Code:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return Code({name: path.read_text() for name, path in zip(names, paths, strict=True)})


BROKEN: dict[Callable[[Code], Iterator[Import]], list[dict[str, str]]] = {
    requirements: [
        {"market_index_feeds.a": "def f():\n    import market_index_http.app"},
        {"market_index_http.a": "from uvicorn import run"},
        {"market_index.a": "from logging import getLogger"},
        {"market_index.a": "from . import b"},
    ],
    public_names: [
        {
            "market_index_feeds.a": "from market_index import wire\nwire.write()\nwire.read()",
            "market_index.wire": "__all__ = ['read']",
        }
    ],
    private_names: [{"market_index_cli.a": "from market_index_http.app import _routes"}],
    media: [{"market_index_feeds.nats.watch": "from market_index_feeds.sqlite import SqliteStore"}],
    cycles: [{"market_index.a": "import market_index.b", "market_index.b": "def f():\n    from market_index import a"}],
    clocks: [{"market_index.a": "from datetime import datetime\ndatetime.now()"}],
}


@pytest.mark.parametrize("rule", BROKEN, ids=lambda rule: rule.__name__)
def test_a_rule_finds_what_breaks_it(rule: Callable[[Code], Iterator[Import]]):
    assert [len([*rule(Code(sources))]) for sources in BROKEN[rule]] == [1] * len(BROKEN[rule])


def test_the_packages_follow_the_rules_and_the_page_of_the_design_states_their_imports():
    """One test, because parsing the packages takes longest."""
    whole = code()
    for rule in BROKEN:
        assert [*rule(whole)] == [], rule.__doc__
    for module, names in whole.exports.items():
        assert len(set(names)) == len(names), module
        assert [name for name in names if not hasattr(import_module(module), name)] == [], module
    imported = {(package_of(one.importer), package_of(one.module)) for one in whole}
    found = {
        one: {two for importer, two in imported if importer == one and two in PACKAGES} - {one} for one in PACKAGES
    }
    page = (ROOT / "docs" / "design.md").read_text()
    stated = re.findall(r"^\| `(market_index\w*)` \|.*\| (.*) \|$", page, re.MULTILINE)
    assert {package: {*re.findall(r"`(\w+)`", packages)} for package, packages in stated} == found
