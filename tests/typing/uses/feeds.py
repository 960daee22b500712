"""Correct and incorrect uses of `market_index_feeds`, for type checkers alone."""

from pathlib import Path
from typing import assert_type

from market_index import LiveIndex, MarketIndex, MarketIndexError, OrderBook, Pair
from market_index_feeds import (
    BookTooLarge,
    Feed,
    FeedError,
    Progress,
    Receipt,
    RejectedLine,
    Relay,
    Store,
    StoreBusy,
    StoreError,
    Unacknowledged,
    is_sqlite,
    open_book_stream,
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

assert_type(open_feed("orders:-", history=100), Feed)

open_feed("orders:-", 100)  # error: mypy[call-arg] pyright[reportCallIssue]
open_feed(b"market.db")  # error: mypy[arg-type] pyright[reportArgumentType]
feed.start()  # error: mypy[call-arg] pyright[reportCallIssue]
feed.start(live.current)  # error: mypy[arg-type] pyright[reportArgumentType]
feed.start(live, report_text)  # error: mypy[arg-type] pyright[reportArgumentType]
feed.read_order_book("ADA/x")  # error: mypy[arg-type] pyright[reportArgumentType]
str(feed.revision + 1)  # error: mypy[operator] pyright[reportOptionalOperand]
feed.books = 0  # error: mypy[misc] pyright[reportAttributeAccessIssue]
Feed("market.db")  # error: mypy[arg-type] pyright[reportArgumentType]

# Stores


def write(store: Store, book: OrderBook) -> None:
    assert_type(store.publish(book, book), Receipt)
    assert_type(store.retract(book.pair).retracted, int)
    assert_type(store.replace([book], keep=lambda pair: pair == book.pair), Receipt)
    assert_type(store.revision, int)
    store.publish([book])  # error: mypy[arg-type] pyright[reportArgumentType]
    store.retract(book)  # error: mypy[arg-type] pyright[reportArgumentType]
    store.replace(book)  # error: mypy[arg-type] pyright[reportArgumentType]


assert_type(open_store("market.db", wait=0.5, synchronous="normal", make=False), Store)
assert_type(is_sqlite("market.db"), bool)

open_store("market.db", synchronous="FULL")  # error: mypy[arg-type] pyright[reportArgumentType]
open_store("market.db", wait="1")  # error: mypy[arg-type] pyright[reportArgumentType]
open_store("market.db", 0.5)  # error: mypy[call-arg] pyright[reportCallIssue]
Store("market.db")  # error: mypy[abstract] pyright[reportAbstractUsage]

# Relays and streams

relay = Relay(feed, lambda: open_store("market.db"))
assert_type(relay.start(report), Receipt)
assert_type(relay.live, LiveIndex)

Relay(feed, open_store("market.db"))  # error: mypy[arg-type] pyright[reportArgumentType]

stream = open_book_stream("-")
for batch in stream.batches():
    assert_type(batch.books, list[OrderBook])
    assert_type(batch.rejected, list[RejectedLine])
    assert_type(batch.rejected[0].pair, Pair | None)
    assert_type(batch.removed, tuple[Pair, ...])
assert_type(open_book_stream("orders:-", history=100).problem, str | None)

open_book_stream(b"-")  # error: mypy[arg-type] pyright[reportArgumentType]

# Errors

try:
    live.publish()
except BookTooLarge as error:
    assert_type(error.pairs, tuple[Pair, ...])
    assert_type(error.receipt, Receipt)
except Unacknowledged as error:
    assert_type(error.pairs, tuple[Pair, ...])

store_errors: list[type[StoreError]] = [StoreBusy, Unacknowledged, BookTooLarge]
all_errors: list[type[MarketIndexError]] = [FeedError, StoreError]
