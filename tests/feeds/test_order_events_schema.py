"""docs/order-events.schema.json accepts what the reader of events accepts, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
from hypothesis import event, given, settings
from hypothesis import strategies as st

from market_index import MarketIndexError
from market_index_feeds.orders import read_event

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "order-events.schema.json").read_text())
IS_VALID = jsonschema_rs.validator_for(SCHEMA).is_valid
POLICY = "0123456789abcdef" * 3 + "01234567"

ids = st.from_regex(r"[ -~]{1,200}", fullmatch=True)
points = ids.map(lambda text: text.strip(" ")).filter(bool)
assets = st.just("ADA") | st.builds(
    lambda policy, name, is_upper: f"{policy}:{name.hex()}".upper() if is_upper else f"{policy}:{name.hex()}",
    st.binary(min_size=28, max_size=28).map(bytes.hex),
    st.binary(max_size=32),
    st.booleans(),
)
# An order on the ledger can name what is no asset.
bytes_in_hex = assets | st.builds(lambda policy, name: f"{policy.hex()}:{name.hex()}", st.binary(), st.binary())
amounts = st.integers() | st.integers(-(10**60), 10**60) | st.from_regex(r"-?0*[0-9]+\Z", fullmatch=True)
prices = st.from_regex(SCHEMA["$defs"]["price"]["pattern"].replace("$", r"\Z"), fullmatch=True)
pairs: dict[str, st.SearchStrategy[object]] = {"base": assets, "quote": assets}

valid_events: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries(
        {
            "place": ids,
            "base": bytes_in_hex,
            "quote": bytes_in_hex,
            "offered": st.sampled_from(["base", "quote"]),
            "amount": amounts,
            "price": prices,
        }
    ),
    st.fixed_dictionaries({"remove": ids}),
    st.fixed_dictionaries({"spot": st.none() | prices, **pairs}),
    st.fixed_dictionaries({"untrack": st.just(True), **pairs}),
    st.fixed_dictionaries({"block": points}),
    st.fixed_dictionaries({"rollback": points}),
    st.fixed_dictionaries({"reset": st.just(True)}),
)

near_misses: st.SearchStrategy[object] = st.one_of(
    st.sampled_from(["", " ", " a", "a ", "a\n", "\x7f", "é", "a" * 200, "a" * 201, "base", "quote", "BASE"]),
    st.sampled_from(["ADA", "ada", "lovelace", POLICY, f"{POLICY}:", f"{POLICY}:0", f"{POLICY}:{'0' * 66}", ":"]),
    st.sampled_from([0, -1, 1, 1.5, 2.0, 10**40, "-1", "--1", "+1", "1e3", "٣", "0" * 41, None, True, False, [], {}]),
    st.text("0123456789.eE+-/ \n", max_size=8),
    st.text(max_size=3),
)
KEYS = [*SCHEMA["oneOf"][0]["properties"], "remove", "spot", "untrack", "block", "rollback", "reset", "Price"]
keys = st.sampled_from(KEYS)


@st.composite
def altered_events(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid event of which some keys are missing, have another value, or were added."""
    values = draw(valid_events)
    for key in draw(st.lists(st.sampled_from(sorted(values)), max_size=2)):
        if draw(st.booleans()):
            values[key] = draw(near_misses)
        else:
            values.pop(key, None)
    for key in draw(st.lists(keys, max_size=1)):
        values[key] = draw(near_misses)
    return values


def is_specified(values: dict[str, Any]) -> bool:
    """Return whether the schema accepts an event, and the rules in its comment, which no schema can express."""
    if not IS_VALID(values):
        return False
    has_one_asset = not values.keys().isdisjoint(("spot", "untrack")) and (
        values["base"].lower() == values["quote"].lower()
    )
    return not has_one_asset and type(values.get("amount")) is not float


def is_read(text: str) -> bool:
    try:
        read_event(text.encode())
    except MarketIndexError:
        return False
    return True


def test_the_schema_is_a_schema():
    jsonschema_rs.meta.validate(SCHEMA)


@given(valid_events)
def test_the_schema_and_the_reader_accept_valid_events(values: dict[str, Any]):
    assert IS_VALID(values)
    assert is_read(json.dumps(values)) == is_specified(values)


@given(altered_events())
@settings(max_examples=600)
def test_the_schema_and_the_reader_agree_on_altered_events(values: dict[str, Any]):
    is_accepted = is_read(json.dumps(values))
    event(f"accepted: {is_accepted}")
    assert is_accepted == is_specified(values)


@given(st.recursive(near_misses, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2)))
def test_the_schema_and_the_reader_agree_on_any_other_json(value: Any):
    assert is_read(json.dumps(value)) == (isinstance(value, dict) and is_specified(value))
    assert isinstance(value, dict) or not IS_VALID(value)


def test_the_reader_rejects_what_the_comment_of_the_schema_excludes():
    place = '{"place":"a","base":"%s","quote":"%s","offered":"base","amount":%s,"price":"1"}'
    token = f"{POLICY}:0a"
    assert is_read(place % ("ADA", token, "2"))
    untrack = '{"untrack":true,"base":"%s","quote":"%s"}'
    for text in (
        untrack % ("ADA", "ADA"),
        untrack % (token, token.upper()),
        place % ("ADA", token, "2.0"),
    ):
        assert IS_VALID(json.loads(text))
        assert not is_read(text)
