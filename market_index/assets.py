"""Asset identifiers: ADA, or the policy id and asset name of a native token."""

from __future__ import annotations

from typing import Any, Final, Self, SupportsBytes, final

from attrs import frozen

from market_index import cip14, cip67
from market_index.errors import InvalidAssetId, safe_repr

POLICY_ID_LENGTH: Final = 28
"""Bytes in a policy id: a Blake2b-224 hash of the minting script."""

MAX_ASSET_NAME_LENGTH: Final = 32
"""The most bytes in an asset name. The empty name is legal."""

LOVELACE: Final = "lovelace"
"""The name of ADA in other programs, after its smallest unit."""

_POLICY_ID_DIGITS: Final = 2 * POLICY_ID_LENGTH
_MAX_ASSET_NAME_DIGITS: Final = 2 * MAX_ASSET_NAME_LENGTH


@final
@frozen(init=False, repr=False, order=True)
class AssetId:
    """The identifier of an asset on the ledger: a policy id (28 bytes) and an asset name (0 to 32 bytes).

    ADA, the ledger's own asset, has neither: it is the constant `ADA`. Identifiers compare in ledger order:
    ADA first, then by policy id bytes, then by asset name bytes. `str` gives the canonical text, in lower case.

    Other programs use other spellings. Each spelling has its own constructor, and none is guessed: `parse` for
    `policy:name`, `from_unit` for the two concatenated, `from_dotted` for `policy.name`, `from_pycardano` for objects.

    >>> token = AssetId(bytes.fromhex("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f"), b"SNEK")
    >>> str(token)
    '279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f:534e454b'
    >>> ADA < token
    True

    Raises:
        InvalidAssetId: A part has a length that the ledger does not allow, or is not bytes.
    """

    policy_id: bytes
    asset_name: bytes

    def __init__(self, policy_id: bytes, asset_name: bytes) -> None:
        for part, value in (("policy_id", policy_id), ("asset_name", asset_name)):
            if type(value) is not bytes:
                raise InvalidAssetId(f"{part} must be bytes, not {type(value).__name__}: {safe_repr(value)}")
        if len(policy_id) != POLICY_ID_LENGTH and (policy_id or asset_name):
            raise InvalidAssetId(
                f"{safe_repr(policy_id)} is not a policy id: it has {len(policy_id)} bytes, not {POLICY_ID_LENGTH}"
            )
        if len(asset_name) > MAX_ASSET_NAME_LENGTH:
            raise InvalidAssetId(
                f"{safe_repr(asset_name)} is not an asset name: "
                f"it has {len(asset_name)} bytes, more than {MAX_ASSET_NAME_LENGTH}"
            )
        self.__attrs_init__(policy_id, asset_name)

    @classmethod
    def parse(cls, text: str) -> AssetId:
        """Read `ADA` or `<policy id>:<asset name>`, in upper or lower case hexadecimal.

        `ADA` must be upper case. Other spellings are rejected: `lovelace`, `policy.name` (see `from_dotted`), and the
        two concatenated (see `from_unit`).

        >>> AssetId.parse("ADA") == ADA
        True
        >>> AssetId.parse("lovelace")
        Traceback (most recent call last):
        market_index.errors.InvalidAssetId: 'lovelace' is not an asset identifier: it is not ADA and has no colon

        Raises:
            InvalidAssetId: The text is not such a spelling.
        """
        _require_text(text)
        if text == "ADA":
            return ADA
        policy_id, colon, asset_name = text.partition(":")
        if not colon:
            raise _not_an_identifier(text, "it is not ADA and has no colon")
        return cls._of_digits(text, policy_id, asset_name)

    @classmethod
    def from_unit(cls, unit: str) -> AssetId:
        """Read a unit: policy id and asset name concatenated, in upper or lower case hexadecimal, or `lovelace`.

        Blockfrost and many wallets use this spelling. In the token registry it is the subject.

        >>> AssetId.from_unit("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f534e454b").asset_name
        b'SNEK'
        >>> AssetId.from_unit("lovelace")
        ADA

        Raises:
            InvalidAssetId: The text is not such a spelling.
        """
        _require_text(unit)
        if unit == LOVELACE:
            return ADA
        _require_none(unit, ":", "a unit has no colon, and AssetId.parse reads one that has")
        _require_none(unit, ".", "a unit has no dot, and AssetId.from_dotted reads one that has")
        return cls._of_digits(unit, unit[:_POLICY_ID_DIGITS], unit[_POLICY_ID_DIGITS:])

    @classmethod
    def from_dotted(cls, text: str, *, ada: str = LOVELACE) -> AssetId:
        """Read `<policy id>.<asset name>` in upper or lower case hexadecimal; an empty name has no dot.

        cardano-cli and Kupo use this spelling. ADA is the text `ada` and nothing else: `lovelace` for cardano-cli, `.`
        for programs such as Splash.

        >>> AssetId.from_dotted("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f.534e454b").asset_name
        b'SNEK'
        >>> AssetId.from_dotted("lovelace"), AssetId.from_dotted(".", ada=".")
        (ADA, ADA)

        Raises:
            InvalidAssetId: The text is not such a spelling.
            ValueError: `ada` is empty, or so long that it could be another asset.
        """
        if not isinstance(ada, str) or not 0 < len(ada) < _POLICY_ID_DIGITS:
            raise ValueError(f"ada must be what ADA is called, such as 'lovelace' or '.', not {safe_repr(ada)}")
        _require_text(text)
        if text == ada:
            return ADA
        _require_none(text, ":", "it has a colon instead of a dot, and AssetId.parse reads that")
        policy_id, _, asset_name = text.partition(".")
        return cls._of_digits(text, policy_id, asset_name)

    @classmethod
    def from_pycardano(cls, policy_id: SupportsBytes, asset_name: SupportsBytes) -> AssetId:
        """Return the asset of two objects with `__bytes__`, such as pycardano's `ScriptHash` and `AssetName`.

        pycardano need not be installed. It has no object for ADA, which is the `coin` of a value there. An asset name
        of 28 bytes that is passed as the policy id is not detected.

        Raises:
            InvalidAssetId: A part has no `__bytes__`, or a length that the ledger does not allow.
        """
        token = cls(_octets("policy_id", policy_id), _octets("asset_name", asset_name))
        if token.is_ada:
            raise InvalidAssetId(f"{safe_repr(policy_id)} is not a policy id: it has 0 bytes, not {POLICY_ID_LENGTH}")
        return token

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
        """The CIP-14 fingerprint: a hash to display and compare. It cannot be read back. None for ADA.

        >>> AssetId.from_unit("279c909f348e533da5808898f87f9a14bb2c3dfbbacccd631d927a3f534e454b").fingerprint
        'asset108xu02ckwrfc8qs9d97mgyh4kn8gdu9w8f5sxk'
        """
        return cip14.fingerprint(self.policy_id, self.asset_name) if self.policy_id else None

    @property
    def asset_name_label(self) -> int | None:
        """The CIP-67 label at the start of the asset name (222 for an NFT, 333 for a token), or None."""
        return cip67.label(self.asset_name)

    @property
    def asset_name_text(self) -> str | None:
        """The asset name as text, without its label; None if it is not UTF-8 or not printable.

        It does not identify a token: the minter chooses the name, which may look like another or be blank. The result
        depends on the Unicode version of Python, because `str.isprintable` decides what is printable.

        >>> AssetId(bytes(28), bytes.fromhex("0014df10") + b"SNEK").asset_name_text
        'SNEK'
        """
        return cip67.text(self.asset_name)

    @classmethod
    def _of_digits(cls, text: str, policy_id: str, asset_name: str) -> Self:
        """Return the token of these digits, which are parts of `text`."""
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

    def __str__(self) -> str:
        return f"{self.policy_id.hex()}:{self.asset_name.hex()}" if self.policy_id else "ADA"

    def __repr__(self) -> str:
        return f"AssetId.parse('{self}')" if self.policy_id else "ADA"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001  # IPython has it so
        """Show the asset in IPython, and in the failing examples of Hypothesis."""
        del cycle
        printer.text(repr(self))


