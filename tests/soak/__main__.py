"""The soak test of `make nightly`: real servers under attack for half an hour (`python -m tests.soak --seconds 1800`).

Three servers follow a store whose publishers are killed, a file that is replaced, and a hostile upstream. Clients check
every response while hostile clients attack. After the attacks, each server must serve the newest books, be healthy, and
have closed all connections of the attacks. Its memory must not have grown since the second quarter of the time.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from attrs import define, field

from tests.command import Running
from tests.faults.hostile_clients import serving
from tests.faults.upstreams import upstream
from tests.service import Service
from tests.soak.actors import Actor, run
from tests.soak.feeds import HostileUpstream, KilledPublishers, ReplacedFile
from tests.soak.hostile import CONNECTIONS, HostileClient
from tests.soak.readers import Reader, assert_books_are, newest
from tests.waiting import eventually

MAX_GROWTH_KIB: Final = 8 * 1024
"""By how much the median memory of the last quarter may exceed that of the second quarter."""

SAMPLE_SECONDS: Final = 0.1

MIN_SAMPLES: Final = 1200
"""The samples of two minutes. Before that, the memory still grows to the size of the largest data read and sent."""


@define
class Observed:
    """A server, and samples of its memory in KiB."""

    name: str
    running: Running
    service: Service
    open_files: int
    memory: list[int] = field(factory=list)

    def sample(self) -> None:
        self.memory += resident_kib(self.running.process.pid)

    def assert_recovers(self) -> None:
        """Assert that the server is healthy, has closed all files of the attacks, and ends on SIGTERM."""
        eventually(lambda: open_files(self.running.process.pid) <= self.open_files)
        assert self.service.request("/healthz").status == 200
        assert self.running.end() == 0, self.running.stderr
        assert "Traceback" not in self.running.stderr, self.running.stderr[-10_000:]
        assert_memory_is_flat(self.name, self.memory)


def soak(folder: Path, is_over: Callable[[Sequence[Actor]], bool]) -> None:
    """Serve, publish, read and attack until `is_over`. Raises `AssertionError` for a wrong response or state."""
    publishers = KilledPublishers(folder / "a.db")
    file = ReplacedFile(folder / "b")
    hostile_upstream = HostileUpstream()
    publishers.act()
    file.put(1)
    with (
        upstream(hostile_upstream.answer) as url,
        observed("store", folder, str(publishers.publisher.path)) as store,
        observed("file", folder, str(file.path)) as lines,
        observed("upstream", folder, url) as service,
    ):
        readers = [Reader(port, number) for number, port in enumerate([store.service.port] * 2 + [lines.service.port])]
        hostile = [HostileClient(server.service.port, number) for number, server in enumerate((store, lines, service))]
        actors = [publishers, file, hostile_upstream, *readers, *hostile]
        servers = (store, lines, service)

        def observe() -> None:
            time.sleep(SAMPLE_SECONDS)
            for server in servers:
                server.sample()

        run(actors, observe, lambda: is_over(actors))
        publishers.publisher.publish()
        assert_shows(store.service.port, publishers.publisher.generation)
        assert_shows(lines.service.port, file.generation)
        eventually(lambda: shown_by(service) == hostile_upstream.generation)
        for server in servers:
            server.assert_recovers()
        print(
            f"{publishers.acts} publishers killed after {publishers.publisher.generation} publications, "
            f"{file.acts} files replaced, {hostile_upstream.acts} attacks of the upstream, "
            f"{sum(client.acts for client in hostile)} of clients; {sum(reader.acts for reader in readers)} responses, "
            f"{sum(reader.lost for reader in readers)} connections of readers lost"
        )


@contextmanager
def observed(name: str, folder: Path, feed: str) -> Iterator[Observed]:
    """Serve a feed, with a lower limit of open files than the connections of one attack."""
    with serving(feed, folder / f"{name}.log", open_files=CONNECTIONS) as running:
        service = running.service
        yield Observed(name, running, service, open_files(running.process.pid))


def assert_shows(port: int, generation: int) -> None:
    """Assert that the server serves this publication, and no book of another one."""
    eventually(lambda: newest(port) == generation)
    assert_books_are(port, generation)


def shown_by(server: Observed) -> int:
    """Return the publication of the only pair."""
    return int(server.service.pair_list().json["pairs"][0]["last_spot"])


def open_files(process_id: int) -> int:
    """Return the number of open files of a process; 0 on a system without /proc."""
    folder = Path(f"/proc/{process_id}/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def resident_kib(process_id: int) -> list[int]:
    """Return the resident memory of a process in KiB; an empty list on a system without /proc."""
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process_id}/status").read_text())
    except FileNotFoundError:
        return []
    return [int(found[1])] if found else []


def assert_memory_is_flat(name: str, samples: list[int]) -> None:
    if len(samples) < MIN_SAMPLES:
        print(f"memory of {name}: not compared, because there is no /proc or the run was too short")
        return
    quarter = len(samples) // 4
    before, after = median(samples[quarter : 2 * quarter]), median(samples[-quarter:])
    print(f"memory of {name}: {before / 1024:.1f} MiB in the second quarter, {after / 1024:.1f} MiB in the last")
    assert after <= before + MAX_GROWTH_KIB, f"memory of {name} grew by {(after - before) / 1024:.1f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=int, default=1800, help="duration, 1,800 by default")
    end = time.monotonic() + parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        soak(Path(folder), lambda _: time.monotonic() >= end)


if __name__ == "__main__":
    main()
