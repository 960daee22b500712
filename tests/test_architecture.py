"""The layer rules of the four packages, checked in the syntax trees of their modules.

That the domain has no I/O, clock or logging is a rule of ruff: `banned-api` in pyproject.toml.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
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


@cache
def imports() -> list[Import]:
    """Return the imports of all modules: at the top, in functions, and under TYPE_CHECKING."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    found = []
    for importer, path in zip(names, paths, strict=True):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found += [Import(importer, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                pairs = [(str(node.module), alias.name) for alias in node.names]
                found += [Import(importer, *([".".join(one)] if ".".join(one) in names else one)) for one in pairs]
    return found


def package_of(module: str) -> str:
    return module.partition(".")[0]


def is_within(module: str, folder: str) -> bool:
    return f"{module}.".startswith(f"{folder}.")


# The rules. Each says whether an import breaks it.


def requirements(one: Import) -> bool:
    """A module imports only what its layer allows."""
    allowed = {package_of(one.importer), *sys.stdlib_module_names}
    allowed |= {name for folder, names in MAY_IMPORT.items() if is_within(one.importer, folder) for name in names}
    return package_of(one.module) not in allowed


def public_names(one: Import) -> bool:
    """Other packages import from the domain only names in the `__all__` of a public module."""
    if package_of(one.module) != "market_index" or package_of(one.importer) == "market_index":
        return False
    return one.module not in PUBLIC or (one.name not in {"", *import_module(one.module).__all__})


def private_names(one: Import) -> bool:
    """No private name and no private module is imported across packages."""
    is_private = any(part.startswith("_") and part[-1] != "_" for part in (*one.module.split("."), one.name))
    return is_private and package_of(one.importer) != package_of(one.module) in PACKAGES


def media(one: Import) -> bool:
    """Only `sources` and what checks import media. A medium imports shared modules, but no other medium."""
    others = [medium for medium in MEDIA if not is_within(one.importer, medium)]
    return any(is_within(one.module, medium) for medium in others) and one.importer not in IMPORT_MEDIA


BROKEN: dict[Callable[[Import], bool], list[Import]] = {
    requirements: [
        Import("market_index_feeds.a", "market_index_http.app"),
        Import("market_index_http.a", "uvicorn", "run"),
        Import("market_index.a", "market_index_feeds"),
    ],
    public_names: [Import("market_index_feeds.a", "market_index.wire", "write")],
    private_names: [Import("market_index_cli.a", "market_index_http.app", "_routes")],
    media: [Import("market_index_feeds.nats.watch", "market_index_feeds.sqlite", "SqliteStore")],
}


@pytest.mark.parametrize("rule", BROKEN, ids=lambda rule: rule.__name__)
def test_the_packages_follow_each_rule(rule: Callable[[Import], bool]):
    assert [one for one in imports() if rule(one)] == [], rule.__doc__
    assert all(map(rule, BROKEN[rule]))


def test_the_page_of_the_design_states_the_imports_of_the_packages():
    imported = {(package_of(one.importer), package_of(one.module)) for one in imports()}
    found = {one: {two for two in PACKAGES if (one, two) in imported} - {one} for one in PACKAGES}
    page = (ROOT / "docs" / "design.md").read_text()
    stated = re.findall(r"^\| `(market_index\w*)` \|.*\| (.*) \|$", page, re.MULTILINE)
    assert {package: {*re.findall(r"`(\w+)`", packages)} for package, packages in stated} == found
