"""Searches all short histories of faults, with the real feed and the real relay, for a state that breaks a promise.

    publisher ──▶ medium A ──▶ feed A ──▶ relay ──▶ medium B ──▶ feed B

A history is a list of events; `World` has a method for each. The search is breadth first, so the first history that
breaks a promise is a shortest one. Equal states are expanded once. `make search` prints each violation as a test.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from time import monotonic
from typing import Final, TypeAlias

from market_index import OrderBook
from market_index_feeds import StoreError
from tests.market_index_feeds.simulated import (
    GARBAGE,
    UNREADABLE,
    Books,
    Medium,
    Reader,
    Records,
    SimulatedRelay,
    SimulatedStore,
    Statement,
    as_of,
    book,
    number_of,
    pair,
    publish_with_invalid_line,
    stated,
    text_of,
    without_waiting,
)

History: TypeAlias = tuple[str, ...]

MAX_ROUNDS: Final = 8
"""How many rounds of deliveries may pass until nothing changes."""

COMPLETE: Final[History] = ("replace 01", "settle")
INCOMPLETE: Final[History] = ("publish 0", "publish 1", "settle")
"""The starts of the search: both pairs are published, relayed and read, and A is marked as complete or not."""

EVENTS: Final[History] = (
    *("publish 0", "retract 0", "retract 1", "heartbeat", "replace 0", "replace 01", "replace_some 0"),
    *("late_publish 0", "late_publish 1", "crash_replace 0 1", "crash_replace 01 2"),
    *("repair", "unreadable", "restart", "step", "delay 0", "delay 1"),
    *(f"{event} {medium}" for event in ("garbage", "wipe", "lose_tail", "land") for medium in "AB"),
    *("read A", "read B", "last A", "twice A", "reconnect A"),
)
"""Only pair 0 has faults: those of pair 1 would lead to the same states."""

PROMISES: Final = {
    "retracted": "a healthy reader shows no pair that its medium has retracted, and in the end none that A has",
    "as_of": "no reader states an as_of that is newer than a book",
    "published": "each reader that has read all shows all books of its medium, and in the end those of A",
    "equal": "when A is complete and valid, in the end both readers show what was published, and are healthy",
    "healthy": "a healthy reader shows what a new reader shows, and no pair that its incomplete medium lacks",
    "kept": "no pair is removed that was neither retracted, nor missing while all pairs were named",
    "mark": "no medium is marked as complete while it lacks what was wiped, and in the end B is if A names all pairs",
    "blank": "a reader of a blank medium is not healthy",
    "quiet": "without further events, the relay ends its work",
}


class World:
    """A publisher, a relay and a reader. Each public method is an event; it returns False if it is not possible."""

    def __init__(self) -> None:
        self.time = 0
        self.a, self.b = Medium(), Medium()
        self.store = SimulatedStore(self.a)
        # What the publisher has published at each time that it stated.
        self.published_at: dict[int, Books] = {}
        # The pairs that each reader, and B, must keep; and those that the feed of the relay had reason to remove.
        self.due: dict[str, set[int]] = {"A": set(), "B": set(), "relay": set()}
        self.gone: set[int] = set()
        # The pairs that are missing since a medium was wiped, and those that `publish --replace` has wrongly retracted.
        self.wiped: dict[str, set[int]] = {"A": set(), "B": set()}
        self.lost: set[int] = set()
        # Whether B lost records since the relay compared it.
        self.is_b_behind = False
        self.is_quiet = False
        self.relay = SimulatedRelay(self.a, self.b)
        self.reader = Reader(self.b)

    def run(self, event: str) -> bool:
        name, *arguments = event.split()
        self.is_quiet = False
        is_possible = getattr(self, name)(*arguments) is not False
        self._note_due()
        return is_possible

    def _note_due(self) -> None:
        due, source, stored = self.due, self.relay.reader.source, self.b.records
        for name, reader in self._readers():
            due[name] = due[name].union(reader.shown()[0]) - reader.source.removable
        self.gone = (self.gone | source.removable).difference(source.delivered_books)
        due["relay"] = due["relay"].union(stored.books).intersection(stored) - self.gone
        for name, wiped in self.wiped.items():
            if wiped:
                wiped.difference_update(self._medium(name).records, self.gone if name == "B" else ())

    def _readers(self) -> tuple[tuple[str, Reader], ...]:
        return ("A", self.relay.reader), ("B", self.reader)

    def _medium(self, name: str) -> Medium:
        return self.a if name == "A" else self.b

    def _reader(self, name: str) -> Reader:
        return self.relay.reader if name == "A" else self.reader

    # The publisher. It states a new time with each publication.

    def publish(self, number: str) -> None:
        self._publish(lambda: self.store.update([book(int(number), self.time)], freshness=stated(self.time)))

    def retract(self, number: str) -> bool:
        if int(number) not in self.a.published:
            return False
        self._publish(lambda: self.store.update((), [pair(int(number))], freshness=stated(self.time)))
        return True

    def heartbeat(self) -> None:
        self._publish(lambda: self.store.update((), freshness=stated(self.time)))

    def replace(self, numbers: str) -> None:
        """Replace the whole content. Books that are published already stay the same."""
        is_written = self._publish(lambda: self.store.replace(self._books(numbers), freshness=stated(self.time)))
        if is_written or (self.a.in_flight and self.a.in_flight[1] == Statement(stated(self.time), is_complete=True)):
            self.wiped["A"] = set()

    def replace_some(self, numbers: str) -> None:
        """Replace the whole content by that of a file with an invalid line."""
        stored = self.a.records.books.keys()
        self._publish(lambda: publish_with_invalid_line(self.store, self._books(numbers), stated(self.time)))
        self.lost |= stored & self.a.records.retracted

    def crash_replace(self, numbers: str, written: str) -> None:
        """Replace, and crash after some records; the next one may be stored later."""
        self.a.budget = int(written)
        self.replace(numbers)
        self.store = SimulatedStore(self.a)

    def late_publish(self, written: str) -> None:
        """Publish, but the book (0) or the freshness (1) is not acknowledged, and may be stored later."""
        self.a.budget = int(written)
        self.publish("0")

    def _books(self, numbers: str) -> list[OrderBook]:
        return [book(number, self.a.published.get(number, self.time)) for number in map(int, numbers)]

    def _publish(self, write: Callable[[], object]) -> bool:
        """Return whether the store has written all."""
        self.time += 1
        is_written = False
        with suppress(StoreError):
            write()
            is_written = True
        self.a.budget = None
        then = self.published_at[self.time] = dict(self.a.published)
        if self.a.in_flight is not None and isinstance(late := self.a.in_flight[1], OrderBook):
            # The book of this time, which may be stored later.
            then.setdefault(number_of(late.pair), int(str(late.spot)))
        return is_written

    # The media.

    def land(self, name: str) -> bool:
        """Store the record in flight, unless the one that it should overwrite was overwritten."""
        medium, stamp = self._medium(name), self._medium(name).stamp
        medium.land()
        return medium.stamp != stamp

    def lose_tail(self, name: str) -> bool:
        """Roll back what the last change of a store has written."""
        medium = self._medium(name)
        if medium.before is None or medium.before[0] == medium.records:
            return False
        self._recreate(name, *medium.before)
        return True

    def wipe(self, name: str) -> bool:
        """Delete the medium, and create it again without content."""
        medium = self._medium(name)
        if not medium.records:
            return False
        self.wiped[name] |= medium.published.keys()
        self._recreate(name, Records(), {})
        return True

    def _recreate(self, name: str, records: Records, published: Books) -> None:
        self._medium(name).recreate(records, published)
        if name == "B":
            self.due["relay"], self.is_b_behind = set(), True

    def garbage(self, name: str) -> None:
        """Overwrite the record of pair 0 by garbage."""
        self._medium(name).put(0, GARBAGE)

    def repair(self) -> bool:
        """Store again in A what garbage has overwritten."""
        if 0 not in self.a.records or self.a.records[0].value != GARBAGE:
            return False
        self.a.put(0, book(0, self.a.published[0]) if 0 in self.a.published else None)
        return True

    def unreadable(self) -> None:
        """Store an invalid record in A that may be of any pair, or delete it."""
        is_stored = UNREADABLE in self.a.records and self.a.records[UNREADABLE].value is not None
        self.a.put(UNREADABLE, None if is_stored else GARBAGE)

    # The deliveries.

    def read(self, name: str) -> bool:
        source = self._reader(name).source
        if source.is_read():
            return False
        self._reader(name).apply(source.load() if source.must_load else source.changes(source.pending()))
        return True

    def last(self, name: str) -> bool:
        """Deliver the last of the records that wait, before the others."""
        source = self._reader(name).source
        keys = source.pending()
        if source.must_load or len(keys) < 2:
            return False
        self._reader(name).apply(source.changes(keys[-1:]))
        return True

    def twice(self, name: str) -> None:
        """Deliver the last update again."""
        self._reader(name).apply(self._reader(name).source.last)

    def reconnect(self, name: str) -> None:
        """Read the whole content again."""
        self._reader(name).apply(self._reader(name).source.load())

    def step(self) -> None:
        """Let the relay work until its next check."""
        compares = self.relay.is_comparing()
        self.relay.step()
        self.is_b_behind &= not compares or self.relay.is_comparing()

    def delay(self, written: str) -> None:
        """Let the next call of the relay fail after some records; the next one may be stored later."""
        self.b.budget = int(written)

    def restart(self) -> None:
        """Kill the relay, and start another one."""
        self.due["A"], self.gone = set(), set()
        self.relay = SimulatedRelay(self.a, self.b)
        self.is_b_behind &= self.relay.is_comparing()

    def settle(self) -> None:
        """Deliver everything until nothing changes."""
        for _ in range(MAX_ROUNDS):
            stamp, is_interrupted = self.b.stamp, self.b.budget is not None
            for event in ("read A", "step", "read B"):
                self.run(event)
            self.b.budget = None
            if stamp == self.b.stamp and self.relay.is_quiet() and not is_interrupted:
                self.is_quiet = True
                return

    # The promises.

    def violations(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each promise that is broken, and how."""
        for name, reader in self._readers():
            yield from self._violations_of(name, self._medium(name).records, reader)
        if lost := self.due["relay"] & self.b.records.retracted:
            yield "kept", f"the relay has retracted {lost} in B"
        if self.lost:
            yield "kept", f"publish --replace has retracted {self.lost} in spite of an invalid line"
        if self.is_quiet:
            yield from self._violations_of_quiet(self.a.records)

    def _violations_of(self, name: str, records: Records, reader: Reader) -> Iterator[tuple[str, str]]:
        if records.statement.is_complete and self.wiped[name]:
            yield "mark", f"{name} is marked as complete, but lacks {self.wiped[name]}"
        live, time = reader.shown()
        new = shown_by_new_reader(records)
        if reader.is_healthy:
            if not records:
                yield "blank", f"the reader of {name} is healthy, but {name} is blank"
            if shown := live.keys() & records.retracted:
                yield "retracted", f"the reader of {name} shows {shown}, which {name} has retracted"
            if records.is_valid and (live, time) != new:
                yield "healthy", f"the reader of {name} shows {live} as of {time}, a new one {new[0]} as of {new[1]}"
            if not records.statement.is_complete and (absent := live.keys() - records.keys()):
                yield "healthy", f"the reader of {name} is healthy, but {name} lacks {absent}"
        for who, (books, then) in (("the", (live, time)), ("a new", new)):
            if then is not None and not (name == "B" and self.is_b_behind):
                old = {key for key, one in books.items() if one < self.published_at[then].get(key, then)}
                if old:
                    yield "as_of", f"{who} reader of {name} shows {books} as of {then}, but {old} are older"
        if reader.source.is_read() and (missing := records.books.items() - live.items()):
            yield "published", f"the reader of {name} does not show {missing} of {name}"
        if lost := self.due[name] - live.keys():
            yield "kept", f"the reader of {name} has removed {lost}"

    def _violations_of_quiet(self, a: Records) -> Iterator[tuple[str, str]]:
        new = shown_by_new_reader(self.b.records)
        shown = {"the reader of A": self.relay.reader.shown(), "the reader of B": self.reader.shown(), "a new one": new}
        expected = self.a.published, as_of(a.statement.freshness)
        for who, (books, time) in shown.items():
            if missing := a.books.items() - books.items():
                yield "published", f"{who} does not show {missing} of A"
            if self.reader.is_healthy and (gone := a.retracted & books.keys()):
                yield "retracted", f"{who} shows {gone}, which A has retracted"
            if a.names_all_pairs and (books, time) != expected:
                yield "equal", f"{who} shows {books} as of {time}, published is {expected}"
        if a.names_all_pairs and not self.b.records.statement.is_complete:
            yield "mark", "B is not marked as complete"
        for name, reader in self._readers():
            if a.names_all_pairs and not reader.is_healthy:
                yield "equal", f"the reader of {name} is not healthy: {reader.feed.problem}"

    def state(self) -> str:
        """Return a text that is equal for states with equal futures. Of times, only their order matters."""
        text = text_of(
            (
                *(_state_of(self.a), _times_of(self.a.published), _state_of(self.b)),
                *(self.store.state(), *self.due.values(), *self.wiped.values(), self.lost, self.gone, self.is_b_behind),
                *(self.relay.reader.state(), self.relay.state(), self.reader.state()),
            )
        )
        text += text_of([_times_of(self.published_at[time]) for time in sorted(set(map(int, _STATED(text))))])
        ranks = {time: str(rank) for rank, time in enumerate(sorted(set(_TIME.findall(text)), key=int))}
        return _TIME.sub(lambda found: ranks[found[1]], text)


