"""The state machine for indexers: it accepts a correct one, and detects broken ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from math import ceil

import pytest
from attrs import evolve
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from market_index import ADA, AssetId, InvalidOrderBook, MarketIndexError, Order, OrderBook, Pair, RestingOrders, Side
from market_index.stateful import Offer, indexer_machine
from tests.waiting import WITHOUT_SHRINKING

SNEK = AssetId(bytes(28), b"SNEK")
PAIR = Pair(SNEK, ADA)
LIMIT = 2**64 - 1


class RestingIndexer:
    """An indexer that keeps its orders as `RestingOrders`."""

    def __init__(self) -> None:
        self.working = RestingOrders()
        self.blocks = {"": self.working}

    def order(self, order_id: str, offer: Offer) -> Order:
        return offer.order

    def place(self, order_id: str, offer: Offer) -> None:
        self.working = self.working.apply({order_id: self.order(order_id, offer)})

    def remove(self, order_id: str) -> None:
        self.working = self.working.apply(removed=[order_id])

    def set_spot(self, pair: Pair, spot: Decimal | None) -> None:
        self.working = self.working.apply(spots={pair: spot})

    def untrack(self, pair: Pair) -> None:
        self.working = self.working.untrack(pair)

    def commit(self, block: str) -> None:
        self.blocks[block] = self.working

    def roll_back(self, block: str) -> None:
        while next(reversed(self.blocks)) != block:
            self.blocks.popitem()
        self.working = self.blocks[block]

    def order_books(self) -> Mapping[Pair, OrderBook]:
        return next(reversed(self.blocks.values())).index


class WithTwoBlocksOfHistory(RestingIndexer):
    def commit(self, block: str) -> None:
        super().commit(block)
        self.blocks = dict(list(self.blocks.items())[-3:])


class Matching(RestingIndexer):
    """A matching engine: a book that is crossed is a defect."""

    def commit(self, block: str) -> None:
        assert not any(book.is_crossed or book.is_locked for book in self.working.index.values())
        super().commit(block)


TestRestingIndexer = indexer_machine(RestingIndexer).TestCase
TestMatching = indexer_machine(Matching, amounts=st.integers(1, 9), crossing=False).TestCase
TestOfPairs = indexer_machine(RestingIndexer, pairs=[PAIR], max_history=0).TestCase
TestOfHistory = indexer_machine(WithTwoBlocksOfHistory, max_history=2).TestCase
TestRestingIndexer.settings = settings(max_examples=settings().max_examples // 2)
for case in (TestOfPairs, TestOfHistory, TestMatching):
    case.settings = settings(max_examples=10)


def price_not_inverted(_: RestingIndexer, __: str, offer: Offer) -> Order:
    is_price = Fraction(1, 10**28) <= offer.price <= 2**96 - 1
    return evolve(offer.order, price=offer.price) if is_price else offer.order


def amount_rounded_up(_: RestingIndexer, __: str, offer: Offer) -> Order:
    amount = min(ceil(offer.amount * offer.price), LIMIT)
    return evolve(offer.order, amount=amount) if offer.order.side is Side.BID else offer.order


def fills_added(indexer: RestingIndexer, order_id: str, offer: Offer) -> Order:
    before = indexer.working[order_id].amount if order_id in indexer.working else 0
    return evolve(offer.order, amount=min(before + offer.order.amount, LIMIT))


def sides_exchanged(_: RestingIndexer, __: str, offer: Offer) -> Order:
    return evolve(offer.order, side=Side.BID if offer.order.side is Side.ASK else Side.ASK)


class FloatKeys(RestingIndexer):
    """Prices that are equal as floats are one level."""

    def __init__(self) -> None:
        super().__init__()
        self.prices: dict[float, Decimal] = {}

    def order(self, order_id: str, offer: Offer) -> Order:
        price = offer.order.level_price
        return evolve(offer.order, price=self.prices.setdefault(float(price), price))


class FirstPairs(RestingIndexer):
    """An id stays in the pair in which it was first."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: dict[str, Pair] = {}

    def order(self, order_id: str, offer: Offer) -> Order:
        return evolve(offer.order, pair=self.pairs.setdefault(order_id, offer.pair))


