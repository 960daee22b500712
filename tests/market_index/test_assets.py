"""Asset identifiers: which texts are read in each spelling, which are rejected and why, and their order."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.vendor.pretty import pretty

from market_index import ADA, AssetId, InvalidAssetId
from market_index.strategies import asset_ids
from tests.conftest import RECORDED
from tests.market_index.invalid_texts import invalid_asset_id_texts
from tests.oracles.comparison import compare_asset

POLICY = "279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f"
SNEK = AssetId(bytes.fromhex(POLICY), b"SNEK")


def test_ada_is_the_asset_without_policy_id_and_name():
    assert AssetId.parse("ADA") == ADA == AssetId(b"", b"")
    assert str(ADA) == repr(ADA) == "ADA"
    assert (ADA.is_ada, SNEK.is_ada) == (True, False)


def test_ipython_and_hypothesis_print_the_repr():
    assert pretty(SNEK) == repr(SNEK) == f"AssetId.parse('{POLICY}:534e454b')"


@pytest.mark.decision(6, 7, 8)
@given(
    st.text(alphabet=st.sampled_from("0aF:gADé \n٣"), max_size=130)
    | invalid_asset_id_texts()
    | st.builds(
        lambda asset, write, change: change(write(asset)),
        asset_ids(),
        st.sampled_from([str, attrgetter("unit"), attrgetter("dotted")]),
        st.sampled_from([str, str.upper]),
    )
)
@example(" " + POLICY + ":")
@example(f"{POLICY}:0\n")
@example(f"{POLICY}: 00 ")
@example(f"{POLICY}:0x00")
@example(f"{POLICY}:\u0661\u0662")
@example(f"{POLICY}:\ud800\ud800")
@example(f"{POLICY[:-2]} \t:")
@example(f"{POLICY}.zz")
@example(f"{POLICY}..")
@example(f"{POLICY}.")
@example(POLICY)
@example(SNEK.unit)
@example(str(SNEK.fingerprint))
def test_each_constructor_reads_the_asset_of_the_grammar(text: str):
    compare_asset(text)


def test_recorded_identifiers_are_those_of_the_grammar():
    for line in (RECORDED / "cardano-assets.ndjson").read_text().splitlines()[::20]:
        for separator in (":", ".", ""):
            compare_asset(json.loads(line)["asset"].replace(":", separator))


@pytest.mark.parametrize("read", [AssetId.parse, AssetId.from_unit, AssetId.from_dotted])
@pytest.mark.parametrize("value", [None, 1, b"ADA", ADA])
def test_a_value_that_is_not_a_text_is_rejected(read: Any, value: object):
    with pytest.raises(InvalidAssetId) as raised:
        read(value)
    assert str(raised.value) == f"an asset identifier must be a str, got {type(value).__name__}: {value!r}"


def test_only_the_dotted_text_that_the_caller_names_is_ada():
    assert AssetId.from_dotted("lovelace") == AssetId.from_dotted(".", ada=".") == ADA
    for text, ada in ((".", "lovelace"), ("lovelace", "."), ("ADA", "lovelace"), ("", ".")):
        with pytest.raises(InvalidAssetId, match="the policy id must have 56 digits"):
            AssetId.from_dotted(text, ada=ada)


@pytest.mark.decision(9)
@given(st.lists(asset_ids(), max_size=12))
def test_identifiers_sort_in_ledger_order(them: list[AssetId]):
    def ledger_key(asset: AssetId) -> tuple[bool, bytes, bytes]:
        policy_id, _, name = str(asset).partition(":")
        return (False, b"", b"") if policy_id == "ADA" else (True, bytes.fromhex(policy_id), bytes.fromhex(name))

    assert sorted(them) == sorted(them, key=ledger_key)
