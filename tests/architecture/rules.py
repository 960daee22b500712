"""The layer rules of the four packages. Each rule yields its violations as texts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping

from tests.architecture.graph import Graph, Import, package_of

Rule = Callable[[Graph], Iterator[str]]

SIBLINGS: Mapping[str, frozenset[str]] = {
    "market_index": frozenset(),
    "market_index_feeds": frozenset({"market_index"}),
    "market_index_http": frozenset({"market_index"}),
    "market_index_cli": frozenset({"market_index", "market_index_feeds", "market_index_http"}),
}

# The packages that the modules of a package may import, besides siblings and the standard library.
REQUIREMENTS: Mapping[str, frozenset[str]] = {
    "market_index": frozenset({"attrs", "cattrs"}),
    "market_index_feeds": frozenset({"attrs"}),
    "market_index_http": frozenset({"attrs", "anyio", "starlette"}),
    "market_index_cli": frozenset({"attrs", "anyio", "click", "httptools", "starlette", "uvicorn", "uvloop"}),
}
# Of a module, or of all modules in a folder.
MODULE_REQUIREMENTS: Mapping[str, frozenset[str]] = {
    "market_index.strategies": frozenset({"hypothesis"}),
    "market_index.stateful": frozenset({"hypothesis"}),
    "market_index.hypothesis_plugin": frozenset({"hypothesis"}),
    "market_index_http.bodies": frozenset({"isal"}),
    "market_index_http.metrics": frozenset({"prometheus_client"}),
    "market_index_feeds.service": frozenset({"httpx"}),
}
MEDIUM_REQUIREMENTS: Mapping[str, frozenset[str]] = {"nats": frozenset({"isal", "nats"})}

# The modules of the domain whose `__all__` the other packages may import.
PUBLIC_MODULES = frozenset(
    {
        "market_index",
        "market_index.wire",
        "market_index.errors",
        "market_index.strategies",
        "market_index.stateful",
    }
)

# The modules and folders of the feeds that are a medium. Lines and recordings are shared by the commands.
MEDIA = frozenset({"nats", "orders", "service", "sqlite"})

# fmt: off
IO_CLOCK_AND_LOGGING = frozenset({
    "asyncio", "concurrent", "fcntl", "http", "io", "logging", "mmap", "multiprocessing",
    "os", "pathlib", "random", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl",
    "subprocess", "tempfile", "time", "urllib",
})
# fmt: on


def siblings(graph: Graph) -> Iterator[str]:
    """A package imports only the siblings that its layer allows."""
    for one in graph:
        importer, imported = package_of(one.importer), package_of(one.imported)
        if imported in SIBLINGS and imported not in SIBLINGS[importer] | {importer}:
            yield str(one)


def requirements(graph: Graph) -> Iterator[str]:
    """A module imports only the standard library, siblings, and the requirements of its package."""
    for one in graph:
        imported = package_of(one.imported)
        if imported and imported not in allowed(one.importer) | sys.stdlib_module_names | SIBLINGS.keys():
            yield str(Import(one.importer, imported))


def allowed(module: str) -> frozenset[str]:
    return (
        REQUIREMENTS[package_of(module)]
        | MODULE_REQUIREMENTS.get(".".join(module.split(".")[:2]), frozenset())
        | MEDIUM_REQUIREMENTS.get(medium_of(module), frozenset())
    )


def public_names(graph: Graph) -> Iterator[str]:
    """Other packages import from the domain only names in the `__all__` of a public module."""
    for one in graph:
        if package_of(one.imported) != "market_index" or package_of(one.importer) == "market_index":
            continue
        exports = graph.exports.get(one.imported, frozenset())
        if one.imported not in PUBLIC_MODULES or (one.name and one.name not in exports):
            yield str(one)


def private_names(graph: Graph) -> Iterator[str]:
    """No private name and no private module is imported across packages."""
    for one in graph:
        if one.is_private and package_of(one.imported) in SIBLINGS.keys() - {package_of(one.importer)}:
            yield str(one)


def media(graph: Graph) -> Iterator[str]:
    """Only `sources` imports media. A medium imports shared modules, but no other medium."""
    for one in graph:
        medium = medium_of(one.imported)
        if medium and one.importer != "market_index_feeds.sources" and medium_of(one.importer) != medium:
            yield str(one)


def medium_of(module: str) -> str:
    """Return the medium that a module of the feeds belongs to, such as nats for `nats.address`; empty for others."""
    package, _, rest = module.partition(".")
    medium = rest.partition(".")[0]
    return medium if package == "market_index_feeds" and medium in MEDIA else ""


def cycles(graph: Graph) -> Iterator[str]:
    """There are no import cycles, including imports in functions or under TYPE_CHECKING."""
    if modules := graph.cycle():
        yield " -> ".join(modules)


def absolute_imports(graph: Graph) -> Iterator[str]:
    """Imports are absolute, because the other rules do not resolve relative names."""
    for one in graph:
        if one.imported.startswith("."):
            yield str(one)


def pure_domain(graph: Graph) -> Iterator[str]:
    """The domain imports no module for I/O, clocks or logging."""
    for one in graph:
        if package_of(one.importer) == "market_index" and package_of(one.imported) in IO_CLOCK_AND_LOGGING:
            violation = str(Import(one.importer, package_of(one.imported)))
            if violation not in PURE_DOMAIN_EXCEPTIONS:
                yield violation


PURE_DOMAIN_EXCEPTIONS = frozenset(
    {
        # A task waits in the event loop that runs it.
        "market_index.live imports asyncio",
    }
)

RULES: tuple[Rule, ...] = (
    siblings,
    requirements,
    public_names,
    private_names,
    media,
    cycles,
    absolute_imports,
    pure_domain,
)
