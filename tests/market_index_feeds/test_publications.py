"""The ages of publications do not depend on wall clocks, except for late ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf

import pytest

from market_index import Freshness
from market_index_feeds.medium import Update
from market_index_feeds.publications import Publications

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


class Clocks:
    """The clocks of this machine: the monotonic one, and how much the wall clock is ahead of it."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.jump = 0.0

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds - 1000 + self.jump)


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def seen(clocks: Clocks) -> Publications:
    return Publications(lambda: clocks.seconds, clocks.now)


def at(seconds: float, as_of: str | None = None) -> Freshness:
    """Return the freshness of a publication that many seconds before noon."""
    return Freshness(as_of, NOON - timedelta(seconds=seconds))


def add(seen: Publications, update: Update, *, is_change: bool = False, is_late: bool = False) -> None:
    seen.add(update, is_change=is_change, is_late=is_late)


class TestAges:
    def test_nothing_has_an_age_before_the_first_publication(self, seen: Publications):
        assert (seen.quiet_age, seen.change_age, seen.is_blank, seen.freshness) == (inf, inf, True, Freshness())

    def test_ages_are_durations_of_the_monotonic_clock(self, seen: Publications, clocks: Clocks):
        add(seen, Update(replaces_all=True, revision=1), is_change=True)
        clocks.seconds += 5
        clocks.jump = -3600
        assert (seen.quiet_age, seen.change_age) == (5, 5)
        add(seen, Update(freshness=at(0)))
        clocks.seconds += 1
        clocks.jump = 3600
        assert (seen.quiet_age, seen.change_age) == (1, 6)

    @pytest.mark.parametrize(
        "update", [Update(), Update(revision=1), Update(freshness=Freshness()), Update(replaces_all=True, revision=1)]
    )
    def test_a_check_that_finds_nothing_new_is_no_publication(self, seen: Publications, clocks: Clocks, update: Update):
        add(seen, Update(replaces_all=True, revision=1), is_change=True)
        clocks.seconds += 5
        add(seen, update)
        assert seen.quiet_age == 5

    @pytest.mark.parametrize(
        "update",
        [
            Update(revision=2),
            Update(freshness=at(9)),
            Update(freshness=Freshness("slot 2")),
            Update(replaces_all=True, revision=2),
        ],
    )
    def test_another_revision_time_or_as_of_is_a_publication(self, seen: Publications, clocks: Clocks, update: Update):
        add(seen, Update(replaces_all=True, revision=1, freshness=Freshness("slot 1")), is_change=True)
        clocks.seconds += 5
        add(seen, update)
        assert (seen.quiet_age, seen.change_age) == (0, 5)

    def test_an_update_that_says_so_is_a_publication(self, seen: Publications, clocks: Clocks):
        add(seen, Update(replaces_all=True))
        clocks.seconds += 5
        add(seen, Update(is_publication=True))
        assert (seen.quiet_age, seen.change_age) == (0, inf)

    def test_another_book_is_a_publication(self, seen: Publications, clocks: Clocks):
        add(seen, Update(replaces_all=True))
        clocks.seconds += 5
        add(seen, Update(), is_change=True)
        assert (seen.quiet_age, seen.change_age) == (0, 0)

    @pytest.mark.parametrize("freshness", [at(0), Freshness()])
    def test_another_book_with_the_last_publish_time_or_none_is_a_publication(
        self, seen: Publications, clocks: Clocks, freshness: Freshness
    ):
        add(seen, Update(replaces_all=True, freshness=at(0)), is_change=True)
        clocks.seconds += 5
        add(seen, Update(replaces_all=True, freshness=freshness), is_change=True)
        assert (seen.quiet_age, seen.change_age) == (0, 0)

    def test_a_revision_with_the_last_publish_time_is_no_publication(self, seen: Publications, clocks: Clocks):
        """For example, a relay restarts after the publisher has died."""
        add(seen, Update(replaces_all=True, revision=1, freshness=at(0, "slot 1")), is_change=True)
        for revision, freshness in enumerate((Freshness(), at(0), at(0, "slot 1")), 2):
            clocks.seconds += 5
            add(seen, Update(revision=revision, freshness=freshness))
        assert seen.quiet_age == 15

    def test_publish_times_that_repeat_are_no_publications(self, seen: Publications, clocks: Clocks):
        """For example, replicas of a service respond in turn, and one of them is behind."""
        add(seen, Update(replaces_all=True, freshness=at(9)), is_change=True)
        add(seen, Update(replaces_all=True, freshness=at(0)), is_change=True)
        for freshness in (at(9), at(0), at(9)):
            clocks.seconds += 5
            add(seen, Update(replaces_all=True, freshness=freshness), is_change=True)
        assert seen.quiet_age == 15
        add(seen, Update(replaces_all=True, freshness=at(-1)))
        assert seen.quiet_age == 0


