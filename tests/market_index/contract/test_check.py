"""`check` finds each planted fault, and no correct service fails."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market_index.contract import LimitReached, NoResponse, Outcome, Request, Response, Rule, check
from tests.market_index.contract.double import ORDER_BOOK, PAIR_LIST, SNEK, Double, Planted
from tests.market_index.contract.planted import BY_ALL_DECISIONS, CORRECT, PLANTED


def planted(plant: Planted) -> Double:
    double = Double()
    plant(double)
    return double


@pytest.mark.parametrize(("rule", "name"), [(rule, name) for rule, plants in PLANTED.items() for name in plants])
def test_a_planted_fault_is_found(rule: Rule, name: str):
    (result,) = [one for one in check(planted(PLANTED[rule][name])).results if one.rule is rule]
    assert result.faults, "the rule holds"
    for fault in result.faults:
        assert str(fault.request).startswith(("GET /", "HEAD /", "PROPFIND /"))
        assert fault.came
        assert not {"None:", "None."} & set(fault.expected.split()[:1]), "it has no place"
    assert result.outcome(strict=True) is (Outcome.FAILED if rule.binds(strict=True) else Outcome.WARNING)
    assert result.outcome() is (Outcome.FAILED if rule.binds(strict=False) else Outcome.WARNING)


def test_each_rule_is_broken_by_a_planted_fault():
    assert PLANTED.keys() == set(Rule)


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_service_does_not_fail(name: str):
    assert check(planted(CORRECT[name])).failed() == []


@pytest.mark.parametrize("name", BY_ALL_DECISIONS)
def test_a_service_that_keeps_all_decisions_has_no_warning(name: str):
    found = {one.rule for one in check(planted(BY_ALL_DECISIONS[name])).results if one.failed}
    assert found == ({Rule.REVALIDATION} if name == "with the time in each body" else set())


def test_every_rule_is_checked_and_holds_for_a_service_that_keeps_all_decisions():
    report = check(Double())
    assert {one.rule: one.outcome(strict=True) for one in report.results} == dict.fromkeys(Rule, Outcome.PASSED)


def test_requests_only_read_and_are_bounded():
    double = Double()
    assert check(double).requests == len(double.requests) < 200
    assert {request.method for request in double.requests} == {"GET", "HEAD", "PROPFIND"}
    double.requests.clear()
    report = check(double, max_requests=50)
    assert len(double.requests) == report.requests == 50
    assert report.stopped == "the limit of 50 requests was reached"
    assert [one.rule for one in report.results if one.outcome() is Outcome.NOT_APPLICABLE]


def test_a_limit_before_the_first_response_is_an_error():
    def send(request: Request) -> Response:
        raise LimitReached("no more time")

    with pytest.raises(NoResponse, match="nothing was checked: no more time"):
        check(send)


@pytest.mark.parametrize("status", [0, 301, 401, 403, 404, 503])
def test_a_service_that_cannot_be_read_is_an_error(status: int):
    def send(request: Request) -> Response:
        if not status:
            raise NoResponse("connection refused")
        return Response(status, {}, b"no")

    reason = f"status {status}: b'no'" if status else "no response: connection refused"
    with pytest.raises(NoResponse, match=f"^the pair list cannot be read: {reason}$"):
        check(send)


def test_a_service_that_stops_is_an_error_and_no_fault():
    double = Double()

    def send(request: Request) -> Response:
        if len(double.requests) > 40:
            raise NoResponse("connection refused")
        return double(request)

    with pytest.raises(NoResponse, match="connection refused"):
        check(send)


def test_a_difference_is_asked_again_after_pauses():
    pauses: list[bool] = []
    check(Double(), pause=lambda: pauses.append(True))
    assert not pauses
    check(planted(PLANTED[Rule.SPOT]["stale"]), pause=lambda: pauses.append(True))
    assert pauses


BODIES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["ADA", SNEK, "0.5", "", "\ud800"]),
    lambda one: (
        st.lists(one, max_size=3)
        | st.dictionaries(
            st.sampled_from(["pairs", "base", "quote", "last_spot", "spot", "bids", "asks", "price", "error"]), one
        )
    ),
    max_leaves=12,
)


@given(BODIES, st.binary(max_size=4), st.sampled_from([200, 304, 404, 500]))
def test_no_body_ends_a_check_with_an_exception(value: object, garbage: bytes, status: int):
    double = Double()

    def send(request: Request) -> Response:
        found = double(request)
        body = json.dumps(value).encode() + garbage
        return (
            found if request.target == PAIR_LIST and len(double.requests) % 2 else Response(status, {"etag": "x"}, body)
        )

    check(send, max_requests=150)


@pytest.mark.parametrize("size", [1_000, 1_003])
def test_of_a_large_index_1_000_books_are_checked(size: int):
    double = Double()
    pairs = [("ADA", f"{number:056x}:") for number in range(size)]
    double.books = {pair: ("1", [], []) for pair in pairs}
    double.books[pairs[1]] = ("1", [(str(9_000 - price), 1) for price in range(2_000)], [])
    report = check(double)
    assert (report.failed(), report.stopped) == ([], None)
    checked = {one.rule: one.checked for one in report.results}
    assert (checked[Rule.LIST_ONCE], checked[Rule.BOOK_STATUS]) == (size, 1_000)
    asked = {one.target for one in double.requests}
    assert len([pair for pair in pairs if f"{ORDER_BOOK}?base={pair[0]}&quote={pair[1]}" in asked]) == 1_000
    assert len([one for one in double.requests if one.target == PAIR_LIST]) < 25
