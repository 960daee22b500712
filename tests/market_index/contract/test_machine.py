"""The state machine for services: it accepts a correct one, and detects wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from market_index import MarketIndex, format_price
from market_index.contract.machine import service_machine
from tests.market_index.contract.double import Double, Planted, of
from tests.market_index.contract.planted import got, status
from tests.waiting import WITHOUT_SHRINKING

FEW = settings(max_examples=15, stateful_step_count=10, phases=WITHOUT_SHRINKING)


def run(plant: Planted) -> None:
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


def keep_first(own: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    """Cache each book for ever."""
    known = dict[tuple[str, str], Any]()
    return lambda base, quote: own(base, quote) and known.setdefault((base, quote), own(base, quote))


def keep_pairs(own: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    """Serve pairs that were retracted."""
    known = dict[tuple[str, str], Any]()

    def find(base: str, quote: str) -> Any:
        known[base, quote] = own(base, quote) or known.get((base, quote))
        return known[base, quote]

    return find


WRONG = {
    "the first book of each pair": of("find", keep_first),
    "retracted pairs": of("find", keep_pairs),
    "one tag": of("tag", lambda _: lambda body: '"1"'),
    "another last digit": of("level", lambda own: lambda price, amount: own(price, int(float(amount)))),
    "another status": got(lambda _, found: status(500)(found) if found.status == 200 else found),
}


@pytest.mark.parametrize("plant", WRONG.values(), ids=WRONG)
def test_a_wrong_service_is_detected(plant: Planted):
    with pytest.raises(AssertionError, match="must be"):
        run(plant)
