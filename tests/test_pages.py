"""What README and docs show of `curl` is what the served sample answers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from market_index import LiveIndex
from market_index_feeds import open_feed
from market_index_http import create_app
from tests.service import served

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def shown_answers() -> list[tuple[str, str, str]]:
    """The page, the command and the answer of every `curl` that a page shows."""
    found = []
    for page in PAGES:
        for block in CONSOLE.findall(page.read_text()):
            for step in re.split(r"^\$ ", block, flags=re.MULTILINE):
                command, _, answer = step.partition("\n")
                if command.startswith("curl ") and "…" not in command:
                    found.append((page.name, command, answer.rstrip("\n")))
    return found


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(("page", "command", "answer"), shown_answers())
def test_curl_answers_as_the_page_shows(page: str, command: str, answer: str):
    live = LiveIndex()
    with open_feed(ROOT / "samples" / "order-books.ndjson") as feed, served(create_app(live)) as service:
        feed.start(live)
        assert "127.0.0.1:8000" in command
        here = command.replace("127.0.0.1:8000", f"127.0.0.1:{service.port}")
        done = subprocess.run(["sh", "-c", here], capture_output=True, text=True, check=True, timeout=20)
    expected, cut, _ = answer.partition("...")
    assert done.stdout.startswith(expected) if cut else done.stdout == expected


def test_the_pages_show_some():
    assert {page for page, _, _ in shown_answers()} == {"README.md", "http-api.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_within_the_project_leads_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_target_that_the_readme_names_is_in_the_makefile():
    targets = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"make ([a-z]+)", (ROOT / "README.md").read_text())) <= set(targets)
