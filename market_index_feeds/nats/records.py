"""What stands in a bucket: under which key a pair stands, and as what an order book is stored."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from attrs import frozen

from market_index import AssetId, InvalidOrderBook, MarketIndexError, OrderBook, Pair, wire
from market_index.errors import safe_repr

DIGEST_HEADER: Final = "Market-Index-Digest"
"""The header of a value that a store wrote: what vouches for the text, so that its levels are read when looked at."""

MAX_TEXT_LENGTH: Final = 64 * 1024 * 1024
"""The most bytes of an order book in JSON, so that a value made for it cannot fill the memory when it is inflated."""

_WORTH_COMPRESSING: Final = 256
_LEVEL: Final = 1  # the higher ones take up to twice the time to save a tenth more
_DEFLATED: Final = b"\x78"  # what deflated data begin with, and no JSON does

_KEY: Final = re.compile(r"(ADA|[0-9a-f]{56}-[0-9a-f]{0,64})\.(ADA|[0-9a-f]{56}-[0-9a-f]{0,64})").fullmatch


@frozen
class Record:
    """An order book as it is stored: the value under the key of its pair, and its digest."""

    pair: Pair
    key: str
    value: bytes
    digest: str


def key_of(pair: Pair) -> str:
    """Return the key of a pair: base and quote with a dot between them, each with `-` in the place of the colon.

    So a filter such as `*.ADA` names every pair that is quoted in ADA. Keys allow `-/_=.a-zA-Z0-9` alone.

    >>> from market_index import ADA
    >>> key_of(Pair(AssetId(bytes(28), b"SNEK"), ADA))
    '00000000000000000000000000000000000000000000000000000000-534e454b.ADA'
    """
    return str(pair).replace(":", "-").replace("/", ".")


def pair_of(key: str) -> Pair | None:
    """Return the pair of a key, or None where it is not the key of one.

    >>> str(pair_of("ADA.00000000000000000000000000000000000000000000000000000000-"))
    'ADA/00000000000000000000000000000000000000000000000000000000:'
    """
    found = _KEY(key)
    if found is None:
        return None
    base, quote = found.groups()
    try:
        return Pair(AssetId.parse(base.replace("-", ":")), AssetId.parse(quote.replace("-", ":")))
    except MarketIndexError:
        return None


def record_of(book: OrderBook) -> Record:
    """Return an order book as it is stored: its JSON, deflated (zlib, RFC 1950) where that makes it shorter.

    A text that no reader would inflate is left as it is: no server takes it.
    """
    text = wire.order_book_to_json(book)
    value = text
    if _WORTH_COMPRESSING <= len(text) <= MAX_TEXT_LENGTH:
        value = min(zlib.compress(text, _LEVEL), text, key=len)
    return Record(book.pair, key_of(book.pair), value, digest_of(text))


def book_of(key: str, value: bytes, headers: Mapping[str, str] | None) -> OrderBook:
    """Return the book of a value; raise a `MarketIndexError` that says why where it holds none, or that of another key.

    A value with a digest is as a store has written it: whoever writes that header vouches for the text, of which the
    levels are read once somebody looks at them. One without is somebody else's: JSON in the shape of the order-book
    endpoint's answer, deflated or not, of which everything is checked.
    """
    text = _inflated(value) if value[:1] == _DEFLATED else value
    digest = headers.get(DIGEST_HEADER) if headers else None
    if digest is None:
        book = wire.order_book_from_json(text)
    elif digest != digest_of(text):
        raise InvalidOrderBook(f"its digest does not fit, so that it was damaged: {safe_repr(text[:80])}")
    else:
        book = wire.order_book_as_written(text)
    if key_of(book.pair) != key:
        raise InvalidOrderBook(f"it holds the book of another pair: {book.pair}")
    return book


def digest_of(text: bytes) -> str:
    """Return the digest of an order book in JSON."""
    return blake2b(text, digest_size=16).hexdigest()


def _inflated(value: bytes) -> bytes:
    inflating = zlib.decompressobj()
    try:
        text = inflating.decompress(value, MAX_TEXT_LENGTH)
    except zlib.error as error:
        raise InvalidOrderBook(f"it cannot be inflated: {error}") from None
    if not inflating.eof or inflating.unused_data:
        raise InvalidOrderBook(f"it cannot be inflated to an end within {MAX_TEXT_LENGTH} bytes, or goes on behind it")
    return text
