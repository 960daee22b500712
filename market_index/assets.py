"""Identifiers of assets on the Cardano ledger.

An asset is ADA, or a native token: a policy id (the hash of its minting script) and an asset name. `AssetId` validates
both, and reads and writes the texts by which other programs identify an asset.
"""

from __future__ import annotations

from typing import Any, Final, final

from attrs import frozen

from market_index.cip14 import fingerprint_of
from market_index.cip67 import label_of, text_of
from market_index.errors import InvalidAssetId, safe_repr
from market_index.value import Value

POLICY_ID_LENGTH: Final = 28
"""Bytes in a policy id: a Blake2b-224 hash of the minting script."""

MAX_ASSET_NAME_LENGTH: Final = 32
"""The maximum length of an asset name, in bytes. The empty name is legal."""

LOVELACE: Final = "lovelace"
"""The text for ADA in other programs: the name of its smallest unit."""

_POLICY_ID_DIGITS: Final = 2 * POLICY_ID_LENGTH
_MAX_ASSET_NAME_DIGITS: Final = 2 * MAX_ASSET_NAME_LENGTH


@final
@frozen(repr=False, order=True, getstate_setstate=False)
class AssetId(Value):
    """The identifier of an asset on the ledger: a policy id (28 bytes) and an asset name (0 to 32 bytes).

    ADA, the ledger's own asset, has neither: it is the constant `ADA`. Identifiers compare in ledger order:
    ADA first, then by policy id bytes, then by asset name bytes. `str` gives the canonical text, in lower case.

    Other programs use other spellings. Each has its own constructor, because a guess could find another asset: `parse`
    reads `policy:name`, `from_dotted` reads `policy.name`, and `from_unit` reads both without a separator.

    >>> token = AssetId(bytes.fromhex("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f"), b"SNEK")
    >>> str(token)
    '279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f:534e454b'
    >>> ADA < token
    True

    Raises:
        InvalidAssetId: A part is not bytes, or its length is not allowed by the ledger.
    """

    policy_id: bytes
    asset_name: bytes

    def __attrs_post_init__(self) -> None:
        policy_id, asset_name = self.policy_id, self.asset_name
        if type(policy_id) is not bytes or type(asset_name) is not bytes:
            part, value = ("asset_name", asset_name) if type(policy_id) is bytes else ("policy_id", policy_id)
            raise InvalidAssetId(f"{part} must be bytes, got {type(value).__name__}: {safe_repr(value)}")
        if len(policy_id) != POLICY_ID_LENGTH and (policy_id or asset_name):
            raise InvalidAssetId(
                f"policy_id must have {POLICY_ID_LENGTH} bytes, got {len(policy_id)}: {safe_repr(policy_id)}"
            )
        if len(asset_name) > MAX_ASSET_NAME_LENGTH:
            raise InvalidAssetId(
                f"asset_name must have at most {MAX_ASSET_NAME_LENGTH} bytes, "
                f"got {len(asset_name)}: {safe_repr(asset_name)}"
            )

    @staticmethod
    def parse(text: str) -> AssetId:
        """Read `ADA` or `<policy id>:<asset name>`, in upper or lower case hexadecimal.

        `ADA` must be upper case. Other spellings are rejected: `lovelace`, `policy.name` (see `from_dotted`), and both
        parts without a separator (see `from_unit`).

        >>> AssetId.parse("ADA") == ADA
        True
        >>> AssetId.parse("lovelace")
        Traceback (most recent call last):
        market_index.errors.InvalidAssetId: an asset identifier must be ADA or policy:name in hex, got 'lovelace'

        Raises:
            InvalidAssetId: The text is in another spelling, or a part has a wrong length.
        """
        _require_text(text)
        if text == "ADA":
            return ADA
        policy_id, colon, asset_name = text.partition(":")
        if not colon:
            raise InvalidAssetId(f"an asset identifier must be ADA or policy:name in hex, got {safe_repr(text)}")
        return _of_digits(text, policy_id, asset_name)

    @staticmethod
    def from_unit(unit: str) -> AssetId:
        """Read a unit: policy id and asset name concatenated, in upper or lower case hexadecimal, or `lovelace`.

        Blockfrost and many wallets use this spelling. The token registry calls it the subject.

        >>> AssetId.from_unit("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f534e454b").asset_name
        b'SNEK'
        >>> AssetId.from_unit("lovelace")
        ADA

        Raises:
            InvalidAssetId: The text is in another spelling, or a part has a wrong length.
        """
        _require_text(unit)
        if unit == LOVELACE:
            return ADA
        return _of_digits(unit, unit[:_POLICY_ID_DIGITS], unit[_POLICY_ID_DIGITS:])

    @staticmethod
    def from_dotted(text: str, *, ada: str = LOVELACE) -> AssetId:
        """Read `<policy id>.<asset name>`, in upper or lower case hexadecimal.

        cardano-cli and Kupo use this spelling. The dot may be missing if the name is empty. `ada` is the only text that
        means ADA: `lovelace` for cardano-cli, `.` for programs such as Splash.

        >>> AssetId.from_dotted("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f.534e454b").asset_name
        b'SNEK'
        >>> AssetId.from_dotted("lovelace"), AssetId.from_dotted(".", ada=".")
        (ADA, ADA)

        Raises:
            InvalidAssetId: The text is in another spelling, or a part has a wrong length.
        """
        _require_text(text)
        if text == ada:
            return ADA
        policy_id, _, asset_name = text.partition(".")
        return _of_digits(text, policy_id, asset_name)

    @property
    def is_ada(self) -> bool:
        """Whether this is ADA, the ledger's own asset."""
        return not self.policy_id

    @property
    def unit(self) -> str:
        """The text that `from_unit` reads: policy id and asset name concatenated, or `lovelace`."""
        return self.policy_id.hex() + self.asset_name.hex() if self.policy_id else LOVELACE

    @property
    def dotted(self) -> str:
        """The text that `from_dotted` reads: `policy.name`, the policy id alone for the empty name, or `lovelace`."""
        return f"{self.policy_id.hex()}.{self.asset_name.hex()}".removesuffix(".") if self.policy_id else LOVELACE

    @property
    def fingerprint(self) -> str | None:
        """The CIP-14 fingerprint: a hash to display and compare, which cannot be converted back. None for ADA.

        >>> AssetId.from_unit("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f534e454b").fingerprint
        'asset108xu02ckwrfc8qs9d97mgyh4kn8gdu9w8f5sxk'
        """
        return fingerprint_of(self.policy_id, self.asset_name) if self.policy_id else None

    @property
    def asset_name_label(self) -> int | None:
        """The CIP-67 label at the start of the asset name (222 for an NFT, 333 for a token), or None."""
        return label_of(self.asset_name)

    @property
    def asset_name_text(self) -> str | None:
        """The asset name as text, without its label; None if it is not UTF-8, or has a character that is not shown.

        It does not identify a token: the minter chooses the name, which may look like another one or be blank. The
        result depends on the Unicode version of Python, because `str.isprintable` is a part of the rule.

        >>> AssetId(bytes(28), bytes.fromhex("0014df10") + b"SNEK").asset_name_text
        'SNEK'
        """
        return text_of(self.asset_name)

    def __str__(self) -> str:
        return f"{self.policy_id.hex()}:{self.asset_name.hex()}" if self.policy_id else "ADA"

    def __repr__(self) -> str:
        return f"AssetId.parse('{self}')" if self.policy_id else "ADA"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001  # the signature of IPython
        """Print the `repr` in the report of a failing Hypothesis test, which prints the fields of other records."""
        del cycle
        printer.text(repr(self))


