"""A `LiveIndex` with several writers: feeds find the others, and the freshness of its books is then unknown."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from threading import Event

import pytest

from market_index import Freshness, LiveIndex, MarketIndex
from market_index_feeds import Feed
from market_index_feeds.errors import Unavailable
from market_index_feeds.medium import Update
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.scripted import Scripted, complete
from tests.waiting import DEADLINE_SECONDS, eventually

TIME = datetime(2026, 11, 22, tzinfo=UTC)


def fresh(slot: int) -> Freshness:
    return Freshness(f"slot {slot}", TIME)


def changed(number: int, slot: int) -> Update:
    """Return an update with one book, whose spot price is the slot."""
    return Update(books=[book(number, slot)], freshness=fresh(slot))


class Seen:
    """The freshness of a live index at each step of a script."""

    def __init__(self, live: LiveIndex) -> None:
        self.live = live
        self.freshness: list[Freshness] = []

    def __call__(self) -> None:
        self.freshness.append(self.live.current.freshness)


def test_the_freshness_of_a_single_feed_is_that_of_the_index(live: LiveIndex):
    see = Seen(live)
    with Feed(source := Scripted(complete(1, freshness=fresh(1)), see, changed(1, 2), see, Update(), see)) as feed:
        feed.start(live)
        eventually(lambda: not source.left)
    assert see.freshness == [fresh(1), fresh(2), fresh(2)]


def test_the_freshness_of_two_feeds_is_unknown_from_the_start_of_the_second_on(live: LiveIndex):
    gates = [Event(), Event()]
    first, second = (
        Scripted(complete(one, freshness=fresh(1)), partial(gate.wait, DEADLINE_SECONDS), changed(one, 2))
        for one, gate in enumerate(gates, 1)
    )
    with Feed(first) as feed, Feed(second) as other:
        feed.start(live)
        assert live.current.freshness == fresh(1)
        other.start(live)
        assert (set(spots(live)), live.current.freshness) == ({1, 2}, Freshness())
        for gate, source in zip(gates, (first, second), strict=True):
            gate.set()
            eventually(lambda source=source: not source.left)  # type: ignore[misc]  # a default has no type
            assert live.current.freshness == Freshness()
        assert spots(live) == {1: "2", 2: "2"}
        # Each feed still knows how fresh its own books are.
        assert feed.freshness == other.freshness == fresh(2)


def test_two_feeds_that_start_with_an_empty_index_find_each_other(live: LiveIndex):
    gate = Event()
    source = Scripted(complete(), partial(gate.wait, DEADLINE_SECONDS), changed(1, 2))
    with Feed(source) as feed, Feed(Scripted(complete(2, freshness=fresh(1)))) as other:
        feed.start(live)
        other.start(live)
        gate.set()
        eventually(lambda: not source.left)
        assert (spots(live), live.current.freshness) == ({1: "2", 2: None}, Freshness())


@pytest.mark.parametrize("published", [LiveIndex.publish, lambda live, one: live.update([one], freshness=fresh(7))])
def test_the_freshness_is_unknown_if_a_program_published_before_the_feed(live: LiveIndex, published):
    see = Seen(live)
    published(live, book(9))
    with Feed(source := Scripted(complete(1, freshness=fresh(1)), see, changed(1, 2), see)) as feed:
        feed.start(live)
        eventually(lambda: not source.left)
    assert (see.freshness, spots(live)) == ([Freshness(), Freshness()], {1: "2", 9: None})


@pytest.mark.parametrize(
    "act",
    [
        lambda live: live.publish(book(9)),
        lambda live: live.publish(book(1, 5)),
        lambda live: live.retract(pair(1)),
        lambda live: live.update([], freshness=fresh(7)),
        lambda live: live.show(MarketIndex([book(9)], "slot 7")),
    ],
    ids=["publish", "overwrite", "retract", "freshness", "show"],
)
@pytest.mark.parametrize("found", [changed(2, 2), Update(removed=[pair(2)]), Update(freshness=fresh(2)), Update()])
def test_a_feed_that_finds_a_change_of_another_writer_publishes_an_unknown_freshness_from_then_on(
    live: LiveIndex, act, found: Update
):
    see = Seen(live)
    source = Scripted(complete(1, 2, freshness=fresh(1)), see, lambda: act(live), found, see, changed(3, 3), see)
    with Feed(source) as feed:
        feed.start(live)
        eventually(lambda: not source.left)
    assert see.freshness == [fresh(1), Freshness(), Freshness()]


def test_a_feed_overwrites_and_retracts_its_pairs_but_none_of_another_writer(live: LiveIndex):
    change = Update(books=[book(1, 6)], removed=[pair(2), pair(9)])
    source = Scripted(complete(1, 2), lambda: live.publish(book(1, 5), book(9, 5)), change)
    with Feed(source) as feed:
        feed.start(live)
        eventually(lambda: not source.left)
    assert spots(live) == {1: "6", 9: "5"}


def test_a_feed_whose_source_cannot_be_read_finds_a_writer_too(live: LiveIndex):
    failing = [Unavailable("gone") for _ in range(2)]
    source = Scripted(complete(1, freshness=fresh(1)), lambda: live.publish(book(9)), *failing, lambda: None)
    with Feed(source) as feed:
        feed.start(live)
        eventually(lambda: not source.left)
        assert (set(spots(live)), live.current.freshness) == ({1, 9}, Freshness())
