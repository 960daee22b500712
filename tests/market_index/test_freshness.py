"""Freshness: valid values, texts, and how indexes keep it. Invalid values are in test_values."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from market_index import Freshness, InvalidFreshness, MarketIndex, OrderBook
from market_index.errors import safe_repr
from market_index.wire import format_time, parse_time
from tests.feeds.made_up import book, pair

offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(timezones=offsets | st.timezones()).filter(lambda time: 1 < time.year < 9999)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=200))
@example("a" * 200)
def test_printable_ascii_without_a_space_at_an_end_is_kept_as_it_is(as_of: str):
    if as_of == as_of.strip():
        assert Freshness(as_of).as_of == as_of
    else:
        with pytest.raises(InvalidFreshness):
            Freshness(as_of)


def test_without_as_of_only_the_time_stays():
    time = datetime(2026, 11, 22, tzinfo=UTC)
    assert Freshness("slot 1", time).without_as_of() == Freshness(None, time)


class TestTimes:
    @given(times, offsets)
    @example(datetime(1, 1, 1, tzinfo=UTC), UTC)
    def test_a_time_is_truncated_to_milliseconds_in_utc_and_round_trips_through_its_text(
        self, time: datetime, offset: timezone
    ):
        kept = Freshness(published_at=time).published_at
        assert kept is not None
        assert (type(kept), kept.tzinfo, kept.microsecond % 1000) == (datetime, UTC, 0)
        assert timedelta(0) <= time - kept < timedelta(milliseconds=1)
        text = format_time(kept)
        assert format_time(time) == text
        assert (len(text), text[-5], text[-1]) == (24, ".", "Z")
        assert parse_time(text) == kept
        if kept.year > 1:
            assert parse_time(kept.astimezone(offset).isoformat()) == kept

    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ("2026-11-22T04:17:03Z", "2026-11-22T04:17:03.000Z"),
            ("2026-11-22t04:17:03z", "2026-11-22T04:17:03.000Z"),
            ("2026-11-22 04:17:03.1+00:00", "2026-11-22T04:17:03.100Z"),
            ("2026-11-22T04:17:03.123999999-00:00", "2026-11-22T04:17:03.123Z"),
            ("2026-11-22T23:59:59.999-05:30", "2026-11-23T05:29:59.999Z"),
        ],
    )
    def test_every_form_of_rfc_3339_is_read(self, text: str, wanted: str):
        assert format_time(parse_time(text)) == wanted

    @pytest.mark.parametrize(
        ("text", "rule"),
        [
            *[
                (text, "a time must be in RFC 3339, such as 2026-11-22T04:17:03.123Z, got ")
                for text in (
                    *("", "now", "2026-11-22", "2026-11-22T04:17Z", "2026-11-22T04:17:03", "2026-11-22T04:17:03.Z"),
                    *("20261122T041703Z", "2026-11-22T04:17:03+0100", "2026-11-22T04:17:03+01:60", None),
                    *(" 2026-11-22T04:17:03Z", "2026-11-22T04:17:03Z\n", "٢٠٢٦-11-22T04:17:03Z"),
                    "2026-11-22T04:17:03-24:00",
                )
            ],
            *[
                (text, "a time must exist in the calendar (")
                for text in (
                    *("2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00"),
                    *("2016-12-31T23:59:60Z", "2016-12-31T23:59:60.5Z", "2017-01-01T00:59:60+01:00"),  # leap seconds
                )
            ],
        ],
    )
    def test_another_text_is_rejected(self, text: Any, rule: str):
        with pytest.raises(InvalidFreshness) as raised:
            parse_time(text)
        assert str(raised.value).startswith(rule)
        assert str(raised.value).endswith(f", got {safe_repr(text)}")

    @pytest.mark.parametrize("time", [datetime(2026, 11, 22), "2026-11-22T00:00:00Z"])  # noqa: DTZ001  # the subject
    def test_only_a_time_that_has_a_text_is_formatted(self, time: Any):
        with pytest.raises(InvalidFreshness, match=r"^a time must be a datetime with a time zone, got "):
            format_time(time)


class TestIndexes:
    TIME = datetime(2026, 11, 22, tzinfo=UTC)

    def test_an_index_and_its_copies_have_it_and_equality_excludes_it(self):
        index = MarketIndex([book(1)], "slot 1", self.TIME)
        assert (index.as_of, index.published_at) == ("slot 1", self.TIME)
        assert (MarketIndex().as_of, MarketIndex().published_at) == (None, None)
        for same in (index, copy.copy(index), pickle.loads(pickle.dumps(index))):
            assert same.freshness == Freshness("slot 1", self.TIME)
            assert same == MarketIndex([book(1)])
            assert hash(same) == hash(MarketIndex([book(1)]))

    @pytest.mark.parametrize("books", [[], [book(2)], [book(number) for number in range(200)]])
    def test_a_derived_index_keeps_it(self, books: list[OrderBook]):
        index = MarketIndex(books, "slot 1", self.TIME)
        assert index.with_books(book(1)).without(pair(1)).freshness == index.freshness
        assert index.with_freshness(Freshness("slot 1", self.TIME)) is index
        later = index.with_freshness(Freshness("slot 2"))
        assert (later, later.freshness) == (index, Freshness("slot 2"))
        assert all(later[one.pair] is one for one in books)
        with pytest.raises(InvalidFreshness, match=r"^freshness must be a Freshness, got str: 'slot 1'$"):
            index.with_freshness("slot 1")  # type: ignore[arg-type]  # a caller without types
