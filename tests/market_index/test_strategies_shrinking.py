"""Failing examples shrink to readable values."""

from __future__ import annotations

import re
import subprocess
import sys
import typing
from decimal import Decimal
from random import Random

import pytest
from hypothesis import HealthCheck, find, settings
from hypothesis import strategies as st

from market_index import ADA, AssetId, Order, Pair, Side, strategies

ALL_PHASES = settings(database=None, max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))


def simplest(strategy: st.SearchStrategy[typing.Any], corner: typing.Callable[[typing.Any], bool]) -> typing.Any:
    # With a fixed seed: Hypothesis does not guarantee the simplest value.
    return find(strategy, corner, settings=ALL_PHASES, random=Random(0))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("corner", "counts"),
    [
        (lambda book: True, (0, 0)),
        (lambda book: book.bids, (1, 0)),
        (lambda book: book.spread is not None and book.spread >= 1, (1, 1)),
        (lambda book: book.is_crossed, (1, 1)),
        (lambda book: book.is_locked, (1, 1)),
    ],
)
def test_a_book_shrinks_to_what_matters(corner, counts: tuple[int, int]):
    book = simplest(strategies.order_books(), corner)
    assert (len(book.bids), len(book.asks), book.spot) == (*counts, None)
    for level in (*book.bids, *book.asks):
        assert level.price in {Decimal(1), Decimal(2), Decimal("0.1")}
        assert level.accumulated_liquidity < 100
    assert sorted([book.pair.base, book.pair.quote]) == [ADA, AssetId(bytes(28), b"")]


@pytest.mark.thorough
def test_the_parts_shrink_to_the_simplest():
    assert simplest(strategies.asset_ids(), lambda asset: True) == ADA
    assert simplest(strategies.prices(), lambda price: True) == 1
    assert simplest(strategies.prices(min_value="7", max_value="9"), lambda price: True) == 7
    assert simplest(strategies.amounts(), lambda amount: True) == 1
    assert simplest(strategies.amounts(min_value=0), lambda amount: True) == 0
    pair = Pair(ADA, AssetId(bytes(28), b""))
    orders = strategies.orders(pair=strategies.pairs(), price=strategies.prices())
    assert simplest(orders, lambda order: order.amount) == Order(pair, Side.BID, "1", 1)
    assert len(simplest(strategies.market_indexes(), lambda index: True)) == 0
    assert list(simplest(strategies.resting_orders(), lambda resting: len(resting) > 0)) == ["0"]


@pytest.mark.parametrize("least", [4, 1_000, 2**53 + 1, 2**60])
def test_an_amount_shrinks_to_the_smallest_that_fails(least: int):
    assert simplest(strategies.amounts(), lambda amount: amount >= least) == least


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_three_bids_shrink_to_small_numbers(seed: int):
    book = find(strategies.order_books(), lambda book: len(book.bids) > 2, settings=ALL_PHASES, random=Random(seed))
    assert all(level.price <= 3 and level.accumulated_liquidity == 1 for level in book.bids)


def test_a_price_shrinks_to_the_smallest_whole_number_that_fails():
    within = strategies.prices(min_value="0.01", max_value="100", max_decimal_places=2)
    for drawn in (strategies.prices(), within):
        assert simplest(drawn, lambda price: price >= 5) == 5


@pytest.mark.thorough
def test_a_failing_test_prints_values_and_not_calls():
    script = """
from hypothesis import HealthCheck, given, settings
from market_index.strategies import amounts, order_books, pairs, prices

@settings(database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(order_books(min_levels=1), amounts(), prices(), pairs())
def each(book, amount, price, pair):
    assert False

each()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    shown = re.sub(r"  # .*|\s", "", done.stderr)
    asset = r"(ADA|AssetId\.parse\('[0-9a-f]{56}:[0-9a-f]*'\))"
    pair = rf"Pair\(base={asset},quote={asset}\)"
    price = r"Decimal\('[0-9.]+'\)"
    level = rf"PriceLevel\(price={price},accumulated_liquidity=[0-9]+\)"
    sides = rf"bids=Levels\(Side\.BID,\[{level}.*?asks=Levels\(Side\.ASK,\[{level}"
    for value in (f"pair={pair}", "amount=[0-9]+", f"price={price}", rf"book=OrderBook\(pair={pair},{sides}"):
        assert re.search(value, shown), value
