"""The alerts of docs/deploy/alerts.yml, as Prometheus evaluates them."""

from __future__ import annotations

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
