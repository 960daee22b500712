"""The folder docs/examples: each program is on a page and in the README, and the one to copy needs little."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path for path in (ROOT / "docs" / "examples").iterdir() if path.suffix in {".py", ".mjs"})
KUPO = ROOT / "docs" / "examples" / "kupo_to_orders.py"

every_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)


@every_example
def test_the_readme_shows_the_example(path: Path):
    assert f"](docs/examples/{path.name})" in (ROOT / "README.md").read_text()


@every_example
def test_a_page_links_to_the_example_and_contains_it(path: Path):
    """The program of docs/ledger.md is too long for its page. The tests of the pages run the other ones."""
    language, comment = ("python", "#") if path.suffix == ".py" else ("js", "//")
    block = f"```{language}\n{comment} {path.name}\n{path.read_text()}```\n"
    pages = [page for page in (ROOT / "docs").glob("*.md") if f"](examples/{path.name})" in page.read_text()]
    assert pages
    assert path == KUPO or any(block in page.read_text() for page in pages)


def test_the_program_for_kupo_is_short_and_needs_only_cbor2():
    text = KUPO.read_text()
    assert len(text.splitlines()) <= 300
    imported = {name.partition(".")[0] for name in re.findall(r"^(?:import|from) ([\w.]+)", text, re.MULTILINE)}
    assert imported - sys.stdlib_module_names == {"cbor2"}
