"""What one output of an exchange is: its orders, the offers that are skipped, and the execution that its spend proves.

If a function of an exchange raises an exception, this output is skipped, and the others are read: anyone can pay the
output that makes the function fail.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from attrs import evolve, frozen

from market_index import AssetId, InvalidOrderBook, InvalidPrice, Order, Pair, PriceOutOfRange, Side
from market_index_feeds.ledger.datum import Skipped
from market_index_feeds.ledger.exchange import Candidate, Exchange, Fill, Offer
from market_index_feeds.ledger.outputs import Spend
from market_index_feeds.venue_orders import MAX_CACHED, Output, SkippedOutput, VenueOrder

LOG: Final = logging.getLogger(__name__)

SLOT_ZEROS: Final = {"mainnet": 1_591_566_291, "preprod": 1_655_683_200, "preview": 1_666_656_000}
"""When slot 0 would have been if all slots had a second, in POSIX seconds: since Shelley, they have one."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NEVER: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""Later moments of orders count as this one: the window after it must be a date, too."""


@frozen
class Execution:
    """A fill with its pair and its price, how the order was spent, and the place of the transaction in its block.

    `price` is None if it is out of range, and `place` if it is not known.
    """

    pair: Pair
    price: Decimal | None
    fill: Fill
    spend: Spend
    place: int | None


@frozen
class Entry:
    """An output, its orders and the skipped ones by id, how it was spent, and the execution that the spend proves.

    `pairs` are those of its orders. `is_timeless`: none of them has a start or an end.
    """

    exchange: Exchange
    output: Output
    candidate: Candidate | None
    orders: Mapping[str, VenueOrder]
    skipped: Mapping[str, SkippedOutput]
    pairs: frozenset[Pair]
    is_timeless: bool
    spend: Spend | None = None
    execution: Execution | None = None

    def spent(self, spend: Spend | None) -> Entry:
        """Return the entry with another spend, which proves nothing yet."""
        return self if self.spend == spend else evolve(self, spend=spend, execution=None)


@frozen
class Reader:
    """Reads outputs of a network. `pairs` have their own base and quote; with `only`, other pairs are skipped."""

    network: str
    pairs: Mapping[frozenset[AssetId], Pair]
    only: bool

    def time_of(self, slot: int) -> datetime:
        """Return the time of a slot."""
        return _time(1000 * (SLOT_ZEROS[self.network] + slot))

    def pair_of(self, first: AssetId, second: AssetId) -> Pair | None:
        """Return the pair of two assets, None if it is skipped."""
        listed = self.pairs.get(frozenset({first, second}))
        return listed if listed is not None or self.only or first == second else _default_pair(first, second)

    def read(self, exchange: Exchange, output: Output) -> Entry:
        """Return an output with the orders of its offers. Each offer counts by itself."""
        orders, skipped = dict[str, VenueOrder](), dict[str, SkippedOutput]()
        candidate, key, pair = None, output.id, None
        try:
            candidate = exchange.read(output)
        except Exception as error:  # noqa: BLE001  # a defect of the exchange must not stop the others
            skipped[key] = _skipped(error, exchange, output, None)
        for offer in candidate.offers if candidate is not None else ():
            try:
                key, pair = f"{output.id}{offer.suffix}", self.pair_of(offer.offered, offer.asked)
                orders[key] = self._order(exchange, output, offer, pair)
            except Exception as error:  # noqa: BLE001  # the same
                skipped[key] = _skipped(error, exchange, output, pair)
        return Entry(
            exchange,
            output,
            candidate,
            orders,
            skipped,
            pairs=frozenset(one.order.pair for one in orders.values()),
            is_timeless=not any(one.starts_at or one.expires_at for one in orders.values()),
        )

    def proved(self, entry: Entry, spend: Spend, created: Sequence[Entry]) -> Entry:
        """Return an entry with the execution that its spend proves, if any, by the outputs of the transaction."""
        exchange, output = entry.exchange, entry.output
        successors = [one.candidate for one in created if one.exchange is exchange and one.candidate is not None]
        execution = None
        try:
            fill = None if entry.candidate is None else exchange.fill(entry.candidate, spend, successors)
            if fill is not None:
                (gave, amount), (received, paid) = fill.gave, fill.received
                pair, is_held = self.pair_of(gave, received), 0 < amount <= output.holds.get(gave, 0)
                if pair is not None and is_held and paid > 0:
                    place = created[0].output.transaction_index if created else None
                    execution = Execution(pair, _price(pair, fill), fill, spend, place)
        except Exception:
            LOG.exception("the fill of %s failed at output %s: no execution", exchange.venue, output.id)
        return evolve(entry, execution=execution)

    def _order(self, exchange: Exchange, output: Output, offer: Offer, pair: Pair | None) -> VenueOrder:
        """Return the order of an offer. Raises `Skipped` if it cannot be filled."""
        asks, per_offered = offer.price
        if offer.problem:
            raise Skipped(offer.problem)
        if offer.offered == offer.asked or not offer.amount:
            raise Skipped("nothing offered")
        if offer.amount > output.holds.get(offer.offered, 0):
            raise Skipped("holds less than it offers")
        if pair is None:
            raise Skipped("pair not listed")
        try:
            order = Order.from_offer(pair, offered=offer.offered, amount=offer.amount, price=f"{asks}/{per_offered}")
        except PriceOutOfRange:
            raise Skipped("any price, or out of range") from None
        return VenueOrder(
            order,
            exchange.venue,
            output,
            self.network,
            created_at=self.time_of(output.slot),
            least_fill=min(offer.least_fill, offer.amount),
            most_fill=offer.amount if offer.most_fill is None else offer.most_fill,
            filled_by=offer.filled_by,
            fees=offer.fees,
            starts_at=None if offer.starts_at is None else _time(offer.starts_at),
            expires_at=None if offer.ends_at is None else _time(offer.ends_at),
        )


