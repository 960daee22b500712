"""`/metrics` of `market-index serve` with one process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.command import SAMPLE, Running, running
from tests.metrics import Samples, scrape
from tests.service import Client
from tests.waiting import eventually


def until(command: Running, holds: Callable[[Samples], object]) -> Samples:
    """Scrape until the samples satisfy a condition, and return them."""
    samples: Samples = {}

    def has_come() -> object:
        nonlocal samples
        samples = scrape(command.service)
        return holds(samples)

    eventually(has_come)
    return samples


def test_the_feed_the_requests_and_the_connections_are_reported(tmp_path: Path):
    path = tmp_path / "books.ndjson"
    path.write_text(SAMPLE.read_text() + "nonsense\n")
    with running(tmp_path, path, "--port", 0, "--max-connections", 50) as command:
        service = command.service
        assert service.pair_list().status == 200
        with closing(Client(service.port)), closing(Client(service.port)):
            samples = until(command, lambda found: found["market_index_open_connections", "worker=0"] >= 2)
        assert samples["market_index_max_connections", "worker=0"] == 50
        assert samples["market_index_pairs", "worker=0"] == 13
        assert samples["market_index_ready", "worker=0"] == 1
        assert samples["market_index_workers", "worker=0"] == 1
        assert samples["market_index_feed_rejected_records_total", "worker=0"] == 1
        assert samples["market_index_feed_current_rejections", "worker=0"] == 1
        assert samples["market_index_requests_total", "endpoint=/trading-view/pair-list", "status=200"] == 1
        until(command, lambda found: found["market_index_open_connections", "worker=0"] < 2)
        assert not [key for key in samples if "worker=1" in key]
        path.rename(tmp_path / "hidden")
        until(command, lambda found: found["market_index_feed_retries_total", "worker=0"] > 0)
        assert command.end() == 0
        assert "Traceback" not in command.stderr


def test_responses_that_the_app_does_not_send_are_counted(tmp_path: Path):
    options = ("--allowed-host", "test", "--cors-origin", "https://page.example")
    with running(tmp_path, SAMPLE, "--port", 0, *options) as command:
        service = command.service

        def send(request: str) -> int:
            with closing(Client(service.port)) as client:
                return client.send(request.encode()).status

        def preflight(origin: str) -> str:
            fields = f"Host: test\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: GET\r\n"
            return f"OPTIONS /trading-view/pair-list HTTP/1.1\r\n{fields}\r\n"

        assert send("GET /trading-view/pair-list HTTP/1.1\r\nHost: other\r\n\r\n") == 400
        assert send(preflight("https://page.example")) == 204
        assert send(preflight("https://other.example")) == 400
        assert send(f"GET /{'x' * 9_000} HTTP/1.1\r\nHost: test\r\n\r\n") == 400
        assert send(f"GET / HTTP/1.1\r\nHost: test\r\nX: {'x' * 70_000}\r\n\r\n") == 431
        samples = scrape(service)
        assert command.end() == 0
    counted = {key[1:]: value for key, value in samples.items() if key[0] == "market_index_requests_total" and value}
    assert counted == {
        ("endpoint=/trading-view/pair-list", "status=400"): 1,
        ("endpoint=other", "status=204"): 1,
        ("endpoint=other", "status=400"): 2,
        ("endpoint=other", "status=431"): 1,
    }


def test_metrics_can_be_omitted(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0, "--no-metrics") as command:
        assert command.service.request("/metrics").status == 404
        assert command.service.request("/readyz").status == 200
