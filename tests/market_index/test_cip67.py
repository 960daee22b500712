"""The CIP-67 label and the text of an asset name, compared with the test vectors of the standard."""

from __future__ import annotations

import binascii
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index import ADA, AssetId
from market_index.strategies import asset_ids
from tests.invisible import INVISIBLE

# The test vectors of CIP-67.
LABELS = {
    0: "00000000",
    1: "00001070",
    23: "00017650",
    99: "000632e0",
    222: "000de140",
    333: "0014df10",
    533: "00215410",
    2000: "007d0550",
    4567: "011d7690",
    11111: "02b670b0",
    49328: "0c0b0f40",
    65535: "0ffff240",
}


def label_by_standard(digits: str) -> int | None:
    # binascii has no CRC-8: compute it by long division of polynomials, as text.
    dividend = int(digits[1:5], 16) << 8
    for shift in range(15, -1, -1):
        if dividend >> (shift + 8) & 1:
            dividend ^= 0x107 << shift
    return int(digits[1:5], 16) if digits[0] == digits[7] == "0" and digits[5:7] == f"{dividend:02x}" else None


def named(asset_name: bytes) -> AssetId:
    return AssetId(bytes(28), asset_name)


class TestAssetName:
    """The CIP-67 label of an asset name, and its text."""

    @pytest.mark.parametrize(("label", "prefix"), LABELS.items())
    def test_a_label_is_recognized_and_stripped(self, label: int, prefix: str):
        asset = named(bytes.fromhex(prefix) + b"SNEK")
        assert (asset.asset_name_label, asset.asset_name_text) == (label, "SNEK")
        assert (named(bytes.fromhex(prefix)).asset_name_label, named(bytes.fromhex(prefix)).asset_name_text) == (
            label,
            "",
        )

    @given(st.integers(0, 2**32 - 1) | st.sampled_from([int(prefix, 16) for prefix in LABELS.values()]))
    def test_labels_match_the_standard(self, bits: int):
        # Also with each single bit changed.
        for change in (0, *(1 << position for position in range(32))):
            digits = f"{bits ^ change:08x}"
            assert named(binascii.unhexlify(digits)).asset_name_label == label_by_standard(digits)

    @pytest.mark.parametrize(
        ("asset_name", "text"),
        [
            (b"", ""),
            (b"SNEK", "SNEK"),
            (b"two words", "two words"),
            ("Ünï 大".encode(), "Ünï 大"),
            (b"\xff", None),
            (b"\n", None),
            (b"\x1b[31m", None),
            ("\u202eKENS".encode(), None),
            ("SNE\u200bK".encode(), None),
            *((f"SN{one}EK".encode(), None) for one in INVISIBLE),
            *((one.encode(), None) for one in INVISIBLE),
        ],
    )
    def test_a_name_whose_characters_are_all_shown_has_a_text(self, asset_name: bytes, text: str | None):
        assert named(asset_name).asset_name_text == text

    @given(asset_ids())
    def test_a_text_is_the_name_and_has_nothing_hidden(self, asset: AssetId):
        text, label = asset.asset_name_text, asset.asset_name_label
        prefix = b"" if label is None else asset.asset_name[:4]
        if text is not None:
            assert prefix + text.encode() == asset.asset_name
            assert all(unicodedata.category(letter)[0] not in "CZ" or letter == " " for letter in text)

    def test_ada_has_no_label_and_an_empty_name(self):
        assert (ADA.asset_name_label, ADA.asset_name_text) == (None, "")
