"""The fuzz targets: each passes an input to the library and to the grammar, and fails if the results differ.

`long_texts` has no grammar: it calls the readers, and a reader must return in time, or raise an error of the library.

An input can be any bytes. Any exception, including `AssertionError`, is a finding.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Final

from market_index import (
    AssetId,
    InvalidAssetId,
    InvalidOrderBook,
    InvalidPairList,
    InvalidPrice,
    MarketIndexError,
    PairInfo,
    wire,
)
from market_index.prices import parse_price, parse_prices
from market_index.wire import parse_time
from market_index_feeds.line_json import marker_from_json
from market_index_feeds.lines import Line
from market_index_feeds.names import without_credentials
from market_index_feeds.orders import Blocks
from tests.oracles import grammar
from tests.oracles.comparison import (
    assert_equal,
    asset_fields,
    book_fields,
    compare_asset,
    compared,
    fixed_point,
    spot_text,
)


def order_books(data: bytes) -> None:
    """Read an order book."""
    errors = InvalidAssetId, InvalidPrice, InvalidOrderBook
    book = compared(wire.order_book_from_json, grammar.order_book, book_fields, data, *errors)
    if book is not None:
        assert_equal(wire.order_book_from_json(wire.order_book_to_json(book)), book)


def pair_lists(data: bytes) -> None:
    """Read a pair list."""
    errors = InvalidAssetId, InvalidPrice, InvalidPairList
    infos = compared(wire.pair_list_from_json, grammar.pair_list, info_fields, data, *errors)
    if infos is not None:
        assert_equal(wire.pair_list_from_json(wire.pair_list_to_json(infos)), infos)


def assets(data: bytes) -> None:
    """Read an asset identifier in each spelling."""
    compare_asset(text_of(data))


def prices(data: bytes) -> None:
    """Read the price in each line separately, and all prices as one column."""
    texts = text_of(data).split("\n")
    for text in texts:
        compared(parse_price, grammar.price, fixed_point, text, InvalidPrice)
    compared(
        lambda texts: parse_prices(texts)[0],
        lambda texts: list(map(grammar.price, texts)),
        column_fields,
        texts,
        InvalidPrice,
    )


def long_texts(data: bytes) -> None:
    """Read a text in which the piece between the first two NULs is repeated.

    Linear time is about a second. A loop in Python that takes quadratic time takes hours, and reaches the
    timeout of an input. Quadratic time in C, such as copies of the text, can be less than a minute, and may pass.
    """
    before, piece, after, *_ = [*data.split(b"\0", 2), b"", b""]
    if piece:
        text = before + piece * (LONG_TEXT_BYTES // len(piece)) + after
        for read in READERS:
            with suppress(MarketIndexError):
                read(text)


LONG_TEXT_BYTES: Final = 2**20


def read_event(data: bytes) -> None:
    """Read an event of orders after a reset."""
    blocks = Blocks(0, lambda *_: None)
    for number, line in enumerate((b'{"reset":true}', data)):
        blocks.read(Line(number, line))


READERS: Final[tuple[Callable[[bytes], object], ...]] = (
    read_event,
    wire.order_book_from_json,
    wire.pair_list_from_json,
    wire.freshness_from_json,
    marker_from_json,
    wire.pair_named_in,
    lambda data: AssetId.parse(text_of(data)),
    lambda data: parse_price(text_of(data)),
    lambda data: parse_time(text_of(data)),
    lambda data: without_credentials(text_of(data)),
)

TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "order-books": order_books,
    "pair-lists": pair_lists,
    "assets": assets,
    "prices": prices,
    "long-texts": long_texts,
}


def info_fields(infos: tuple[PairInfo, ...]) -> list[grammar.Info]:
    return [(asset_fields(info.base), asset_fields(info.quote), spot_text(info.last_spot)) for info in infos]


def column_fields(column: list[Decimal]) -> list[str]:
    return list(map(fixed_point, column))


def text_of(data: bytes) -> str:
    """Return the bytes as text, with lone surrogates for invalid UTF-8."""
    return data.decode("utf-8", "surrogateescape")
