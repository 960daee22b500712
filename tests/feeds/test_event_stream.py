"""The parser of server-sent events, against an independent model of the HTML standard."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from market_index_feeds.event_stream import Event, EventParser

MAX_BYTES = 20

PARTS = [
    *(b"\n", b"\r", b"\r\n", b"\n\n", b":", b" ", b"  ", b"\t", b"data", b"data:", b"data: ", b"Data: ", b"event:"),
    *(b"event: book", b"id: 7", b"retry: 10", b"x", b"{}", b"\0", b"\xef\xbb\xbf", b"\xef", b"\xff", b"\xe2\x80\xa8"),
    *(b"\x0b", b"\x85", b"data: " + b"y" * MAX_BYTES, b"y" * (MAX_BYTES + 9)),
]
"""Pieces of streams: ends of lines, fields, and bytes that other parsers take for ends of lines."""


def decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def events_of(stream: bytes) -> list[tuple[str, str]]:
    """Return the types and the data of the events of a whole stream, by the grammar and the rules of the standard."""
    text = decoded(stream).removeprefix("\ufeff")
    found, kind, data = list[tuple[str, str]](), "", list[str]()
    for match in re.finditer(r"([^\r\n]*)(?:\r\n|\r|\n)", text):
        line = match[1]
        if not line:
            if data:
                found.append((kind, "\n".join(data)))
            kind, data = "", []
        elif (field := re.fullmatch(r"([^:]*)(?::[ ]?(.*))?", line, re.DOTALL)) and field[1] in {"data", "event"}:
            value = field[2] or ""
            if field[1] == "event":
                kind = value
            else:
                data.append(value)
    return found


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    """Cut a stream into pieces."""
    ends = sorted({place % (len(stream) + 1) for place in places} | {0, len(stream)})
    return [stream[start:end] for start, end in pairwise(ends)]


@given(st.lists(st.sampled_from(PARTS)).map(b"".join) | st.binary(), st.lists(st.integers(0, 500)))
@example(b"data: 1\r\ndata: 2\r\n\r\ndata:  3\r\rdata: 4\n\r", list(range(40)))
@example(b"\xef\xbb\xbfevent: book\ndata: {}\n\n", [1, 2, 3])
@example(b"data\n\ndata\ndata\n\ndata:", [])
def test_events_are_those_of_the_standard_wherever_the_pieces_end(stream: bytes, places: list[int]):
    parser = EventParser(10_000)
    found = [event for piece in cut(stream, places) for event in parser.parse(piece)]
    assert [(decoded(one.name), decoded(one.data)) for one in found] == events_of(stream)


@given(st.lists(st.sampled_from(PARTS)).map(b"".join), st.lists(st.integers(0, 500)))
@example(b"data: " + b"y" * MAX_BYTES + b"x\n\n", [])
@example(b"data: " + b"y" * MAX_BYTES + b"\ndata: x\n\n", [])
@example(b"data: " + b"y" * 9 * MAX_BYTES + b"\n\n", [6 + 9 * MAX_BYTES + 1])
@example(b"data: " + b"y" * 9 * MAX_BYTES, [])
def test_a_larger_event_is_cut_in_bounded_memory_and_still_too_large(stream: bytes, places: list[int]):
    parser, whole = EventParser(MAX_BYTES), EventParser(10_000)
    found = list[Event]()
    for piece in cut(stream, places):
        found += parser.parse(piece)
        assert len(parser._line) + sum(map(len, parser._data)) < 4 * MAX_BYTES
    assert [one if len(one.data) <= MAX_BYTES else None for one in found] == [
        one if len(one.data) <= MAX_BYTES else None for one in whole.parse(stream)
    ]


def test_an_event_begins_with_its_first_field():
    parser = EventParser(MAX_BYTES)
    assert list(parser.parse(b": comment\n\nretry: 7\n\n")) == []
    assert parser.is_between_events
    for piece in (b"da", b"ta: 1", b"\n"):
        assert list(parser.parse(piece)) == []
        assert not parser.is_between_events
    assert list(parser.parse(b"\n")) == [Event(b"", b"1")]
    assert parser.is_between_events
