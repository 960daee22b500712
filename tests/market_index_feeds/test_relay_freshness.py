"""The freshness that a relay writes into its store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from market_index import Freshness, OrderBook
from market_index_feeds import Store, open_feed, open_store
from tests.market_index_feeds.made_up import book, pair
from tests.market_index_feeds.media import File
from tests.market_index_feeds.relays import await_spots, read, relaying
from tests.waiting import eventually

FRESH = [Freshness(f"slot {number}", datetime(2026, 11, 22, tzinfo=UTC) + timedelta(number)) for number in range(9)]


def freshness_of(target: str) -> Freshness:
    return open_feed(target).read().freshness


class TestFreshness:
    """The store has the freshness of the feed, unless it keeps books that the feed does not have."""

    def test_freshness_is_relayed_without_a_change_of_a_book(self, source: Store, target: str):
        source.update([book(1, 1)], freshness=FRESH[1])
        with relaying(source, target):
            assert freshness_of(target) == FRESH[1]
            for passed_on in (FRESH[2], Freshness(), Freshness("slot 1"), Freshness(None, FRESH[3].published_at)):
                source.update((), freshness=passed_on)
                eventually(lambda passed_on=passed_on: freshness_of(target) == passed_on)  # type: ignore[misc]  # a default has no type
            source.update([book(1, 2)], [pair(2)], freshness=FRESH[4])
            eventually(lambda: (read(target), freshness_of(target)) == ({1: "2"}, FRESH[4]))

    def test_a_change_of_several_books_and_pairs_is_one_revision_of_a_file(self, source: Store, tmp_path: Path):
        source.update([book(1, 1), book(2, 2)], freshness=FRESH[1])
        with relaying(source, str(tmp_path / "copy.db")) as relay, open_store(relay.target) as copy:
            before = copy.revision
            source.update([book(1, 2), book(3, 3)], [pair(2)], freshness=FRESH[2])
            await_spots(relay.target, {1: "2", 3: "3"})
            assert copy.revision == before + 1

    @pytest.mark.parametrize("known", [FRESH[1], Freshness(), Freshness("slot 1")])
    def test_a_relay_that_starts_again_without_a_change_writes_nothing(
        self, source: Store, target: str, known: Freshness
    ):
        source.update([book(1, 1)], freshness=known)
        with relaying(source, target), open_store(target) as store:
            before = store.revision
        with relaying(source, target) as relay, open_store(target) as store:
            checked = relay._store
            assert checked
            eventually(checked.is_unchanged_by_others)
            assert store.revision == before

    @pytest.mark.parametrize("stored", [[book(2, 7)], []])
    def test_the_as_of_is_not_known_while_a_record_of_the_feed_is_invalid(
        self, source: Store, target: str, stored: list[OrderBook]
    ):
        """Whether or not the store keeps a book of its pair."""
        kept = {2: "7"} if stored else {}
        source.update([book(1, 1), book(2, 2)], freshness=FRESH[1])
        with open_store(target) as before:
            before.update(stored, freshness=FRESH[0])
        File(source.target).spoil(pair(2), b"nonsense")
        with relaying(source, target):
            assert (read(target), freshness_of(target)) == ({1: "1", **kept}, FRESH[1].without_as_of())
            source.update([book(1, 3)], freshness=FRESH[2])
            await_spots(target, {1: "3", **kept})
            assert freshness_of(target) == FRESH[2].without_as_of()
            source.update([book(2, 4)], freshness=FRESH[3])
            eventually(lambda: (read(target), freshness_of(target)) == ({1: "3", 2: "4"}, FRESH[3]))

    def test_the_as_of_is_not_known_while_the_store_has_a_pair_that_the_feed_does_not_name(
        self, source: Store, target: str
    ):
        source.update([book(1, 1)], freshness=FRESH[1])
        with open_store(target) as before:
            before.update([book(2, 7)], freshness=FRESH[0])
        with relaying(source, target) as relay:
            assert relay.live.current.freshness == FRESH[1]
            assert (read(target), freshness_of(target)) == ({1: "1", 2: "7"}, FRESH[1].without_as_of())
            source.update((), freshness=FRESH[2])
            eventually(lambda: freshness_of(target) == FRESH[2].without_as_of())
            source.update([book(2, 4)], freshness=FRESH[3])
            eventually(lambda: (read(target), freshness_of(target)) == ({1: "1", 2: "4"}, FRESH[3]))

    def test_the_as_of_is_not_known_while_the_feed_has_no_book(self, source: Store, target: str):
        with open_store(target) as before:
            before.update([book(1, 7)], freshness=FRESH[0])
        source.update((), freshness=FRESH[1])
        with relaying(source, target):
            assert (read(target), freshness_of(target)) == ({1: "7"}, FRESH[1].without_as_of())
            source.update([book(1, 8)], freshness=FRESH[2])
            eventually(lambda: (read(target), freshness_of(target)) == ({1: "8"}, FRESH[2]))

    def test_a_heartbeat_is_relayed_while_a_book_is_retained(self, source: Store, target: str):
        source.update([book(1, 1), book(2, 2)], freshness=FRESH[1])
        with relaying(source, target) as relay:
            File(source.target).spoil(pair(2), b"nonsense")
            eventually(lambda: relay.feed.current_rejections == 1)
            source.update((), freshness=FRESH[2])
            eventually(lambda: freshness_of(target) == FRESH[2].without_as_of())
