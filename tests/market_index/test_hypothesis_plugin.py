"""The Hypothesis entry point: the type of a parameter is enough to draw its values."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import market_index
from market_index import Side

# Results of methods of a book, and a reference: a test gets them from the value that it draws.
WITHOUT_STRATEGY = {"CumulativeLevel", "CumulativeLevels", "Liquidity", "LiveIndex", "SimulatedFill"}
PUBLIC = {name: getattr(market_index, name) for name in market_index.__all__}
TYPES = {one for one in PUBLIC.values() if inspect.isclass(one) and not issubclass(one, Exception)} - {Side}
OF_TYPE = sorted((one for one in TYPES if one.__name__ not in WITHOUT_STRATEGY), key=lambda one: one.__name__)


@pytest.mark.parametrize("of_type", OF_TYPE)
def test_a_type_is_enough(of_type: type):
    @settings(max_examples=5, phases=[Phase.generate], database=None)
    @given(st.from_type(of_type))
    def each(value: object) -> None:
        assert type(value) is of_type

    each()


def test_a_type_hint_is_enough_without_importing_the_strategies():
    script = """
from hypothesis import HealthCheck, given, settings
from market_index import OrderBook, Side

@settings(max_examples=20, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(...)
def each(book: OrderBook, side: Side) -> None:
    assert type(book) is OrderBook and type(side) is Side
    print("drawn")

each()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["drawn"] * 20


@pytest.mark.parametrize(
    "statement",
    [
        "from market_index.strategies import order_books; from hypothesis import given",
        pytest.param("import market_index.strategies", marks=pytest.mark.thorough),
        pytest.param("import market_index, hypothesis.strategies", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("plugins", [True, False])
def test_imports_may_be_in_any_order(statement: str, plugins: bool):
    script = f"""
import os
if not {plugins}:
    os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"
{statement}
from hypothesis import strategies as st
from market_index import MarketIndex
assert st.from_type(MarketIndex).validate() is None
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_strategies_of_other_types_do_not_change():
    script = """
import collections.abc as abc
import json, os, sys, typing
if sys.argv[1:] == ["without"]:
    os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"
from hypothesis import strategies as st
os.environ.pop("HYPOTHESIS_NO_PLUGINS", None)
print("market_index" in sys.modules)
types = [abc.Mapping[str, int], typing.Mapping, abc.Mapping, abc.Hashable, abc.Sized, abc.Container, abc.Collection,
         abc.Iterable, abc.Iterable[int], abc.Collection[int], typing.Hashable, typing.Sized, object]
for one in types:
    print(one, repr(st.from_type(one)))
"""
    with_plugin, without = (
        subprocess.run([sys.executable, "-c", script, word], capture_output=True, text=True, check=True).stdout
        for word in ("with", "without")
    )
    assert (with_plugin.split()[0], without.split()[0]) == ("True", "False")
    assert with_plugin.splitlines()[1:] == without.splitlines()[1:]


def test_the_library_itself_never_imports_hypothesis():
    script = "import sys, market_index, market_index_feeds, market_index_http; print('hypothesis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
