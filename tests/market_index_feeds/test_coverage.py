"""Which pairs of a feed are retracted, and whether the as_of of its books is known (decisions 27 and 31)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from market_index import Freshness, LiveIndex, Pair
from market_index_feeds import Feed
from market_index_feeds.coverage import Coverage
from market_index_feeds.medium import Unnamed, Update
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.scripted import Scripted, bad, complete, live_after, whole
from tests.waiting import WITHOUT_SHRINKING, eventually


class TestRetracted:
    """Which pairs are retracted, and which are kept."""

    def test_a_complete_content_retracts_the_pairs_that_it_lacks(self):
        assert set(live_after(whole(1, 2), complete(3, unchanged=[pair(2)]))) == {2, 3}

    def test_an_incomplete_content_keeps_the_pairs_that_it_lacks_until_it_is_complete(self):
        assert set(live_after(whole(1, 2), whole(3))) == {1, 2, 3}
        assert set(live_after(whole(1, 2), whole(3), Update(books=[book(1)]), Update(is_complete=True))) == {1, 3}

    @pytest.mark.decision(27)
    def test_an_invalid_record_keeps_the_pairs_that_the_content_lacks_until_it_is_resolved(self):
        for record, resolving in (
            (pair(2), Update(books=[book(2)])),
            (pair(2), Update(removed=[pair(2)])),
            (pair(9), Update(removed=[pair(9)])),
            (Unnamed.UNFINISHED, Update(resolved=[Unnamed.UNFINISHED])),
        ):
            lacking = (whole(1, 2), complete(3, invalid=[record]))
            assert set(live_after(*lacking)) == {1, 2, 3}
            assert 1 not in live_after(*lacking, resolving)

    def test_an_invalid_record_does_not_keep_a_pair_that_the_source_retracts(self):
        assert set(live_after(whole(1, 2), Update(invalid=[pair(2)]), Update(removed=[pair(1)]))) == {2}
        assert set(live_after(whole(1, 2), whole(removed=[pair(1)], invalid=[pair(2)]))) == {2}

    @pytest.mark.decision(27)
    def test_a_rejected_record_that_is_only_counted_keeps_nothing(self):
        assert set(live_after(whole(1), complete(2, rejected=[bad("junk")]))) == {2}

    def test_pairs_of_others_are_not_changed(self):
        for script in (
            (whole(1), complete(2)),
            (whole(unchanged=[pair(7)]), complete(2)),
            (whole(invalid=[pair(7)]), Update(books=[book(2)], removed=[pair(7)])),
        ):
            live = LiveIndex([book(7)])
            with Feed(source := Scripted(*script)) as feed:
                feed.start(live)
                eventually(lambda source=source: not source.left)  # type: ignore[misc]  # a default has no type
            assert spots(live) == {2: None, 7: None}

    def test_a_retracted_pair_is_known_until_the_source_names_it_again(self):
        coverage, _ = Coverage().after(whole(removed=[pair(1), pair(2)]), live=[])
        coverage, _ = coverage.after(complete(2), live=[pair(3)])
        assert coverage.retracted == {pair(1), pair(3)}


class TestProblem:
    """A source that is not known to contain what is live has a problem."""

    def problem_after(self, *script: Update) -> tuple[str | None, bool]:
        with Feed(source := Scripted(*script)) as feed:
            feed.start(LiveIndex())
            eventually(lambda: not source.left)
            return feed.problem, feed.is_unknown

    @pytest.mark.decision(31)
    def test_a_source_that_lacks_live_pairs_has_a_problem_until_it_names_them_or_is_complete(self):
        lacks = "lacks live pairs, and is not complete: it must be replaced as a whole"
        assert self.problem_after(whole(1, 2), whole(3)) == (lacks, True)
        for resolving in (Update(books=[book(1), book(2)]), Update(removed=[pair(1), pair(2)]), complete()):
            assert self.problem_after(whole(1, 2), whole(3), resolving) == (None, False)

    def test_a_blank_source_has_a_problem(self):
        blank = ("contains no order book", True)
        assert self.problem_after(whole(is_blank=True)) == blank
        assert self.problem_after(whole(1), whole(is_blank=True), Update()) == blank
        assert self.problem_after(whole(is_blank=True), Update(books=[book(1)])) == (None, False)

    def test_a_source_whose_records_are_all_invalid_has_a_problem(self):
        assert self.problem_after(complete(invalid=[pair(1)])) == ("contains no order book", True)
        assert self.problem_after(complete(1, invalid=[pair(2)])) == (None, False)

    def test_a_complete_source_without_order_books_has_none(self):
        assert self.problem_after(whole(1), complete()) == (None, False)


class TestAsOf:
    """The as_of is unknown while a record is invalid or a pair absent; the publish time is known."""

    @pytest.mark.decision(27)
    def test_it_is_unknown_while_a_record_is_invalid_or_a_pair_absent(self):
        fresh = Freshness("slot 1")
        seen: list[str | None] = []
        live = LiveIndex()
        updates = [
            *(whole(1, 2, freshness=fresh), Update(invalid=[pair(1)]), Update(books=[book(1)])),
            *(whole(1, freshness=fresh), Update(books=[book(2)]), whole(2, freshness=fresh)),
            *(Update(is_complete=True), Update(rejected=[bad("junk")])),
        ]
        script = [step for update in updates for step in (update, lambda: seen.append(live.current.as_of))]
        with Feed(source := Scripted(*script)) as feed:
            feed.start(live)
            eventually(lambda: not source.left)
        assert seen == ["slot 1", None, "slot 1", None, "slot 1", None, "slot 1", "slot 1"]


NUMBERS = st.lists(st.integers(0, 4), max_size=4, unique=True)
PAIRS = NUMBERS.map(lambda numbers: list(map(pair, numbers)))
RECORDS = st.lists(st.sampled_from([Unnamed.UNREADABLE, Unnamed.UNFINISHED, *map(pair, range(5))]), max_size=2)
UPDATES = st.builds(
    Update,
    books=NUMBERS.map(lambda numbers: list(map(book, numbers))),
    removed=PAIRS,
    replaces_all=st.booleans(),
    unchanged=PAIRS,
    is_complete=st.sampled_from([None, False, True]),
    invalid=RECORDS,
    resolved=st.lists(st.sampled_from(list(Unnamed)), max_size=1),
)


@pytest.mark.decision(27, 31)
@settings(phases=WITHOUT_SHRINKING)
@given(st.lists(UPDATES, max_size=8))
def test_live_pairs_equal_a_model_that_decides_for_each_pair(script: list[Update]):
    live, seen = LiveIndex(), list[tuple[set[Pair], str | None]]()
    shown = [step for one in script for step in (one, lambda: seen.append((set(live.current), live.current.as_of)))]
    with Feed(source := Scripted(Update(replaces_all=True, freshness=Freshness("slot 1")), *shown)) as feed:
        feed.start(live)
        eventually(lambda: not source.left)
    model = Model()
    assert [pairs for pairs, _ in seen] == [model.after(update) for update in script]


class Model:
    """Decides for each pair by itself whether it is live, from all updates since the last whole content."""

    def __init__(self) -> None:
        self.live: set[Pair] = set()
        self.since: list[Update] = []

    def after(self, update: Update) -> set[Pair]:
        """Return the pairs that are live after an update."""
        self.since = [update] if update.replaces_all else [*self.since, update]
        is_whole = self.is_complete and not any(map(self.is_invalid, [*Unnamed, *map(pair, range(5))]))
        self.live = {one for one in map(pair, range(5)) if self.is_live(one, update, is_whole=is_whole)}
        return self.live

    @property
    def is_complete(self) -> bool:
        return next((one.is_complete for one in reversed(self.since) if one.is_complete is not None), False)

    def is_invalid(self, record: Pair | Unnamed) -> bool:
        for update in reversed(self.since):
            if record in update.invalid:
                return True
            if record in [*update.removed, *update.resolved, *(one.pair for one in update.books)]:
                return False
        return False

    def is_live(self, one: Pair, update: Update, *, is_whole: bool) -> bool:
        if one in [book.pair for book in update.books]:
            return True
        if one not in self.live or one in update.removed:
            return False
        return not is_whole or self.is_named(one)

    def is_named(self, one: Pair) -> bool:
        # Only a whole content names pairs without their books.
        whole = [unchanged for update in self.since if update.replaces_all for unchanged in update.unchanged]
        return one in whole or any(one == book.pair for update in self.since for book in update.books)
