"""The types of the public API, as mypy and pyright see them.

The files in `uses` are checked and never run. A line that must be rejected names the errors of both checkers:
`# error: mypy[arg-type] pyright[reportArgumentType]`. Every other line must be accepted.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
USES = sorted((HERE / "uses").glob("*.py"))
PACKAGES = ("market_index", "market_index_feeds", "market_index_http")
"""The packages that programs import. The command has no Python API."""

BIN = Path(sys.executable).parent

Error = tuple[str, int, str]
"""The file, the line and the rule."""


def output_of(checker: str, *arguments: object) -> str:
    """Return what a checker writes."""
    # `--verifytypes` uses the packages of the first Python of the path.
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [BIN / checker, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    assert done.returncode in {0, 1}, done.stderr or done.stdout
    return done.stdout


def expected(checker: str) -> set[Error]:
    return {
        (file.name, number, rule)
        for file in USES
        for number, line in enumerate(file.read_text().splitlines(), 1)
        for rules in re.findall(rf"# error: .*\b{checker}\[(.*?)\]", line)
        for rule in rules.split(", ")
    }


def rejected_by_mypy(*files: Path) -> Iterator[Error]:
    for line in output_of("mypy", "--output=json", "--cache-dir=.mypy_cache/uses", *files).splitlines():
        error = json.loads(line)
        if error["severity"] == "error":
            yield Path(error["file"]).name, error["line"], error["code"]


def rejected_by_pyright() -> Iterator[Error]:
    for error in json.loads(output_of("pyright", "--outputjson", "-p", HERE))["generalDiagnostics"]:
        yield Path(error["file"]).name, error["range"]["start"]["line"] + 1, error["rule"]


def test_mypy_rejects_the_incorrect_uses_alone():
    assert set(rejected_by_mypy(*USES)) == expected("mypy")


def test_pyright_rejects_the_incorrect_uses_alone():
    assert set(rejected_by_pyright()) == expected("pyright")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_a_complete_type(package: str):
    report = json.loads(output_of("pyright", "--outputjson", "--ignoreexternal", "--verifytypes", package))
    assert report["typeCompleteness"].get("pyTypedPath") == str(ROOT / package / "py.typed")
    incomplete = [symbol["name"] for symbol in report["typeCompleteness"]["symbols"] if not symbol["isTypeKnown"]]
    assert incomplete == []
    assert report["typeCompleteness"]["completenessScore"] == 1
