"""Hypothesis profiles, and fixtures for recorded data and a NATS server."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.waiting import DEADLINE_SECONDS, WITHOUT_SHRINKING

if TYPE_CHECKING:
    from tests import nats

# A shell script starts a background job with SIGINT ignored, and every process that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "repeatable")
"""`repeatable`: the same examples in each run. `random`: others in each. `thorough`: others, and more in the domain."""

THOROUGH = PROFILE == "thorough"

DOMAIN = Path(__file__).with_name("market_index")

# On a busy machine, an example may take any time.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", UNTIMED, max_examples=40, derandomize=True, database=None)
settings.register_profile("random", UNTIMED, max_examples=40, print_blob=True)
settings.register_profile("thorough", UNTIMED, max_examples=60, print_blob=True)
settings.register_profile("random domain", UNTIMED, max_examples=400, print_blob=True)
# Without shrinking: any failing example kills a mutant.
settings.register_profile("mutants", settings.get_profile("repeatable"), max_examples=60, phases=WITHOUT_SHRINKING)
settings.load_profile(PROFILE)


ORDER = os.environ.get("MARKET_INDEX_TEST_ORDER")
"""A seed: the files, and the tests of a file, run in a random order, so that no test needs an earlier one."""

DECISIONS = pytest.StashKey[set[int]]()
"""The decisions that the collected tests prove."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--decision", type=int, metavar="N", help="run the tests that prove a row of docs/decisions.md")


@pytest.hookimpl(tryfirst=True)  # before -m and -k deselect tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    proved = {item: {number for mark in item.iter_markers("decision") for number in mark.args} for item in items}
    config.stash[DECISIONS] = set().union(*proved.values())
    if wanted := config.getoption("--decision"):
        config.hook.pytest_deselected(items=[item for item in items if wanted not in proved[item]])
        items[:] = [item for item in items if wanted in proved[item]]
    if ORDER:
        items.sort(key=lambda item: [Random(f"{ORDER} {one}").random() for one in (item.path, item.nodeid)])


ALLOWED_SKIPS = (
    # What this machine cannot do, whatever is installed.
    "namespaces are not permitted here",
    "only the superuser can mount a small disk",
    "this machine has no IPv6 loopback",
    "this user must not mount",
    "only a run of all tests collects those of every decision",
)
MISSING_PROGRAM = re.compile(r"\w+ is not installed|the browser is not installed")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Skips())


class Skips:
    """Turns a run red if a test was skipped for a reason that is not allowed.

    A missing program is allowed, but not with MARKET_INDEX_ALL_PROGRAMS=1, which continuous integration sets.
    """

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
            self.found[report.nodeid] = report.longrepr[2].removeprefix("Skipped: ")

    def unexpected(self) -> dict[str, str]:
        needs_all = os.environ.get("MARKET_INDEX_ALL_PROGRAMS") == "1"
        return {
            test: reason
            for test, reason in self.found.items()
            if not reason.startswith(ALLOWED_SKIPS) and (needs_all or not MISSING_PROGRAM.match(reason))
        }

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unexpected() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test, reason in self.unexpected().items():
            terminalreporter.write_line(f"UNEXPECTED SKIP {test}: {reason}", red=True)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Load the profile of a module before it is imported, because its tests read the settings at import."""
    if THOROUGH and isinstance(collector, pytest.Module):
        settings.load_profile("random domain" if DOMAIN in collector.path.parents else "thorough")


RECORDED = Path(__file__).with_name("data")
"""Recorded data. Tests read no file outside the repository."""


@pytest.fixture
def recorded_level_changes() -> Path:
    return RECORDED / "l2-stream.ndjson.gz"


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nats.Server]:
    """A NATS server, one per test process."""
    from tests import nats  # here: most test modules need neither NATS nor its certificates

    with nats.served(tmp_path_factory.mktemp("nats")) as server:
        yield server


_BUCKETS = count()


@pytest.fixture
def bucket(nats_server: nats.Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket that does not exist yet. On a busy machine, its server may answer late."""
    for name in ("CONNECT_SECONDS", "CONNECT_TO_ANY_SECONDS", "REQUEST_SECONDS"):
        monkeypatch.setattr(f"market_index_feeds.nats.connection.{name}", DEADLINE_SECONDS)
    return f"{nats_server.url}/b{next(_BUCKETS)}"
