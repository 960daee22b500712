"""Correct and incorrect uses of `market_index_feeds`, for type checkers alone."""

from collections.abc import Collection, Hashable
from pathlib import Path
from typing import assert_type

from market_index import Freshness, LiveIndex, MarketIndex, MarketIndexError, OrderBook, Pair
from market_index_feeds import (
    BooksRejected,
    Feed,
    FeedError,
    Progress,
    Receipt,
    Relay,
    Store,
    StoreBusy,
    StoreError,
    Unacknowledged,
    is_sqlite,
    open_feed,
    open_store,
)

# Feeds


def report(done: int, total: int) -> None: ...


def report_text(done: str) -> None: ...


progress: Progress = report
live = LiveIndex()
with open_feed(Path("market.db")) as feed:
    assert_type(feed, Feed)
    assert_type(feed.problem, str | None)
    assert_type(feed.start(live, progress), None)
    feed.start(live, lambda done, total: None)
    assert_type(feed.read(), MarketIndex)
    assert_type(feed.books, int)
    assert_type(feed.revision, int | None)
    assert_type(feed.age, float)
    assert_type(feed.freshness, Freshness)
    assert_type(feed.content.index, MarketIndex)
    assert_type(feed.content.coverage.invalid, frozenset[Hashable])
    assert_type(feed.content.coverage.absent, frozenset[Pair])
    assert_type(feed.content.coverage.is_complete, bool)

assert_type(open_feed("orders:-?history=100"), Feed)
for update in open_feed("-", follow=False).updates(progress):
    assert_type(update.books, Collection[OrderBook])
    assert_type(update.removed, Collection[Pair])
    assert_type(update.freshness, Freshness | None)

open_feed("orders:-", 100)  # error: mypy[call-arg] pyright[reportCallIssue]
open_feed(b"market.db")  # error: mypy[arg-type] pyright[reportArgumentType]
feed.start()  # error: mypy[call-arg] pyright[reportCallIssue]
feed.start(live.current)  # error: mypy[arg-type] pyright[reportArgumentType]
feed.start(live, report_text)  # error: mypy[arg-type] pyright[reportArgumentType]
feed.read_order_book("ADA/x")  # error: mypy[arg-type] pyright[reportArgumentType]
str(feed.revision + 1)  # error: mypy[operator] pyright[reportOptionalOperand]
feed.source = "other.db"  # error: mypy[misc] pyright[reportAttributeAccessIssue]
Feed("market.db")  # error: mypy[arg-type] pyright[reportArgumentType]

# Stores


def write(store: Store, book: OrderBook) -> None:
    assert_type(store.publish(book, book), Receipt)
    assert_type(store.retract(book.pair).retracted, int)
    assert_type(store.update([book], [book.pair], as_of="slot 1"), Receipt)
    assert_type(store.update([], freshness=Freshness("slot 1")), Receipt)
    assert_type(store.replace(iter([book]), {book.pair}, "slot 1").kept, frozenset[Pair])
    assert_type(store.revision, int)
    store.publish([book])  # error: mypy[arg-type] pyright[reportArgumentType]
    store.retract(book)  # error: mypy[arg-type] pyright[reportArgumentType]
    store.replace([book], lambda pair: pair == book.pair)  # error: mypy[arg-type] pyright[reportArgumentType]
    store.replace([book], published_at=None)  # error: mypy[call-arg] pyright[reportCallIssue]
    store.replace(book)  # error: mypy[arg-type] pyright[reportArgumentType]


assert_type(open_store("market.db", wait=0.5, synchronous="normal", make=False), Store)
assert_type(is_sqlite("market.db"), bool)

open_store("market.db", synchronous="FULL")  # error: mypy[arg-type] pyright[reportArgumentType]
open_store("market.db", wait="1")  # error: mypy[arg-type] pyright[reportArgumentType]
open_store("market.db", 0.5)  # error: mypy[call-arg] pyright[reportCallIssue]
Store("market.db")  # error: mypy[abstract] pyright[reportAbstractUsage]

# Relays

relay = Relay(feed, lambda: open_store("market.db"))
assert_type(relay.start(report), Receipt)
assert_type(relay.live, LiveIndex)

Relay(feed, open_store("market.db"))  # error: mypy[arg-type] pyright[reportArgumentType]

# Errors

try:
    live.publish()
except BooksRejected as error:
    assert_type(error.pairs, tuple[Pair, ...])
    assert_type(error.receipt, Receipt)
    assert_type(error.limit, str | None)
    assert_type(error.can_retry, bool)
except Unacknowledged as error:
    assert_type(error.pairs, tuple[Pair, ...])

store_errors: list[type[StoreError]] = [StoreBusy, Unacknowledged, BooksRejected]
all_errors: list[type[MarketIndexError]] = [FeedError, StoreError]
