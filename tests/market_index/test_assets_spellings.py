"""The spellings of asset identifiers in other programs: each is read by its own constructor and written back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given

from market_index import ADA, AssetId, InvalidAssetId
from market_index.errors import safe_repr
from market_index.strategies import asset_ids

POLICY = "279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f"
SNEK = AssetId.parse(f"{POLICY}:534e454b")


class TestUnit:
    """`AssetId.from_unit` and `.unit`: policy id and asset name concatenated, or `lovelace`."""

    def test_it_is_read_and_written(self):
        assert AssetId.from_unit(f"{POLICY}534e454b") == SNEK
        assert SNEK.unit == f"{POLICY}534e454b"
        assert AssetId.from_unit(POLICY) == AssetId(bytes.fromhex(POLICY), b"")
        assert AssetId.from_unit(f"{POLICY}534E454B".upper()) == SNEK

    @given(asset_ids())
    def test_every_asset_round_trips(self, asset: AssetId):
        assert asset.unit == ("lovelace" if asset == ADA else str(asset).replace(":", ""))
        assert AssetId.from_unit(asset.unit) == asset

    @pytest.mark.parametrize(
        ("unit", "reason"),
        [
            ("", "the policy id must have 56 digits, got 0:"),
            ("ADA", "the policy id must have 56 digits, got 3:"),
            ("Lovelace", "the policy id must have 56 digits, got 8:"),
            ("lovelace ", "the policy id must have 56 digits, got 9:"),
            (".", "a unit must not have a dot (AssetId.from_dotted reads policy.name), got"),
            (POLICY[:-1], "the policy id must have 56 digits, got 55:"),
            (f"{POLICY}5", "the asset name must have an even number of digits, got 1:"),
            (f"{POLICY}:", "a unit must not have a colon (AssetId.parse reads policy:name), got"),
            (f"{POLICY}:534e454b", "a unit must not have a colon (AssetId.parse reads policy:name), got"),
            (f"{POLICY}.534e454b", "a unit must not have a dot (AssetId.from_dotted reads policy.name), got"),
            (f"{POLICY}zz", "the asset name must be hexadecimal, got"),
            (f"{POLICY}{'0' * 66}", "the asset name must have at most 64 digits, got 66:"),
            (f"{POLICY} 0", "the asset name must be hexadecimal, got"),
        ],
    )
    def test_any_other_text_is_rejected(self, unit: str, reason: str):
        with pytest.raises(InvalidAssetId) as raised:
            AssetId.from_unit(unit)
        assert str(raised.value) == f"{reason} {safe_repr(unit)}"


class TestDotted:
    """`AssetId.from_dotted` and `.dotted`: `policy.name`, or the text for ADA."""

    def test_it_is_read_and_written(self):
        assert AssetId.from_dotted(f"{POLICY}.534e454b") == SNEK
        assert SNEK.dotted == f"{POLICY}.534e454b"
        assert AssetId.from_dotted(f"{POLICY}.534E454B".upper()) == SNEK

    def test_the_empty_name_may_omit_the_dot(self):
        nameless = AssetId(bytes.fromhex(POLICY), b"")
        assert AssetId.from_dotted(POLICY) == AssetId.from_dotted(f"{POLICY}.") == nameless
        assert nameless.dotted == POLICY

    def test_only_the_text_that_the_caller_names_is_ada(self):
        assert AssetId.from_dotted("lovelace") == AssetId.from_dotted(".", ada=".") == ADA
        for text, ada in ((".", "lovelace"), ("lovelace", "."), ("ADA", "lovelace"), ("", "lovelace"), ("", ".")):
            with pytest.raises(InvalidAssetId, match="the policy id must have 56 digits"):
                AssetId.from_dotted(text, ada=ada)

    @pytest.mark.parametrize("ada", ["", POLICY, f"{POLICY}.534e454b", None, [], b"."])
    def test_a_name_for_ada_that_another_asset_could_have_is_rejected(self, ada: object):
        with pytest.raises(ValueError, match="ada must be") as raised:
            AssetId.from_dotted("lovelace", ada=ada)  # type: ignore[arg-type]  # a caller without types
        assert str(raised.value) == (
            f"ada must be a str of 1 to 55 characters, such as 'lovelace' or '.', got {safe_repr(ada)}"
        )

    @given(asset_ids())
    def test_every_asset_round_trips(self, asset: AssetId):
        expected = "lovelace" if asset == ADA else str(asset).replace(":", ".") if asset.asset_name else str(asset)[:-1]
        assert asset.dotted == expected
        assert AssetId.from_dotted(asset.dotted) == asset

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (f"{POLICY}:534e454b", "the separator must be a dot, not a colon (AssetId.parse reads policy:name), got"),
            (f"{POLICY}534e454b", "the policy id must have 56 digits, got 64:"),
            (f"{POLICY}..", "the asset name must have an even number of digits, got 1:"),
            (f"{POLICY}.5", "the asset name must have an even number of digits, got 1:"),
            (f"{POLICY}.zz", "the asset name must be hexadecimal, got"),
            (f" {POLICY}", "the policy id must have 56 digits, got 57:"),
        ],
    )
    def test_any_other_text_is_rejected(self, text: str, reason: str):
        with pytest.raises(InvalidAssetId) as raised:
            AssetId.from_dotted(text)
        assert str(raised.value) == f"{reason} {safe_repr(text)}"


@pytest.mark.decision(8)
@given(asset_ids())
def test_no_spelling_is_taken_for_another(asset: AssetId):
    spellings = {AssetId.parse: str(asset), AssetId.from_unit: asset.unit, AssetId.from_dotted: asset.dotted}
    for read, own in spellings.items():
        for text in spellings.values():
            if text != own:
                # Of a token without a name, the unit and the dotted text are both the policy id.
                with pytest.raises(InvalidAssetId):
                    read(text)


@pytest.mark.parametrize("read", [AssetId.from_unit, AssetId.from_dotted])
@pytest.mark.parametrize("value", [None, 1, b"lovelace", ADA])
def test_a_value_that_is_not_a_text_is_rejected(read, value: object):
    with pytest.raises(InvalidAssetId, match="an asset identifier must be a str, got "):
        read(value)


class Octets:
    """Replaces an object of pycardano, such as ScriptHash: it has only bytes."""

    def __init__(self, octets: bytes) -> None:
        self.octets = octets

    def __bytes__(self) -> bytes:
        return self.octets


class TestPycardano:
    """`AssetId.from_pycardano`: the objects of the package pycardano."""

    @given(asset_ids(ada=False))
    def test_a_token_is_read_from_its_bytes(self, asset: AssetId):
        assert AssetId.from_pycardano(Octets(asset.policy_id), Octets(asset.asset_name)) == asset

    @pytest.mark.thorough  # importing pycardano takes two seconds
    @given(asset_ids(ada=False))
    def test_a_token_is_read_from_real_objects(self, asset: AssetId):
        from pycardano import AssetName, MultiAsset, ScriptHash

        assert AssetId.from_pycardano(ScriptHash(asset.policy_id), AssetName(asset.asset_name)) == asset
        value = MultiAsset.from_primitive({asset.policy_id: {asset.asset_name: 5}})
        assert [AssetId.from_pycardano(one, other) for one, names in value.items() for other in names] == [asset]

    def test_an_object_without_bytes_or_with_too_few_is_rejected(self):
        with pytest.raises(InvalidAssetId, match="policy_id must be an object with __bytes__, got int: 28"):
            AssetId.from_pycardano(28, Octets(b""))  # type: ignore[arg-type]  # a caller without types
        with pytest.raises(InvalidAssetId, match="policy_id must be an object with __bytes__, got type: <class"):
            AssetId.from_pycardano(Octets, Octets(b""))  # type: ignore[arg-type]  # a caller without types
        with pytest.raises(InvalidAssetId, match="asset_name must be an object with __bytes__, got str: 'SNEK'"):
            AssetId.from_pycardano(Octets(bytes(28)), "SNEK")  # type: ignore[arg-type]  # a caller without types
        with pytest.raises(InvalidAssetId, match="policy_id must have 28 bytes, got 4"):
            AssetId.from_pycardano(Octets(b"SNEK"), Octets(bytes(28)))
        with pytest.raises(InvalidAssetId, match=r"^policy_id must have 28 bytes, got 0: b''$"):
            AssetId.from_pycardano(b"", Octets(b""))

    def test_the_bytes_of_an_object_are_read_once(self):
        class Fickle:
            octets = b""

            def __bytes__(self) -> bytes:
                self.octets = bytes(28 - len(self.octets))
                return self.octets

        assert AssetId.from_pycardano(Fickle(), b"SNEK") == AssetId(bytes(28), b"SNEK")


def test_recorded_identifiers_round_trip_through_every_spelling(recorded_assets: Path):
    texts = [json.loads(line)["asset"] for line in recorded_assets.read_text().splitlines()]
    assert len(texts) == 756
    fingerprints = set()
    for text in texts:
        asset = AssetId.parse(text)
        assert str(asset) == text
        assert asset.unit == ("lovelace" if text == "ADA" else text.replace(":", ""))
        assert AssetId.from_unit(asset.unit) == AssetId.from_dotted(asset.dotted) == asset
        assert asset.dotted.rstrip(".") == ("lovelace" if text == "ADA" else text.replace(":", ".").rstrip("."))
        if text != "ADA":
            assert AssetId.from_pycardano(Octets(asset.policy_id), Octets(asset.asset_name)) == asset
        name = bytes.fromhex(text.partition(":")[2])
        if asset.asset_name_label is None and asset.asset_name_text is not None:
            assert asset.asset_name_text.encode() == name
        fingerprints.add(asset.fingerprint)
    assert len(fingerprints) == 756
