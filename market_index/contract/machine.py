"""A Hypothesis state machine that tests a service into which the test can publish."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from market_index.contract import bodies
from market_index.contract.messages import Request, Response, Send
from market_index.contract.probes import ORDER_BOOK, PAIR_LIST
from market_index.index import MarketIndex
from market_index.order_book import OrderBook
from market_index.pairs import Pair

# Before the imports of Hypothesis, because its error names the extra.
from market_index.strategies import level_changes, order_books, pairs
from market_index.wire import order_book_to_json, pair_list_to_json

# isort: split
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

__all__ = ["service_machine"]


def service_machine(publish: Callable[[MarketIndex], object], get: Send) -> type[RuleBasedStateMachine]:
    """Return a state machine that publishes into a service, and compares its responses with what was published.

    In a test file, `TestMyService = service_machine(publish, get).TestCase` is the whole test.

    Args:
        publish: Makes the index the whole content of the service, and returns once the service shows it.
        get: Sends a request to the service, and returns the response.
    """
    return type("ServiceMachine", (_ServiceMachine,), {"publish": staticmethod(publish), "get": staticmethod(get)})


class _ServiceMachine(RuleBasedStateMachine):
    publish: Callable[[MarketIndex], object]
    get: Send

    @initialize()
    def start(self) -> None:
        self.index = MarketIndex()
        # The last entity tag of each target, and its content.
        self.tagged: dict[str, tuple[str, object]] = {}
        self.publish(self.index)

    @rule(book=order_books(max_levels=4))
    def add(self, book: OrderBook) -> None:
        self.show(self.index.with_books(book))

    @precondition(lambda machine: machine.index)
    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        book = self.index[data.draw(st.sampled_from([*self.index]))]
        bids, asks = data.draw(level_changes(book)), data.draw(level_changes(book))
        self.show(self.index.with_books(book.apply(bids, asks)))

    @precondition(lambda machine: machine.index)
    @rule(data=st.data())
    def retract(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from([*self.index]))
        self.show(self.index.without(pair))
        self.request_a_pair_that_is_not_tracked(pair)

    def show(self, index: MarketIndex) -> None:
        self.index = index
        self.publish(index)

    @rule(pair=pairs())
    def request_a_pair_that_is_not_tracked(self, pair: Pair) -> None:
        if pair not in self.index:
            target = f"{ORDER_BOOK}?base={pair.base}&quote={pair.quote}"
            response = self.get(Request(target))
            if response.status != 404:
                raise AssertionError(f"GET {target}: must be 404, got {response}")

    @invariant()
    def responses_are_what_was_published(self) -> None:
        self.compare(PAIR_LIST, pair_list_to_json(self.index.pair_list()))
        for pair, book in self.index.items():
            self.compare(f"{ORDER_BOOK}?base={pair.base}&quote={pair.quote}", order_book_to_json(book))

    def compare(self, target: str, text: bytes) -> None:
        """Require the content of a text, with and without the last entity tag."""
        expected = _content(Response(200, {}, text))
        tag, before = self.tagged.get(target, ("", None))
        for request in (Request(target, headers={"If-None-Match": tag}), Request(target)):
            response = self.get(request)
            found = before if response.status == 304 else _content(response)
            if found != expected:
                raise AssertionError(f"{request}: must be {expected}, got {found}")
            self.tagged[target] = response.headers.get("etag", tag), found


def _content(response: Response) -> Any:
    """Return the content of a response, with prices as numbers and pairs in any order; or the faults of its body."""
    examination = bodies.Examination()
    _, value = bodies.content_of(response)
    fields = value if type(value) is dict else {}
    if "pairs" in fields:
        found: Any = examination.pair_list(response)
    else:
        found = examination.book(bodies.Pair(fields.get("base", ""), fields.get("quote", "")), response)
    binding = [result for result in examination.results.values() if result.rule.binds(strict=False)]
    return [fault for result in binding for fault in result.faults] or found
