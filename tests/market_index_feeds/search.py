"""Searches all short histories of faults, with the real feed and the real relay, for a state that breaks a promise.

    publisher ──▶ medium A ──▶ feed A ──▶ relay ──▶ medium B ──▶ feed B

A history is a list of events; `World` has a method for each. The search is breadth first, so the first history that
breaks a promise is a shortest one. Equal states are expanded once. `make search` prints each violation as a test.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final, TypeAlias

from market_index import OrderBook
from market_index_feeds import StoreError
from tests.market_index_feeds.simulated import (
    GARBAGE,
    JUNK,
    NUMBERS,
    PAIRS,
    UNNAMED,
    Books,
    Key,
    Medium,
    Reader,
    Record,
    SimulatedRelay,
    SimulatedStore,
    as_of,
    book,
    pair,
    stated,
    text_of,
    versions,
    without_waiting,
)

History: TypeAlias = tuple[str, ...]

MAX_ROUNDS: Final = 8
"""How many rounds of deliveries may pass until nothing changes."""

START: Final[History] = ("replace 01", "settle")
"""Both pairs are published, relayed and read. The search also starts without any content."""

_FAULTS: Final = "garbage {} 0", "foreign {} 0", "repair {} 0", "wipe {}", "lose_tail {}", "land {}"
_DELIVERIES: Final = "read {}", "reconnect {}", "twice {}", "one {} first", "one {} last"

EVENTS: Final[History] = (
    *("publish 0", "publish 1", "retract 0", "retract 1", "heartbeat", "replace 0", "replace 01"),
    *("crash_publish 0", "crash_replace 0 1", "crash_replace 01 2"),
    *("late_publish 0 0", "late_publish 0 1"),
    *(form.format(name) for form in (*_FAULTS, *_DELIVERIES) for name in "AB"),
    *("junk A", "unnamed", "restart", "step", "delay 0", "delay 1", "delay 2"),
)
"""A fault of pair 0 stands for the same fault of pair 1."""

PROMISES: Final = {
    "retracted": "a healthy reader shows no pair that its medium has retracted",
    "as_of": "no reader states an as_of that is newer than a book",
    "published": "what was published is stored, and each reader that has read all shows it",
    "equal": "when all is delivered, complete and valid, both readers show what was published",
    "healthy": "a healthy reader of a valid medium shows what a new reader shows",
    "kept": "no pair is removed that its medium has neither retracted, nor lacks while it is complete and valid",
    "blank": "a reader of a blank medium is not healthy",
    "quiet": "without further events, the relay ends its work",
}


class World:
    """A publisher, a relay and a reader. Each public method is an event; it returns False if it is not possible."""

    def __init__(self) -> None:
        self.time = 0
        self.a, self.b = Medium(), Medium()
        self.store = SimulatedStore(self.a)
        # What the publisher has published: now, and at each time that it stated.
        self.published: Books = {}
        self.published_at: dict[int, Books] = {}
        # The pairs that the last call stored, according to the store, but that A does not contain.
        self.unwritten: set[int] = set()
        # The pairs that are removed, or retracted by the relay, for no reason.
        self.lost: dict[str, set[int]] = {"A": set(), "B": set(), "relay": set()}
        # The pairs that the feed of the relay had reason to remove.
        self.gone: set[int] = set()
        # Whether B lost a record since the relay compared it.
        self.is_b_behind = False
        self.is_quiet = False
        self.relay = SimulatedRelay(self.a, self.b)
        self.reader = Reader(self.b)

    def run(self, event: str) -> bool:
        name, *arguments = event.split()
        self.is_quiet = False
        shown = [(one, self.reader_of(one), self.reader_of(one).books()) for one in "AB"]
        is_possible = getattr(self, name)(*arguments) is not False
        for one, reader, books in shown:
            now = self.reader_of(one).books()
            if now is not books:
                if reader is self.reader_of(one):
                    self._note_lost(one, books.keys() - now.keys(), reader)
                self.lost[one] -= now.keys()
                self.gone -= now.keys() if one == "A" else set()
        return is_possible

    def _note_lost(self, name: str, removed: Collection[int], reader: Reader) -> None:
        """Record the removed pairs, except those that a reader has reason to remove."""
        if not removed:
            return
        medium, delivered = reader.medium, reader.source.delivered
        is_all = medium.is_complete and not medium.has_invalid()
        reasons = {key for key in removed if (delivered[key].value is None if key in delivered else is_all)}
        if name == "A":
            self.gone |= reasons
        self.lost[name] = self.lost[name].union(removed) - reasons - (self.gone if name == "relay" else set())

    def medium(self, name: str) -> Medium:
        return self.a if name == "A" else self.b

    def reader_of(self, name: str) -> Reader:
        return self.relay.reader if name == "A" else self.reader

    # The publisher. It states a new time with each publication.

    def publish(self, number: str) -> None:
        self._publish([int(number)])

    def retract(self, number: str) -> bool:
        if int(number) not in self.published:
            return False
        self._publish(retract=[int(number)])
        return True

    def heartbeat(self) -> None:
        self._publish()

    def replace(self, numbers: str) -> None:
        """Replace the whole content; books that are published already stay the same."""
        self._publish(map(int, numbers), is_whole=True)

    def crash_publish(self, number: str) -> None:
        """Publish, and crash before the freshness is written."""
        self._fail_after("1")
        self.publish(number)
        self.store = SimulatedStore(self.a)

    def crash_replace(self, numbers: str, written: str) -> None:
        """Replace, and crash after some records."""
        self._fail_after(written)
        self.replace(numbers)
        self.store = SimulatedStore(self.a)

    def late_publish(self, number: str, written: str) -> None:
        """Publish, but the book (0) or the freshness (1) is not acknowledged, and may be stored later."""
        self._fail_after(written, is_delaying=True)
        self.publish(number)

    def _fail_after(self, written: str, *, is_delaying: bool = False) -> None:
        self.a.budget, self.a.is_delaying = int(written), is_delaying

    def _publish(self, numbers: Iterable[int] = (), retract: Collection[int] = (), *, is_whole: bool = False) -> None:
        self.time += 1
        a, stored = self.a, self.published if is_whole else {}
        books = [book(number, stored.get(number, self.time)) for number in numbers]
        records = dict(a.records)
        a.before = records, a.is_complete, dict(self.published)
        self.unwritten = set()
        try:
            if is_whole:
                self.store.replace(books, freshness=stated(self.time))
                self.published = versions(books)
            else:
                self.store.update(books, map(pair, retract), freshness=stated(self.time))
            self.unwritten = versions(books).keys() - a.books().keys()
            self.published = {key: one for key, one in self.published.items() if key not in retract}
        except StoreError:
            pass  # the publisher does not know what was written
        a.budget = None
        self._note_published(records)
        self.published_at[self.time] = dict(self.published)
        if a.in_flight is not None and isinstance(one := a.in_flight[1].value, OrderBook):
            # The book of this time, which may be stored later.
            self.published_at[self.time].setdefault(NUMBERS[one.pair], int(str(one.spot)))

    def _note_published(self, before: dict[Key, Record]) -> None:
        """Record what a store has written into A since then."""
        for key, record in self.a.records.items():
            if isinstance(key, int) and before.get(key) is not record:
                self.published.pop(key, None)
                if isinstance(record.value, OrderBook):
                    self.published |= versions([record.value])

    # The media.

    def land(self, name: str) -> bool:
        """Store the record in flight, unless the one that it should overwrite was overwritten."""
        medium, before = self.medium(name), dict(self.a.records)
        if medium.in_flight is None:
            return False
        medium.land()
        self._note_published(before)
        return True

    def lose_tail(self, name: str) -> bool:
        """Roll back what the last call has written."""
        medium = self.medium(name)
        if medium.before is None or medium.before[0] == medium.records:
            return False
        medium.records, medium.is_complete, published = medium.before
        self._recreate(name)
        self.published = published if name == "A" else self.published
        return True

    def wipe(self, name: str) -> bool:
        """Delete the medium, and create it again without content."""
        medium = self.medium(name)
        if not medium.records:
            return False
        medium.records, medium.is_complete = {}, False
        self._recreate(name)
        return True

    def _recreate(self, name: str) -> None:
        medium = self.medium(name)
        medium.before = medium.in_flight = None
        medium.generation += 1
        medium.stamp += 1
        self.is_b_behind = self.is_b_behind or name == "B"

    def garbage(self, name: str, key: str) -> None:
        """Overwrite a record by garbage without a digest."""
        self.medium(name).put(int(key), Record(GARBAGE))

    def foreign(self, name: str, key: str) -> bool:
        """Overwrite a record by garbage with the digest of the right book."""
        medium, number = self.medium(name), int(key)
        if number not in medium.books():
            return False
        medium.put(number, Record(GARBAGE, digest=medium.records[number].digest))
        return True

    def junk(self, name: str) -> None:
        """Store garbage under a key that names no pair, or delete it."""
        self._toggle(self.medium(name), JUNK)

    def unnamed(self) -> None:
        """Store an invalid record that may be of any pair, or delete it."""
        self._toggle(self.a, UNNAMED)

    def _toggle(self, medium: Medium, key: str) -> None:
        medium.put(key, Record(GARBAGE if medium.value(key) is None else None))

    def repair(self, name: str, key: str) -> bool:
        """Store again what an invalid record has overwritten."""
        medium, number = self.medium(name), int(key)
        if medium.value(number) != GARBAGE:
            return False
        right = book(number, self.published[number]) if number in self.published else None
        medium.put(number, Record(right, digest=right))
        return True

    # The deliveries.

    def read(self, name: str) -> bool:
        reader = self.reader_of(name)
        if reader.source.is_read():
            return False
        reader.apply(
            reader.source.load() if reader.source.must_load else reader.source.changes(reader.source.pending())
        )
        return True

    def one(self, name: str, which: str) -> bool:
        """Deliver the first or the last of the records that wait."""
        reader = self.reader_of(name)
        keys = reader.source.pending()
        if reader.source.must_load or len(keys) < 2:
            return False
        reader.apply(reader.source.changes([keys[0 if which == "first" else -1]]))
        return True

    def twice(self, name: str) -> None:
        """Deliver the last update again."""
        reader = self.reader_of(name)
        assert reader.source.last is not None
        reader.apply(reader.source.last)

    def reconnect(self, name: str) -> None:
        """Read the whole content again."""
        reader = self.reader_of(name)
        reader.apply(reader.source.load())

    def step(self) -> None:
        """Let the relay work until its next check."""
        compares = self.relay.is_comparing()
        with self._call_on_b():
            self.relay.step()
        self.is_b_behind = self.is_b_behind and not (compares and not self.relay.is_comparing())

    def delay(self, written: str) -> None:
        """Let the next call of the relay fail after some records; the next one may be stored later."""
        self.b.budget, self.b.is_delaying = int(written), True

    def restart(self) -> None:
        """Kill the relay, and start another one."""
        with self._call_on_b():
            self.gone.clear()
            self.relay = SimulatedRelay(self.a, self.b)
        self.is_b_behind = self.is_b_behind and self.relay.is_comparing()

    @contextmanager
    def _call_on_b(self) -> Iterator[None]:
        b, stamp, stored = self.b, self.b.stamp, self.b.books().keys()
        before: tuple[dict[Key, Record], bool, Books] = dict(b.records), b.is_complete, {}
        yield
        if b.stamp != stamp:
            b.before = before
        tombstones = {key for key in PAIRS if key in b.tombstones()}
        self._note_lost("relay", stored & tombstones, self.relay.reader)
        self.lost["relay"] &= tombstones

    def settle(self) -> None:
        """Deliver everything until nothing changes."""
        for _ in range(MAX_ROUNDS):
            stamp, is_interrupted = self.b.stamp, self.b.budget is not None
            self.run("read A")
            self.step()
            self.run("read B")
            self.b.budget = None
            if stamp == self.b.stamp and self.relay.is_quiet() and not is_interrupted:
                self.is_quiet = True
                return

    # The promises.

    def violations(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each promise that is broken, and how."""
        for name in "AB":
            yield from self._violations_of(name, self.medium(name), self.reader_of(name))
        if self.unwritten:
            yield "published", f"the store has published {self.unwritten}, but A does not contain it"
        for name, pairs in self.lost.items():
            if pairs:
                yield "kept", f"the {'relay' if name == 'relay' else f'reader of {name}'} has removed {pairs}"
        if self.is_quiet:
            yield from self._violations_of_quiet()

    def _violations_of(self, name: str, medium: Medium, reader: Reader) -> Iterator[tuple[str, str]]:
        live, time = reader.books(), reader.as_of
        if reader.is_healthy and (shown := live.keys() & medium.tombstones()):
            yield "retracted", f"the reader of {name} shows {shown}, which {name} has retracted"
        if reader.is_healthy and not medium.records:
            yield "blank", f"the reader of {name} is healthy, but {name} is blank"
        if time is not None and not (name == "B" and self.is_b_behind):
            then = self.published_at[time]
            if old := {number for number, one in live.items() if one < then.get(number, time)}:
                yield "as_of", f"the reader of {name} shows {live} as of {time}, but {old} are older"
        if reader.source.is_read() and (missing := medium.books().items() - live.items()):
            yield "published", f"the reader of {name} does not show {missing} of {name}"
        if reader.is_healthy and not medium.has_invalid() and (live, time) != (new := shown_by_new_reader(medium)):
            yield "healthy", f"the reader of {name} shows {live} as of {time}, a new one {new[0]} as of {new[1]}"

    def _violations_of_quiet(self) -> Iterator[tuple[str, str]]:
        a, b = self.a, self.b
        for who, books in (("the", self.reader.books()), ("a new", shown_by_new_reader(b)[0])):
            if missing := a.books().items() - books.items():
                yield "published", f"{who} reader of B does not show {missing} of A"
        if a.is_complete and b.is_complete and not a.has_invalid():
            expected = self.published, as_of(a.freshness())
            for name in "AB":
                reader = self.reader_of(name)
                shown = reader.books(), reader.as_of
                if shown != expected or (self.published and not reader.is_healthy):
                    yield "equal", f"the reader of {name} shows {shown}, published is {expected}: {reader.feed.problem}"

    def state(self) -> str:
        """Return a text that is equal for states with equal futures. Of times, only their order matters."""
        text = text_of(
            (
                *map(_state_of_medium, (self.a, self.b)),
                *(
                    self.store.state(),
                    _times_of(self.published),
                    self.unwritten,
                    self.lost,
                    self.gone,
                    self.is_b_behind,
                ),
                *(self.relay.reader.state(), self.relay.state(), self.reader.state()),
            )
        )
        text += text_of([_times_of(self.published_at[time]) for time in sorted(set(map(int, _STATED(text))))])
        ranks = {time: str(rank) for rank, time in enumerate(sorted(set(_TIME.findall(text)), key=int))}
        return _TIME.sub(lambda found: ranks[found[1]], text)


