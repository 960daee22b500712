"""Asset identifiers: which texts are read, which are rejected and why, and their order."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.vendor.pretty import pretty

from market_index import ADA, AssetId, InvalidAssetId, MarketIndexError
from market_index.errors import safe_repr
from market_index.strategies import asset_ids, asset_names, invalid_asset_id_texts, policy_ids

POLICY = "279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f"


def test_ada_is_the_asset_without_policy_id_and_name():
    assert AssetId.parse("ADA") == ADA == AssetId(b"", b"")
    assert str(ADA) == repr(ADA) == "ADA"
    assert ADA.is_ada


def test_a_token_is_read_into_its_bytes():
    asset = AssetId.parse(f"{POLICY}:534e454b")
    assert asset.policy_id == bytes.fromhex(POLICY)
    assert asset.asset_name == b"SNEK"
    assert not asset.is_ada
    assert repr(asset) == f"AssetId.parse('{POLICY}:534e454b')"


@pytest.mark.decision(7)
def test_either_case_is_read_and_lower_case_is_printed():
    mixed = AssetId.parse(POLICY.upper() + ":534E454b")
    assert mixed == AssetId.parse(f"{POLICY}:534e454b")
    assert str(mixed) == f"{POLICY}:534e454b"


@pytest.mark.decision(6)
def test_the_empty_asset_name_is_legal():
    assert str(AssetId.parse(f"{POLICY}:")) == f"{POLICY}:"


@given(policy_ids(), asset_names(), st.booleans())
def test_every_token_round_trips_through_its_text(policy_id: bytes, asset_name: bytes, upper: bool):
    text = f"{policy_id.hex()}:{asset_name.hex()}"
    asset = AssetId.parse(text.upper() if upper else text)
    assert (asset.policy_id, asset.asset_name) == (policy_id, asset_name)
    assert str(asset) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "an asset identifier must be ADA or policy:name in hex, got"),
        ("ada", "an asset identifier must be ADA or policy:name in hex, got"),
        ("Ada", "an asset identifier must be ADA or policy:name in hex, got"),
        ("ADA ", "an asset identifier must be ADA or policy:name in hex, got"),
        ("ADA\n", "an asset identifier must be ADA or policy:name in hex, got"),
        ("lovelace", "an asset identifier must be ADA or policy:name in hex, got"),
        (".", "an asset identifier must be ADA or policy:name in hex, got"),
        (f"{POLICY}.534e454b", "an asset identifier must be ADA or policy:name in hex, got"),
        (f"{POLICY}534e454b", "an asset identifier must be ADA or policy:name in hex, got"),
        (":", "the policy id must have 56 digits, got 0:"),
        ("ADA:", "the policy id must have 56 digits, got 3:"),
        (f"{POLICY[:-1]}:", "the policy id must have 56 digits, got 55:"),
        (f"{POLICY}0:", "the policy id must have 56 digits, got 57:"),
        (f" {POLICY}:", "the policy id must have 56 digits, got 57:"),
        (f"{POLICY}:{'0' * 66}", "the asset name must have at most 64 digits, got 66:"),
        (f"{POLICY}:5", "the asset name must have an even number of digits, got 1:"),
        (f"{POLICY}:00:", "the asset name must have an even number of digits, got 3:"),
        (f"{POLICY}:534e454b\n", "the asset name must have an even number of digits, got 9:"),
        (f"{POLICY}:0\n", "the asset name must be hexadecimal, got"),
        (f"{POLICY}: 0 ", "the asset name must have an even number of digits, got 3:"),
        (f"{POLICY}: 00 ", "the asset name must be hexadecimal, got"),
        (f"{POLICY}:0x00", "the asset name must be hexadecimal, got"),
        (f"{POLICY}:::", "the asset name must be hexadecimal, got"),
        (f"{POLICY}:gggggggg", "the asset name must be hexadecimal, got"),
        (f"{POLICY}:g0", "the asset name must be hexadecimal, got"),
        (f"{POLICY}:\u0661\u0662", "the asset name must be hexadecimal, got"),
        (f"{POLICY}:\uff11\uff12", "the asset name must be hexadecimal, got"),
        (f"{'g' * 56}:", "the policy id must be hexadecimal, got"),
        (f"{POLICY[:-2]} \t:", "the policy id must be hexadecimal, got"),
        (f"{POLICY}:\ud800\ud800", "the asset name must be hexadecimal, got"),
    ],
)
def test_an_invalid_identifier_is_rejected_with_the_reason(text: str, reason: str):
    with pytest.raises(InvalidAssetId) as raised:
        AssetId.parse(text)
    assert str(raised.value) == f"{reason} {safe_repr(text)}"
    assert isinstance(raised.value, MarketIndexError)
    assert isinstance(raised.value, ValueError)


@given(st.text(alphabet=st.sampled_from("0aF:gADé \n٣"), max_size=130))
def test_a_text_is_an_identifier_if_the_contract_says_so(text: str):
    hexadecimal = set("0123456789abcdefABCDEF")
    policy_id, colon, name = text.partition(":")
    is_token = (
        colon == ":"
        and len(policy_id) == 56
        and len(name) <= 64
        and len(name) % 2 == 0
        and set(policy_id + name) <= hexadecimal
    )
    if is_token or text == "ADA":
        assert str(AssetId.parse(text)) == ("ADA" if text == "ADA" else text.lower())
    else:
        with pytest.raises(InvalidAssetId):
            AssetId.parse(text)


@given(invalid_asset_id_texts())
def test_an_identifier_with_one_fault_is_rejected(text: str):
    with pytest.raises(InvalidAssetId) as raised:
        AssetId.parse(text)
    assert re.match(r"(an asset identifier|the policy id|the asset name) must ", str(raised.value))
    assert str(raised.value).endswith(f" {safe_repr(text)}")


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(InvalidAssetId) as raised:
        AssetId.parse("x" * 1_000_000)
    assert str(raised.value).partition(", got ")[2] == "'" + "x" * 78 + "…"


@pytest.mark.parametrize("value", [None, 1, b"ADA", ["ADA"]])
def test_a_value_that_is_not_a_text_is_rejected(value: object):
    with pytest.raises(InvalidAssetId) as raised:
        AssetId.parse(value)  # type: ignore[arg-type]  # a caller without types
    assert str(raised.value) == f"an asset identifier must be a str, got {type(value).__name__}: {value!r}"


@pytest.mark.decision(6)
@pytest.mark.parametrize(
    ("policy_id", "asset_name", "message"),
    [
        (b"", b"SNEK", "policy_id must have 28 bytes, got 0: b''"),
        (bytes(27), b"", f"policy_id must have 28 bytes, got 27: {safe_repr(bytes(27))}"),
        (bytes(29), b"", f"policy_id must have 28 bytes, got 29: {safe_repr(bytes(29))}"),
        (bytes(28), bytes(33), f"asset_name must have at most 32 bytes, got 33: {safe_repr(bytes(33))}"),
        (bytearray(28), b"", f"policy_id must be bytes, got bytearray: {safe_repr(bytearray(28))}"),
        (bytes(28), "SNEK", "asset_name must be bytes, got str: 'SNEK'"),
        ("00" * 28, b"", f"policy_id must be bytes, got str: '{'00' * 28}'"),
    ],
)
def test_the_constructor_accepts_only_lengths_that_the_ledger_allows(policy_id: bytes, asset_name: bytes, message: str):
    with pytest.raises(InvalidAssetId) as raised:
        AssetId(policy_id, asset_name)
    assert str(raised.value) == message


def test_ipython_and_hypothesis_print_the_repr():
    assert pretty(AssetId.parse(f"{POLICY}:")) == f"AssetId.parse('{POLICY}:')"


@given(st.lists(asset_ids(), max_size=12))
def test_identifiers_sort_in_ledger_order(assets: list[AssetId]):
    def ledger_key(asset: AssetId) -> tuple[bool, bytes, bytes]:
        text = str(asset)
        policy_id, _, name = text.partition(":")
        return (True, bytes.fromhex(policy_id), bytes.fromhex(name)) if text != "ADA" else (False, b"", b"")

    assert sorted(assets) == sorted(assets, key=ledger_key)


@given(asset_ids(), asset_ids())
def test_identifiers_are_equal_when_their_texts_are(one: AssetId, other: AssetId):
    assert (one == other) == (str(one) == str(other))
    assert (one < other) + (one == other) + (one > other) == 1
    if one == other:
        assert hash(one) == hash(other)
