"""Mutation testing with mutmut: `make mutants`, or MUTATE='prices wire/decode feed' for some modules.

mutmut changes one expression of a function at a time, and runs the tests that call that function in a fork of a process
that has imported them. Each module is mutated in a copy of the project, with the tests of its own name if there are
some, else with those of its folder. With `--whole`, as in the nightly run, all tests of its package are run. mutmut
cannot mutate properties, constants, and functions with decorators other than classmethod and staticmethod. On a busy
machine, set MARKET_INDEX_TEST_DEADLINE to more seconds than 1.

The report lists the mutants that survive. It is read, not enforced: some mutants are equivalent to the code, and others
change only the text of a message.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Final

from tests.mutants.faults import NOT_COPIED, ROOT

BUILD = ROOT / "build" / "mutants"
TESTS: Final = {
    "market_index": Path("tests/market_index"),
    "market_index_feeds": Path("tests/feeds"),
    "market_index_http": Path("tests/market_index_http"),
    "market_index_cli": Path("tests/market_index_cli"),
}
"""The tests of each package."""

MODULES = [
    one.relative_to(ROOT)
    for package in TESTS
    for one in sorted((ROOT / package).rglob("*.py"))
    if not one.name.startswith("__")
]

# Exit codes of pytest and mutmut in the process of one mutant.
SURVIVED, NO_TESTS = (0,), (5, 33)


def tests_of(module: Path) -> list[str]:
    """Return the files with the tests of a module, or the nearest folder with its tests."""
    package, *folders = module.parent.parts
    nearest = next(one for one in (TESTS[package].joinpath(*folders), TESTS[package]) if (ROOT / one).is_dir())
    files = [one for pattern in ("", "_*") for one in sorted((ROOT / nearest).glob(f"test_{module.stem}{pattern}.py"))]
    return [str(one.relative_to(ROOT)) for one in files] or [str(nearest)]


def run(module: Path, tests: list[str]) -> Path:
    """Test the mutants of a module in a copy of the project, and return the folder of the copy."""
    folder = BUILD / ".".join(module.with_suffix("").parts)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT, folder, ignore=NOT_COPIED)
    settings = {
        "source_paths": [module.parts[0]],
        "only_mutate": [str(module)],
        "also_copy": [one.name for one in folder.iterdir()],
        "pytest_add_cli_args_test_selection": tests,
        "pytest_add_cli_args": ["--hypothesis-profile=mutants"],
        "process_isolation": "forkserver",  # Hypothesis rejects a method that runs twice in a process
        # The timeout is wall clock: (seconds of the tests + 5) * 4. A busy machine must not look like an endless loop.
        "timeout_constant": 5.0,
        "timeout_multiplier": 4.0,
        "use_git_change_detection": False,
    }
    lines = (f"{name} = {json.dumps(value)}" for name, value in settings.items())
    project = (ROOT / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text("\n".join([project, "[tool.mutmut]", *lines, ""]))
    command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", str(os.cpu_count() or 1)]
    with (folder / "mutmut.log").open("w") as log:
        environment = {"MARKET_INDEX_TEST_DEADLINE": "1"} | os.environ
        done = subprocess.run(command, cwd=folder, check=False, stdout=log, stderr=subprocess.STDOUT, env=environment)
    if done.returncode:
        raise SystemExit(f"mutmut failed: {log.name}")
    return folder


def report(module: Path, folder: Path) -> Iterator[str]:
    """Yield the result of a module, and the changes of the mutants that survive."""
    codes = json.loads((folder / "mutants" / f"{module}.meta").read_text())["exit_code_by_key"]
    survivors = [name for name, code in codes.items() if code in SURVIVED]
    yield f"{module}: {len(codes)} mutants, {len(survivors)} survive"
    yield from (f"no test calls {name}" for name, code in codes.items() if code in NO_TESTS)
    from mutmut.mutation.diff_apply import get_diff_for_mutant  # here: only `make mutants` installs it

    with chdir(folder):
        for name in survivors:
            changed = get_diff_for_mutant(name, path=str(module)).splitlines()[2:]
            yield "\n".join([name, *(f"    {line}" for line in changed if line.startswith(("-", "+")))])


def main(names: Sequence[str]) -> int:
    whole, names = "--whole" in names, [name for name in names if name != "--whole"]
    endings = tuple(f"/{name}.py" for name in names)
    modules = [one for one in MODULES if not names or f"/{one}".endswith(endings)]
    if not modules:
        print(f"no module is named {' or '.join(names)}", file=sys.stderr)
        return 2
    os.nice(10)
    for module in modules:
        tests = [str(TESTS[module.parts[0]])] if whole else tests_of(module)
        print(*report(module, run(module, tests)), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
