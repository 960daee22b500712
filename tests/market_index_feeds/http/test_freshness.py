"""The freshness of single responses, and of books from several responses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.message import Message

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import Freshness
from market_index.wire import AS_OF, PUBLISHED_AT, format_time
from market_index_feeds.http.freshness import freshness_in, oldest
from market_index_http import endpoints as served

START = datetime(2026, 11, 22, tzinfo=UTC)


def published(number: int) -> Freshness:
    """Return the freshness of a publication by its number, by a clock that never goes back."""
    return Freshness(f"slot {number}", START + timedelta(milliseconds=number))


publications = st.integers(0, 9).map(published)
anything = st.builds(
    Freshness, st.none() | st.sampled_from("abc"), st.none() | st.integers(0, 5).map(lambda n: START + timedelta(n))
)


def headers(*fields: tuple[str, str]) -> Message:
    message = Message()
    for name, value in fields:
        message[name] = value
    return message


class TestHeaders:
    def test_the_names_are_those_that_a_service_sends(self):
        sent = served.freshness_fields(Freshness("a", START))
        assert [str(name, "ascii") for name, _ in sent] == ["market-index-as-of", "market-index-published-at"]
        assert (AS_OF, PUBLISHED_AT) == ("Market-Index-As-Of", "Market-Index-Published-At")

    @given(anything)
    def test_sent_headers_are_read_back(self, freshness: Freshness):
        sent = served.freshness_fields(freshness)
        assert freshness_in(headers(*((str(name, "ascii"), str(value, "ascii")) for name, value in sent))) == freshness

    @pytest.mark.parametrize("as_of", [["a", "a"], [""], ["\xe9"], ["a" * 201], ["a\r\n b"], []])
    def test_an_as_of_that_is_missing_repeated_or_invalid_is_not_known(self, as_of: list[str]):
        fields = [*((AS_OF, one) for one in as_of), (PUBLISHED_AT, format_time(START))]
        assert freshness_in(headers(*fields)) == Freshness(None, START)

    @pytest.mark.parametrize("time", [["2026-11-22T00:00:00Z"] * 2, ["yesterday"], ["2026-02-30T00:00:00Z"], []])
    def test_a_time_that_is_missing_repeated_or_invalid_is_not_known(self, time: list[str]):
        assert freshness_in(headers((AS_OF, "a"), *((PUBLISHED_AT, one) for one in time))) == Freshness("a")

    def test_case_and_space_around_a_value_do_not_matter(self):
        assert freshness_in(headers((AS_OF.upper(), " slot 5 \t"))) == Freshness("slot 5")


class TestOldest:
    @given(st.lists(publications, min_size=1), publications)
    def test_the_oldest_freshness_is_that_of_the_first_publication(self, seen: list[Freshness], before: Freshness):
        first = min(seen, key=lambda one: one.published_at or START)
        is_known = len(set(seen)) == 1 or first.published_at >= before.published_at  # type: ignore[operator]  # both have one
        assert oldest(seen, before) == (first if is_known else Freshness(None, first.published_at))

    @given(anything, anything)
    def test_equal_freshness_needs_no_clock(self, one: Freshness, before: Freshness):
        assert oldest([one, one], before) == one

    @given(st.lists(anything, min_size=1), anything)
    def test_the_oldest_freshness_is_one_of_those_seen(self, seen: list[Freshness], before: Freshness):
        found = oldest(seen, before)
        assert found == Freshness() or found.published_at in {one.published_at for one in seen}
        assert found.as_of is None or found in seen

    @given(st.lists(anything, min_size=1), anything)
    def test_the_order_of_responses_does_not_matter(self, seen: list[Freshness], before: Freshness):
        assert oldest(seen, before) == oldest(seen[::-1], before) == oldest(seen * 2, before)

    @given(st.lists(st.integers(-3, 3), min_size=1, max_size=5), st.data())
    def test_one_worker_never_shows_a_later_as_of_if_the_clock_jumps(self, jumps: list[int], data: st.DataObject):
        """Publications whose clock may go back, of which a round sees several, in their order."""
        times = [START]
        for jump in jumps:
            times.append(times[-1] + timedelta(seconds=jump))
        every = [Freshness(str(number), time) for number, time in enumerate(times)]
        first = data.draw(st.integers(0, len(every) - 1))
        last = data.draw(st.integers(first, len(every) - 1))
        # The round before has seen the last publication before this round.
        found = oldest(every[first : last + 1], every[first])
        assert found.as_of is None or int(found.as_of) <= first

    def test_two_publications_of_one_time_have_no_order(self):
        seen = [Freshness("a", START), Freshness("b", START), published(5)]
        assert oldest(seen, Freshness()) == Freshness(None, START)

    @pytest.mark.parametrize("known", [1, 3])
    def test_a_response_without_an_as_of_may_have_a_retained_book(self, known: int):
        retained = published(2).without_as_of()
        first = min(published(known), retained, key=lambda one: one.published_at or START)
        assert oldest([published(known), retained], Freshness()) == first.without_as_of()

    def test_a_response_without_a_time_may_be_the_oldest(self):
        assert oldest([published(1), Freshness("slot 2")], Freshness()) == Freshness()
