"""The records of a bucket: keys of pairs, values of order books, and the freshness of all books."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from attrs import field, frozen

from market_index import (
    AssetId,
    Freshness,
    InvalidFreshness,
    InvalidOrderBook,
    MarketIndexError,
    OrderBook,
    Pair,
    wire,
)
from market_index.errors import safe_repr
from market_index.wire import freshness_from_json, freshness_to_json
from market_index_feeds.book_size import require_size
from market_index_feeds.nats.bucket import Message

try:
    from isal.isal_zlib import compress  # takes a fifth to a third of the time
except ImportError:
    from zlib import compress

DIGEST_HEADER: Final = "Market-Index-Digest"
"""The header with the digest of the text of a value. It detects damage and equal books."""

COMPLETE_HEADER: Final = "Market-Index-Complete"
"""The header of the freshness with the creation time of the bucket that is marked as complete (decision 31)."""

FRESHNESS_KEY: Final = "freshness"
"""The key of the freshness of all books. It has no dot, so it names no pair, and a filter such as `*.ADA` skips it."""

_WORTH_COMPRESSING: Final = 256
_LEVEL: Final = 1  # identifiers and prices hardly get shorter with more effort
_DEFLATED: Final = b"\x78"  # the first byte of deflated data, and of no JSON

_KEY: Final = re.compile(r"(ADA|[0-9a-f]{56}-[0-9a-f]{0,64})\.(ADA|[0-9a-f]{56}-[0-9a-f]{0,64})").fullmatch


@frozen
class Record:
    """What a bucket stores under a key: the value, and its headers, of which one is the digest of its text."""

    key: str
    value: bytes
    headers: Mapping[str, str]


@frozen
class Statement:
    """What a bucket says of all its books: their freshness, and whether they are all that is tracked (decision 31).

    `complete` is the creation time of the bucket that they are all of, None if it is not marked. The mark of an earlier
    bucket of the same name, which its publisher may still write, does not count.
    """

    freshness: Freshness = field(factory=Freshness)
    complete: str | None = None


def key_of(pair: Pair) -> str:
    """Return the key of a pair: base and quote with a dot between them, each with `-` instead of the colon.

    A filter such as `*.ADA` matches every pair quoted in ADA. Keys allow only `-/_=.a-zA-Z0-9`.

    >>> from market_index import ADA
    >>> key_of(Pair(AssetId(bytes(28), b"SNEK"), ADA))
    '00000000000000000000000000000000000000000000000000000000-534e454b.ADA'
    """
    return str(pair).replace(":", "-").replace("/", ".")


def pair_of(key: str) -> Pair | None:
    """Return the pair of a key, or None if it is not the key of a pair.

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
    """Return the record of an order book: its JSON, deflated (zlib, RFC 1950) if that makes it shorter.

    A text above `wire.MAX_ORDER_BOOK_BYTES` is not deflated: no reader accepts it, and its size shows that.
    """
    text = wire.order_book_to_json(book)
    value = text
    if _WORTH_COMPRESSING <= len(text) <= wire.MAX_ORDER_BOOK_BYTES:
        value = min(compress(text, _LEVEL), text, key=len)
    return Record(key_of(book.pair), value, {DIGEST_HEADER: digest_of(text)})


def statement_record(statement: Statement) -> Record:
    """Return the record of what a bucket says of all its books."""
    value = freshness_to_json(statement.freshness)
    headers = {} if statement.complete is None else {COMPLETE_HEADER: statement.complete}
    return Record(FRESHNESS_KEY, value, {**headers, DIGEST_HEADER: _digest_of_statement(value, headers)})


def has_content_of(record: Record | None, message: Message) -> bool:
    """Return whether a message has the content of a record, so that every reader reads the same; None for a deletion.

    The digest alone does not show that: another program may have written it beside another value. The values of equal
    texts differ if another compressor made them.
    """
    if record is None or message.value is None:
        return record is None and message.value is None
    return all(message.headers.get(name) == record.headers.get(name) for name in (DIGEST_HEADER, COMPLETE_HEADER)) and (
        message.value == record.value or _have_equal_texts(message.value, record.value)
    )


def book_of(key: str, value: bytes, headers: Mapping[str, str] | None) -> OrderBook:
    """Return the book of a value: JSON in the shape of the order-book endpoint's answer, deflated or not.

    Everything is validated, because any program may have written it. The digest is optional; it detects damage.

    Raises `MarketIndexError` if the value is not a valid order book, too large, has another digest, or is of another
    pair.
    """
    text = _text_of(value)
    _require_digest(headers or {}, digest_of(text), text, InvalidOrderBook)
    book = wire.order_book_from_json(text)
    if key_of(book.pair) != key:
        raise InvalidOrderBook(f"must be the book of the pair of its key, got that of {book.pair}")
    return book


def statement_of(value: bytes, headers: Mapping[str, str] | None) -> Statement:
    """Return what a bucket says of all its books. Raises `InvalidFreshness` if it is invalid, or has another digest.

    The mark counts only with a digest: no other program sets it by accident.
    """
    found = headers or {}
    _require_digest(found, _digest_of_statement(value, found), value, InvalidFreshness)
    complete = found.get(COMPLETE_HEADER) if DIGEST_HEADER in found else None
    return Statement(freshness_from_json(value), complete)


def digest_of(text: bytes) -> str:
    """Return the digest of a text in JSON."""
    return blake2b(text, digest_size=16).hexdigest()


def _require_digest(headers: Mapping[str, str], expected: str, text: bytes, error: type[MarketIndexError]) -> None:
    """Raise `error` if there is a digest, and it is another one than expected."""
    digest = headers.get(DIGEST_HEADER)
    if digest is not None and digest != expected:
        raise error(f"digest must be that of the text, got {safe_repr(digest)}: {safe_repr(text[:80])}")


def _digest_of_statement(value: bytes, headers: Mapping[str, str]) -> str:
    return digest_of(value + headers.get(COMPLETE_HEADER, "").encode(errors="replace"))


def _have_equal_texts(one: bytes, other: bytes) -> bool:
    try:
        return _text_of(one) == _text_of(other)
    except InvalidOrderBook:
        return False


def _text_of(value: bytes) -> bytes:
    is_deflated = value[:1] == _DEFLATED
    inflating = zlib.decompressobj()
    try:
        text = inflating.decompress(value, wire.MAX_ORDER_BOOK_BYTES + 1) if is_deflated else value
    except zlib.error as error:
        raise InvalidOrderBook(f"cannot be inflated: {error}") from None
    require_size(text)
    if is_deflated and (not inflating.eof or inflating.unused_data):
        raise InvalidOrderBook("deflated data must end where the value ends")
    return text
