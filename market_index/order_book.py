"""Order books: price levels in order, gathered from anything, and the next book derived from the last."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from operator import gt, itemgetter, lt
from types import EllipsisType
from typing import TYPE_CHECKING, Final, final

from attrs import frozen

from market_index import depth, fills
from market_index.depth import CumulativeLevel, Liquidity
from market_index.errors import InvalidOrderBook, MarketIndexError, safe_repr
from market_index.exact import EXACT, plain
from market_index.fills import Fill, Unit
from market_index.ladder import Ladder, best, changed, ladder_of, laid_out
from market_index.levels import (
    MAX_LIQUIDITY,
    PRICE_OF,
    Columns,
    Entry,
    Levels,
    PriceLevel,
    Side,
    price_for_takers,
    read_entry,
    refuse_total,
    require_amount,
)
from market_index.pairs import Pair
from market_index.prices import price_text, to_price, to_price_or_ratio

_HALF: Final = Decimal("0.5")

_PRICE_FIRST: Final = itemgetter(0)
_NOTHING: Final[Levels] = ()


@final
@frozen(init=False, weakref_slot=False)
class Order:
    """One resting order: its side, its price, and the amount of the base asset that is left of it.

    The price is in quote units per one base unit, the amount in the smallest unit of the base asset, from 0 (nothing
    left: it adds nothing to a book) to 2^64-1.

    On the ledger a price is often a numerator and a denominator, with no finite decimal: a `Fraction` from 10^-28 to
    2^96-1 is a price too. It is kept as it is, but for one that a price's decimal gives exactly, which becomes that.

    >>> Order(Side.ASK, "0.25", 40).price
    Decimal('0.25')
    >>> Order(Side.ASK, Fraction(1, 3), 40).level_price
    Decimal('0.3333333333333333333333333334')

    Raises `InvalidPrice`, and `InvalidOrderBook` for the side and the amount.
    """

    side: Side
    price: Decimal | Fraction
    amount: int

    def __init__(self, side: Side, price: Decimal | Fraction | str, amount: int) -> None:
        if type(side) is not Side:
            raise InvalidOrderBook(f"side must be Side.BID or Side.ASK, not {safe_repr(side)}")
        price = to_price_or_ratio(price)
        require_amount("amount", amount)
        self.__attrs_init__(side, price, amount)

    @property
    def level_price(self) -> Decimal:
        """The price of the level that the order is gathered into: its own, or the nearest one that is no better.

        A bid is rounded down and an ask up, so that a book never shows a taker more than the order gives. The error is
        below 10^-28 for a price below 7, and below 1.3 * 10^-28 of the price above that.
        """
        price = self.price
        return price if isinstance(price, Decimal) else price_for_takers(self.side, price)


class _Sources:
    """The slots of a book that are no part of its value: what a side is laid out from, once somebody looks at it.

    A book that was read has its sides in columns until then, one that was derived has them as ladders; and a ladder
    is kept, because the next book is derived from it.
    """

    __slots__ = ("_ask_source", "_bid_source")
    _ask_source: Columns | Ladder | None
    _bid_source: Columns | Ladder | None


@final
@frozen(init=False)
class OrderBook(_Sources):
    """The order book of one pair at one moment: bids highest price first, asks lowest first, and the spot price.

    The constructor takes only what is in that order already, in tuples, one level a price; `from_levels` and
    `from_orders` gather anything into it, and `apply` derives the next book. `spot` is the last executed price, or
    None. A book may be locked or crossed (decision 15): it reports, it does not match orders.

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

    def __init__(self, pair: Pair, bids: Levels = (), asks: Levels = (), spot: Decimal | str | None = None) -> None:
        _require_order("bids", bids, falling=True)
        _require_order("asks", asks, falling=False)
        self.__attrs_init__(_tracked(pair), bids, asks, _spot(spot))

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
        return _book(_tracked(pair), _gathered(Side.BID, bids), _gathered(Side.ASK, asks), _spot(spot))

    @classmethod
    def from_orders(cls, pair: Pair, orders: Iterable[Order], spot: Decimal | str | None = None) -> OrderBook:
        """Gather orders, in any order, into levels: those at one price are summed, those of zero dropped.

        An order whose price is a `Fraction` goes to the level of its `level_price`.

        >>> from market_index import ADA, AssetId
        >>> orders = [Order(Side.BID, "0.5", 2), Order(Side.BID, "0.50", 3)]
        >>> OrderBook.from_orders(Pair(ADA, AssetId(bytes(28), b"")), orders).bids
        (PriceLevel(price=Decimal('0.5'), accumulated_liquidity=5),)

        Raises `InvalidOrderBook`, naming the place or, where a sum is above 2^64-1, the price.
        """
        bids: dict[str, int] = {}
        asks: dict[str, int] = {}
        for position, order in enumerate(orders):
            if type(order) is not Order:
                raise InvalidOrderBook(f"orders[{position}] must be an Order, not {safe_repr(order)}")
            totals = bids if order.side is Side.BID else asks
            price = order.price
            text = str(price if type(price) is Decimal else order.level_price)
            totals[text] = totals.get(text, 0) + order.amount
        return _book(_tracked(pair), _in_order(Side.BID, bids), _in_order(Side.ASK, asks), _spot(spot))

    def apply(
        self,
        bids: Iterable[Entry] = _NOTHING,
        asks: Iterable[Entry] = _NOTHING,
        spot: Decimal | str | EllipsisType | None = ...,
    ) -> OrderBook:
        """Return the next book: level changes with absolute amounts, where 0 removes the level.

        Bids, asks and spot change together. Of several changes at one price the last one holds; removing what is
        not there is fine. `spot` stays as it is unless it is given. What did not change is shared with this book.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook.from_levels(Pair(ADA, AssetId(bytes(28), b"")), bids=[("2", 10), ("1", 5)])
        >>> book.apply(bids=[("2", 0), ("1", 6)], spot="2").bids
        (PriceLevel(price=Decimal('1'), accumulated_liquidity=6),)

        Raises `InvalidOrderBook` and `InvalidPrice`, naming the place; this book is as it was.
        """
        book = _new(OrderBook)
        _set_pair(book, self.pair)
        _set_spot(book, self.spot if spot is ... else _spot(spot))
        bid_source, ask_source = self._bid_source, self._ask_source
        if bids is not _NOTHING:
            ladder = bid_source if isinstance(bid_source, tuple) else self._ladder(Side.BID)
            bid_source = changed(Side.BID, ladder, bids)
        elif bid_source is None:
            _set_bids(book, self.bids)
        if asks is not _NOTHING:
            ladder = ask_source if isinstance(ask_source, tuple) else self._ladder(Side.ASK)
            ask_source = changed(Side.ASK, ladder, asks)
        elif ask_source is None:
            _set_asks(book, self.asks)
        _set_bid_source(book, bid_source)
        _set_ask_source(book, ask_source)
        return book

    @property
    def best_bid(self) -> PriceLevel | None:
        """The bid of the highest price, or None where nobody bids."""
        source = self._bid_source
        bids = self.bids if source is None else _best(source, 1)
        return bids[0] if bids else None

    @property
    def best_ask(self) -> PriceLevel | None:
        """The ask of the lowest price, or None where nobody asks."""
        source = self._ask_source
        asks = self.asks if source is None else _best(source, 1)
        return asks[0] if asks else None

    @property
    def spread(self) -> Decimal | None:
        """Best ask less best bid, exactly: zero when locked, negative when crossed, None where a side is empty."""
        bid, ask = self.best_bid, self.best_ask
        return None if bid is None or ask is None else plain(EXACT.subtract(ask.price, bid.price))

    @property
    def mid(self) -> Decimal | None:
        """The midpoint of best bid and best ask, exactly, or None where a side is empty.

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
        """Return the book cut to its best `levels` price levels a side.

        Raises `ValueError` for a negative number, `TypeError` for what is no whole number.
        """
        if type(levels) is not int:
            raise TypeError(f"levels must be an int, not {safe_repr(levels)}")
        if levels < 0:
            raise ValueError(f"levels must be 0 or more, not {levels}")
        # A side that nobody has looked at yet is not laid out for this.
        bid_source, ask_source = self._bid_source, self._ask_source
        bids = self.bids[:levels] if bid_source is None else _best(bid_source, levels)
        asks = self.asks[:levels] if ask_source is None else _best(ask_source, levels)
        if len(bids) < levels and len(asks) < levels:
            return self
        return _book(self.pair, bids, asks, self.spot)

    def fill(self, side: Side, amount: int, unit: Unit = "base") -> Fill:
        """Return what taking an amount off a side of the book comes to, walking its levels from the best price on.

        `Side.ASK` is bought from, `Side.BID` sold to. The amount is in the smallest unit of the base asset, or with
        `unit="quote"` in that of the quote asset. Base units are whole: for an amount in quote units a purchase is the
        most that costs no more than the amount, a sale the least that brings no less. Never more is filled than there
        is, and `complete` tells whether there was enough.

        >>> from market_index import ADA, AssetId
        >>> book = OrderBook.from_levels(Pair(AssetId(bytes(28), b"SNEK"), ADA), asks=[("0.5", 100), ("0.6", 100)])
        >>> cost = book.fill(Side.ASK, 150)                  # what does it cost to buy 150?
        >>> cost.paid, cost.worst_price, cost.average_price
        (Decimal('80'), Decimal('0.6'), Decimal('0.5333333333333333333333333334'))
        >>> book.fill(Side.ASK, 65, unit="quote").filled     # how much do I get for 65?
        125

        Raises `TypeError` for a side that is no `Side` and an amount that is no int, `ValueError` for a negative amount
        and any other unit.
        """
        return fills.fill(side, self._levels(side), amount, unit)

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
        """Return what rests on a side within a ratio of the midpoint: `"0.02"` is 2 %. None where there is no midpoint.

        For bids that is from mid * (1 - ratio) up, for asks up to mid * (1 + ratio), the bounds among it; of a crossed
        book also what is beyond the midpoint.

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
        return None if mid is None else depth.liquidity(depth.within(side, levels, mid, share))

    def grouped(self, step: Decimal | str) -> OrderBook:
        """Return the book with its levels gathered on the multiples of a step: bids rounded down, asks rounded up.

        What rests on a side stays the same in all, and no price gets better for a taker. Where such a multiple is no
        price (below one step it would be zero) the levels are gathered at the worst of their own prices.

        >>> from market_index import ADA, AssetId
        >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
        >>> book = OrderBook.from_levels(pair, bids=[("0.58", 7), ("0.52", 5), ("0.49", 3)], asks=[("0.61", 1)])
        >>> [(str(level.price), level.accumulated_liquidity) for level in book.grouped("0.1").bids]
        [('0.5', 12), ('0.4', 3)]

        Raises `InvalidPrice` for a step that is no price, `InvalidOrderBook` for a total above 2^64-1 at one price.
        """
        step = _priced("step", step)
        bids, asks = depth.grouped(Side.BID, self.bids, step), depth.grouped(Side.ASK, self.asks, step)
        return _book(self.pair, bids, asks, self.spot)

    def _levels(self, side: Side) -> Levels:
        if type(side) is not Side:
            raise TypeError(f"side must be Side.BID or Side.ASK, not {safe_repr(side)}")
        return self.bids if side is Side.BID else self.asks

    def _ladder(self, side: Side) -> Ladder:
        """Return a ladder of a side that had none, and keep it for the next book that is derived from this one."""
        if side is Side.BID:
            ladder = ladder_of(side, self.bids)
            _set_bid_source(self, ladder)
        else:
            ladder = ladder_of(side, self.asks)
            _set_ask_source(self, ladder)
        return ladder

    if not TYPE_CHECKING:  # else any name would seem to be an attribute

        def __getattr__(self, name: str) -> Levels | None:
            """Fill a slot that is empty: a side that nobody has looked at yet, or what it is laid out from."""
            if name == "bids":
                _set_bids(self, _laid_out(self._bid_source))
            elif name == "asks":
                _set_asks(self, _laid_out(self._ask_source))
            elif name == "_bid_source":
                _set_bid_source(self, None)
            elif name == "_ask_source":
                _set_ask_source(self, None)
            else:
                raise AttributeError(f"'OrderBook' object has no attribute {name!r}", name=name, obj=self)
            return getattr(self, name)


