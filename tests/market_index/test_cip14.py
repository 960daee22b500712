"""CIP-14 fingerprints, compared with the test vectors of the standard and with another encoder."""

from __future__ import annotations

import pytest
from hypothesis import given

from market_index import ADA, AssetId
from market_index.strategies import asset_ids

# The test vectors of CIP-14.
FINGERPRINTS = [
    ("7eae28af2208be856f7a119668ae52a49b73725e326dc16579dcc373", "", "asset1rjklcrnsdzqp65wjgrg55sy9723kw09mlgvlc3"),
    ("7eae28af2208be856f7a119668ae52a49b73725e326dc16579dcc37e", "", "asset1nl0puwxmhas8fawxp8nx4e2q3wekg969n2auw3"),
    ("1e349c9bdea19fd6c147626a5260bc44b71635f398b67c59881df209", "", "asset1uyuxku60yqe57nusqzjx38aan3f2wq6s93f6ea"),
    (
        "7eae28af2208be856f7a119668ae52a49b73725e326dc16579dcc373",
        "504154415445",
        "asset13n25uv0yaf5kus35fm2k86cqy60z58d9xmde92",
    ),
    (
        "1e349c9bdea19fd6c147626a5260bc44b71635f398b67c59881df209",
        "504154415445",
        "asset1hv4p5tv2a837mzqrst04d0dcptdjmluqvdx9k3",
    ),
    (
        "1e349c9bdea19fd6c147626a5260bc44b71635f398b67c59881df209",
        "7eae28af2208be856f7a119668ae52a49b73725e326dc16579dcc373",
        "asset1aqrdypg669jgazruv5ah07nuyqe0wxjhe2el6f",
    ),
    (
        "7eae28af2208be856f7a119668ae52a49b73725e326dc16579dcc373",
        "1e349c9bdea19fd6c147626a5260bc44b71635f398b67c59881df209",
        "asset17jd78wukhtrnmjh3fngzasxm8rck0l2r4hhyyt",
    ),
    (
        "7eae28af2208be856f7a119668ae52a49b73725e326dc16579dcc373",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "asset1pkpwyknlvul7az0xx8czhl60pyel45rpje4z8w",
    ),
]


class TestFingerprint:
    """CIP-14."""

    @pytest.mark.parametrize(("policy_id", "asset_name", "fingerprint"), FINGERPRINTS)
    def test_fingerprints_match_the_standard(self, policy_id: str, asset_name: str, fingerprint: str):
        assert AssetId.parse(f"{policy_id}:{asset_name}").fingerprint == fingerprint

    def test_ada_has_none(self):
        assert ADA.fingerprint is None

    @pytest.mark.thorough  # importing pycardano takes two seconds
    @given(asset_ids())
    def test_another_encoder_computes_the_same_fingerprint(self, asset: AssetId):
        from hashlib import blake2b

        from pycardano.crypto import bech32

        if asset == ADA:
            return
        octets = blake2b(asset.policy_id + asset.asset_name, digest_size=20).digest()
        words = bech32.convertbits(list(octets), 8, 5)
        assert asset.fingerprint == bech32.bech32_encode("asset", words, bech32.Encoding.BECH32)
