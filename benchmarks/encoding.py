"""Costs of the wire format: decoding and encoding books, whole and after a change, as JSON and as gzip."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from gzip import decompress
from itertools import cycle
from typing import Any, Final

import attrs
import msgspec
from pydantic import BaseModel

from benchmarks.books import book, books
from benchmarks.changes import changes
from benchmarks.figures import Prepared, Row, compared, divided, interleaved
from benchmarks.indexes import compress, compressed
from benchmarks.report import Group
from market_index import MarketIndex, OrderBook, wire
from market_index.arithmetic import EXACT
from market_index_http.bodies import Bodies, Body

LEVELS: Final = 500
DEEP: Final = 5_000

TITLE: Final = "Encoding and decoding"
ABOUT: Final = f"""
One book of {LEVELS} levels a side. *msgspec* and *pydantic* decode into typed objects; *json.loads* makes dicts. *Its
numbers alone* are formatted without keys. Bodies after one change have {DEEP:,} levels a side. *with zlib* is the same
code where isal is not installed: `gzip.compress` of the standard library at its fastest level.
"""


def groups(*, quick: bool) -> dict[str, Group]:
    return {
        "decode": partial(decoding, quick=quick),
        "decode_rows": partial(decoding_rows, quick=quick),
        "encode": partial(encoding, quick=quick),
        "change": partial(after_a_change, quick=quick),
        "gzip": partial(gzip_of_new_bodies, quick=quick),
    }


@attrs.frozen
class TypedLevel:
    price: Decimal
    accumulated_liquidity: int


@attrs.frozen
class TypedBook:
    base: str
    quote: str
    spot: Decimal | None
    bids: tuple[TypedLevel, ...]
    asks: tuple[TypedLevel, ...]


class StructLevel(msgspec.Struct):
    price: Decimal
    accumulated_liquidity: int


class StructBook(msgspec.Struct):
    base: str
    quote: str
    spot: Decimal | None
    bids: list[StructLevel]
    asks: list[StructLevel]


class ModelLevel(BaseModel):
    price: Decimal
    accumulated_liquidity: int


class ModelBook(BaseModel):
    base: str
    quote: str
    spot: Decimal | None
    bids: list[ModelLevel]
    asks: list[ModelLevel]


def decoding(*, quick: bool) -> Iterator[Row]:
    one = book(random.Random(5), LEVELS)
    text = wire.order_book_to_json(one)
    decoder = msgspec.json.Decoder(TypedBook)

    def and_levels() -> Any:
        read = wire.order_book_from_json(text)
        return read.bids, [*read.bids], [*read.asks]

    assert wire.order_book_from_json(text) == one
    assert [level.price for level in decoder.decode(text).bids] == [level.price for level in one.bids]
    assert [level.price for level in ModelBook.model_validate_json(text).asks] == [level.price for level in one.asks]
    ours, looked_at = "order_book_from_json", "and its levels"
    peers = ("msgspec (typed)", "pydantic", "json.loads")
    contenders = {
        ours: lambda: wire.order_book_from_json(text),
        looked_at: and_levels,
        peers[0]: lambda: decoder.decode(text),
        peers[1]: lambda: ModelBook.model_validate_json(text),
        peers[2]: lambda: json.loads(text),
    }
    seconds = interleaved(contenders, quick=quick)
    work = f"decode a book of {LEVELS} levels a side"
    for peer, at_most in zip(peers, (2.5, 1, None), strict=True):
        yield compared(work, "ms", seconds, ours, peer, scale=1e3, at_most=at_most, headline=peer == peers[0])
    for peer in peers[:2]:
        yield compared(f"{work} and create its levels", "ms", seconds, looked_at, peer, scale=1e3)


def decoding_rows(*, quick: bool) -> Iterator[Row]:
    texts = [wire.order_book_to_json(one) for one in books(200, 10)]
    kilobytes = sum(map(len, texts)) / len(texts) / 1e3
    following, also = cycle(texts), cycle(texts)
    contenders = {
        "order_book_from_json": lambda: [wire.order_book_from_json(next(following)) for _ in range(20)],
        "json.loads": lambda: [json.loads(next(also)) for _ in range(20)],
    }
    seconds = divided(interleaved(contenders, quick=quick), 20)
    work = f"decode and validate a row of {kilobytes:.1f} kB"
    yield compared(work, "µs", seconds, "order_book_from_json", "json.loads", scale=1e6, at_most=3, headline=True)


def encoding(*, quick: bool) -> Iterator[Row]:
    one = book(random.Random(6), LEVELS)
    text = wire.order_book_to_json(one)
    struct, model = msgspec.json.decode(text, type=StructBook), ModelBook.model_validate_json(text)
    assert msgspec.json.encode(struct) == model.model_dump_json().encode() == text
    prices, amounts = (*one.bids.prices, *one.asks.prices), (*one.bids.amounts, *one.asks.amounts)
    numbers, template = "its numbers alone", b"%d" * len(amounts)
    contenders: dict[str, Any] = {
        "order_book_to_json": Prepared(partial(forget_encoded, one), wire.order_book_to_json),
        numbers: lambda: ("".join(map(EXACT.to_sci_string, prices)), template % amounts),
        "msgspec": lambda: msgspec.json.encode(struct),
        "pydantic": model.model_dump_json,
    }
    seconds = interleaved(contenders, quick=quick)
    work = f"encode a book of {LEVELS} levels a side"
    for peer, at_most in (("msgspec", 2), ("pydantic", None), (numbers, None)):
        headline = peer == "msgspec"
        yield compared(work, "ms", seconds, "order_book_to_json", peer, scale=1e3, at_most=at_most, headline=headline)


def forget_encoded(one: OrderBook) -> OrderBook:
    """Return the book without the cached text of its chunks; its other caches remain."""
    for chunk in (*one.bids.chunks, *one.asks.chunks):
        chunk.encoded = None
    return one


def after_a_change(*, quick: bool) -> Iterator[Row]:
    deep = book(random.Random(6), DEEP)
    stream = cycle(changes(deep, 10_000))
    whole = book(random.Random(6), DEEP)
    wire.order_book_to_json(deep)
    contenders = {
        "after a change": Prepared(lambda: deep.apply(bids=[next(stream)]), body),
        "encoding all of it": Prepared(lambda: forget_encoded(whole), body),
    }
    seconds = interleaved(contenders, quick=quick)
    work = f"JSON with ETag of {DEEP:,} levels a side after one change"
    peer = "encoding all of it"
    yield compared(work, "ms", seconds, "after a change", peer, scale=1e3, at_most=1 / 15, headline=True)


def body(one: OrderBook) -> Any:
    made = Bodies().encode(MarketIndex([one]), one.pair)
    return made.text, made.digest


def gzip_of_new_bodies(*, quick: bool) -> Iterator[Row]:
    texts = {
        f"a book of {LEVELS} levels a side": wire.order_book_to_json(book(random.Random(6), LEVELS)),
        "a pair list of 10,000": wire.pair_list_to_json(MarketIndex(books(10_000, 0)).pair_list()),
    }
    ours, peer = "Body", "with zlib"
    for named, text in texts.items():
        packed = {ours: compress(Body(text, b"")), peer: compressed(text)}
        assert all(decompress(one) == text for one in packed.values())
        contenders: dict[str, Any] = {
            ours: Prepared(partial(Body, text, b""), compress),
            peer: partial(compressed, text),
        }
        seconds = interleaved(contenders, quick=quick)
        work = f"gzip of {named}"
        yield compared(work, "ms", seconds, ours, peer, scale=1e3, at_most=1 / 3)
        sizes = {name: [len(one) / 1e3] for name, one in packed.items()}
        yield compared(f"{work}: its size", "kB", sizes, ours, peer, at_most=0.95)
