"""Large books and pair lists are encoded once, in a thread, while the event loop answers other requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from market_index import LiveIndex, OrderBook, wire
from market_index_http import create_app
from market_index_http.bodies import MAX_ENTRIES_ON_LOOP
from tests.market_index_http.books import PAIR_LIST, SMALL, book, numbered_pair, target
from tests.service import Service, served
from tests.waiting import DEADLINE_SECONDS, eventually

HUGE = book(4, MAX_ENTRIES_ON_LOOP)


class Gate:
    """A function that counts its calls and waits inside each of them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.threads: list[int] = []
        self.opened = threading.Event()

    def __call__(self, *arguments: Any) -> Any:
        self.threads.append(threading.get_ident())
        assert self.opened.wait(DEADLINE_SECONDS)
        return self.function(*arguments)


def answers_while_encoding(service: Service, gate: Gate, slow: str, quick: str) -> None:
    with ThreadPoolExecutor(5) as threads:
        waiting = [threads.submit(service.request, slow) for _ in range(5)]
        eventually(lambda: gate.threads)
        assert service.request(quick).status == 200
        gate.opened.set()
        assert len({one.result().body for one in waiting}) == 1
    assert len(gate.threads) == 1


def test_a_large_book_is_encoded_once_in_a_thread(monkeypatch: pytest.MonkeyPatch):
    with served(create_app(LiveIndex([HUGE, SMALL]))) as service:
        assert service.request(target(SMALL.pair)).status == 200
        gate = Gate(wire.encoded_order_book)
        monkeypatch.setattr("market_index_http.bodies.encoded_order_book", gate)
        for _ in range(2):
            answers_while_encoding(service, gate, target(HUGE.pair), target(SMALL.pair))
        assert service.request(target(HUGE.pair)).body == wire.order_book_to_json(HUGE)


def test_a_large_book_that_changed_is_encoded_in_a_thread(monkeypatch: pytest.MonkeyPatch):
    live = LiveIndex([HUGE, SMALL])
    with served(create_app(live)) as service:
        # Both queries are cached, so the fast path answers.
        assert service.request(target(SMALL.pair)).status == service.request(target(HUGE.pair)).status == 200
        changed = HUGE.apply(bids=[("0.000001", 77)])
        live.publish(changed)
        assert service.request(target(SMALL.pair)).status == 200
        gate = Gate(wire.encoded_order_book)
        monkeypatch.setattr("market_index_http.bodies.encoded_order_book", gate)
        answers_while_encoding(service, gate, target(HUGE.pair), target(SMALL.pair))
        assert service.request(target(HUGE.pair)).body == wire.order_book_to_json(changed)


def test_a_large_pair_list_is_encoded_once_in_a_thread(monkeypatch: pytest.MonkeyPatch):
    live = LiveIndex([SMALL, *(OrderBook(numbered_pair(number)) for number in range(2, MAX_ENTRIES_ON_LOOP + 2))])
    with served(create_app(live)) as service:
        assert service.request(target(SMALL.pair)).status == 200
        gate = Gate(wire.encoded_pair_list)
        monkeypatch.setattr("market_index_http.bodies.encoded_pair_list", gate)
        for _ in range(2):
            answers_while_encoding(service, gate, PAIR_LIST, target(SMALL.pair))
        assert service.pair_list().body == wire.pair_list_to_json(live.current.pair_list())


def test_another_spelling_of_a_large_book_is_made_from_the_cached_body(monkeypatch: pytest.MonkeyPatch):
    def books(spelled: str) -> OrderBook:
        return wire.order_book_from_json(service.request(spelled).body)

    with served(create_app(LiveIndex([HUGE]))) as service:
        spelled = target(HUGE.pair).replace("abcd", "ABCD")
        assert service.request(target(HUGE.pair)).status == 200
        gate = Gate(wire.encoded_order_book)
        monkeypatch.setattr("market_index_http.bodies.encoded_order_book", gate)
        assert books(spelled) == HUGE
        assert gate.threads == []


def test_an_error_uses_no_thread(monkeypatch: pytest.MonkeyPatch):
    threads: list[object] = []
    monkeypatch.setattr("anyio.to_thread.run_sync", lambda *work, **_: threads.append(work))
    with served(create_app(LiveIndex())) as service:
        targets = ("/nothing", "/trading-view/order-book", "/trading-view/order-book?base=ADA&quote=ADA")
        assert [service.request(one).status for one in targets] == [404, 400, 404]
        assert service.request(PAIR_LIST, "POST").status == 405
    assert threads == []
