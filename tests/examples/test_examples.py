"""The folder docs/examples: each program is on a page."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path for path in (ROOT / "docs" / "examples").iterdir() if path.suffix in {".py", ".mjs"})

TWINS = {"bot_sseclient.py"}
"""Programs that differ from a shown one only in their HTTP library. tests/market_index_cli/page runs both."""

every_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)


@every_example
def test_a_page_links_to_the_example_and_contains_it(path: Path):
    """The tests of the pages run it."""
    language, comment = ("python", "#") if path.suffix == ".py" else ("js", "//")
    block = f"```{language}\n{comment} {path.name}\n{path.read_text()}```\n"
    pages = [page for page in (ROOT / "docs").glob("*.md") if f"](examples/{path.name})" in page.read_text()]
    assert pages
    assert path.name in TWINS or any(block in page.read_text() for page in pages)
