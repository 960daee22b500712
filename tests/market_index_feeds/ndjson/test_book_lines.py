"""The content of lines, and what rejected lines leave invalid."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable

import pytest

from market_index import Freshness, OrderBook, Pair, wire
from market_index.wire import CommitLine
from market_index_feeds.line_content import RejectedLine
from market_index_feeds.line_source import MAX_LINE_BYTES, LineBatch, LineCutter
from market_index_feeds.medium import Unnamed
from market_index_feeds.ndjson.book_lines import Content, contents_of
from tests.market_index_feeds.made_up import pair
from tests.market_index_feeds.ndjson.lines import commit, line, retraction

BAD = line(1).replace(b"[]", b"0")


def contents(text: bytes, *, is_end: bool = False) -> list[Content]:
    cutter = LineCutter()
    return list(contents_of(LineBatch(list(cutter.feed(text)), cutter.unfinished, len(text), is_end=is_end)))


def test_a_line_contains_a_book_or_a_retraction_or_a_commit_or_nothing():
    assert contents(line(1) + b" \r\n\n" + retraction(2) + commit("slot 1") + line(2)[:-1]) == [
        OrderBook(pair(1)),
        pair(2),
        CommitLine(Freshness("slot 1")),
    ]


@pytest.mark.parametrize(
    ("text", "invalid"),
    [
        (BAD, pair(1)),
        (b"nonsense\n", Unnamed.UNREADABLE),
        (b"x" * (MAX_LINE_BYTES + 1) + b"\n", Unnamed.UNREADABLE),
        (line(1).replace(b"}", b',"as_of":"slot 1"}'), pair(1)),
        # A writer was killed in a line, and the next one continued that line.
        (line(1)[:30] + commit("slot 1"), Unnamed.UNREADABLE),
        (b'["as_of"]\n', Unnamed.UNREADABLE),
        (b'{"as_of":"slot 1","quote":"ADA"}\n', Unnamed.UNREADABLE),
        (retraction(1).replace(b"true", b"false"), pair(1)),
        (retraction(1).replace(b"}", b',"bids":[]}'), pair(1)),
        (retraction(1).replace(b"ADA", b"lovelace"), Unnamed.UNREADABLE),
        (commit(7), None),
        (commit(None, recorded_at="today"), None),
        (commit("slot 1", more=1), None),
        (commit("slot 1", published_at="today"), None),
    ],
)
def test_a_rejected_line_is_invalid_but_a_commit_line_is_only_counted(text: bytes, invalid: Pair | Unnamed | None):
    (rejected,) = contents(text)
    assert isinstance(rejected, RejectedLine)
    assert (rejected.number, rejected.invalid) == (1, invalid)


@pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="Python 3.13 still holds the first value; the cause is not known"
)
def test_a_rejected_line_is_decoded_once_at_a_time():
    """Its value was decoded again for the name of its pair, while the error still contained the first one."""
    hostile = BAD.replace(b'"bids":0', b'"bids":[' + b"[]," * 50_000 + b"0]")
    (rejected,) = contents(hostile)
    assert isinstance(rejected, RejectedLine)
    once = peak_of(lambda: wire.pair_named_in(hostile))
    assert peak_of(lambda: contents(hostile)) < 1.5 * once


def peak_of(work: Callable[[], object]) -> int:
    """Return the peak of the memory that some work allocates, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "invalid"),
    [(line(1)[:-1], pair(1)), (b"{", Unnamed.UNREADABLE), (b"x" * (MAX_LINE_BYTES + 1), Unnamed.UNREADABLE)],
)
def test_a_last_line_needs_its_newline(text: bytes, invalid: Pair | Unnamed):
    assert contents(text, is_end=True) == [RejectedLine(1, "must end with a newline", invalid)]
    assert contents(text) == contents(b" \r", is_end=True) == []
