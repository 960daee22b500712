"""The requirements of each package, tested in a process that can import nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import market_index
from tests.test_architecture import PACKAGES

ROOT = Path(__file__).resolve().parents[1]


def importing(modules: str, missing: str = "") -> subprocess.CompletedProcess[str]:
    """Import modules in a process that lacks a package, and print which modules are loaded then."""
    script = f"import sys; before = {{*sys.modules}}; sys.modules[{missing!r}] = None; import {modules}"
    command = [sys.executable, "-c", f"{script}; print(*({{*sys.modules}} - before))"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_domain_and_feeds_require_only_attrs_and_cattrs():
    loaded = importing("market_index, market_index_feeds, market_index_feeds.sqlite").stdout.split()
    assert "market_index.wire" in loaded
    allowed = {*PACKAGES, "attr", "attrs", "cattr", "cattrs", "typing_extensions", *sys.stdlib_module_names}
    assert {
        name for one in loaded if not one.startswith("_") and (name := one.partition(".")[0]) not in allowed
    } == set()


def test_importing_the_packages_loads_no_display():
    loaded = importing("market_index, market_index.wire, market_index_feeds, market_index_http").stdout.split()
    assert ("market_index.wire" in loaded, "market_index.display" in loaded) == (True, False)


@pytest.mark.parametrize(
    ("module", "named", "missing", "extra"),
    [
        ("market_index_http", "market_index_http", "starlette", "http"),
        ("market_index.strategies", "market_index.strategies", "hypothesis", "hypothesis"),
        ("market_index.stateful", "market_index.strategies", "hypothesis", "hypothesis"),
    ],
)
def test_a_module_names_the_extra_that_it_requires(module: str, named: str, missing: str, extra: str):
    done = importing(module, missing)
    assert done.returncode == 1
    remedy = f"pip install 'PATH[{extra}]' of a clone or a wheel ({missing} is not installed)"
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {named} needs the extra {extra}: {remedy}"


def test_the_home_page_lists_each_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = re.findall(r"^\| `(\w+)` \| .* \|$", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(extras)


LOCKED = re.compile(r"^([\w-]+)==([\w.]+)(?: ;.*)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+$", re.MULTILINE)


def locked_in(file: str) -> dict[str, str]:
    """Return the version of each package of a lock file, in which each package must have hashes."""
    text = (ROOT / "docs" / "deploy" / file).read_text()
    assert LOCKED.sub("", text).splitlines()[2:] == [""] * len(LOCKED.findall(text))
    return dict(LOCKED.findall(text))


def test_the_packages_of_the_image_are_locked_with_their_hashes():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = pyproject["project"]["optional-dependencies"]
    needed = [
        *pyproject["project"]["dependencies"],
        *(one for extra in extras if extra != "hypothesis" for one in extras[extra]),
    ]
    for file, requirements in (
        ("requirements.txt", needed),
        ("build-requirements.txt", pyproject["build-system"]["requires"]),
    ):
        locked = locked_in(file)
        for one in map(Requirement, requirements):
            if one.name != "market-index":
                assert one.specifier.contains(locked[one.name]), f"{one}: to lock it: make lock"


def test_a_release_has_one_version():
    assert version("market-index") == market_index.__version__
    assert json.loads((ROOT / "npm" / "package.json").read_text())["version"] == market_index.__version__
    assert re.findall(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == market_index.__version__


def test_the_address_of_the_repository_is_to_be_replaced_in_two_places():
    """docs/contributing.md says so. Nothing that a reader runs contains it."""
    pyproject = ROOT / "pyproject.toml"
    included = tomllib.loads(pyproject.read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    found = []
    for path in [*(ROOT / name.lstrip("/") for name in included), pyproject, ROOT / "README.md"]:
        for file in path.rglob("*") if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                found += [file.name] * file.read_bytes().count(b"https://" + b"REPOSITORY")
    assert sorted(found) == ["contributing.md", "pyproject.toml", "pyproject.toml"]


def test_each_run_time_dependency_has_a_licence_that_the_pages_name():
    installed = {canonicalize_name(one.name): one.metadata for one in distributions()}
    needed = installed.keys() & {*locked_in("requirements.txt"), "hypothesis"}
    assert len(needed) > 15
    for name in needed:
        fields = [
            value
            for key in ("License-Expression", "License", "Classifier")
            for value in installed[name].get_all(key, [])
        ]
        assert re.search(r"\b(MIT|BSD|Apache|PSF|MPL|Python Software)", " ".join(fields)), name
