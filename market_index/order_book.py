"""Order books: the bids, the asks and the spot price of one pair at one moment.

An `OrderBook` is validated and immutable. Its methods derive the next book and analyze it: depth, spread, the cost
of a trade, liquidity near the midpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from itertools import accumulate
from types import EllipsisType
from typing import Any, Final, final

from attrs import field, frozen

from market_index import depth, fills
from market_index.depth import CumulativeLevels, Liquidity
from market_index.errors import InvalidOrderBook, require_iterable, require_type, safe_repr
from market_index.fills import SimulatedFill, Unit
from market_index.levels import (
    Entry,
    LevelChanges,
    Levels,
    PriceLevel,
    gathered,
    levels_of_totals,
    price_key,
)
from market_index.orders import Order
from market_index.pairs import Pair, require_trackable
from market_index.prices import EXACT, Side, plain, price_text, require_side, spot_argument, to_price
from market_index.printing import repr_html, repr_pretty
from market_index.value import Value, slot_setters

_HALF: Final = Decimal("0.5")
_NO_CHANGES: Final[tuple[Entry, ...]] = ()


def _levels_argument(levels: Iterable[PriceLevel]) -> Any:
    """Return the argument unchanged, as `price_argument` does."""
    return levels


def _side(side: Side, levels: Iterable[PriceLevel]) -> Levels:
    """Return the levels of a side. Raises `InvalidOrderBook`, which names the place."""
    if type(levels) is Levels and levels.side is side:
        return levels
    require_iterable(f"{side.value}s", levels, "PriceLevel, best price first")
    return Levels(side, levels)


@final
@frozen(getstate_setstate=False)
class OrderBook(Value):
    """The order book of one pair at one moment: bids highest price first, asks lowest first, and the spot price.

    The constructor requires sorted levels, one per price. `from_levels` and `from_orders` accept any order, and `apply`
    derives the next book. `spot` is the last executed price in quote units per base unit, or None. A book may be locked
    or crossed (decision 15), because it reports orders and does not match them.

    >>> from market_index import ADA, AssetId
    >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
    >>> book = OrderBook.from_levels(pair, bids=[("2", 10), ("3", 5), ("2.0", 1)], asks=[("4", 7)], spot="3.5")
    >>> list(book.bids.items())
    [(Decimal('3'), 5), (Decimal('2'), 11)]
    >>> book.spread, book.mid
    (Decimal('1'), Decimal('3.5'))

    Raises:
        InvalidOrderBook: The pair cannot be tracked, or a level is invalid or misplaced (the message names it).
        InvalidPrice: `spot` is not a price.
    """

    pair: Pair
    bids: Levels = field(default=Levels(Side.BID), converter=_levels_argument)
    asks: Levels = field(default=Levels(Side.ASK), converter=_levels_argument)
    spot: Decimal | None = field(default=None, converter=spot_argument)

    def __attrs_post_init__(self) -> None:
        require_trackable(self.pair)
        _SET_BIDS(self, _side(Side.BID, self.bids))
        _SET_ASKS(self, _side(Side.ASK, self.asks))
        if self.spot is not None:
            _SET_SPOT(self, to_price(self.spot, "the spot"))

    @classmethod
    def from_levels(
        cls,
        pair: Pair,
        bids: Iterable[Entry] = (),
        asks: Iterable[Entry] = (),
        spot: Decimal | str | None = None,
    ) -> OrderBook:
        """Return the book of levels or (price, amount) pairs in any order.

        Amounts at one price are summed (decision 13); zero amounts are dropped (decision 14).

        Raises:
            InvalidOrderBook: The pair or an entry is invalid, or a sum is above 2^64-1; the message names the place.
            InvalidPrice: A price or `spot` is invalid; the message names the place.
        """
        return cls(pair, gathered(Side.BID, bids), gathered(Side.ASK, asks), spot)

    @classmethod
    def from_orders(cls, pair: Pair, orders: Iterable[Order], spot: Decimal | str | None = None) -> OrderBook:
        """Return the book of orders in any order; each is added to the level of its `level_price`.

        Amounts at one price are summed (decision 13); zero amounts are dropped (decision 14).

        Raises:
            InvalidOrderBook: The pair is invalid, an element is not an order of the pair, or a sum is above 2^64-1.
            InvalidPrice: `spot` is not a price.
        """
        bids: dict[str, int] = {}
        asks: dict[str, int] = {}
        bid = Side.BID  # Python 3.11 takes longer to look it up than all the rest of the loop
        for position, order in enumerate(orders):
            if type(order) is not Order:
                raise InvalidOrderBook(f"orders[{position}] must be an Order, got {safe_repr(order)}")
            if order.pair is not pair and order.pair != pair:
                raise InvalidOrderBook(f"orders[{position}] must be of the pair {pair}, got one of {order.pair}")
            key = price_key(order.price if type(order.price) is Decimal else order.level_price)
            totals = bids if order.side is bid else asks
            totals[key] = totals.get(key, 0) + order.amount
        return cls(pair, levels_of_totals(Side.BID, bids), levels_of_totals(Side.ASK, asks), spot)

    def apply(
        self,
        bids: Iterable[Entry] = _NO_CHANGES,
        asks: Iterable[Entry] = _NO_CHANGES,
        spot: Decimal | str | EllipsisType | None = ...,
    ) -> OrderBook:
        """Return the next book after changes of levels: absolute amounts, where 0 removes the level.

        If a price repeats, the last change wins. Removing an absent level changes nothing. `spot` is kept unless given.
        Unchanged chunks are shared with this book, so the cost depends on the changes and hardly on the depth.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook.from_levels(Pair(ADA, AssetId(bytes(28), b"")), bids=[("2", 10), ("1", 5)])
        >>> book.apply(bids=[("2", 0), ("1", 6)], spot="2").bids[0]
        PriceLevel(price=Decimal('1'), accumulated_liquidity=6)

        Raises:
            InvalidOrderBook: An entry is invalid; the message names the place.
            InvalidPrice: A price or `spot` is invalid; the message names the place.
        """
        return self._with(
            self.bids.applied(bids) if bids is not _NO_CHANGES else self.bids,
            self.asks.applied(asks) if asks is not _NO_CHANGES else self.asks,
            self.spot if spot is ... else spot if spot is None else to_price(spot, "the spot"),
        )

    def changes_since(self, earlier: OrderBook) -> tuple[LevelChanges, LevelChanges]:
        """Return the changes of bids and of asks since an earlier book: prices and absolute amounts, 0 if removed.

        They are what `apply` takes: `earlier.apply(*book.changes_since(earlier), book.spot)` equals the book. Shared
        chunks are skipped, so the cost depends on what changed.

        >>> from market_index import ADA, AssetId
        >>> earlier = OrderBook.from_levels(Pair(ADA, AssetId(bytes(28), b"")), bids=[("2", 10), ("1", 5)])
        >>> book = earlier.apply(bids=[("2", 0), ("1", 6)], spot="2")
        >>> book.changes_since(earlier)
        (((Decimal('1'), 6), (Decimal('2'), 0)), ())

        Raises:
            TypeError: `earlier` is not an order book.
            ValueError: The earlier book is of another pair.
        """
        require_type("earlier", earlier, OrderBook)
        if earlier.pair != self.pair:
            raise ValueError(f"the earlier book must be of the pair {self.pair}, got {earlier.pair}")
        return self.bids.changes_since(earlier.bids), self.asks.changes_since(earlier.asks)

    def side(self, side: Side) -> Levels:
        """Return the bids or the asks.

        Raises:
            InvalidOrderBook: `side` is not a `Side`.
        """
        require_side(side)
        return self.bids if side is Side.BID else self.asks

    @property
    def best_bid(self) -> PriceLevel | None:
        """The bid of the highest price, or None if there are no bids."""
        return self.bids.best

    @property
    def best_ask(self) -> PriceLevel | None:
        """The ask of the lowest price, or None if there are no asks."""
        return self.asks.best

    @property
    def spread(self) -> Decimal | None:
        """Best ask minus best bid, exactly: zero if locked, negative if crossed, None if a side is empty."""
        bid, ask = self.best_bid, self.best_ask
        return None if bid is None or ask is None else plain(EXACT.subtract(ask.price, bid.price))

    @property
    def mid(self) -> Decimal | None:
        """The midpoint of best bid and best ask, exactly, or None if a side is empty.

        It can have one decimal place more than a price.
        """
        bid, ask = self.best_bid, self.best_ask
        return None if bid is None or ask is None else plain(EXACT.multiply(EXACT.add(bid.price, ask.price), _HALF))

    @property
    def is_locked(self) -> bool:
        """Whether best bid and best ask have the same price."""
        return self.spread == 0

    @property
    def is_crossed(self) -> bool:
        """Whether the best bid is above the best ask."""
        bid, ask = self.best_bid, self.best_ask
        return bid is not None and ask is not None and bid.price > ask.price

    def depth(self, levels: int) -> OrderBook:
        """Return the book with only the best `levels` price levels of each side.

        Raises:
            TypeError: `levels` is not an int.
            ValueError: `levels` is negative.
        """
        bids, asks = self.bids.depth(levels), self.asks.depth(levels)
        return self if bids is self.bids and asks is self.asks else self._with(bids, asks, self.spot)

    def buy(
        self, amount: int, unit: Unit = "base", *, limit: Decimal | str | None = None, fee: Decimal | str | None = None
    ) -> SimulatedFill:
        """Return what a purchase of an amount costs, taken from the asks, best price first. The book stays as it is.

        The time depends on the levels taken, not on the depth.

        Args:
            amount: In the smallest unit of the base asset, or of the quote asset with `unit="quote"`. Base units are
                whole: for an amount of the quote asset, the purchase is the largest that costs at most the amount.
            unit: The unit of the amount.
            limit: The worst price that is taken, before the fee; None takes any.
            fee: The share of the price that a venue adds: `"0.003"` is 0.3 %. None: no fee.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), asks=[("0.5", 100), ("0.6", 100)])
        >>> purchase = book.buy(150, fee="0.01")
        >>> purchase.paid, purchase.total, purchase.worst_price, purchase.average_price
        (Decimal('80'), Decimal('80.8'), Decimal('0.6'), Decimal('0.5333333333333333333333333334'))
        >>> book.buy(65, unit="quote").filled     # how much do I get for 65?
        125
        >>> limited = book.buy(150, limit="0.5")
        >>> limited.filled, limited.complete
        (100, False)

        Raises:
            InvalidOrderBook: `amount` is not an int of 0 or more.
            InvalidPrice: `limit` is not a price, or `fee` not a number above 0 and below 1.
            ValueError: `unit` is neither `"base"` nor `"quote"`.
        """
        return fills.simulate_fill(self.asks, amount, unit, limit, fee)

    def sell(
        self, amount: int, unit: Unit = "base", *, limit: Decimal | str | None = None, fee: Decimal | str | None = None
    ) -> SimulatedFill:
        """Return what a sale of an amount brings, taken from the bids, best price first. The book stays as it is.

        The arguments and the errors are those of `buy`. For an amount of the quote asset, the sale is the smallest that
        brings at least the amount. The fee is the share of the price that a venue keeps.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), bids=[("0.5", 100), ("0.4", 100)])
        >>> book.sell(150, fee="0.01").total
        Decimal('69.3')
        """
        return fills.simulate_fill(self.bids, amount, unit, limit, fee)

    def cumulative(self, side: Side) -> CumulativeLevels:
        """Return the running totals of a side at each of its prices, in base and quote units, best price first.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), asks=[("0.5", 100), ("0.6", 100)])
        >>> book.cumulative(Side.ASK)[-1]
        CumulativeLevel(price=Decimal('0.6'), base=200, quote=Decimal('110'))

        Raises:
            InvalidOrderBook: `side` is not a `Side`.
        """
        return depth.cumulative(self.side(side))

    def liquidity_within(self, side: Side, ratio: Decimal | str) -> Liquidity | None:
        """Return the liquidity of a side within a ratio of the midpoint: `"0.02"` is 2 %. None without a midpoint.

        These are the bids at mid * (1 - ratio) or above, or the asks at mid * (1 + ratio) or below. In a crossed book,
        levels beyond the midpoint are included.

        >>> from market_index import ADA, AssetId
        >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
        >>> book = OrderBook.from_levels(pair, bids=[("0.99", 7), ("0.98", 5), ("0.97", 3)], asks=[("1.01", 1)])
        >>> book.liquidity_within(Side.BID, "0.02")
        Liquidity(base=12, quote=Decimal('11.83'))

        Raises:
            InvalidOrderBook: `side` is not a `Side`.
            InvalidPrice: `ratio` is not above 0, or has more digits than a price.
        """
        levels, mid = self.side(side), self.mid
        share = to_price(ratio, "the ratio")
        return None if mid is None else Liquidity(*depth.totals(depth.up_to(levels, levels.side.worse_by(share, mid))))

    def grouped(self, step: Decimal | str) -> OrderBook:
        """Return the book with its prices rounded to multiples of a step: bids down, asks up.

        Levels at one multiple are summed. The total of each side stays the same, and no price gets better for a taker.
        If the multiple is not a price (such as zero, for bids below one step), the levels are summed at the worst of
        their own prices. A sum above 2^64-1 is rejected (decision 13), because cutting it would change the total of the
        side; `cumulative` has no such limit.

        >>> from market_index import ADA, AssetId
        >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
        >>> book = OrderBook.from_levels(pair, bids=[("0.58", 7), ("0.52", 5), ("0.49", 3)], asks=[("0.61", 1)])
        >>> list(book.grouped("0.1").bids.items())
        [(Decimal('0.5'), 12), (Decimal('0.4'), 3)]

        Raises:
            InvalidPrice: `step` is not a price.
            InvalidOrderBook: A sum is above 2^64-1; the message names the price.
        """
        step = to_price(step, "the step")
        return self._with(depth.grouped(self.bids, step), depth.grouped(self.asks, step), self.spot)

    def to_columns(self) -> dict[str, list[Any]]:
        """Return all levels as columns by name, bids before asks: `pandas.DataFrame(book.to_columns())`.

        `total` is the sum of the amounts of a side at this and better prices.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), bids=[("3", 5), ("2", 4)])
        >>> book.to_columns()
        {'side': ['bid', 'bid'], 'price': [Decimal('3'), Decimal('2')], 'amount': [5, 4], 'total': [5, 9]}
        """
        bids, asks = self.bids, self.asks
        return {
            "side": [side.side.value for side in (bids, asks) for _ in range(len(side))],
            "price": [*bids.prices, *asks.prices],
            "amount": [*bids.amounts, *asks.amounts],
            "total": [*accumulate(bids.amounts), *accumulate(asks.amounts)],
        }

    _repr_html_ = repr_html
    _repr_pretty_ = repr_pretty

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of the order-book endpoint as Python values: prices are texts, amounts ints.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b""), ADA), bids=[("0.50", 7)])
        >>> book.to_dict()["bids"], book.to_dict()["quote"]
        ([{'price': '0.5', 'accumulated_liquidity': 7}], 'ADA')
        """
        sides = {
            f"{levels.side.value}s": [
                {"price": price_text(price), "accumulated_liquidity": amount} for price, amount in levels.items()
            ]
            for levels in (self.bids, self.asks)
        }
        spot = None if self.spot is None else price_text(self.spot)
        return {"base": str(self.pair.base), "quote": str(self.pair.quote), "spot": spot, **sides}

    def _with(self, bids: Levels, asks: Levels, spot: Decimal | None) -> OrderBook:
        """Return a book of this pair with valid sides and spot, without validating them again."""
        book = object.__new__(OrderBook)
        _SET_PAIR(book, self.pair)
        _SET_BIDS(book, bids)
        _SET_ASKS(book, asks)
        _SET_SPOT(book, spot)
        return book


_SET_PAIR, _SET_BIDS, _SET_ASKS, _SET_SPOT = slot_setters(OrderBook, "pair", "bids", "asks", "spot")
