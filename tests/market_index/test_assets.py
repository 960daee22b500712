"""Asset identifiers: what is read, what is refused and why, and the order of the ledger."""

from __future__ import annotations

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


def test_either_case_is_read_and_lower_case_is_printed():
    mixed = AssetId.parse(POLICY.upper() + ":534E454b")
    assert mixed == AssetId.parse(f"{POLICY}:534e454b")
    assert str(mixed) == f"{POLICY}:534e454b"


def test_the_empty_asset_name_is_legal():
    assert str(AssetId.parse(f"{POLICY}:")) == f"{POLICY}:"


@given(policy_ids(), asset_names(), st.booleans())
def test_every_token_comes_back_from_its_text(policy_id: bytes, asset_name: bytes, upper: bool):
    text = f"{policy_id.hex()}:{asset_name.hex()}"
    asset = AssetId.parse(text.upper() if upper else text)
    assert (asset.policy_id, asset.asset_name) == (policy_id, asset_name)
    assert str(asset) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is not ADA and has no colon"),
        ("ada", "it is not ADA and has no colon"),
        ("Ada", "it is not ADA and has no colon"),
        ("ADA ", "it is not ADA and has no colon"),
        ("ADA\n", "it is not ADA and has no colon"),
        ("lovelace", "it is not ADA and has no colon"),
        (".", "it is not ADA and has no colon"),
        (f"{POLICY}.534e454b", "it is not ADA and has no colon"),
        (f"{POLICY}534e454b", "it is not ADA and has no colon"),
        (":", "its policy id has the wrong length: 0 digits, not 56"),
        ("ADA:", "its policy id has the wrong length: 3 digits, not 56"),
        (f"{POLICY[:-1]}:", "its policy id has the wrong length: 55 digits, not 56"),
        (f"{POLICY}0:", "its policy id has the wrong length: 57 digits, not 56"),
        (f" {POLICY}:", "its policy id has the wrong length: 57 digits, not 56"),
        (f"{POLICY}:{'0' * 66}", "its asset name has the wrong length: 66 digits, more than 64"),
        (f"{POLICY}:5", "its asset name has an odd length: 1 digits"),
        (f"{POLICY}:00:", "its asset name has an odd length: 3 digits"),
        (f"{POLICY}:534e454b\n", "its asset name has an odd length: 9 digits"),
        (f"{POLICY}:0\n", "its asset name is not hexadecimal"),
        (f"{POLICY}: 0 ", "its asset name has an odd length: 3 digits"),
        (f"{POLICY}: 00 ", "its asset name is not hexadecimal"),
        (f"{POLICY}:0x00", "its asset name is not hexadecimal"),
        (f"{POLICY}:::", "its asset name is not hexadecimal"),
        (f"{POLICY}:gggggggg", "its asset name is not hexadecimal"),
        (f"{POLICY}:g0", "its asset name is not hexadecimal"),
        (f"{POLICY}:\u0661\u0662", "its asset name is not hexadecimal"),
        (f"{POLICY}:\uff11\uff12", "its asset name is not hexadecimal"),
        (f"{'g' * 56}:", "its policy id is not hexadecimal"),
        (f"{POLICY[:-2]} \t:", "its policy id is not hexadecimal"),
        (f"{POLICY}:\ud800\ud800", "its asset name is not hexadecimal"),
    ],
)
def test_an_invalid_identifier_is_rejected_with_the_reason(text: str, reason: str):
    with pytest.raises(InvalidAssetId) as refused:
        AssetId.parse(text)
    assert str(refused.value) == f"{safe_repr(text)} is not an asset identifier: {reason}"
    assert isinstance(refused.value, MarketIndexError)
    assert isinstance(refused.value, ValueError)


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
    with pytest.raises(InvalidAssetId) as refused:
        AssetId.parse(text)
    assert str(refused.value).startswith(f"{text!r} is not an asset identifier: its "[:79]) or "no colon" in str(
        refused.value
    )


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(InvalidAssetId) as refused:
        AssetId.parse("x" * 1_000_000)
    assert str(refused.value).partition(" is not an asset")[0] == "'" + "x" * 78 + "…"


@pytest.mark.parametrize("value", [None, 1, b"ADA", ["ADA"]])
def test_a_value_that_is_not_a_text_is_rejected(value: object):
    with pytest.raises(InvalidAssetId) as refused:
        AssetId.parse(value)  # type: ignore[arg-type]  # a caller without types
    assert str(refused.value) == f"an asset identifier must be a str, not {type(value).__name__}: {value!r}"


@pytest.mark.parametrize(
    ("policy_id", "asset_name", "message"),
    [
        (b"", b"SNEK", "b'' is not a policy id: it has 0 bytes, not 28"),
        (bytes(27), b"", f"{safe_repr(bytes(27))} is not a policy id: it has 27 bytes, not 28"),
        (bytes(29), b"", f"{safe_repr(bytes(29))} is not a policy id: it has 29 bytes, not 28"),
        (bytes(28), bytes(33), f"{safe_repr(bytes(33))} is not an asset name: it has 33 bytes, more than 32"),
        (bytearray(28), b"", f"policy_id must be bytes, not bytearray: {safe_repr(bytearray(28))}"),
        (bytes(28), "SNEK", "asset_name must be bytes, not str: 'SNEK'"),
        ("00" * 28, b"", f"policy_id must be bytes, not str: '{'00' * 28}'"),
    ],
)
def test_the_constructor_takes_only_lengths_of_the_ledger(policy_id: bytes, asset_name: bytes, message: str):
    with pytest.raises(InvalidAssetId) as refused:
        AssetId(policy_id, asset_name)
    assert str(refused.value) == message


def test_ipython_and_hypothesis_print_the_repr():
    assert pretty(AssetId.parse(f"{POLICY}:")) == f"AssetId.parse('{POLICY}:')"


@given(st.lists(asset_ids(), max_size=12))
def test_identifiers_sort_as_the_ledger_does(assets: list[AssetId]):
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
