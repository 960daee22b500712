"""A Hypothesis state machine that tests a service into which the test can publish."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from market_index.contract.bodies import Book, Examination, Pair
from market_index.contract.messages import Request, Send
from market_index.contract.probes import PAIR_LIST, book_of
from market_index.index import MarketIndex
from market_index.pairs import Pair as DomainPair
from market_index.pairs import PairInfo

# Before the imports of Hypothesis, because its error names the extra.
from market_index.strategies import order_books, pairs

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
        # The last entity tag of each target, and its content.
        self.tagged: dict[str, tuple[str, object]] = {}
        self.show(MarketIndex())

    @rule(data=st.data())
    def add_or_replace(self, data: st.DataObject) -> None:
        pair = st.one_of(pairs(), st.sampled_from([*self.index])) if self.index else pairs()
        self.show(self.index.with_books(data.draw(order_books(pair=pair, max_levels=4))))

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
    def request_a_pair_that_is_not_tracked(self, pair: DomainPair) -> None:
        request = book_of(_named(pair))
        if pair not in self.index and (response := self.get(request)).status != 404:
            raise AssertionError(f"{request}: must be 404, got {response}")

    @invariant()
    def responses_are_what_was_published(self) -> None:
        listed = {_named(one): one.last_spot for one in self.index.pair_list()}
        self.compare(Request(PAIR_LIST), listed, Examination.pair_list)
        for pair, book in self.index.items():
            asked = _named(pair)
            sides = [[(one.price, one.accumulated_liquidity) for one in side] for side in (book.bids, book.asks)]
            self.compare(book_of(asked), Book(asked, book.spot, *sides), partial(Examination.book, pair=asked))

    def compare(self, request: Request, expected: object, read: Callable[..., object]) -> None:
        """Require the content, which `read` returns, with and without the last entity tag."""
        tag, before = self.tagged.get(request.target, ("", None))
        conditional = [Request(request.target, headers={"If-None-Match": tag})] if tag else []
        for sent in (*conditional, request):
            response = self.get(sent)
            examination = Examination()
            found = before if sent.headers and response.status == 304 else read(examination, response=response)
            binding = [result for result in examination.results.values() if result.rule.binds(strict=False)]
            faults = [fault for result in binding for fault in result.faults]
            if response.status not in {200, 304} or faults or found != expected:
                raise AssertionError(f"{sent}: must be {expected}, got {faults or found}, {response}")
            self.tagged[request.target] = response.headers.get("etag", tag), found


def _named(pair: DomainPair | PairInfo) -> Pair:
    return Pair(str(pair.base), str(pair.quote))
