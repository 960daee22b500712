"""Commit lines and retract lines: which lines they are, their values, and their faults."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import ADA, AssetId, Freshness, InvalidAssetId, InvalidFreshness, InvalidOrderBook, Pair, wire
from market_index.strategies import freshness, pairs
from market_index_feeds.line_json import CommitLine, commit_to_json, marker_from_json, retraction_to_json

PAIR = Pair(AssetId(bytes(28), b"SNEK"), ADA)
RETRACTION = {"retract": True, "base": str(PAIR.base), "quote": "ADA"}


@pytest.mark.parametrize(
    "text",
    [
        b'{"as_of": "slot 1", "base": null}',
        b'{"as_of": "slot 1", "quote": "ADA"}',
        b'{"base": "ADA", "quo{"as_of": "slot 1"}',
        b'["as_of", "retract"]',
        b'{"of": {"as_of": "slot 1", "retract": true}}',
        b'{"base": "retract"}',
        b'{"retract"',
    ],
)
def test_another_text_is_neither(text: bytes):
    assert marker_from_json(text) is None


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (RETRACTION | {"retract": False}, InvalidOrderBook, "retract: must be true, got False"),
        (RETRACTION | {"retract": 1}, InvalidOrderBook, "retract: must be true, got 1"),
        (RETRACTION | {"bids": []}, InvalidOrderBook, "unknown key 'bids'"),
        ({"retract": True, "base": "ADA"}, InvalidOrderBook, "quote: missing"),
        (RETRACTION | {"base": "lovelace"}, InvalidAssetId, "base: an asset identifier must be ADA or policy:name in "),
        (RETRACTION | {"base": 7}, InvalidAssetId, "base: an asset identifier must be a str, got int: 7"),
        ({"as_of": [7], "as": "of"}, InvalidFreshness, "as_of: must be a string, got an array: [7]"),
        ({"as_of": None, "recorded_at": "today"}, InvalidFreshness, "recorded_at: a time must be in RFC 3339"),
        ({"as_of": None, "recorded_at": 7}, InvalidFreshness, "recorded_at: must be a string, got a number: 7"),
        ({"as_of": None, "retract": True}, InvalidFreshness, "unknown key 'retract'"),
    ],
)
def test_a_fault_is_named(value: Any, error: type[Exception], message: str):
    with pytest.raises(error) as raised:
        marker_from_json(json.dumps(value).encode())
    assert type(raised.value) is error
    assert str(raised.value).startswith(message)


@given(pairs())
def test_a_retract_line_round_trips(pair: Pair):
    assert marker_from_json(retraction_to_json(pair)) == pair


@given(freshness(), st.none() | st.datetimes(timezones=st.just(UTC)))
def test_a_commit_line_round_trips_and_is_a_freshness(freshness: Freshness, recorded_at: datetime | None):
    text = commit_to_json(CommitLine(freshness, recorded_at))
    recorded = None if recorded_at is None else wire.parse_time(wire.format_time(recorded_at))
    assert marker_from_json(text) == CommitLine(freshness, recorded)
    assert wire.freshness_from_json(text) == freshness
