"""Asset identifiers: ADA, or the policy id and asset name of a native token."""

from __future__ import annotations

from typing import Final, final

from attrs import frozen

from market_index.errors import InvalidAssetId, shown

POLICY_ID_LENGTH: Final = 28
"""Bytes in a policy id: a Blake2b-224 hash of the minting script."""

MAX_ASSET_NAME_LENGTH: Final = 32
"""The most bytes that an asset name can have; none at all is legal too."""

_POLICY_ID_DIGITS: Final = 2 * POLICY_ID_LENGTH
_MAX_ASSET_NAME_DIGITS: Final = 2 * MAX_ASSET_NAME_LENGTH


@final
@frozen(init=False, repr=False, order=True)
class AssetId:
    """What identifies an asset on the ledger: a policy id (28 bytes) and an asset name (0 to 32 bytes).

    ADA, the ledger's own asset, has neither; it is the constant `ADA`. Identifiers compare in ledger order:
    ADA first, then by policy id bytes, then by asset name bytes. `str` gives the canonical text, in lower case.

    >>> token = AssetId(bytes.fromhex("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f"), b"SNEK")
    >>> str(token)
    '279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f:534e454b'
    >>> ADA < token
    True

    Raises `InvalidAssetId` for a length that the ledger does not know, or anything but bytes.
    """

    policy_id: bytes
    asset_name: bytes

    def __init__(self, policy_id: bytes, asset_name: bytes) -> None:
        for part, value in (("policy_id", policy_id), ("asset_name", asset_name)):
            if type(value) is not bytes:
                raise InvalidAssetId(f"{part} must be bytes, not {type(value).__name__}: {shown(value)}")
        if len(policy_id) != POLICY_ID_LENGTH and (policy_id or asset_name):
            raise InvalidAssetId(
                f"{shown(policy_id)} is not a policy id: it has {len(policy_id)} bytes, not {POLICY_ID_LENGTH}"
            )
        if len(asset_name) > MAX_ASSET_NAME_LENGTH:
            raise InvalidAssetId(
                f"{shown(asset_name)} is not an asset name: "
                f"it has {len(asset_name)} bytes, more than {MAX_ASSET_NAME_LENGTH}"
            )
        self.__attrs_init__(policy_id, asset_name)

    @classmethod
    def parse(cls, text: str) -> AssetId:
        """Read `ADA` or `<policy id>:<asset name>`, the two in hexadecimal of either case.

        `ADA` itself is upper case only. No other spelling is read: not `lovelace`, not `policy.name`, not the two
        run together.

        >>> AssetId.parse("ADA") == ADA
        True
        >>> AssetId.parse("lovelace")
        Traceback (most recent call last):
        market_index.errors.InvalidAssetId: 'lovelace' is not an asset identifier: it is not ADA and has no colon

        Raises `InvalidAssetId`, saying what is wrong.
        """
        if not isinstance(text, str):
            raise InvalidAssetId(f"an asset identifier must be a str, not {type(text).__name__}: {shown(text)}")
        if text == "ADA":
            return ADA
        policy_id, colon, asset_name = text.partition(":")
        if not colon:
            raise _not_an_identifier(text, "it is not ADA and has no colon")
        if len(policy_id) != _POLICY_ID_DIGITS:
            raise _not_an_identifier(
                text, f"its policy id has the wrong length: {len(policy_id)} digits, not {_POLICY_ID_DIGITS}"
            )
        if len(asset_name) > _MAX_ASSET_NAME_DIGITS:
            raise _not_an_identifier(
                text,
                f"its asset name has the wrong length: {len(asset_name)} digits, more than {_MAX_ASSET_NAME_DIGITS}",
            )
        if len(asset_name) % 2:
            raise _not_an_identifier(text, f"its asset name has an odd length: {len(asset_name)} digits")
        asset = object.__new__(cls)
        asset.__attrs_init__(_bytes(text, "policy id", policy_id), _bytes(text, "asset name", asset_name))
        return asset

    @property
    def is_ada(self) -> bool:
        """Whether this is ADA, the ledger's own asset."""
        return not self.policy_id

    def __str__(self) -> str:
        return f"{self.policy_id.hex()}:{self.asset_name.hex()}" if self.policy_id else "ADA"

    def __repr__(self) -> str:
        return f"AssetId.parse('{self}')" if self.policy_id else "ADA"


def _bytes(text: str, part: str, digits: str) -> bytes:
    """Return the bytes of `digits`, an even number of hexadecimal digits that stands in `text` as its `part`."""
    try:
        value = bytes.fromhex(digits)
    except ValueError:
        value = None
    # fromhex passes over white space, so that the value comes out short.
    if value is None or 2 * len(value) != len(digits):
        raise _not_an_identifier(text, f"its {part} is not hexadecimal") from None
    return value


def _not_an_identifier(text: str, reason: str) -> InvalidAssetId:
    return InvalidAssetId(f"{shown(text)} is not an asset identifier: {reason}")


ADA: Final = AssetId(b"", b"")
"""The ledger's own asset. Its smallest unit is the lovelace."""
