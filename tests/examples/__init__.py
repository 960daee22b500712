"""Runs the examples of docstrings, README and docs as tests.

It is a plugin of pytest (`-p tests.examples`), because a conftest.py of tests does not see files outside that folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from doctest import ELLIPSIS, IGNORE_EXCEPTION_DETAIL
from pathlib import Path

import pytest
from sybil import Document, Sybil
from sybil.example import SybilFailure
from sybil.parsers.markdown import PythonCodeBlockParser as FencedPython
from sybil.parsers.rest import DocTestParser

PACKAGES = ("market_index", "market_index_feeds", "market_index_http", "market_index_cli")

ROOT = Path(__file__).resolve().parents[2]

DOCSTRINGS = Sybil(parsers=[DocTestParser(optionflags=ELLIPSIS)])
PAGES = Sybil(parsers=[FencedPython(doctest_optionflags=ELLIPSIS | IGNORE_EXCEPTION_DETAIL)])


class Examples(pytest.Item):
    """The examples of one file, in their order."""

    document: Document

    def runtest(self) -> None:
        for example in self.document.examples():
            example.evaluate()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        del style
        return str(excinfo.value) if isinstance(excinfo.value, SybilFailure) else str(excinfo.getrepr(style="short"))

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.name}: {self.name}"


class File(pytest.File):
    """A file with examples; a file without them has no test."""

    sybil: Sybil

    def collect(self) -> Iterator[Examples]:
        document = self.sybil.parse(self.path)
        if next(iter(document.examples()), None) is not None:
            item = Examples.from_parent(self, name="examples")
            item.document = document
            yield item


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> File | None:
    if file_path.suffix == ".md":
        sybil = PAGES
    elif file_path.suffix == ".py" and file_path.relative_to(ROOT).parts[0] in PACKAGES:
        sybil = DOCSTRINGS
    else:
        return None
    file = File.from_parent(parent, path=file_path)
    file.sybil = sybil
    return file