def _require_text(text: object) -> None:
    if not isinstance(text, str):
        raise InvalidAssetId(f"an asset identifier must be a str, not {type(text).__name__}: {safe_repr(text)}")


def _require_none(text: str, separator: str, reason: str) -> None:
    if separator in text:
        raise _not_an_identifier(text, reason)


def _octets(part: str, value: SupportsBytes) -> bytes:
    if not isinstance(value, SupportsBytes) or isinstance(value, type):
        raise InvalidAssetId(f"{part} must be an object with __bytes__, not {type(value).__name__}: {safe_repr(value)}")
    return bytes(value)


def _bytes(text: str, part: str, digits: str) -> bytes:
    """Return the bytes of `digits`, an even number of hexadecimal digits: the `part` of `text`."""
    try:
        value = bytes.fromhex(digits)
    except ValueError:
        value = b""
    # fromhex ignores white space: the value is too short then.
    if 2 * len(value) != len(digits):
        raise _not_an_identifier(text, f"its {part} is not hexadecimal") from None
    return value


def _not_an_identifier(text: str, reason: str) -> InvalidAssetId:
    return InvalidAssetId(f"{safe_repr(text)} is not an asset identifier: {reason}")


ADA: Final = AssetId(b"", b"")
"""The ledger's own asset. Its smallest unit is the lovelace."""
