"""`market-index relay`. Its errors are in `test_exits.py`."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from market_index_cli.console import interrupt_on_sigterm
from market_index_feeds import open_feed, open_store
from tests.command import SAMPLE, invoke, own_signals, running, untimed
from tests.feeds.made_up import book
from tests.service import Service
from tests.waiting import DEADLINE_SECONDS, eventually


@pytest.mark.parametrize("medium", ["file", "bucket"])
def test_a_store_feeds_another_until_a_signal_ends_it(
    tmp_path: Path, store: Path, medium: str, request: pytest.FixtureRequest
):
    target = request.getfixturevalue("bucket") if medium == "bucket" else str(tmp_path / "target.db")
    invoke("publish", store, SAMPLE)
    with running(tmp_path, store, target, command="relay") as relay:
        eventually(lambda: "relaying" in relay.stderr)
        assert untimed(relay.stderr).startswith(f"relaying {store} into {target}: 13 pairs, revision ")
        with open_store(store) as publishing:
            publishing.publish(book(1, 1))
            eventually(lambda: len(open_feed(target).read()) == 14)
            # What is logged of one change is in the log before the next one is written.
            publishing.publish(book(2, 1))
            eventually(lambda: len(open_feed(target).read()) == 15)
        assert relay.end() == 0
        assert relay.stderr.count("\n") == 1, "later changes are not logged"


def test_variables_name_the_feed_and_the_format_of_the_log(tmp_path: Path, store: Path):
    """A command line is visible to other users, and the URL of a feed may contain a password."""
    invoke("publish", store, SAMPLE)
    variables = {"MARKET_INDEX_FEED": str(store), "MARKET_INDEX_LOG_FORMAT": "json"}
    with running(tmp_path, tmp_path / "target.db", command="relay", **variables) as relay:
        eventually(lambda: "relaying" in relay.stderr)
        message = json.loads(relay.stderr)["message"]
        assert message == f"relaying {store} into {tmp_path / 'target.db'}: 13 pairs, revision 1"


def test_a_port_has_the_probes_and_metrics_of_each_relay(tmp_path: Path, store: Path):
    invoke("publish", store, SAMPLE)
    target = tmp_path / "target.db"
    (tmp_path / "second").mkdir()
    with (
        running(tmp_path, store, target, "--metrics-port", 0, command="relay") as first,
        running(tmp_path / "second", store, target, "--metrics-port", 0, "--max-stale", 30, command="relay") as second,
    ):
        eventually(lambda: "relaying" in first.stderr + second.stderr)
        eventually(lambda: "waiting" in first.stderr + second.stderr)
        keeping, waiting = (first, second) if "relaying" in first.stderr else (second, first)
        found = [scraped(one.service) for one in (keeping, waiting)]
        assert [one["market_index_relay_keeping"] for one in found] == [1, 0]
        assert [one["market_index_pairs"] for one in found] == [13, 13]
        assert found[0]["market_index_relay_written_timestamp_seconds"] > 0
        assert "market_index_relay_written_timestamp_seconds" not in found[1]
        assert waiting.service.request("/readyz").json == {"status": "ready"}
        assert keeping.service.request("/healthz").json["pairs"] == 13
        assert keeping.service.request("/trading-view/pair-list").status == 404
        assert (first.end(), second.end()) == (0, 0)


def scraped(service: Service) -> dict[str, float]:
    """Return the metrics of a process, by their names."""
    body = service.request("/metrics").body.decode()
    return {one.name: one.value for family in text_string_to_metric_families(body) for one in family.samples}


def test_sigterm_cancels_what_an_event_loop_runs_also_in_a_background_job():
    """A `KeyboardInterrupt` within a callback would leave a task that waits. SIGINT is ignored in such a job."""
    ended = list[str]()

    async def call() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)
        try:
            await asyncio.sleep(DEADLINE_SECONDS)
        finally:
            ended.append("call")

    with own_signals(), asyncio.Runner() as runner:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        interrupt_on_sigterm()
        with pytest.raises(KeyboardInterrupt):
            runner.run(call())
        assert ended == ["call"]
