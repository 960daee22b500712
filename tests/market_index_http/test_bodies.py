"""Bodies: encoded and compressed once per value, and dropped with their pairs."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any
from weakref import ref

import pytest

from market_index import LiveIndex, wire
from market_index_http import create_app, find_response, snapshots
from market_index_http.endpoints import order_book
from tests.asgi import request, scope_of
from tests.market_index_http.books import LARGE, MIDDLE, PAIR_LIST, book, numbered_pair, target

GZIP = {"Accept-Encoding": "gzip"}


def test_each_value_is_encoded_and_compressed_once():
    live = LiveIndex([book(number) for number in range(500)])
    app = create_app(live)

    def bodies() -> list[Any]:
        """Return the bodies of two books and of the list, plain and in gzip."""
        targets = target(numbered_pair(7)), target(numbered_pair(8)).replace(":", "%3A"), PAIR_LIST
        found = [find_response(app, scope_of(where, headers=one)) for where in targets for one in ({}, GZIP)]
        return [response and response.body for response in found]

    before = bodies()
    for changed, is_same in (
        ([], [True, True, True, True, True, True]),
        ([book(7, spot="1")], [False, False, True, True, False, False]),
        ([book(7, 31, spot="1")], [False, False, True, True, True, True]),  # the pair list does not change
    ):
        live.update(changed)
        after = bodies()
        assert [one is other for one, other in zip(before, after, strict=True)] == is_same
        before = after


def test_a_client_cannot_fill_the_cache_of_queries():
    """Only the canonical query has an entry, with raw colons or %3A."""
    live = LiveIndex([MIDDLE])
    snapshot = snapshots.Snapshots(live, b"no-cache").current()
    where, base, quote = target(MIDDLE.pair), MIDDLE.pair.base, MIDDLE.pair.quote
    canonical = where.partition("?")[2]
    others = [
        *(f"{canonical}&x={number}" for number in range(3)),
        f"&{canonical}",
        f"quote={quote}&base={base}",
        canonical.replace(":", "%3a"),
        canonical.replace("base", "%62ase"),
    ]
    for query in (*others, canonical, canonical.replace(":", "%3A")):
        assert order_book(snapshot, scope_of(f"?{query}")) is snapshot.order_book(MIDDLE.pair)
    assert {*snapshot.by_query} == {canonical.encode(), canonical.replace(":", "%3A").encode()}


def test_tags_are_equal_in_every_process_and_with_every_history():
    books = [LARGE, *(book(number, 1, spot="1") for number in range(10, 300))]
    program = (
        "import sys\nfrom market_index import LiveIndex, wire\nfrom market_index_http import create_app\n"
        "from tests.asgi import request\nbooks = map(wire.order_book_from_json, sys.stdin.buffer)\n"
        "app = create_app(LiveIndex(books))\n"
        "print(*[request(app, one).headers['etag'] for one in sys.argv[1:]])"
    )
    targets = (target(LARGE.pair), target(LARGE.pair).replace("abcd", "ABCD"), PAIR_LIST)
    done = subprocess.run(
        [sys.executable, "-c", program, *targets],
        input=b"\n".join(map(wire.order_book_to_json, books)),
        capture_output=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)},
        check=True,
    )
    live = LiveIndex(book(number) for number in range(20, 400))
    app = create_app(live)
    changed = LARGE.apply(spot="2", bids=[("0.0000005", 3)])
    restored = changed.apply(spot=LARGE.spot, bids=[("0.0000005", 0)])
    others = [book(number).pair for number in range(300, 400)]
    of_equal_length = [restored, *(one.apply(spot="2") for one in books[1:])]
    for published, retracted in (([changed], others), (of_equal_length, []), (books[1:], [])):
        assert {request(app, where).status for where in (PAIR_LIST, target(numbered_pair(20)))} == {200}
        live.update(published, retracted)
    assert done.stdout.decode().split() == [request(app, where).headers["etag"] for where in targets]


def test_no_replaced_or_retracted_value_stays_in_memory():
    live = LiveIndex([book(number, 1) for number in range(10)])
    app = create_app(live)
    values: list[ref[Any]] = [
        ref(live.current),
        ref(live.current.order_book(numbered_pair(1))),
        ref(live.current.order_book(numbered_pair(2))),
    ]
    for where in (PAIR_LIST, target(numbered_pair(1)), target(numbered_pair(2))):
        assert request(app, where).status == 200
    live.publish(book(1, 2))
    live.retract(numbered_pair(2))
    assert request(app, target(numbered_pair(3))).status == 200
    gc.collect()
    assert [value() for value in values] == [None] * 3


@pytest.mark.parametrize(
    ("max_age", "cache_control"), [(None, "no-cache"), (0, "max-age=0"), (2**31, "max-age=2147483648")]
)
def test_max_age_is_in_every_response(max_age: int | None, cache_control: str):
    app = create_app(LiveIndex([MIDDLE]), max_age=max_age)
    for where in (PAIR_LIST, target(MIDDLE.pair), target(MIDDLE.pair).replace("abcd", "ABCD")):
        answer = request(app, where)
        assert answer.headers["cache-control"] == cache_control
        again = request(app, where, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status, again.headers["cache-control"]) == (304, cache_control)


@pytest.mark.parametrize("max_age", [-1, 2**31 + 1, 1.0, True, "1"])
def test_an_invalid_max_age_is_rejected(max_age: Any):
    with pytest.raises(ValueError, match=r"max_age must be None or a whole number of seconds from 0 to 2\^31, got "):
        create_app(LiveIndex(), max_age=max_age)