class TestLate:
    """Publications that were made while the source could not be read."""

    def test_the_age_of_a_late_publication_is_by_wall_clock(self, seen: Publications, clocks: Clocks):
        add(seen, Update(replaces_all=True, freshness=at(30)), is_change=True, is_late=True)
        assert (seen.quiet_age, seen.change_age) == (30, 30)
        clocks.seconds += 1
        assert (seen.quiet_age, seen.change_age) == (31, 31)

    def test_a_publication_that_arrives_in_time_needs_no_wall_clock(self, seen: Publications):
        add(seen, Update(replaces_all=True, freshness=at(0)), is_late=True)
        add(seen, Update(freshness=at(3600)))
        assert seen.quiet_age == 0

    @pytest.mark.parametrize("freshness", [at(-3600), Freshness(), Freshness("slot 1")])
    def test_the_age_is_never_negative(self, seen: Publications, freshness: Freshness):
        """The clock of the publisher is ahead, or is not known."""
        add(seen, Update(replaces_all=True, freshness=freshness), is_late=True)
        assert seen.quiet_age == 0

    def test_a_publication_is_not_older_than_the_previous_one(self, seen: Publications, clocks: Clocks):
        """The clock of the publisher is an hour behind."""
        add(seen, Update(replaces_all=True, freshness=at(3600)))
        clocks.seconds += 10
        add(seen, Update(replaces_all=True, freshness=at(3595)), is_change=True, is_late=True)
        assert (seen.quiet_age, seen.change_age) == (10, 10)

    def test_the_same_publication_after_an_outage_is_as_old_as_before(self, seen: Publications, clocks: Clocks):
        add(seen, Update(replaces_all=True, freshness=at(0), revision=1))
        clocks.seconds += 10
        clocks.jump = 7200
        add(seen, Update(replaces_all=True, freshness=at(0), revision=1), is_late=True)
        assert seen.quiet_age == 10


class TestBlank:
    @pytest.mark.parametrize(
        "blank",
        [
            Update(replaces_all=True, is_blank=True),
            Update(replaces_all=True, is_blank=True, revision=0),
        ],
    )
    @pytest.mark.parametrize(
        "first",
        [
            Update(revision=1),
            Update(freshness=at(0)),
            Update(replaces_all=True, revision=1),
            Update(replaces_all=True, freshness=at(0)),
        ],
    )
    def test_a_source_is_blank_until_something_is_published(self, seen: Publications, blank: Update, first: Update):
        add(seen, blank, is_late=True)
        add(seen, Update(revision=blank.revision))
        assert (seen.is_blank, seen.quiet_age) == (True, inf)
        add(seen, first)
        assert (seen.is_blank, seen.quiet_age) == (False, 0)

    def test_a_source_without_books_is_not_blank(self, seen: Publications):
        add(seen, Update(replaces_all=True))
        assert (seen.is_blank, seen.quiet_age, seen.change_age) == (False, 0, inf)

    def test_a_blank_source_that_replaces_another_is_no_publication(self, seen: Publications, clocks: Clocks):
        add(seen, Update(replaces_all=True, revision=1), is_change=True)
        clocks.seconds += 5
        add(seen, Update(replaces_all=True, is_blank=True, revision=0), is_change=True)
        assert (seen.is_blank, seen.quiet_age, seen.change_age) == (True, 5, 5)


class TestFreshness:
    def test_a_delta_without_freshness_keeps_it_and_a_snapshot_resets_it(self, seen: Publications):
        add(seen, Update(replaces_all=True, freshness=at(1, "slot 1")))
        add(seen, Update())
        assert seen.freshness == at(1, "slot 1")
        add(seen, Update(freshness=at(0)))
        assert seen.freshness == at(0)
        add(seen, Update(replaces_all=True))
        assert seen.freshness == Freshness()
