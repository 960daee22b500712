"""The promises of feeds and relays hold in every state that a few events reach; see `search.py`."""

from __future__ import annotations

import pytest

from tests.market_index_feeds.search import PROMISES, START, Search, Violation, run

DEPTH = 2

VIOLATED = {"published", "equal", "kept", "blank"}
"""The promises that histories of this depth break, until decisions 27 and 31 are implemented."""

not_yet = pytest.mark.xfail(strict=True, raises=Violation, reason="decisions 27 and 31 are not implemented")


def test_no_short_history_breaks_another_promise():
    search = Search()
    search.run(DEPTH)
    assert not [test for promise in PROMISES if promise not in VIOLATED for test in search.of(promise)]
    assert all(map(search.of, VIOLATED)), "a promise that is kept now must be removed from VIOLATED"
    assert search.states > 1000


def test_an_unknown_promise_is_an_error():
    with pytest.raises(KeyError):
        run(promise="fast")


class TestWhatTheSearchFound:
    """One shortest history for each cause; that of an interrupted relay was written by hand."""

    @not_yet
    def test_a_blank_medium_is_a_problem(self):
        run(promise="blank")

    @not_yet
    def test_a_recreated_source_keeps_its_pairs(self):
        run(*START, "wipe A", "settle", promise="kept")

    @not_yet
    def test_a_source_that_is_rolled_back_before_it_was_complete_keeps_its_pairs(self):
        run(*START, "lose_tail A", "settle", promise="kept")

    @not_yet
    def test_a_recreated_store_of_a_relay_keeps_its_pairs(self):
        run(*START, "wipe B", "read B", promise="kept")

    @not_yet
    def test_a_store_that_a_relay_fills_again_keeps_its_pairs(self):
        run(*START, "wipe B", "delay 1", "step", "step", "read B", promise="kept")

    @not_yet
    def test_a_restarted_relay_retracts_nothing_while_its_source_is_incomplete(self):
        run(*START, "wipe A", "publish 0", "restart", promise="kept")

    @not_yet
    def test_a_relay_corrects_a_value_that_has_the_digest_of_the_right_book(self):
        run(*START, "foreign B 0", "settle", promise="published")

    @not_yet
    def test_a_restarted_relay_corrects_a_value_that_has_the_digest_of_the_right_book(self):
        run(*START, "foreign B 0", "restart", "settle", promise="published")

    @not_yet
    def test_a_replacement_corrects_a_value_that_has_the_digest_of_the_right_book(self):
        run(*START, "foreign A 0", "replace 01", promise="published")

    @not_yet
    def test_an_invalid_record_does_not_hide_a_tombstone(self):
        run(*START, "retract 0", "unnamed", "reconnect A", promise="retracted")

    @not_yet
    def test_a_restarted_relay_retracts_the_last_pairs(self):
        run("replace 0", "settle", "retract 0", "restart", "settle", promise="equal")

    @not_yet
    def test_a_relay_compares_when_its_source_becomes_complete(self):
        run(*START, "wipe A", "restart", "replace 0", "settle", promise="equal")

    @not_yet
    def test_a_relay_relays_the_tombstone_of_a_pair_that_it_never_had(self):
        run("garbage B 0", "settle", "replace 01", "retract 0", "settle", promise="equal")


class TestWhatHolds:
    def test_junk_blocks_no_retraction_and_hides_no_as_of(self):
        run(*START, "junk A", "junk B", "settle", "retract 0", "settle", promise="equal")

    def test_an_invalid_record_blocks_no_retraction_of_another_pair(self):
        run("replace 01", "settle", "garbage A 0", "retract 1", "settle", promise="retracted")
