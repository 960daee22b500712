"""Failures of servers and publishers: each version that a reader shows is exactly what one change left."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from market_index import Freshness, LiveIndex
from market_index_feeds import Conflict, Receipt, StoreError, mirror, open_feed, open_store
from market_index_feeds.nats.values import key_of
from tests import nats
from tests.feeds.contract.medium import Reader
from tests.feeds.made_up import book, pair, spots
from tests.feeds.nats_history import History
from tests.feeds.test_nats_batches import Killed, before_batches, kill
from tests.waiting import DEADLINE_SECONDS, eventually, in_thread


@pytest.fixture(autouse=True)
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers soon notice what no publisher announces."""
    monkeypatch.setattr("market_index_feeds.nats.reading.CHECK_SECONDS", 0.05)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[nats.Server]:
    """A server for one test, which may change or kill it."""
    with nats.served(tmp_path / "own") as server:
        yield server


def test_a_killed_server_loses_no_change(server: nats.Server):
    history = History(server.bucket("books"))
    history.publish()
    with history.followed() as await_last:
        for number in range(24):
            if number % 12 == 8:
                server.kill()
                server.start()
            history.publish()
        await_last()
    assert history.read() == history.last


def test_a_suspended_server_loses_no_change(server: nats.Server):
    history = History(server.bucket("books"), wait=0.3)
    history.publish()

    def resume(failures: int) -> None:
        eventually(lambda: len(history.failures) > failures)
        server.send(signal.SIGCONT)

    with history.followed():
        server.stop()
        resuming = in_thread(partial(resume, len(history.failures)))
        for _ in range(10):
            history.publish()
        resuming.join()


def test_a_publisher_that_was_idle_while_the_server_restarted_knows_the_outcome(server: nats.Server):
    """Otherwise its first attempt fails without an answer, and may have been stored before the change of another."""
    with open_store(server.bucket("books"), wait=10) as store:
        store.publish(book(1, 1))
        server.kill()
        server.start()
        server.wait()
        with open_store(server.bucket("books"), wait=10) as other:
            other.publish(book(1, 2))
        store.publish(book(2, 3))
        assert spots(store.read().index) == {1: "2", 2: "3"}


def test_late_readers_see_no_mixture(server: nats.Server):
    """Consumers of the servers deliver mixtures: 81 of 321 readers that joined during batches of 200 saw one."""
    number, ending = 1, Event()

    def publish() -> None:
        nonlocal number
        with open_store(server.bucket("books"), wait=10) as store:
            while not ending.is_set():
                store.update([book(one, number) for one in range(200)], freshness=Freshness(str(number)))
                number += 1

    publishing = in_thread(publish)
    try:
        eventually(lambda: number > 1)
        seen = set()
        for _ in range(12):
            index = open_feed(server.bucket("books")).read()
            assert spots(index) == dict.fromkeys(range(200), index.as_of)
            seen.add(index.as_of)
    finally:
        ending.set()
        publishing.join(DEADLINE_SECONDS)
    assert len(seen) > 1


def purge_first(server: nats.Server) -> dict[int, str | None]:
    nats.request(server, "STREAM.PURGE.KV_books", {"filter": f"$KV.books.{key_of(pair(1))}"})
    return {2: "1"}


def purge_last(server: nats.Server) -> dict[int, str | None]:
    nats.request(server, "STREAM.PURGE.KV_books", {"filter": f"$KV.books.{key_of(pair(2))}"})
    return {1: "1"}


def purge_all(server: nats.Server) -> None:
    nats.request(server, "STREAM.PURGE.KV_books")


def delete(server: nats.Server) -> None:
    nats.delete(server, "books")


def wipe(server: nats.Server) -> None:
    server.kill()
    server.empty()
    server.start()
    server.wait()


def recreate(server: nats.Server) -> dict[int, str | None]:
    nats.delete(server, "books")
    with open_store(server.bucket("books"), wait=10) as store:
        # The last sequence is the same as before.
        store.publish(book(3, 5), book(4, 5))
    return {3: "5", 4: "5"}


