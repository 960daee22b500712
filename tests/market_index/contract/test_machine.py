"""The state machine for services: it accepts a correct one, and detects wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from market_index import MarketIndex, format_price
from market_index.contract.machine import service_machine
from tests.market_index.contract.double import Double
from tests.waiting import WITHOUT_SHRINKING

FEW = settings(max_examples=15, stateful_step_count=10, phases=WITHOUT_SHRINKING)


def run(plant: Callable[[Double], Any]) -> None:
    double = Double()
    plant(double)

    def publish(index: MarketIndex) -> None:
        double.books = {}
        for pair, book in index.items():
            sides = [
                [(format_price(one.price), one.accumulated_liquidity) for one in side]
                for side in (book.bids, book.asks)
            ]
            spot = None if book.spot is None else format_price(book.spot)
            double.books[str(pair.base), str(pair.quote)] = spot, sides[0], sides[1]

    run_state_machine_as_test(service_machine(publish, double), settings=FEW)


def test_a_correct_service_is_accepted():
    run(lambda double: None)


def keep_first(double: Double) -> None:
    """Cache each book for ever."""
    own, known = double.find, dict[tuple[str, str], Any]()
    double.find = lambda base, quote: known.setdefault((base, quote), own(base, quote)) or own(base, quote)  # type: ignore[method-assign]


def keep_pairs(double: Double) -> None:
    """Serve pairs that were retracted."""
    own, known = double.find, dict[tuple[str, str], Any]()

    def find(base: str, quote: str) -> Any:
        if found := own(base, quote):
            known[base, quote] = found
        return known.get((base, quote))

    double.find = find  # type: ignore[method-assign]


def one_tag(double: Double) -> None:
    double.tag = lambda body: '"1"'  # type: ignore[method-assign]


def drop_the_last_digit(double: Double) -> None:
    own = double.level
    double.level = lambda price, amount: own(price, amount if amount < 2**53 else int(float(amount)))  # type: ignore[method-assign]


@pytest.mark.parametrize("plant", [keep_first, keep_pairs, one_tag, drop_the_last_digit])
def test_a_wrong_service_is_detected(plant: Callable[[Double], None]):
    with pytest.raises(AssertionError, match="must be"):
        run(plant)
