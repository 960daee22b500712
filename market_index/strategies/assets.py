"""Strategies for asset identifiers and pairs."""

from __future__ import annotations

from itertools import product
from typing import Final

from hypothesis import strategies as st

from market_index.assets import ADA, MAX_ASSET_NAME_LENGTH, POLICY_ID_LENGTH, AssetId
from market_index.pairs import Pair
from market_index.strategies.drawing import build, part_strategy, require_range

_AWKWARD_POLICY_IDS: Final = (
    bytes(POLICY_ID_LENGTH),
    b"\xab" * POLICY_ID_LENGTH,
    b"\xff" * POLICY_ID_LENGTH,
    bytes(range(POLICY_ID_LENGTH)),
)

_AWKWARD_ASSET_NAMES: Final = (
    b"",
    b"SNEK",
    b"\x00",
    bytes(MAX_ASSET_NAME_LENGTH),
    b"\xff" * MAX_ASSET_NAME_LENGTH,
    b"\x00\x0d\xe1\x40NFT",
    "Ünï 大".encode(),
    b"A/B:C.D\n",
    b"\xff\xfe",
)

AWKWARD_TOKENS: Final = tuple(AssetId(*parts) for parts in product(_AWKWARD_POLICY_IDS, _AWKWARD_ASSET_NAMES))


def policy_ids() -> st.SearchStrategy[bytes]:
    """Draw policy ids of 28 bytes. Half of them are from a small set, so that tokens share policy ids."""
    return st.sampled_from(_AWKWARD_POLICY_IDS) | st.binary(min_size=POLICY_ID_LENGTH, max_size=POLICY_ID_LENGTH)


def asset_names(*, min_size: int = 0, max_size: int = MAX_ASSET_NAME_LENGTH) -> st.SearchStrategy[bytes]:
    """Draw asset names of `min_size` to `max_size` bytes: texts, names with a CIP-67 label, and other bytes."""
    require_range("the bytes of an asset name", min_size, max_size, MAX_ASSET_NAME_LENGTH)
    awkward = [name for name in _AWKWARD_ASSET_NAMES if min_size <= len(name) <= max_size]
    others = st.binary(min_size=min_size, max_size=max_size)
    return st.sampled_from(awkward) | others if awkward else others


def asset_ids(
    *,
    ada: bool = True,
    policy_id: bytes | st.SearchStrategy[bytes] | None = None,
    asset_name: bytes | st.SearchStrategy[bytes] | None = None,
) -> st.SearchStrategy[AssetId]:
    """Draw native tokens, and ADA unless `ada` is False. Some tokens share a policy id or an asset name."""
    if isinstance(policy_id, bytes):
        # AssetId accepts an empty policy id, for ADA. Here it is an error.
        AssetId(policy_id or b"?", b"")
    if isinstance(asset_name, bytes):
        AssetId(bytes(POLICY_ID_LENGTH), asset_name)
    tokens = build(AssetId, part_strategy(policy_id, policy_ids), part_strategy(asset_name, asset_names))
    if policy_id is None and asset_name is None:
        tokens = st.sampled_from(AWKWARD_TOKENS) | tokens
    return st.just(ADA) | tokens if ada else tokens


def pairs(
    *,
    base: AssetId | st.SearchStrategy[AssetId] | None = None,
    quote: AssetId | st.SearchStrategy[AssetId] | None = None,
) -> st.SearchStrategy[Pair]:
    """Draw pairs that can be tracked: base and quote differ."""
    if isinstance(base, AssetId) and base == quote:
        raise ValueError(f"base and quote must differ, got {base} twice")
    assets = st.tuples(part_strategy(base, asset_ids), part_strategy(quote, asset_ids)).filter(
        lambda both: both[0] != both[1]
    )
    return build(lambda both: Pair(*both), assets)


_INVALID_ASSET_ID_TEXTS: Final = (
    "",
    *("ada", "Ada", "ADA ", "ADA:", "lovelace", ".", ":"),
    "00" * POLICY_ID_LENGTH,
    "\N{ARABIC-INDIC DIGIT ZERO}" * 2 * POLICY_ID_LENGTH + ":",
)

_NO_HEX_DIGITS: Final = "gGxX .:_-/\n\N{ARABIC-INDIC DIGIT THREE}\N{FULLWIDTH DIGIT TWO}\N{SUPERSCRIPT TWO}é"


def invalid_asset_id_texts() -> st.SearchStrategy[str]:
    """Draw texts that `AssetId.parse` rejects. Most have one fault, or are in another spelling."""
    others = st.text(max_size=8).filter(lambda text: text != "ADA")
    return st.sampled_from(_INVALID_ASSET_ID_TEXTS) | _damaged_asset_ids() | others


@st.composite
def _damaged_asset_ids(draw: st.DrawFn) -> str:
    asset = draw(asset_ids(ada=False))
    text = draw(st.sampled_from((str(asset), str(asset).upper())))
    policy_id, _, asset_name = text.partition(":")
    at = draw(st.integers(0, len(text) - 1).filter(lambda at: text[at] != ":"))
    return draw(
        st.sampled_from(
            (
                asset.unit,
                f"{policy_id}.{asset_name}",
                f"{policy_id[:-1]}:{asset_name}",
                f"{policy_id}0:{asset_name}",
                f"{text}0",
                f"{text[:at]}{draw(st.sampled_from(_NO_HEX_DIGITS))}{text[at + 1 :]}",
                f"{policy_id}:{asset_name}{'00' * (MAX_ASSET_NAME_LENGTH + 1 - len(asset.asset_name))}",
                f"{text} ",
                f"0x{text}",
                f"{text}:",
            )
        )
    )
