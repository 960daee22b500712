"""The architecture rules of the packages and the tests. Each rule is also tested with sources that break it."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.architecture import layout, public_api, rules
from tests.architecture.graph import Graph
from tests.architecture.layout import SUBJECTS, TESTED_BY, Tree
from tests.architecture.rules import RULES, SIBLINGS, Rule

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = tuple(package for package in SIBLINGS if (ROOT / package / "__init__.py").exists())
GRAPH = Graph.of_files(ROOT, PACKAGES)

# Violations that exist today, by rule. An entry that no longer occurs fails the test: remove it then.
KNOWN: dict[str, set[str]] = {}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_packages_follow_the_rule(rule: Rule):
    found, known = set(rule(GRAPH)), KNOWN.get(rule.__name__, set())
    assert not found - known, rule.__doc__
    assert not known - found, "stale entries of KNOWN: remove them"


def test_the_domain_reads_no_clock():
    """The domain imports `datetime` for values, but never reads the current time."""
    for path in (ROOT / "market_index").rglob("*.py"):
        called = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not called & {"now", "utcnow", "today"}, path


def test_every_known_violation_has_a_rule():
    assert KNOWN.keys() <= {rule.__name__ for rule in RULES}


def test_the_graph_has_every_module():
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(GRAPH.imports) == len(files)
    assert "market_index.wire" in {one.imported for one in GRAPH.imports["market_index"]}


# Sources that break a rule

BROKEN = [
    (rules.siblings, {"market_index.a": "import market_index_feeds"}, "market_index.a imports market_index_feeds"),
    (
        rules.siblings,
        {"market_index_http.a": "from market_index_feeds import open_feed"},
        "market_index_http.a imports market_index_feeds:open_feed",
    ),
    (
        rules.siblings,
        {"market_index_feeds.a": "def f():\n    import market_index_http.app"},
        "market_index_feeds.a imports market_index_http.app",
    ),
    (
        rules.siblings,
        {"market_index_feeds.a": "import market_index_cli"},
        "market_index_feeds.a imports market_index_cli",
    ),
    (rules.requirements, {"market_index.a": "import hypothesis"}, "market_index.a imports hypothesis"),
    (rules.requirements, {"market_index_feeds.a": "import nats.errors"}, "market_index_feeds.a imports nats"),
    (rules.requirements, {"market_index_http.a": "from uvicorn import run"}, "market_index_http.a imports uvicorn"),
    (rules.requirements, {"market_index_http.a": "import click"}, "market_index_http.a imports click"),
    (rules.requirements, {"market_index_feeds.a": "import starlette"}, "market_index_feeds.a imports starlette"),
    (rules.requirements, {"market_index_cli.a": "import tests.nats"}, "market_index_cli.a imports tests"),
    (
        rules.public_names,
        {"market_index_feeds.a": "from market_index.levels import rows", "market_index.levels": ""},
        "market_index_feeds.a imports market_index.levels:rows",
    ),
    (
        rules.public_names,
        {
            "market_index_feeds.a": "from market_index import wire\nwire.write()\nwire.read()",
            "market_index.wire": "__all__ = ['read']",
        },
        "market_index_feeds.a imports market_index.wire:write",
    ),
    (
        rules.public_names,
        {
            "market_index_http.a": "from market_index import wire as w\nw.encode.text()",
            "market_index.wire": "__all__ = ['read']",
            "market_index.wire.encode": "__all__ = ['text']",
        },
        "market_index_http.a imports market_index.wire.encode",
    ),
    (
        rules.private_names,
        {"market_index_cli.a": "from market_index_http.app import _routes"},
        "market_index_cli.a imports market_index_http.app:_routes",
    ),
    (
        rules.private_names,
        {"market_index_cli.a": "import market_index_feeds._files.lock"},
        "market_index_cli.a imports market_index_feeds._files.lock",
    ),
    (
        rules.media,
        {"market_index_feeds.nats.watch": "from market_index_feeds.sqlite.file import Lock"},
        "market_index_feeds.nats.watch imports market_index_feeds.sqlite.file:Lock",
    ),
    (
        rules.media,
        {"market_index_feeds.relay": "import market_index_feeds.nats"},
        "market_index_feeds.relay imports market_index_feeds.nats",
    ),
    (
        rules.media,
        {"market_index_feeds.orders": "import market_index_feeds.sqlite.file"},
        "market_index_feeds.orders imports market_index_feeds.sqlite.file",
    ),
    (
        rules.cycles,
        {
            "market_index.a": "import market_index.b",
            "market_index.b": "if TYPE_CHECKING:\n    from market_index.c import C",
            "market_index.c": "def f():\n    from market_index import a",
            "market_index.d": "import market_index.a",
        },
        "market_index.a <-> market_index.b <-> market_index.c",
    ),
    (
        rules.cycles,
        {"market_index": "from market_index.a import A", "market_index.a": "from market_index import B"},
        "market_index <-> market_index.a",
    ),
    (rules.absolute_imports, {"market_index.a": "from . import b"}, "market_index.a imports .:b"),
    (rules.pure_domain, {"market_index.a": "from logging import getLogger"}, "market_index.a imports logging"),
    (rules.pure_domain, {"market_index.a": "import os.path"}, "market_index.a imports os"),
]


@pytest.mark.parametrize(("rule", "sources", "violation"), BROKEN)
def test_a_rule_reports_a_violation(rule: Rule, sources: dict[str, str], violation: str):
    assert set(rule(Graph.of_sources(sources))) == {violation}


def test_every_rule_has_sources_that_break_it():
    assert {rule for rule, _, _ in BROKEN} == set(RULES)


ALLOWED = {
    "market_index": "from market_index import wire\n__all__ = ['OrderBook', 'wire']",
    "market_index.wire": "import attrs\n__all__ = ['read']\nfrom market_index._digits import _value",
    "market_index._digits": "import re",
    "market_index.strategies": "from hypothesis import strategies as st\nfrom market_index.wire import read",
    "market_index_feeds.line_source": "import os\nfrom market_index import OrderBook, wire\nwire.read(OrderBook)",
    "market_index_feeds.nats.watch": "import nats\nfrom market_index_feeds import line_source\nline_source.open()",
    "market_index_feeds.nats.address": "import nats.errors\nfrom market_index_feeds.nats import watch",
    "market_index_feeds.sources": "from market_index_feeds.nats import watch",
    "market_index_http.app": "import starlette.routing, anyio\nfrom market_index.wire import read",
    "market_index_cli.main": "import click, uvicorn, market_index_http.app, market_index_feeds.sources",
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_allows_valid_sources(rule: Rule):
    assert list(rule(Graph.of_sources(ALLOWED))) == []


# The tests mirror the packages

TREE = Tree.of_sources(
    {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for folder in (*PACKAGES, "tests")
        for path in (ROOT / folder).rglob("*.py")
    },
    PACKAGES,
)


def test_every_module_has_a_test_file():
    assert list(layout.untested_modules(TREE, TESTED_BY)) == []


def test_every_test_file_is_named_after_a_module():
    assert list(layout.tests_without_module(TREE, SUBJECTS)) == []


def test_every_exception_is_needed():
    assert list(layout.stale_rows(TREE, TESTED_BY, SUBJECTS)) == []


MADE_UP_TREE = Tree.of_sources(
    {
        "market_index/__init__.py": "from market_index.wire import read",
        "market_index/live_index.py": "class LiveIndex:\n    def publish(self): ...",
        "market_index/wire.py": "async def read(): ...",
        "market_index/errors.py": "class Invalid(ValueError): ...",
        "tests/market_index/books.py": "def book(): ...",
        "tests/market_index/test_live_index.py": "",
        "tests/market_index/test_live_index_threads.py": "",
        "tests/market_index/test_index.py": "",
        "tests/market_index/test_errors.py": "",
        "tests/market_index_extra/test_wire.py": "",
        "tests/browser/test_page.py": "",
        "tests/test_pages.py": "",
    },
    ["market_index"],
)


def test_a_module_without_a_test_file_is_reported():
    reported = list(layout.untested_modules(MADE_UP_TREE, {}))
    assert reported == ["market_index/wire.py needs tests/market_index/test_wire.py, or a row in TESTED_BY"]
    assert not list(layout.untested_modules(MADE_UP_TREE, {"market_index/wire.py": ("tests/test_pages.py", "why")}))


def test_a_test_file_without_a_module_is_reported():
    rows = {"tests/market_index/test_errors.py": "why"}
    reported = list(layout.tests_without_module(MADE_UP_TREE, rows))
    assert reported == ["tests/market_index/test_index.py is named after no module, and has no row in SUBJECTS"]


def test_a_stale_exception_is_reported():
    tested_by = {
        "market_index/wire.py": ("tests/test_pages.py", "needed"),
        "market_index/live_index.py": ("tests/test_pages.py", "it has its own file"),
        "market_index/gone.py": ("tests/test_pages.py", "no such module"),
    }
    subjects = dict.fromkeys(["tests/market_index/test_index.py", "tests/market_index/test_live_index.py"], "why")
    assert list(layout.stale_rows(MADE_UP_TREE, tested_by, subjects)) == [
        "TESTED_BY: market_index/live_index.py: tests/test_pages.py",
        "TESTED_BY: market_index/gone.py: tests/test_pages.py",
        "SUBJECTS: tests/market_index/test_live_index.py",
    ]
    missing = {"market_index/wire.py": ("tests/test_gone.py", "no such test")}
    assert list(layout.stale_rows(MADE_UP_TREE, missing, {})) == ["TESTED_BY: market_index/wire.py: tests/test_gone.py"]


# Public names

PUBLIC_MODULES = sorted(
    {*PACKAGES, *rules.PUBLIC_MODULES} & {module for module, exports in GRAPH.exports.items() if exports}
)


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_public_names_exist_and_are_listed_once(module: str):
    names = import_module(module).__all__
    assert len(set(names)) == len(names)
    for name in names:
        getattr(import_module(module), name)


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_type_hints_of_public_names_can_be_read(module: str):
    assert list(public_api.without_hints(import_module(module))) == []


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_public_names_have_docstrings(module: str):
    assert list(public_api.without_docstring(import_module(module))) == []


def test_every_package_with_public_names_is_checked():
    assert {"market_index", "market_index_feeds", "market_index_http"} <= set(PUBLIC_MODULES)


def made_up(source: str) -> ModuleType:
    module = ModuleType("made_up")
    exec(source, module.__dict__)
    return module


MADE_UP = """
from __future__ import annotations

__all__ = ["Book", "read"]


class Book:
    @property
    def side(self) -> Side:
        return None

    @classmethod
    def empty(cls) -> Book:
        "Documented."


def read(text: str) -> Side: ...
"""


def test_a_type_that_only_type_checkers_can_resolve_is_reported():
    reported = list(public_api.without_hints(made_up(MADE_UP)))
    assert reported == [
        "made_up.Book.side: name 'Side' is not defined",
        "made_up.read: name 'Side' is not defined",
    ]


def test_a_missing_docstring_is_reported():
    reported = list(public_api.without_docstring(made_up(MADE_UP)))
    assert reported == ["made_up.Book", "made_up.Book.side", "made_up.read"]
