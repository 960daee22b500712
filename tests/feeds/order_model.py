"""A model of a feed of orders, of plain dictionaries, which applies event by event; and events for it."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any, TypeAlias

from attrs import define, field, frozen
from hypothesis import strategies as st

from market_index import MarketIndex
from tests.feeds.event_lines import RESET, block, place, remove, rollback, spot, untrack

Book: TypeAlias = tuple[dict[Any, int], dict[Any, int], Any]
"""Bids, asks and the spot price; prices are equal if their numbers are."""


def books_of(index: MarketIndex) -> dict[int, Book]:
    return {
        int.from_bytes(one.base.policy_id): (
            {Fraction(level.price): level.accumulated_liquidity for level in book.bids},
            {Fraction(level.price): level.accumulated_liquidity for level in book.asks},
            None if book.spot is None else Fraction(book.spot),
        )
        for one, book in index.items()
    }


@frozen
class State:
    """The orders by id (pair, is a bid, price, amount), the spots of tracked pairs, and the ids without liquidity."""

    orders: dict[str, tuple[int, bool, Fraction, int]] = field(factory=dict)
    spots: dict[int, Fraction | None] = field(factory=dict)
    faulty: frozenset[str] = frozenset()

    @property
    def books(self) -> dict[int, Book]:
        books: dict[int, Book] = {number: ({}, {}, price) for number, price in self.spots.items()}
        for number, is_bid, price, amount in self.orders.values():
            bids, asks, _ = books[number]
            levels = bids if is_bid else asks
            if amount:
                levels[price] = levels.get(price, 0) + amount
        return books


@define
class Model:
    """Applies each event to copies of plain dictionaries."""

    history: int
    visible: State = field(factory=State)
    as_of: str | None = None
    working: State | None = None
    """None while the state is unknown."""
    blocks: list[tuple[str, State]] = field(factory=list)

    def apply(self, line: bytes) -> None:
        try:
            values = json.loads(line)
        except ValueError:
            self.working = None
            return
        if "reset" in values:
            self.working, self.blocks = State(), []
        elif self.working is not None:
            try:
                self.working = self._applied(self.working, values)
            except (KeyError, ValueError):
                self.working = None

    def _applied(self, state: State, values: dict[str, str]) -> State:
        orders, spots, faulty = dict(state.orders), dict(state.spots), set(state.faulty)
        number = int(values["base"][:56], 16) if "base" in values else 0
        if "place" in values:
            order_id, is_bid, price = values["place"], values["offered"] == "quote", Fraction(values["price"])
            amount = int(values["amount"])
            faulty.discard(order_id)
            if price < Fraction(1, 10**28):
                faulty.add(order_id)
                price, amount = Fraction(1), 0
            elif is_bid:
                price, amount = 1 / price, amount * price.numerator // price.denominator
            orders[order_id] = number, is_bid, price, amount
            spots.setdefault(number, None)
        elif "remove" in values:
            del orders[values["remove"]]
            faulty.discard(values["remove"])
        elif "spot" in values:
            spots[number] = None if values["spot"] is None else Fraction(values["spot"])
        elif "untrack" in values:
            if any(order[0] == number for order in orders.values()):
                raise ValueError
            spots.pop(number, None)
        elif "block" in values:
            if values["block"] in dict(self.blocks):
                raise ValueError
            self.blocks = [*self.blocks, (values["block"], state)][-self.history - 1 :]
            self.visible, self.as_of = state, values["block"]
        else:
            position = [text for text, _ in self.blocks].index(values["rollback"])
            self.blocks = self.blocks[: position + 1]
            self.visible, self.as_of = self.blocks[-1][1], values["rollback"]
            return self.visible
        return State(orders, spots, frozenset(faulty))


NUMBERS = st.integers(1, 3)
IDS = st.sampled_from("abcde")
PRICES = st.sampled_from(["1", "2", "0.5", "1/2", "4/2", "1e-30", "0"])
PLACES = st.builds(place, IDS, NUMBERS, st.integers(0, 9), PRICES, st.sampled_from(["base", "quote"]))
TEXTS = st.sampled_from([f"slot {number}" for number in range(12)])
EVENTS = st.one_of(
    PLACES,
    PLACES,
    st.builds(remove, IDS),
    st.builds(spot, NUMBERS, st.sampled_from(["1", "3/4", None])),
    st.builds(untrack, NUMBERS),
    st.builds(block, TEXTS),
    st.builds(block, TEXTS),
    st.builds(rollback, TEXTS),
    st.sampled_from([RESET, RESET, b"nonsense\n"]),
)
