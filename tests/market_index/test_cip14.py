"""CIP-14 fingerprints, compared with the test vectors of the standard."""

from __future__ import annotations

import pytest

from market_index import ADA, AssetId

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


@pytest.mark.parametrize(("policy_id", "asset_name", "fingerprint"), FINGERPRINTS)
def test_fingerprints_match_the_standard(policy_id: str, asset_name: str, fingerprint: str):
    assert AssetId.parse(f"{policy_id}:{asset_name}").fingerprint == fingerprint


def test_ada_has_no_fingerprint():
    assert ADA.fingerprint is None
