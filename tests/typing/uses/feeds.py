"""Correct and incorrect uses of `market_index_feeds`, for type checkers alone."""

from collections.abc import Generator
from pathlib import Path
from typing import assert_type

from market_index import Freshness, LiveIndex, MarketIndex, MarketIndexError, OrderBook, Pair, RestingOrders
from market_index_feeds import (
    BookTooLarge,
    Conflict,
    Feed,
    FeedError,
    Position,
    Progress,
    Receipt,
    Recorder,
    Store,
    StoreBusy,
    StoreError,
    UnknownOutcome,
    Version,
    mirror,
    open_feed,
    open_store,
    replay,
)

# Feeds


def report(done: int, total: int) -> None: ...


def report_text(done: str) -> None: ...


progress: Progress = report
live = LiveIndex()
with open_feed(Path("market.db")) as feed:
    assert_type(feed, Feed)
    assert_type(feed.health.problem, str | None)
    assert_type(feed.start(live, progress), None)
    assert_type(feed.read(), MarketIndex)
    assert_type(feed.health.revision, int | None)
    assert_type(feed.health.age, float)

assert_type(open_feed("-", follow=False).versions(progress=progress), Generator[Version, None, None])
for version in open_feed("orders:-?history=100").versions():
    assert_type(version.index, MarketIndex)
    assert_type(version.invalid, frozenset[Pair | None])
    assert_type(version.position, Position | None)
    assert_type(version.orders, RestingOrders | None)
for _, index in replay("recording.ndjson"):
    assert_type(index, MarketIndex)

open_feed("-", False)  # error: mypy[call-arg] pyright[reportCallIssue]
open_feed(b"market.db")  # error: mypy[arg-type] pyright[reportArgumentType]
feed.start(live.current)  # error: mypy[arg-type] pyright[reportArgumentType]
feed.start(live, report_text)  # error: mypy[arg-type] pyright[reportArgumentType]
str(feed.health.revision + 1)  # error: mypy[operator] pyright[reportOptionalOperand]

# Stores


def write(store: Store, book: OrderBook) -> None:
    assert_type(store.publish(book, book), Receipt)
    assert_type(store.retract(book.pair).retracted, int)
    assert_type(store.update([book], [book.pair], Freshness("slot 1"), after=store.position), Receipt)
    assert_type(store.replace(iter([book]), Freshness("slot 1")), Receipt)
    assert_type(store.read(), Version)
    store.publish([book])  # error: mypy[arg-type] pyright[reportArgumentType]
    store.retract(book)  # error: mypy[arg-type] pyright[reportArgumentType]
    store.replace(book)  # error: mypy[arg-type] pyright[reportArgumentType]
    store.replace([book], "slot 1")  # error: mypy[arg-type] pyright[reportArgumentType]


assert_type(open_store("market.db", wait=0.5, synchronous="normal", create=False), Store)
open_store("market.db", synchronous="FULL")  # error: mypy[arg-type] pyright[reportArgumentType]
Store("market.db")  # error: mypy[abstract] pyright[reportAbstractUsage]

assert_type(mirror(feed, lambda: Recorder("recording.ndjson"), progress=report), frozenset[Pair])
mirror(feed, open_store("market.db"))  # error: mypy[arg-type] pyright[reportArgumentType]

# Errors

assert_type(BookTooLarge("too large", ()).pairs, tuple[Pair, ...])
store_errors: list[type[StoreError]] = [StoreBusy, Conflict, BookTooLarge, UnknownOutcome]
all_errors: list[type[MarketIndexError]] = [FeedError, StoreError]
