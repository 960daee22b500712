"""Pairs, and the entries of the pair list."""

from __future__ import annotations

from decimal import Decimal
from itertools import product
from operator import eq, ge, gt, le, lt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import (
    ADA,
    AssetId,
    InvalidAssetId,
    Pair,
    PairInfo,
)
from market_index.strategies import pairs

SNEK = AssetId(bytes.fromhex("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f"), b"SNEK")


@given(pairs())
def test_a_pair_is_parsed_from_its_text(pair: Pair):
    assert str(pair) == f"{pair.base}/{pair.quote}"
    assert Pair.parse(str(pair)) == pair
    assert Pair.parse(str(pair).upper()) == pair


@pytest.mark.parametrize(
    "text",
    [
        *("", "ADA", "/", "ADA/", "/ADA", "ada/ada", f"ADA/{SNEK}/", f"ADA//{SNEK}", f"ADA:{SNEK}", f" ADA/{SNEK}"),
        *(None, b"ADA/ADA", 7, Pair(ADA, SNEK)),
    ],
)
def test_another_value_is_not_a_pair(text: Any):
    with pytest.raises(InvalidAssetId):
        Pair.parse(text)


@pytest.mark.decision(10)
def test_a_pair_with_base_and_quote_exchanged_is_another_pair():
    assert Pair(ADA, SNEK) != Pair(SNEK, ADA)


def ledger_tuple(pair: Pair) -> tuple[bytes, ...]:
    """Return the bytes of decision 9. ADA has an empty policy id, so that it sorts first."""
    return (pair.base.policy_id, pair.base.asset_name, pair.quote.policy_id, pair.quote.asset_name)


# Names of few different bytes, which begin alike and have zero bytes.
ASSETS = st.just(ADA) | st.builds(AssetId, st.sampled_from([bytes(28), b"\1" + bytes(27)]), st.binary(max_size=3))
PAIRS = pairs() | pairs(base=ASSETS, quote=ASSETS)


@pytest.mark.decision(9)
@given(PAIRS, PAIRS)
def test_pairs_compare_as_their_bytes(one: Pair, other: Pair):
    for compare in (lt, le, gt, ge, eq):
        expected = compare(ledger_tuple(one), ledger_tuple(other))
        assert compare(one, other) == compare(one.ledger_order, other.ledger_order) == expected


def test_the_sort_keys_of_pairs_with_zero_bytes_rise_and_differ():
    names = sorted(map(bytes, (name for length in range(3) for name in product((0, 1, 255), repeat=length))))
    assets = [ADA, *(AssetId(bytes([first]) * 28, name) for first in (0, 1, 255) for name in names)]
    keys = [Pair(base, quote).ledger_order for base in assets for quote in assets]
    assert all(map(lt, keys, keys[1:]))


def test_the_last_spot_is_a_price_or_none():
    assert PairInfo(SNEK, ADA, "0.0042000").last_spot == Decimal("0.0042")
    assert PairInfo(SNEK, ADA).last_spot is None
    assert PairInfo(SNEK, ADA).pair == Pair(SNEK, ADA)
