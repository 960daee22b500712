"""Costs of the wire format: decoding and encoding books, whole and after a change, as JSON and as gzip.

One book of 500 levels a side. *msgspec* and *pydantic* decode into typed objects; *json.loads* makes dicts. *orjson and
Decimal* makes a Decimal of each price, and checks nothing else. The converter of cattrs decodes a class of a user that
has the book as a field.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from gzip import compress, decompress
from itertools import count
from typing import Any, Final

import msgspec
import orjson
from attrs import frozen
from cattrs.preconf.json import make_converter

from benchmarks.books import book, books, order_book_path
from benchmarks.measure import Group, Prepared, Row, alone, compared, interleaved
from benchmarks.servers.fastapi_pydantic import OrderBook as ModelBook
from market_index import AssetId, LiveIndex, MarketIndex, OrderBook, PairInfo, wire
from market_index.levels import by_price
from market_index_http import create_app
from tests.asgi import scope_of

LEVELS: Final = 500
PAIR_LIST: Final = "/trading-view/pair-list"
GZIP: Final = {"accept-encoding": "gzip"}


def groups(*, quick: bool) -> dict[str, Group]:
    one = book(random.Random(6), LEVELS)
    return {
        "decode": partial(decoding, quick=quick),
        "decode_pairs": partial(decoding_pairs, quick=quick),
        "encode": partial(encoding, quick=quick),
        "book": partial(first_response, f"a book of {LEVELS} levels a side", [one], order_book_path(one), quick=quick),
        "list_10000": partial(first_response, "a pair list of 10,000", books(10_000, 0), PAIR_LIST, quick=quick),
    }


class StructLevel(msgspec.Struct):
    price: Decimal
    accumulated_liquidity: int


class StructBook(msgspec.Struct):
    base: str
    quote: str
    spot: Decimal | None
    bids: list[StructLevel]
    asks: list[StructLevel]


@frozen
class Snapshot:
    book: OrderBook


def orjson_and_decimal(text: bytes) -> list[list[tuple[Decimal, int]]]:
    value = orjson.loads(text)
    return [
        [(Decimal(level["price"]), level["accumulated_liquidity"]) for level in value[side]]
        for side in ("bids", "asks")
    ]


def decoding(*, quick: bool) -> Iterator[Row]:
    one = book(random.Random(5), LEVELS)
    text = wire.order_book_to_json(one)
    decoder = msgspec.json.Decoder(StructBook)
    converter = make_converter()
    wire.configure_converter(converter)
    snapshot = b'{"book":%s}' % text

    assert wire.order_book_from_json(text) == one
    assert [level.price for level in decoder.decode(text).bids] == [level.price for level in one.bids]
    assert [level.price for level in ModelBook.model_validate_json(text).asks] == [level.price for level in one.asks]
    assert orjson_and_decimal(text) == [
        list(zip(side.prices, side.amounts, strict=True)) for side in (one.bids, one.asks)
    ]
    assert converter.loads(snapshot, Snapshot).book == one
    ours, converted = "order_book_from_json", "converter.loads"
    peers = ("msgspec (typed)", "pydantic", "json.loads", "orjson and Decimal")
    contenders = {
        ours: lambda: wire.order_book_from_json(text),
        peers[0]: lambda: decoder.decode(text),
        peers[1]: lambda: ModelBook.model_validate_json(text),
        peers[2]: lambda: json.loads(text),
        peers[3]: lambda: orjson_and_decimal(text),
        converted: lambda: converter.loads(snapshot, Snapshot),
    }
    seconds = interleaved(contenders, quick=quick)
    work = f"decode a book of {LEVELS} levels a side"
    for peer in peers:
        yield compared(work, "ms", seconds, ours, peer, scale=1e3)
    yield compared(f"{work}, a field of a class, with cattrs", "ms", seconds, converted, ours, scale=1e3)


def decoding_pairs(*, quick: bool) -> Iterator[Row]:
    infos = MarketIndex(books(1_000, 0)).pair_list()
    text = wire.pair_list_to_json(infos)

    def constructed() -> tuple[PairInfo, ...]:
        entries = json.loads(text)["pairs"]
        return tuple(
            [PairInfo(AssetId.parse(one["base"]), AssetId.parse(one["quote"]), one["last_spot"]) for one in entries]
        )

    assert wire.pair_list_from_json(text) == constructed() == infos
    contenders = {
        "pair_list_from_json": lambda: wire.pair_list_from_json(text),
        "json.loads and constructors": constructed,
    }
    seconds = interleaved(contenders, quick=quick)
    yield compared("decode a pair list of 1,000", "ms", seconds, *contenders, scale=1e3)


def encoding(*, quick: bool) -> Iterator[Row]:
    one = book(random.Random(6), LEVELS)
    text = wire.order_book_to_json(one)
    struct, model = msgspec.json.decode(text, type=StructBook), ModelBook.model_validate_json(text)
    assert msgspec.json.encode(struct) == model.model_dump_json().encode() == text
    contenders: dict[str, Any] = {
        "order_book_to_json": Prepared(partial(forget_encoded, one), wire.order_book_to_json),
        "msgspec": lambda: msgspec.json.encode(struct),
        "pydantic": model.model_dump_json,
    }
    seconds = interleaved(contenders, quick=quick)
    work = f"encode a book of {LEVELS} levels a side"
    for peer in ("msgspec", "pydantic"):
        yield compared(work, "ms", seconds, "order_book_to_json", peer, scale=1e3)


def forget_encoded(one: OrderBook) -> OrderBook:
    """Return the book without the cached text of its chunks; its other caches remain."""
    for chunk in (*by_price(one.bids).chunks, *by_price(one.asks).chunks):
        chunk.encoded = None
    return one


def first_response(name: str, held: list[OrderBook], target: str, *, quick: bool) -> Iterator[Row]:
    """Measure the first response of a new value, whose body is not cached."""
    live, spots, loop = LiveIndex(held), count(1), asyncio.new_event_loop()
    app = create_app(live)

    def publish() -> None:
        live.publish(held[0].apply(spot=str(next(spots))))

    def answer(headers: dict[str, str]) -> bytes:
        return loop.run_until_complete(response(app, target, headers))

    content = answer({})
    assert decompress(answer(GZIP)) == content
    contenders: dict[str, Callable[[], Any] | Prepared] = {
        "plain": Prepared(publish, lambda _: answer({})),
        "gzip": Prepared(publish, lambda _: answer(GZIP)),
        "gzip.compress, level 1": lambda: compress(content, 1),
    }
    # Processor time of all threads: large bodies are made in one.
    seconds = interleaved(contenders, quick=quick, clock=time.process_time)
    work = f"first response after one change: {name}"
    yield alone(work, "ms", seconds["plain"], scale=1e3)
    yield compared(f"{work}, gzip", "ms", seconds, "gzip", "gzip.compress, level 1", scale=1e3)


async def response(app: Any, target: str, headers: dict[str, str]) -> bytes:
    """Return the body that an app sends. It does not read that of the request."""
    parts: list[bytes] = []

    async def send(message: Any) -> None:
        parts.append(message.get("body", b""))

    await app(scope_of(target, headers=headers), None, send)
    return b"".join(parts)
