"""CIP-14 fingerprints of native tokens: short texts for comparison by people.

The concatenated bytes of policy id and asset name are hashed to 20 bytes (Blake2b-160). The hash is encoded in Bech32
(BIP-173) with the prefix `asset`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

_PREFIX: Final = "asset"
_HASH_LENGTH: Final = 20

# BIP-173: the character of each 5-bit value, and the generator of the checksum.
_CHARACTERS: Final = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_GENERATOR: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_CHECKSUM_LENGTH: Final = 6


def fingerprint_of(policy_id: bytes, asset_name: bytes) -> str:
    """Return the fingerprint of a token.

    >>> fingerprint_of(bytes.fromhex("7eae28af2208be856f7a119668ae52a49b73725e326dc16579dcc373"), b"PATATE")
    'asset13n25uv0yaf5kus35fm2k86cqy60z58d9xmde92'
    """
    from hashlib import blake2b  # noqa: PLC0415  # takes 3 ms to import, and few programs need it

    words = list(_words(blake2b(policy_id + asset_name, digest_size=_HASH_LENGTH).digest()))
    return f"{_PREFIX}1{''.join(_CHARACTERS[word] for word in (*words, *_checksum(words)))}"


def _words(octets: bytes) -> Iterator[int]:
    """Yield the bits in groups of five; the number of bits must be a multiple of five."""
    number = int.from_bytes(octets)
    for shift in reversed(range(0, 8 * len(octets), 5)):
        yield number >> shift & 31


def _checksum(words: Iterable[int]) -> Iterator[int]:
    """Yield the six words of the BIP-173 checksum."""
    letters = _PREFIX.encode()
    expanded = (*(letter >> 5 for letter in letters), 0, *(letter & 31 for letter in letters))
    remainder = 1
    for word in (*expanded, *words, *[0] * _CHECKSUM_LENGTH):
        top = remainder >> 25
        remainder = (remainder & 0x1FFFFFF) << 5 ^ word
        for bit, term in enumerate(_GENERATOR):
            if top >> bit & 1:
                remainder ^= term
    remainder ^= 1
    for shift in reversed(range(0, 5 * _CHECKSUM_LENGTH, 5)):
        yield remainder >> shift & 31