_STATED: Final = re.compile(r"<as of (\d+)>").findall
_TIME: Final = re.compile(r"(\d+)(?=>)")


def _state_of_medium(medium: Medium) -> object:
    in_flight: object = None
    if medium.in_flight is not None:
        key, record, expected = medium.in_flight
        in_flight = key, record, medium.records.get(key) is expected
    before = medium.before and (*medium.before[:2], _times_of(medium.before[2]))
    return medium.records, medium.is_complete, before, in_flight, medium.budget, medium.is_delaying


def _times_of(books: Books) -> list[OrderBook]:
    return [book(*one) for one in sorted(books.items())]


_SHOWN: Final[dict[str, tuple[Books, int | None]]] = {}


def shown_by_new_reader(medium: Medium) -> tuple[Books, int | None]:
    """Return the books and the as_of that a reader shows that starts now."""
    text = text_of((medium.is_complete, medium.records))
    if text not in _SHOWN:
        new = Reader(medium)
        _SHOWN[text] = new.books(), new.as_of
    return _SHOWN[text]


class Violation(AssertionError):
    """A history that breaks a promise."""


def reached(history: Iterable[str]) -> World:
    """Return the state after a history."""
    world = World()
    for event in history:
        world.run(event)
    return world


@without_waiting()
def run(*history: str, promise: str | None = None) -> None:
    """Repeat a history. Raises `Violation` if a state of it breaks a promise: any one, or a certain one."""
    if promise not in {None, *PROMISES}:
        raise KeyError(promise)
    for length in range(len(history) + 1):
        for name, how in reached(history[:length]).violations():
            if promise in {None, name}:
                raise Violation(f"{name}: {how}, after {history[:length]}")


