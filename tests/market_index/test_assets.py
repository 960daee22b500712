"""Asset identifiers: what is read, what is refused and why, and the order of the ledger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import ADA, AssetId, InvalidAssetId, MarketIndexError
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
        ("", "no colon"),
        ("ada", "no colon"),
        ("Ada", "no colon"),
        ("ADA ", "no colon"),
        ("ADA\n", "no colon"),
        ("lovelace", "no colon"),
        (".", "no colon"),
        (f"{POLICY}.534e454b", "no colon"),
        (f"{POLICY}534e454b", "no colon"),
        (":", "policy id has the wrong length: 0 digits, not 56"),
        ("ADA:", "policy id has the wrong length: 3 digits, not 56"),
        (f"{POLICY[:-1]}:", "policy id has the wrong length: 55 digits, not 56"),
        (f"{POLICY}0:", "policy id has the wrong length: 57 digits, not 56"),
        (f" {POLICY}:", "policy id has the wrong length"),
        (f"{POLICY}:{'0' * 66}", "asset name has the wrong length: 66 digits, more than 64"),
        (f"{POLICY}:5", "asset name has an odd length: 1 digits"),
        (f"{POLICY}:00:", "asset name has an odd length"),
        (f"{POLICY}:534e454b\n", "asset name has an odd length"),
        (f"{POLICY}:0\n", "asset name is not hexadecimal"),
        (f"{POLICY}: 0 ", "asset name has an odd length"),
        (f"{POLICY}: 00 ", "asset name is not hexadecimal"),
        (f"{POLICY}:0x00", "asset name is not hexadecimal"),
        (f"{POLICY}:::", "asset name is not hexadecimal"),
        (f"{POLICY}:g0", "asset name is not hexadecimal"),
        (f"{POLICY}:\u0661\u0662", "asset name is not hexadecimal"),
        (f"{POLICY}:\uff11\uff12", "asset name is not hexadecimal"),
        (f"{'g' * 56}:", "policy id is not hexadecimal"),
        (f"{POLICY[:-2]} \t:", "policy id is not hexadecimal"),
        (f"{POLICY}:\ud800\ud800", "asset name is not hexadecimal"),
    ],
)
def test_an_invalid_identifier_is_rejected_with_the_reason(text: str, reason: str):
    with pytest.raises(InvalidAssetId) as refused:
        AssetId.parse(text)
    assert reason in str(refused.value)
    assert str(refused.value).startswith(repr(text)[:79])
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
    with pytest.raises(InvalidAssetId, match="must be a str"):
        AssetId.parse(value)  # type: ignore[arg-type]  # a caller without types


@pytest.mark.parametrize(
    ("policy_id", "asset_name", "reason"),
    [
        (b"", b"SNEK", "0 bytes, not 28"),
        (bytes(27), b"", "27 bytes, not 28"),
        (bytes(29), b"", "29 bytes, not 28"),
        (bytes(28), bytes(33), "33 bytes, more than 32"),
        (bytearray(28), b"", "policy_id must be bytes, not bytearray"),
        (bytes(28), "SNEK", "asset_name must be bytes, not str"),
        ("00" * 28, b"", "policy_id must be bytes, not str"),
    ],
)
def test_the_constructor_takes_only_lengths_of_the_ledger(policy_id: bytes, asset_name: bytes, reason: str):
    with pytest.raises(InvalidAssetId, match=reason):
        AssetId(policy_id, asset_name)


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