# A frozen class refuses to be set but through its slots.
_new: Final = object.__new__
_set_pair: Final = OrderBook.__dict__["pair"].__set__
_set_bids: Final = OrderBook.__dict__["bids"].__set__
_set_asks: Final = OrderBook.__dict__["asks"].__set__
_set_spot: Final = OrderBook.__dict__["spot"].__set__
_set_bid_source: Final = _Sources.__dict__["_bid_source"].__set__
_set_ask_source: Final = _Sources.__dict__["_ask_source"].__set__


def book_of_columns(pair: Pair, bids: Columns, asks: Columns, spot: Decimal | str | None) -> OrderBook:
    """Return the book of two sides in columns, of which everything was checked already but the order.

    Raises as the constructor does, except that it does not name the place of a level that is out of order.
    """
    if not (all(_steps(bids.prices, falling=True)) and all(_steps(asks.prices, falling=False))):
        raise InvalidOrderBook("the levels are not in order")
    return trusted_book(pair, bids, asks, spot)


def trusted_book(pair: Pair, bids: Columns, asks: Columns, spot: Decimal | str | None) -> OrderBook:
    """Return the book of two sides in columns, of which all was checked already.

    Raises as the constructor does for the pair and the spot price.
    """
    book = _new(OrderBook)
    _set_pair(book, _tracked(pair))
    _set_bid_source(book, bids)
    _set_ask_source(book, asks)
    _set_spot(book, _spot(spot))
    return book


