"""The orders, pairs and spot prices that outputs of the ledger prove: a function of the outputs, and of the clock.

Theory of operation
    An output never changes, so it is decoded once, when it is first seen. It only becomes spent. `Outputs` has the
    unspent outputs, and those that were spent within the window. So all processes that read the same point of the chain
    show the same, whenever they were started.

    A pair is listed while it has, or had in the window, an order that could be filled. Its spot price is that of the
    last execution in the window that the ledger proves (decision 32).

    If a function of an exchange raises an exception, this output is skipped, and the others are read: anyone can pay
    the output that makes the function fail.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeAlias

from attrs import define, evolve, field, frozen

from market_index import AssetId, InvalidOrderBook, InvalidPrice, Order, Pair, PriceOutOfRange, Side
from market_index_feeds.ledger.datum import Skipped
from market_index_feeds.ledger.exchange import Candidate, Exchange, Fill, Offer
from market_index_feeds.ledger.outputs import MAX_CACHED, Output, Spend, id_of, output_of, spend_of
from market_index_feeds.venue_orders import EXPIRED, VenueOrder

LOG: Final = logging.getLogger(__name__)

SLOT_SECONDS: Final = 1
"""The duration of a slot, on the main network and on the public test networks."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LAST: Final = datetime(9000, 1, 1, tzinfo=UTC)


@frozen
class Entry:
    """An output, its orders by id, the reasons why its other offers were skipped, and its last execution."""

    exchange: Exchange | None
    output: Output
    candidate: Candidate | None
    orders: Mapping[str, VenueOrder]
    skipped: Mapping[str, str]
    spend: Spend | None = None
    fill: Fill | None = None


@define
class State:
    """What is shown at one moment: orders by id, spots of the listed pairs, and the reason of each skipped output."""

    orders: dict[str, VenueOrder] = field(factory=dict)
    spots: dict[Pair, Decimal | None] = field(factory=dict)
    skipped: dict[str, str] = field(factory=dict)


Match: TypeAlias = Mapping[str, Any]


