"""The alerts of docs/deploy/alerts.yml, as Prometheus evaluates them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.waiting import DEADLINE_SECONDS

PROMTOOL = shutil.which("promtool") or ""
ALERTS = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "alerts.yml"
TARGET = {"job": "market-index", "instance": "books:8000"}

pytestmark = pytest.mark.skipif(not PROMTOOL, reason="prometheus is not installed: apt-get install prometheus")

# Of each alert: the series, whose values have intervals of 15 seconds and change at 75 seconds ("1x4 0x30": five times
# 1, then 0; "-30+15x4" stays 30 seconds before the clock); the seconds at which it does not fire yet, and fires; its
# summary; the labels of the alert, if they are not those of the target.
FIRING: dict[str, tuple[Any, ...]] = {
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
    "MarketIndexPairsLost": (
        {'market_index_pairs{worker="0"}': "90x4 60x30", 'market_index_pairs{worker="1"}': "90x60"},
        120, 135, "only 60 pairs are left, at most two thirds of the last hour",
    ),
    "MarketIndexRelayDown": (
        {'up{job="market-index-relay"}': "1x4 0x30", "up{}": "1x60"},
        120, 135, "a relay does not answer at its --metrics-port",
        {"job": "market-index-relay", "instance": "books:8000"},
    ),
    "MarketIndexNoRelayKeeps": (
        {
            'market_index_relay_keeping{worker="0"}': "1x4 0x30",
            'market_index_relay_keeping{worker="0",instance="other:8000"}': "0x60",
        },
        90, 105, "no relay keeps the store; their logs have the reason", {"job": "market-index"},
    ),
    "MarketIndexRelaySilent": (
        {
            'market_index_relay_written_timestamp_seconds{worker="0"}': "0+15x4 60x60",
            'market_index_relay_written_timestamp_seconds{worker="0",instance="other:8000"}': "0x60",
        },
        420, 435, "the relays last wrote 6m 15s ago", {"job": "market-index"},
    ),
    "MarketIndexNatsDown": (
        {'probe_success{job="nats",instance="http://n1:8222/healthz"}': "1x4 0x30"},
        120, 135, "a server of NATS is down or behind; the others serve the bucket",
        {"job": "nats", "instance": "http://n1:8222/healthz"},
    ),
    "MarketIndexLag": (
        {'market_index_published_timestamp_seconds{worker="0"}': "-600+15x4 -540x60"},
        120, 135, "the books are those of 11m 15s ago",
    ),
    "MarketIndexClockAhead": (
        {'market_index_published_timestamp_seconds{worker="0"}': "10+15x4 7290+15x60"},
        120, 135, "the clock of the publisher is 2h 0m 15s ahead",
    ),
}  # fmt: skip


def labelled(series: str) -> str:
    """Return a series with the labels of the target, which its own labels override."""
    metric, _, own = series.removesuffix("}").partition("{")
    labels = {**TARGET, **dict(re.findall(r'(\w+)="([^"]*)"', own))}
    return f"{metric}{{{','.join(f'{name}={json.dumps(value)}' for name, value in labels.items())}}}"


def rules() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@pytest.mark.parametrize("alert", rules())
def test_prometheus_fires_each_alert_when_it_is_due(tmp_path: Path, alert: str):
    series, before, due, summary, *others = FIRING[alert]
    found = others[0] if others else TARGET
    expected = {
        "exp_labels": {**found, "severity": rules()[alert]["labels"]["severity"]},
        "exp_annotations": {"summary": f"{found['instance']}: {summary}" if "instance" in found else summary},
    }
    case = {
        "interval": "15s",
        "input_series": [{"series": labelled(name), "values": values} for name, values in series.items()],
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
