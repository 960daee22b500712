"""`/metrics` with several workers: one scrape reports all of them, and no request is forgotten when one is replaced."""

from __future__ import annotations

import os
import signal
from collections import Counter
from http.client import HTTPException
from pathlib import Path
from threading import Event, Thread
from typing import Self

import pytest

from tests.command import SAMPLE, invoke, running
from tests.load import Load
from tests.market_index_cli.server.test_workers import each_worker
from tests.metrics import Samples, samples_of, scrape
from tests.service import Service
from tests.waiting import eventually

HEALTH = "market_index_requests_total", "endpoint=/healthz", "status=200"
LIST = "/trading-view/pair-list"
LISTS = "market_index_requests_total", f"endpoint={LIST}", "status=200"


def counters(samples: Samples) -> Samples:
    return {key: value for key, value in samples.items() if key[0] == "market_index_requests_total"}


def try_scrape(service: Service) -> Samples | None:
    """Return the samples; None if the worker that was asked has been killed."""
    try:
        return scrape(service)
    except (OSError, HTTPException):
        return None


def workers(service: Service) -> set[str]:
    """Return the labels of the workers that run; none if the worker that was asked has been killed."""
    return {key[1] for key in try_scrape(service) or () if key[0] == "market_index_pairs"}


class Scraper:
    """A thread that scrapes all the time, and records each count of requests that decreases."""

    def __init__(self, service: Service) -> None:
        self.decreased: list[object] = []
        self.scrapes = 0
        self._service = service
        self._done = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        before: Samples = {}
        while not self._done.is_set():
            samples = try_scrape(self._service)
            if samples is not None:
                now = counters(samples)
                self.decreased += [(key, old, now.get(key)) for key, old in before.items() if now.get(key, -1) < old]
                before, self.scrapes = now, self.scrapes + 1


@pytest.mark.thorough
def test_one_scrape_reports_all_workers_also_while_one_is_killed_and_replaced(tmp_path: Path):
    store = tmp_path / "market.db"
    assert invoke("publish", store, SAMPLE).returncode == 0
    with running(tmp_path, store, "--port", 0, "--workers", 2) as command:
        eventually(lambda: command.stderr.count("listening on") == 2)
        service = command.service
        with each_worker(service) as clients:
            requests = Counter({process: 3 + number for number, process in enumerate(clients)})
            for process, count in requests.items():
                for _ in range(count):
                    assert clients[process].request(LIST).status == 200

            def counted() -> list[float]:
                return [samples_of(client.request("/metrics"))[LISTS] for client in clients.values()]

            eventually(lambda: counted() == [7, 7])
            eventually(lambda: workers(service) == {"worker=0", "worker=1"})
            with Scraper(service) as scraper:
                os.kill(next(iter(clients)), signal.SIGKILL)
                eventually(lambda: len(workers(service)) == 1)
                eventually(lambda: command.stderr.count("listening on") == 3)
                eventually(lambda: workers(service) == {"worker=0", "worker=1"})
            assert scraper.scrapes > 2
            assert scraper.decreased == []
        samples = scrape(service)
        assert samples[LISTS] == 7
        assert {value for key, value in samples.items() if key[0] == "market_index_workers"} == {2}
        with each_worker(service) as clients:
            for client in clients.values():
                assert client.request(LIST).status == 200
        eventually(lambda: scrape(service)[LISTS] == 9)
        assert command.end() == 0


@pytest.mark.thorough
def test_no_counter_decreases_and_no_request_is_lost_while_sighup_restarts_the_workers(tmp_path: Path):
    with running(tmp_path, SAMPLE, "--port", 0, "--workers", 2) as command:
        command.has_logged("listening on", 2)
        service = command.service
        with Load(service.port) as load, Scraper(service) as scraper:
            for restarts in (1, 2, 3):
                command.process.send_signal(signal.SIGHUP)
                command.has_logged("serves; ending worker", 2 * restarts)
                load.continues()
        assert load.failures == []
        assert scraper.scrapes > 10
        assert scraper.decreased == []
        eventually(lambda: scrape(service)[HEALTH] == load.answered)
        eventually(lambda: len(workers(service)) == 2)
        assert command.end() == 0
