"""Which pairs belong to a feed, and which of them are retracted or kept."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from market_index import LiveIndex, Pair
from market_index_feeds import Feed
from market_index_feeds.medium import Delta, Names, Rejected, Snapshot
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.scripted import Scripted, bad, live_after
from tests.waiting import WITHOUT_SHRINKING, eventually


class TestOwnership:
    """Which pairs are retracted, and which are kept."""

    def test_a_snapshot_retracts_pairs_that_it_does_not_name(self):
        assert live_after(Snapshot(books=[book(1), book(2)]), Snapshot(books=[book(3)], unchanged=[pair(2)])) == {
            2: None,
            3: None,
        }

    def test_pairs_of_others_are_not_changed(self):
        live = LiveIndex([book(7)])
        with Feed(source := Scripted(Snapshot(books=[book(1)]), Snapshot(books=[book(2)]))) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        assert spots(live) == {2: None, 7: None}

    def test_a_pair_that_the_source_contains_but_that_was_never_read_is_not_owned(self):
        live = LiveIndex([book(7)])
        with Feed(source := Scripted(Snapshot(unchanged=[pair(7)]), Snapshot(books=[book(2)]))) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        assert spots(live) == {2: None, 7: None}

    def test_a_pair_that_the_source_removes_but_that_was_never_read_is_not_owned(self):
        live = LiveIndex([book(7)])
        with Feed(source := Scripted(Snapshot(rejected=[bad(7)]), Delta(removed=[pair(7)]))) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        assert spots(live) == {7: None}

    def test_a_rejected_record_keeps_the_pair_that_it_names_until_it_is_removed(self):
        first = Snapshot(books=[book(1), book(2)])
        assert live_after(first, Snapshot(books=[book(3)], rejected=[bad(1)])) == {1: None, 3: None}
        assert live_after(first, Snapshot(books=[book(3)], rejected=[bad(1)]), Snapshot(books=[book(3)])) == {3: None}
        assert live_after(first, Snapshot(books=[book(3)], rejected=[bad(1)]), Delta(removed=[pair(1)])) == {3: None}

    def test_a_record_that_may_name_any_pair_keeps_all_and_one_that_names_none_keeps_none(self):
        first = Snapshot(books=[book(1), book(2)])
        assert set(live_after(first, Snapshot(books=[book(3)], rejected=[bad(Names.ANY)]))) == {1, 2, 3}
        assert set(live_after(first, Snapshot(books=[book(3)], rejected=[bad(Names.NONE)]))) == {3}

    def test_an_unfinished_record_keeps_pairs_until_it_is_finished(self):
        script = [Snapshot(books=[book(1), book(2)]), Snapshot(books=[book(3)], unfinished=Names.ANY)]
        assert set(live_after(*script)) == {1, 2, 3}
        assert set(live_after(*script, Delta(unfinished=pair(2)))) == {2, 3}
        assert set(live_after(*script, Delta(books=[book(2)]))) == {2, 3}

    def test_a_blank_source_keeps_all_until_it_contains_something(self):
        script = [Snapshot(books=[book(1)]), Snapshot(is_blank=True)]
        assert set(live_after(*script, Delta())) == {1}
        assert set(live_after(*script, Delta(books=[book(2)]))) == {2}
        assert set(live_after(Snapshot(books=[book(1)]), Snapshot())) == set()

    numbers = st.lists(st.integers(0, 4), max_size=4, unique=True)
    names: st.SearchStrategy[Pair | Names] = st.sampled_from([Names.ANY, Names.NONE, *map(pair, range(5))])
    rejections = st.lists(names.map(lambda names: Rejected("record", "no book", names)), max_size=2)
    books = numbers.map(lambda numbers: [book(number) for number in numbers])
    pairs = numbers.map(lambda numbers: list(map(pair, numbers)))
    snapshots = st.builds(
        Snapshot, books=books, unchanged=pairs, rejected=rejections, unfinished=names, is_blank=st.just(False)
    ) | st.just(Snapshot(is_blank=True))
    deltas = st.builds(Delta, books=books, removed=pairs, rejected=rejections, unfinished=names)

    @settings(phases=WITHOUT_SHRINKING)
    @given(st.lists(snapshots | deltas, max_size=8))
    def test_live_pairs_equal_a_model_that_decides_for_each_pair(self, script: list[Snapshot | Delta]):
        live, seen = LiveIndex(), list[set[Pair]]()
        steps = [step for update in script for step in (update, lambda: seen.append(set(live.current)))]
        with Feed(source := Scripted(Snapshot(), *steps)) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        model = Model()
        assert seen == [model.after(update) for update in script]


class Model:
    """Decides for each pair by itself whether it is live."""

    def __init__(self) -> None:
        self.live: set[Pair] = set()
        self.named: set[Pair] = set()
        self.bad: list[Pair | Names] = []
        self.blank = False

    def after(self, update: Snapshot | Delta) -> set[Pair]:
        """Return the pairs that are live after an update."""
        books = {one.pair for one in update.books}
        removed: set[Pair] = set()
        rejected = [one.names for one in update.rejected]
        if isinstance(update, Snapshot):
            self.named = books | {one for one in update.unchanged if one in self.live}
            self.bad, self.blank = rejected, update.is_blank
        else:
            removed = {one for one in update.removed if one not in books}
            self.named = {one for one in self.named if one not in removed} | books
            self.bad = [one for one in self.bad if one not in books and one not in removed] + rejected
            if books or removed or rejected or update.unfinished is not Names.NONE:
                self.blank = False
        self.live = {
            one
            for one in map(pair, range(5))
            if one in self.named or (one in self.live and one not in removed and self.is_kept(one, update.unfinished))
        }
        return self.live

    def is_kept(self, one: Pair, unfinished: Pair | Names) -> bool:
        return self.blank or any(names in {one, Names.ANY} for names in [*self.bad, unfinished])
