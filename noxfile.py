"""The tests on every supported Python, and with the lowest version of every declared dependency: `make test-matrix`.

A Python that is not installed is skipped. nox finds one on the PATH, or by pyenv's own rules.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import nox
from packaging.requirements import Requirement
from packaging.version import Version

ROOT: Final = Path(__file__).resolve().parent

nox.options.default_venv_backend = "virtualenv"
nox.options.download_python = "never"
nox.options.envdir = str(ROOT / "build" / "nox")
nox.options.error_on_missing_interpreters = False

PYPROJECT: Final[dict[str, Any]] = nox.project.load_toml(str(ROOT / "pyproject.toml"))
PYTHONS: Final = nox.project.python_versions(PYPROJECT)
INSTALLED: Final = ("--editable", ".[server,hypothesis,ledger,nats]", "--group", "test")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests with the newest dependencies."""
    session.install(*INSTALLED)
    run_tests(session)


@nox.session(python=PYTHONS[0])
def minimums(session: nox.Session) -> None:
    """Run the tests with the lowest declared version of each dependency; test tools are as new as these allow."""
    # Not in `session.create_tmp()`, which also moves the files of the tests there: paths of sockets have 107 bytes.
    constraints = Path(session.virtualenv.location) / "minimums.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in lowest_versions(PYPROJECT).items()))
    session.install("--constraint", str(constraints), *INSTALLED)
    session.run("python", "-m", "pip", "freeze", "--exclude-editable")
    run_tests(session)


def run_tests(session: nox.Session) -> None:
    """Run what `make test` runs; arguments after `--` are pytest's."""
    session.run("python", "-m", "pytest", *session.posargs)


def lowest_versions(pyproject: dict[str, Any]) -> dict[str, Version]:
    """Return the lowest version that satisfies every lower bound on a dependency, by its name."""
    project = pyproject["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    lowest: dict[str, Version] = {}
    for text in [*project["dependencies"], *(text for texts in extras.values() for text in texts)]:
        requirement = Requirement(text)
        if requirement.name == project["name"]:
            continue
        bounds = {bound.operator: bound.version for bound in requirement.specifier}
        if ">=" not in bounds or not bounds.keys() <= {">=", "<"}:
            raise ValueError(f"a dependency must have a lower bound, and at most an upper one besides, got {text!r}")
        lowest[requirement.name] = max(Version(bounds[">="]), lowest.get(requirement.name, Version("0")))
    return lowest
