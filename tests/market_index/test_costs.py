"""The costs that docstrings promise, counted in operations on prices: no test reads a clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final

import pytest

from market_index import ADA, AssetId, Order, OrderBook, Pair, PriceLevel, RestingOrders, Side

PAIR = Pair(AssetId(bytes(28), b"SNEK"), ADA)
COUNT = 5_000
# Numbers that are equal modulo 2^61-1 have equal hashes: a dict of them takes quadratic time.
EQUAL_HASHES = [str(7 + number * (2**61 - 1)) for number in range(COUNT)]
DEEP = [str(number) for number in range(1, 2 * COUNT + 1)]


class Counted(Decimal):
    """A price that counts what is done with it."""

    made: Final[Counter[str]] = Counter()


def counted(name: str) -> Callable[..., Any]:
    def method(price: Decimal, *others: Any) -> Any:
        Counted.made[name] += 1
        return getattr(Decimal, name)(price, *others)

    return method


for operation in ("__hash__", "__eq__", "__lt__", "__gt__", "__mul__", "copy_negate"):
    setattr(Counted, operation, counted(operation))


@pytest.fixture(autouse=True)
def _none_counted() -> Iterator[None]:
    Counted.made.clear()
    yield
    Counted.made.clear()


def with_price(value: Any, price: str) -> Any:
    """Return a level or an order after setting its price to one that counts, which no constructor would keep."""
    vars(type(value))["price"].__set__(value, Counted(price))
    return value


def levels(prices: list[str]) -> list[PriceLevel]:
    return [with_price(PriceLevel("1", 1), price) for price in prices]


def orders(prices: list[str]) -> list[Order]:
    return [with_price(Order(PAIR, Side.ASK, "1", 1), price) for price in prices]


def asks(prices: list[str]) -> OrderBook:
    return OrderBook(PAIR, asks=levels(prices))


MANY: dict[str, Callable[[], object]] = {
    "from_levels": lambda: OrderBook.from_levels(PAIR, asks=levels(EQUAL_HASHES)),
    "from_orders": lambda: OrderBook.from_orders(PAIR, orders(EQUAL_HASHES)),
    "RestingOrders": lambda: RestingOrders(dict(zip(EQUAL_HASHES, orders(EQUAL_HASHES), strict=True))),
    "apply": lambda: asks(EQUAL_HASHES[::2]).apply(asks=levels(EQUAL_HASHES[::-1])),
    "changes_since": lambda: asks(EQUAL_HASHES).changes_since(asks(EQUAL_HASHES[::2])),
}


@pytest.mark.parametrize("work", MANY.values(), ids=MANY)
def test_prices_with_equal_hashes_are_never_hashed_and_compared_n_log_n_times(work: Callable[[], object]):
    work()
    assert Counted.made["__hash__"] == 0
    assert Counted.made.total() <= COUNT * 30


FEW: dict[str, Callable[[OrderBook], object]] = {
    "one change": lambda book: book.apply(bids=[("2500", 7), ("0.5", 7)], asks=[("7500", 0), ("20000", 7)]),
    "the difference of a change": lambda book: book.apply(asks=[("7500", 7)]).changes_since(book),
    "an amount": lambda book: book.side(Side.ASK).amount_at("7500"),
    "a purchase": lambda book: book.buy(5),
    "a sale for quote units": lambda book: book.sell(5, "quote"),
    "a limit": lambda book: book.buy(5, limit="7500"),
    "liquidity near the midpoint": lambda book: book.liquidity_within(Side.ASK, "0.001"),
    "the best levels": lambda book: book.depth(10),
    "the midpoint": lambda book: book.mid,
}


@pytest.mark.parametrize("use", FEW.values(), ids=FEW)
def test_the_cost_of_a_small_use_does_not_depend_on_the_depth(use: Callable[[OrderBook], object]):
    book = OrderBook(PAIR, levels(DEEP[COUNT - 1 :: -1]), levels(DEEP[COUNT:]))
    Counted.made.clear()
    use(book)
    # A chunk has 64 levels on average, and a few have several times as many.
    assert Counted.made.total() < COUNT / 8


def test_a_change_of_a_level_reads_no_other_order_of_the_level():
    resting = RestingOrders(dict(zip(DEEP, orders(["7"] * len(DEEP)), strict=True)))
    saturated = resting.apply({"whale": Order(PAIR, Side.ASK, "7", 2**64 - 1)})
    Counted.made.clear()
    assert saturated.apply(removed=["whale"]).index[PAIR].asks.amounts == (len(DEEP),)
    assert Counted.made.total() < len(DEEP) / 8