class Outputs:
    """The outputs of some exchanges at one point of the chain.

    Args:
        exchanges: The exchanges whose outputs are read.
        pairs: Pairs that are always listed. Their base is the base; of other pairs it is the asset that is not ADA, and
            of two tokens the first in ledger order.
        only: Whether other pairs are hidden.
        window_slots: How many slots before the last block a spent output counts.
    """

    def __init__(self, exchanges: Iterable[Exchange], pairs: Iterable[Pair], *, only: bool, window_slots: int) -> None:
        self._exchanges = {exchange.script: exchange for exchange in exchanges}
        self._pairs = {frozenset({pair.base, pair.quote}): pair for pair in pairs}
        self._only, self._window_slots = only, window_slots
        self._window = timedelta(seconds=SLOT_SECONDS * window_slots)
        self._entries: dict[str, Entry] = {}
        # The state of the last call of `at`, and how many of the moments at which it changes were over.
        self._moments: list[datetime] = []
        self._state, self._moments_over = State(), -1

    @property
    def is_empty(self) -> bool:
        """Whether there is no output of an exchange, as on another network."""
        return not self._entries

    def first_slot(self, slot: int) -> int:
        """Return the first slot of the window that ends at a slot."""
        return max(slot - self._window_slots, 0)

    def read(self, matches: Iterable[Match], slot: int, *, is_whole: bool) -> None:
        """Take the outputs at the block of a slot: all of them, or only what was created or spent since the last block.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: A match is not one of Kupo. Nothing has changed.
        """
        known = self._entries
        entries: dict[str, Entry] = {} if is_whole else known.copy()
        changed: set[str] = set()
        for match in matches:
            output_id, spend = id_of(match), spend_of(match)
            entry = known.get(output_id) or self._entry(output_of(match))
            if entry.spend != spend:
                entry = evolve(entry, spend=spend, fill=None)
            entries[output_id] = entry
            changed.add(output_id)
        first = self.first_slot(slot)
        for output_id in [key for key, one in entries.items() if one.spend is not None and one.spend.slot < first]:
            del entries[output_id]
        # The outputs of the transaction that spent an output are as new as the spend.
        created: dict[str, list[Entry]] = defaultdict(list)
        for output_id in changed & entries.keys():
            created[entries[output_id].output.transaction_id].append(entries[output_id])
        for output_id in changed & entries.keys():
            entries[output_id] = _with_fill(entries[output_id], created)
        self._entries, self._moments_over = entries, -1
        limits = [
            (order.starts_at, order.expires_at)
            for entry in entries.values()
            for order in entry.orders.values()
            if order.starts_at or order.expires_at
        ]
        starts = [start for start, _ in limits if start]
        ends = [end + timedelta.resolution for _, end in limits if end]
        self._moments = sorted([*starts, *ends, *(end + self._window for end in ends)])

    def at(self, now: datetime) -> State:
        """Return what is shown at a moment; the same object as long as it does not change."""
        moments_over = bisect_right(self._moments, now)
        if moments_over == self._moments_over:
            return self._state
        oldest = now - self._window
        state = State(spots=dict.fromkeys(self._pairs.values()))
        last: dict[Pair, Fill] = {}
        for entry in self._entries.values():
            for order_id, order in entry.orders.items():
                reason = order.hidden_because(now)
                if reason is None or (reason == EXPIRED and order.hidden_because(oldest) != EXPIRED):
                    state.spots.setdefault(order.order.pair)
                if entry.spend is not None:
                    continue
                if reason is None:
                    state.orders[order_id] = order
                else:
                    state.skipped[order_id] = reason
            if entry.spend is None:
                state.skipped.update(entry.skipped)
            if (fill := entry.fill) is not None and (pair := self._pair(fill.gave[0], fill.received[0])) is not None:
                last[pair] = max(fill, last.get(pair, fill), key=lambda one: one.place)
        for pair, fill in last.items():
            state.spots[pair] = spot_of(pair, fill)
        self._state, self._moments_over = state, moments_over
        return state

    def fills(self) -> dict[str, Fill]:
        """Return the executions of the window that the ledger proves, by the id of the output that was filled."""
        return {key: entry.fill for key, entry in self._entries.items() if entry.fill is not None}

    def _entry(self, output: Output) -> Entry:
        exchange = self._exchanges.get(output.script)
        if exchange is None:
            return Entry(None, output, None, {}, {output.id: "another address"})
        orders, skipped = {}, {}
        try:
            candidate = exchange.read(output)
            for offer in candidate.offers:
                order_id = f"{output.id}{offer.suffix}"
                try:
                    orders[order_id] = self._order(exchange, output, offer)
                except Skipped as reason:
                    skipped[order_id] = str(reason)
        except Skipped as reason:
            return Entry(exchange, output, None, {}, {output.id: str(reason)})
        except Exception as error:  # noqa: BLE001  # a defect of the exchange must not stop the others
            return Entry(
                exchange, output, None, {}, {output.id: f"{type(error).__name__} in a function of {exchange.venue}"}
            )
        return Entry(exchange, output, candidate, orders, skipped)

    def _order(self, exchange: Exchange, output: Output, offer: Offer) -> VenueOrder:
        """Return the order of an offer. Raises `Skipped` if it cannot be filled."""
        asks, per_offered = offer.price
        if offer.problem:
            raise Skipped(offer.problem)
        if offer.offered == offer.asked or not offer.amount:
            raise Skipped("nothing offered")
        if offer.amount > output.holds.get(offer.offered, 0):
            raise Skipped("holds less than it offers")
        pair = self._pair(offer.offered, offer.asked)
        if pair is None:
            raise Skipped("pair not listed")
        try:
            order = Order.from_offer(pair, offered=offer.offered, amount=offer.amount, price=f"{asks}/{per_offered}")
        except PriceOutOfRange:
            raise Skipped("any price, or out of range") from None
        return VenueOrder(order, exchange.venue, offer.fee, _time(offer.starts_at), _time(offer.ends_at))

    def _pair(self, first: AssetId, second: AssetId) -> Pair | None:
        """Return the pair of two assets, None if it is hidden."""
        listed = self._pairs.get(frozenset({first, second}))
        if listed is not None or self._only:
            return listed
        return _default_pair(first, second)


@lru_cache(MAX_CACHED)
def _default_pair(first: AssetId, second: AssetId) -> Pair:
    base, quote = sorted((first, second), key=lambda asset: (asset.is_ada, asset))
    return Pair(base, quote)


def _with_fill(entry: Entry, created: Mapping[str, Sequence[Entry]]) -> Entry:
    """Return the entry with the execution that its spend proves, if any. `created` has new outputs by transaction."""
    spend, exchange, candidate = entry.spend, entry.exchange, entry.candidate
    if spend is None or spend.transaction_id is None or exchange is None or candidate is None:
        return entry
    others = created.get(spend.transaction_id, ())
    successors = [one.candidate for one in others if one.exchange is exchange and one.candidate is not None]
    try:
        fill = exchange.fill(candidate, spend, successors)
        is_execution = fill is not None and fill.gave[1] > 0 < fill.received[1] and fill.gave[0] != fill.received[0]
    except Exception:
        LOG.exception("the fill of %s failed at output %s: it proves no execution", exchange.venue, entry.output.id)
        return entry
    return evolve(entry, fill=fill) if is_execution else entry


def spot_of(pair: Pair, fill: Fill) -> Decimal | None:
    """Return the price of an execution in quote per base, rounded to the nearest price; None if it is out of range."""
    gave, received = fill.gave[1], fill.received[1]
    ratio = Fraction(received, gave) if fill.gave[0] == pair.base else Fraction(gave, received)
    try:
        below, above = (Order(pair, side, ratio, 0).level_price for side in (Side.BID, Side.ASK))
    except (InvalidOrderBook, InvalidPrice):
        return None
    return below if ratio - Fraction(below) <= Fraction(above) - ratio else above


def _time(milliseconds: int | None) -> datetime | None:
    """Return a moment as a time, at the latest in the year 9000."""
    if milliseconds is None:
        return None
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return LAST if milliseconds > 0 else EPOCH
