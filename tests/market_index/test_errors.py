"""The exceptions: pickle, copy, location, and the display of rejected values."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import market_index
from market_index import (
    ADA,
    MarketIndexError,
    OrderNotFound,
    Pair,
    PairNotFound,
    errors,
)
from market_index.errors import MAX_REPR_LENGTH, safe_repr

PAIR = Pair(ADA, ADA)


PUBLIC = [getattr(market_index, name) for name in market_index.__all__]
KINDS: list[type[MarketIndexError]] = [
    one for one in PUBLIC if isinstance(one, type) and issubclass(one, MarketIndexError)
]
MISSING = [PairNotFound("message", PAIR), OrderNotFound("message", "51ab#0")]
ERRORS = [kind("message") for kind in KINDS if kind not in map(type, MISSING)]


def test_the_hierarchy_is_that_of_the_docstring():
    lines = re.findall(r"^ +[│ ]*[├└]── (\w+) *(?:\(also an? (\w+)\))?(.*)$", errors.__doc__ or "", re.MULTILINE)
    drawn = {name: also for name, also, more in lines if "market_index_feeds" not in more} | {"MarketIndexError": ""}
    for kind in KINDS:
        also = [base.__name__ for base in kind.__bases__ if not issubclass(base, MarketIndexError)]
        assert drawn.pop(kind.__name__) == "".join(also).replace("Exception", "")
    assert drawn.keys() <= {"StoreBusy", "Conflict", "BookTooLarge", "UnknownOutcome"}


@pytest.mark.parametrize("error", [*ERRORS, *MISSING], ids=lambda error: type(error).__name__)
def test_an_error_survives_pickle_copy_and_a_location_before_its_message(error: MarketIndexError):
    located = error.at("bids[3]")
    assert str(located) == "bids[3]: message"
    for duplicate in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error), located):
        assert (type(duplicate), vars(duplicate)) == (type(error), vars(error))
        assert duplicate is located or str(duplicate) == str(error)


class Printed:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_any_repr_is_one_printable_line_of_bounded_length(text: str):
    for value in (text, text.encode(), Printed(text), [text]):
        line = safe_repr(value)
        assert line.isprintable()
        assert len(line.splitlines()) <= 1
        assert len(line) <= MAX_REPR_LENGTH


@pytest.mark.parametrize(("length", "line"), [(78, f"'{'x' * 78}'"), (79, f"'{'x' * 78}…"), (1_000, f"'{'x' * 78}…")])
def test_a_repr_of_more_than_80_characters_is_cut(length: int, line: str):
    assert safe_repr("x" * length) == safe_repr(Printed(repr("x" * length))) == line


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="ascii", min_codepoint=32), max_size=5),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text("ab", max_size=2), values, max_size=4),
)


@given(VALUES)
def test_the_repr_of_decoded_json_is_that_of_python_cut(value: object):
    text = repr(value)
    assert safe_repr(value) == (text if len(text) <= MAX_REPR_LENGTH else f"{text[: MAX_REPR_LENGTH - 1]}…")


def test_a_repr_that_a_subclass_overrides_is_shown():
    class Secret(str):
        __slots__ = ()

        def __repr__(self) -> str:
            return "<secret>"

    assert safe_repr(Secret("x" * 100)) == "<secret>"


def test_a_repr_that_fails_is_replaced_by_the_type():
    assert safe_repr(10**5000) == "<int>"
