"""Runs the examples of docstrings, README and docs as tests."""

from __future__ import annotations

from doctest import ELLIPSIS, IGNORE_EXCEPTION_DETAIL

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser as FencedPython
from sybil.parsers.rest import DocTestParser

PACKAGES = ("market_index", "market_index_feeds", "market_index_http", "market_index_cli")

docstrings = Sybil(
    parsers=[DocTestParser(optionflags=ELLIPSIS)], patterns=[f"{package}/**/*.py" for package in PACKAGES]
)
pages = Sybil(
    parsers=[FencedPython(doctest_optionflags=ELLIPSIS | IGNORE_EXCEPTION_DETAIL)],
    patterns=["README.md", "docs/*.md"],
)

pytest_collect_file = (docstrings + pages).pytest()
