"""Mutation testing with mutmut: `make mutants`, or MUTATE='prices wire/decode' for some modules.

mutmut changes one expression of a function at a time, and runs the tests that call that function in a fork of a process
that has imported them. Each module is mutated in a copy of the project, and only its tests in `TESTS` run. mutmut
cannot mutate properties, constants, and functions with decorators other than classmethod and staticmethod. On a
busy machine, set MARKET_INDEX_TEST_DEADLINE to more seconds than 1.

The report lists the mutants that survive. It is read, not enforced: some mutants are equivalent to the code, and others
change only the text of a message.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "mutants"
COPIED = ("market_index", "market_index_feeds", "market_index_http", "market_index_cli", "tests")

# The folders of tests that have another name than that of the module.
FOLDERS: Final = {"market_index_feeds/checking": "feeds", "market_index_feeds/orders": "feeds"}

# The modules that are mutated, and the files of their tests.
# fmt: off
TESTS: Final[Mapping[str, Sequence[str]]] = {
    f"{module}.py": [f"tests/{FOLDERS.get(module, module.rpartition('/')[0])}/test_{test}.py" for test in tests]
    for module, tests in {
        "market_index/assets": ["assets"],
        "market_index/sorted_map": ["sorted_map", "index", "levels"],
        "market_index/contract/bodies": ["check"],
        "market_index/contract/probes": ["check"],
        "market_index/depth": ["depth"],
        "market_index/cip14": ["cip14"],
        "market_index/cip67": ["cip67"],
        "market_index/display/notebook": ["notebook"],
        "market_index/display/tokens": ["tokens"],
        "market_index/errors": ["errors", "assets"],
        "market_index/fills": ["fills"],
        "market_index/freshness": ["freshness"],
        "market_index/index": ["index", "values", "freshness"],
        "market_index/levels": ["levels", "order_book", "order_book_changes", "values"],
        "market_index/live": ["live"],
        "market_index/order_book": ["order_book", "order_book_changes", "depth", "fills", "values"],
        "market_index/orders": ["orders", "values"],
        "market_index/pairs": ["pairs", "order_book"],
        "market_index/prices": ["prices"],
        "market_index/resting_orders": ["resting_orders", "values"],
        "market_index/wire/decode": ["decode"],
        "market_index/wire/encode": ["encode", "decode"],
        "market_index/wire/json_value": ["decode"],
        "market_index_feeds/checking": ["checking"],
        "market_index_feeds/orders": ["orders", "order_events", "checking"],
        "market_index_http/responses": ["bodies", "contract"],
    }.items()
}
# fmt: on

# Exit codes of pytest and mutmut in the process of one mutant.
SURVIVED, NO_TESTS = (0,), (5, 33)


def run(module: str, processes: int) -> Path:
    """Test the mutants of a module in a copy of the project, and return the folder of the copy."""
    folder = BUILD / module.removesuffix(".py").replace("/", ".")
    shutil.rmtree(folder, ignore_errors=True)
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    settings = {
        "source_paths": [module.partition("/")[0]],
        "only_mutate": [module],
        "also_copy": COPIED,
        "pytest_add_cli_args_test_selection": TESTS[module],
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
    command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", str(processes)]
    with (folder / "mutmut.log").open("w") as log:
        environment = {"MARKET_INDEX_TEST_DEADLINE": "1"} | os.environ
        done = subprocess.run(command, cwd=folder, check=False, stdout=log, stderr=subprocess.STDOUT, env=environment)
    if done.returncode:
        raise SystemExit(f"mutmut failed: {log.name}")
    return folder


def report(module: str, folder: Path) -> Iterator[str]:
    """Yield the result of a module, and the changes of the mutants that survive."""
    codes = json.loads((folder / "mutants" / f"{module}.meta").read_text())["exit_code_by_key"]
    survivors = [name for name, code in codes.items() if code in SURVIVED]
    yield f"{module}: {len(codes)} mutants, {len(survivors)} survive"
    yield from (f"no test calls {name}" for name, code in codes.items() if code in NO_TESTS)
    from mutmut.mutation.diff_apply import get_diff_for_mutant  # here: only `make mutants` installs it

    with chdir(folder):
        for name in survivors:
            changed = get_diff_for_mutant(name, path=module).splitlines()[2:]
            yield "\n".join([name, *(f"    {line}" for line in changed if line.startswith(("-", "+")))])


def main(names: Sequence[str]) -> int:
    modules = [
        one for one in TESTS if not names or f"/{one.removesuffix('.py')}".endswith(tuple(f"/{n}" for n in names))
    ]
    if not modules:
        print(f"no module is named {' or '.join(names)}", file=sys.stderr)
        return 2
    os.nice(10)
    for module in modules:
        print(*report(module, run(module, os.cpu_count() or 1)), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