_STATED: Final = re.compile(r"<as of (\d+)>").findall
_TIME: Final = re.compile(r"(\d+)(?=>)")


def _state_of(medium: Medium) -> object:
    in_flight: object = None
    if medium.in_flight is not None:
        key, value, expected = medium.in_flight
        in_flight = key, value, medium.records.get(key) is expected
    before = medium.before and (medium.before[0], _times_of(medium.before[1]))
    return medium.records, before, in_flight, medium.budget


def _times_of(books: Books) -> list[OrderBook]:
    return [book(*one) for one in sorted(books.items())]


_SHOWN: Final[dict[str, tuple[Books, int | None]]] = {}


def shown_by_new_reader(records: Records) -> tuple[Books, int | None]:
    """Return the books and the as_of that a reader shows that starts now."""
    text = text_of(records)
    if text not in _SHOWN:
        _SHOWN[text] = Reader(Medium(records)).shown()
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
    def run(self, depth: int, starts: Iterable[History] = (COMPLETE, INCOMPLETE)) -> None:
        frontier = [history for history in starts if self._is_new(history, reached(history))]
        for _ in range(depth):
            frontier = [longer for history in frontier for longer in self._expand(history)]

    def tests(self) -> list[str]:
        """Return the shortest history of each violation, as a test to paste."""
        return [as_test(way.partition(":")[0], *found) for (way, _), found in self.violations.items()]

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
                    world.run("settle")
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
        events = frozenset(history) - {*COMPLETE, "read A", "read B", "step"}
        if not any(way == other and known <= events for other, known in self.violations):
            self.violations[way, events] = history, how


def as_test(promise: str, history: History, how: str) -> str:
    """Return a violation as a test to paste."""
    words = re.sub(r"\W+", "_", "_".join(event for event in history if event not in COMPLETE)).lower() or "start"
    arguments = ", ".join([*(f'"{event}"' for event in history), f'promise="{promise}"'])
    return f"def test_{words}():\n    # {how}\n    run({arguments})\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.market_index_feeds.search", description=__doc__)
    parser.add_argument("--depth", type=int, default=2, help="number of events, 2 by default")
    depth = parser.parse_args().depth
    search, began = Search(), monotonic()
    search.run(depth)
    print(*search.tests(), sep="\n")
    seconds = monotonic() - began
    print(f"{search.states} states, {search.transitions} transitions to depth {depth} in {seconds:.1f} s")
    sys.exit(bool(search.violations))


if __name__ == "__main__":
    main()
