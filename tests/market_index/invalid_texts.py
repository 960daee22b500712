"""Texts that no parser of identifiers or prices accepts; most have one fault."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from market_index.assets import MAX_ASSET_NAME_LENGTH, POLICY_ID_LENGTH
from market_index.prices import MAX_COEFFICIENT, MAX_DECIMAL_PLACES, format_price
from market_index.strategies import asset_ids, prices

_INVALID_ASSET_ID_TEXTS: Final = (
    *("", "ada", "Ada", "ADA ", "ADA:", "lovelace", ".", ":", "00" * POLICY_ID_LENGTH),
    "\N{ARABIC-INDIC DIGIT ZERO}" * 2 * POLICY_ID_LENGTH + ":",
)
_NO_HEX_DIGITS: Final = "gGxX .:_-/\n\N{ARABIC-INDIC DIGIT THREE}\N{FULLWIDTH DIGIT TWO}\N{SUPERSCRIPT TWO}é"

_INVALID_PRICE_TEXTS: Final = (
    *("", ".", "0", "0.000", "0e5", "NaN", "sNaN", "Infinity", "e5", "1e", "1e+", "1.2.3", "1,5", "0x10", "1/3"),
    *("1e1000000", "1e-1000000", f"{MAX_COEFFICIENT + 1}", f"1e-{MAX_DECIMAL_PLACES + 1}"),
    *("\N{FULLWIDTH DIGIT ONE}", "\N{SUPERSCRIPT TWO}"),
)
_NO_PRICE_CHARACTERS: Final = "+-_ ,'/x\n\t\N{ARABIC-INDIC DIGIT THREE}\N{FULLWIDTH DIGIT TWO}\N{SUPERSCRIPT TWO}\0"


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
    damaged = (
        *(asset.unit, f"{policy_id}.{asset_name}", f"{text} ", f"0x{text}", f"{text}:", f"{text}0"),
        *(f"{policy_id[:-1]}:{asset_name}", f"{policy_id}0:{asset_name}"),
        f"{text[:at]}{draw(st.sampled_from(_NO_HEX_DIGITS))}{text[at + 1 :]}",
        f"{policy_id}:{asset_name}{'00' * (MAX_ASSET_NAME_LENGTH + 1 - len(asset.asset_name))}",
    )
    return draw(st.sampled_from(damaged))


def invalid_price_texts() -> st.SearchStrategy[str]:
    """Draw texts that `parse_price` rejects. Most have one fault, or are just out of range."""
    return st.sampled_from(_INVALID_PRICE_TEXTS) | _damaged_prices()


@st.composite
def _damaged_prices(draw: st.DrawFn) -> str:
    text = format_price(draw(prices()))
    at = draw(st.integers(0, len(text)))
    # An odd coefficient has no trailing zeros, so it is too large with any number of decimal places.
    too_large = MAX_COEFFICIENT + 2 + 2 * draw(st.integers(0, 2**16))
    damaged = (
        f"{text[:at]}{draw(st.sampled_from(_NO_PRICE_CHARACTERS))}{text[at:]}",
        *(f".{text}.", f"{text}e{2 * MAX_DECIMAL_PLACES + 2}", f"{text}e-{2 * MAX_DECIMAL_PLACES + 2}"),
        f"{too_large}e-{draw(st.integers(0, MAX_DECIMAL_PLACES))}",
        f"{text}{'' if '.' in text else '.'}{'0' * MAX_DECIMAL_PLACES}1",
    )
    return draw(st.sampled_from(damaged))
