"""Files and streams of events of orders, one JSON object per line. docs/orders.md is the specification.

Theory of operation
===================

    UNKNOWN ──reset──▶ RESETTING ──block──▶ KNOWN ──reset──▶ RESETTING
       ▲                   │                  │
       └──── a line that is malformed or contradicts the state ────┘

- UNKNOWN: all events are skipped until the next reset. A file may start with a reset, or in the middle of events.
- RESETTING: a new state is read, up to its first block.
- KNOWN: the net effect of events is collected. A block applies it, and makes it visible atomically.

A wrong book is worse than an old one: after a line that is malformed or contradicts the state, no later event is
reliable, so events are skipped until the producer sends its whole state again. Until then the content is that of the
last block before the line, at every start and in every process, and the feed has a problem.

An order whose numbers or assets are well-formed but impossible is no fault of the producer: anyone can place it on the
ledger. It is counted, and kept without liquidity, so that it can be replaced and removed.

Each block has an immutable state, which shares its unchanged parts with the state of the block before. So a thousand
states need little memory, and a rollback only selects an earlier state. A version has the state of the last block, and
the index of that state.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from threading import Event
from typing import Final, TypeAlias, final

from attrs import define, evolve, field, frozen

from market_index import (
    ADA,
    AssetId,
    InvalidAssetId,
    InvalidOrderBook,
    InvalidPrice,
    MarketIndexError,
    Order,
    Pair,
    PriceOutOfRange,
    RestingOrders,
    Side,
)
from market_index.errors import safe_repr
from market_index.wire import Number, object_from_json
from market_index_feeds.lines import Line, LineSource, Reading
from market_index_feeds.source import NoVersion, Progress, Version

DEFAULT_HISTORY: Final = 2160
"""How many blocks before the last one a rollback may go back by default: no rollback of Cardano exceeds it."""

MAX_TEXT_CHARACTERS: Final = 200
"""The maximum length of an order id, and of the text of a block."""

_AMOUNT_DIGITS: Final = 50
"""The first digits of an amount, which suffice: from 10^49 on, an offer pays for more than 2^64-1 at every price."""

_MAX_CACHED_PAIRS: Final = 8_192
"""About 8 MB."""

# `\Z`, because `$` also matches before a newline. Possessive, so that the time is linear in the length.
_amount_parts: Final = re.compile(r"(-?)([0-9]++)\Z").match
# Any number of bytes in hex: lengths are checked later.
_is_asset: Final = re.compile(r"(?:ADA|(?:[0-9A-Fa-f]{2})*+:(?:[0-9A-Fa-f]{2})*+)\Z").match

_NO_RESET: Final = "contains no reset (if it has order books, omit orders: before its name)"

_BOOK_KEYS: Final = frozenset({"bids", "asks", "as_of", "retract"})

_ANY_PAIR: Final = Pair(AssetId(bytes(28), b""), ADA)
"""The pair with which the price of an order is checked whose own assets are not a pair."""

_UNPAIRED: Final = Order(_ANY_PAIR, Side.ASK, "1", 0)
"""What is remembered of an order whose assets are not a pair."""

_SIDES: Final = {"base": Side.ASK, "quote": Side.BID}
"""The side of an order, by which asset it offers."""

_Values: TypeAlias = Mapping[str, object]


class Contradiction(InvalidOrderBook):
    """A well-formed event that contradicts the state. The state does not change."""


class Phase(Enum):
    """The phases of a feed of orders, and what each waits for; see the module docstring."""

    UNKNOWN = "a reset"
    RESETTING = "the first block after its reset"
    KNOWN = "a block"


@frozen(eq=False)
class _BlockState:
    """The orders after an event.

    `unpaired` has the ids of the orders whose assets are not a pair: anyone can place one, and it may be removed.
    """

    orders: RestingOrders = field(factory=RestingOrders)
    unpaired: RestingOrders = field(factory=RestingOrders)

    def __contains__(self, order_id: str) -> bool:
        return order_id in self.orders or order_id in self.unpaired


@define(eq=False)
class _Pending:
    """The net effect of events that no block has committed yet.

    `orders` has None for an order that is removed. `pairs` has the pairs of all placed orders: they are tracked, even
    if the orders are removed again.
    """

    orders: dict[str, Order | None] = field(factory=dict)
    spots: dict[Pair, Decimal | None] = field(factory=dict)
    pairs: set[Pair] = field(factory=set)

    def applied_to(self, before: _BlockState, as_of: str | None = None) -> _BlockState:
        """Return the state after the events, which follow the state `before`."""
        spots: dict[Pair, Decimal | None] = {pair: None for pair in self.pairs if pair not in before.orders.index}
        placed, unpaired = dict[str, Order](), dict[str, Order]()
        for order_id, order in self.orders.items():
            if order is not None:
                (unpaired if order is _UNPAIRED else placed)[order_id] = order
        # Also those that are placed are removed: an order that is changed is removed first.
        return _BlockState(
            before.orders.apply(placed, self.orders, spots | self.spots, as_of, missing_ok=True),
            before.unpaired.apply(unpaired, self.orders, missing_ok=True),
        )


@final
class Blocks:
    """The states of the orders in one file or stream: the visible one, and those of the retained blocks.

    `visible` is the state of the last block, also while the state is not known. `pending` is the number of events after
    the last block. `reject` is called for each line that is rejected, with the reason.
    """

    def __init__(self, history: int, reject: Callable[[str, object], None]) -> None:
        """`history` is how many blocks before the last one a rollback may go back."""
        self.phase: Phase = Phase.UNKNOWN
        self.visible: RestingOrders = RestingOrders()
        self.has_block: bool = False
        self.pending: int = 0
        self._lost: str | None = _NO_RESET
        self._max_blocks = history + 1
        self._reject = reject
        self._line = 0
        self._blocks: OrderedDict[str, _BlockState] = OrderedDict()
        # The state of the last block, or a later one if events had to be applied, and the events after it.
        self._applied, self._events = _BlockState(), _Pending()

    @property
    def problem(self) -> str | None:
        """Why the state is not known, as in `NoVersion`, and which event makes it known again; None if it is known."""
        return None if self._lost is None else f"{self._lost}; waiting for {self.phase.value}"

    def skips(self, line: Line) -> bool:
        """Whether a line is blank, or cannot be the reset without which the state is not known. It is not decoded."""
        is_blank = line.fault is None and not line.text.strip()
        return is_blank or (self.phase is Phase.UNKNOWN and not _may_be_reset(line.text))

    def read(self, line: Line) -> None:
        """Read the next line. The first rejected line is the reason why the state is not known."""
        if self.skips(line):
            return
        self._line = line.number
        try:
            if line.fault is not None:
                raise InvalidOrderBook(line.fault)
            self.apply(object_from_json(line.text))
        except MarketIndexError as error:
            self._reject(f"line {line.number}", error)
            if self.phase is not Phase.UNKNOWN:
                self._lost = f"has an unknown state since line {line.number}: {error}"
                self._start(Phase.UNKNOWN)

    def _start(self, phase: Phase) -> None:
        """Start a phase without a state: forget all states but the visible one."""
        self.phase, self.pending = phase, 0
        self._blocks.clear()
        self._applied, self._events = _BlockState(), _Pending()

    def apply(self, values: _Values) -> None:
        """Apply the next event.

        Raises:
            Contradiction: It contradicts the state.
            MarketIndexError: It is malformed. Neither error changes the state.
        """
        for kind, (keys, apply) in self.KINDS.items():
            if kind in values:
                if values.keys() != keys:
                    raise _wrong_keys(kind, keys, values)
                if self.phase is not Phase.UNKNOWN or kind == "reset":
                    apply(self, values)
                    self.pending += kind not in {"block", "rollback", "reset"}
                return
        raise InvalidOrderBook(f"must have one of the keys {', '.join(self.KINDS)}, got {safe_repr(list(values))}")

    def _place(self, values: _Values) -> None:
        """Create an order, or replace it by its unfilled part."""
        order_id = _printable(values, "place")
        order, fault = _offered(values)
        if fault is not None:
            self._reject(f"line {self._line}", f"order {safe_repr(order_id)} has no liquidity: {fault}")
        if order is not _UNPAIRED:
            self._events.pairs.add(order.pair)
        self._events.orders[order_id] = order

    def _remove(self, values: _Values) -> None:
        order_id = _printable(values, "remove")
        is_there = order_id in self._applied
        if order_id in self._events.orders:
            is_there = self._events.orders[order_id] is not None
        if not is_there:
            raise Contradiction(f"cannot remove order {safe_repr(order_id)}: there is no such order")
        self._events.orders[order_id] = None

    def _set_spot(self, values: _Values) -> None:
        """Set the last executed price of a pair."""
        pair, price = _pair(values), None
        if values["spot"] is not None:
            # An ask has the unit of a spot price, quote per base. A ratio that is not a price is rounded up.
            order, fault = _order("spot", pair, Side.ASK, 0, _text(values, "spot"))
            price = None if order is None else order.level_price
            if fault is not None:
                self._reject(f"line {self._line}", f"{pair} has no spot price: {fault}")
        self._events.spots[pair] = price

    def _untrack(self, values: _Values) -> None:
        _require_true(values, "untrack")
        pair = _pair(values)
        try:
            state = self._events.applied_to(self._applied)
            untracked = evolve(state, orders=state.orders.untrack(pair))
        except InvalidOrderBook as error:
            raise Contradiction(str(error)) from None
        self._applied, self._events = untracked, _Pending()

    def _commit(self, values: _Values) -> None:
        """Make all events since the previous block visible."""
        text = _block_text(values, "block")
        if text in self._blocks:
            raise Contradiction(f"the text of a block must not repeat, got {safe_repr(text)} again")
        self._blocks[text] = self._events.applied_to(self._applied, text)
        if len(self._blocks) > self._max_blocks:
            self._blocks.popitem(last=False)
        self.phase, self._lost = Phase.KNOWN, None
        self._show(text)

    def _roll_back(self, values: _Values) -> None:
        """Undo all events since a block."""
        text = _block_text(values, "rollback")
        if text not in self._blocks:
            raise Contradiction(f"block {safe_repr(text)} must be retained for a rollback to it")
        while next(reversed(self._blocks)) != text:
            self._blocks.popitem()
        self._show(text)

    def _show(self, text: str) -> None:
        """Make the state of a block visible, and drop later events."""
        self._applied, self._events, self.pending = self._blocks[text], _Pending(), 0
        self.visible, self.has_block = self._applied.orders, True

    def _reset(self, values: _Values) -> None:
        """Start a new state: it follows."""
        _require_true(values, "reset")
        self._start(Phase.RESETTING)
        if self._lost in (None, _NO_RESET):
            self._lost = f"is reset since line {self._line}"

    KINDS: Final[Mapping[str, tuple[frozenset[str], Callable[[Blocks, _Values], None]]]] = {
        "place": (frozenset({"place", "base", "quote", "offered", "amount", "price"}), _place),
        "remove": (frozenset({"remove"}), _remove),
        "spot": (frozenset({"spot", "base", "quote"}), _set_spot),
        "untrack": (frozenset({"untrack", "base", "quote"}), _untrack),
        "block": (frozenset({"block"}), _commit),
        "rollback": (frozenset({"rollback"}), _roll_back),
        "reset": (frozenset({"reset"}), _reset),
    }


@final
class Orders(LineSource):
    """Events of orders in a file, which is followed, or in a stream: standard input (`-`), a pipe, or a file."""

    def __init__(
        self, path: str | os.PathLike[str], history: int = DEFAULT_HISTORY, *, is_stream: bool = False
    ) -> None:
        super().__init__(path, is_stream=is_stream)
        self._history = history

    def versions(self, stop: Event, progress: Progress | None = None) -> Generator[Version | NoVersion, None, None]:
        """Yield the state of the last block whenever all lines are read."""
        blocks = Blocks(self._history, self.reject)
        with closing(self._batches(stop)) as batches:
            for batch in batches:
                if batch.is_start:
                    blocks = Blocks(self._history, self.reject)
                for line in batch.lines:
                    blocks.read(line)
                if progress is not None:
                    progress(batch.offset, batch.size)
                if batch.reading is not Reading.MORE:
                    yield self._version(blocks, batch.tail)
        if self.is_stream and blocks.pending and blocks.problem is None:
            yield NoVersion(f"ended while events waited for a block (events: {blocks.pending})")

    def _version(self, blocks: Blocks, tail: Line | None) -> Version | NoVersion:
        orders, problem = blocks.visible, blocks.problem
        if problem is not None and tail is not None:
            problem += f"; line {tail.number} has no newline yet"
        is_shown = self.last is not None and self.last.orders is orders
        if not blocks.has_block or (problem is not None and is_shown):
            # Only the producer can end the problem. The last version stays.
            return NoVersion(problem or _NO_RESET)
        return self.version_of(orders.index, orders=orders, problem=problem)


def _may_be_reset(text: bytes) -> bool:
    """Whether a line may be a reset. Other lines are skipped without decoding."""
    return b'"reset"' in text or b"\\" in text


def _wrong_keys(kind: str, keys: frozenset[str], values: _Values) -> InvalidOrderBook:
    missing, unknown = sorted(keys - values.keys()), sorted(values.keys() - keys)
    wrong = f"missing {', '.join(missing)}" if missing else f"unknown key {safe_repr(unknown[0])}"
    hint = "" if _BOOK_KEYS.isdisjoint(values) else " (an order book: omit orders: before the name of its file)"
    return InvalidOrderBook(f"{kind}: {wrong}{hint}")


def _offered(values: _Values) -> tuple[Order, str | None]:
    """Return the order of a `place`, and the reason why it has no liquidity, None if it has some.

    The order is `_UNPAIRED` if its assets are not a pair. Raises `MarketIndexError` if a value is malformed.
    """
    side, amount, price = _side(values), _amount(values["amount"]), _text(values, "price")
    assets = _text(values, "base"), _text(values, "quote")
    try:
        pair = _parsed_pair(*assets)
    except (InvalidAssetId, InvalidOrderBook) as error:
        if not all(map(_is_asset, assets)):
            raise
        _order("price", _ANY_PAIR, side, 0, price)
        return _UNPAIRED, str(error)
    order, fault = _order("price", pair, side, max(amount, 0), price)
    if fault is None and amount < 0:
        fault = f"amount must be 0 or more, got {safe_repr(values['amount'])}"
    return order if order is not None and fault is None else Order(pair, side, "1", 0), fault


def _order(key: str, pair: Pair, side: Side, amount: int, price: str) -> tuple[Order | None, str | None]:
    """Return an order and None; or None and the reason, if its price is out of range.

    Raises `InvalidPrice` for a malformed price.
    """
    try:
        offered = pair.base if side is Side.ASK else pair.quote
        return Order.from_offer(pair, offered=offered, amount=amount, price=price), None
    except PriceOutOfRange as error:
        return None, str(error)
    except InvalidPrice as error:
        raise error.at(key) from None


def _text(values: _Values, key: str) -> str:
    value = values[key]
    if type(value) is not str:
        raise InvalidOrderBook(f"{key} must be a string, got {safe_repr(value)}")
    return value


def _printable(values: _Values, key: str) -> str:
    text = _text(values, key)
    if not (1 <= len(text) <= MAX_TEXT_CHARACTERS and text.isascii() and text.isprintable()):
        raise InvalidOrderBook(
            f"{key} must be 1 to {MAX_TEXT_CHARACTERS} printable ASCII characters, got {safe_repr(text)}"
        )
    return text


def _block_text(values: _Values, key: str) -> str:
    text = _printable(values, key)
    if text != text.strip(" "):
        raise InvalidOrderBook(f"{key} must have no space at either end, got {safe_repr(text)}")
    return text


def _require_true(values: _Values, key: str) -> None:
    if values[key] is not True:
        raise InvalidOrderBook(f"{key} must be true, got {safe_repr(values[key])}")


def _side(values: _Values) -> Side:
    offered = values["offered"]
    if type(offered) is not str or offered not in _SIDES:
        raise InvalidOrderBook(f"offered must be 'base' or 'quote', got {safe_repr(offered)}")
    return _SIDES[offered]


def _amount(amount: object) -> int:
    """Return an amount. Only the first digits of a huge one are converted, because all would take long."""
    if type(amount) is int:
        return amount
    text = amount.text if isinstance(amount, Number) else amount
    parts = _amount_parts(text) if type(text) is str else None
    if parts is None:
        raise InvalidOrderBook(f"amount must be a whole number, or a string of its digits, got {safe_repr(amount)}")
    sign, digits = parts.groups()
    return int(sign + (digits.lstrip("0") or "0")[:_AMOUNT_DIGITS])


def _pair(values: _Values) -> Pair:
    return _parsed_pair(_text(values, "base"), _text(values, "quote"))


@lru_cache(maxsize=_MAX_CACHED_PAIRS)
def _parsed_pair(base: str, quote: str) -> Pair:
    pair = Pair(_asset("base", base), _asset("quote", quote))
    if pair.base == pair.quote:
        raise InvalidOrderBook(f"base and quote must be different assets, got {safe_repr(base)} twice")
    return pair


def _asset(key: str, text: str) -> AssetId:
    try:
        return AssetId.parse(text)
    except InvalidAssetId as error:
        raise error.at(key) from None
