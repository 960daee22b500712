"""The CIP-67 label of an asset name, and the name as text for display.

The minter of a token chooses its name, so tokens of different policies can have the same text.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

_LABEL_LENGTH: Final = 4
_CRC_8_POLYNOMIAL: Final = 0x07

# Default_Ignorable_Code_Point (DerivedCoreProperties.txt of Unicode) without the code points of category C, which
# `str.isprintable` excludes. Python does not have this property. The last two are blank symbols without it.
_INVISIBLE: Final = frozenset(
    {
        *"\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0\u2800\U0001d159",
        *map(chr, chain(range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))),
    }
)


def label_of(asset_name: bytes) -> int | None:
    """Return the label at the start of an asset name (0 to 65535), or None if it has none.

    CIP-67 encodes it in four bytes: four zero bits, the label in 16 bits, its CRC-8, and four zero bits.

    >>> label_of(bytes.fromhex("000de140") + b"NFT")
    222
    """
    if len(asset_name) < _LABEL_LENGTH:
        return None
    bits = int.from_bytes(asset_name[:_LABEL_LENGTH])
    number, checksum = bits >> 12, bits >> 4 & 0xFF
    # The number includes the four leading bits: above 16 bits, they are not zero.
    return number if number <= 0xFFFF and not bits & 0xF and _crc_8(number.to_bytes(2)) == checksum else None


def text_of(asset_name: bytes) -> str | None:
    """Return an asset name as text, without its label; None if it is not UTF-8, or not `is_shown`.

    >>> text_of(b"SNEK"), text_of(bytes.fromhex("000de140") + b"NFT"), text_of(b"")
    ('SNEK', 'NFT', '')
    >>> text_of(bytes([0xFF])), text_of(b"two" + bytes([10]) + b"lines")
    (None, None)
    """
    try:
        read = (asset_name if label_of(asset_name) is None else asset_name[_LABEL_LENGTH:]).decode()
    except UnicodeDecodeError:
        return None
    return read if is_shown(read) else None


def is_shown(text: str) -> bool:
    r"""Whether each character of a text is shown: printable, and not invisible.

    An invisible character would make two names look the same.

    >>> is_shown("SNEK"), is_shown("SN\u034fEK"), is_shown("\u2800"), is_shown("\n")
    (True, False, False, False)
    """
    return text.isprintable() and _INVISIBLE.isdisjoint(text)


def _crc_8(octets: bytes) -> int:
    remainder = 0
    for octet in octets:
        remainder ^= octet
        for _ in range(8):
            remainder = remainder << 1 ^ (_CRC_8_POLYNOMIAL if remainder & 0x80 else 0)
            remainder &= 0xFF
    return remainder
