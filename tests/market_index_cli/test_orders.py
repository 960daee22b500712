"""All commands with events of orders."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final

import pytest

from market_index import ADA, wire
from market_index_feeds import open_feed, open_store
from tests.command import COMMAND, invoke, running, untimed
from tests.market_index_feeds.made_up import book, pair, spots
from tests.market_index_feeds.orders.lines import RESET, block, place, remove, rollback, untrack
from tests.service import Service
from tests.waiting import DEADLINE_SECONDS, eventually

EVENTS: Final = (
    RESET + place("a") + place("b", 2) + block("slot 1") + remove("b") + untrack(2) + block("slot 2")
)  # fmt: skip


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "events.ndjson"
    path.write_bytes(EVENTS)
    return path


def append(path: Path, content: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(content)


class TestPublish:
    """`market-index publish`."""

    def test_the_blocks_of_a_file_are_published_in_one_change(self, events: Path, store: Path):
        append(events, rollback("slot 1") + place("c", price="0") + block("3"))
        with open_store(store) as before:
            before.publish(book(9))
        done = invoke("publish", store, f"orders:{events}")
        assert (done.returncode, done.stdout) == (
            0,
            f"{store}: 2 order books published, 1 pair retracted, revision 2\n",
        )
        assert "line 9 rejected: order 'c' has no liquidity" in done.stderr
        index = open_feed(store).read()
        assert (set(spots(index)), index.as_of) == ({1, 2}, "3")

    @pytest.mark.parametrize("arguments", [[], ["--replace"]])
    def test_a_new_state_retracts_what_it_does_not_name(self, events: Path, store: Path, arguments: list[str]):
        invoke("publish", store, f"orders:{events}")
        events.write_bytes(RESET + place("c", 3) + block("slot 500"))
        assert invoke("publish", store, f"orders:{events}", *arguments).returncode == 0
        index = open_feed(store).read()
        assert (set(spots(index)), index.as_of) == ({3}, "slot 500")
        events.write_bytes(RESET + block("slot 900"))
        assert invoke("publish", store, f"orders:{events}", *arguments).returncode == 0
        index = open_feed(store).read()
        assert (set(spots(index)), index.as_of) == (set(), "slot 900")

    def test_replace_makes_the_last_state_the_whole_of_the_store(self, events: Path, store: Path):
        append(events, b"nonsense\n")
        with open_store(store) as before:
            before.publish(book(9))
        done = invoke("publish", store, f"orders:{events}", "--replace")
        assert (done.returncode, done.stdout) == (
            5,
            f"{store}: 1 order book, of which 1 are new, 1 pair retracted, revision 2\n",
        )
        assert f"{events}: 1 line rejected\n" in done.stderr
        assert f"{events}: its state is unknown since line 8: must be JSON" in done.stderr
        index = open_feed(store).read()
        assert (set(spots(index)), index.as_of) == ({1}, "slot 2")

    def test_events_after_the_last_block_are_not_published(self, events: Path, store: Path):
        append(events, place("c"))
        done = invoke("publish", store, f"orders:{events}")
        assert done.returncode == 5
        assert f"{events}: ended while 1 event waited for a block" in done.stderr

    def test_several_changes_of_a_pair_are_counted_with_their_pairs(self, store: Path, tmp_path: Path):
        def as_of() -> str | None:
            return open_feed(store).read().as_of

        state = RESET + place("a", 1) + place("b", 2) + block("slot 1")
        events = tmp_path / "state.ndjson"
        events.write_bytes(state)
        invoke("publish", store, f"orders:{events}")
        with Popen([COMMAND, "publish", store, "orders:-"], stdin=PIPE, stdout=PIPE) as process:
            assert process.stdin
            assert process.stdout
            # The first change writes only the book of pair 1, because that of pair 2 is stored already.
            process.stdin.write(state)
            for number in range(2, 4):
                process.stdin.write(place("a", amount=number) + block(f"slot {number}"))
                process.stdin.flush()
                eventually(lambda number=number: as_of() == f"slot {number}")  # type: ignore[misc]  # a default has no type
            process.stdin.write(block("slot 4"))
            process.stdin.close()
            summary = process.stdout.read().decode()
        assert summary == f"{store}: 2 order books of 1 pair published in 2 changes, revision 4\n"

    def test_without_a_block_nothing_is_published(self, events: Path, store: Path):
        events.write_bytes(place("a") + block("slot 1"))
        done = invoke("publish", store, f"orders:{events}")
        assert (done.returncode, done.stdout) == (5, f"{store}: 0 order books published, revision 0\n")
        assert f"{events}: its state is not known yet; waiting for a reset\n" in done.stderr

    def test_a_block_is_the_as_of_of_the_books(self, events: Path, store: Path):
        done = invoke("publish", store, f"orders:{events}", "--as-of", "slot 7")
        assert done.returncode == 2
        assert f"{events} sets the as_of of its books: omit --as-of" in done.stderr

    def test_standard_input_is_published_as_it_arrives(self, tmp_path: Path, store: Path):
        def as_of() -> str | None:
            return open_feed(store).read().as_of if store.exists() else None

        reading, writing = os.pipe()
        with running(tmp_path, store, "orders:-", command="publish", stdin=reading) as publishing:
            os.close(reading)
            os.write(writing, EVENTS)
            eventually(lambda: as_of() == "slot 2")
            assert set(spots(open_feed(store).read())) == {1}
            os.write(writing, rollback("slot 1"))
            eventually(lambda: as_of() == "slot 1")
            assert set(spots(open_feed(store).read())) == {1, 2}
            os.close(writing)
            assert publishing.process.wait(DEADLINE_SECONDS) == 0


def processes(service: Service) -> dict[int, object]:
    """Send requests until two workers have responded, and return the problem of each."""
    found: dict[int, object] = {}

    def both() -> bool:
        health = service.request("/healthz").json
        found[health["process"]] = health["problem"]
        return len(found) == 2

    eventually(both)
    return found


def test_two_workers_serve_a_file_and_report_an_unknown_state(tmp_path: Path, events: Path):
    with running(tmp_path, f"orders:{events}", "--port", 0, "--workers", 2) as command:
        service = command.service
        eventually(lambda: command.stderr.count("listening on") == 2)
        assert set(processes(service).values()) == {None}
        append(events, place("b", 3) + block("slot 3") + rollback("slot 2"))
        append(events, rollback("slot 9"))
        problem = "its state is unknown since line 11: block 'slot 9' must be retained for a rollback "
        eventually(lambda: all(str(one).startswith(problem) for one in processes(service).values()))
        answer = service.order_book(str(pair(1).base), str(ADA))
        assert answer.headers[wire.AS_OF.lower()] == "slot 2"
        assert [one["accumulated_liquidity"] for one in answer.json["asks"]] == [10]
        append(events, RESET + place("a", amount=7) + block("slot 1"))
        eventually(lambda: set(processes(service).values()) == {None})
        asks = service.order_book(str(pair(1).base), str(ADA)).json["asks"]
        assert [one["accumulated_liquidity"] for one in asks] == [7]


def test_standard_input_is_served(tmp_path: Path):
    reading, writing = os.pipe()
    os.write(writing, EVENTS)
    with running(tmp_path, "orders:-", "--port", 0, "--max-stale", 0.1, stdin=reading) as command:
        os.close(reading)
        service = command.service
        assert len(service.pair_list().json["pairs"]) == 1
        os.write(writing, b"nonsense\n")
        eventually(lambda: service.request("/healthz").status == 503)
        assert len(service.pair_list().json["pairs"]) == 1
        os.write(writing, RESET + block("slot 3"))
        eventually(lambda: service.request("/healthz").status == 200)
        assert len(service.pair_list().json["pairs"]) == 0
        os.close(writing)


def test_a_relay_keeps_a_store_the_same(tmp_path: Path, events: Path, store: Path):
    with open_store(store) as before:
        before.publish(book(9))
    with running(tmp_path, f"orders:{events}?history=5", store, command="relay") as relay:
        eventually(lambda: "relaying" in relay.stderr)
        assert untimed(relay.stderr) == f"relaying {events} into {store}: 1 pairs, revision 2\n"
        append(events, place("c", 3) + block("slot 3"))
        eventually(lambda: set(spots(open_feed(store).read())) == {1, 3})
        append(events, rollback("slot 2"))
        eventually(lambda: set(spots(open_feed(store).read())) == {1})
        assert open_feed(store).read().as_of == "slot 2"


@pytest.mark.parametrize("command", [("pairs",), ("relay", "market.db"), ("serve",)])
def test_a_missing_feed_is_an_error(command: tuple[str, ...]):
    done = invoke(command[0], "orders:nowhere", *command[1:])
    assert (done.returncode, "nowhere cannot be opened: No such file or directory" in done.stderr) == (3, True)
