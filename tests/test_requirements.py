"""The requirements of each package, tested in a process that can import nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.rules import SIBLINGS

ROOT = Path(__file__).resolve().parents[1]

IMPORT_ALONE = """
import sys, sysconfig, importlib.abc
allowed = set({allowed!r})
class AllowedOnly(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in allowed or top in sys.stdlib_module_names or top.startswith("_"):
            return None
        raise ModuleNotFoundError(f"{{name}} is not allowed", name=name)
sys.meta_path.insert(0, AllowedOnly())
sys.path.insert(0, {root!r})
import {module}
"""


def import_alone(module: str, *allowed: str) -> subprocess.CompletedProcess[str]:
    script = IMPORT_ALONE.format(allowed=[*SIBLINGS, *allowed], root=str(ROOT), module=module)
    return subprocess.run([sys.executable, "-Ic", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["market_index", "market_index_feeds", "market_index_feeds.sqlite"])
def test_domain_and_feeds_require_only_attrs_and_cattrs(module: str):
    done = import_alone(module, "attr", "attrs", "cattr", "cattrs", "typing_extensions")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("market_index_http", "starlette", "http"),
        ("market_index.strategies", "hypothesis", "hypothesis"),
        ("market_index.stateful", "hypothesis", "hypothesis"),
    ],
)
def test_a_module_names_the_extra_that_it_requires(module: str, missing: str, extra: str):
    done = import_alone(module, "attr", "attrs", "cattr", "cattrs", "typing_extensions")
    assert done.returncode == 1
    message = f"{module} needs {missing}, which comes with its extra: pip install 'market-index[{extra}]'"
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {message}"
