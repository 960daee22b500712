"""A simulated bucket with the real feed and the real relay, for `search.py`: no thread, no I/O, one step at a time.

Only this module touches the interface of the product: the source, the store, and the steps of a feed and of a relay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from threading import Event
from typing import Any, TypeAlias
from unittest.mock import patch

from attrs import Factory, define

from market_index import Freshness, LiveIndex, MarketIndex, OrderBook, Pair
from market_index.freshness import UNKNOWN
from market_index_feeds import Feed, Receipt, Relay, Store, StoreError, Unacknowledged
from market_index_feeds import relay as relay_module
from market_index_feeds.medium import Delta, Names, Progress, Rejected, Snapshot, Source, Update
from market_index_feeds.relay import RelayState
from tests.market_index_feeds import made_up

Books: TypeAlias = dict[int, int]
"""The versions of books, by the number of their pair. A version is the logical time of its publication."""

Key: TypeAlias = int | str
Value: TypeAlias = OrderBook | Freshness | str | None

PAIRS = 0, 1
FRESHNESS, JUNK, UNNAMED = "freshness", "junk", "unnamed"
"""Keys that are no pair: the freshness, a name that is not that of a pair, and a name that cannot be read."""

GARBAGE = "garbage"

pair = lru_cache(made_up.pair)
book = lru_cache(made_up.book)
NUMBERS = {pair(number): number for number in PAIRS}


def stated(time: int) -> Freshness:
    """Return the freshness of a publication at a logical time."""
    return Freshness(str(time), datetime(2026, 11, 22, tzinfo=UTC) + timedelta(seconds=time))


def as_of(freshness: Freshness) -> int | None:
    return None if freshness.as_of is None else int(freshness.as_of)


def versions(books: Iterable[OrderBook]) -> Books:
    return {NUMBERS[one.pair]: int(str(one.spot)) for one in books}


@define(eq=False)
class Record:
    """What is stored under a key. A `value` of None is a tombstone. The store compares digests, the reader values."""

    value: Value
    digest: object = None


@define(eq=False)
class Medium:
    """A bucket: the last record of each key, in the order in which they were written."""

    records: dict[Key, Record] = Factory(dict)
    is_complete: bool = False
    """Whether a replacement has ended since the medium was created."""
    generation: int = 0
    """Changes when the medium is recreated or rolled back."""
    stamp: int = 0
    """Changes with every record."""
    before: tuple[dict[Key, Record], bool, Books] | None = None
    """The records, the mark and the books of the publisher before the last call."""
    in_flight: tuple[Key, Record, Record | None] | None = None
    """A key, a record that may be stored later, and the one that it overwrites."""
    budget: int | None = None
    """How many records a store writes before a call fails; None: all."""
    is_delaying: bool = False
    """Whether the record at which a call fails is in flight, and not lost."""

    def put(self, key: Key, record: Record) -> None:
        self.records.pop(key, None)
        self.records[key] = record
        self.stamp += 1

    def write(self, key: Key, value: Value) -> None:
        """Write a record of a store. Raises `StoreError` if the budget is spent."""
        record = Record(value, digest=value)
        if self.budget == 0:
            self.budget = None
            if self.is_delaying:
                self.in_flight = key, record, self.records.get(key)
                raise Unacknowledged("not acknowledged", ())
            raise StoreError("interrupted")
        self.budget = None if self.budget is None else self.budget - 1
        self.put(key, record)

    def land(self) -> None:
        """Store the record in flight, unless the one that it overwrites was overwritten before."""
        if self.in_flight is not None:
            (key, record, expected), self.in_flight = self.in_flight, None
            if self.records.get(key) is expected:
                self.put(key, record)

    def value(self, key: Key) -> Value:
        return self.records[key].value if key in self.records else None

    def books(self) -> Books:
        return versions(record.value for record in self.records.values() if isinstance(record.value, OrderBook))

    def tombstones(self) -> set[Key]:
        return {key for key, record in self.records.items() if record.value is None}

    def has_invalid(self) -> bool:
        return any(record.value == GARBAGE for key, record in self.records.items() if key != JUNK)

    def freshness(self) -> Freshness:
        value = self.value(FRESHNESS)
        return value if isinstance(value, Freshness) else UNKNOWN


class SimulatedSource(Source):
    """Reads a medium as `NatsSource` reads a bucket."""

    record = "values"

    def __init__(self, medium: Medium) -> None:
        super().__init__("model")
        self.medium = medium
        self.generation: int | None = None
        # The records that were delivered last, and those of the live books.
        self.delivered: dict[Key, Record] = {}
        self.live: dict[Key, Record] = {}
        self.last: Update | None = None

    def updates(self, stop: Event, progress: Progress | None) -> Generator[Update, None, None]:
        raise NotImplementedError  # the search applies each update itself

    @property
    def must_load(self) -> bool:
        return self.generation != self.medium.generation

    def pending(self) -> list[Key]:
        return [key for key, record in self.medium.records.items() if self.delivered.get(key) is not record]

    def is_read(self) -> bool:
        return not self.must_load and not self.pending()

    def load(self) -> Update:
        """Return the whole content."""
        records = self.medium.records
        self.generation, self.delivered = self.medium.generation, dict(records)
        same = [key for key, record in records.items() if self.live.get(key) is record]
        found = self._decode(key for key in records if key not in same)
        self.live = {key: record for key, record in self.live.items() if key in records}
        self.last = Snapshot(
            books=found.books,
            rejected=found.rejected,
            unchanged=[pair(key) for key in same if isinstance(key, int)],
            revision=self.medium.stamp,
            freshness=self.medium.freshness(),
            reload_reason="it was replaced or rolled back",
        )
        return self.last

    def changes(self, keys: Collection[Key]) -> Update:
        """Return the changes of these keys. The freshness is unknown while another one waits."""
        self.delivered.update((key, self.medium.records[key]) for key in keys)
        found = self._decode(keys)
        self.last = Delta(
            books=found.books,
            rejected=found.rejected,
            removed=[pair(key) for key in found.removed if isinstance(key, int)],
            removed_records=[key for key in found.removed if isinstance(key, str)],
            revision=self.medium.stamp,
            freshness=UNKNOWN if self.pending() else self.medium.freshness(),
        )
        return self.last

    def _decode(self, keys: Iterable[Key]) -> _Decoded:
        found = _Decoded()
        for key in keys:
            record = self.medium.records[key]
            if isinstance(record.value, OrderBook):
                found.books.append(record.value)
                self.live[key] = record
            elif record.value is None:
                found.removed.append(key)
                self.live.pop(key, None)
            elif record.value == GARBAGE:
                names = pair(key) if isinstance(key, int) else Names.ANY if key == UNNAMED else Names.NONE
                found.rejected.append(Rejected(str(key), GARBAGE, names, names if isinstance(key, int) else key))
        return found

    def state(self) -> object:
        same = [key for key, record in self.medium.records.items() if self.live.get(key) is record]
        return self.must_load, self.pending(), set(same), set(self.live)


@define
class _Decoded:
    books: list[OrderBook] = Factory(list)
    removed: list[Key] = Factory(list)
    rejected: list[Rejected] = Factory(list)


class SimulatedStore(Store):
    """Writes a medium as `NatsStore` writes a bucket: record by record, the freshness last."""

    def __init__(self, medium: Medium) -> None:
        super().__init__("model")
        self.medium = medium
        self.unacknowledged: set[Key] = set()
        self._expected_stamp: int | None = None

    def _update(
        self, books: list[OrderBook], retract: set[Pair], freshness: Freshness, *, keeps_as_of: bool
    ) -> Receipt:
        deleted = sorted(key for one in retract if self._may_be_stored(key := NUMBERS[one]))
        self._write({NUMBERS[one.pair]: one for one in books} | dict.fromkeys(deleted), freshness, is_whole=False)
        return Receipt(self.revision, len(books), len(deleted))

    def _replace(self, books: Iterable[OrderBook], keep: Callable[[Pair], bool], freshness: Freshness) -> Receipt:
        named = {NUMBERS[one.pair]: one for one in books}
        written = {key: one for key, one in named.items() if not self._is_stored(key, one)}
        deleted = [key for key in PAIRS if key not in named and self._may_be_stored(key) and not keep(pair(key))]
        self._expected_stamp = self.medium.stamp
        self._write(written | dict.fromkeys(deleted), freshness, is_whole=True)
        self.medium.is_complete = True
        return Receipt(self.revision, len(written), len(deleted))

    def _may_be_stored(self, key: int) -> bool:
        return self.medium.value(key) is not None or key in self.unacknowledged

    def _is_stored(self, key: int, one: OrderBook) -> bool:
        record = self.medium.records.get(key)
        return record is not None and record.digest == one and key not in self.unacknowledged

    def _write(self, change: dict[int, OrderBook | None], freshness: Freshness, *, is_whole: bool) -> None:
        """Write records with their freshness, in the order of `BucketFreshness`."""
        before, is_uncertain = self.medium.freshness(), FRESHNESS in self.unacknowledged
        if change and (is_uncertain or (before.as_of is not None and (is_whole or _goes_back(before, freshness)))):
            self._put(FRESHNESS, UNKNOWN)
        for key, value in change.items():
            self._put(key, value)
        if not is_whole or is_uncertain or freshness != self.medium.freshness():
            self._put(FRESHNESS, freshness)

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
    return after.as_of is None or int(after.as_of) < int(before.as_of or 0)


class Reader:
    """A feed of a medium, and its live index."""

    def __init__(self, medium: Medium) -> None:
        self.medium = medium
        self.source = SimulatedSource(medium)
        self.feed = Feed(self.source)
        self.live = LiveIndex()
        self._shown: tuple[MarketIndex, Books] = self.live.current, {}
        self.apply(self.source.load())

    def apply(self, update: Update) -> None:
        self.feed._follower._apply(update, self.live)

    @property
    def is_healthy(self) -> bool:
        """Whether everything was read, and the feed reports no problem."""
        return self.source.is_read() and self.feed.problem is None

    def books(self) -> Books:
        index = self.live.current
        if self._shown[0] is not index:
            self._shown = index, versions(index.values())
        return self._shown[1]

    @property
    def as_of(self) -> int | None:
        return as_of(self.live.current.freshness)

    def state(self) -> object:
        follower = self.feed._follower
        owned = vars(follower._ownership)
        publications = follower.publications
        return (
            *(self.source.state(), self.live.current, self.feed.problem, owned),
            *(publications.is_blank, publications.freshness, follower.freshness),
        )


class SimulatedRelay:
    """A relay from a medium into another one, which works step by step."""

    def __init__(self, source: Medium, target: Medium) -> None:
        self.reader = Reader(source)
        self.relay = Relay(self.reader.feed, lambda: SimulatedStore(target))
        self.relay.live = self.reader.live
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
        return not self.is_comparing() and self.relay._relayed is self.relay.live.current

    def state(self) -> object:
        relay = self.relay
        store = relay._store.state() if isinstance(relay._store, SimulatedStore) else None
        relayed = relay._relayed is relay.live.current or relay._relayed
        memory = relay._seen, relay._rejected, relay._kept, relay._unread, relay._unresolved
        return relay._state, store, relayed, memory, relay._was_whole


def text_of(value: object) -> str:
    """Return a text that is equal for equal states. Times are marked: `<5>` is a version, `<as of 5>` a freshness."""
    form = _TEXTS.get(type(value))
    return str(value) if form is None else form(value)


def _text_of_set(value: Iterable[object]) -> str:
    return str(sorted(map(text_of, value)))


def _text_of_sequence(value: Iterable[object]) -> str:
    return f"({','.join(map(text_of, value))})"


_TEXTS: dict[type, Callable[[Any], str]] = {
    OrderBook: lambda one: f"{NUMBERS[one.pair]}<{one.spot}>",
    Freshness: lambda one: "unknown" if one.as_of is None else f"<as of {one.as_of}>",
    Pair: lambda one: str(NUMBERS[one]),
    MarketIndex: lambda one: text_of((*one.values(), one.freshness)),
    Record: lambda one: f"{text_of(one.value)}={text_of(one.digest)}",
    dict: lambda one: str(sorted([f"{text_of(key)}:{text_of(value)}" for key, value in one.items()])),
    set: _text_of_set,
    frozenset: _text_of_set,
    list: _text_of_sequence,
    tuple: _text_of_sequence,
}


class _Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@contextmanager
def without_waiting() -> Iterator[None]:
    """Let relays look for changes once instead of for a second, and log nothing."""
    clock = _Clock()
    logging.disable(logging.CRITICAL)
    try:
        with patch.multiple(
            relay_module, monotonic=clock.monotonic, sleep=clock.sleep, POLL_SECONDS=1.0, CHECK_SECONDS=1.0
        ):
            yield
    finally:
        logging.disable(logging.NOTSET)
