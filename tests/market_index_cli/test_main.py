"""The group of commands: which packages each needs, and what it prints when one is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from market_index_cli.errors import server_imports
from tests.command import BOOK, SAMPLE, run
from tests.waiting import DEADLINE_SECONDS

RUN = """
import sys
from market_index_cli.__main__ import run
from tests.waiting import DEADLINE_SECONDS
missing, *sys.argv = sys.argv[1:]
if missing:
    sys.modules[missing] = None
try:
    run()
finally:
    print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""

WEB_STACK = {"anyio", "httptools", "market_index_http", "starlette", "uvicorn", "uvloop"}


def run_without(missing: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process that cannot import `missing`; the last line of its errors names all packages."""
    command = [sys.executable, "-c", RUN, missing, "market-index", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("serve", "--help"),
        ("publish", "STORE", SAMPLE),
        ("retract", "STORE", "ADA", BOOK["quote"]),
        ("pairs", SAMPLE),
        ("book", SAMPLE, "ADA", BOOK["quote"]),
        ("relay", "nowhere.db", "STORE"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_only_serve_imports_a_web_stack_and_no_file_needs_nats(arguments: tuple[object, ...], store: Path):
    if arguments[0] == "retract":
        assert run("publish", store, SAMPLE).returncode == 0
    done = run_without("", *(store if argument == "STORE" else argument for argument in arguments))
    assert done.returncode == (3 if arguments[0] == "relay" else 0), done.stderr
    imported = set(done.stderr.splitlines()[-1].split())
    assert "market_index_cli" in imported
    assert not imported & {*WEB_STACK, "nats"}


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("pairs", SAMPLE), ()])
def test_without_click_one_line_names_the_extra(arguments: tuple[object, ...]):
    done = run_without("click", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    message, _ = done.stderr.splitlines()
    assert message == "market-index needs click, which comes with its extra: pip install 'market-index[cli]'"


@pytest.mark.parametrize("package", ["anyio", "httptools", "starlette", "uvicorn"])
def test_serve_without_a_web_stack_names_the_extra(package: str):
    done = run_without(package, "serve", SAMPLE)
    assert (done.returncode, done.stdout) == (2, "")
    message, _ = done.stderr.splitlines()
    assert message == (f"Error: serve needs {package}, which comes with its extra: pip install 'market-index[server]'")


def test_other_missing_modules_are_defects():
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), server_imports():
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401  # it does not exist
    done = run_without("market_index_cli.signals", "--version")
    assert done.returncode == 1
    assert "ModuleNotFoundError: " in done.stderr


def test_it_is_a_module_too():
    done = subprocess.run(
        [sys.executable, "-m", "market_index_cli", "--help"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, run("--help").stdout)
