"""Resting orders by id, over all pairs, and the market index of their books.

Theory of operation
    Orders are stored by id, in the persistent structure of books and indexes, to find the order that is removed. The
    ids of each pair are stored too, to find the orders behind a level. The index is derived with each change: the
    amount of a level changes by the difference of its orders. A level shows at most 2^64-1 (decision 26). The rest of
    its total is stored as its excess, and is shown again when other orders are removed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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
from market_index.index import MarketIndex, book_at, hashes, with_books_at
from market_index.levels import (
    ASK,
    BID,
    MAX_LIQUIDITY,
    NO_ASKS,
    NO_BIDS,
    Levels,
    Side,
    price_for_takers,
    require_side,
    with_amounts,
)
from market_index.notebook import SHOWN_ROWS, html_table, to_html
from market_index.order_book import OrderBook, empty_book, order_book_of
from market_index.orders import Order
from market_index.pairs import LedgerOrder, Pair, require_trackable
from market_index.prices import to_price, to_ratio
from market_index.tables import Table, WideTable, text_hashes
from market_index.unchecked import unchecked_constructor

MAX_ID_CHARACTERS: Final = 200
"""The maximum length of an order id."""

_ID_LENGTHS: Final = frozenset(range(1, MAX_ID_CHARACTERS + 1))


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
        removed = _listed(removed)
        by_id, outgoing = self._replaced(placed, removed, missing_ok=missing_ok)
        by_pair = _by_pair(outgoing, placed, spots)
        # Both may be as large as all orders.
        del outgoing, removed
        ids_by_pair: list[tuple[LedgerOrder, Table[str, int] | None]] = []
        excess: dict[str, int | None] = {}
        books: list[tuple[LedgerOrder, OrderBook]] = []
        for key, change in by_pair.items():
            before = book_at(self.index, key)
            book = before or empty_book(change.pair)
            if changed_ids := change.ids():
                ids = self._by_pair.at(key) or _NO_IDS
                if ids and len(change.removed) == len(ids) and not self._excess:
                    # No order stays, so the removed ones need not be subtracted.
                    ids, book, change.removed = _NO_IDS, order_book_of(book.pair, NO_BIDS, NO_ASKS, book.spot), {}
                    changed_ids = change.ids()
                ids_by_pair.append((key, ids.changed(changed_ids.items()) or None))
            following = change.applied(book, self._excess, excess)
            if following is not before and (book is before or following != before):
                books.append((key, following))
        index = with_books_at(self.index, books)
        return _resting_orders(
            index.with_freshness(index.freshness.changed(as_of)),
            by_id,
            self._by_pair.changed(ids_by_pair),
            self._excess.changed(excess.items()),
        )

    def _replaced(
        self, placed: Mapping[str, Order], removed: list[str], *, missing_ok: bool
    ) -> tuple[WideTable[Order], list[tuple[str, Order]]]:
        """Return the next orders by id, and the orders that are removed or replaced, with their ids."""
        if not (_are_ids(placed) and {*map(type, placed.values())} <= {Order} and _are_ascii(removed)):
            raise self._error_in(placed, removed, missing_ok=missing_ok)
        changed: dict[str, Order | None] = dict.fromkeys(removed)
        is_repeated = len(changed) < len(removed)
        missing = [order_id for order_id in changed if order_id in placed and order_id not in self] if placed else []
        changed |= placed
        outgoing: list[tuple[str, Order]] = []

        def replaced(order_id: str, before: Order | None, order: Order | None) -> Order | None:
            if before is not None:
                outgoing.append((order_id, before))
            elif order is None:
                missing.append(order_id)
            return order

        by_id = self._by_id.changed(changed, replaced)
        if not _are_ids(missing) or (not missing_ok and (missing or is_repeated)):
            raise self._error_in(placed, removed, missing_ok=missing_ok)
        return by_id, outgoing

    def _error_in(self, placed: Mapping[str, Order], removed: list[str], *, missing_ok: bool) -> MarketIndexError:
        """Return the error of the first id or order that `apply` rejects."""
        seen: set[str] = set()
        for order_id in removed:
            if not _are_ids((order_id,)):
                return _not_an_id(order_id)
            if not missing_ok and (order_id in seen or order_id not in self):
                return OrderNotFound(order_id)
            seen.add(order_id)
        wrong = next(one for one, order in placed.items() if not _are_ids((one,)) or type(order) is not Order)
        if not _are_ids((wrong,)):
            return _not_an_id(wrong)
        return InvalidOrderBook(f"placed[{safe_repr(wrong)}] must be an Order, got {safe_repr(placed[wrong])}")

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
        return self._by_pair.at(pair.ledger_order) or _NO_IDS

    def __getitem__(self, order_id: str) -> Order:
        order = self._by_id.at(order_id) if type(order_id) is str and order_id.isascii() else None
        if order is None:
            raise OrderNotFound(order_id)
        return order

    def __contains__(self, order_id: object) -> bool:
        return type(order_id) is str and order_id.isascii() and self._by_id.at(order_id) is not None

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
    """The changes of one pair: the orders that are removed, those that are placed then, and its spot price."""

    __slots__ = ("pair", "placed", "removed", "spot")

    def __init__(self, pair: Pair) -> None:
        self.pair: Pair = pair
        self.removed: dict[str, Order] = {}
        self.placed: dict[str, Order] = {}
        self.spot: Decimal | EllipsisType | None = ...

    def ids(self) -> dict[str, int | None]:
        """Return the ids that are removed, each None, and those that are added. The others are replaced."""
        removed, placed = self.removed, self.placed
        ids: dict[str, int | None] = {order_id: None for order_id in removed if order_id not in placed}
        ids.update([(order_id, 1) for order_id in placed if order_id not in removed])
        return ids

    def applied(self, book: OrderBook, before: Mapping[str, int], excess: dict[str, int | None]) -> OrderBook:
        """Return the next book, or itself if it is the same, and set the excess of the levels that have or had any."""
        # By the text of the price: hashes of numbers are predictable, so an attacker could choose prices that collide.
        of_bids: dict[str, tuple[Decimal, int]] = {}
        of_asks: dict[str, tuple[Decimal, int]] = {}
        for sign, orders in ((-1, self.removed), (1, self.placed)):
            for order in orders.values():
                differences = of_bids if order.side is BID else of_asks
                price = order.price
                if type(price) is not Decimal:
                    price = order.level_price
                text = EXACT.to_sci_string(price)
                total = differences[text][1] if text in differences else 0
                differences[text] = (price, total + sign * order.amount)
        bids = _changed(book.pair, book.bids, of_bids, before, excess)
        asks = _changed(book.pair, book.asks, of_asks, before, excess)
        spot = book.spot if self.spot is ... else self.spot
        is_same = bids is book.bids and asks is book.asks and spot == book.spot
        return book if is_same else order_book_of(book.pair, bids, asks, spot)


def _by_pair(
    outgoing: Iterable[tuple[str, Order]],
    placed: Mapping[str, Order],
    spots: Mapping[Pair, Decimal | Fraction | str | None],
) -> dict[LedgerOrder, _PairChange]:
    """Return the change of each pair, by its key."""
    by_pair: dict[LedgerOrder, _PairChange] = {}
    # By the identity of pairs, which their orders refer to: most orders of a pair share one object.
    by_identity: dict[int, _PairChange] = {}

    def change_of(pair: Pair) -> _PairChange:
        key = pair.ledger_order
        change = by_pair.get(key)
        if change is None:
            change = by_pair[key] = _PairChange(pair)
        by_identity[id(pair)] = change
        return change

    for order_id, order in outgoing:
        (by_identity.get(id(order.pair)) or change_of(order.pair)).removed[order_id] = order
    for order_id, order in placed.items():
        (by_identity.get(id(order.pair)) or change_of(order.pair)).placed[order_id] = order
    for pair, spot in dict(spots).items():
        require_trackable(pair)
        change_of(pair).spot = _checked_spot(pair, spot)
    return by_pair


def _changed(
    pair: Pair,
    levels: Levels,
    differences: dict[str, tuple[Decimal, int]],
    before: Mapping[str, int],
    excess: dict[str, int | None],
) -> Levels:
    """Return the levels after adding differences to their totals, and set the excess of those that have or had any."""

    def amount(price: Decimal, shown: int | None, difference: int) -> int | None:
        total = (shown or 0) + difference
        if shown == MAX_LIQUIDITY or total > MAX_LIQUIDITY:
            level = f"{pair} {levels.side.value} {EXACT.to_sci_string(price)}"
            total += before.get(level, 0)
            excess[level] = max(total - MAX_LIQUIDITY, 0) or None
        return min(total, MAX_LIQUIDITY) or None

    return with_amounts(levels, differences.values(), amount) if differences else levels


def _listed(removed: Iterable[str]) -> list[str]:
    if isinstance(removed, str):
        raise InvalidOrderBook(f"removed must be an iterable of order ids, got str: {safe_repr(removed)}")
    return list(removed)


def _are_ascii(values: Collection[object]) -> bool:
    return {*map(type, values)} <= {str} and all(map(str.isascii, values))  # type: ignore[arg-type]  # each is a str


def _are_ids(values: Collection[str]) -> bool:
    """Whether each value is an order id, also for a caller without types."""
    return _are_ascii(values) and {*map(len, values)} <= _ID_LENGTHS and all(map(str.isprintable, values))


def _not_an_id(value: object) -> InvalidOrderBook:
    return InvalidOrderBook(
        f"an order id must be 1 to {MAX_ID_CHARACTERS} printable ASCII characters, got {safe_repr(value)}"
    )


def _checked_spot(pair: Pair, spot: Decimal | Fraction | str | None) -> Decimal | None:
    """Return a spot price; a ratio is rounded up, as in the events of orders."""
    if spot is None:
        return None
    try:
        return to_price(spot)  # type: ignore[arg-type]  # it rejects a Fraction
    except InvalidPrice:
        pass
    try:
        return price_for_takers(ASK, to_ratio(spot))
    except InvalidPrice as error:
        raise error.at(f"spot of {pair}") from None


_resting_orders: Final[
    Callable[
        [MarketIndex, WideTable[Order], Table[LedgerOrder, Table[str, int]], Table[str, int]],
        RestingOrders,
    ]
] = unchecked_constructor(RestingOrders)
_NOTHING: Final = _resting_orders(MarketIndex(), _NO_ORDERS, _NO_PAIRS, _NO_EXCESS)
