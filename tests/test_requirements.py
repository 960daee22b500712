"""The requirements of each package, tested in a process that can import nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import metadata, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import market_index
from tests.test_architecture import PACKAGES

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


def import_alone(module: str) -> subprocess.CompletedProcess[str]:
    allowed = [*PACKAGES, "attr", "attrs", "cattr", "cattrs", "typing_extensions"]
    script = IMPORT_ALONE.format(allowed=allowed, root=str(ROOT), module=module)
    return subprocess.run([sys.executable, "-Ic", script], capture_output=True, text=True, check=False)


def test_domain_and_feeds_require_only_attrs_and_cattrs():
    done = import_alone("market_index, market_index_feeds, market_index_feeds.sqlite")
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_the_packages_loads_no_display():
    modules = "market_index, market_index.wire, market_index_feeds, market_index_http"
    script = f"import sys, {modules}; print('market_index.display' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_version_is_that_of_the_distribution():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "market_index/__init__.py"
    assert market_index.__version__ == version("market-index")


@pytest.mark.parametrize(
    ("module", "named", "missing", "extra"),
    [
        ("market_index_http", "market_index_http", "starlette", "http"),
        ("market_index.strategies", "market_index.strategies", "hypothesis", "hypothesis"),
        ("market_index.stateful", "market_index.strategies", "hypothesis", "hypothesis"),
    ],
)
def test_a_module_names_the_extra_that_it_requires(module: str, named: str, missing: str, extra: str):
    done = import_alone(module)
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
    assert json.loads((ROOT / "npm" / "package.json").read_text())["version"] == market_index.__version__
    assert re.findall(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == market_index.__version__


def test_the_address_of_the_repository_is_to_be_replaced_in_two_places():
    """docs/releasing.md says so. Nothing that a reader runs contains it."""
    pyproject = ROOT / "pyproject.toml"
    included = tomllib.loads(pyproject.read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    found = []
    for path in [*(ROOT / name.lstrip("/") for name in included), pyproject, ROOT / "README.md"]:
        for file in path.rglob("*") if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                found += [file.name] * file.read_bytes().count(b"https://" + b"REPOSITORY")
    assert sorted(found) == ["pyproject.toml", "pyproject.toml", "releasing.md"]


def licence_of(package: str) -> str:
    """Return what the metadata of an installed package say about its licence."""
    fields = metadata(package)
    names = ("License-Expression", "License", "Classifier")
    return " ".join(value for name in names for value in fields.get_all(name, []))


def needed_by(requirement: Requirement, found: dict[str, Requirement]) -> dict[str, Requirement]:
    """Add to the found packages those that the requirement needs on this Python, by name."""
    for one in map(Requirement, requires(requirement.name) or []):
        extras = requirement.extras or {""}
        name = canonicalize_name(one.name)
        is_needed = one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras)
        if is_needed and (name not in found or one.extras):
            found[name] = one
            needed_by(one, found)
    return found


def test_each_run_time_dependency_has_a_licence_that_the_pages_name():
    needed = needed_by(Requirement("market-index[server,nats,ledger,hypothesis]"), {}).keys() - {"market-index"}
    assert len(needed) > 15
    wrong = [name for name in needed if not re.search(r"\b(MIT|BSD|Apache|PSF|MPL|Python Software)", licence_of(name))]
    assert wrong == []
