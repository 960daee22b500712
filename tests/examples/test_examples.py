"""The examples of docstrings, README and docs run, and each program of docs/examples is on a page."""

from __future__ import annotations

from doctest import ELLIPSIS, IGNORE_EXCEPTION_DETAIL
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser
from sybil.parsers.rest import DocTestParser

from tests.waiting import WITHOUT_SHRINKING

ROOT = Path(__file__).resolve().parents[2]

BY_SUFFIX = {
    ".md": Sybil(parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS | IGNORE_EXCEPTION_DETAIL)]),
    ".py": Sybil(parsers=[DocTestParser(optionflags=ELLIPSIS)]),
}
FILES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("market_index*/**/*.py"))]
DOCUMENTS = {str(path.relative_to(ROOT)): BY_SUFFIX[path.suffix].parse(path) for path in FILES}

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


@pytest.mark.parametrize("name", [name for name, one in DOCUMENTS.items() if next(iter(one.examples()), None)])
def test_the_examples_of_a_file_run(name: str):
    profile = settings.get_current_profile_name()
    settings.load_profile("page")
    try:
        for example in DOCUMENTS[name].examples():
            # A program with arguments is run by the tests of clients.
            if "sys.argv" not in DOCUMENTS[name].text[example.start : example.end]:
                example.evaluate()
    finally:
        settings.load_profile(profile)


TWINS = {"bot_sseclient.py"}
"""Programs that differ from a shown one only in their HTTP library. tests/market_index_cli/page runs both."""


@pytest.mark.parametrize(
    "name", sorted(path.name for path in ROOT.glob("docs/examples/*.*") if path.suffix in {".py", ".mjs"})
)
def test_a_page_links_to_the_program_and_contains_it(name: str):
    language, comment = ("python", "#") if name.endswith(".py") else ("js", "//")
    block = f"```{language}\n{comment} {name}\n{(ROOT / 'docs' / 'examples' / name).read_text()}```\n"
    pages = [text for page in (ROOT / "docs").glob("*.md") if f"](examples/{name})" in (text := page.read_text())]
    assert pages
    assert name in TWINS or any(block in text for text in pages)
