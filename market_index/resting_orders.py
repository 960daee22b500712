"""Resting orders by id, over all pairs, and the market index of their books.

Theory of operation
    Orders are stored by id, in the persistent structure of books and indexes, to find the order that is removed. The
    index is derived with each change: the amount of a level changes by the difference of its orders. A level shows at
    most 2^64-1 (decision 26). The rest of its total is stored beside it, and is shown again when other orders are
    removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from types import EllipsisType
from typing import Any, Final, final

from attrs import Factory, define

from market_index.errors import InvalidOrderBook, InvalidPrice, MarketIndexError, require_type, safe_repr
from market_index.freshness import Freshness
from market_index.index import MarketIndex
from market_index.levels import MAX_LIQUIDITY, Levels, by_price, price_key
from market_index.order_book import OrderBook
from market_index.orders import Order
from market_index.pairs import LedgerOrder, Pair, require_trackable
from market_index.prices import Side, price_for_takers, to_ratio
from market_index.printing import repr_pretty
from market_index.sorted_map import KeyOrder, SortedMap
from market_index.value import Value, slot_setters

MAX_ID_CHARACTERS: Final = 200
"""The maximum length of an order id."""


class OrderNotFound(MarketIndexError, KeyError):
    """No resting order has this id, which is the attribute `order_id`.

    It is a `KeyError`, because resting orders are a mapping.
    """

    def __init__(self, message: str, order_id: str) -> None:
        super().__init__(message, order_id)
        self.order_id = order_id


_NOTHING: Final[SortedMap[str, Any]] = SortedMap.of(KeyOrder(str.encode), [], [])


@final
class RestingOrders(Value, Mapping[str, Order]):
    """All resting orders: an immutable mapping from order id to `Order`, over all pairs, sorted by id.

    An id is 1 to 200 printable ASCII characters, such as a transaction output. `apply` derives the next value, which
    shares unchanged chunks. To roll back, keep the earlier value and return to it.

    `index` is the market index of these orders. Each book equals `OrderBook.from_orders`, except that the total of a
    level saturates at 2^64-1 (decision 26). A pair without orders stays in it, with an empty book, until `untrack`.

    Two `RestingOrders` are equal if they have the same orders and equal indexes. Another mapping has no index, so it is
    never equal: compare it with `dict(resting)`.

    >>> from market_index import ADA, AssetId
    >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
    >>> block = RestingOrders({"a#0": Order(pair, Side.ASK, "0.5", 70), "b#1": Order(pair, Side.ASK, "0.5", 30)})
    >>> block.index.order_book(pair).best_ask
    PriceLevel(price=Decimal('0.5'), accumulated_liquidity=100)
    >>> following = block.apply(removed=["a#0"], placed={"b#1": Order(pair, Side.ASK, "0.5", 10)}, as_of="block 7")
    >>> following.index.order_book(pair).best_ask, following.index.as_of
    (PriceLevel(price=Decimal('0.5'), accumulated_liquidity=10), 'block 7')

    Raises:
        InvalidOrderBook: An id, an order or a pair is invalid.
        InvalidPrice: A spot price is invalid.
        InvalidFreshness: `as_of` is invalid.
    """

    __slots__ = ("_by_id", "_saturated", "index")
    _by_id: SortedMap[str, Order]
    # By pair, side and price: the pair of a level that shows 2^64-1, and how much more its orders offer.
    _saturated: SortedMap[str, tuple[Pair, int]]

    index: MarketIndex
    """The books of all tracked pairs."""

    def __init__(
        self,
        orders: Mapping[str, Order] = {},
        spots: Mapping[Pair, Decimal | Fraction | str | None] = {},
        as_of: str | None = None,
    ) -> None:
        nothing = _resting_orders(_NOTHING, _NOTHING, MarketIndex())
        filled = nothing.apply(orders, spots=spots, as_of=as_of)
        for name in RestingOrders.__slots__:
            slot_setters(RestingOrders, name)[0](self, getattr(filled, name))

    @property
    def saturated(self) -> dict[Pair, int]:
        """The number of levels that show 2^64-1, by pair: their orders offer as much, or more (decision 26).

        No asset has such an amount. A producer that scales amounts twice is found here.

        >>> from market_index import ADA, AssetId
        >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
        >>> RestingOrders({"a#0": Order(pair, Side.ASK, "0.5", 2**64 - 1)}).saturated == {pair: 1}
        True
        """
        return dict(Counter(pair for pair, _ in self._saturated.values()))

    def apply(
        self,
        placed: Mapping[str, Order] = {},
        removed: Iterable[str] = (),
        spots: Mapping[Pair, Decimal | Fraction | str | None] = {},
        as_of: str | None = None,
        *,
        missing_ok: bool = False,
    ) -> RestingOrders:
        """Return the orders after removing some and then placing others. The cost depends only on the change.

        Args:
            placed: Orders by id. An id that exists is replaced, such as after a partial fill.
            removed: Ids of orders to remove.
            spots: The last executed price of each pair, in quote units per base unit; None if not known. A ratio
                (`"643551/26740"`) is rounded up to a price. These pairs are tracked from now on.
            as_of: What the books reflect; kept if None.
            missing_ok: Whether a removed id may be absent.

        Raises:
            OrderNotFound: A removed id does not exist, and `missing_ok` is False.
            InvalidOrderBook: An id, an order or a pair is invalid.
            InvalidPrice: A spot price is invalid.
            InvalidFreshness: `as_of` is invalid.
        """
        require_type("placed", placed, Mapping)
        require_type("spots", spots, Mapping)
        # Copied, because a mapping of the caller may change.
        placed = dict(placed)
        gone = self._removed_or_replaced(placed, removed, missing_ok=missing_ok)
        changes: dict[LedgerOrder, _PairChange] = {}

        def change_of(pair: Pair) -> _PairChange:
            key = pair.ledger_order
            if key not in changes:
                changes[key] = _PairChange(pair)
            return changes[key]

        for sign, orders in ((-1, gone), (1, placed)):
            for order in orders.values():
                change_of(order.pair).add(order, sign)
        for pair, spot in dict(spots).items():
            require_trackable(pair)
            change_of(pair).spot = _checked_spot(pair, spot)
        saturated: dict[str, tuple[Pair, int] | None] = {}
        books: list[OrderBook] = []
        for change in changes.values():
            book = self.index.get(change.pair) or OrderBook(change.pair)
            bids = self._level_changes(change.pair, book.bids, change.bids, saturated)
            asks = self._level_changes(change.pair, book.asks, change.asks, saturated)
            books.append(book.apply(bids, asks, change.spot))
        index = self.index.with_books(*books)
        if as_of is not None:
            index = index.with_freshness(Freshness(as_of, index.published_at))
        by_id: dict[str, Order | None] = dict.fromkeys(gone)
        by_id |= placed
        return _resting_orders(
            self._by_id.changed(by_id.items()),
            self._saturated.changed(saturated.items()) if saturated else self._saturated,
            index,
        )

    def _removed_or_replaced(
        self, placed: Mapping[str, Order], removed: Iterable[str], *, missing_ok: bool
    ) -> dict[str, Order]:
        """Return the orders that a change removes or replaces, by id. Raises the errors of `apply`."""
        if isinstance(removed, str) or not hasattr(removed, "__iter__"):
            raise TypeError(f"removed must be an iterable of order ids, got {safe_repr(removed)}")
        gone: dict[str, Order] = {}
        for order_id in removed:
            _require_id(order_id)
            before = self._by_id.get(order_id)
            if not missing_ok and (before is None or order_id in gone):
                raise _not_found(order_id)
            if before is not None:
                gone[order_id] = before
        for order_id, order in placed.items():
            _require_id(order_id)
            if type(order) is not Order:
                raise InvalidOrderBook(f"placed[{safe_repr(order_id)}] must be an Order, got {safe_repr(order)}")
            before = self._by_id.get(order_id)
            if before is not None:
                gone[order_id] = before
        return gone

    def _level_changes(
        self,
        pair: Pair,
        levels: Levels,
        differences: dict[str, tuple[Decimal, int]],
        saturated: dict[str, tuple[Pair, int] | None],
    ) -> tuple[tuple[Decimal, int], ...]:
        """Return the changes of levels that add differences to their totals, and set those that are saturated."""
        changes: list[tuple[Decimal, int]] = []
        for text, (price, difference) in differences.items():
            shown = by_price(levels).get(price) or 0
            total = shown + difference
            if shown == MAX_LIQUIDITY or total >= MAX_LIQUIDITY:
                level = f"{pair} {levels.side.value} {text}"
                _, excess = self._saturated.get(level) or (pair, 0)
                excess += total - MAX_LIQUIDITY
                saturated[level] = (pair, excess) if excess >= 0 else None
                total = MAX_LIQUIDITY + min(excess, 0)
            changes.append((price, total))
        return tuple(changes)

    def untrack(self, *pairs: Pair) -> RestingOrders:
        """Stop tracking pairs that have no orders; a pair that is not tracked is ignored.

        Raises:
            InvalidOrderBook: A pair has orders.
        """
        # They are in no book.
        without_amount = {order.pair for order in self._by_id.values() if not order.amount}
        for pair in pairs:
            require_trackable(pair)
            book = self.index.get(pair)
            if pair in without_amount or (book is not None and (book.bids or book.asks)):
                resting = sum(order.pair == pair for order in self._by_id.values())
                raise InvalidOrderBook(f"{pair} must have no orders to be untracked, got {resting}")
        return _resting_orders(self._by_id, self._saturated, self.index.without(*pairs))

    def __getitem__(self, order_id: str) -> Order:
        order = self._by_id.get(order_id) if type(order_id) is str else None
        if order is None:
            raise _not_found(order_id)
        return order

    def __iter__(self) -> Iterator[str]:
        return self._by_id.keys()

    def __len__(self) -> int:
        return self._by_id.size

    def __eq__(self, other: object) -> bool:
        if type(other) is not RestingOrders:
            return NotImplemented
        return self._by_id == other._by_id and self.index == other.index

    def __hash__(self) -> int:
        return hash((tuple(self._by_id.items()), self.index))

    def __repr__(self) -> str:
        return f"<RestingOrders: {len(self)} orders, {len(self.index)} pairs>" if self.index else "RestingOrders()"

    _repr_pretty_ = repr_pretty

    def _arguments(self) -> tuple[Any, ...]:
        return dict(self), {pair: book.spot for pair, book in self.index.items()}, self.index.as_of


_SET_BY_ID, _SET_SATURATED, _SET_INDEX = slot_setters(RestingOrders, *RestingOrders.__slots__)


def _resting_orders(
    by_id: SortedMap[str, Order],
    saturated: SortedMap[str, tuple[Pair, int]],
    index: MarketIndex,
) -> RestingOrders:
    """Return the resting orders of valid parts, without validating them again."""
    resting = object.__new__(RestingOrders)
    _SET_BY_ID(resting, by_id)
    _SET_SATURATED(resting, saturated)
    _SET_INDEX(resting, index)
    return resting


@define
class _PairChange:
    """The changes of one pair: the differences of its levels, and its spot price."""

    pair: Pair
    # By `price_key`.
    bids: dict[str, tuple[Decimal, int]] = Factory(dict)
    asks: dict[str, tuple[Decimal, int]] = Factory(dict)
    spot: Decimal | EllipsisType | None = ...

    def add(self, order: Order, sign: int) -> None:
        """Add an order that is placed, or with the sign -1 one that is removed."""
        differences = self.bids if order.side is Side.BID else self.asks
        price = order.level_price
        text = price_key(price)
        total = differences[text][1] if text in differences else 0
        differences[text] = (price, total + sign * order.amount)


def _not_found(order_id: str) -> OrderNotFound:
    return OrderNotFound(f"order {safe_repr(order_id)} not found", order_id)


def _require_id(value: object) -> None:
    """Raise `InvalidOrderBook` unless the value is an order id."""
    if not (type(value) is str and 1 <= len(value) <= MAX_ID_CHARACTERS and value.isascii() and value.isprintable()):
        raise InvalidOrderBook(
            f"an order id must be 1 to {MAX_ID_CHARACTERS} printable ASCII characters, got {safe_repr(value)}"
        )


def _checked_spot(pair: Pair, spot: Decimal | Fraction | str | None) -> Decimal | None:
    """Return a spot price; a ratio is rounded up, as in the events of orders."""
    try:
        return None if spot is None else price_for_takers(Side.ASK, to_ratio(spot))
    except InvalidPrice as error:
        raise error.at(f"spot of {pair}") from None
