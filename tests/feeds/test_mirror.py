"""What a mirror reports, and how it ends. Any history of it is compared with a model in `test_machine.py`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from market_index import Freshness
from market_index_feeds import Feed, FeedError, NoVersion, Position, Receipt, Store, StoreError, mirror
from tests.feeds.contract.medium import without_waits
from tests.feeds.made_up import book, pair, spots
from tests.feeds.scripted import MemoryStore, SteppedSource


class Mirroring:
    """A mirror in a thread, one version at a time."""

    def __init__(self) -> None:
        self.source, self.target = SteppedSource(), MemoryStore()
        self.source.publish(book(1, 1), as_of="slot 1")
        self.receipts: list[Receipt] = []
        self.left_out: frozenset[object] = frozenset()
        self.opened = 0
        self.is_keeping = True

    def open(self) -> Store:
        self.opened += 1
        if self.target.failure == "failing":
            raise StoreError("memory cannot be opened")
        return self.target

    def start(self) -> None:
        self.source.read_in_thread(self.run)

    def run(self) -> None:
        def on_written(target: Store, receipt: Receipt) -> None:
            assert target is self.target
            self.receipts.append(receipt)

        feed = without_waits(Feed(self.source))
        self.left_out = mirror(feed, self.open, on_written=on_written, is_keeping=lambda: self.is_keeping)


@pytest.fixture
def mirroring() -> Iterator[Mirroring]:
    mirroring = Mirroring()
    yield mirroring
    mirroring.source.end()


@pytest.mark.decision(34)
def test_each_version_that_differs_is_one_transaction(mirroring: Mirroring):
    mirroring.target.update([book(2, 2), book(3, 3)])
    mirroring.start()
    mirroring.source.step()
    mirroring.source.step()
    mirroring.source.publish(book(1, 2), book(4, 4), as_of="slot 2")
    mirroring.source.step()
    assert [(one.published, one.retracted) for one in mirroring.receipts] == [(1, 2), (2, 0)]
    assert (mirroring.target.reads, mirroring.target.updates, mirroring.opened) == (1, 3, 1)
    assert mirroring.target.index.as_of == "slot 2"


@pytest.mark.decision(34)
def test_while_a_record_is_invalid_only_pairs_of_the_source_are_retracted(mirroring: Mirroring):
    """The record may be of any pair of the target."""
    mirroring.target.update([book(9, 9)])
    mirroring.source.publish(book(2, 2))
    mirroring.source.invalid.add(pair(3))
    mirroring.start()
    mirroring.source.step()
    del mirroring.source.books[pair(2)]
    mirroring.source.step()
    assert spots(mirroring.target.index) == {1: "1", 9: "9"}
    mirroring.source.invalid.clear()
    mirroring.source.step()
    assert spots(mirroring.target.index) == {1: "1"}


def test_the_first_version_is_reported_also_if_the_target_is_equal(mirroring: Mirroring):
    mirroring.source.freshness = Freshness("slot 1", datetime(2026, 11, 22, tzinfo=UTC))
    mirroring.target.update([book(1, 1)], freshness=mirroring.source.freshness)
    mirroring.start()
    mirroring.source.step()
    mirroring.source.step()
    assert mirroring.receipts == [Receipt(position=Position("memory", 1), freshness=mirroring.source.freshness)]
    assert mirroring.target.updates == 1


def test_the_target_is_asked_for_its_position_once_a_second(mirroring: Mirroring, monkeypatch: pytest.MonkeyPatch):
    now = 0.0
    monkeypatch.setattr(sys.modules["market_index_feeds.mirror"], "monotonic", lambda: now)
    mirroring.start()
    asked = list[int]()
    for moment in (0.0, 0.1, 0.2, 0.9, 1.1, 1.5, 2.2):
        now = moment
        mirroring.source.step()
        asked.append(mirroring.target.asked)
    assert asked == [0, 1, 1, 1, 2, 2, 3]
    mirroring.target.update([book(1, 7)])
    mirroring.source.step()
    assert spots(mirroring.target.index) == {1: "7"}
    now = 3.3
    mirroring.source.step()
    assert spots(mirroring.target.index) == {1: "1"}


def test_invalid_records_of_the_target_are_removed(mirroring: Mirroring):
    mirroring.target.invalid = frozenset({None})
    mirroring.start()
    mirroring.source.step()
    assert (mirroring.target.invalid, spots(mirroring.target.index)) == (frozenset(), {1: "1"})


def test_errors_are_logged_once_and_the_target_is_opened_again(mirroring: Mirroring, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    mirroring.start()
    mirroring.source.step()
    mirroring.target.failure = "failing"
    for spot in range(2, 5):
        mirroring.source.publish(book(1, spot))
        mirroring.source.step()
    mirroring.target.failure = None
    mirroring.source.step()
    assert spots(mirroring.target.index) == {1: "4"}
    assert caplog.messages == [
        "memory does not work; retrying",
        "memory cannot be opened; retrying",
        "memory: equal again to stepped",
    ]
    assert mirroring.target.reads == 2


@pytest.mark.decision(34)
def test_a_book_above_a_limit_is_logged_once_and_returned(mirroring: Mirroring, caplog: pytest.LogCaptureFixture):
    mirroring.target.too_large = 3
    mirroring.start()
    mirroring.source.publish(book(2, 2), book(1, 3), as_of="slot 2")
    mirroring.source.step()
    assert (spots(mirroring.target.index), mirroring.target.index.as_of) == ({2: "2"}, None)
    mirroring.source.publish(book(2, 4), as_of="slot 3")
    mirroring.source.step()
    assert spots(mirroring.target.index) == {2: "4"}
    mirroring.source.end()
    assert mirroring.left_out == {pair(1)}
    (message,) = caplog.messages
    assert message.startswith(f"memory does not accept the book of {pair(1)}: it must be stored in at most 1000 bytes")
    assert message.endswith("; leaving it out")


def test_a_target_that_always_conflicts_is_tried_again_later(mirroring: Mirroring, caplog: pytest.LogCaptureFixture):
    mirroring.start()
    mirroring.source.step()

    def interfere() -> None:
        mirroring.target.number += 1

    mirroring.target.on_update = interfere
    mirroring.source.publish(book(1, 2))
    mirroring.source.step()
    mirroring.target.on_update = None
    mirroring.source.step()
    assert spots(mirroring.target.index) == {1: "2"}
    conflict = "memory was not written to: others have changed it"
    assert f"{conflict}; retrying" in caplog.messages


@pytest.mark.decision(40)
def test_a_mirror_that_loses_its_turn_within_a_write_undoes_nothing(mirroring: Mirroring):
    """As a process that is suspended there, while another one takes over."""
    mirroring.start()
    mirroring.source.step()

    def take_over() -> None:
        mirroring.target.on_update, mirroring.is_keeping = None, False
        mirroring.target.index = mirroring.target.index.with_books(book(1, 9))
        mirroring.target.number += 1

    mirroring.target.on_update = take_over
    mirroring.source.publish(book(1, 2))
    mirroring.source.step()
    mirroring.source.step()
    assert spots(mirroring.target.index) == {1: "9"}
    mirroring.is_keeping = True
    mirroring.source.step()
    assert spots(mirroring.target.index) == {1: "2"}


def test_the_first_error_of_the_target_is_raised(mirroring: Mirroring):
    mirroring.target.failure = "failing"
    mirroring.start()
    with pytest.raises(StoreError, match="memory cannot be opened"):
        mirroring.source.step()


def test_a_source_without_a_version_does_not_open_the_target(mirroring: Mirroring):
    """Otherwise a file of orders without a block would leave an empty store."""
    mirroring.source.no_version = NoVersion()
    mirroring.start()
    mirroring.source.step()
    mirroring.source.end()
    assert (mirroring.source.raised, mirroring.opened, mirroring.target.closed) == (None, 0, 0)


def test_a_source_that_cannot_be_read_raises_and_does_not_open_the_target(mirroring: Mirroring):
    mirroring.source.error = FeedError("it is away")
    mirroring.start()
    with pytest.raises(FeedError, match="stepped cannot be read: it is away"):
        mirroring.source.step()
    assert mirroring.opened == 0


def test_a_failure_at_the_end_of_the_source_is_raised(mirroring: Mirroring):
    mirroring.start()
    mirroring.source.step()
    mirroring.target.failure = "failing"
    mirroring.source.publish(book(1, 2))
    mirroring.source.step()
    mirroring.source.end()
    assert isinstance(mirroring.source.raised, StoreError)
