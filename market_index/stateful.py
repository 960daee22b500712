"""A Hypothesis state machine that tests an indexer.

It places, fills and removes orders, sets spot prices, commits blocks and rolls them back. After each step it compares
the books of the indexer with those of a plain model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import Any, Final, Protocol, TypeAlias, final

from attrs import evolve, frozen

from market_index.assets import ADA, POLICY_ID_LENGTH, AssetId
from market_index.levels import MAX_LIQUIDITY
from market_index.order_book import OrderBook
from market_index.orders import Order
from market_index.pairs import Pair, require_trackable
from market_index.prices import Side, price_for_takers

# Before the imports of Hypothesis, because its error names the extra.
from market_index.strategies import amounts, prices, ratios

# isort: split
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

__all__ = ["Indexer", "Offer", "indexer_machine"]

_Offers: TypeAlias = "dict[str, Offer]"
_Spots: TypeAlias = dict[Pair, Decimal | None]
_TOKENS: Final = [AssetId(bytes(POLICY_ID_LENGTH), name) for name in (b"A", b"B")]
_PAIRS: Final = (Pair(_TOKENS[0], ADA), Pair(ADA, _TOKENS[0]), Pair(*_TOKENS))  # also with base and quote exchanged
_ORDER_IDS: Final = frozenset(["a#0", "a#1", "b#0", "c#0", "d#0"])
_LEVEL_PRICES: Final = st.sampled_from([Fraction(2), Fraction(1, 3), Fraction(29000, 7)]) | ratios()
_AMOUNTS: Final = st.integers(0, 10) | amounts(min_value=0)


@final
@frozen
class Offer:
    """An order as it is on the ledger: what it offers, and the price that it asks.

    `offered` is the base of the pair (an ask) or its quote (a bid). `amount` is how much of it remains, in its smallest
    unit. `price` is how much of the other asset is asked per unit, both in smallest units.

    >>> token = AssetId(bytes(28), b"SNEK")
    >>> Offer(Pair(ADA, token), offered=token, amount=10, price=Fraction(1, 3)).order.price
    Decimal('3')
    """

    pair: Pair
    offered: AssetId
    amount: int
    price: Fraction

    @property
    def order(self) -> Order:
        """The order of this offer, from `Order.from_offer`."""
        return Order.from_offer(self.pair, offered=self.offered, amount=self.amount, price=self.price)


class Indexer(Protocol):
    """The interface of the code under test, which derives order books from the orders of a chain.

    A change becomes visible at the end of its block. Before the first block there are no books.
    """

    def place(self, order_id: str, offer: Offer) -> None:
        """Add an order, or replace the order of this id by its remainder, and track its pair."""

    def remove(self, order_id: str) -> None:
        """Remove a resting order."""

    def set_spot(self, pair: Pair, spot: Decimal | None) -> None:
        """Set the last executed price of a pair, or None, and track the pair."""

    def untrack(self, pair: Pair) -> None:
        """Stop tracking a pair that has no orders."""

    def commit(self, block: str) -> None:
        """End a block, which makes all changes since the last block visible. The names of blocks are unique."""

    def roll_back(self, block: str) -> None:
        """Return to the end of a block, and discard later blocks and uncommitted changes."""

    def order_books(self) -> Mapping[Pair, OrderBook]:
        """Return the visible books of all tracked pairs."""


def indexer_machine(
    new_indexer: Callable[[], Indexer], *, pairs: Collection[Pair] = _PAIRS, max_history: int = 2_160
) -> type[RuleBasedStateMachine]:
    """Return a state machine that compares the books of an indexer with those of a plain model after each step.

    In a test file, `TestMyIndexer = indexer_machine(MyIndexer).TestCase` is the whole test.

    Args:
        new_indexer: Returns a new indexer without orders.
        pairs: The pairs of the offers.
        max_history: The maximum number of blocks that a rollback discards.

    Raises:
        InvalidOrderBook: A pair cannot be tracked.
    """
    for pair in pairs:
        require_trackable(pair)
    content = {"new_indexer": staticmethod(new_indexer), "pairs": tuple(pairs), "max_history": max_history}
    return type("IndexerMachine", (_IndexerMachine,), content)


def _order_books(offers: _Offers, spots: _Spots) -> dict[Pair, OrderBook]:
    """Return the book of each tracked pair, computed from all offers (decision 22)."""
    totals: dict[tuple[Pair, Side], dict[Decimal, int]] = {(pair, side): {} for pair in spots for side in Side}
    for offer in offers.values():
        if offer.offered == offer.pair.base:
            side, ratio, amount = Side.ASK, offer.price, offer.amount
        else:
            side, ratio, amount = Side.BID, 1 / offer.price, floor(offer.amount * offer.price)
        levels, price = totals[offer.pair, side], price_for_takers(side, ratio)
        levels[price] = min(levels.get(price, 0) + amount, MAX_LIQUIDITY)
    return {
        pair: OrderBook.from_levels(pair, totals[pair, Side.BID].items(), totals[pair, Side.ASK].items(), spot)
        for pair, spot in spots.items()
    }


def _one(of: Callable[[Any], Collection[Any]]) -> st.SearchStrategy[Any]:
    """Draw an element of a collection of the machine in its current state."""
    return st.runner().flatmap(lambda machine: st.sampled_from(sorted(of(machine))))


@st.composite
def _offers(draw: st.DrawFn) -> Offer:
    pair: Pair = draw(_one(lambda machine: machine.pairs))
    is_ask, price, amount = draw(st.booleans()), draw(_LEVEL_PRICES), draw(_AMOUNTS)
    return Offer(pair, pair.base, amount, price) if is_ask else Offer(pair, pair.quote, amount, 1 / price)


class _IndexerMachine(RuleBasedStateMachine):
    """Applies each change to the indexer and to a model: plain dicts of the offers, the spot prices and the blocks."""

    new_indexer: Callable[[], Indexer]
    max_history: int

    def __init__(self) -> None:
        super().__init__()
        self.indexer = self.new_indexer()
        self.offers: _Offers = {}
        self.spots: _Spots = {}
        self.blocks: dict[str, tuple[_Offers, _Spots]] = {}
        self.block_count = 0

    def idle_pairs(self) -> set[Pair]:
        return self.spots.keys() - {offer.pair for offer in self.offers.values()}

    @precondition(lambda machine: _ORDER_IDS - machine.offers.keys())
    @rule(order_id=_one(lambda machine: _ORDER_IDS - machine.offers.keys()), offer=_offers())
    def place(self, order_id: str, offer: Offer) -> None:
        self.offers[order_id] = offer
        self.spots.setdefault(offer.pair)
        self.indexer.place(order_id, offer)

    @precondition(lambda machine: machine.offers)
    @rule(order_id=_one(lambda machine: machine.offers), tenths_left=st.integers(0, 9))
    def fill(self, order_id: str, tenths_left: int) -> None:
        offer = self.offers[order_id]
        self.place(order_id, evolve(offer, amount=offer.amount * tenths_left // 10))

    @precondition(lambda machine: machine.offers)
    @rule(order_id=_one(lambda machine: machine.offers))
    def remove(self, order_id: str) -> None:
        del self.offers[order_id]
        self.indexer.remove(order_id)

    @rule(pair=_one(lambda machine: machine.pairs), spot=st.none() | prices())
    def set_spot(self, pair: Pair, spot: Decimal | None) -> None:
        self.spots[pair] = spot
        self.indexer.set_spot(pair, spot)

    @precondition(lambda machine: machine.idle_pairs())
    @rule(pair=_one(idle_pairs))
    def untrack(self, pair: Pair) -> None:
        del self.spots[pair]
        self.indexer.untrack(pair)

    @rule()
    def commit(self) -> None:
        self.block_count += 1
        block = f"block {self.block_count}"
        self.blocks[block] = self.offers.copy(), self.spots.copy()
        self.blocks = dict(list(self.blocks.items())[-self.max_history - 1 :])
        self.indexer.commit(block)

    @precondition(lambda machine: machine.blocks)
    @rule(block=_one(lambda machine: machine.blocks))
    def roll_back(self, block: str) -> None:
        while next(reversed(self.blocks)) != block:
            self.blocks.popitem()
        offers, spots = self.blocks[block]
        self.offers, self.spots = offers.copy(), spots.copy()
        self.indexer.roll_back(block)

    @invariant()
    def books_are_those_of_the_last_block(self) -> None:
        block = next(reversed(self.blocks), None)
        expected = {} if block is None else _order_books(*self.blocks[block])
        found = dict(self.indexer.order_books())
        for pair in sorted(expected.keys() | found.keys()):
            if expected.get(pair) != found.get(pair):
                raise AssertionError(f"after {block}: must be {expected.get(pair)}, got {found.get(pair)}")
