"""One process keeps a store, and others wait. Killed relays are in tests/faults/test_kills.py."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest

from market_index_feeds import StoreError, mirror, open_feed, open_store
from market_index_feeds.keeper import Keeper
from market_index_feeds.sources import open_keeper
from tests import nats
from tests.feeds.made_up import book, spots
from tests.links import linked
from tests.waiting import eventually, in_thread

Open = Callable[[], Keeper]


@pytest.fixture(params=["file", "bucket"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.getfixturevalue("bucket") if request.param == "bucket" else tmp_path / "market.db")


@pytest.fixture
def keeper(target: str) -> Iterator[Open]:
    """Opens keepers of one store, which are closed at the end."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(open_keeper(target))


@pytest.mark.decision(40)
def test_one_keeps_the_store_and_another_takes_over_once_it_is_gone(keeper: Open, caplog: pytest.LogCaptureFixture):
    first, second = keeper(), keeper()
    assert (first.is_keeping(), second.is_keeping(), first.is_keeping()) == (True, False, True)
    first.close()
    eventually(second.is_keeping)
    waiting, taking = caplog.messages
    assert waiting.startswith(f"{first.name}: waiting, because ")
    assert taking == f"{first.name}: taking over"


@pytest.mark.decision(40)
def test_of_many_that_start_together_one_keeps_the_store(keeper: Open):
    keepers = [keeper() for _ in range(5)]
    for thread in [in_thread(one.is_keeping) for one in keepers]:
        thread.join()
    eventually(lambda: any(one.is_keeping() for one in keepers))
    assert [sum(one.is_keeping() for one in keepers) for _ in range(1000)] == [1] * 1000


@pytest.mark.decision(40)
def test_a_mirror_that_does_not_keep_its_target_writes_nothing(target: str, tmp_path: Path, keeper: Open):
    with open_store(tmp_path / "source.db") as source, open_store(target) as store:
        source.publish(book(1, 1))
        store.publish(book(2, 2))
    keeps, waits = keeper(), keeper()
    assert keeps.is_keeping()
    versions = list[bool]()

    def is_keeping() -> bool:
        versions.append(waits.is_keeping())
        return versions[-1]

    feed = open_feed(tmp_path / "source.db")
    mirroring = in_thread(lambda: mirror(feed, lambda: open_store(target), is_keeping=is_keeping))
    try:
        eventually(lambda: len(versions) > 2)
        assert spots(open_feed(target).read()) == {2: "2"}
        keeps.close()
        eventually(lambda: spots(open_feed(target).read()) == {1: "1"})
    finally:
        feed.close()
        mirroring.join()
    assert versions[0] is False


class TestFile:
    def test_the_lock_file_is_private_and_stays(self, tmp_path: Path):
        with open_keeper(str(tmp_path / "market.db")) as keeper:
            assert keeper.is_keeping()
        lock = tmp_path / "market.db.keeper"
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600

    def test_links_to_a_store_have_one_keeper(self, tmp_path: Path):
        (tmp_path / "link.db").symlink_to("market.db")
        with open_keeper(str(tmp_path / "market.db")) as first, open_keeper(str(tmp_path / "link.db")) as second:
            assert (first.is_keeping(), second.is_keeping()) == (True, False)

    def test_a_lock_file_that_cannot_be_opened_is_an_error(self, tmp_path: Path):
        reason = "cannot be opened: market.db.keeper: No such file or directory"
        with open_keeper(str(tmp_path / "no" / "market.db")) as keeper, pytest.raises(StoreError, match=reason):
            keeper.is_keeping()


class TestBucket:
    @pytest.fixture(autouse=True)
    def _short_times(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("market_index_feeds.nats.keeper.RENEW_SECONDS", 0.05)
        monkeypatch.setattr("market_index_feeds.nats.keeper.KEPT_SECONDS", 1.0)
        monkeypatch.setattr("market_index_feeds.nats.keeper.MARGIN_SECONDS", 0.5)

    def test_a_keeper_that_is_cut_off_stops_before_another_takes_over(self, bucket: str, nats_server: nats.Server):
        is_cut, name = Event(), nats.name_of(bucket)

        def lose(_: bytes) -> None:
            if is_cut.is_set():
                raise OSError("cut")

        with (
            linked(nats_server.port, lose, lose) as port,
            open_keeper(f"nats://127.0.0.1:{port}/{name}") as first,
            open_keeper(bucket) as second,
        ):
            assert (first.is_keeping(), second.is_keeping()) == (True, False)
            is_cut.set()
            both: list[tuple[bool, bool]] = []

            def is_taken_over() -> bool:
                both.append((second.is_keeping(), first.is_keeping()))
                return both[-1] == (True, False)

            eventually(is_taken_over)
            is_cut.clear()
            eventually(lambda: first.is_keeping() or second.is_keeping())

    def test_no_server_is_an_error_at_the_first_attempt(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("market_index_feeds.nats.keeper.OPENING_SECONDS", 0.1)
        reason = "nats://127.0.0.1:1/books cannot be opened: Connect call failed"
        with open_keeper("nats://127.0.0.1:1/books") as keeper, pytest.raises(StoreError, match=reason):
            keeper.is_keeping()
