"""The layer rules of the packages."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

from tests.architecture import rules
from tests.architecture.graph import Graph, package_of
from tests.architecture.rules import PUBLIC_MODULES, RULES, SIBLINGS, Rule

ROOT = Path(__file__).resolve().parents[1]
GRAPH = Graph.of_files(ROOT, SIBLINGS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_packages_follow_the_rule(rule: Rule):
    assert list(rule(GRAPH)) == [], rule.__doc__


BROKEN: dict[Rule, dict[str, str]] = {
    rules.siblings: {"market_index_feeds.a": "def f():\n    import market_index_http.app"},
    rules.requirements: {"market_index_http.a": "from uvicorn import run"},
    rules.public_names: {
        "market_index_feeds.a": "from market_index import wire\nwire.write()\nwire.read()",
        "market_index.wire": "__all__ = ['read']",
    },
    rules.private_names: {"market_index_cli.a": "from market_index_http.app import _routes"},
    rules.media: {"market_index_feeds.nats.watch": "from market_index_feeds.sqlite import SqliteStore"},
    rules.cycles: {
        "market_index.a": "import market_index.b",
        "market_index.b": "def f():\n    from market_index import a",
    },
    rules.absolute_imports: {"market_index.a": "from . import b"},
    rules.pure_domain: {"market_index.a": "from logging import getLogger"},
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_reports_a_violation(rule: Rule):
    assert len(list(rule(Graph.of_sources(BROKEN[rule])))) == 1


def test_the_domain_reads_no_clock():
    """The domain imports `datetime` for values, but never reads the current time."""
    for path in (ROOT / "market_index").rglob("*.py"):
        called = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not called & {"now", "utcnow", "today"}, path


@pytest.mark.parametrize("module", sorted(module for module in PUBLIC_MODULES if GRAPH.exports[module]))
def test_public_names_exist_and_are_listed_once(module: str):
    names = import_module(module).__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(import_module(module), name) for name in names)


def test_the_diagram_of_the_packages_has_the_arrows_of_the_imports():
    imports = {(package_of(one.importer), package_of(one.imported)) for one in GRAPH}
    arrows = {f"{one} to {two}" for one, two in imports if one != two and two in SIBLINGS}
    drawn = (ROOT / "docs" / "packages.svg").read_text().partition('<desc id="description">')[2].partition("</desc>")[0]
    assert {*drawn.split("; ")} == arrows
