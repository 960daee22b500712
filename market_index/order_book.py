"""Order books: the bids, the asks and the spot price of one pair at one moment."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from types import EllipsisType
from typing import Final, final

from attrs import frozen

from market_index import depth, fills
from market_index.arithmetic import EXACT, plain
from market_index.depth import CumulativeLevel, Liquidity
from market_index.errors import InvalidOrderBook, MarketIndexError, safe_repr
from market_index.fills import SimulatedFill, Unit
from market_index.levels import Entry, Levels, PriceLevel, Side, gathered, levels_of_totals, require_side
from market_index.orders import Order
from market_index.pairs import Pair, require_trackable
from market_index.prices import to_price

_HALF: Final = Decimal("0.5")
_NO_CHANGES: Final[tuple[Entry, ...]] = ()


@final
@frozen(init=False)
class OrderBook:
    """The order book of one pair at one moment: bids highest price first, asks lowest first, and the spot price.

    The constructor accepts any ordered sequences of `PriceLevel`, one per price. `from_levels` and `from_orders` gather
    levels and orders in any order, `apply` derives the next book. `spot` is the last executed price, or None. A book
    may be locked or crossed (decision 15): it reports, it does not match orders.

    >>> from market_index import ADA, AssetId
    >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
    >>> book = OrderBook.from_levels(pair, bids=[("2", 10), ("3", 5), ("2.0", 1)], asks=[("4", 7)], spot="3.5")
    >>> [(str(level.price), level.accumulated_liquidity) for level in book.bids]
    [('3', 5), ('2', 11)]
    >>> book.spread, book.mid
    (Decimal('1'), Decimal('3.5'))

    Raises `InvalidOrderBook`, naming the place, and `InvalidPrice` for the spot price.
    """

    pair: Pair
    bids: Levels
    asks: Levels
    spot: Decimal | None

    def __init__(
        self,
        pair: Pair,
        bids: Iterable[PriceLevel] = (),
        asks: Iterable[PriceLevel] = (),
        spot: Decimal | str | None = None,
    ) -> None:
        bids, asks = _side(Side.BID, bids), _side(Side.ASK, asks)
        require_trackable(pair)
        self.__attrs_init__(pair, bids, asks, _spot(spot))

    @classmethod
    def from_levels(
        cls,
        pair: Pair,
        bids: Iterable[Entry] = (),
        asks: Iterable[Entry] = (),
        spot: Decimal | str | None = None,
    ) -> OrderBook:
        """Gather levels, or (price, amount) pairs, in any order: repeats are summed, zero amounts dropped.

        Raises `InvalidOrderBook` (a sum above 2^64-1 among others) and `InvalidPrice`, naming the place.
        """
        return cls(pair, gathered(Side.BID, bids), gathered(Side.ASK, asks), spot)

    @classmethod
    def from_orders(cls, pair: Pair, orders: Iterable[Order], spot: Decimal | str | None = None) -> OrderBook:
        """Gather orders, in any order, into levels: those at one price are summed, those of zero dropped.

        An order whose price is a `Fraction` is added to the level of its `level_price`.

        >>> from market_index import ADA, AssetId
        >>> pair = Pair(ADA, AssetId(bytes(28), b""))
        >>> OrderBook.from_orders(pair, [Order(pair, Side.BID, "0.5", 2), Order(pair, Side.BID, "0.50", 3)]).bids[0]
        PriceLevel(price=Decimal('0.5'), accumulated_liquidity=5)

        Raises `InvalidOrderBook`, naming the place or, for a sum above 2^64-1, the price.
        """
        bids: dict[str, int] = {}
        asks: dict[str, int] = {}
        for position, order in enumerate(orders):
            if type(order) is not Order:
                raise InvalidOrderBook(f"orders[{position}] must be an Order, got {safe_repr(order)}")
            if order.pair is not pair and order.pair != pair:
                raise InvalidOrderBook(f"orders[{position}] must be of the pair {pair}, got one of {order.pair}")
            totals = bids if order.side is Side.BID else asks
            price = order.price
            text = EXACT.to_sci_string(price if type(price) is Decimal else order.level_price)
            totals[text] = totals.get(text, 0) + order.amount
        return cls(pair, levels_of_totals(Side.BID, bids), levels_of_totals(Side.ASK, asks), spot)

    def apply(
        self,
        bids: Iterable[Entry] = _NO_CHANGES,
        asks: Iterable[Entry] = _NO_CHANGES,
        spot: Decimal | str | EllipsisType | None = ...,
    ) -> OrderBook:
        """Return the next book: level changes with absolute amounts, where 0 removes the level.

        Bids, asks and spot change together. If a price repeats, the last change wins; removing an absent level changes
        nothing. `spot` is kept unless given. What did not change is shared with this book.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook.from_levels(Pair(ADA, AssetId(bytes(28), b"")), bids=[("2", 10), ("1", 5)])
        >>> book.apply(bids=[("2", 0), ("1", 6)], spot="2").bids[0]
        PriceLevel(price=Decimal('1'), accumulated_liquidity=6)

        Raises `InvalidOrderBook` and `InvalidPrice`, naming the place; this book is unchanged.
        """
        return order_book_of(
            self.pair,
            self.bids.applied(bids) if bids is not _NO_CHANGES else self.bids,
            self.asks.applied(asks) if asks is not _NO_CHANGES else self.asks,
            self.spot if spot is ... else _spot(spot),
        )

    @property
    def best_bid(self) -> PriceLevel | None:
        """The bid of the highest price, or None if there are no bids."""
        return self.bids[0] if self.bids else None

    @property
    def best_ask(self) -> PriceLevel | None:
        """The ask of the lowest price, or None if there are no asks."""
        return self.asks[0] if self.asks else None

    @property
    def spread(self) -> Decimal | None:
        """Best ask less best bid, exactly: zero when locked, negative when crossed, None if a side is empty."""
        bid, ask = self.best_bid, self.best_ask
        return None if bid is None or ask is None else plain(EXACT.subtract(ask.price, bid.price))

    @property
    def mid(self) -> Decimal | None:
        """The midpoint of best bid and best ask, exactly, or None if a side is empty.

        It can have one decimal place more than a price may have.
        """
        bid, ask = self.best_bid, self.best_ask
        return None if bid is None or ask is None else plain(EXACT.multiply(EXACT.add(bid.price, ask.price), _HALF))

    @property
    def is_locked(self) -> bool:
        """Whether best bid and best ask have the same price."""
        bid, ask = self.best_bid, self.best_ask
        return bid is not None and ask is not None and bid.price == ask.price

    @property
    def is_crossed(self) -> bool:
        """Whether the best bid is above the best ask."""
        bid, ask = self.best_bid, self.best_ask
        return bid is not None and ask is not None and bid.price > ask.price

    def depth(self, levels: int) -> OrderBook:
        """Return the book cut to its best `levels` price levels per side.

        Raises `ValueError` for a negative number, `TypeError` for a value that is not an int.
        """
        if type(levels) is not int:
            raise TypeError(f"levels must be an int, got {safe_repr(levels)}")
        if levels < 0:
            raise ValueError(f"levels must be 0 or more, got {safe_repr(levels)}")
        bids, asks = self.bids.head(levels), self.asks.head(levels)
        return self if bids is self.bids and asks is self.asks else order_book_of(self.pair, bids, asks, self.spot)

    def simulate_fill(self, side: Side, amount: int, unit: Unit = "base") -> SimulatedFill:
        """Return what taking an amount from a side of the book would cost or bring, from the best price on.

        `Side.ASK` is bought from, `Side.BID` sold to. The amount is in the smallest unit of the base asset, or with
        `unit="quote"` in that of the quote asset. Base units are whole: for an amount in quote units a purchase is the
        most that costs no more than the amount, a sale the least that brings no less. No more is filled than the side
        has; `complete` tells whether it had enough. The cost grows with the levels taken, not with the depth.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), asks=[("0.5", 100), ("0.6", 100)])
        >>> purchase = book.simulate_fill(Side.ASK, 150)              # what does it cost to buy 150?
        >>> purchase.paid, purchase.worst_price, purchase.average_price
        (Decimal('80'), Decimal('0.6'), Decimal('0.5333333333333333333333333334'))
        >>> book.simulate_fill(Side.ASK, 65, unit="quote").filled     # how much do I get for 65?
        125

        Raises `TypeError` for a side that is no `Side` and an amount that is no int, `ValueError` for a negative amount
        and any other unit.
        """
        return fills.simulate_fill(self._levels(side), amount, unit)

    def cumulative(self, side: Side) -> tuple[CumulativeLevel, ...]:
        """Return the running totals of a side, in base and in quote units, for each of its prices, best first.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), asks=[("0.5", 100), ("0.6", 100)])
        >>> book.cumulative(Side.ASK)[-1]
        CumulativeLevel(price=Decimal('0.6'), base=200, quote=Decimal('110'))

        Raises `TypeError` for a side that is no `Side`.
        """
        return depth.cumulative(self._levels(side))

    def liquidity_within(self, side: Side, ratio: Decimal | str) -> Liquidity | None:
        """Return the liquidity of a side within a ratio of the midpoint: `"0.02"` is 2 %. None without a midpoint.

        For bids that is from mid * (1 - ratio) up, for asks up to mid * (1 + ratio), bounds included; of a crossed book
        also what is beyond the midpoint.

        >>> from market_index import ADA, AssetId
        >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
        >>> book = OrderBook.from_levels(pair, bids=[("0.99", 7), ("0.98", 5), ("0.97", 3)], asks=[("1.01", 1)])
        >>> book.liquidity_within(Side.BID, "0.02")
        Liquidity(base=12, quote=Decimal('11.83'))

        Raises `TypeError` for a side that is no `Side`, `InvalidPrice` for a ratio that is not above zero, or has more
        digits than a price can have.
        """
        levels, mid = self._levels(side), self.mid
        share = _priced("ratio", ratio)
        return None if mid is None else depth.liquidity(depth.within(levels, mid, share))

    def grouped(self, step: Decimal | str) -> OrderBook:
        """Return the book with its levels gathered on the multiples of a step: bids rounded down, asks rounded up.

        The total of each side stays the same, and no price gets better for a taker. Where such a multiple is no price
        (below one step it would be zero) the levels are gathered at the worst of their own prices.

        >>> from market_index import ADA, AssetId
        >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
        >>> book = OrderBook.from_levels(pair, bids=[("0.58", 7), ("0.52", 5), ("0.49", 3)], asks=[("0.61", 1)])
        >>> [(str(level.price), level.accumulated_liquidity) for level in book.grouped("0.1").bids]
        [('0.5', 12), ('0.4', 3)]

        Raises `InvalidPrice` for a step that is no price, `InvalidOrderBook` for a total above 2^64-1 at one price.
        """
        step = _priced("step", step)
        return order_book_of(self.pair, depth.grouped(self.bids, step), depth.grouped(self.asks, step), self.spot)

    def __reduce__(self) -> tuple[type[OrderBook], tuple[Pair, Levels, Levels, Decimal | None]]:
        return OrderBook, (self.pair, self.bids, self.asks, self.spot)

    def _levels(self, side: Side) -> Levels:
        require_side(side)
        return self.bids if side is Side.BID else self.asks


_new: Final = object.__new__
_set_pair: Final = OrderBook.__dict__["pair"].__set__
_set_bids: Final = OrderBook.__dict__["bids"].__set__
_set_asks: Final = OrderBook.__dict__["asks"].__set__
_set_spot: Final = OrderBook.__dict__["spot"].__set__


def order_book_of(pair: Pair, bids: Levels, asks: Levels, spot: Decimal | None) -> OrderBook:
    """Return a book of validated fields, without validating them again: a stream makes one with every message."""
    book = _new(OrderBook)
    _set_pair(book, pair)
    _set_bids(book, bids)
    _set_asks(book, asks)
    _set_spot(book, spot)
    return book


def _side(side: Side, levels: Iterable[PriceLevel]) -> Levels:
    """Return the levels of a side. Raises `InvalidOrderBook`, naming the place."""
    if type(levels) is Levels and levels.side is side:
        return levels
    if not isinstance(levels, Iterable):
        raise InvalidOrderBook(
            f"{side.value}s must be a sequence of PriceLevel, best price first, got {safe_repr(levels)}"
        )
    return Levels(side, levels)


def _spot(spot: Decimal | str | None) -> Decimal | None:
    return None if spot is None else _priced("spot", spot)


def _priced(name: str, value: Decimal | str) -> Decimal:
    """Return a number within the bounds of a price. Raises `InvalidPrice` that names it."""
    try:
        return to_price(value)
    except MarketIndexError as error:
        raise error.at(name) from None
