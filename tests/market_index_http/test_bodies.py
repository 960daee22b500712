"""Bodies: encoded and compressed once per value, and dropped with their pairs."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any
from weakref import ref

import pytest

from market_index import LiveIndex, wire
from market_index.wire import encode
from market_index_http import create_app, responses, snapshots
from market_index_http.endpoints import order_book
from tests.asgi import request, scope_of
from tests.market_index_http.books import LARGE, MIDDLE, PAIR_LIST, book, numbered_pair, target

compress = vars(responses)["compress"]  # that of isal, or else of zlib

GZIP = {"Accept-Encoding": "gzip"}


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        return self.function(*arguments)


def test_each_value_is_encoded_and_compressed_once(monkeypatch: pytest.MonkeyPatch):
    sides, entries, packed = Counted(encode._levels_template), Counted(encode._entry), Counted(compress)
    monkeypatch.setattr(encode, "_levels_template", sides)
    monkeypatch.setattr(encode, "_entry", entries)
    monkeypatch.setattr(responses, "compress", packed)
    live = LiveIndex([book(number) for number in range(500)])
    app = create_app(live)

    def calls_of_requests() -> tuple[int, int, int]:
        before = sides.calls, entries.calls, packed.calls
        for _ in range(3):
            for colon in (":", "%3A"):
                request(app, target(numbered_pair(7)).replace(":", colon))
                request(app, target(numbered_pair(8)).replace(":", colon), headers=GZIP)
            request(app, PAIR_LIST)
            request(app, PAIR_LIST, headers=GZIP)
        return sides.calls - before[0], entries.calls - before[1], packed.calls - before[2]

    assert calls_of_requests() == (4, 500, 2)
    # There are too many spellings of one identifier: they are not cached.
    spelled = Counted(wire.with_identifiers)
    monkeypatch.setattr(snapshots, "with_identifiers", spelled)
    for _ in range(2):
        assert request(app, target(numbered_pair(7)).replace("abcd", "ABCD")).status == 200
    assert spelled.calls == 2
    live.publish(book(7, spot="1"))
    # One book, one chunk of the list, and the list in gzip are new. The unchanged book is not encoded again.
    new_sides, new_entries, new_packed = calls_of_requests()
    assert (new_sides, new_packed) == (2, 1)
    assert 1 <= new_entries < 300
    live.publish(book(7, 31, spot="1"))
    assert calls_of_requests() == (2, 0, 0), "the pair list did not change"


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
