"""Keys, values and headers of a bucket: the book of a pair under its key, and the record of a change in headers."""

from __future__ import annotations

import zlib
from typing import Final

from attrs import frozen

from market_index import Freshness, InvalidOrderBook, MarketIndexError, OrderBook, Pair, wire
from market_index.wire import freshness_from_json, freshness_to_json
from market_index_feeds.nats.bucket import Message
from market_index_feeds.source import UNKNOWN

try:  # three times as fast
    from isal import isal_zlib
except ImportError:  # there is no wheel of it for this platform
    _deflated = zlib.compress
else:
    _deflated = isal_zlib.compress

HEARTBEAT_KEY: Final = "_heartbeat"
"""The key of a change without books. It has no dot, so it names no pair, and a filter such as `*.ADA` skips it."""

DELETION: Final = {"KV-Operation": "DEL"}
"""The headers of a message that deletes its key."""

_FRESHNESS_HEADER: Final = "Market-Index-Freshness"
_CHANGE_HEADER: Final = "Market-Index-Change"
_UNFINISHED_HEADER: Final = "Market-Index-Unfinished"

# Level 1: identifiers are random digits, so that higher levels take up to three times as long to save 5 %.
_LEVEL: Final = 1
_WORTH_COMPRESSING: Final = 256
_DEFLATED: Final = b"\x78"  # the first byte of deflated data, and of no JSON


@frozen
class Record:
    """What the headers of the last message of each batch say: the freshness of all books, and a random id of the batch.

    `is_unfinished`: more batches of the same change follow. Until then, the bucket contains a mixture.
    """

    freshness: Freshness = UNKNOWN
    is_unfinished: bool = False
    change: str = ""

    def headers(self) -> dict[str, str]:
        """Return the headers."""
        freshness = {_FRESHNESS_HEADER: freshness_to_json(self.freshness).decode(), _CHANGE_HEADER: self.change}
        return freshness | ({_UNFINISHED_HEADER: "1"} if self.is_unfinished else {})

    @classmethod
    def of(cls, message: Message | None) -> Record:
        """Return the record of a message; nothing is known if another program wrote it. Raises `InvalidFreshness`."""
        headers = {} if message is None else message.headers
        text = headers.get(_FRESHNESS_HEADER)
        freshness = UNKNOWN if text is None else freshness_from_json(text.encode(errors="replace"))
        return cls(freshness, _UNFINISHED_HEADER in headers, headers.get(_CHANGE_HEADER, ""))


def key_of(pair: Pair) -> str:
    """Return the key of a pair: base and quote with a dot between them, each with `-` instead of the colon.

    A filter such as `*.ADA` matches every pair quoted in ADA. Keys allow only `-/_=.a-zA-Z0-9`.

    >>> from market_index import ADA, AssetId
    >>> key_of(Pair(AssetId(bytes(28), b"SNEK"), ADA))
    '00000000000000000000000000000000000000000000000000000000-534e454b.ADA'
    """
    return str(pair).replace(":", "-").replace("/", ".")


def pair_of(key: str) -> Pair | None:
    """Return the pair of a key, or None if it is not the key of a pair.

    >>> str(pair_of("ADA.00000000000000000000000000000000000000000000000000000000-"))
    'ADA/00000000000000000000000000000000000000000000000000000000:'
    """
    try:
        pair = Pair.parse(key.replace("-", ":").replace(".", "/"))
    except MarketIndexError:
        return None
    return pair if key_of(pair) == key else None


def value_of(book: OrderBook) -> bytes:
    """Return the value of an order book: its JSON, deflated (zlib, RFC 1950) if that makes it shorter.

    A text above `wire.MAX_ORDER_BOOK_BYTES` is not deflated: no reader accepts it, and its size shows that.
    """
    text = wire.order_book_to_json(book)
    if not _WORTH_COMPRESSING <= len(text) <= wire.MAX_ORDER_BOOK_BYTES:
        return text
    return min(_deflated(text, _LEVEL), text, key=len)


def book_of(key: str, value: bytes) -> OrderBook:
    """Return the book of a value: JSON in the shape of the order-book endpoint's answer, deflated or not.

    Everything is validated, because any program may have written it. Of a longer text, only one byte more than the
    limit is inflated.

    Raises `MarketIndexError` if the value is not a valid order book, too large, or of another pair.
    """
    text = value
    if value[:1] == _DEFLATED:
        inflating = zlib.decompressobj()
        try:
            text = inflating.decompress(value, wire.MAX_ORDER_BOOK_BYTES + 1)
        except zlib.error as error:
            raise InvalidOrderBook(f"cannot be inflated: {error}") from None
        if len(text) <= wire.MAX_ORDER_BOOK_BYTES and (not inflating.eof or inflating.unused_data):
            raise InvalidOrderBook("deflated data must end where the value ends")
    if len(text) > wire.MAX_ORDER_BOOK_BYTES:
        raise InvalidOrderBook(f"must have at most {wire.MAX_ORDER_BOOK_BYTES} bytes of JSON, got more")
    book = wire.order_book_from_json(text)
    if key_of(book.pair) != key:
        raise InvalidOrderBook(f"must be the book of the pair of its key, got that of {book.pair}")
    return book
