"""The files of the folder deploy: systemd checks the units, and the server runs in a sandbox like that of its unit.

The alerts name metrics that exist.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from market_index import Freshness, LiveIndex
from market_index_cli.relay import relay
from market_index_cli.serve import serve
from market_index_feeds import open_feed, open_store
from market_index_http.operating import Health
from tests.apps import composed
from tests.asgi import request
from tests.command import COMMAND, SAMPLE, started
from tests.feed_state import FeedState
from tests.feeds.made_up import book
from tests.waiting import DEADLINE_SECONDS, eventually

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "docs" / "deploy"
UNITS = ("market-index.service", "market-index.socket", "market-index-relay.service")
INSTALLED = "/opt/market-index/bin/market-index"


def run(*command: object) -> subprocess.CompletedProcess[str]:
    words = list(map(str, command))
    return subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units, with the path of the command that is installed here."""
    (tmp_path / "market-index.service.d").mkdir()
    shutil.copy(DEPLOY / "ledger.conf", tmp_path / "market-index.service.d")
    for name in UNITS:
        (tmp_path / name).write_text((DEPLOY / name).read_text().replace(INSTALLED, str(COMMAND)))
    return [tmp_path / name for name in UNITS]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
class TestUnits:
    def test_systemd_accepts_them(self, units: list[Path]):
        done = run("systemd-analyze", "verify", *units)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def test_the_exposure_of_the_service_is_low(self, units: list[Path]):
        done = run("systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", units[0])
        assert done.returncode == 0, done.stdout


def test_the_variables_of_the_units_and_pages_are_those_of_serve_and_relay():
    options = {f"MARKET_INDEX_{option.name}".upper() for option in (*serve.params, *relay.params)}
    options |= {"MARKET_INDEX_HEADERS_FILE"}
    files = [*DEPLOY.glob("*.service"), *DEPLOY.glob("*.conf"), *DEPLOY.parent.glob("deployment*.md")]
    named = {name for file in files for name in re.findall(r"MARKET_INDEX_[A-Z_]+", file.read_text())}
    assert len(named) > 5
    assert named <= options


def has_namespaces() -> bool:
    return shutil.which("unshare") is not None and run("unshare", "--net", "--mount", "true").returncode == 0


# The process keeps its id when it becomes the command. 65: PR_SET_MDWE, 1: PR_MDWE_REFUSE_EXEC_GAIN.
SANDBOX = """
import ctypes, os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)
os.execv("/usr/bin/setpriv", ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", *sys.argv[2:]])
"""


@pytest.mark.thorough
@pytest.mark.skipif(not has_namespaces(), reason="namespaces are not permitted here")
@pytest.mark.skipif(not Path("/usr/bin/setpriv").exists(), reason="setpriv is not installed")
def test_it_serves_without_a_network_and_with_a_read_only_root(tmp_path: Path):
    """As in the unit and the container: the socket is passed, and only the folder of the store is writable."""
    folder = tmp_path / "market-index"
    folder.mkdir()
    with open_store(folder / "market.db") as store:
        store.publish(*open_feed(SAMPLE).read().values())
    errors = tmp_path / "errors"
    mounts = f"mount --bind {folder} {folder} && mount -o remount,bind,ro / && ! touch {tmp_path}/x 2>/dev/null"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = str(listener.fileno())
        script = f'{mounts} && exec "$@"'
        serve = [COMMAND, "serve", folder / "market.db", "--workers", "2"]
        words = ["unshare", "--net", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", SANDBOX, number, *serve]
        with started(errors, *words, pass_fds=[listener.fileno()], env=environment, cwd=folder) as command:
            assert len(command.service.pair_list().json["pairs"]) == 13
            with open_store(folder / "market.db") as store:
                store.publish(book(1))
            eventually(lambda: len(command.service.pair_list().json["pairs"]) == 14)
            command.has_logged("listening on", 2)
            assert command.end() == 0


def test_the_container_file_copies_what_the_package_needs():
    text = (DEPLOY / "Containerfile").read_text()
    copied = {word for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for word in line.split()}
    packages = {path.parent.name for path in ROOT.glob("market_index*/__init__.py")}
    locks = {"docs/deploy/requirements.txt", "docs/deploy/build-requirements.txt"}
    assert copied == packages | locks | {"pyproject.toml", "README.md", "LICENSE"}
    assert all((ROOT / name).exists() for name in copied)
    assert "\nUSER 65532:65532\n" in text


def test_the_alerts_name_metrics_and_labels_that_exist():
    names = ("open_connections", "max_connections", "workers", "relay_keeping", "relay_written_timestamp_seconds")
    server = dict.fromkeys(names, 1)
    live = LiveIndex()
    live.update((), freshness=Freshness("slot 1", datetime(2026, 11, 22, tzinfo=UTC)))
    app = composed(live, health=Health(FeedState(revision=1)), metrics=True, server=server)
    values: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(request(app, "/metrics").body.decode()):
        for sample in family.samples:
            labels = values.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    for rule in rules:
        assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}
        metrics = re.findall(r"market_index_\w+", rule["expr"])
        # Otherwise it is a metric of Prometheus itself, or of its blackbox exporter.
        assert metrics or rule["expr"].startswith(("up{", "probe_success{"))
        assert set(metrics) <= values.keys()
        for removed in re.findall(r"without \(([^)]*)\)", rule["expr"]):
            assert all(set(removed.split(", ")) - {"instance"} <= values[metric].keys() for metric in metrics)
        for label, named in re.findall(r'(\w+)[!=]~"([^"]*)"', rule["expr"]):
            assert all(set(named.split("|")) <= values[metric][label] for metric in metrics)
