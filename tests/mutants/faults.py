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


def red_files(patch: Path, copy: Path, *, whole: bool) -> set[str]:
    """Apply a fault to a copy of the project, and return the test files that fail there."""
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
    done = subprocess.run(
        ["patch", "-p1", "-F0", "--no-backup-if-mismatch", "-i", patch],
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{patch.name} does not apply:\n{done.stdout}{done.stderr}")
    tests = [] if whole else patch.read_text().partition("\n")[0].removeprefix("Tests: ").split()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "-n", "2", "--hypothesis-profile=mutants", *tests],
        cwd=copy,
        # With a fault, an event may never come.
        env=os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "MARKET_INDEX_TEST_DEADLINE": "10"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{patch.name}: pytest failed:\n{done.stdout}{done.stderr}")
    return set(re.findall(r"^(?:FAILED|ERROR) (tests/[^:\s]+)", done.stdout, re.MULTILINE))


def main(names: Sequence[str]) -> int:
    whole, names = "--whole" in names, [name for name in names if name != "--whole"]
    patches = [one for one in sorted(PATCHES.glob("*.patch")) if not names or one.stem in names]
    if len(patches) < len(names) or not patches:
        print(f"the faults are {', '.join(sorted(one.stem for one in PATCHES.glob('*.patch')))}", file=sys.stderr)
        return 2
    is_failed = False
    for patch in patches:
        with tempfile.TemporaryDirectory() as folder:
            red = red_files(patch, Path(folder, "copy"), whole=whole)
        is_right = 1 <= len(red) <= MOST_RED_FILES
        is_failed |= not is_right
        print(f"{'ok ' if is_right else 'BAD'} {patch.stem}: {', '.join(sorted(red)) or 'no file'} red", flush=True)
    return int(is_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
