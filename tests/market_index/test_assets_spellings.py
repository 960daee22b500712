"""How other programs spell an asset: read by name, written back, and never guessed."""

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
    """Policy id and asset name run together; `lovelace`."""

    def test_it_is_read_and_written(self):
        assert AssetId.from_unit(f"{POLICY}534e454b") == SNEK
        assert SNEK.unit == f"{POLICY}534e454b"
        assert AssetId.from_unit(POLICY) == AssetId(bytes.fromhex(POLICY), b"")
        assert AssetId.from_unit(f"{POLICY}534E454B".upper()) == SNEK

    @given(asset_ids())
    def test_every_asset_comes_back(self, asset: AssetId):
        assert asset.unit == ("lovelace" if asset == ADA else str(asset).replace(":", ""))
        assert AssetId.from_unit(asset.unit) == asset

    @pytest.mark.parametrize(
        ("unit", "reason"),
        [
            ("", "its policy id has the wrong length: 0 digits, not 56"),
            ("ADA", "its policy id has the wrong length: 3 digits, not 56"),
            ("Lovelace", "its policy id has the wrong length: 8 digits, not 56"),
            ("lovelace ", "its policy id has the wrong length: 9 digits, not 56"),
            (".", "a unit has no dot, and AssetId.from_dotted reads one that has"),
            (POLICY[:-1], "its policy id has the wrong length: 55 digits, not 56"),
            (f"{POLICY}5", "its asset name has an odd length: 1 digits"),
            (f"{POLICY}:", "a unit has no colon, and AssetId.parse reads one that has"),
            (f"{POLICY}:534e454b", "a unit has no colon, and AssetId.parse reads one that has"),
            (f"{POLICY}.534e454b", "a unit has no dot, and AssetId.from_dotted reads one that has"),
            (f"{POLICY}zz", "its asset name is not hexadecimal"),
            (f"{POLICY}{'0' * 66}", "its asset name has the wrong length: 66 digits, more than 64"),
            (f"{POLICY} 0", "its asset name is not hexadecimal"),
        ],
    )
    def test_nothing_else_is_read(self, unit: str, reason: str):
        with pytest.raises(InvalidAssetId) as refused:
            AssetId.from_unit(unit)
        assert str(refused.value) == f"{safe_repr(unit)} is not an asset identifier: {reason}"


class TestDotted:
    """`policy.name`; `lovelace`, or what is said to be ADA."""

    def test_it_is_read_and_written(self):
        assert AssetId.from_dotted(f"{POLICY}.534e454b") == SNEK
        assert SNEK.dotted == f"{POLICY}.534e454b"
        assert AssetId.from_dotted(f"{POLICY}.534E454B".upper()) == SNEK

    def test_of_the_empty_name_the_dot_may_be_left_out(self):
        nameless = AssetId(bytes.fromhex(POLICY), b"")
        assert AssetId.from_dotted(POLICY) == AssetId.from_dotted(f"{POLICY}.") == nameless
        assert nameless.dotted == POLICY

    def test_ada_is_what_is_said_to_be_and_nothing_else(self):
        assert AssetId.from_dotted("lovelace") == AssetId.from_dotted(".", ada=".") == ADA
        for text, ada in ((".", "lovelace"), ("lovelace", "."), ("ADA", "lovelace"), ("", "lovelace"), ("", ".")):
            with pytest.raises(InvalidAssetId, match="its policy id has the wrong length"):
                AssetId.from_dotted(text, ada=ada)

    @pytest.mark.parametrize("ada", ["", POLICY, f"{POLICY}.534e454b", None, [], b"."])
    def test_a_name_for_ada_that_another_asset_could_have_is_rejected(self, ada: object):
        with pytest.raises(ValueError, match="ada must be") as refused:
            AssetId.from_dotted("lovelace", ada=ada)  # type: ignore[arg-type]  # a caller without types
        assert str(refused.value) == (
            f"ada must be what ADA is called, such as 'lovelace' or '.', not {safe_repr(ada)}"
        )

    @given(asset_ids())
    def test_every_asset_comes_back(self, asset: AssetId):
        expected = "lovelace" if asset == ADA else str(asset).replace(":", ".") if asset.asset_name else str(asset)[:-1]
        assert asset.dotted == expected
        assert AssetId.from_dotted(asset.dotted) == asset

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (f"{POLICY}:534e454b", "it has a colon instead of a dot, and AssetId.parse reads that"),
            (f"{POLICY}534e454b", "its policy id has the wrong length: 64 digits, not 56"),
            (f"{POLICY}..", "its asset name has an odd length: 1 digits"),
            (f"{POLICY}.5", "its asset name has an odd length: 1 digits"),
            (f"{POLICY}.zz", "its asset name is not hexadecimal"),
            (f" {POLICY}", "its policy id has the wrong length: 57 digits, not 56"),
        ],
    )
    def test_nothing_else_is_read(self, text: str, reason: str):
        with pytest.raises(InvalidAssetId) as refused:
            AssetId.from_dotted(text)
        assert str(refused.value) == f"{safe_repr(text)} is not an asset identifier: {reason}"


@given(asset_ids())
def test_no_spelling_is_taken_for_another(asset: AssetId):
    spellings = {AssetId.parse: str(asset), AssetId.from_unit: asset.unit, AssetId.from_dotted: asset.dotted}
    for read, own in spellings.items():
        for text in spellings.values():
            if text != own:
                # A policy id alone is the unit of the nameless token, and its dotted text too.
                with pytest.raises(InvalidAssetId):
                    read(text)


@pytest.mark.parametrize("read", [AssetId.from_unit, AssetId.from_dotted])
@pytest.mark.parametrize("value", [None, 1, b"lovelace", ADA])
def test_a_value_that_is_not_a_text_is_rejected(read, value: object):
    with pytest.raises(InvalidAssetId, match="an asset identifier must be a str, not "):
        read(value)


class Octets:
    """An object of pycardano, such as ScriptHash and AssetName: its bytes are its value."""

    def __init__(self, octets: bytes) -> None:
        self.octets = octets

    def __bytes__(self) -> bytes:
        return self.octets


class TestPycardano:
    """The objects of the package pycardano."""

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
        with pytest.raises(InvalidAssetId, match="policy_id must be an object with __bytes__, not int: 28"):
            AssetId.from_pycardano(28, Octets(b""))  # type: ignore[arg-type]  # a caller without types
        with pytest.raises(InvalidAssetId, match="policy_id must be an object with __bytes__, not type: <class"):
            AssetId.from_pycardano(Octets, Octets(b""))  # type: ignore[arg-type]  # a caller without types
        with pytest.raises(InvalidAssetId, match="asset_name must be an object with __bytes__, not str: 'SNEK'"):
            AssetId.from_pycardano(Octets(bytes(28)), "SNEK")  # type: ignore[arg-type]  # a caller without types
        with pytest.raises(InvalidAssetId, match="it has 4 bytes, not 28"):
            AssetId.from_pycardano(Octets(b"SNEK"), Octets(bytes(28)))
        with pytest.raises(InvalidAssetId, match=r"^b'' is not a policy id: it has 0 bytes, not 28$"):
            AssetId.from_pycardano(b"", Octets(b""))

    def test_the_bytes_of_an_object_are_read_once(self):
        class Fickle:
            octets = b""

            def __bytes__(self) -> bytes:
                self.octets = bytes(28 - len(self.octets))
                return self.octets

        assert AssetId.from_pycardano(Fickle(), b"SNEK") == AssetId(bytes(28), b"SNEK")


def test_recorded_identifiers_come_back_from_every_spelling(recorded_assets: Path):
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
