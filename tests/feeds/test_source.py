"""The rules of versions that a source applies, where no medium reaches them; the contract has the others."""

from __future__ import annotations

import logging

import pytest

from market_index import Freshness, MarketIndex, RestingOrders
from market_index_feeds import NoVersion, Position, Version
from tests.feeds.made_up import book, pair, spots
from tests.feeds.scripted import ScriptedSource

ONE, TWO, THREE = pair(1), pair(2), pair(3)


@pytest.fixture
def source() -> ScriptedSource:
    source = ScriptedSource()
    source.derive([book(1, 1), book(2, 2), book(3, 3)], is_whole=True, freshness=Freshness("slot 1"))
    return source


def spots_of(source: ScriptedSource) -> dict[int, str | None]:
    assert source.last is not None
    return spots(source.last.index)


def test_a_book_wins_over_a_retraction_and_an_earlier_book_of_its_pair(source: ScriptedSource):
    source.derive([book(1, 8), book(1, 9)], [ONE, TWO])
    assert spots_of(source) == {1: "9", 3: "3"}


@pytest.mark.decision(27)
def test_pairs_that_the_content_lacks_stay_while_a_record_may_be_of_any_pair(source: ScriptedSource):
    source.derive([book(1, 1)], is_whole=True, invalid=[None])
    source.derive([book(2, 4)], invalid=[THREE])
    assert spots_of(source) == {1: "1", 2: "4", 3: "3"}
    source.derive([book(1, 5)], is_whole=True, unfinished=[None])
    source.derive([], invalid=[THREE], unfinished=[None])
    assert spots_of(source) == {1: "5", 2: "4", 3: "3"}
    source.derive([])
    assert spots_of(source) == {1: "5", 3: "3"}
    source.derive([], [THREE])
    assert spots_of(source) == {1: "5"}


@pytest.mark.decision(24)
def test_a_pair_is_invalid_until_it_has_a_valid_record_or_the_content_is_whole(source: ScriptedSource):
    def found(version: object) -> tuple[object, ...]:
        assert isinstance(version, Version)
        return version.index.as_of, version.invalid

    fresh = Freshness("slot 2")
    assert found(source.derive([book(2, 4)], invalid=[ONE, TWO], freshness=fresh)) == (None, {ONE, TWO})
    assert found(source.derive([book(1, 5)], freshness=fresh)) == (None, {TWO})
    assert found(source.derive([], [TWO], invalid=[None], freshness=fresh)) == (None, {None})
    assert found(source.derive([book(1, 5)], is_whole=True, freshness=fresh)) == ("slot 2", frozenset())


@pytest.mark.decision(31)
def test_content_that_is_not_complete_is_remembered_and_is_no_version(source: ScriptedSource):
    before = source.last
    assert source.derive([book(1, 7)], is_whole=True, incomplete="is cut") == NoVersion("is cut")
    assert (source.last, spots(source.content.index)) == (before, {1: "7"})
    source.derive([book(2, 8)])
    assert spots_of(source) == {1: "7", 2: "8"}


@pytest.mark.decision(31)
def test_content_without_a_book_and_a_retraction_is_no_version(source: ScriptedSource):
    position = Position("run", 1)
    assert source.derive([], is_whole=True, position=position) == NoVersion("contains no order book")
    assert (source.content.index, source.content.position, spots_of(source)) == (
        MarketIndex(),
        position,
        {1: "1", 2: "2", 3: "3"},
    )
    assert source.derive([], invalid=[ONE]) == NoVersion("contains no valid order book")
    # What was published since then is the whole content, but the valid book of an invalid record stays.
    source.derive([book(2, 4)], invalid=[ONE])
    assert spots_of(source) == {1: "1", 2: "4"}
    assert source.content is source.last


def test_a_retraction_makes_an_empty_version(source: ScriptedSource):
    version = source.derive([], [ONE], is_whole=True)
    assert (version, spots_of(source)) == (source.last, {})


def test_a_version_follows_if_only_its_orders_or_its_problem_differ(source: ScriptedSource):
    index, first, second = MarketIndex(), RestingOrders(), RestingOrders()
    version = source.version_of(index, orders=first)
    assert source.version_of(index, orders=first) is version
    assert source.version_of(index, orders=second).orders is second
    assert source.version_of(index, orders=second, problem="is away").problem == "is away"


def test_a_record_that_stays_invalid_is_counted_and_logged_once(
    source: ScriptedSource, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        source.reject_new({"row 1": "is odd"})
        source.reject_new({"row 1": "is odd", "row 2": "is even"})
        source.reject_new({"row 2": "is even"})
        source.reject_new({"row 1": "is odd again"})
    assert caplog.messages == [
        "scripted: row 1 rejected: is odd",
        "scripted: row 2 rejected: is even",
        "scripted: row 1 rejected: is odd again",
    ]
    assert source.rejected == 3
