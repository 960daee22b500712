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

# Of each alert: the last second at which it does not fire yet; its summary; the series, whose values have intervals of
# 15 seconds and change at 75 seconds ("1x4 0x30": five times 1, then 0; "-30+15x4" stays 30 seconds before the clock).
FIRING: dict[str, tuple[Any, ...]] = {
    "MarketIndexDown": (120, "/metrics does not answer", "up 1x4 0x30"),
    "MarketIndexNotReady": (
        120, "/readyz of a worker answers 503; its field error has the reason",
        "ready{worker=0} 1x4 0x30", "ready{worker=1} 1x60",
    ),
    "MarketIndexWorkersMissing": (
        120, "only 1 workers serve; the log has the reason",
        "ready{worker=0} 1x60", "ready{worker=1} 1x4 stale", "workers{worker=0} 2x60",
    ),
    "MarketIndexFeedStale": (
        120, "the feed was last healthy 31s ago",
        "feed_healthy_timestamp_seconds{worker=0} -30+15x4 44+15x30",
        "feed_healthy_timestamp_seconds{worker=1} 0+15x60",
    ),
    "MarketIndexPublisherQuiet": (
        120, "the publisher last published 1m 15s ago",
        "feed_published_timestamp_seconds{worker=0} -60+15x4 0+15x30",
    ),
    "MarketIndexRecordsRejected": (
        360, "2 records are rejected; the log names them",
        "feed_current_rejections{worker=1} 0x4 2x60",
    ),
    "MarketIndexConnectionsNearLimit": (
        120, "a worker uses 95% of its connections",
        "open_connections{worker=0} 90x4 95x30", "max_connections{worker=0} 100x60",
    ),
    "MarketIndexServerErrors": (
        60, "1 responses with status 500 or 503 within 5 minutes",
        "requests_total{endpoint=/trading-view/order-book,status=500} 0x4 1x30",
        "requests_total{endpoint=/trading-view/pair-list,status=200} 0+100x60",
        "requests_total{endpoint=/readyz,status=503} 0+100x60",
    ),
    "MarketIndexPairsLost": (
        120, "only 60 pairs are left, at most two thirds of the last hour",
        "pairs{worker=0} 90x4 60x30", "pairs{worker=1} 90x60",
    ),
    "MarketIndexRelayDown": (
        120, "a relay does not answer at its --metrics-port",
        "up{job=market-index-relay} 1x4 0x30", "up 1x60",
    ),
    "MarketIndexNoRelayKeeps": (
        90, "no relay keeps the store; their logs have the reason",
        "relay_keeping{worker=0} 1x4 0x30", "relay_keeping{worker=0,instance=other:8000} 0x60",
    ),
    "MarketIndexRelaySilent": (
        420, "the relays last wrote 6m 15s ago",
        "relay_written_timestamp_seconds{worker=0} 0+15x4 60x60",
        "relay_written_timestamp_seconds{worker=0,instance=other:8000} 0x60",
    ),
    "MarketIndexNatsDown": (
        120, "a server of NATS is down or behind; the others serve the bucket",
        "probe_success{job=nats,instance=http://n1:8222/healthz} 1x4 0x30",
    ),
    "MarketIndexLag": (
        120, "the books are those of 11m 15s ago",
        "published_timestamp_seconds{worker=0} -600+15x4 -540x60",
    ),
    "MarketIndexClockAhead": (
        120, "the clock of the publisher is 2h 0m 15s ahead",
        "published_timestamp_seconds{worker=0} 10+15x4 7290+15x60",
    ),
}  # fmt: skip
# Their rules do not distinguish instances.
OF_ALL_INSTANCES = {"MarketIndexNoRelayKeeps", "MarketIndexRelaySilent"}


def labels_of(series: str) -> dict[str, str]:
    """Return the labels of a series, besides those of the target."""
    return TARGET | dict(re.findall(r"(\w+)=([^,}]*)", series))


def labelled(series: str) -> dict[str, str]:
    """Return a series as promtool reads it."""
    name, values = series.split(" ", 1)
    metric = name.partition("{")[0]
    prefix = "" if metric in {"up", "probe_success"} else "market_index_"
    labels = ",".join(f"{name}={json.dumps(value)}" for name, value in labels_of(series).items())
    return {"series": f"{prefix}{metric}{{{labels}}}", "values": values}


def rules() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@pytest.mark.parametrize("alert", rules())
def test_prometheus_fires_each_alert_when_it_is_due(tmp_path: Path, alert: str):
    before, summary, *series = FIRING[alert]
    labels, severity = labels_of(series[0]), rules()[alert]["labels"]["severity"]
    if alert in OF_ALL_INSTANCES:
        del labels["instance"]
    expected = {
        "exp_labels": {name: labels[name] for name in labels.keys() & TARGET} | {"severity": severity},
        "exp_annotations": {"summary": ": ".join(filter(None, (labels.get("instance"), summary)))},
    }
    case = {
        "interval": "15s",
        "input_series": [*map(labelled, series)],
        "alert_rule_test": [
            {"alertname": one, "eval_time": f"{seconds}s", "exp_alerts": [expected] if one == alert and fires else []}
            for one in rules()
            for seconds, fires in ((before, False), (before + 15, True))
        ],
    }
    test = tmp_path / "test.yml"
    test.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "15s", "tests": [case]}))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", test], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
