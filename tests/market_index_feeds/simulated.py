"""A simulated bucket with the real feed, relay and `publish --replace`, for `search.py`: one step at a time, no I/O.

Only this module touches the interface of the product: the source, the store, and the steps of a feed and of a relay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from threading import Event
from typing import Any, TypeAlias
from unittest.mock import patch

import click
from attrs import Factory, define, evolve, field, frozen

from market_index import Freshness, LiveIndex, MarketIndex, OrderBook, Pair
from market_index_cli import publish as publish_command
from market_index_feeds import Feed, Receipt, Relay, Store, StoreError, Unacknowledged
from market_index_feeds import relay as relay_module
from market_index_feeds.coverage import Coverage
from market_index_feeds.medium import Progress, Rejected, Source, Unnamed, Update
from market_index_feeds.relay import RelayState
from tests.market_index_feeds import made_up

Books: TypeAlias = dict[int, int]
"""The versions of books, by the number of their pair. A version is the logical time of its publication."""

Key: TypeAlias = int | str

PAIRS = 0, 1
FRESHNESS, UNREADABLE = "freshness", "unreadable"
"""Keys that are no pair: the freshness, and a name that cannot be read."""

GARBAGE = "garbage"

pair = lru_cache(made_up.pair)
book = lru_cache(made_up.book)


def number_of(one: Pair) -> int:
    return one.base.policy_id[-1]


def stated(time: int) -> Freshness:
    """Return the freshness of a publication at a logical time."""
    return Freshness(str(time), datetime(2026, 11, 22, tzinfo=UTC) + timedelta(seconds=time))


def as_of(freshness: Freshness) -> int | None:
    return None if freshness.as_of is None else int(freshness.as_of)


def versions(books: Iterable[OrderBook]) -> Books:
    return {number_of(one.pair): int(str(one.spot)) for one in books}


@frozen
class Statement:
    """What a medium says of all its books: their freshness, and whether they are all that is tracked."""

    freshness: Freshness = field(factory=Freshness)
    is_complete: bool = False


Value: TypeAlias = OrderBook | Statement | str | None


@define(eq=False)
class Record:
    """What is stored under a key. A `value` of None is a tombstone."""

    value: Value


class Records(dict[Key, Record]):
    """The last record of each key, in the order in which they were written."""

    @property
    def books(self) -> Books:
        return versions(record.value for record in self.values() if isinstance(record.value, OrderBook))

    @property
    def retracted(self) -> set[int]:
        return {key for key in PAIRS if key in self and self[key].value is None}

    @property
    def is_valid(self) -> bool:
        return all(record.value != GARBAGE for record in self.values())

    @property
    def statement(self) -> Statement:
        value = self[FRESHNESS].value if FRESHNESS in self else None
        return value if isinstance(value, Statement) else Statement()

    @property
    def names_all_pairs(self) -> bool:
        return self.is_valid and self.statement.is_complete


@define(eq=False)
class Medium:
    """A bucket."""

    records: Records = Factory(Records)
    published: Books = Factory(dict)
    """The books of the publisher, without damage."""
    generation: int = 0
    """Changes when the medium is created again or rolled back."""
    stamp: int = 0
    """Changes with every record."""
    before: tuple[Records, Books] | None = None
    """The records, and the books of the publisher, before the last change of a store."""
    in_flight: tuple[Key, Value, Record | None] | None = None
    """A key, a value that may be stored later, and the record that it overwrites."""
    budget: int | None = None
    """How many records a store writes before a call fails; None: all."""

    def put(self, key: Key, value: Value) -> None:
        self.records.pop(key, None)
        self.records[key] = Record(value)
        self.stamp += 1
        if isinstance(value, OrderBook):
            self.published.update(versions([value]))
        elif value is None and isinstance(key, int):
            self.published.pop(key, None)

    def write(self, key: Key, value: Value) -> None:
        """Write a record of a store. Raises `Unacknowledged` if the budget is spent; then the record is in flight."""
        if self.budget == 0:
            self.budget, self.in_flight = None, (key, value, self.records.get(key))
            raise Unacknowledged("not acknowledged", ())
        self.budget = None if self.budget is None else self.budget - 1
        self.put(key, value)

    def land(self) -> None:
        """Store the record in flight, unless the one that it overwrites was overwritten before."""
        if self.in_flight is not None:
            (key, value, expected), self.in_flight = self.in_flight, None
            if self.records.get(key) is expected:
                self.put(key, value)

    def recreate(self, records: Records, published: Books) -> None:
        """Create it again with other content."""
        self.records, self.published, self.before, self.in_flight = records, published, None, None
        self.generation += 1
        self.stamp += 1


class SimulatedSource(Source):
    """Reads a medium as `NatsSource` reads a bucket."""

    record = "values"

    def __init__(self, medium: Medium) -> None:
        super().__init__("model")
        self.medium = medium
        self.generation: int | None = None
        # The records that were delivered last, and those of the live books.
        self.delivered = Records()
        self.live: dict[Key, Record] = {}
        self.last = Update()
        # The pairs with a book in what was delivered, and those that a reader of it has reason to remove.
        self.delivered_books: Books = {}
        self.removable: set[int] = set()

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        raise NotImplementedError  # the search applies each update itself

    @property
    def must_load(self) -> bool:
        return self.generation != self.medium.generation

    def pending(self) -> list[Key]:
        return [key for key, record in self.medium.records.items() if self.delivered.get(key) is not record]

    def is_read(self) -> bool:
        return not self.must_load and not self.pending()

    def same(self) -> list[Key]:
        """Return the keys of the live books that are unchanged."""
        return [key for key, record in self.medium.records.items() if self.live.get(key) is record]

    def load(self) -> Update:
        """Return the whole content."""
        records, same = self.medium.records, self.same()
        self.generation, self.delivered = self.medium.generation, Records(records)
        update = self._update(key for key in records if key not in same)
        self.live = {key: record for key, record in self.live.items() if key in records}
        unchanged = [pair(key) for key in same if isinstance(key, int)]
        self.last = evolve(update, replaces_all=True, unchanged=unchanged, is_blank=not records)
        return self.last

    def changes(self, keys: Collection[Key]) -> Update:
        """Return the changes of these keys."""
        self.delivered.update((key, self.medium.records[key]) for key in keys)
        self.last = self._update(keys)
        return self.last

    def _update(self, keys: Iterable[Key]) -> Update:
        """Return an update with the records of these keys. Its freshness is unknown while another record waits."""
        books, removed, invalid = list[OrderBook](), list[Key](), list[Key]()
        for key in keys:
            record = self.delivered[key]
            if isinstance(record.value, OrderBook):
                books.append(record.value)
                self.live[key] = record
            elif record.value is None:
                removed.append(key)
                self.live.pop(key, None)
            elif record.value == GARBAGE:
                invalid.append(key)
        delivered = self.delivered
        statement = Statement() if self.pending() else delivered.statement
        names_all = statement.is_complete and delivered.is_valid
        self.delivered_books = delivered.books
        self.removable = delivered.retracted | (set(PAIRS) - delivered.keys() if names_all else set())
        return Update(
            books=books,
            removed=[pair(key) for key in removed if isinstance(key, int)],
            is_complete=statement.is_complete,
            invalid=[*map(_identity, invalid)],
            resolved=[key for key in removed if isinstance(key, str)],
            rejected=[Rejected(str(key), GARBAGE, _identity(key)) for key in invalid],
            revision=self.medium.stamp,
            freshness=statement.freshness,
        )


def _identity(key: Key) -> Pair | str:
    return pair(key) if isinstance(key, int) else key


class SimulatedStore(Store):
    """Writes a medium as `NatsStore` and `BucketFreshness` write a bucket: record by record, the freshness last."""

    def __init__(self, medium: Medium) -> None:
        super().__init__("model")
        self.medium = medium
        self.unacknowledged: set[Key] = set()
        self._expected_stamp: int | None = None

    def _update(self, books: list[OrderBook], retract: set[Pair], freshness: Freshness | None) -> Receipt:
        before = self.medium.records.statement
        freshness = before.freshness if freshness is None else freshness
        deleted = sorted(key for one in retract if self._may_be_stored(key := number_of(one)))
        change = {number_of(one.pair): one for one in books} | dict.fromkeys(deleted)
        self._write(change, withdraws=_goes_back(before.freshness, freshness))
        self._put(FRESHNESS, Statement(freshness, before.is_complete))
        return Receipt(self.revision)

    def _replace(self, books: Iterable[OrderBook], retract: frozenset[Pair] | None, freshness: Freshness) -> Receipt:
        named = {number_of(one.pair): one for one in books}
        others = {key for key in PAIRS if key not in named and self._may_be_stored(key)}
        kept = {key for key in others if retract is not None and pair(key) not in retract}
        written = {key: one for key, one in named.items() if not self._is_stored(key, one)}
        before = self.medium.records.statement
        freshness = freshness.without_as_of() if kept else freshness
        self._expected_stamp = self.medium.stamp
        withdraws = before.freshness.as_of not in {None, freshness.as_of}
        self._write(written | dict.fromkeys(sorted(others - kept)), withdraws=withdraws)
        after = Statement(freshness, before.is_complete or retract is None)
        if after != self.medium.records.statement or FRESHNESS in self.unacknowledged:
            self._put(FRESHNESS, after)
        return Receipt(self.revision, kept=frozenset(map(pair, kept)))

    def _may_be_stored(self, key: int) -> bool:
        record = self.medium.records.get(key)
        return (record is not None and record.value is not None) or key in self.unacknowledged

    def _is_stored(self, key: int, one: OrderBook) -> bool:
        record = self.medium.records.get(key)
        return record is not None and record.value == one and key not in self.unacknowledged

    def _write(self, change: Mapping[int, OrderBook | None], *, withdraws: bool) -> None:
        """Write books and tombstones, after the freshness is withdrawn if it may be newer than them."""
        self.medium.before = Records(self.medium.records), dict(self.medium.published)
        if change and (withdraws or FRESHNESS in self.unacknowledged):
            self._put(FRESHNESS, Statement(Freshness(), self.medium.records.statement.is_complete))
        for key, value in change.items():
            self._put(key, value)

    def _put(self, key: Key, value: Value) -> None:
        is_expected = self.is_unchanged_by_others()
        try:
            self.medium.write(key, value)
        except Unacknowledged:
            self.unacknowledged.add(key)
            raise
        self.unacknowledged.discard(key)
        self._expected_stamp = self.medium.stamp if is_expected else self._expected_stamp

    @property
    def revision(self) -> int:
        return self.medium.stamp

    def is_unchanged_by_others(self) -> bool:
        return self._expected_stamp == self.medium.stamp

    def close(self) -> None:
        pass

    def state(self) -> object:
        return self.is_unchanged_by_others(), self.unacknowledged


def _goes_back(before: Freshness, after: Freshness) -> bool:
    return before.as_of is not None and (after.as_of is None or int(after.as_of) < int(before.as_of))


def publish_with_invalid_line(store: Store, books: list[OrderBook], freshness: Freshness) -> None:
    """Do what `publish --replace` does with a file that contains these books and an invalid line."""
    invalid = [Unnamed.UNREADABLE]
    update = Update(books=books, replaces_all=True, is_complete=True, invalid=invalid, freshness=freshness)
    publication = publish_command._Publication(store, Feed(_File(update)), None)
    publish_command._replace(publication)


class _File(Source):
    record = "lines"

    def __init__(self, content: Update) -> None:
        super().__init__("file")
        self._content = content

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        del stop, progress
        yield self._content


class Reader:
    """A feed of a medium, and its live index."""

    def __init__(self, medium: Medium) -> None:
        self.source = SimulatedSource(medium)
        self.feed = Feed(self.source)
        self.live = LiveIndex()
        self.feed._shown = self.live.current  # the feed is the only writer
        self._read: tuple[MarketIndex, Books] = self.live.current, {}
        self.apply(self.source.load())

    def apply(self, update: Update) -> None:
        self.feed._apply(update, self.live)

    @property
    def is_healthy(self) -> bool:
        """Whether everything was read, and the feed reports no problem."""
        return self.source.is_read() and self.feed.problem is None

    def shown(self) -> tuple[Books, int | None]:
        """Return the live books, and their as_of."""
        index = self.live.current
        if self._read[0] is not index:
            self._read = index, versions(index.values())
        return self._read[1], as_of(index.freshness)

    def state(self) -> object:
        source, feed = self.source, self.feed
        return (
            *(source.must_load, source.pending(), source.same(), set(source.live), source.delivered.names_all_pairs),
            *(feed.content.index, feed.content.coverage, feed.problem),
            *(feed._publications.is_blank, feed._publications.freshness),
        )


class SimulatedRelay:
    """A relay from a medium into another one, which works step by step."""

    def __init__(self, source: Medium, target: Medium) -> None:
        self.reader = Reader(source)
        self.relay = Relay(self.reader.feed, lambda: SimulatedStore(target))
        self.step()

    def step(self) -> None:
        """Do what `Relay.run` does between two checks of the store."""
        try:
            self.relay._keep_same()
        except StoreError:
            self.relay._fail(0)

    def is_comparing(self) -> bool:
        """Whether the next step compares the whole store."""
        return self.relay._state is not RelayState.PUBLISHING

    def is_quiet(self) -> bool:
        return not self.is_comparing() and self.relay._relayed is self.reader.feed.content.index

    def state(self) -> object:
        relay = self.relay
        store = relay._store.state() if isinstance(relay._store, SimulatedStore) else None
        relayed = relay._relayed is self.reader.feed.content.index or relay._relayed
        return relay._state, store, relayed, relay._kept, relay._named_all


def text_of(value: object) -> str:
    """Return a text that is equal for equal states. Times are marked: `<5>` is a version, `<as of 5>` a freshness."""
    form = _TEXTS.get(type(value))
    return str(value) if form is None else form(value)


def _text_of_set(value: Iterable[object]) -> str:
    return f"{{{','.join(sorted(map(text_of, value)))}}}"


def _text_of_sequence(value: Iterable[object]) -> str:
    return f"({','.join(map(text_of, value))})"


def _text_of_records(value: Records) -> str:
    return _text_of_set((str(key), record.value) for key, record in value.items())


_TEXTS: dict[type, Callable[[Any], str]] = {
    OrderBook: lambda one: f"{number_of(one.pair)}<{one.spot}>",
    Freshness: lambda one: "unknown" if one.as_of is None else f"<as of {one.as_of}>",
    Statement: lambda one: f"{text_of(one.freshness)} {one.is_complete}",
    Coverage: lambda one: text_of((one.invalid, one.absent, one.retracted, one.is_complete)),
    Pair: lambda one: str(number_of(one)),
    MarketIndex: lambda one: text_of((*one.values(), one.freshness)),
    Records: _text_of_records,
    set: _text_of_set,
    frozenset: _text_of_set,
    list: _text_of_sequence,
    tuple: _text_of_sequence,
}


class _Clock:
    """A clock that goes on by 0.6 seconds whenever it is read: after one look for changes, a second is over."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += 0.6
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@contextmanager
def without_waiting() -> Iterator[None]:
    """Let relays look for changes once instead of for a second, and log and print nothing."""
    clock = _Clock()
    times: dict[str, Any] = {
        "monotonic": clock.monotonic,
        "sleep": clock.sleep,
    }
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.NOTSET)
        logging.disable(logging.CRITICAL)
        stack.enter_context(patch.multiple(relay_module, **times))
        stack.enter_context(patch.object(click, "echo", lambda *_, **__: None))
        yield
