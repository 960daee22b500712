"""The group of commands: which packages each needs, and what it prints when one is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from market_index_cli.errors import server_imports
from tests.command import BOOK, SAMPLE, invoke, run
from tests.waiting import DEADLINE_SECONDS

RUN = """
import sys
from market_index_cli.__main__ import run
missing, *sys.argv = sys.argv[1:]
sys.modules[missing] = None
run()
"""

INVOKE_EACH = """
import json, sys
from click.testing import CliRunner
from market_index_cli.main import main
for arguments in json.loads(sys.argv[1]):
    done = CliRunner().invoke(main, arguments)
    print(done.exit_code, *sorted({name.partition(".")[0] for name in sys.modules}))
"""

WEB_STACK = {"anyio", "httptools", "market_index_http", "starlette", "uvicorn", "uvloop"}


def run_without(missing: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process that cannot import `missing`."""
    return run_python("-c", RUN, missing, "market-index", *arguments)


def run_python(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)


def test_only_serve_imports_a_web_stack_and_no_file_needs_nats(store: Path):
    commands = [
        ["--help"],
        ["--version"],
        ["serve", "--help"],
        ["publish", str(store), str(SAMPLE)],
        ["pairs", str(SAMPLE)],
        ["book", str(SAMPLE), "ADA", BOOK["quote"]],
        ["retract", str(store), "ADA", BOOK["quote"]],
        ["relay", "nowhere.db", str(store)],
    ]
    done = run_python("-c", INVOKE_EACH, json.dumps(commands))
    results = [line.split() for line in done.stdout.splitlines()]
    assert [code for code, *_ in results] == ["0"] * 7 + ["3"], done.stderr
    for command, (_, *imported) in zip(commands, results, strict=True):
        assert "market_index_cli" in imported
        assert not {*WEB_STACK, "nats"} & {*imported}, command


def test_one_line_names_the_extra_if_click_is_missing():
    done = run_without("click", "pairs", SAMPLE)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "market-index needs click, which comes with its extra: pip install 'market-index[cli]'\n"


@pytest.mark.parametrize(
    "package",
    ["starlette", *(pytest.param(one, marks=pytest.mark.thorough) for one in ("anyio", "httptools", "uvicorn"))],
)
def test_serve_without_a_web_stack_names_the_extra(package: str):
    done = run_without(package, "serve", SAMPLE)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == f"Error: serve needs {package}, which comes with its extra: pip install 'market-index[server]'\n"
    )


def test_other_missing_modules_are_unexpected_errors():
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), server_imports():
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401  # it does not exist
    done = run_without("market_index_cli.logs", "--version")
    assert done.returncode == 1
    assert "ModuleNotFoundError: " in done.stderr


def test_the_package_runs_as_a_module():
    done = run_python("-m", "market_index_cli", "--help")
    assert (done.returncode, done.stdout) == (0, run("--help").stdout)


README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("{}", README.read_bytes(), "contains no valid order book"),
        ("{}", b'{"reset": true}\n', "contains no valid order book"),
        ("orders:{}", SAMPLE.read_bytes(), "its state is not known yet; waiting for a reset"),
    ],
    ids=["text", "events", "books"],
)
def test_a_file_of_another_kind_has_no_version(tmp_path: Path, name: str, content: bytes, reason: str):
    path = tmp_path / "file"
    path.write_bytes(content)
    done = invoke("pairs", name.format(path))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith(f"Error: {path} {reason}\n")
