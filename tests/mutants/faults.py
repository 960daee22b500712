"""Seeded faults: `make seeded`, or FAULT='cip14 …' for some, or FAULT=--whole for the whole quick suite.

Each file `seeded/*.patch` breaks one promise. Its first line names the test files and folders that must notice, as
`Tests: …`. At least one of their files must turn red, because each promise is tested; and at most two, because a
behaviour has one home. With `--whole`, as in the nightly run, each fault is tested by the whole quick suite, so that a
rule which is tested twice is seen. That takes hours, and pages of the docs may turn red, too: they do not count.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PATCHES: Final = Path(__file__).with_name("seeded")
MOST_RED_FILES: Final = 2
NOT_COPIED: Final = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.egg-info")


def tests_of(patch: Path) -> list[str]:
    """Return the files and folders that the first line of a patch names."""
    return patch.read_text().partition("\n")[0].removeprefix("Tests: ").split()


def tested(patch: Path, copy: Path, *, whole: bool) -> tuple[bool, str]:
    """Apply a fault to a copy of the project, and return whether one or two test files fail there, and which."""
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
    # With a fault, an event may never come.
    variables = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "MARKET_INDEX_TEST_DEADLINE": "10"}

    def run(*command: str) -> tuple[int, str]:
        done = subprocess.run(
            command, cwd=copy, env=os.environ | variables, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    failed, output = run("patch", "-p1", "--no-backup-if-mismatch", "-i", str(patch))
    if failed:
        return False, f"it does not apply:\n{output}"
    options = ["-q", "-rfE", "--tb=no", "-n", "2", "--hypothesis-profile=mutants"]
    options += ["-o", "faulthandler_timeout=60"]  # a test that waits for ever ends its worker, and is red
    code, output = run(sys.executable, "-m", "pytest", *options, *([] if whole else tests_of(patch)))
    if code not in (0, 1):
        return False, f"pytest failed:\n{output}"
    red = sorted({*re.findall(r"^(?:FAILED|ERROR) (tests/[^:\s]+)", output, re.MULTILINE)})
    return 1 <= len(red) <= MOST_RED_FILES, f"{', '.join(red) or 'no file'} red"


def main(names: Sequence[str]) -> int:
    whole, names = "--whole" in names, [name for name in names if name != "--whole"]
    patches = [one for one in sorted(PATCHES.glob("*.patch")) if not names or one.stem in names]
    if len(patches) < len(names) or not patches:
        print(f"the faults are {', '.join(sorted(one.stem for one in PATCHES.glob('*.patch')))}", file=sys.stderr)
        return 2
    results = []
    for patch in patches:
        with tempfile.TemporaryDirectory() as folder:
            is_right, found = tested(patch, Path(folder, "copy"), whole=whole)
        results.append(is_right)
        print(f"{'ok ' if is_right else 'BAD'} {patch.stem}: {found}", flush=True)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