@pytest.mark.parametrize("damage", [purge_first, purge_last, purge_all, delete, wipe, recreate])
def test_readers_notice_what_happens_to_the_bucket(
    server: nats.Server, damage: Callable[[nats.Server], dict[int, str | None] | None]
):
    url, live = server.bucket("books"), LiveIndex()
    with open_store(url, wait=10) as store:
        store.update([book(1, 1)], freshness=Freshness("slot 1"))
        store.update([book(2, 1)], freshness=Freshness("slot 2"))
        stored = store.read()
        with open_feed(url) as feed:
            feed.start(live)
            expected = damage(server)
            if expected is not None:
                eventually(lambda: spots(live) == expected)
                assert spots(store.read().index) == expected
                assert live.current.as_of == ("slot 2" if damage is purge_first else None)
            else:
                eventually(lambda: feed.health.problem)
                assert spots(live) == {1: "1", 2: "1"}
            if damage is recreate:
                with pytest.raises(Conflict):
                    store.update([book(1, 2)], after=stored.position)
            with open_store(url, wait=10) as other:
                other.publish(book(1, 9))
            eventually(lambda: spots(live) == (expected or {}) | {1: "9"})
            assert spots(store.read().index) == (expected or {}) | {1: "9"}
            eventually(lambda: feed.health.problem is None)


@pytest.mark.decision(31)
def test_a_new_bucket_whose_first_change_is_cut_does_not_replace_what_was_shown(
    server: nats.Server, monkeypatch: pytest.MonkeyPatch
):
    """Neither at once, nor while the server cannot be reached."""
    url, before = server.bucket("books"), {1: "1", 2: "1", 3: "1"}
    with open_store(url, wait=10) as store, Reader(open_feed(url)) as reader:
        store.replace([book(number, 1) for number in before], Freshness("slot 1"))
        reader.until(lambda version: version.index.as_of == "slot 1")
        nats.delete(server, "books")
        monkeypatch.setattr("market_index_feeds.nats.publishing.MAX_BATCH", 1)
        with nats.store_of(url, wait=10) as other:
            before_batches(other, {2: kill})
            with pytest.raises(Killed):
                other.replace([book(4, 1), book(5, 1)], Freshness("slot 2"))
        reader.until(lambda _: "its first one is not finished" in (reader.problem() or ""))
        server.kill()
        reader.until(lambda _: (reader.problem() or "").startswith("cannot be read"))
        assert {(tuple(spots(one.index)), one.index.as_of) for one in reader.versions} == {((1, 2, 3), "slot 1")}


@pytest.mark.decision(34)
@pytest.mark.parametrize("purge", [purge_first, purge_last, purge_all])
def test_a_relay_writes_again_what_is_purged_of_its_target(
    server: nats.Server, tmp_path: Path, purge: Callable[[nats.Server], object]
):
    url, file, expected = server.bucket("books"), tmp_path / "market.db", {1: "1", 2: "1", 3: "1"}
    with open_store(file) as source, open_feed(file) as feed:
        source.replace([book(number, 1) for number in (1, 3)], Freshness("slot 1"))
        written = list[Receipt]()
        relaying = in_thread(
            lambda: mirror(feed, lambda: open_store(url, wait=10), on_written=lambda _, one: written.append(one))
        )
        try:
            eventually(lambda: written)
            source.update([book(2, 1)], freshness=Freshness("slot 2"))
            eventually(lambda: len(written) == 2)
            purge(server)
            eventually(lambda: len(written) == 3)
        finally:
            feed.close()
            relaying.join(DEADLINE_SECONDS)
    index = open_feed(url).read()
    assert (spots(index), index.as_of) == (expected, "slot 2")