def _require_text(text: object) -> None:
    if not isinstance(text, str):
        raise InvalidAssetId(f"an asset identifier must be a str, got {type(text).__name__}: {safe_repr(text)}")


def _of_digits(text: str, policy_id: str, asset_name: str) -> AssetId:
    """Return the token of these digits, which are parts of `text`."""
    if len(policy_id) != _POLICY_ID_DIGITS:
        raise _wrong_digits("policy id", f"{_POLICY_ID_DIGITS}", policy_id, text)
    if len(asset_name) > _MAX_ASSET_NAME_DIGITS:
        raise _wrong_digits("asset name", f"at most {_MAX_ASSET_NAME_DIGITS}", asset_name, text)
    if len(asset_name) % 2:
        raise _wrong_digits("asset name", "an even number of", asset_name, text)
    try:
        octets = bytes.fromhex(policy_id + asset_name)
    except ValueError:
        octets = b""
    # fromhex ignores white space; then there are fewer bytes.
    if 2 * len(octets) != len(policy_id) + len(asset_name):
        raise InvalidAssetId(f"policy id and asset name must be hexadecimal, got {safe_repr(text)}") from None
    return AssetId(octets[:POLICY_ID_LENGTH], octets[POLICY_ID_LENGTH:])


def _wrong_digits(part: str, expected: str, digits: str, text: str) -> InvalidAssetId:
    return InvalidAssetId(f"the {part} must have {expected} digits, got {len(digits)}: {safe_repr(text)}")


ADA: Final = AssetId(b"", b"")
"""The ledger's own asset. Its smallest unit is the lovelace."""