def spots_lost_by_a_rollback(indexer: RestingIndexer, block: str) -> None:
    RestingIndexer.roll_back(indexer, block)
    indexer.working = indexer.blocks[block] = indexer.working.apply(spots=dict.fromkeys(indexer.working.index))


def changes_kept_by_a_rollback(indexer: RestingIndexer, block: str) -> None:
    working = indexer.working
    RestingIndexer.roll_back(indexer, block)
    indexer.working = working


def removed_if_it_exists(indexer: RestingIndexer, order_id: str) -> None:
    # An order that was removed before the rollback is absent, which is not the fault to detect.
    indexer.working = indexer.working.apply(removed=[order_id], missing_ok=True)


def one_block_back(indexer: RestingIndexer, _: str) -> None:
    if len(indexer.blocks) > 2:
        indexer.blocks.popitem()
    indexer.working = next(reversed(indexer.blocks.values()))


def without_empty_books(indexer: RestingIndexer) -> Mapping[Pair, OrderBook]:
    return {pair: book for pair, book in RestingIndexer.order_books(indexer).items() if book.bids or book.asks}


# Each mistake is one method, instead of that of `RestingIndexer`.
MISTAKES: dict[str, dict[str, Callable[..., object]]] = {
    "the price of a bid is not inverted": {"order": price_not_inverted},
    "the amount is in the quote": {"order": lambda _, __, offer: evolve(offer.order, amount=min(offer.amount, LIMIT))},
    "the amount is rounded up": {"order": amount_rounded_up},
    "bids are rounded up": {
        "order": lambda _, __, offer: evolve(offer.order, price=evolve(offer.order, side=Side.ASK).level_price)
    },
    "fills are added": {"order": fills_added},
    "sides are exchanged": {"order": sides_exchanged},
    "spots are lost by a rollback": {"roll_back": spots_lost_by_a_rollback},
    "changes are kept by a rollback": {"roll_back": changes_kept_by_a_rollback, "remove": removed_if_it_exists},
    "a rollback is one block": {"roll_back": one_block_back},
    "changes are visible before their block": {"order_books": lambda indexer: indexer.working.index},
    "empty books are forgotten": {"order_books": without_empty_books},
    "pairs are never untracked": {"untrack": lambda _, pair: None},
}
BROKEN = {name: type("BrokenIndexer", (RestingIndexer,), methods) for name, methods in MISTAKES.items()}
BROKEN |= {"prices are floats": FloatKeys, "an id stays in its first pair": FirstPairs}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_indexer_is_detected(broken: type[RestingIndexer]):
    # It may also raise an error itself, such as for orders that it should not have.
    with pytest.raises((AssertionError, MarketIndexError)) as found:
        # Most are detected within ten examples. With fewer, a random seed may miss one.
        run_state_machine_as_test(
            indexer_machine(broken), settings=settings(max_examples=500, phases=WITHOUT_SHRINKING)
        )
    message = str(found.value)
    assert isinstance(found.value, MarketIndexError) or re.match(r"after (None|block \d+): must be ", message), message


def test_an_indexer_that_retains_less_than_the_longest_rollback_is_detected():
    with pytest.raises(StopIteration):
        run_state_machine_as_test(
            indexer_machine(WithTwoBlocksOfHistory, max_history=3),
            settings=settings(max_examples=500, phases=WITHOUT_SHRINKING),
        )


def test_offers_are_of_the_given_pairs_and_amounts():
    offers = list[Offer]()

    class Noting(RestingIndexer):
        def place(self, order_id: str, offer: Offer) -> None:
            offers.append(offer)
            super().place(order_id, offer)

    machine = indexer_machine(Noting, pairs=[PAIR], amounts=st.just(7))
    run_state_machine_as_test(machine, settings=settings(max_examples=10))
    assert {offer.pair for offer in offers} == {PAIR}
    assert 7 in {offer.amount for offer in offers} <= set(range(8))


@pytest.mark.parametrize("pair", [Pair(ADA, ADA), "ADA/x"])
def test_a_pair_that_cannot_be_tracked_is_rejected(pair):
    with pytest.raises(InvalidOrderBook):
        indexer_machine(RestingIndexer, pairs=[PAIR, pair])