def _book(pair: Pair, bids: Levels, asks: Levels, spot: Decimal | None) -> OrderBook:
    """Return a book of values that were checked already."""
    book = _new(OrderBook)
    _set_pair(book, pair)
    _set_bids(book, bids)
    _set_asks(book, asks)
    _set_spot(book, spot)
    return book


def columns(book: OrderBook, side: Side) -> Columns:
    """Return a side in columns; one that nobody has looked at yet is not laid out for it."""
    source = book._bid_source if side is Side.BID else book._ask_source  # noqa: SLF001  # of the class above
    if isinstance(source, Columns):
        return source
    return Columns.of(book.bids if side is Side.BID else book.asks)


def _laid_out(source: Columns | Ladder) -> Levels:
    return laid_out(source) if isinstance(source, tuple) else source.levels


def _best(source: Columns | Ladder, count: int) -> Levels:
    return best(source, count) if isinstance(source, tuple) else source.best(count)


def _tracked(pair: Pair) -> Pair:
    if type(pair) is not Pair:
        raise InvalidOrderBook(f"pair must be a Pair, not {type(pair).__name__}: {safe_repr(pair)}")
    if pair.base == pair.quote:
        raise InvalidOrderBook(f"base and quote are the same asset: {safe_repr(str(pair.base))}")
    return pair


