"""Resting orders by id, over all pairs, and the market index of their books.

Theory of operation
    Orders are stored by id, in the persistent structure of books and indexes, to find the order that is removed. The
    ids of each pair are stored too, to find the orders behind a level. The index is derived with each change: the
    amount of a level changes by the difference of its orders. A level shows at most 2^64-1 (decision 26). The rest of
    its total is stored as its excess, and is shown again when other orders are removed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from operator import eq, is_
from types import EllipsisType
from typing import Final, Self, final

from attrs import field, frozen

from market_index.arithmetic import EXACT
from market_index.chunked import Chunk, KeyOrder
from market_index.errors import InvalidOrderBook, InvalidPrice, MarketIndexError, safe_repr
from market_index.index import MarketIndex, hashes
from market_index.levels import MAX_LIQUIDITY, Levels, Side, price_for_takers, require_side
from market_index.notebook import SHOWN_ROWS, html_table, to_html
from market_index.order_book import OrderBook, order_book_of
from market_index.orders import Order
from market_index.pairs import LedgerOrder, Pair, require_trackable
from market_index.prices import to_price, to_ratio
from market_index.tables import Table, WideTable, text_hashes
from market_index.unchecked import unchecked_constructor

MAX_ID_CHARACTERS: Final = 200
"""The maximum length of an order id."""


class OrderNotFound(MarketIndexError, KeyError):
    """No resting order has this id.

    It is a `KeyError`, because resting orders are a mapping.

    >>> str(OrderNotFound("51ab#0"))
    "order '51ab#0' not found"
    """

    def __init__(self, order_id: str) -> None:
        super().__init__(order_id)
        self.order_id = order_id

    def __str__(self) -> str:
        return f"order {safe_repr(self.order_id)} not found"

    def at(self, place: str) -> Self:
        """Return the error unchanged: the message already names the order."""
        del place
        return self


_NO_ORDERS: Final[WideTable[Order]] = WideTable()
# A set of ids: each value is 1. An array is copied faster than a list.
_NO_IDS: Final[Table[str, int]] = Table(KeyOrder(text_hashes, is_same=eq), Chunk([], array("B")))
_NO_PAIRS: Final[Table[LedgerOrder, Table[str, int]]] = Table(KeyOrder(hashes, is_same=is_), Chunk([], []))
_NO_EXCESS: Final[Table[str, int]] = Table(KeyOrder(text_hashes, is_same=eq), Chunk([], []))


@final
@frozen(init=False, eq=False, repr=False)
class RestingOrders(Mapping[str, Order]):
    """All resting orders: an immutable mapping from order id to `Order`, over all pairs, sorted by id.

    An id is 1 to 200 printable ASCII characters, such as a transaction output. `apply` derives the next value, which
    shares unchanged chunks. To roll back, keep the earlier value and return to it.

    `index` is the market index of these orders. Each book equals `OrderBook.from_orders`, except that the total of a
    level saturates at 2^64-1 (decision 26). A pair without orders stays in it, with an empty book, until `untrack`.

    Resting orders equal every mapping of the same ids to the same orders.

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

    index: MarketIndex
    """The books of all tracked pairs."""

    _by_id: WideTable[Order] = field()
    _by_pair: Table[LedgerOrder, Table[str, int]] = field()
    _excess: Table[str, int] = field()

    def __init__(
        self,
        orders: Mapping[str, Order] = {},
        spots: Mapping[Pair, Decimal | Fraction | str | None] = {},
        as_of: str | None = None,
    ) -> None:
        filled: RestingOrders = _NOTHING.apply(orders, spots=spots, as_of=as_of)
        self.__attrs_init__(filled.index, filled._by_id, filled._by_pair, filled._excess)

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
            spots: Last executed prices by pair, in quote per base, None if unknown; also ratios (`"643551/26740"`),
                which are rounded up to a price. These pairs are tracked from now on.
            as_of: What the books reflect; kept if None.
            missing_ok: Whether a removed id may be absent.

        Raises:
            OrderNotFound: A removed id does not exist, and `missing_ok` is False.
            InvalidOrderBook: An id, an order or a pair is invalid.
            InvalidPrice: A spot price is invalid.
            InvalidFreshness: `as_of` is invalid.
        """
        # Copied, because a mapping of the caller may change.
        placed = dict(placed)
        changed, outgoing = self._outgoing(placed, removed, missing_ok=missing_ok)
        by_pair: dict[LedgerOrder, _PairChange] = {}
        for order_id, order in outgoing:
            _change_of(order.pair, by_pair).remove(order_id, order)
        for order_id, order in placed.items():
            _change_of(order.pair, by_pair).place(order_id, order)
        for pair, spot in dict(spots).items():
            require_trackable(pair)
            _change_of(pair, by_pair).spot = _checked_spot(pair, spot)
        ids_by_pair: list[tuple[LedgerOrder, Table[str, int] | None]] = []
        excess: dict[str, int | None] = {}
        books = []
        for key, change in by_pair.items():
            ids = self._by_pair.get(key, _NO_IDS).changed(change.ids.items())
            ids_by_pair.append((key, ids or None))
            before = self.index.get(change.pair)
            following = change.applied(before or OrderBook(change.pair), self._excess, excess)
            if following is not before:
                books.append(following)
        index = self.index.with_books(*books)
        return _resting_orders(
            index.with_freshness(index.freshness.changed(as_of)),
            self._by_id.changed(changed),
            self._by_pair.changed(ids_by_pair),
            self._excess.changed(excess.items()),
        )

    def _outgoing(
        self, placed: Mapping[str, Order], removed: Iterable[str], *, missing_ok: bool
    ) -> tuple[dict[str, Order | None], list[tuple[str, Order]]]:
        """Return each changed id with its new order or None, and the orders that are removed or replaced."""
        if isinstance(removed, str):
            raise InvalidOrderBook(f"removed must be an iterable of order ids, got str: {safe_repr(removed)}")
        changed: dict[str, Order | None] = {}
        outgoing: list[tuple[str, Order]] = []
        for order_id in removed:
            before = self._by_id.get(_checked_id(order_id))
            if before is not None and order_id not in changed:
                outgoing.append((order_id, before))
                changed[order_id] = None
            elif not missing_ok:
                raise OrderNotFound(order_id)
        for order_id, order in placed.items():
            before = self._by_id.get(_checked_id(order_id))
            if type(order) is not Order:
                raise InvalidOrderBook(f"placed[{safe_repr(order_id)}] must be an Order, got {safe_repr(order)}")
            if before is not None and order_id not in changed:
                outgoing.append((order_id, before))
            changed[order_id] = order
        return changed, outgoing

    def untrack(self, *pairs: Pair) -> RestingOrders:
        """Stop tracking pairs that have no orders; a pair that is not tracked is ignored.

        Raises:
            InvalidOrderBook: A pair has orders.
        """
        for pair in pairs:
            require_trackable(pair)
            if resting := self._ids(pair):
                raise InvalidOrderBook(f"{pair} must have no orders to be untracked, got {len(resting)}")
        return _resting_orders(self.index.without(*pairs), self._by_id, self._by_pair, self._excess)

    def at(self, pair: Pair, side: Side, price: Decimal | str) -> dict[str, Order]:
        """Return the orders of a level by id, sorted by id. The cost grows with the number of orders of the pair.

        >>> from market_index import ADA, AssetId
        >>> pair = Pair(AssetId(bytes(28), b"SNEK"), ADA)
        >>> resting = RestingOrders({"a#0": Order(pair, Side.ASK, "0.5", 70), "b#1": Order(pair, Side.ASK, "0.6", 30)})
        >>> list(resting.at(pair, Side.ASK, "0.50"))
        ['a#0']

        Raises:
            TypeError: `side` is not a `Side`.
            InvalidOrderBook: The pair cannot be tracked.
            InvalidPrice: `price` is not a price.
        """
        require_trackable(pair)
        require_side(side)
        level_price = to_price(price)
        orders = ((order_id, self._by_id[order_id]) for order_id in self._ids(pair))
        return {
            order_id: order
            for order_id, order in orders
            if order.side is side and order.amount and order.level_price == level_price
        }

    def _ids(self, pair: Pair) -> Table[str, int]:
        return self._by_pair.get(pair.ledger_order, _NO_IDS)

    def __getitem__(self, order_id: str) -> Order:
        order = self._by_id.get(order_id) if _is_id(order_id) else None
        if order is None:
            raise OrderNotFound(order_id)
        return order

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def __eq__(self, other: object) -> bool:
        if type(other) is RestingOrders:
            return self._by_id.has_same_content(other._by_id)
        return Mapping.__eq__(self, other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<RestingOrders: {len(self)} orders, {len(self.index)} pairs>"

    def _repr_html_(self) -> str:
        title = f"{len(self):,} orders, {len(self.index):,} pairs, as of {to_html(self.index.as_of)}"
        rows = [
            (order_id, order.pair.base, order.pair.quote, order.side.value, order.level_price, order.amount)
            for order_id, order in islice(self.items(), SHOWN_ROWS)
        ]
        headings = ("id", "base", "quote", "side", "price of its level", "amount")
        return html_table(title, headings, rows, left_out=len(self) - SHOWN_ROWS)

    def __reduce__(self) -> tuple[type[RestingOrders], tuple[object, ...]]:
        spots = {pair: book.spot for pair, book in self.index.items()}
        return RestingOrders, (dict(self), spots, self.index.as_of)


class _PairChange:
    """The changes of one pair: the ids of its orders, the totals of its levels, and its spot price."""

    __slots__ = ("_asks", "_bids", "ids", "pair", "spot")

    def __init__(self, pair: Pair) -> None:
        self.pair: Pair = pair
        self.ids: dict[str, int | None] = {}
        self.spot: Decimal | EllipsisType | None = ...
        # By the text of the price: hashes of numbers are predictable, so an attacker could choose prices that collide.
        self._bids: dict[str, tuple[Decimal, int]] = {}
        self._asks: dict[str, tuple[Decimal, int]] = {}

    def remove(self, order_id: str, order: Order) -> None:
        self.ids[order_id] = None
        self._add(order, -order.amount)

    def place(self, order_id: str, order: Order) -> None:
        self.ids[order_id] = 1
        self._add(order, order.amount)

    def _add(self, order: Order, difference: int) -> None:
        differences = self._bids if order.side is Side.BID else self._asks
        price = order.level_price
        text = EXACT.to_sci_string(price)
        before = differences.get(text)
        differences[text] = (price, difference if before is None else before[1] + difference)

    def applied(self, book: OrderBook, before: Mapping[str, int], excess: dict[str, int | None]) -> OrderBook:
        """Return the next book, or itself if it is the same, and set the excess of the levels that have or had any."""
        bids = _changed(book.pair, book.bids, self._bids, before, excess)
        asks = _changed(book.pair, book.asks, self._asks, before, excess)
        spot = book.spot if self.spot is ... else self.spot
        is_same = bids is book.bids and asks is book.asks and spot == book.spot
        return book if is_same else order_book_of(book.pair, bids, asks, spot)


def _change_of(pair: Pair, by_pair: dict[LedgerOrder, _PairChange]) -> _PairChange:
    key = pair.ledger_order
    change = by_pair.get(key)
    if change is None:
        change = by_pair[key] = _PairChange(pair)
    return change


def _changed(
    pair: Pair,
    levels: Levels,
    differences: dict[str, tuple[Decimal, int]],
    before: Mapping[str, int],
    excess: dict[str, int | None],
) -> Levels:
    """Return the levels after adding differences to their totals, and set the excess of those that have or had any."""
    amounts: list[tuple[Decimal, int]] = []
    for text, (price, difference) in differences.items():
        shown = levels.amount_at(price)
        total = shown + difference
        if shown == MAX_LIQUIDITY or total > MAX_LIQUIDITY:
            level = f"{pair} {levels.side.value} {text}"
            total += before.get(level, 0)
            excess[level] = max(total - MAX_LIQUIDITY, 0) or None
        amounts.append((price, min(total, MAX_LIQUIDITY)))
    return levels.applied(amounts)


def _is_id(value: object) -> bool:
    return type(value) is str and 1 <= len(value) <= MAX_ID_CHARACTERS and value.isascii() and value.isprintable()


def _checked_id(order_id: str) -> str:
    if not _is_id(order_id):
        raise InvalidOrderBook(
            f"an order id must be 1 to {MAX_ID_CHARACTERS} printable ASCII characters, got {safe_repr(order_id)}"
        )
    return order_id


def _checked_spot(pair: Pair, spot: Decimal | Fraction | str | None) -> Decimal | None:
    """Return a spot price; a ratio is rounded up, as in the events of orders."""
    if spot is None:
        return None
    try:
        return to_price(spot)  # type: ignore[arg-type]  # it rejects a Fraction
    except InvalidPrice:
        pass
    try:
        return price_for_takers(Side.ASK, to_ratio(spot))
    except InvalidPrice as error:
        raise error.at(f"spot of {pair}") from None


_resting_orders: Final[
    Callable[
        [MarketIndex, WideTable[Order], Table[LedgerOrder, Table[str, int]], Table[str, int]],
        RestingOrders,
    ]
] = unchecked_constructor(RestingOrders)
_NOTHING: Final = _resting_orders(MarketIndex(), _NO_ORDERS, _NO_PAIRS, _NO_EXCESS)
