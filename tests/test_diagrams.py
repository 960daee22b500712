"""The diagrams of the docs are those of their texts, and of the imports of the packages."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests import diagrams
from tests.architecture.graph import Graph

TEXT = "The packages\n\nbase: Values.\nleft: Reads.\nright: Serves.\ntop: The command."

SOURCES = {
    "base": "import json, attrs",
    "left": "import base",
    "right": "import base.values",
    "top": "import left, right",
    "top.late": "def run():\n    import base, uvicorn",
}


def packages(sources: dict[str, str]) -> diagrams.Diagram:
    return diagrams.of_packages(TEXT, Graph.of_sources(sources), {"base": ["wire"], "left": [], "right": [], "top": []})


@pytest.mark.parametrize(("path", "drawing"), diagrams.drawings().items(), ids=lambda one: getattr(one, "name", ""))
def test_the_drawing_is_that_of_its_text(path: Path, drawing: str):
    assert path.read_text() == drawing, "to draw it: python -m tests.diagrams"


@pytest.mark.parametrize("drawing", diagrams.drawings().values())
def test_a_drawing_has_both_color_schemes_and_a_text_for_screen_readers(drawing: str):
    tree = ET.fromstring(drawing)
    assert "prefers-color-scheme: dark" in drawing
    assert {child.tag.rpartition("}")[2] for child in tree if child.text} >= {"title", "desc"}


def test_a_package_is_above_those_that_it_imports():
    drawn = packages(SOURCES)
    assert [[box.name for box in row] for row in drawn.rows] == [["top"], ["left", "right"], ["base"]]
    assert list(drawn.arrows) == [
        ("left", "base"), ("right", "base"), ("top", "base"), ("top", "left"), ("top", "right"),
    ]  # fmt: skip


def test_a_package_names_its_folders_and_requirements():
    drawn = packages(SOURCES)
    assert drawn.rows[-1][0].details == ("Values.", "Folders: wire", "Imports: attrs")
    assert drawn.rows[0][0].details == ("The command.", "Imports: uvicorn")


def test_a_new_import_changes_the_drawing():
    assert diagrams.svg(packages(SOURCES)) != diagrams.svg(packages(SOURCES | {"left.more": "import right"}))


def test_a_cycle_of_packages_is_rejected():
    with pytest.raises(ValueError, match="must not import each other in a cycle, got base > left > base"):
        packages(SOURCES | {"base": "import left"})


def test_an_arrow_that_does_not_lead_down_is_rejected():
    with pytest.raises(ValueError, match="an arrow must lead to a lower row, got b > a"):
        diagrams.svg(diagrams.parsed("Title\n\na: A\n\nb*2: B | more\n-\n\nb > a"))