def test_readers_notice_a_rollback(server: nats.Server, tmp_path: Path):
    """The disk of the server is replaced by an older copy; then as many changes follow as were lost.

    The sequence and the number of messages are the same as before, so only the new connection shows it.
    """
    before, after = {1: "2", 2: "2"}, {1: "3", 3: "3"}
    with open_store(server.bucket("books"), wait=10) as store, Reader(open_feed(server.bucket("books"))) as reader:
        store.publish(book(1, 1))
        server.kill()
        shutil.copytree(server.folder / server.name, tmp_path / "copy")
        server.start()
        server.wait()
        store.publish(book(1, 2), book(2, 2))
        assert spots(store.read().index) == before
        reader.until(lambda version: spots(version.index) == before)
        server.kill()
        server.empty()
        (tmp_path / "copy").rename(server.folder / server.name)
        server.start()
        server.wait()
        store.publish(book(1, 3), book(3, 3))
        assert spots(store.read().index) == after
        reader.until(lambda version: spots(version.index) == after)
        assert [spots(version.index) for version in reader.versions] == [before, after]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[nats.Server]]:
    """A cluster for one test."""
    with nats.cluster(tmp_path / "three") as servers:
        yield servers


def leader_of(servers: list[nats.Server]) -> nats.Server:
    found = list[nats.Server]()

    def is_led() -> bool:
        name = nats.leader_of(servers[0], "books")
        found[:] = [server for server in servers if server.name == name]
        return bool(found)

    eventually(is_led)
    return found[0]


def await_current(server: nats.Server) -> None:
    """Wait until a server has the whole bucket."""
    eventually(lambda: server.name in nats.current_of(server, "books"))


@pytest.mark.thorough
@pytest.mark.parametrize("fault", ["killed", "emptied", "suspended"])
def test_a_cluster_without_its_leader_loses_no_change(servers: list[nats.Server], fault: str):
    nats.opened(servers[0].bucket("books")).close()
    history = History(f"nats://{','.join(server.address for server in servers)}/books", wait=2)
    history.publish()
    with history.followed(3) as await_last:
        # The servers may never elect a leader again if two of them have lost their disks, one after the other.
        for _ in range(1 if fault == "emptied" else 2):
            leader = leader_of(servers)
            leader.stop() if fault == "suspended" else leader.kill()
            if fault == "emptied":
                leader.empty()
            for _ in range(30):
                history.publish()
            await_last()
            leader.send(signal.SIGCONT) if fault == "suspended" else leader.start()
            leader.wait()
            for _ in range(30):
                history.publish()
            await_current(leader)
        await_last()
    assert history.read() == history.last


@pytest.mark.thorough
def test_without_a_quorum_nothing_is_published_and_the_last_version_stays(servers: list[nats.Server]):
    nats.opened(servers[0].bucket("books")).close()
    url, live = f"nats://{','.join(server.address for server in servers)}/books", LiveIndex()
    with open_store(url, wait=1) as store, open_feed(url) as feed:
        store.publish(book(1, 1))
        feed.start(live)
        for server in servers[:2]:
            server.kill()
        with pytest.raises(StoreError):
            store.publish(book(1, 2))
        eventually(lambda: feed.health.problem)
        assert spots(live) == {1: "1"}
        for server in servers[:2]:
            server.start()
        # The change that was not acknowledged may be stored now.
        eventually(lambda: succeeds(lambda: store.publish(book(2, 3))))
        eventually(lambda: spots(live).get(2) == "3" and feed.health.problem is None)


@pytest.mark.thorough
def test_a_leader_without_the_other_servers_reports_no_other_publisher(servers: list[nats.Server]):
    """It rejects each further change until it steps down. Otherwise a relay would try again without a backoff."""
    nats.opened(servers[0].bucket("books")).close()
    leader = leader_of(servers)
    with open_store(leader.bucket("books"), wait=0) as store:
        store.publish(book(1, 1))
        stored = store.read()
        for server in servers:
            if server is not leader:
                server.kill()
        for spot in (2, 3):
            with pytest.raises(StoreError) as raised:
                store.update([book(1, spot)], after=stored.position)
            assert not isinstance(raised.value, Conflict), raised.value


def succeeds(work: Callable[[], object]) -> bool:
    try:
        work()
    except StoreError:
        return False
    return True
