"""Freshness: valid values, texts, and how indexes keep it."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from market_index import Freshness, InvalidFreshness, MarketIndex, OrderBook
from market_index.errors import safe_repr
from market_index.wire import format_time, parse_time
from tests.feeds.made_up import book, pair

as_ofs = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=200).filter(
    lambda text: text == text.strip(" ")
)
offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(timezones=offsets | st.timezones()).filter(lambda time: 1 < time.year < 9999)


class TestAsOf:
    @given(as_ofs)
    @example("a" * 200)
    def test_printable_ascii_is_kept_as_it_is(self, as_of: str):
        assert Freshness(as_of).as_of == as_of


class TestPublishedAt:
    @given(times)
    def test_it_is_converted_to_utc_and_truncated_to_milliseconds(self, time: datetime):
        kept = Freshness(published_at=time).published_at
        assert kept is not None
        assert kept.tzinfo is UTC
        assert timedelta(0) <= time - kept < timedelta(milliseconds=1)
        assert kept.microsecond % 1000 == 0
        assert type(kept) is datetime


class TestDerived:
    """`Freshness.without_as_of`."""

    BEFORE = Freshness("slot 1", datetime(2026, 11, 22, tzinfo=UTC))

    def test_without_as_of_only_the_time_stays(self):
        assert self.BEFORE.without_as_of() == Freshness(None, self.BEFORE.published_at)


class TestTimesAsText:
    @given(times, offsets)
    @example(datetime(1, 1, 1, tzinfo=UTC), UTC)
    def test_a_time_round_trips_through_its_text(self, time: datetime, offset: timezone):
        kept = Freshness(published_at=time).published_at
        assert kept is not None
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
        "text",
        [
            "", "now", "2026-11-22", "2026-11-22T04:17Z", "2026-11-22T04:17:03", "2026-11-22T04:17:03.Z",
            "20261122T041703Z", "2026-11-22T04:17:03+0100", "2026-11-22T04:17:03+01:60", "2026-11-22T04:17:03-24:00",
            " 2026-11-22T04:17:03Z", "2026-11-22T04:17:03Z\n",
            "٢٠٢٦-11-22T04:17:03Z", None,
        ],
    )  # fmt: skip
    def test_another_text_is_rejected(self, text: str):
        with pytest.raises(InvalidFreshness) as raised:
            parse_time(text)
        example = "2026-11-22T04:17:03.123Z"
        assert str(raised.value) == f"a time must be in RFC 3339, such as {example}, got {safe_repr(text)}"

    @pytest.mark.parametrize(
        "text",
        ["2026-02-30T00:00:00Z", "2026-01-01T00:00:60Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00"],
    )
    def test_a_time_that_does_not_exist_is_rejected(self, text: str):
        with pytest.raises(InvalidFreshness, match=r"^a time must exist in the calendar \(.+\), got ") as raised:
            parse_time(text)
        assert str(raised.value).endswith(f", got {safe_repr(text)}")

    @pytest.mark.parametrize(
        ("time", "rule"),
        [
            (datetime(2026, 11, 22), "a datetime with a time zone"),  # noqa: DTZ001  # the subject
            ("2026-11-22T00:00:00Z", "a datetime with a time zone"),
            (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "in the years 1 to 9999"),
        ],
    )
    def test_only_a_time_that_has_a_text_is_formatted(self, time: datetime, rule: str):
        with pytest.raises(InvalidFreshness) as raised:
            format_time(time)
        assert str(raised.value) == f"a time must be {rule}, got {safe_repr(time)}"

    @pytest.mark.parametrize("text", ["2016-12-31T23:59:60Z", "2016-12-31T23:59:60.5Z", "2017-01-01T00:59:60+01:00"])
    def test_a_leap_second_is_rejected(self, text: str):
        with pytest.raises(InvalidFreshness, match=r"a time must exist in the calendar \(second must be in 0\.\.59"):
            parse_time(text)


class TestIndexes:
    TIME = datetime(2026, 11, 22, tzinfo=UTC)

    def test_an_index_and_its_copies_have_it_and_equality_excludes_it(self):
        index = MarketIndex([book(1)], "slot 1", self.TIME)
        assert (index.as_of, index.published_at) == ("slot 1", self.TIME)
        assert (MarketIndex().as_of, MarketIndex().published_at) == (None, None)
        for same in (index, copy.copy(index), copy.deepcopy(index), pickle.loads(pickle.dumps(index))):
            assert same.freshness == Freshness("slot 1", self.TIME)
            assert same == MarketIndex([book(1)])
            assert hash(same) == hash(MarketIndex([book(1)]))

    @pytest.mark.parametrize("books", [[], [book(2)], [book(number) for number in range(200)]])
    def test_a_derived_index_keeps_it(self, books: list[OrderBook]):
        index = MarketIndex(books, "slot 1", self.TIME)
        assert index.with_books(book(1)).without(pair(1)).freshness == index.freshness
        assert index.with_books().without() is index
        assert index.with_freshness(Freshness("slot 1", self.TIME)) is index
        later = index.with_freshness(Freshness("slot 2"))
        assert (later, later.freshness) == (index, Freshness("slot 2"))
        assert all(later[one.pair] is one for one in books)
        assert index.freshness == Freshness("slot 1", self.TIME)

    @pytest.mark.parametrize("freshness", ["slot 1", ("slot 1", None), b"", 0])
    def test_a_value_that_is_not_a_freshness_is_rejected(self, freshness: object):
        with pytest.raises(InvalidFreshness) as raised:
            MarketIndex().with_freshness(freshness)  # type: ignore[arg-type]  # a caller without types
        given = f"{type(freshness).__name__}: {safe_repr(freshness)}"
        assert str(raised.value) == f"freshness must be a Freshness, got {given}"
