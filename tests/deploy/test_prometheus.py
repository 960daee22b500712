"""A real Prometheus with docs/deploy/alerts.yml: it evaluates each rule, and scrapes a server with two workers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from tests.command import LINES, running
from tests.service import Service
from tests.waiting import DEADLINE_SECONDS, eventually

PROMETHEUS = shutil.which("prometheus") or ""
PROMTOOL = shutil.which("promtool") or ""
ALERTS = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "alerts.yml"
TARGET = {"job": "market-index", "instance": "books:8000"}

pytestmark = pytest.mark.skipif(
    not (PROMETHEUS and PROMTOOL), reason="prometheus is not installed: apt-get install prometheus"
)

# Of each alert: the series, whose values have intervals of 15 seconds and change at 75 seconds ("1x4 0x30": five times
# 1, then 0; "-30+15x4" stays 30 seconds before the clock); the seconds at which it does not fire yet, and fires; its
# summary.
FIRING: dict[str, tuple[dict[str, str], int, int, str]] = {
    "MarketIndexDown": ({"up{}": "1x4 0x30"}, 120, 135, "/metrics does not answer"),
    "MarketIndexNotReady": (
        {'market_index_ready{worker="0"}': "1x4 0x30", 'market_index_ready{worker="1"}': "1x60"},
        120, 135, "/readyz of a worker answers 503; its field error has the reason",
    ),
    "MarketIndexWorkersMissing": (
        {
            'market_index_ready{worker="0"}': "1x60",
            'market_index_ready{worker="1"}': "1x4 stale",
            'market_index_workers{worker="0"}': "2x60",
        },
        120, 135, "only 1 workers serve; the log has the reason",
    ),
    "MarketIndexFeedStale": (
        {
            'market_index_feed_healthy_timestamp_seconds{worker="0"}': "-30+15x4 44+15x30",
            'market_index_feed_healthy_timestamp_seconds{worker="1"}': "0+15x60",
        },
        120, 135, "the feed was last healthy 31s ago",
    ),
    "MarketIndexPublisherQuiet": (
        {'market_index_feed_published_timestamp_seconds{worker="0"}': "-60+15x4 0+15x30"},
        120, 135, "the publisher last published 1m 15s ago",
    ),
    "MarketIndexRecordsRejected": (
        {'market_index_feed_current_rejections{worker="1"}': "0x4 2x60"},
        360, 375, "2 records are rejected; the log names them",
    ),
    "MarketIndexConnectionsNearLimit": (
        {
            'market_index_open_connections{worker="0"}': "90x4 95x30",
            'market_index_max_connections{worker="0"}': "100x60",
        },
        120, 135, "a worker uses 95% of its connections",
    ),
    "MarketIndexServerErrors": (
        {
            'market_index_requests_total{endpoint="/trading-view/order-book",status="500"}': "0x4 1x30",
            'market_index_requests_total{endpoint="/trading-view/pair-list",status="200"}': "0+100x60",
            'market_index_requests_total{endpoint="/readyz",status="503"}': "0+100x60",
        },
        60, 75, "1 responses with status 500 or 503 within 5 minutes",
    ),
}  # fmt: skip


def rules() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@pytest.mark.parametrize("alert", rules())
def test_prometheus_fires_each_alert_when_it_is_due(tmp_path: Path, alert: str):
    series, before, due, summary = FIRING[alert]
    labels = ",".join(f'{name}="{value}"' for name, value in TARGET.items())
    expected = {
        "exp_labels": {**TARGET, "severity": rules()[alert]["labels"]["severity"]},
        "exp_annotations": {"summary": f"books:8000: {summary}"},
    }
    case = {
        "interval": "15s",
        "input_series": [
            {"series": re.sub(r"\{(.+)\}", rf"{{\1,{labels}}}", name).replace("{}", f"{{{labels}}}"), "values": values}
            for name, values in series.items()
        ],
        "alert_rule_test": [
            {"alertname": one, "eval_time": f"{seconds}s", "exp_alerts": [expected] if one == alert and fires else []}
            for one in rules()
            for seconds, fires in ((before, False), (due, True))
        ],
    }
    test = tmp_path / "test.yml"
    test.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "15s", "tests": [case]}))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", test], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self._service = Service(port)

    def is_ready(self) -> bool:
        try:
            return self._service.request("/-/ready").status == 200
        except ConnectionRefusedError:
            return False

    def get(self, path: str) -> Any:
        return self._service.request(f"/api/v1/{path}").json["data"]

    def values(self, query: str) -> list[str]:
        """Return the current values of a query."""
        return [one["value"][1] for one in self.get(f"query?query={quote(query)}")["result"]]

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        return {one["labels"]["alertname"] for one in self.get("alerts")["alerts"] if one["state"] == "firing"}


@contextmanager
def scraping(folder: Path, port: int) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes the port and evaluates the alerts five times per second, without their `for`."""
    folder.mkdir()
    (folder / "alerts.yml").write_text(re.sub(r"\n *for: \w+", "", ALERTS.read_text()))
    settings = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [{"job_name": "market-index", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}],
    }
    (folder / "prometheus.json").write_text(json.dumps(settings))  # JSON is YAML
    with socket.create_server(("127.0.0.1", 0)) as free:
        own_port = free.getsockname()[1]
    address = f"127.0.0.1:{own_port}"
    options = {"config.file": "prometheus.json", "storage.tsdb.path": "tsdb", "web.listen-address": address}
    words = [PROMETHEUS, *(f"--{name}={value}" for name, value in options.items())]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)
    try:
        prometheus = Prometheus(own_port)
        eventually(prometheus.is_ready)
        yield prometheus
    finally:
        process.kill()
        process.wait(DEADLINE_SECONDS)


@pytest.mark.thorough
def test_prometheus_scrapes_two_workers_and_alerts(tmp_path: Path):
    books = tmp_path / "books.ndjson"
    wrong = re.sub(r'"spot":[^,]*', '"spot":"wrong"', LINES[0])
    assert wrong != LINES[0]
    books.write_text("".join(LINES) + wrong)
    with (
        running(tmp_path, books, "--port", 0, "--workers", 2) as command,
        scraping(tmp_path / "prometheus", command.service.port) as prometheus,
    ):
        eventually(lambda: prometheus.values("market_index_ready") == ["1", "1"])
        assert [rule["health"] for group in prometheus.get("rules")["groups"] for rule in group["rules"]] == [
            "ok" for _ in rules()
        ]
        eventually(lambda: prometheus.firing() == {"MarketIndexRecordsRejected"})
        with books.open("a") as file:
            file.write(LINES[0])
        eventually(lambda: not prometheus.firing())
        os.kill(command.service.request("/healthz").json["process"], signal.SIGKILL)
        command.has_logged("starting another")
        eventually(lambda: prometheus.values("count(market_index_ready == 1)") == ["2"])
        assert prometheus.values("resets(market_index_requests_total[5m]) > 0") == []
        command.process.kill()
        eventually(lambda: prometheus.firing() == {"MarketIndexDown"})