@lru_cache(MAX_CACHED)
def _default_pair(first: AssetId, second: AssetId) -> Pair:
    base, quote = sorted((first, second), key=lambda asset: (asset.is_ada, asset))
    return Pair(base, quote)


def _skipped(error: Exception, exchange: Exchange, output: Output, pair: Pair | None) -> SkippedOutput:
    if isinstance(error, Skipped):
        return SkippedOutput(error.reason, exchange.venue, output, pair, error.field)
    return SkippedOutput(f"{type(error).__name__} in a function of {exchange.venue}", exchange.venue, output, pair)


def _time(milliseconds: int) -> datetime:
    """Return a moment as a time, from 1970 to the year 9000."""
    return EPOCH + timedelta(milliseconds=min(max(milliseconds, 0), (NEVER - EPOCH) // timedelta(milliseconds=1)))


def last_of(executions: Sequence[Execution]) -> Execution:
    """Return the last one of some executions of a pair.

    Kupo does not say at which place of its block a transaction is that only spends. If the order of the executions in
    the last block is not known, the largest one counts, in every process.
    """
    slot = max(one.spend.slot for one in executions)
    last = [one for one in executions if one.spend.slot == slot]
    is_known = all(one.place is not None for one in last)

    def rank(one: Execution) -> tuple[int, str, int]:
        place = one.place if is_known and one.place is not None else min(one.fill.gave, one.fill.received)[1]
        return place, one.spend.transaction_id or "", one.spend.input_index or 0

    return max(last, key=rank)


def _price(pair: Pair, fill: Fill) -> Decimal | None:
    """Return the price of an execution in quote per base, rounded to the nearest price; None if it is out of range."""
    gave, received = fill.gave[1], fill.received[1]
    ratio = Fraction(received, gave) if fill.gave[0] == pair.base else Fraction(gave, received)
    try:
        below, above = (Order(pair, side, ratio, 0).level_price for side in (Side.BID, Side.ASK))
    except (InvalidOrderBook, InvalidPrice):
        return None
    return below if ratio - Fraction(below) <= Fraction(above) - ratio else above
