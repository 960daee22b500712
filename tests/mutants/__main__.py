"""Mutation testing with mutmut: `make mutants`, or MUTATE='prices wire/decode' for some modules.

mutmut changes one expression of a function at a time, and runs the tests that call that function in a fork of a process
that has imported them. Most mutants take a tenth of a second. Each module is mutated in a copy of the project, and only
its own tests run. mutmut cannot mutate properties, constants, and functions with decorators other than classmethod and
staticmethod.

A survivor needs a test, or a verdict in verdicts.toml with the reason why no test can fail. A verdict applies to one
mutant, or to all mutants with one replacement.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import chdir
from pathlib import Path

from attrs import frozen

from tests.architecture.layout import modules_of

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "mutants"
VERDICTS = Path(__file__).with_name("verdicts.toml")
COPIED = ("market_index", "market_index_feeds", "market_index_http", "market_index_cli", "tests")

# Not mutated by default: the tests of all other modules test these, and broken indexers test `stateful`.
SKIPPED = frozenset(
    {
        "market_index/__init__.py",
        *(path.relative_to(ROOT).as_posix() for path in (ROOT / "market_index" / "strategies").glob("*.py")),
        "market_index/stateful.py",
        "market_index/hypothesis_plugin.py",
        "market_index/wire/internal.py",
    }
)

# Tests of a module in files of other modules.
MORE_TESTS: Mapping[str, Sequence[str]] = {
    "market_index/chunked.py": ["tests/market_index/test_index.py"],
    "market_index/errors.py": ["tests/market_index/test_assets.py"],
    "market_index/levels.py": [
        "tests/market_index/test_order_book.py",
        "tests/market_index/test_order_book_changes.py",
        "tests/market_index/test_values.py",
    ],
    "market_index/index.py": ["tests/market_index/test_values.py"],
    "market_index/order_book.py": [
        "tests/market_index/test_depth.py",
        "tests/market_index/test_fills.py",
        "tests/market_index/test_values.py",
    ],
    "market_index/orders.py": ["tests/market_index/test_values.py"],
    "market_index/resting_orders.py": ["tests/market_index/test_values.py"],
    "market_index/wire/encode.py": ["tests/market_index/test_levels.py"],
    "market_index/wire/json_value.py": [
        "tests/market_index/wire/test_decode.py",
        "tests/market_index/wire/test_decode_rejections.py",
    ],
}

# Exit codes of pytest and mutmut in the process of one mutant.
SURVIVED, NO_TESTS = (0,), (5, 33)


@frozen
class Mutant:
    """One changed expression: the source lines before and after the change."""

    module: str
    function: str
    old: str
    new: str

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.module}: {self.function}",
                *(f"    - {line}" for line in self.old.splitlines()),
                *(f"    + {line}" for line in self.new.splitlines()),
            ]
        )


def mutable_modules() -> list[str]:
    """Return the modules of the domain, and the module `bodies` of the HTTP adapter."""
    domain = (path.relative_to(ROOT).as_posix() for path in (ROOT / "market_index").rglob("*.py"))
    modules = (path for path in domain if not path.endswith("__init__.py") and path not in SKIPPED)
    return [*sorted(modules), "market_index_http/bodies.py"]


def own_tests(module: str) -> list[str]:
    """Return the module's own test files, and those of MORE_TESTS."""
    own = (path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tests").glob("market_index*/**/test_*.py")))
    return [path for path in own if next(iter(existing(path)), None) == module] + [*MORE_TESTS.get(module, ())]


def existing(test: str) -> Iterator[str]:
    """Yield the modules that a test file is named after, the longest name first."""
    return (module for module in modules_of(test) if (ROOT / module).exists())


def run(module: str, processes: int) -> Path:
    """Test the mutants of a module in a copy of the project, and return the folder of the copy."""
    folder = BUILD / module.removesuffix(".py").replace("/", ".")
    shutil.rmtree(folder, ignore_errors=True)
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "conftest.py", folder)
    settings = {
        "source_paths": [module.partition("/")[0]],
        "only_mutate": [module],
        "also_copy": [*COPIED, "conftest.py"],
        "pytest_add_cli_args_test_selection": own_tests(module),
        "pytest_add_cli_args": ["--hypothesis-profile=mutants"],
        "process_isolation": "forkserver",  # Hypothesis rejects a method that runs twice in a process
        # The timeout is wall clock: (seconds of the tests + 20) * 2. A busy machine must not look like an endless loop.
        "timeout_constant": 20.0,
        "timeout_multiplier": 4.0,
        "use_git_change_detection": False,
    }
    lines = (f"{name} = {json.dumps(value)}" for name, value in settings.items())
    project = (ROOT / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text("\n".join([project, "[tool.mutmut]", *lines, ""]))
    command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", str(processes)]
    with (folder / "mutmut.log").open("w") as log:
        done = subprocess.run(command, cwd=folder, check=False, stdout=log, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SystemExit(f"mutmut failed: {log.name}")
    return folder


def results(folder: Path, module: str) -> Mapping[str, int | None]:
    """Return the exit code of each mutant, by its name."""
    codes: Mapping[str, int | None] = json.loads((folder / "mutants" / f"{module}.meta").read_text())[
        "exit_code_by_key"
    ]
    return codes


def mutant(folder: Path, module: str, name: str) -> Mutant:
    """Return a mutant, read from the diff that mutmut prints."""
    function = name.rpartition(".")[2].partition("__mutmut")[0].removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
    from mutmut.mutation.diff_apply import get_diff_for_mutant  # here: only `make mutants` installs it

    with chdir(folder):
        lines = get_diff_for_mutant(name, path=module).splitlines()[2:]
    old, new = ("\n".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return Mutant(module, function, old, new)


def verdicts() -> Mapping[Mutant, str]:
    """Return the reasons of verdicts on single mutants."""
    rows = tomllib.loads(VERDICTS.read_text())["equivalent"]
    return {Mutant(row["module"], row["function"], row["old"], row["new"]): row["why"] for row in rows}


def replacements() -> Collection[tuple[str, str]]:
    """Return the replacements that are always equivalent: old text and new text."""
    rows = tomllib.loads(VERDICTS.read_text())["equivalent_everywhere"]
    return [(row["old"], new) for row in rows for new in row["new"]]


def has_verdict(one: Mutant, known: Mapping[Mutant, str]) -> bool:
    return one in known or any(old in one.old and one.old.replace(old, new) == one.new for old, new in replacements())


def report(module: str, folder: Path, known: Mapping[Mutant, str]) -> int:
    """Print the results of a module, and return the number of mutants that need a test or a verdict."""
    codes = results(folder, module)
    survivors = [mutant(folder, module, name) for name, code in codes.items() if code in SURVIVED]
    open_ones = [one for one in survivors if not has_verdict(one, known)]
    untested = [name for name, code in codes.items() if code in NO_TESTS]
    stale = {one for one in known if one.module == module} - set(survivors)
    print(f"{module}: {len(codes)} mutants, {len(survivors)} survive, {len(open_ones)} without a verdict", flush=True)
    print(*(f"no test calls {name}" for name in untested), *open_ones, sep="\n")
    print(*(f"verdict on a mutant that does not survive or does not exist:\n{one}" for one in stale), sep="\n")
    return len(open_ones) + len(untested)


def is_named(module: str, names: Sequence[str]) -> bool:
    return f"/{module.removesuffix('.py')}".endswith(tuple(f"/{name}" for name in names))


def main(names: Sequence[str]) -> int:
    modules = [one for one in mutable_modules() if not names or is_named(one, names)]
    if not modules:
        print(f"no module is named {' or '.join(names)}", file=sys.stderr)
        return 2
    os.nice(10)
    known = verdicts()
    count = sum(report(module, run(module, os.cpu_count() or 1), known) for module in modules)
    print(f"{count} mutants need a test or a verdict")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
