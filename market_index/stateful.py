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
from market_index.display.tokens import Tokens
from market_index.levels import MAX_LIQUIDITY
from market_index.order_book import OrderBook
from market_index.orders import Order
from market_index.pairs import Pair, require_trackable
from market_index.prices import MAX_DECIMAL_PLACES, Side, price_for_takers

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
# The first two differ, but not as floats.
_PRICES: Final = st.sampled_from([Fraction(2), 2 + Fraction(1, 10**27), Fraction(1, 3), Fraction(29000, 7)]) | ratios()
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
    new_indexer: Callable[[], Indexer],
    *,
    pairs: Collection[Pair] = _PAIRS,
    max_history: int = 2_160,
    amounts: st.SearchStrategy[int] = _AMOUNTS,
    crossing: bool = True,
) -> type[RuleBasedStateMachine]:
    """Return a state machine that compares the books of an indexer with those of a plain model after each step.

    In a test file, `TestMyIndexer = indexer_machine(MyIndexer).TestCase` is the whole test. A failing example names the
    pairs, with eight digits of each policy id.

    Args:
        new_indexer: Returns a new indexer without orders.
        pairs: The pairs of the offers.
        max_history: The maximum number of blocks that a rollback discards.
        amounts: Draws the amounts of offers, in the smallest unit of the offered asset.
        crossing: Whether a bid may be at or above an ask. Pass False for a matching engine, which fills such orders.

    Raises:
        InvalidOrderBook: A pair cannot be tracked.
    """
    for pair in pairs:
        require_trackable(pair)
    labels = Tokens()
    content = {
        "new_indexer": staticmethod(new_indexer),
        "pairs": {f"{labels.label(pair.base)}/{labels.label(pair.quote)}": pair for pair in pairs},
        "max_history": max_history,
        "amounts": amounts,
        "crossing": crossing,
    }
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


_OFFERS: Final[dict[str, Any]] = {
    "pair": _one(lambda machine: machine.pairs),
    "side": st.sampled_from([side.value for side in Side]),
    "price": _PRICES,
    "amount": st.runner().flatmap(lambda machine: machine.amounts),
}


class _IndexerMachine(RuleBasedStateMachine):
    """Applies each change to the indexer and to a model: plain dicts of the offers, the spot prices and the blocks."""

    new_indexer: Callable[[], Indexer]
    pairs: Mapping[str, Pair]
    max_history: int
    crossing: bool

    def __init__(self) -> None:
        super().__init__()
        self.indexer = self.new_indexer()
        self.offers: _Offers = {}
        self.spots: _Spots = {}
        self.blocks: dict[str, tuple[_Offers, _Spots]] = {}
        self.block_count = 0

    def idle_pairs(self) -> set[str]:
        busy = {offer.pair for offer in self.offers.values()}
        return {name for name, pair in self.pairs.items() if pair in self.spots and pair not in busy}

    def _set(self, order_id: str, offer: Offer) -> None:
        self.offers[order_id] = offer
        self.spots.setdefault(offer.pair)
        self.indexer.place(order_id, offer)

    @precondition(lambda machine: _ORDER_IDS - machine.offers.keys())
    @rule(order_id=_one(lambda machine: _ORDER_IDS - machine.offers.keys()), **_OFFERS)
    def place(self, order_id: str, pair: str, side: str, price: Fraction, amount: int) -> None:
        """Offer the base at a price of the pair (an ask), or the quote (a bid)."""
        traded, is_ask = self.pairs[pair], side == Side.ASK.value
        if not self.crossing:
            # Bids are at most 1, and asks above 1.
            low = max(min(price, 1 / price), Fraction(1, 10**MAX_DECIMAL_PLACES))
            price = low if not is_ask else Fraction(2) if low == 1 else 1 / low
        offer = Offer(traded, traded.base, amount, price) if is_ask else Offer(traded, traded.quote, amount, 1 / price)
        self._set(order_id, offer)

    @precondition(lambda machine: machine.offers)
    @rule(order_id=_one(lambda machine: machine.offers), **_OFFERS)
    def remove_and_place(self, order_id: str, **offer: Any) -> None:
        """Use the id of an order again, perhaps in another pair."""
        self.remove(order_id)
        self.place(order_id, **offer)

    @precondition(lambda machine: machine.offers)
    @rule(order_id=_one(lambda machine: machine.offers), tenths_left=st.integers(0, 9))
    def fill(self, order_id: str, tenths_left: int) -> None:
        offer = self.offers[order_id]
        self._set(order_id, evolve(offer, amount=offer.amount * tenths_left // 10))

    @precondition(lambda machine: machine.offers)
    @rule(order_id=_one(lambda machine: machine.offers))
    def remove(self, order_id: str) -> None:
        del self.offers[order_id]
        self.indexer.remove(order_id)

    @rule(pair=_one(lambda machine: machine.pairs), spot=st.none() | prices())
    def set_spot(self, pair: str, spot: Decimal | None) -> None:
        self.spots[self.pairs[pair]] = spot
        self.indexer.set_spot(self.pairs[pair], spot)

    @precondition(lambda machine: machine.idle_pairs())
    @rule(pair=_one(idle_pairs))
    def untrack(self, pair: str) -> None:
        del self.spots[self.pairs[pair]]
        self.indexer.untrack(self.pairs[pair])

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
