"""The import graph of Python modules, read from their syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from attrs import field, frozen


@frozen(order=True)
class Import:
    """An import of a module, or of a name in it, by another module."""

    importer: str
    imported: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.importer} imports {self.target}"

    @property
    def target(self) -> str:
        return f"{self.imported}:{self.name}" if self.name else self.imported

    @property
    def is_private(self) -> bool:
        return any(is_private(part) for part in (*self.imported.split("."), self.name))


@frozen
class Graph:
    """The imports and the `__all__` of each module, by module name."""

    imports: Mapping[str, frozenset[Import]]
    exports: Mapping[str, frozenset[str]] = field(factory=dict)

    @classmethod
    def of_sources(cls, sources: Mapping[str, str]) -> Graph:
        trees = {module: ast.parse(source) for module, source in sources.items()}
        return cls(
            {module: frozenset(imports(module, tree, sources.keys())) for module, tree in trees.items()},
            {module: exported(tree) for module, tree in trees.items()},
        )

    @classmethod
    def of_files(cls, root: Path, packages: Iterable[str]) -> Graph:
        files = [path for package in packages for path in sorted((root / package).rglob("*.py"))]
        return cls.of_sources({module_name(path.relative_to(root)): path.read_text() for path in files})

    def __iter__(self) -> Iterator[Import]:
        for found in self.imports.values():
            yield from sorted(found)

    def cycle(self) -> list[str]:
        """Return the modules of one import cycle; empty if there is none."""
        try:
            TopologicalSorter(
                {module: {one.imported for one in found} for module, found in self.imports.items()}
            ).prepare()
        except CycleError as error:
            return list(error.args[1])
        return []


def package_of(module: str) -> str:
    return module.partition(".")[0]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def exported(tree: ast.Module) -> frozenset[str]:
    """Return the names in the `__all__` of a module."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return frozenset(ast.literal_eval(node.value))
    return frozenset()


def imports(module: str, tree: ast.Module, modules: Iterable[str]) -> Iterator[Import]:
    """Yield all imports of a module: at the top, in functions, under TYPE_CHECKING, and attributes of modules."""
    known = set(modules)
    bound: dict[str, str] = {}  # name in this module -> module
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name] = alias.name
                yield Import(module, alias.name)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            for alias in node.names:
                submodule = f"{source}.{alias.name}"
                if submodule in known:
                    bound[alias.asname or alias.name] = submodule
                    yield Import(module, submodule)
                else:
                    yield Import(module, source, alias.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (imported := bound.get(ast.unparse(node.value))):
            submodule = f"{imported}.{node.attr}"
            yield Import(module, submodule) if submodule in known else Import(module, imported, node.attr)
