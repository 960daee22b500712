"""The one module that knows all media: it finds the medium that a name stands for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Final

from market_index import MarketIndexError
from market_index.errors import safe_repr
from market_index_feeds.book_stream import BookStream
from market_index_feeds.errors import FeedError
from market_index_feeds.feed import Feed
from market_index_feeds.medium import Source
from market_index_feeds.ndjson import open_ndjson_source, open_ndjson_stream
from market_index_feeds.opened import shown_name
from market_index_feeds.orders import DEFAULT_HISTORY, open_orders_source, open_orders_stream
from market_index_feeds.sqlite import WAIT_SECONDS, Synchronous, is_sqlite, open_sqlite_source, open_sqlite_store
from market_index_feeds.store import Store, StoreError

__all__ = ["is_sqlite", "open_book_stream", "open_feed", "open_store"]

ORDERS: Final = "orders:"
"""The start of the names of feeds of orders; the rest is a path, or `-`."""

BUCKETS: Final = {"nats", "tls"}
"""The schemes of the URLs that name a bucket of NATS."""


def open_feed(source: str | PathLike[str], *, history: int | None = None) -> Feed:
    """Open the feed that `source` names.

    That is a store (`market.db`, or `nats://127.0.0.1:4222/books`, with the extra `nats`), a file of order books, one a
    line (`books.ndjson`), `-` for standard input, events of orders (`orders:events.ndjson`, or `orders:-`), or the base
    URL of a running service (`http://127.0.0.1:8000`). Nothing is published before the feed is started.

    `history` is for events of orders: how many blocks before the last one can be rolled back to, 2,160 if it is None.

    >>> open_feed("nowhere/books.ndjson")
    Traceback (most recent call last):
    market_index_feeds.errors.FeedError: nowhere/books.ndjson cannot be opened: No such file or directory

    Raises `FeedError` when there is nothing to be read there, the kind of source is not known, or takes no `history`.
    """
    name = fspath(source)
    if name.startswith(ORDERS):
        return Feed(open_orders_source(name.removeprefix(ORDERS), _history(name, history)))
    _require_no_history(name, history)
    return Feed(_open_source(name))


def _history(name: str, history: int | None) -> int:
    if history is None:
        return DEFAULT_HISTORY
    if type(history) is not int or history < 0:
        raise FeedError(
            f"{shown_name(name)} cannot be opened: history must be 0 or more blocks, got {safe_repr(history)}"
        )
    return history


def _require_no_history(name: str, history: int | None) -> None:
    if history is not None:
        raise FeedError(f"{shown_name(name)} cannot be opened: it has no history, only a feed such as orders:PATH has")


def _open_source(name: str) -> Source:
    scheme, mark, _ = name.partition("://")
    if not mark:
        return open_sqlite_source(name) if name != "-" and is_sqlite(name) else open_ndjson_source(name)
    if scheme.lower() in {"http", "https"}:
        from market_index_feeds.http import open_http_source  # noqa: PLC0415  # http.client, ssl and email load 20 modules

        return open_http_source(name)
    if scheme.lower() in BUCKETS:
        with _requiring_nats(name, FeedError):
            from market_index_feeds.nats import open_nats_source  # noqa: PLC0415  # it needs the extra `nats`
        return open_nats_source(name)
    raise FeedError(f"{shown_name(name)} cannot be opened: {safe_repr(scheme)} is not a known kind of feed")


def open_book_stream(source: str, *, history: int | None = None) -> BookStream:
    """Open a file or a pipe of order books by its path, or standard input by `-`, to be read once, to its end.

    After `orders:` they are events of orders, for which `history` is as in `open_feed`.

    Raises `FeedError` when there is nothing to be read there, or `history` is given for order books.
    """
    if source.startswith(ORDERS):
        return open_orders_stream(source.removeprefix(ORDERS), _history(source, history))
    _require_no_history(source, history)
    return open_ndjson_stream(source)


def open_store(
    target: str | PathLike[str], *, wait: float = WAIT_SECONDS, synchronous: Synchronous = "full", make: bool = True
) -> Store:
    """Open the store that `target` names, for publishing.

    That is a file (`market.db`), or a bucket of NATS JetStream (`nats://127.0.0.1:4222/books`, with the extra `nats`).
    One that is not there is made, unless `make` is False.

    Other processes may have it open as well. To a file they take turns to write, and one that has to wait longer than
    `wait` seconds raises `StoreBusy`. What was acknowledged survives a power cut; with `synchronous="normal"`, which
    writes several times as fast, a crash of programs alone. The servers of a bucket have `wait` seconds to acknowledge
    what is written, or `Unacknowledged` is raised; how safe it is with them is set there.

    >>> from market_index import ADA, AssetId, OrderBook, Pair
    >>> from tempfile import TemporaryDirectory
    >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), bids=[("0.0041", 250)])
    >>> with TemporaryDirectory() as folder, open_store(f"{folder}/market.db") as store:
    ...     store.publish(book)
    ...     store.retract(book.pair)
    Receipt(revision=1, published=1, retracted=0)
    Receipt(revision=2, published=0, retracted=1)

    Raises `StoreError` when it cannot be opened, or the kind of store is not known.
    """
    name = fspath(target)
    scheme, mark, _ = name.partition("://")
    if name == "-":
        raise StoreError("- is standard input, and no store: name a file such as market.db")
    if not mark:
        return open_sqlite_store(name, wait=wait, synchronous=synchronous, make=make)
    if scheme.lower() not in BUCKETS:
        raise StoreError(f"{shown_name(name)} cannot be opened: {safe_repr(scheme)} is not a known kind of store")
    if synchronous != "full":
        raise StoreError(
            f"{shown_name(name)} cannot be opened: how safe a bucket is to be is set at its servers, not by synchronous"
        )
    with _requiring_nats(name, StoreError):
        from market_index_feeds.nats import open_nats_store  # noqa: PLC0415  # it needs the extra `nats`
    return open_nats_store(name, wait=wait, make=make)


@contextmanager
def _requiring_nats(name: str, error: type[MarketIndexError]) -> Iterator[None]:
    """Name the extra to install if the client library is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != "nats":
            raise
        raise error(
            f"{shown_name(name)} cannot be opened: it needs the extra nats (pip install 'market-index[nats]')"
        ) from None
