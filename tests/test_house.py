"""The house: which module may import which, and what each package needs to be imported."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("market_index", "market_index_feeds", "market_index_http", "market_index_cli")

# What each module may import of the project, beside what those may import. The domain runs downhill.
MAY_IMPORT = {
    "market_index.errors": set(),
    "market_index.fingerprints": set(),
    "market_index.asset_names": set(),
    "market_index.assets": {"market_index.errors", "market_index.fingerprints", "market_index.asset_names"},
    "market_index.prices": {"market_index.errors"},
    "market_index.pairs": {"market_index.assets", "market_index.prices"},
    "market_index.exact": set(),
    "market_index.depth": {"market_index.exact", "market_index.levels"},
    "market_index.fills": {"market_index.depth"},
    "market_index.levels": {"market_index.prices"},
    "market_index.sorted_chunks": set(),
    "market_index.ladder": {"market_index.levels", "market_index.sorted_chunks"},
    "market_index.order_book": {"market_index.pairs", "market_index.ladder", "market_index.fills"},
    "market_index.index": {"market_index.order_book", "market_index.sorted_chunks"},
    "market_index.live": {"market_index.index"},
    "market_index.wire": {"market_index.order_book"},
    "market_index.strategies": {"market_index.live"},
    "market_index": {"market_index.live", "market_index.wire"},
    "market_index.hypothesis_plugin": {"market_index"},
    "market_index_feeds.opened": {"market_index"},
    "market_index_feeds.feed": {"market_index_feeds.opened"},
    "market_index_feeds.ndjson": {"market_index_feeds.feed"},
    "market_index_feeds.service": {"market_index_feeds.feed"},
    "market_index_feeds.store": {"market_index_feeds.opened"},
    "market_index_feeds.sqlite_file": set(),
    "market_index_feeds.sqlite": {
        "market_index_feeds.feed",
        "market_index_feeds.store",
        "market_index_feeds.sqlite_file",
    },
    "market_index_feeds.background": set(),
    "market_index_feeds.pauses": set(),
    "market_index_feeds.relay": {"market_index_feeds.feed", "market_index_feeds.store", "market_index_feeds.pauses"},
    "market_index_feeds.nats_records": {"market_index"},
    "market_index_feeds.nats_address": {"market_index_feeds.opened"},
    "market_index_feeds.nats_bucket": {"market_index_feeds.nats_address"},
    "market_index_feeds.nats": {
        "market_index_feeds.background",
        "market_index_feeds.feed",
        "market_index_feeds.pauses",
        "market_index_feeds.store",
        "market_index_feeds.nats_bucket",
        "market_index_feeds.nats_records",
    },
    "market_index_feeds.sources": {
        "market_index_feeds.nats",
        "market_index_feeds.ndjson",
        "market_index_feeds.service",
        "market_index_feeds.sqlite",
    },
    "market_index_feeds": {"market_index_feeds.relay", "market_index_feeds.sources"},
    "market_index_http.bodies": {"market_index"},
    "market_index_http.routes": {"market_index_http.bodies"},
    "market_index_http.app": {"market_index_http.routes"},
    "market_index_http.operations": set(),
    "market_index_http.operations.health": {"market_index_http.routes"},
    "market_index_http.operations.openapi": {"market_index_http.routes"},
    "market_index_http": {
        "market_index_http.app",
        "market_index_http.operations.health",
        "market_index_http.operations.openapi",
    },
    "market_index_cli": set(),
    "market_index_cli.signals": set(),
    "market_index_cli.terminal": {"market_index"},
    "market_index_cli.errors": {"market_index_feeds"},
    "market_index_cli.console": {"market_index_feeds"},
    "market_index_cli.page": set(),
    "market_index_cli.page.routes": {"market_index_http"},
    "market_index_cli.server": set(),
    "market_index_cli.server.origins": {"market_index"},
    "market_index_cli.server.cross_origin": {"market_index"},
    "market_index_cli.server.http_server": {"market_index"},
    "market_index_cli.server.workers": {"market_index_cli.signals"},
    "market_index_cli.server.serving": {
        "market_index_cli.console",
        "market_index_cli.errors",
        "market_index_cli.page.routes",
        "market_index_cli.server.cross_origin",
        "market_index_cli.server.http_server",
        "market_index_cli.server.workers",
    },
    "market_index_cli.options": {"market_index_cli.server.origins"},
    "market_index_cli.publish": {"market_index_cli.console", "market_index_cli.errors", "market_index_cli.options"},
    "market_index_cli.relay": {
        "market_index_cli.console",
        "market_index_cli.errors",
        "market_index_cli.options",
        "market_index_cli.signals",
    },
    "market_index_cli.retract": {"market_index_cli.errors", "market_index_cli.options"},
    "market_index_cli.show": {
        "market_index_cli.console",
        "market_index_cli.errors",
        "market_index_cli.options",
        "market_index_cli.terminal",
    },
    "market_index_cli.serve": {"market_index_cli.options", "market_index_cli.server.serving"},
    "market_index_cli.main": {
        "market_index_cli.publish",
        "market_index_cli.relay",
        "market_index_cli.retract",
        "market_index_cli.serve",
        "market_index_cli.show",
    },
    "market_index_cli.__main__": {"market_index_cli.main"},
}


def modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def reachable(module: str) -> set[str]:
    """The module, and all that it may import directly or through another."""
    found = {module}
    for below in MAY_IMPORT[module]:
        found |= reachable(below)
    return found


def imported(module: str, path: Path) -> set[str]:
    """Every module that `path` names in an import statement, except those for type checkers alone."""
    names: set[str] = set()
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & MAY_IMPORT.keys()
            names |= submodules or {str(node.module)}
    return names


def test_every_module_has_its_place_in_the_house():
    assert modules().keys() == MAY_IMPORT.keys()


@pytest.mark.parametrize("module", sorted(MAY_IMPORT))
def test_imports_run_downhill(module: str):
    own = {name for name in imported(module, modules()[module]) if name.split(".")[0] in PACKAGES}
    assert own <= reachable(module) - {module}


@pytest.mark.parametrize("module", sorted(name for name in modules() if name.split(".")[0] == "market_index"))
def test_the_domain_knows_no_input_or_output_no_clock_and_no_log(module: str):
    outside = {
        "logging",
        "os",
        "io",
        "pathlib",
        "socket",
        "time",
        "datetime",
        "asyncio",
        "random",
        "subprocess",
    }
    assert not imported(module, modules()[module]) & outside


ALONE = """
import sys, sysconfig, importlib.abc
allowed = set({allowed!r})
class Door(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in allowed or top in sys.stdlib_module_names or top.startswith("_"):
            return None
        raise ModuleNotFoundError(f"{{name}} stays outside", name=name)
sys.meta_path.insert(0, Door())
sys.path.insert(0, {root!r})
import {module}
"""


def import_alone(module: str, *allowed: str) -> subprocess.CompletedProcess[str]:
    script = ALONE.format(allowed=[*PACKAGES, *allowed], root=str(ROOT), module=module)
    return subprocess.run([sys.executable, "-Ic", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["market_index", "market_index_feeds", "market_index_feeds.sqlite"])
def test_domain_and_feeds_need_attrs_and_cattrs_alone(module: str):
    done = import_alone(module, "attr", "attrs", "cattr", "cattrs", "typing_extensions")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_adapter_says_which_extra_it_wants():
    done = import_alone("market_index_http", "attr", "attrs", "cattr", "cattrs", "typing_extensions")
    assert done.returncode == 1
    assert "pip install 'market-index[http]'" in done.stderr.splitlines()[-1]


def test_every_public_name_is_there_and_told_of():
    import market_index

    for name in market_index.__all__:
        assert getattr(market_index, name).__doc__, name
    assert sorted(market_index.__all__, key=str.casefold) == sorted(set(market_index.__all__), key=str.casefold)


def test_one_module_alone_knows_the_client_of_nats():
    knowing = {
        module
        for module, path in modules().items()
        if any(name.split(".")[0] == "nats" for name in imported(module, path))
    }
    assert knowing == {"market_index_feeds.nats_bucket"}
