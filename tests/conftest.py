"""Hypothesis profiles, and fixtures for recorded data and a NATS server."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.waiting import DEADLINE_SECONDS, WITHOUT_SHRINKING

if TYPE_CHECKING:
    from tests import nats

# A shell script starts a background job with SIGINT ignored, and every process that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
"""Whether properties use random examples, and more of them in the domain; `make test-all` prints the seed."""

DOMAIN = Path(__file__).with_name("market_index")

# On a busy machine, an example may take any time.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", UNTIMED, max_examples=40, derandomize=True, database=None)
settings.register_profile("random", UNTIMED, max_examples=60, print_blob=True)
settings.register_profile("random domain", UNTIMED, max_examples=400, print_blob=True)
# Without shrinking: any failing example kills a mutant.
settings.register_profile("mutants", settings.get_profile("repeatable"), max_examples=60, phases=WITHOUT_SHRINKING)
settings.load_profile("random" if THOROUGH else "repeatable")


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Load the profile of a module before it is imported, because its tests read the settings at import."""
    if THOROUGH and isinstance(collector, pytest.Module):
        settings.load_profile("random domain" if DOMAIN in collector.path.parents else "random")


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