class Search:
    """All histories of a number of events. After each event everything is delivered, or nothing."""

    def __init__(self) -> None:
        self.transitions = 0
        # The shortest history of each violation, by what it breaks and its events.
        self.violations: dict[tuple[str, frozenset[str]], tuple[History, str]] = {}
        self._checked: set[tuple[int, bool]] = set()
        self._expanded: set[int] = set()

    @property
    def states(self) -> int:
        return len(self._expanded)

    @without_waiting()
    def run(self, depth: int, starts: Iterable[History] = ((), START)) -> None:
        frontier = [history for history in starts if self._is_new(history, reached(history))]
        for _ in range(depth):
            frontier = [longer for history in frontier for longer in self._expand(history)]

    def of(self, promise: str) -> list[str]:
        """Return the shortest histories that break a promise, as tests."""
        return [as_test(promise, *found) for (name, _), found in self.violations.items() if name.startswith(promise)]

    def _expand(self, history: History) -> Iterator[History]:
        """Yield the histories that are longer by one event, and lead to new states."""
        world = None
        for event in EVENTS:
            # An event that is not possible changes nothing.
            world = world or reached(history)
            if world.run(event):
                longer = *history, event
                if self._is_new(longer, world):
                    yield longer
                    world.settle()
                    if self._is_new(settled := (*longer, "settle"), world):
                        yield settled
                world = None

    def _is_new(self, history: History, world: World) -> bool:
        """Check a state. Return whether it was not expanded before."""
        self.transitions += 1
        state = hash(world.state())
        if (state, world.is_quiet) not in self._checked:
            self._checked.add((state, world.is_quiet))
            for promise, how in world.violations():
                self._add(promise, history, how)
            if history[-1:] == ("settle",) and not world.is_quiet:
                self._add("quiet", history, f"not quiet after {MAX_ROUNDS} rounds")
        is_new = state not in self._expanded
        self._expanded.add(state)
        return is_new

    def _add(self, promise: str, history: History, how: str) -> None:
        """Add a violation, unless some of its events have broken the promise in the same way before."""
        way = f"{promise}: {re.split('[({]', how)[0]}"
        events = frozenset(history) - {*START, "read A", "read B", "step"}
        if not any(way == other and known <= events for other, known in self.violations):
            for known in [key for key in self.violations if key[0] == way and key[1] > events]:
                del self.violations[known]
            self.violations[way, events] = history, how


def as_test(promise: str, history: History, how: str) -> str:
    """Return a violation as a test to paste."""
    words = re.sub(r"\W+", "_", "_".join(event for event in history if event not in START)).lower() or "start"
    arguments = ", ".join([*(f'"{event}"' for event in history), f'promise="{promise}"'])
    return f"def test_{words}():\n    # {how}\n    run({arguments})\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.market_index_feeds.search", description=__doc__)
    parser.add_argument("--depth", type=int, default=2, help="number of events, 2 by default")
    depth = parser.parse_args().depth
    search, began = Search(), monotonic()
    search.run(depth)
    for promise in PROMISES:
        for test in search.of(promise):
            print(test)
    seconds = monotonic() - began
    print(f"{search.states} states, {search.transitions} transitions to depth {depth} in {seconds:.1f} s")
    sys.exit(bool(search.violations))


if __name__ == "__main__":
    main()