def _spot(spot: Decimal | str | None) -> Decimal | None:
    return None if spot is None else _priced("spot", spot)


def _priced(name: str, value: Decimal | str) -> Decimal:
    """Return a number that has the bounds of a price. Raises `InvalidPrice` that names it."""
    try:
        return to_price(value)
    except MarketIndexError as error:
        raise error.at(name) from None


def _require_order(side: str, levels: object, *, falling: bool) -> None:
    """Refuse whatever is not a tuple of levels, each with a price beyond the one before it."""
    if type(levels) is not tuple:
        raise InvalidOrderBook(
            f"{side} must be a tuple of PriceLevel, not {type(levels).__name__}; "
            "OrderBook.from_levels gathers any iterable"
        )
    if not set(map(type, levels)) <= {PriceLevel}:
        position = [type(level) is PriceLevel for level in levels].index(False)
        raise InvalidOrderBook(f"{side}[{position}] must be a PriceLevel, not {safe_repr(levels[position])}")
    prices = list(map(PRICE_OF, levels))
    steps = list(_steps(prices, falling=falling))
    if all(steps):
        return
    position = steps.index(False)
    raise InvalidOrderBook(
        f"{side}[{position + 1}].price: {price_text(prices[position + 1])} does not stand "
        f"{'below' if falling else 'above'} {side}[{position}].price, {price_text(prices[position])}"
    )


def _steps(prices: Sequence[Decimal], *, falling: bool) -> Iterator[bool]:
    """Yield of each price but the first whether it stands where it should, seen from the one before it."""
    return map(gt if falling else lt, prices, prices[1:])


def _gathered(side: Side, entries: Iterable[Entry]) -> Levels:
    """Return the levels of a side: amounts at one price summed, zeros dropped, in the order of the side."""
    totals: dict[str, int] = {}
    for position, entry in enumerate(entries):
        price, amount = read_entry(side, position, entry)
        text = str(price)
        totals[text] = totals.get(text, 0) + amount
    return _in_order(side, totals)


def _in_order(side: Side, totals: dict[str, int]) -> Levels:
    """Return the levels of these totals by the text of their price.

    By text: the hash of a number is no secret, so that prices could be chosen to collide; that of a text is.
    """
    prices: list[Decimal] = []
    liquidities: list[int] = []
    for price, total in sorted(
        zip(map(Decimal, totals), totals.values(), strict=True), key=_PRICE_FIRST, reverse=side is Side.BID
    ):
        if total > MAX_LIQUIDITY:
            refuse_total(side, price, total)
        if total:
            prices.append(price)
            liquidities.append(total)
    return Columns(tuple(prices), array("Q", liquidities)).levels
