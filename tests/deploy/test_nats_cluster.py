"""The script of docs/deploy that configures three NATS servers: a cluster of them, on addresses of this machine."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest
import trustme

from market_index_feeds import StoreError, open_feed, open_store
from tests import nats
from tests.feeds.made_up import book, spots
from tests.waiting import DEADLINE_SECONDS, eventually

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "nats-cluster.sh"

FILES = ("n1.conf", "n2.conf", "n3.conf", "publisher.env", "reader.env")


def configured(folder: Path, *hosts: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", SCRIPT, *hosts],
        cwd=folder,
        env=os.environ | {"STORE": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def test_only_the_owner_can_read_the_passwords_and_nothing_is_overwritten(tmp_path: Path):
    assert configured(tmp_path, "a", "b", "c").returncode == 0
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(written) == set(FILES)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert 'listen: "0.0.0.0:4222"\nclient_advertise: "b:4222"' in written["n2.conf"]
    assert configured(tmp_path, "a", "b", "c").returncode != 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == written


@pytest.mark.parametrize("hosts", [[], ["a"], ["a", "b", "c", "d"]])
def test_it_needs_three_hosts(tmp_path: Path, hosts: list[str]):
    done = configured(tmp_path, *hosts)
    assert (done.returncode, done.stderr) == (2, "usage: sh nats-cluster.sh HOST HOST HOST\n")
    assert not [*tmp_path.iterdir()]


@pytest.fixture
def hosts() -> list[str]:
    """Three addresses of this machine that no other test uses: the ports of the servers are always the same."""
    network = f"127.{random.randrange(1, 255)}.{random.randrange(255)}"
    return [f"{network}.{number}" for number in (1, 2, 3)]


@pytest.fixture
def servers(
    tmp_path: Path, hosts: list[str], request: pytest.FixtureRequest
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The servers, which run from the configurations alone; with certificates if the parameter is "tls"."""
    environment = {}
    if request.param == "tls":
        authority = trustme.CA()
        issued = authority.issue_cert(*hosts)
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
        issued.private_key_pem.write_to_path(tmp_path / "key.pem")
        environment = {"TLS": str(tmp_path)}
    done = configured(tmp_path, *hosts, **environment)
    assert done.returncode == 0, done.stderr
    with ExitStack() as stack:
        processes = []
        for name in FILES[:3]:
            log = stack.enter_context((tmp_path / f"{name}.log").open("wb"))
            process = subprocess.Popen([nats.BINARY, "-c", tmp_path / name], stdout=log, stderr=log)
            stack.callback(process.wait, DEADLINE_SECONDS)
            stack.callback(process.kill)
            processes.append(process)
        yield processes


def log_in(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Set the variables of a file, as a unit of systemd does."""
    for line in path.read_text().splitlines():
        name, _, value = line.partition("=")
        monkeypatch.setenv(name, value)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the addresses from 127.0.0.2 on")
@pytest.mark.parametrize(("servers", "scheme"), [("plain", "nats"), ("tls", "tls")], indirect=["servers"])
def test_a_cluster_continues_without_one_server_and_its_reader_can_change_nothing(
    servers: list[subprocess.Popen[bytes]],
    scheme: str,
    hosts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    url = f"{scheme}://{','.join(hosts)}/books"
    if scheme == "tls":
        monkeypatch.setenv("NATS_CA", str(tmp_path / "ca.pem"))
    with pytest.raises(StoreError, match="rejects the credentials"):
        open_store(url, wait=DEADLINE_SECONDS)
    log_in(monkeypatch, tmp_path / "publisher.env")
    with nats.opened(url) as store:
        store.publish(book(1, 1))
        eventually(lambda: all(map(is_up, hosts)))
        servers[0].kill()
        servers[0].wait(DEADLINE_SECONDS)
        assert list(map(is_up, hosts)) == [False, True, True]
        eventually(lambda: published(url, 2))
    log_in(monkeypatch, tmp_path / "reader.env")
    assert spots(open_feed(url).read()) == {1: "2"}
    with open_store(url) as store, pytest.raises(StoreError, match="permissions violation for publish"):
        store.publish(book(1, 3))
    assert spots(open_feed(url).read()) == {1: "2"}


def is_up(host: str) -> bool:
    """Whether a server reports at its monitoring port that it works: what MarketIndexNatsDown asks."""
    try:
        with urlopen(f"http://{host}:8222/healthz", timeout=DEADLINE_SECONDS) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def published(url: str, spot: int) -> bool:
    """Whether a book was published; not while the servers elect a leader."""
    try:
        with open_store(url) as store:
            store.publish(book(1, spot))
    except StoreError:
        return False
    return True
