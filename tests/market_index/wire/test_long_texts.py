"""Reading takes a number of steps that is linear in the length of any text, and no text ends in another exception."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from market_index import AssetId, MarketIndexError, parse_price, wire
from market_index_feeds.line_json import marker_from_json
from market_index_feeds.lines import Line
from market_index_feeds.names import without_credentials
from market_index_feeds.orders import Blocks
from tests.command import LINES
from tests.market_index.wire.texts import BOOK


def read_event(text: bytes) -> None:
    blocks = Blocks(0, lambda *_: None)
    for number, line in enumerate((b'{"reset":true}', text)):
        blocks.read(Line(number, line))


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


READERS: tuple[Callable[[bytes], object], ...] = (
    read_event,
    wire.order_book_from_json,
    wire.pair_list_from_json,
    marker_from_json,
    wire.freshness_from_json,
    wire.pair_named_in,
    lambda data: AssetId.parse(text_of(data)),
    lambda data: parse_price(text_of(data)),
    lambda data: wire.parse_time(text_of(data)),
    lambda data: without_credentials(text_of(data)),
)

# What is between < and > is repeated.
PLACE = {"place": "a#0", "base": BOOK["base"], "quote": "ADA", "offered": "base", "amount": "1", "price": "2"}
TEXTS = [
    *(json.dumps(PLACE | {"amount": text}) for text in ("<0>1", "-<1>")),
    *(json.dumps(PLACE | {"price": text}) for text in ("<1>/29000", "1.<0>x", "1e<1>x")),
    *(json.dumps(PLACE | {"base": text}) for text in ("<ab>:", ":<ab>x")),
    *('{"block": <[>', '{"bids": [<[],> 0]}', '{<"as_of":1,>"base":1}', '{"as_of": <1>}', '{"remove": <"a":0,>'),
    *(json.dumps({"spot": "<1>/7", "base": BOOK["base"], "quote": "ADA"}), json.dumps(PLACE | {"place": "<a>"})),
    *(
        json.dumps(BOOK | {"spot": "0.<1>x"}),
        "2026-11-22T04:17:03.<1>",
        ":</>",
        "<:>",
        "<a>",
        "<1>",
        f"<{LINES[0].strip()}>",
    ),
]


def steps(read: Callable[[bytes], object], text: bytes) -> int:
    """Return how many lines of code are run."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        with suppress(MarketIndexError):
            read(text)
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("text", TEXTS)
def test_the_steps_are_linear_in_the_length(text: str):
    before, piece, after = re.split("[<>]", text, maxsplit=2)
    short, long, huge = ((before + piece * count + after).encode() for count in (300, 600, 2**18 // len(piece)))
    for read in READERS:
        steps(read, short)  # the first call makes what later ones use
        assert steps(read, long) <= 2 * steps(read, short) + 500, read
        with suppress(MarketIndexError):
            read(huge)  # what takes quadratic time in C, such as a regular expression, does not end
