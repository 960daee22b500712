"""Runs the examples of docstrings, README and docs as tests.

It is a plugin of pytest (`-p tests.examples`), because a conftest.py of tests does not see files outside that folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from doctest import ELLIPSIS, IGNORE_EXCEPTION_DETAIL
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from sybil import Document, Sybil
from sybil.example import SybilFailure
from sybil.parsers.markdown import PythonCodeBlockParser as FencedPython
from sybil.parsers.rest import DocTestParser

from tests.waiting import WITHOUT_SHRINKING

PACKAGES = ("market_index", "market_index_feeds", "market_index_http", "market_index_cli")

ROOT = Path(__file__).resolve().parents[2]

DOCSTRINGS = Sybil(parsers=[DocTestParser(optionflags=ELLIPSIS)])
PAGES = Sybil(parsers=[FencedPython(doctest_optionflags=ELLIPSIS | IGNORE_EXCEPTION_DETAIL)])

# The pages show how properties are written; the strategies have tests of their own.
settings.register_profile(
    "page",
    max_examples=30,
    stateful_step_count=20,
    derandomize=True,
    deadline=None,
    database=None,
    phases=WITHOUT_SHRINKING,
    suppress_health_check=[HealthCheck.too_slow],
)


class Examples(pytest.Item):
    """The examples of one file, in their order."""

    document: Document

    def runtest(self) -> None:
        profile = settings.get_current_profile_name()
        settings.load_profile("page")
        try:
            for example in self.document.examples():
                # A program with arguments is run by the tests of clients.
                if "sys.argv" not in self.document.text[example.start : example.end]:
                    example.evaluate()
        finally:
            settings.load_profile(profile)

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
