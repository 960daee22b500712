"""A user's test suite of twelve claims about order books, ten of them false: found, shrunk, and pasted into a test."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import market_index
from market_index import ADA, OrderBook, PriceLevel, Side
from market_index.strategies import order_books

pytestmark = pytest.mark.thorough


def levels(book: OrderBook) -> tuple[PriceLevel, ...]:
    return (*book.bids, *book.asks)


def cost(book: OrderBook) -> Decimal:
    """The cost of all asks, computed in the default decimal context."""
    return sum((level.price * level.accumulated_liquidity for level in book.asks), start=Decimal(0))


TRUE: dict[str, Callable[[OrderBook], bool]] = {
    "the best bid is the highest": lambda book: not book.bids or book.bids[0].price == max(book.bids.prices),
    "a purchase takes no more than there is": lambda book: book.buy(2**64).filled <= sum(book.asks.amounts),
}

# Each with the greatest number of levels that its simplest counterexample has.
FALSE: dict[str, tuple[int, Callable[[OrderBook], bool]]] = {
    "there is a best bid": (0, lambda book: book.best_bid is not None),
    "there is a last price": (0, lambda book: book.spot is not None),
    "one asset is ADA": (0, lambda book: ADA in {book.pair.base, book.pair.quote}),
    "the spread is positive": (2, lambda book: book.spread is None or book.spread > 0),
    "a side has at most five levels": (6, lambda book: len(book.bids) <= 5),
    "a float is a key of a price": (2, lambda book: len({*map(float, book.asks.prices)}) == len(book.asks)),
    "a float is an amount": (1, lambda book: all(int(float(amount)) == amount for amount in book.bids.amounts)),
    "an amount has 63 bits": (1, lambda book: all(level.accumulated_liquidity < 2**63 for level in levels(book))),
    "the text of a price has no exponent": (1, lambda book: all("E" not in str(level.price) for level in levels(book))),
    "a cost has 28 digits": (2, lambda book: not book.asks or cost(book) == book.cumulative(Side.ASK)[-1].quote),
}


def counterexample(claim: Callable[[OrderBook], bool]) -> OrderBook | None:
    """Return the value of the report of Hypothesis, as a user pastes it into a test."""

    @settings(max_examples=300, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(order_books())
    def test(book: OrderBook) -> None:
        assert claim(book)

    try:
        test()
    except AssertionError as error:
        report = "\n".join(error.__notes__)
        arguments = report.partition("Failing test case: test(")[2].partition("\n)")[0]
        pasted: dict[str, Any] = eval(
            f"dict({arguments})", {**vars(market_index), "Decimal": Decimal}
        )  # printed by Hypothesis
        book: OrderBook = pasted["book"]
        return book
    return None


@pytest.mark.parametrize("claim", TRUE)
def test_a_true_claim_has_no_counterexample(claim: str):
    assert counterexample(TRUE[claim]) is None


@pytest.mark.parametrize("claim", FALSE)
def test_a_false_claim_is_found_shrunk_and_pasted(claim: str):
    most_levels, holds = FALSE[claim]
    book = counterexample(holds)
    assert book is not None
    assert not holds(book)
    # Local minima differ by one level.
    assert len(levels(book)) <= most_levels + 1
