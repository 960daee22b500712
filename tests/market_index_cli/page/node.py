"""Runs the JavaScript modules of the page with node, on inputs from Python."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.page import PAGE
from tests.waiting import DEADLINE_SECONDS

READ = """
import { readFileSync } from "node:fs";
const given = JSON.parse(readFileSync(0, "utf8"));
"""


def run(folder: Path, program: str, given: object = None, *arguments: str) -> list[Any]:
    """Run a program beside the modules, which it imports as `./name.mjs`, and return the JSON of each line it prints.

    `given` is the variable of the program with this name.
    """
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the modules of the page are not tested")
    for file in PAGE.glob("*.js"):
        (folder / f"{file.stem}.mjs").write_text(re.sub(r'"(\./\w+)\.js"', r'"\1.mjs"', file.read_text()))
    (folder / "program.mjs").write_text(READ + program)
    done = subprocess.run(
        [node, folder / "program.mjs", *arguments],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
